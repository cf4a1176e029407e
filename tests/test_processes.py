"""Processes that share groups of rows: the same bits as with threads, and nothing left behind."""

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.parallel import MultiprocessingBackend
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from conftest import blobs
from polymargin import LSSVMClassifier, _memory, _processes, _threads
from polymargin._processes import can_be_sent, processes
from polymargin._progress import Count
from polymargin._threads import n_processes, n_threads, threads
from polymargin.codebooks import one_vs_one
from polymargin.kernels import RBF, resolve_kernel
from polymargin.machines import TrainingRows, _workspace, fit_lssvm_bank, lssvm_training
from polymargin.machines.lssvm_training import BankTraining
from polymargin.selection import leave_one_out
from polymargin.selection.samples import SampledGroup
from polymargin.solvers.ridge import NotPositiveDefinite

DIGITS, LABELS = load_digits(n_class=5, return_X_y=True)
DIGITS, LABELS = DIGITS[:300] / 16.0, LABELS[:300]
#: A fit that takes long.
MUCH = 1e15


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    """Let there be cores for all processes, whatever machine this is."""
    monkeypatch.setattr(_threads, "cpu_count", lambda: 16)


@pytest.fixture
def few_rows_are_enough(monkeypatch):
    """Let two processes share the groups of small problems; the fixture has the number of groups of every time."""
    monkeypatch.setattr(_threads, "_WORTH_PROCESSES", 0.0)
    monkeypatch.setattr(_threads, "_LEAST_PROCESSES", 2)
    monkeypatch.setattr(_threads, "_WORTH_TWO_THREADS", 1)
    monkeypatch.setattr(_workspace, "KEPT_BYTES", 0.0)
    monkeypatch.setattr(leave_one_out, "_WORTH_SENDING", 0.0)
    shared, solved = [], lssvm_training._solved_by_processes

    def noted(trainings):
        shared.append(sum(len(training.groups) for training in trainings))
        return solved(trainings)

    monkeypatch.setattr(lssvm_training, "_solved_by_processes", noted)
    return shared


def square(number):
    return number * number


def fail(number):
    raise KeyError("this one")


# Work ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [1, 2, 3, 50])
def test_results_are_in_order_and_every_one_is_reported(n_items, monkeypatch):
    monkeypatch.setattr(_threads, "_LEAST_PROCESSES", 2)
    reported = {}
    with threads(2, operations=MUCH), processes() as shared:
        found = shared.each(square, range(n_items), np.arange(1.0, 1.0 + n_items) ** 3, reported.__setitem__)
        again = shared.each(square, range(n_items), np.ones(n_items))
    assert found == again == [number * number for number in range(n_items)]
    assert reported == dict(enumerate(found))


def test_parts_are_neighbours_and_take_as_long_as_each_other(monkeypatch):
    monkeypatch.setattr(_threads, "_LEAST_PROCESSES", 2)
    parts = []

    def here(calls):
        parts.extend(arguments[1] for _, arguments, _ in calls)
        return (function(*arguments) for function, arguments, _ in calls)

    operations = np.r_[np.full(8, 50.0), np.full(400, 1.0)]
    shared = _processes.Processes(here, 2)
    assert shared.each(square, range(408), operations) == [number * number for number in range(408)]
    assert [place for part in parts for place in part] == list(range(408))
    assert len(parts) == 8
    assert max(operations[part].sum() for part in parts) <= 150.0


def file_of(array):
    return getattr(array, "filename", None)


def test_large_arrays_are_written_once(monkeypatch):
    monkeypatch.setattr(_threads, "_LEAST_PROCESSES", 2)
    items = [np.zeros(size // 8) for size in (8, 10**5, 10**5 + 8, 10**6)]
    with threads(2, operations=MUCH), processes() as shared:
        first, second = (shared.each(file_of, items, np.ones(4)) for _ in range(2))
    assert first == second
    assert [name is None for name in first] == [True, True, False, False]
    assert not any(os.path.exists(name) for name in first[2:])


def test_processes_treat_errors_of_numpy_as_told():
    with np.errstate(divide="raise"):
        state = np.geterr()
    with pytest.raises(FloatingPointError):
        _processes._of_part(lambda number: np.ones(1) / np.full(1, number), [0], [0.0], state)


# Where there are processes -------------------------------------------------------------------------------------


def test_there_are_processes_where_work_is_long_and_workers_are_many(monkeypatch):
    assert n_processes() == 1
    with threads(4):
        assert n_processes() == 1
    with threads(2, operations=MUCH):
        assert n_processes() == 1
    with threads(4, operations=MUCH):
        assert n_processes() == n_threads() == 4
        with threads(8):  # which has the workers of the outer block
            assert n_processes() == 4
        assert _threads.in_threads(lambda item: n_processes(), range(3)) == [1, 1, 1]
    for backend in ("threading", "sequential", MultiprocessingBackend()):
        with parallel_config(backend=backend), threads(4, operations=MUCH):
            assert n_processes() == 1
    # Large matrices have the threads of BLAS, however many jobs were asked for.
    monkeypatch.setattr(_threads._blas, "number", lambda: 16)
    for n_jobs, expected in ((None, 1), (2, 1), (5, 5)):
        with threads(n_jobs, 10_000, operations=MUCH):
            assert (n_threads(), n_processes()) == (16, expected)
    # No more than there are cores.
    for n_cores, expected in ((6, 6), (3, 1)):
        monkeypatch.setattr(_threads, "cpu_count", lambda n_cores=n_cores: n_cores)
        with threads(8, operations=MUCH):
            assert (n_threads(), n_processes()) == (8, expected)
    monkeypatch.setattr(_threads, "cpu_count", lambda: 16)
    monkeypatch.setattr(_memory, "available", lambda: 4e8)
    with threads(4, operations=MUCH):
        assert n_processes() == 1


def number_within():
    _threads.cpu_count = lambda: 16
    with threads(4, operations=MUCH):
        return n_processes()


def test_a_job_of_another_job_starts_no_processes():
    assert Parallel(n_jobs=2)(delayed(number_within)() for _ in range(2)) == [1, 1]
    with parallel_config(backend="threading"):
        assert Parallel(n_jobs=2)(delayed(number_within)() for _ in range(2)) == [1, 1]


class Local(RBF):
    """A kernel that cannot be pickled."""

    def __reduce__(self):
        raise TypeError("not to be pickled")


def test_what_is_left_to_threads(few_rows_are_enough, monkeypatch):
    assert not can_be_sent(Local())
    X, y = blobs(n=60, K=4, seed=1)

    def trained(kernel, **more):
        few_rows_are_enough.clear()
        rows = X @ X.T if kernel == "precomputed" else X
        kernel = resolve_kernel(kernel) if isinstance(kernel, str) else kernel
        data = TrainingRows(kernel, rows, y, np.ones(60))
        with threads(2, operations=MUCH):
            fit_lssvm_bank(data, one_vs_one(4), C=1.0, gamma=0.5, **({"keep_factors": False} | more))
        return len(few_rows_are_enough)

    assert trained(RBF()) == 1
    assert trained(Local()) == 0
    assert trained("precomputed") == 0
    assert trained("linear") == 0  # by its features
    assert trained(RBF(), keep_factors=True) == 0
    monkeypatch.setattr(_workspace, "KEPT_BYTES", 1e9)  # groups take their part of a matrix of all rows
    assert trained(RBF()) == 0


# Machines --------------------------------------------------------------------------------------------------


SOFT = np.random.default_rng(0).dirichlet(0.2 * np.ones(5), size=len(LABELS))
SOFT[np.arange(len(LABELS)), LABELS] += 3.0
SOFT /= SOFT.sum(axis=1, keepdims=True)
FITS = {
    "searched": {},
    "nested": {"kernel": "rbf", "C": 1.0, "gamma": 0.05},
    "weights": {"sample_weight": np.random.default_rng(1).uniform(0.5, 2.0, len(LABELS))},
    "groups": {"groups": np.arange(len(LABELS)) // 2},
    "soft labels": {},
    "metric": {"metric": "learned"},
    "ranks": {"columns": "ranks", "kernel": "laplacian"},
    "machines with parameters of their own": {"shared_parameters": False},
}


@pytest.mark.parametrize("name", FITS)
def test_processes_do_not_show(name, few_rows_are_enough):
    rows = {key: value for key, value in FITS[name].items() if key in ("sample_weight", "groups")}
    parameters = {key: value for key, value in FITS[name].items() if key not in rows}
    labels = SOFT if name == "soft labels" else LABELS
    if name == "soft labels":
        parameters["classes"] = list(range(5))
    found = []
    for n_jobs in (1, 2):
        few_rows_are_enough.clear()
        found.append(LSSVMClassifier(**parameters, n_jobs=n_jobs).fit(DIGITS, labels, **rows))
        assert bool(few_rows_are_enough) == (n_jobs > 1)
    one, two = found
    for attribute in ("C_", "gamma_", "dual_coef_", "intercept_", "loo_margins_", "loo_log_proba_"):
        assert_array_equal(getattr(one, attribute), getattr(two, attribute))
    assert_array_equal(one.predict_log_proba(DIGITS), two.predict_log_proba(DIGITS))
    assert one.bank_.rounding_error == two.bank_.rounding_error


def test_press_of_parts_in_processes(few_rows_are_enough):
    """A ridge that is too small for some matrix is refused as by threads, and ends no process."""
    kernel, rng = RBF(), np.random.default_rng(0)
    parts = []
    for size in (20, 130, 40, 60):
        X = rng.normal(size=(size, 3))
        targets = np.sign(X[:, :2] + 0.3 * rng.normal(size=(size, 2)))
        parts.append((SampledGroup(kernel.base(X), np.ones(size), targets), np.array([0, 1])))

    def found(point):
        with leave_one_out._sharing(kernel, parts) as share_out:
            free, count = np.array([True, True]), Count(None, "")
            return leave_one_out._log_press(kernel, parts, free, 1e-6, count, share_out, np.array(point))

    points = [(-1.0, 0.5), (0.3, -2.0)]
    expected = [found(point) for point in points]
    with threads(2, operations=MUCH):
        for point, (value, slopes) in zip(points, expected, strict=True):
            assert found(point)[0] == value
            assert_array_equal(found(point)[1], slopes)
            workers = set(get_reusable_executor(max_workers=2, reuse=True)._processes)
            with pytest.raises(np.linalg.LinAlgError, match="ridge"):
                found((0.0, -60.0))
        assert set(get_reusable_executor(max_workers=2, reuse=True)._processes) == workers


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_nested_outputs_of_several_banks(n_jobs, few_rows_are_enough):
    """As in rounds of a metric: banks of different rows that are trained at once."""
    shares = np.arange(300) // 2
    data = TrainingRows(RBF(), DIGITS, LABELS, np.ones(300), groups=shares).shuffled()
    rows = [data, data.take(np.flatnonzero(shares % 3 > 0))]
    found = []
    for number in (1, n_jobs):
        trainings = [
            BankTraining.of(some, one_vs_one(5), C=2.0, gamma=0.05, n_folds=3, keep_fold_coef=True)
            for some in rows
        ]
        with threads(number, operations=MUCH):
            found.append(lssvm_training.train_together(trainings))
    assert few_rows_are_enough == [20]
    for one, other in zip(*found, strict=True):
        for name in ("dual_coef", "intercept", "norms", "mu", "zeta", "log_evidence", "loo_margins"):
            assert_array_equal(getattr(one, name), getattr(other, name))
        assert_array_equal(one.nested.margins, other.nested.margins)
        assert_array_equal(one.nested.coef, other.nested.coef)


def test_fewer_groups_than_processes_are_left_to_threads(few_rows_are_enough):
    data = TrainingRows(RBF(), DIGITS, LABELS, np.ones(len(LABELS)))
    training = BankTraining.of(data, one_vs_one(5), C=1.0, gamma=0.05)
    with threads(11, operations=MUCH):
        assert n_processes() == 11
        lssvm_training.train_together([training])
    assert few_rows_are_enough == []


def test_every_machine_is_counted(few_rows_are_enough):
    steps = []
    data = TrainingRows(RBF(), DIGITS, LABELS, np.ones(len(LABELS)))
    with threads(2, operations=MUCH):
        fit_lssvm_bank(data, one_vs_one(5), C=1.0, gamma=0.05, keep_factors=False, progress=steps.append)
    assert few_rows_are_enough == [10]
    assert [step.done for step in steps] == list(range(11))


def test_a_process_gets_no_more_than_it_needs():
    data = TrainingRows(
        RBF(), DIGITS, LABELS, np.ones(len(LABELS)), soft_labels=SOFT, groups=np.arange(len(LABELS))
    ).shuffled()
    training = BankTraining.of(data, one_vs_one(5), C=1.0, gamma=0.05)
    task, other = training.tasks()[:2]
    assert task.rows is other.rows
    of_group = task.group.rows.nbytes + task.group.targets.nbytes + task.group.weights.nbytes
    needed = DIGITS.nbytes + LABELS.nbytes + 8 * len(LABELS) + of_group + 8 * len(LABELS)
    assert len(pickle.dumps(task)) < needed + 4000
    # Of a second group of the same rows only what is its own.
    assert len(pickle.dumps([task, other])) < needed + 2 * of_group + 8 * len(LABELS) + 8000


# Failures --------------------------------------------------------------------------------------------------


def test_an_error_is_told_and_ends_the_work(few_rows_are_enough):
    X = np.repeat(DIGITS[:100], 3, axis=0)
    data = TrainingRows(RBF(), X, np.repeat(LABELS[:100], 3), np.ones(300))
    given = {"gamma": 0.05, "keep_factors": False}
    with threads(2, operations=MUCH):
        with pytest.raises(NotPositiveDefinite, match="too large to compute with"):
            fit_lssvm_bank(data, one_vs_one(5), C=1e18, **given)
        found = fit_lssvm_bank(data, one_vs_one(5), C=1.0, **given)
    assert few_rows_are_enough == [10, 10]
    assert_array_equal(found.dual_coef, fit_lssvm_bank(data, one_vs_one(5), C=1.0, **given).dual_coef)


def square_or_die(item):
    """Return a square; a process is killed by the fourth number, as a system without memory does."""
    number, parent = item
    if number == 3 and os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@pytest.mark.skipif(sys.platform == "win32", reason="signals of another kind")
def test_threads_do_what_a_killed_process_has_left(monkeypatch):
    monkeypatch.setattr(_threads, "_LEAST_PROCESSES", 2)
    items, done = [(number, os.getpid()) for number in range(20)], {}
    with threads(2, operations=MUCH), processes() as shared:
        with pytest.warns(
            UserWarning, match="killed, most likely for want of memory; threads do what is left"
        ):
            found = shared.each(square_or_die, items, np.ones(20), done.__setitem__)
        assert found == [number**2 for number in range(20)]
        assert done == dict(enumerate(found))
        assert shared.each(square, range(5), np.ones(5)) == [0, 1, 4, 9, 16]
    with threads(2, operations=MUCH), processes() as shared:  # new ones
        assert shared.each(square_or_die, items[:3], np.ones(3)) == [0, 1, 4]


def test_an_interrupt_ends_the_work(monkeypatch):
    monkeypatch.setattr(_threads, "_LEAST_PROCESSES", 2)

    def interrupt(place, result):
        raise KeyboardInterrupt

    with threads(2, operations=MUCH):
        with processes() as shared:
            shared.each(square, range(20), np.ones(20))
            workers = list(get_reusable_executor(max_workers=2, reuse=True)._processes.values())
            assert workers
            with pytest.raises(KeyboardInterrupt):
                shared.each(time.sleep, [0.0, *[100.0] * 7], np.ones(8), interrupt)
        for worker in workers:
            worker.join(20)
            assert not worker.is_alive()
        with pytest.raises(KeyError, match="this one"), processes() as shared:
            shared.each(fail, range(20), np.ones(20))
        with processes() as shared:
            assert shared.each(square, [3], [1.0]) == [9]


SIGNAL = """
import os, signal, threading, time
import numpy as np
from polymargin import _threads
from polymargin._processes import processes
from polymargin._threads import threads

_threads._LEAST_PROCESSES, _threads.cpu_count = 2, lambda: 2
began = time.monotonic()
threading.Timer(4.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    with threads(2, operations=1e15), processes() as shared:
        shared.each(time.sleep, [100.0] * 4, [1.0] * 4)
except KeyboardInterrupt:
    assert time.monotonic() - began < 60.0
    print("interrupted")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of another kind")
def test_ctrl_c_ends_long_work():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run(
        [sys.executable, "-c", SIGNAL], capture_output=True, text=True, timeout=120, env=environment
    )
    assert "interrupted" in told.stdout, told.stderr
