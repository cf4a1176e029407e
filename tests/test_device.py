"""Machines on a device against those of the CPU, for every array library that is there.

``POLYMARGIN_DEVICE=cuda`` (`make test-gpu`) adds torch on the GPU.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits, load_iris, load_wine

from conftest import blobs
from polymargin import Codebook
from polymargin.codebooks import ecoc, one_vs_all, one_vs_one
from polymargin.device import (
    Device,
    DeviceMargins,
    OutOfDeviceMemory,
    _adaptors,
    device_of,
    factors,
    fit_device_bank,
    kernel_matrix,
    mean_squared_gradients,
    press_path,
    refine_parameters,
    refinement,
    resolve_device,
)
from polymargin.kernels import (
    RBF,
    Blend,
    Exponential,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Scaled,
)
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.solvers import gradients as on_cpu
from polymargin.solvers.ridge import NotPositiveDefinite


@pytest.fixture
def torch_device():
    pytest.importorskip("torch")
    return resolve_device("cpu", library="torch")


X, Y = blobs(n=48, K=4, d=3, seed=1)
X[7], X[20] = X[3], X[3]  # copies, one of them of another class
NEW = np.vstack([blobs(n=9, K=4, d=3, seed=2)[0], X[:2]])
WIDTHS = np.array([1.5, 0.0, 0.4])
KERNELS = {
    "rbf": RBF(),
    "laplacian": Laplacian(),
    "exponential": Exponential(),
    "blend": Blend(),
    "poly": Polynomial(3, 0.7),
    "centred poly": Polynomial(2, 1.0, centred=True),
    "linear": Linear(),
    "widths": Scaled(Exponential(), WIDTHS),
    "ranks": Scaled(Laplacian(), columns="ranks"),
    "ranks with widths": Scaled(Blend(), WIDTHS, "ranks"),
    "scaled centred poly": Scaled(Polynomial(2, 1.0, centred=True), WIDTHS),
}
CODINGS = {
    "one-vs-one": one_vs_one,
    "one-vs-all": one_vs_all,
    "ecoc": ecoc,
    "mixed": lambda K: Codebook([[-1, 0, 1, 1], [1, -1, 0, 1], [0, 1, -1, -1], [1, 1, 1, 0]]),
}
PARTS = ("dual_coef", "intercept", "norms", "C", "gamma", "mu", "zeta", "log_evidence", "loo_margins")


def rows_of(kernel=RBF(), X=X, y=Y, weights=None, **more):  # noqa: B008
    weights = np.ones(len(y)) if weights is None else weights
    return TrainingRows(kernel.fitted(X, weights), X, y, weights, **more)


def assert_same_bank(found, expected, tolerance=1e-8, parts=PARTS):
    for name in parts:
        values, wanted = getattr(found, name), getattr(expected, name)
        assert type(values) is np.ndarray
        assert values.dtype == np.float64
        assert_allclose(
            values, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()), err_msg=name
        )


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of few rows everywhere, so that small matrices have many of them."""
    monkeypatch.setattr(factors, "BLOCK", 7)
    monkeypatch.setattr(Device, "block_bytes", lambda self: 8.0 * 48 * 8 * 5)


# Kernels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_matrices_are_those_of_the_cpu(device, name, small_blocks):
    kernel = KERNELS[name].fitted(X, np.ones(len(X)))
    found = device.to_numpy(kernel_matrix(kernel, X, gamma=0.3, device=device))
    assert_allclose(found, kernel.gram(X, gamma=0.3), rtol=1e-11, atol=1e-11)
    if kernel.parts != ("products",):
        assert (np.diagonal(found) == np.diagonal(kernel.gram(X, gamma=0.3))).all()
    found = device.to_numpy(kernel_matrix(kernel, NEW, X, gamma=0.3, device=device))
    assert_allclose(found, kernel.gram(NEW, X, gamma=0.3), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kernel", [RBF(), Exponential(), Blend()])
def test_rows_far_from_zero_lose_no_digits(device, kernel):
    expected = kernel.gram(X, gamma=0.5)
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        found = device.to_numpy(kernel_matrix(kernel, X + 1e4, gamma=0.5, device=device, dtype=dtype))
        assert found.dtype == dtype
        assert_allclose(found, expected, atol=tolerance)
        assert_allclose(found[3, [7, 20]], 1.0, atol=1e-7)  # equal rows


def test_kernels_without_a_formula_are_refused(device):
    with pytest.raises(ValueError, match="cannot be computed on a device: choose rbf"):
        kernel_matrix(Precomputed(), X @ X.T, device=device)


# Banks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_machines_and_margins_of_every_kernel(device, name):
    data = rows_of(KERNELS[name])
    expected = fit_lssvm_bank(data, one_vs_all(4), C=3.0, gamma=0.3)
    found = fit_device_bank(data, one_vs_all(4), 3.0, 0.3, device)
    assert_same_bank(found, expected)
    assert found.blocks is None
    assert found.nested is None
    assert_allclose(found.rounding_error, expected.rounding_error, rtol=1e-6)
    by_features = fit_lssvm_bank(data, one_vs_all(4), C=3.0, gamma=0.3, keep_factors=False)
    for bank in (found, by_features):
        assert_allclose(DeviceMargins(bank, device).margins(NEW), bank.margins(NEW), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_machines_of_every_coding_with_weights_and_groups(device, coding, weighted, grouped, small_blocks):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.2, 3.0, len(Y)) if weighted else None
    groups = rng.integers(0, 15, len(Y)) if grouped else None
    data = rows_of(Blend(), weights=weights, groups=groups)
    book = CODINGS[coding](4)
    L = book.n_columns
    C, gamma = np.where(np.arange(L) % 2, 5.0, 0.7), np.where(np.arange(L) % 3, 0.3, 0.1)
    expected = fit_lssvm_bank(data, book, C=C, gamma=gamma)
    found = fit_device_bank(data, book, C, gamma, device)
    assert_same_bank(found, expected)
    assert_allclose(DeviceMargins(expected, device).margins(NEW), expected.margins(NEW), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_machines_of_soft_labels(device, coding):
    soft = np.random.default_rng(1).dirichlet(np.full(4, 0.4), len(Y))
    soft[soft < 0.05] = 0.0
    soft /= soft.sum(axis=1, keepdims=True)
    data = rows_of(Exponential(), y=soft.argmax(axis=1), soft_labels=soft)
    book = CODINGS[coding](4)
    assert_same_bank(
        fit_device_bank(data, book, 2.0, 0.4, device), fit_lssvm_bank(data, book, C=2.0, gamma=0.4)
    )


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits])
def test_machines_of_real_data(torch_device, load, monkeypatch):
    monkeypatch.setattr(factors, "BLOCK", 100)
    A, y = load(return_X_y=True)
    A = (A - A.mean(axis=0)) / np.maximum(A.std(axis=0), 0.1)
    A, y, new = A[::2][:500], y[::2][:500], A[1::2][:100]
    gamma = 0.5 / A.shape[1]
    for kernel in (RBF(), Blend()):
        data = rows_of(kernel, A, y)
        for book in (one_vs_all(y.max() + 1), one_vs_one(y.max() + 1)):
            expected = fit_lssvm_bank(data, book, C=10.0, gamma=gamma)
            found = fit_device_bank(data, book, 10.0, gamma, torch_device)
            assert_same_bank(found, expected)
            margins = DeviceMargins(found, torch_device).margins(new)
            assert_allclose(margins, expected.margins(new), rtol=1e-8, atol=1e-8)


def test_constant_rows_and_sparse_rows(device):
    constant = rows_of(RBF(), np.ones((12, 2)), np.arange(12) % 3)
    expected = fit_lssvm_bank(constant, one_vs_all(3), C=1.0, gamma=1.0)
    assert_same_bank(
        fit_device_bank(constant, one_vs_all(3), 1.0, 1.0, device),
        expected,
        parts=("dual_coef", "loo_margins"),
    )
    dense = rows_of(Laplacian())
    thin = replace(dense, X=sparse.csr_array(X))
    expected = fit_lssvm_bank(dense, one_vs_all(4), C=1.0, gamma=0.3)
    found = fit_device_bank(thin, one_vs_all(4), 1.0, 0.3, device)
    assert_same_bank(found, expected)
    margins = DeviceMargins(found, device).margins(sparse.csr_array(NEW))
    assert_allclose(margins, expected.margins(NEW), atol=1e-9)


def test_one_buffer_holds_matrix_and_factors(device, small_blocks):
    from polymargin.device.kernels import DeviceKernel

    kernel = DeviceKernel(RBF(), X, device)
    matrix = factors.CentredMatrix(kernel, kernel.training, np.linspace(0.5, 2.0, len(X)), 0.3)
    A, buffer = device.to_numpy(matrix.A).copy(), matrix.A
    assert_allclose(A, A.T, atol=1e-15)
    right = np.random.default_rng(0).normal(size=(len(X), 2))
    assert_allclose(device.to_numpy(matrix.times(device.to_device(right))), A @ right, atol=1e-12)
    for ridge in (0.1, 3.0, 0.02):
        factor = matrix.factor(ridge, 1, None)
        inverse = np.linalg.inv(A + ridge * np.eye(len(X)))
        assert factor.lower is buffer
        assert_allclose(factor.solve(right), inverse @ right, atol=1e-10)
        assert_allclose(factor.inverse_diagonal()[:, 0], np.diagonal(inverse), rtol=1e-10)
        assert_allclose(factor.log_determinants(), -np.linalg.slogdet(inverse)[1], rtol=1e-10)


# Single precision ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rbf", "exponential", "blend", "linear"])
@pytest.mark.parametrize("grouped", [False, True])
def test_single_precision_is_refined(device, name, grouped, small_blocks, monkeypatch):
    monkeypatch.setattr(refinement.RefinedFactor, "_use_double_precision", None)  # it must do without
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 20, len(Y)) if grouped else None
    data = rows_of(KERNELS[name], weights=rng.uniform(0.5, 1.5, len(Y)), groups=groups)
    C = 0.5 if name == "linear" else 5.0
    expected = fit_lssvm_bank(data, one_vs_all(4), C=C, gamma=0.3)
    found = fit_device_bank(data, one_vs_all(4), C, 0.3, device, dtype="float32")
    exact = ("dual_coef", "intercept", "norms", "mu", "zeta")
    assert_same_bank(found, expected, 1e-9, exact)
    assert_same_bank(found, expected, 1e-6, ("loo_margins", "log_evidence"))


def test_single_precision_of_several_ridges_shares_a_matrix(device):
    data = rows_of(RBF())
    C = np.array([1.0, 30.0, 1.0, 4.0])
    expected = fit_lssvm_bank(data, one_vs_all(4), C=C, gamma=0.3)
    assert_same_bank(fit_device_bank(data, one_vs_all(4), C, 0.3, device, dtype="float32"), expected, 2e-6)


@pytest.mark.parametrize("how", ["C is too large", "no convergence", "no factor"])
def test_double_precision_where_single_is_not_enough(device, how, monkeypatch):
    C = 3.0
    if how == "C is too large":
        C = np.array([3.0, 1e4, 1e4, 3.0])
    elif how == "no convergence":
        monkeypatch.setattr(refinement, "_ACCEPTED", 0.0)
    else:
        factor = factors.CentredMatrix.factor

        def fails(self, *arguments):
            if self.dtype == "float32":
                raise NotPositiveDefinite
            return factor(self, *arguments)

        monkeypatch.setattr(factors.CentredMatrix, "factor", fails)
    used = []
    double = refinement.RefinedFactor._use_double_precision
    monkeypatch.setattr(
        refinement.RefinedFactor, "_use_double_precision", lambda self: (used.append(1), double(self))
    )
    data = rows_of(RBF())
    found = fit_device_bank(data, one_vs_all(4), C, 0.3, device, dtype="float32")
    assert used == [1]
    tolerance = 1e-8 if isinstance(C, float) else 1e-6  # of the other columns
    assert_same_bank(found, fit_lssvm_bank(data, one_vs_all(4), C=C, gamma=0.3), tolerance)


# Leave-one-out errors and the search -----------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
@pytest.mark.parametrize("grouped", [False, True])
def test_press_path_is_that_of_the_machines(device, coding, grouped):
    rng = np.random.default_rng(5)
    weights = rng.uniform(0.5, 2.0, len(Y))
    groups = rng.integers(0, 15, len(Y)) if grouped else None
    data, book = rows_of(Laplacian(), weights=weights, groups=groups), CODINGS[coding](4)
    Cs = [0.5, 20.0, 3.0]
    found = press_path(data, book, 0.3, Cs, device)
    assert found.shape == (3, book.n_columns)
    targets = book.targets(Y)
    for C, press in zip(Cs, found, strict=True):
        bank = fit_lssvm_bank(data, book, C=C, gamma=0.3)
        errors = np.where(targets != 0, targets - bank.loo_margins, 0.0)
        assert_allclose(press, weights @ np.square(errors), rtol=1e-9)
    single = press_path(data, book, 0.3, Cs, device, dtype="float32")
    assert_allclose(single, found, rtol=1e-5)


def test_press_path_with_a_C_of_every_column_and_one_that_is_too_large(device):
    data, book = rows_of(RBF()), one_vs_all(4)
    Cs = np.array([[1.0, 2.0, 1.0, 4.0], [2.0, 2.0, 8.0, 1.0]])
    found = press_path(data, book, 0.3, Cs, device)
    for C in np.unique(Cs):
        assert_allclose(found[Cs == C], press_path(data, book, 0.3, [C], device)[0, np.nonzero(Cs == C)[1]])
    # Equal rows make the matrix singular.
    found = press_path(data, book, 0.3, [1.0, 1e40], device)
    assert np.isfinite(found[0]).all()
    assert_array_equal(found[1], np.inf)
    with pytest.raises(NotPositiveDefinite, match=r"C = 1e\+40 is too large"):
        fit_device_bank(data, book, 1e40, 0.3, device)


def test_parameters_are_refined(device):
    data, book = rows_of(RBF()), one_vs_all(4)
    found = refine_parameters(data, book, 20.0, np.full(4, 2.0), device, max_evaluations=60)
    assert found.press < 0.9 * found.start
    assert found.evaluations < 60

    def press(C, gamma):
        bank = fit_lssvm_bank(data, book, C=C, gamma=gamma)
        return np.square(book.targets(Y) - bank.loo_margins).sum()

    assert_allclose(found.start, press(20.0, 2.0), rtol=1e-8)
    assert_allclose(found.press, press(found.C, found.gamma), rtol=1e-8)
    for factor in (0.5, 2.0):
        assert press(factor * found.C, found.gamma) > found.press
        assert press(found.C, factor * found.gamma) > found.press


def test_the_search_has_a_budget_and_leaves_what_is_not_there(device):
    data, book = rows_of(RBF()), one_vs_all(4)
    found = refine_parameters(data, book, 100.0, 5.0, device, max_evaluations=4)
    assert found.evaluations == 4
    assert found.press <= found.start
    found = refine_parameters(rows_of(Linear()), book, 1.0, None, device)
    assert_array_equal(found.gamma, 1.0)


# Margins and gradients -------------------------------------------------------------------------------------


def test_margins_of_device_arrays_are_device_arrays(device):
    bank = fit_device_bank(rows_of(KERNELS["ranks with widths"]), one_vs_one(4), 2.0, 0.3, device)
    margins = DeviceMargins(bank, device)
    on_device = margins.margins(device.to_device(NEW))
    assert isinstance(margins.margins(NEW), np.ndarray)
    assert type(on_device) is type(device.to_device(NEW))
    assert_allclose(device.to_numpy(on_device), bank.margins(NEW), atol=1e-9)
    single = DeviceMargins(bank, device, dtype="float32").margins(NEW)
    assert_allclose(single, bank.margins(NEW), atol=1e-4)
    with pytest.raises(ValueError, match=r"3 columns, but the new rows have shape \(11, 2\)"):
        margins.margins(NEW[:, :2])


@pytest.mark.parametrize(
    "name", ["rbf", "laplacian", "exponential", "blend", "poly", "centred poly", "linear"]
)
def test_gradients_are_those_of_the_cpu(device, name, small_blocks):
    kernel = KERNELS[name].fitted(X, np.ones(len(X)))
    rng = np.random.default_rng(0)
    a = rng.normal(size=(len(X), 4))
    a[::3, 2:] = 0.0
    for gamma, more in (
        (0.3, {}),
        (np.array([0.3, 0.1, 0.3, 0.3]), {"Z": NEW, "weights": rng.uniform(size=len(NEW))}),
        (0.2, {"weights": rng.integers(0, 3, (len(X), 4)), "kink": 0.1}),
    ):
        found = mean_squared_gradients(kernel, X, a, gamma, device, **more)
        expected = on_cpu.mean_squared_gradients(kernel, X, a, gamma, **more)
        assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_kernels_without_gradients_are_refused(device):
    with pytest.raises(NotImplementedError, match="does not say its gradient"):
        mean_squared_gradients(Scaled(RBF(), WIDTHS), X, np.ones((len(X), 1)), 1.0, device)


# Devices, and what can go wrong ----------------------------------------------------------------------------


def test_arrays_move_to_the_device_and_back(device):
    fixed = X.copy()
    fixed.flags.writeable = False
    there = device.to_device(fixed)
    assert_array_equal(device.to_numpy(there), X)
    assert device.to_numpy(device.to_device(X, "float32")).dtype == np.float32
    assert device.free_memory() > 0.0
    assert resolve_device(device) is device


def test_the_device_of_arrays_that_a_user_passes(device):
    there = device.to_device(X)
    assert device_of(X) is None
    if isinstance(there, np.ndarray):
        return
    # SciPy must be told before it is imported, which scikit-learn insists on.
    code = (
        "import os; os.environ['SCIPY_ARRAY_API'] = '1'\n"
        "import sklearn\nfrom polymargin.device import device_of, resolve_device\n"
        f"device = resolve_device('cpu', library={_adaptors.library(device.xp)!r})\n"
        "X = device.to_device([[1.0]])\n"
        "with sklearn.config_context(array_api_dispatch=True):\n"
        "    found = device_of(X)\n"
        "assert found.xp.__name__.endswith(device.xp.__name__.rpartition('.')[2]), found\n"
        "assert found.to_device([1.0]).device == X.device\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_without_a_library_for_gpus(monkeypatch):
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ImportError, match=r"needs a library that computes on GPUs: install torch \(polymargin's gpu extra"
    ):
        resolve_device("cuda")
    with pytest.raises(ImportError, match="arrays of torch need torch"):
        resolve_device("cpu", library="torch")


def test_without_a_gpu(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"device='cuda': torch finds no GPU; check the driver"):
        fit_device_bank(rows_of(), one_vs_all(4), 1.0, 1.0, "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert str(resolve_device("cuda").device) == "cuda:0"
    with pytest.raises(RuntimeError, match="device='cuda:1': torch finds 1 GPU"):
        resolve_device("cuda:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"C": None}, "on a device C must be given"),
        ({"gamma": None}, "on a device gamma must be given"),
        ({"C": np.ones(3)}, "one for each of the 4 columns"),
        ({"gamma": -1.0}, "gamma must be given: a positive number"),
        ({"dtype": "float16"}, "unknown dtype 'float16'; choose one of float64, float32"),
        ({"device": "gpu"}, "unknown device 'gpu'; choose"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_device_bank(rows_of(), one_vs_all(4), **{"C": 1.0, "gamma": 1.0, "device": "cpu", **arguments})


def test_values_that_overflow(device):
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(ValueError, match="infinite or undefined values"),
    ):
        fit_device_bank(rows_of(Polynomial(3), 1e200 * X), one_vs_all(4), 1.0, 1.0, device)


def test_what_does_not_fit_is_refused_before_it_is_computed(device, monkeypatch):
    monkeypatch.setattr(Device, "free_memory", lambda self: 8.0 * 40**2)
    with pytest.raises(
        OutOfDeviceMemory, match=r'kernel matrix of 48 rows needs .* or choose dtype="float32", or co'
    ):
        fit_device_bank(rows_of(), one_vs_all(4), 1.0, 1.0, device)


@pytest.mark.parametrize("library", ["torch", "cupy", "cublas", "numpy"])
def test_memory_that_runs_out(device, library, monkeypatch):
    class OutOfMemoryError(RuntimeError if library == "torch" else MemoryError):
        """Torch's and CuPy's errors have this name, and no base class in common."""

    error = {
        "torch": OutOfMemoryError("CUDA out of memory. Tried to allocate 26.8 GiB"),
        "cupy": OutOfMemoryError("Out of memory allocating 28,800,000,000 bytes"),
        "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
        "numpy": MemoryError("Unable to allocate 26.8 GiB"),
    }[library]

    def fails(*arguments, **more):
        raise error

    monkeypatch.setattr(_adaptors, "solve_triangle", fails)
    data = rows_of()
    for call in (fit_device_bank, lambda *rest: refine_parameters(*rest)):
        with pytest.raises(OutOfDeviceMemory, match=r"has run out .*fit fewer rows") as caught:
            call(data, one_vs_all(4), 1.0, 1.0, device)
        assert str(error) in str(caught.value)
        # Nothing refers to the arrays that filled the memory.
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


def test_other_errors_stay_as_they_are(device, monkeypatch):
    def fails(*arguments, **more):
        raise RuntimeError("something else")

    monkeypatch.setattr(_adaptors, "solve_triangle", fails)
    with pytest.raises(RuntimeError, match="something else"):
        fit_device_bank(rows_of(), one_vs_all(4), 1.0, 1.0, device)


def test_neither_torch_nor_numba_is_imported_unless_it_is_used():
    code = (
        "import sys, polymargin, polymargin.device as d\n"
        "d.resolve_device('cpu')\n"
        "assert not {'torch', 'cupy', 'array_api_strict', 'numba'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
