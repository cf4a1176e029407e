"""Estimators on devices: arrays of other libraries in and out, exact machines trained by another library."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import polymargin.device
from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.device import OutOfDeviceMemory, resolve_device
from polymargin.scale import ScaleSettings
from polymargin.selection import SearchSettings

strict = pytest.importorskip("array_api_strict")

SMALL = ScaleSettings(leaf_rows=60, sample_rows=100, decoder_rows=200)


#: scikit-learn dispatches on arrays only if SciPy was told to before it was imported.
dispatching = pytest.mark.skipif(
    os.environ.get("SCIPY_ARRAY_API") != "1", reason="run by a test below, with SCIPY_ARRAY_API=1"
)


@pytest.fixture
def stand_in(monkeypatch):
    """Let another library on the CPU stand in for a GPU: here is none."""
    device = resolve_device("cpu", library="array_api_strict")

    def resolved(name=None, *, library=None):
        return device if name == "cuda" else resolve_device(name, library=library)

    monkeypatch.setattr(polymargin.device, "resolve_device", resolved)
    monkeypatch.setattr("polymargin.device.margins.resolve_device", resolved)
    # As if the CPU took longer even for the few rows of these tests.
    monkeypatch.setattr("polymargin.estimators._places._GROUP_SECONDS", 0.0)
    return device


@pytest.fixture
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@dispatching
def test_prediction_sets_are_answered_in_kind():
    X, y = load_iris(return_X_y=True)
    model = LSSVMClassifier().fit(X, y)
    with config_context(array_api_dispatch=True):
        sets = model.predict_set(strict.asarray(X), 0.9)
        assert isinstance(sets, strict._array_object.Array)
        assert np.array_equal(np.asarray(sets), model.predict_set(X, 0.9))


@dispatching
@pytest.mark.parametrize("estimator", [LSSVMClassifier(), AutoKernelClassifier(metric=None)])
def test_arrays_of_another_library_are_answered_in_kind(estimator):
    X, y = load_iris(return_X_y=True)
    plain = estimator.fit(X, y)
    expected = plain.predict_proba(X), plain.predict(X), plain.decision_function(X)
    with config_context(array_api_dispatch=True):
        model = estimator.fit(strict.asarray(X), strict.asarray(y))
        given = strict.asarray(X)
        found = model.predict_proba(given), model.predict(given), model.decision_function(given)
        assert all(isinstance(each, strict._array_object.Array) for each in found)
        found = [np.asarray(each) for each in found]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@dispatching
def test_labels_that_are_no_numbers_are_numpy_arrays():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = LSSVMClassifier().fit(X, names)
    with config_context(array_api_dispatch=True):
        labels = model.predict(strict.asarray(X))
    assert isinstance(labels, np.ndarray)
    assert (labels == model.predict(X)).all()


@dispatching
def test_probabilities_of_single_precision_rows_have_single_precision():
    X, y = load_iris(return_X_y=True)
    model = LSSVMClassifier().fit(X, y)
    with config_context(array_api_dispatch=True):
        assert model.predict_proba(strict.asarray(X.astype(np.float32))).dtype == strict.float32


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_machines_of_a_device_are_those_of_the_cpu(wine, stand_in, coding):
    X, y = wine
    given = {"kernel": "rbf", "C": 2.0, "gamma": 0.05, "coding": coding}
    cpu = LSSVMClassifier(**given).fit(X, y)
    gpu = LSSVMClassifier(device="cuda", **given).fit(X, y)
    assert gpu.plan_.device == "cuda"
    assert gpu.plan_.scale == "exact"
    np.testing.assert_allclose(gpu.dual_coef_, cpu.dual_coef_, atol=1e-9)
    np.testing.assert_allclose(gpu.loo_margins_, cpu.loo_margins_, atol=1e-9)
    np.testing.assert_allclose(gpu.predict_proba(X), cpu.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize("metric", [None, "learned"])
def test_a_fit_on_a_device_chooses_what_one_on_the_cpu_chooses(wine, stand_in, metric):
    X, y = wine
    cpu = LSSVMClassifier(metric=metric).fit(X, y)
    gpu = LSSVMClassifier(metric=metric, device="cuda").fit(X, y)
    np.testing.assert_allclose(gpu.C_, cpu.C_, rtol=1e-6)
    np.testing.assert_allclose(gpu.gamma_, cpu.gamma_, rtol=1e-6)
    np.testing.assert_allclose(gpu.loo_log_loss_, cpu.loo_log_loss_, rtol=1e-5)
    np.testing.assert_allclose(gpu.predict_proba(X), cpu.predict_proba(X), atol=1e-5)


def test_parameters_of_few_rows_are_refined_on_the_device(wine, stand_in, monkeypatch):
    X, y = wine
    refined = []

    def refine_parameters(rows, *args, **kwargs):
        refined.append(rows.class_index.size)
        return polymargin.device.search.refine_parameters(rows, *args, **kwargs)

    monkeypatch.setattr(polymargin.device, "refine_parameters", refine_parameters)
    monkeypatch.setattr("polymargin.estimators._choice._DEVICE_SEARCH", 1e5)
    monkeypatch.setattr("polymargin.estimators._choice._DEVICE_ROWS", 100)
    few = SearchSettings(decided_rows=100)
    model = LSSVMClassifier(kernel="rbf", device="cuda", metric="learned", search=few).fit(X, y)
    assert refined
    assert set(refined) == {90}  # half of the rows
    assert model.loo_margins_.shape[0] == len(y)
    assert model.loo_log_loss_ < 0.1
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(1)]).all()


def test_groups_of_few_rows_are_trained_on_the_cpu(wine, stand_in, monkeypatch):
    X, y = wine

    def refused(*args, **kwargs):
        raise AssertionError("trained on the device")

    monkeypatch.setattr(polymargin.device, "fit_device_bank", refused)
    with pytest.raises(AssertionError):
        LSSVMClassifier(device="cuda").fit(X, y)
    monkeypatch.setattr("polymargin.estimators._places._GROUP_SECONDS", 0.008)
    model = LSSVMClassifier(device="cuda").fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X), LSSVMClassifier().fit(X, y).predict_proba(X), atol=1e-12
    )


def test_what_does_not_fit_onto_the_device_is_divided(wine, stand_in, monkeypatch):
    X, y = wine

    def too_large(*args, **kwargs):
        raise OutOfDeviceMemory("the kernel matrix needs 9 GiB")

    monkeypatch.setattr(polymargin.device, "fit_device_bank", too_large)
    with pytest.warns(UserWarning, match="divided into leaves and landmarks"):
        model = LSSVMClassifier(device="cuda", scaling=SMALL, n_landmarks=30).fit(X, y)
    assert model.plan_.scale == "both"
    assert model.score(X, y) > 0.9
    with pytest.raises(OutOfDeviceMemory, match="9 GiB"):
        LSSVMClassifier(device="cuda", scale="exact").fit(X, y)


def test_a_device_that_is_not_there_is_named():
    X, y = load_iris(return_X_y=True)
    with pytest.raises((ImportError, RuntimeError), match="cuda"):
        LSSVMClassifier(device="cuda").fit(X, y)
    with pytest.raises(ValueError, match="unknown device"):
        LSSVMClassifier(device="gpu").fit(X, y)


@pytest.mark.skipif(os.environ.get("SCIPY_ARRAY_API") == "1", reason="this is that run")
def test_dispatching_in_a_process_of_its_own():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "arrays or labels or single",
        __file__,
    ]
    done = subprocess.run(command, env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4 passed" in done.stdout
