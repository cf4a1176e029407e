"""Estimators on devices: arrays of other libraries in and out, exact machines trained by another library."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import polymargin.device
from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin._accelerator import accelerator
from polymargin.datasets import make_waveform
from polymargin.device import Device, OutOfDeviceMemory, resolve_device
from polymargin.device import softmax as on_device
from polymargin.device.kernels import DeviceKernel
from polymargin.kernels import Blend
from polymargin.machines import TrainingRows
from polymargin.scale import ScaleSettings, _on_device
from polymargin.scale.feature_maps import LandmarkMap, centred
from polymargin.scale.landmark_bank import features_of
from polymargin.scale.sources import BlockStatistics
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
    for name, value in (
        ("_GROUP_SECONDS", 0.0),
        ("_STACK_SECONDS", 0.0),
        ("_STACKED_CUBES_PER_SECOND", np.inf),
        ("_SOFTMAX_OPERATIONS", 0.0),
    ):
        monkeypatch.setattr(_on_device, name, value)
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


@pytest.fixture
def softmax_fits(monkeypatch):
    """The softmax problems that were solved on the device."""
    found = []

    def watched(data, *args, **kwargs):
        found.append(data)
        return on_device.fit_softmax(data, *args, **kwargs)

    monkeypatch.setattr(polymargin.device, "fit_softmax", watched)
    return found


@pytest.mark.parametrize("scale", ["exact", "leaves", "landmarks"])
def test_decoders_are_fitted_on_the_device_of_the_fit(waves, stand_in, softmax_fits, scale):
    X, y = waves
    given = {"kernel": "rbf", "gamma": 0.05, "scale": scale, "scaling": SMALL}
    cpu = LSSVMClassifier(**given).fit(X, y)
    assert not softmax_fits
    gpu = LSSVMClassifier(device="cuda", **given).fit(X, y)
    assert len(softmax_fits) >= 5  # two ridges in two folds, and all rows
    np.testing.assert_allclose(gpu.loo_log_loss_, cpu.loo_log_loss_, rtol=1e-7)
    solved = len(softmax_fits)
    np.testing.assert_allclose(gpu.predict_log_proba(X), cpu.predict_log_proba(X), atol=1e-6)
    assert gpu.decoder_.fit_.gradient_norm <= gpu.decoder_.tol
    assert len(softmax_fits) == solved
    assert accelerator() is None


def test_decoders_on_a_device_do_not_depend_on_the_number_of_threads(wine, stand_in, softmax_fits):
    X, y = wine
    found = []
    for n_jobs in (1, 2):  # threads of joblib try the kernels
        model = LSSVMClassifier(device="cuda", n_jobs=n_jobs).fit(X, y)
        found.append((len(softmax_fits), model.predict_log_proba(X)))
        softmax_fits.clear()
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_small_softmax_problems_stay_on_the_cpu(wine, stand_in, softmax_fits, monkeypatch):
    X, y = wine
    monkeypatch.setattr(_on_device, "_SOFTMAX_OPERATIONS", 178.0 * 3 * 7)
    LSSVMClassifier(device="cuda", kernel="rbf", C=1.0, gamma=0.1).fit(X, y)
    assert {len(each.targets) for each in softmax_fits} == {178}  # the folds are smaller


def test_softmax_problems_that_do_not_fit_onto_the_device_are_solved_on_the_cpu(wine, stand_in, monkeypatch):
    X, y = wine
    given = {"device": "cuda", "kernel": "rbf", "C": 1.0, "gamma": 0.1, "scale": "exact"}
    tried = []

    def full(self, *args):
        tried.append(self)
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(on_device.DeviceProblem, "value", full)
    found = LSSVMClassifier(**given).fit(X, y).predict_log_proba(X)
    assert tried
    monkeypatch.setattr(_on_device, "_SOFTMAX_OPERATIONS", np.inf)
    np.testing.assert_array_equal(found, LSSVMClassifier(**given).fit(X, y).predict_log_proba(X))


def test_after_an_error_solvers_know_no_device(wine, stand_in, monkeypatch):
    X, y = wine

    def fails(*args, **kwargs):
        assert accelerator() is not None
        raise ZeroDivisionError

    monkeypatch.setattr("polymargin.estimators._flow.fit_decoder", fails)
    with pytest.raises(ZeroDivisionError):
        LSSVMClassifier(device="cuda", kernel="rbf", C=1.0, gamma=0.1).fit(X, y)
    assert accelerator() is None


def test_parameters_of_few_rows_are_refined_on_the_device(wine, stand_in, monkeypatch):
    X, y = wine
    refined = []

    def refine_parameters(rows, *args, **kwargs):
        refined.append(rows.class_index.size)
        return polymargin.device.search.refine_parameters(rows, *args, **kwargs)

    monkeypatch.setattr(polymargin.device, "refine_parameters", refine_parameters)
    monkeypatch.setattr("polymargin.estimators._candidates._DEVICE_SEARCH", 1e5)
    monkeypatch.setattr("polymargin.estimators._candidates.DEVICE_ROWS", 100)
    few = SearchSettings(decided_rows=100)
    model = LSSVMClassifier(kernel="rbf", device="cuda", metric="learned", search=few).fit(X, y)
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
    monkeypatch.setattr(_on_device, "_GROUP_SECONDS", 0.008)
    monkeypatch.setattr(_on_device, "_STACK_SECONDS", 0.03)
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


DIVIDED = {"scaling": SMALL, "n_landmarks": 40, "n_jobs": 2}


@pytest.fixture
def waves():
    return make_waveform(500, random_state=0)


@pytest.fixture
def used(monkeypatch):
    """What was computed on the device."""
    found = set()

    def watched(owner, name):
        function = getattr(owner, name)

        def run(*args, **kwargs):
            found.add(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, run)

    watched(polymargin.device, "fit_device_bank")
    watched(polymargin.device, "DeviceMargins")
    for name in ("__call__", "statistics", "times"):
        watched(_on_device.DeviceMap, name)
    return found


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
@pytest.mark.parametrize("scale", ["leaves", "landmarks", "both"])
def test_divided_fits_are_those_of_the_cpu(waves, stand_in, used, scale, coding):
    X, y = waves
    given = {"scale": scale, "coding": coding, **DIVIDED}
    cpu = LSSVMClassifier(**given).fit(X[:400], y[:400])
    expected = cpu.predict_proba(X)
    assert not used
    gpu = LSSVMClassifier(device="cuda", **given).fit(X[:400], y[:400])
    assert gpu.plan_.device == "cuda"
    assert "on cuda" in str(gpu.plan_)
    np.testing.assert_allclose(gpu.loo_margins_, cpu.loo_margins_, atol=1e-9)
    used.remove("fit_device_bank")  # of the sample at least
    np.testing.assert_allclose(gpu.predict_proba(X), expected, atol=1e-8)
    of_leaves, of_landmarks = {"DeviceMargins"}, {"__call__", "statistics", "times"}
    assert used == {"leaves": of_leaves, "landmarks": of_landmarks}.get(scale, of_leaves | of_landmarks)
    # Nothing of the device is left in the model, which is saved and computes on the CPU as well.
    gpu.set_params(device=None)
    np.testing.assert_allclose(gpu.predict_proba(X), expected, atol=1e-8)


@pytest.mark.parametrize("scale", ["leaves", "landmarks"])
def test_divided_fits_with_weights_and_groups_of_rows(waves, stand_in, used, scale):
    X, y = waves
    rng = np.random.default_rng(0)
    weights, groups = rng.integers(0, 4, len(y)), rng.integers(0, 200, len(y))
    given = {"scale": scale, "kernel": "rbf", "columns": "ranks", **DIVIDED}
    one, other = (
        LSSVMClassifier(device=device, **given).fit(X, y, sample_weight=weights, groups=groups)
        for device in (None, "cuda")
    )
    assert used
    np.testing.assert_allclose(other.predict_proba(X), one.predict_proba(X), atol=1e-8)
    np.testing.assert_allclose(other.loo_margins_, one.loo_margins_, atol=1e-9)


@pytest.mark.parametrize("soft", [False, True])
def test_a_map_on_a_device_is_that_of_the_cpu(stand_in, monkeypatch, soft):
    X, y = make_waveform(300, random_state=0)
    rng = np.random.default_rng(0)
    labels = rng.dirichlet(np.ones(4), 300) * rng.integers(0, 2, (300, 4)) if soft else None
    rows = TrainingRows(Blend(), X, y, rng.uniform(0.5, 2.0, 300), labels)
    cpu = centred(LandmarkMap.of(Blend(), 0.05, X[:30]), X)
    found = _on_device.DeviceMap(cpu, stand_in)
    monkeypatch.setattr(Device, "block_bytes", lambda self: 8.0 * 51 * 8 * 70)
    assert [each.stop for each in found.blocks(300)] == [70, 140, 210, 280, 300]
    np.testing.assert_allclose(features_of(found, X), cpu(X), atol=1e-11)
    thin = sparse.csr_array(np.round(X))
    np.testing.assert_allclose(found(thin), cpu(thin.toarray()), atol=1e-11)
    np.testing.assert_allclose(found.missing(X), cpu.missing(X))
    weights = rng.normal(size=(30, 2))
    np.testing.assert_allclose(found.times(X, weights), cpu(X) @ weights, atol=1e-11)
    for together in (False, True):
        # A class without rows has none of anything.
        one, other = (BlockStatistics(each, 4, together).in_blocks(rows) for each in (cpu, found))
        assert one.n_rows == other.n_rows
        np.testing.assert_allclose(other.weights, one.weights)
        np.testing.assert_allclose(other.sums, one.sums, atol=1e-10)
        np.testing.assert_allclose(other.products, one.products, atol=1e-10)


def test_leaves_of_few_rows_are_trained_and_predicted_on_the_cpu(waves, stand_in, used, monkeypatch):
    X, y = waves
    monkeypatch.setattr(_on_device, "_GROUP_SECONDS", 0.008)
    monkeypatch.setattr(_on_device, "_STACK_SECONDS", 0.03)
    model = LSSVMClassifier(device="cuda", scale="both", **DIVIDED).fit(X, y)
    model.predict_proba(X)
    assert not used


def test_leaves_and_landmarks_that_do_not_fit_onto_the_device_are_computed_on_the_cpu(
    waves, stand_in, monkeypatch
):
    X, y = waves
    expected = LSSVMClassifier(scale="both", **DIVIDED).fit(X, y).predict_proba(X)
    tried = []

    def full(self, *args):
        tried.append(self)
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(DeviceKernel, "values", full)
    monkeypatch.setattr(_on_device, "_SOFTMAX_OPERATIONS", np.inf)
    model = LSSVMClassifier(device="cuda", scale="both", **DIVIDED).fit(X, y)
    assert tried
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    del tried[:]
    monkeypatch.setattr(DeviceKernel, "__init__", full)
    model = LSSVMClassifier(device="cuda", scale="both", **DIVIDED).fit(X, y)
    assert tried
    np.testing.assert_array_equal(model.predict_proba(X), expected)


def test_other_errors_of_a_device_are_not_hidden(waves, stand_in, monkeypatch):
    def fails(*args):
        raise RuntimeError("illegal memory access")

    monkeypatch.setattr(DeviceKernel, "values", fails)
    # With two jobs joblib leaves a thread behind that still has the other kernel to train, in the test that comes next.
    alone = DIVIDED | {"n_jobs": 1}
    with pytest.raises(RuntimeError, match="illegal"):
        LSSVMClassifier(device="cuda", scale="landmarks", **alone).fit(*waves)


def test_kernels_that_are_functions_are_divided_on_the_cpu(waves, stand_in, used):
    X, y = waves
    given = {"kernel": lambda A, B: A @ B.T, "C": 1.0, "gamma": 1.0, "scale": "leaves"}
    model = LSSVMClassifier(device="cuda", **given, **DIVIDED).fit(X, y)
    assert model.plan_.device is None
    np.testing.assert_array_equal(
        model.predict_proba(X), LSSVMClassifier(**given, **DIVIDED).fit(X, y).predict_proba(X)
    )
    assert not used


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
