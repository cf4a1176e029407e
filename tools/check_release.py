"""Build the wheel and the sdist, look into them, install the wheel in a fresh environment and use it there.

    python tools/check_release.py [FOLDER]

Needs pip, and mypy as `make lint` does. The built files are left in FOLDER, if one is named. Nothing of this tree is
imported: the commands run in a temporary folder, by the interpreters of new virtual environments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "polymargin"
#: Of both archives, in bytes: more is something that does not belong there.
LARGEST_FILE = 1_000_000
#: What users of an sdist need beside the source.
IN_SDIST = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "SECURITY.md",
    "pyproject.toml",
    "tests/naive.py",
)

FIT = """
import polymargin
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

assert "site-packages" in polymargin.__file__, polymargin.__file__
X_train, X_test, y_train, y_test = train_test_split(*load_wine(return_X_y=True), random_state=0)
model = make_pipeline(StandardScaler(), polymargin.LSSVMClassifier()).fit(X_train, y_train)
assert model.score(X_test, y_test) > 0.9
polymargin.save(model, "wine.model")
assert (polymargin.load("wine.model").predict_proba(X_test) == model.predict_proba(X_test)).all()

with open("flowers.csv", "w") as file:
    print("length,width,species", file=file)
    for row in range(60):
        print(f"{row % 3 + row / 100},{row % 7},{'abc'[row % 3]}", file=file)
"""

#: If mypy knew nothing of the package, the second line would have nothing to ignore, which --strict reports.
TYPED = """
from polymargin import LSSVMClassifier, datasets, load
from polymargin import LSSVM  # type: ignore[attr-defined]

reveal_type(LSSVMClassifier(C=1.0))
reveal_type(datasets.load("wine"))
reveal_type(load)
"""
TYPES = ("polymargin.estimators.lssvm.LSSVMClassifier", "polymargin._dataset.Dataset", "def (path: ")


def run(*command: str | os.PathLike[str], cwd: Path) -> str:
    """Run a command without what the surroundings say about Python; return what it prints, or stop with its errors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=kept | {"COLUMNS": "120"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with packages; return its folder of programs."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", *packages, cwd=folder.parent)
    return programs


def built(folder: Path) -> tuple[Path, Path, Path]:
    """Build the sdist, the wheel from the sdist, and the wheel from the tree; return the three."""
    programs = environment(folder / "build", "build", "hatchling")
    build = [
        programs / "python",
        "-m",
        "build",
        "--no-isolation",
    ]  # from this environment, which has nothing else
    run(*build, "--outdir", folder / "dist", ROOT, cwd=folder)  # the wheel is built from the sdist
    run(*build, "--wheel", "--outdir", folder / "tree", ROOT, cwd=folder)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    (from_tree,) = (folder / "tree").glob("*.whl")
    return sdist, wheel, from_tree


def files_in_wheel(wheel: Path) -> dict[str, tuple[int, int]]:
    """Return the size and checksum of every file."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: (info.file_size, info.CRC) for info in archive.infolist()}


def check_wheel(wheel: Path, from_tree: Path) -> None:
    """Compare the files of a wheel with those of the tree, and with the wheel that was built from the tree."""
    files = files_in_wheel(wheel)
    expected = {
        f"polymargin/{file.relative_to(SOURCE).as_posix()}"
        for file in SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    check("polymargin/py.typed" in expected, "there is no py.typed")
    for suffix in (".csv", ".toml", ".jinja", ".css", ".js"):  # of papers and of the report
        check(any(name.endswith(suffix) for name in expected), f"there is no {suffix} file in the package")
    packaged = {name for name in files if name.startswith("polymargin/")}
    check(packaged == expected, f"the wheel differs from src/: {sorted(packaged ^ expected)}")
    others = {name for name in files if ".dist-info/" not in name} - packaged
    check(not others, f"the wheel has more than the package: {sorted(others)}")
    check(any(name.endswith("dist-info/licenses/LICENSE") for name in files), "the wheel has no LICENSE")
    large = [name for name, (size, _) in files.items() if size > LARGEST_FILE]
    check(not large, f"files of more than {LARGEST_FILE} bytes: {large}")
    check(files == files_in_wheel(from_tree), "the wheels from the sdist and from the tree differ")


def check_sdist(sdist: Path) -> None:
    """Look for what belongs into an sdist, and for what does not."""
    with tarfile.open(sdist) as archive:
        sizes = {info.name.partition("/")[2]: info.size for info in archive.getmembers() if info.isfile()}
    missing = [name for name in IN_SDIST if name not in sizes]
    check(not missing, f"the sdist lacks {missing}")
    hidden = [name for name in sizes if name.startswith(".") and name != ".gitignore"]
    built_here = [name for name in sizes if "__pycache__" in name or name.endswith((".pyc", ".nbc", ".nbi"))]
    large = [name for name, size in sizes.items() if size > LARGEST_FILE]
    check(not [*hidden, *built_here, *large], f"the sdist has {[*hidden, *built_here, *large]}")


def check_installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel with the command line in a fresh environment and use it as a user does; return its programs."""
    programs = environment(folder / "user", f"{wheel}[cli]")
    work = folder / "elsewhere"
    work.mkdir()
    polymargin = programs / "polymargin"
    version = wheel.name.split("-")[1]
    check(run(polymargin, "--version", cwd=work).strip() == version, "--version is not the wheel's")
    run(programs / "python", "-c", FIT, cwd=work)
    run(polymargin, "fit", "flowers.csv", "--target", "species", "-o", "flowers.model", cwd=work)
    run(polymargin, "predict", "flowers.model", "flowers.csv", "-o", "out.csv", cwd=work)
    check(len((work / "out.csv").read_text().splitlines()) == 61, "predict did not write 60 rows")
    page = ("--report", "wine.html", "--repeats", "1", "--coding", "one-vs-all")
    run(polymargin, "compare", "wine", *page, cwd=work)
    check((work / "wine.html").stat().st_size > 10_000, "compare wrote no report")
    run(polymargin, "reproduce", "--list", cwd=work)
    return programs


def check_types(folder: Path, programs: Path) -> None:
    """Let mypy check a user's script against the installed package."""
    (folder / "script.py").write_text(TYPED)
    options = [
        "--follow-imports=silent",
        "--ignore-missing-imports",
        "--python-executable",
        programs / "python",
    ]
    said = run(sys.executable, "-m", "mypy", "--strict", *options, "script.py", cwd=folder)
    for name in TYPES:
        check(f'Revealed type is "{name}' in said, f"mypy does not know {name}:\n{said}")


def check(good: bool, message: str) -> None:
    """Stop with a message if something is not as it should be."""
    if not good:
        sys.exit(f"check_release: {message}")


def check_version() -> None:
    """See that the changelog and the citation are about this version."""
    text = (SOURCE / "_version.py").read_text(encoding="utf-8")
    version = text.rpartition('"')[0].rpartition('"')[2]
    for name in ("CHANGELOG.md", "CITATION.cff"):
        check(version in (ROOT / name).read_text(encoding="utf-8"), f"{name} does not mention {version}")


def main() -> None:
    """Do all of it and say how long each step took."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, start = Path(temporary), time.monotonic()

        def done(what: str) -> None:
            print(f"{time.monotonic() - start:5.0f} s  {what}", flush=True)

        check_version()
        sdist, wheel, from_tree = built(folder)
        done(f"built {sdist.name} and {wheel.name}")
        check_wheel(wheel, from_tree)
        check_sdist(sdist)
        done("looked into both")
        programs = check_installed(wheel, folder)
        done("installed the wheel, fitted, saved, loaded, predicted, compared")
        check_types(folder, programs)
        done("checked the types of a user's script")
        if len(sys.argv) > 1:
            Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
            for file in (sdist, wheel):
                shutil.copy(file, sys.argv[1])


if __name__ == "__main__":
    main()
