"""Hinge machines where numba does not compile, or has no place to keep what it compiled; each in its own process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polymargin

SOURCE = Path(polymargin.__file__).parent
FIT = """
import json, sys, warnings
import numpy as np
from polymargin import PosteriorSVMClassifier, SVMClassifier

X = np.random.default_rng(0).normal(size=(18, 2))
y = np.arange(18) % 3
X[:, 0] += y
models = [
    SVMClassifier(decoding="coupled-softmax"),
    SVMClassifier(kernel="laplacian"),
    SVMClassifier(kernel="exponential"),
    SVMClassifier(kernel="poly"),
    SVMClassifier(None, kernel="linear", cv=2),
    PosteriorSVMClassifier(),
    PosteriorSVMClassifier(machine="one-vs-all"),
][: int(sys.argv[1])]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    margins = [model.fit(X, y).margins(X).tolist() for model in models]
said = [str(warning.message) for warning in caught]
print(json.dumps({"margins": margins, "said": said, "where": sys.modules["polymargin"].__file__}))
"""


def fit_elsewhere(n_models, **environment):
    """Fit models in a new process; return their margins, the warnings and where the package was found."""
    done = subprocess.run(
        [sys.executable, "-c", FIT, str(n_models)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_same_machines(one, other):
    for ours, theirs in zip(one["margins"], other["margins"], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-3)


def test_every_hinge_machine_works_without_the_compiler():
    path = {"PYTHONPATH": str(SOURCE.parent)}
    interpreted = fit_elsewhere(6, NUMBA_DISABLE_JIT="1", **path)
    assert interpreted["said"] == []
    assert_same_machines(interpreted, fit_elsewhere(6, NUMBA_DISABLE_JIT="0", **path))


@pytest.fixture
def read_only_install(tmp_path):
    """Return the environment of a process that finds the package, and numba no place for its cache.

    Files stand where folders would be needed, which stops the superuser as well.
    """
    shutil.copytree(SOURCE, tmp_path / "polymargin", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "polymargin" / "solvers" / "__pycache__").write_text("in the way")
    (tmp_path / "file").write_text("in the way")
    nowhere = str(tmp_path / "file" / "cache")
    return {
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": nowhere,
        "XDG_CACHE_HOME": nowhere,
        "HOME": nowhere,
        "LOCALAPPDATA": nowhere,
    }


def test_machines_are_fitted_without_a_place_for_the_cache(read_only_install, tmp_path):
    found = fit_elsewhere(2, **read_only_install)
    assert found["where"].startswith(str(tmp_path))
    about_cache = [said for said in found["said"] if "NUMBA_CACHE_DIR" in said]
    assert len(about_cache) == 1
    assert "compiled again in every process" in about_cache[0]
    assert_same_machines(found, fit_elsewhere(2, PYTHONPATH=str(SOURCE.parent)))


def test_saved_machines_are_loaded_without_a_place_for_the_cache(read_only_install, tmp_path):
    pytest.importorskip("skops")
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    model = polymargin.SVMClassifier().fit(X, y)
    polymargin.save(model, tmp_path / "saved.model")
    load = "import sys, polymargin; print(polymargin.load(sys.argv[1]).decision_function([[0.0, 0.0]])[0])"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", load, str(tmp_path / "saved.model")],
        env={**os.environ, **read_only_install},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(model.decision_function([[0.0, 0.0]])[0], abs=1e-6)
