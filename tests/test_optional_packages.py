"""What works without the packages of the extras, in processes that cannot import them."""

import subprocess
import sys

import pytest

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run_without(names, code):
    command = [sys.executable, "-c", BLOCK.format(names=list(names)) + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


LIBRARY = """
import importlib, pkgutil
import polymargin
from sklearn.datasets import load_iris

X, y = load_iris(return_X_y=True)
assert polymargin.LSSVMClassifier(coding="one-vs-all", verbose=1).fit(X, y).score(X, y) > 0.9
needing = ("cli", "onnx", "report", "tables", "__main__")
for module in pkgutil.iter_modules(polymargin.__path__, "polymargin."):
    if module.name.split(".")[1] not in needing:
        importlib.import_module(module.name)
print("fine")
"""


def test_the_library_needs_no_extra():
    extras = [
        "typer",
        "rich",
        "skops",
        "matplotlib",
        "pandas",
        "pyarrow",
        "jinja2",
        "plotly",
        "onnx",
        "skl2onnx",
        "dask",
        "distributed",
    ]
    result = run_without(extras, LIBRARY)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "fine\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_says_that_it_needs_its_extra(missing):
    result = run_without([missing], "from polymargin.__main__ import main; main()")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"polymargin: the command line needs {missing}, which is not installed: "
        "install polymargin with its cli extra\n"
    )


def test_other_errors_of_import_are_not_taken_for_it():
    result = run_without(["joblib"], "from polymargin.__main__ import main; main()")
    assert "joblib is blocked" in result.stderr
    assert "cli extra" not in result.stderr


def test_the_command():
    result = subprocess.run([sys.executable, "-m", "polymargin", "--version"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == __import__("polymargin").__version__
