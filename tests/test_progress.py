"""Progress of long fits: what is counted, what is shown, and that nothing is unless asked for."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
import threading
import warnings
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from conftest import blobs
from polymargin import LSSVMClassifier, SVMClassifier, _progress
from polymargin._progress import Count, Step, shown
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.kernels import resolve_kernel
from polymargin.machines import TrainingRows, _hinge, cross_validate_svm, fit_lssvm_bank, fit_svm_bank
from polymargin.machines._hinge import SolverOptions
from polymargin.selection import evidence


@pytest.fixture(scope="module")
def problem():
    return blobs(n=90, K=4, d=3, seed=3)


@pytest.fixture
def terminal(monkeypatch):
    """Have progress shown on a terminal that is a string."""
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=100, legacy_windows=False)
    monkeypatch.setattr(_progress, "_console", lambda: console)
    return text


class Recorder:
    """A callback that remembers every step, and which threads it was called by."""

    def __init__(self):
        self.steps, self.threads = [], set()

    def __call__(self, step):
        self.steps.append(step)
        self.threads.add(threading.current_thread())

    def of(self, doing):
        """Return the steps of one thing, having checked that they go up to the total."""
        steps = [step for step in self.steps if step.doing == doing]
        assert [step.done for step in steps] == sorted(step.done for step in steps)
        assert [step.total for step in steps] == sorted(step.total for step in steps)
        assert steps[0].done == 0
        assert all(step.done <= step.total for step in steps)
        assert steps[-1].done == steps[-1].total
        return steps

    @property
    def doings(self):
        return list(dict.fromkeys(step.doing for step in self.steps))


# --- counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            Step("choosing C and gamma", 12, 42, "grid points"),
            "choosing C and gamma: 12 of 42 grid points",
        ),
        (
            Step("inferring C and gamma", 3.9, 11, "kernels × 45 groups"),
            "inferring C and gamma: 3 of 11 kernels × 45 groups",
        ),
        (Step("machines", 10, 45), "machines: 10 of 45"),
        (Step("growing the codebook", 2, unit="machines"), "growing the codebook: 2 machines"),
        (Step("compiling the solver (once)"), "compiling the solver (once)"),
    ],
)
def test_texts(step, text):
    assert str(step) == text


@pytest.mark.parametrize("parts", [3, 7, 45, 990])
def test_parts_add_up(parts):
    recorder = Recorder()
    count = Count(recorder, "kernels")
    count.expect(2)
    for _ in range(2 * parts):
        count.advance(1 / parts)
    assert recorder.of("kernels")[parts].done == pytest.approx(1.0, abs=1e-6)
    assert str(recorder.steps[-1]) == "kernels: 2 of 2"


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
def test_grid_points(n_jobs, shared, problem):
    recorder = Recorder()
    grid = {"C": [0.01, 0.03], "gamma": [0.1, 0.3, 1.0], "shared_parameters": shared, "n_jobs": n_jobs}
    result = cross_validate_svm(*problem, progress=recorder, **grid)
    steps = recorder.of("choosing C and gamma")
    assert recorder.doings == ["choosing C and gamma"]
    assert steps[0].total == 6
    assert steps[-1].total == result.C.size * result.gamma.size > 6  # the ranges were extended
    assert len(steps) > 6 * 5  # every fold counts, not only whole grid points
    assert recorder.threads == {threading.current_thread()}
    plain = cross_validate_svm(*problem, **grid)
    np.testing.assert_array_equal(result.scores, plain.scores)


@pytest.mark.parametrize(
    ("grid", "doing"),
    [
        ({"C": [1.0, 2.0], "gamma": 0.3}, "choosing C"),
        ({"C": 1.0, "gamma": [0.1, 0.3]}, "choosing gamma"),
        ({"C": 1.0, "gamma": 0.1}, "cross-validating"),
    ],
)
def test_what_is_chosen_is_said(grid, doing, problem):
    recorder = Recorder()
    cross_validate_svm(*problem, max_extensions=0, progress=recorder, **grid)
    assert recorder.doings == [doing]
    recorder.of(doing)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_support_vector_machines(n_threads, problem):
    X, y = problem
    rows = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    recorder = Recorder()
    gamma = np.array([0.1, 0.3, 0.1, 0.2])
    bank = fit_svm_bank(
        rows, one_vs_all(4), C=1.0, gamma=gamma, options=SolverOptions(n_threads=n_threads), progress=recorder
    )
    assert [step.done for step in recorder.of("machines")] == [0, 1, 2, 3, 4]
    bank.training_outputs(honest=True, progress=recorder)
    assert [step.done for step in recorder.of("out-of-fold machines")] == list(range(21))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("book", [one_vs_one(4), one_vs_all(4)], ids=["one-vs-one", "one-vs-all"])
def test_kernels(book, shared, problem):
    X, y = problem
    rows = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    recorder = Recorder()
    pools = [np.arange(book.n_columns)] if shared else None
    fit_lssvm_bank(rows, book, C=None, gamma=None, pools=pools, progress=recorder)
    kernels, machines = recorder.of("inferring C and gamma"), recorder.of("machines")
    assert machines[-1].total == book.n_columns
    n_pools = 1 if shared else book.n_columns
    assert kernels[0].total == n_pools * evidence.N_KERNELS
    groups = len(book.column_groups)
    assert kernels[0].unit == ("kernels × 6 groups" if shared and groups == 6 else "kernels")
    if shared:
        assert len(kernels) >= 1 + groups * kernels[-1].total


def test_kernels_beyond_the_range():
    """Rows far apart beside copies of themselves ask for a gamma beyond the first range: the total grows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (np.sin(40 * X[:, 0]) > 0).astype(int)
    X = np.repeat(X, 2, axis=0) + 1e-4 * rng.normal(size=(120, 2))
    rows = TrainingRows(resolve_kernel("rbf"), X, np.repeat(y, 2), np.ones(120))
    recorder = Recorder()
    fit_lssvm_bank(rows, one_vs_one(2), C=None, gamma=None, progress=recorder)
    assert recorder.of("inferring C and gamma")[-1].total > evidence.N_KERNELS


@pytest.mark.parametrize(
    ("kernel", "C", "gamma", "doings", "kernels"),
    [
        ("rbf", None, 0.3, ["inferring C", "machines"], 1),
        ("linear", None, None, ["inferring C", "machines"], 1),
        ("rbf", 1.0, None, ["inferring gamma", "machines"], evidence.N_KERNELS),
        ("rbf", 1.0, 0.3, ["machines"], None),
    ],
)
def test_what_is_inferred_is_said(kernel, C, gamma, doings, kernels, problem):
    X, y = problem
    rows = TrainingRows(resolve_kernel(kernel), X, y, np.ones(y.size))
    recorder = Recorder()
    fit_lssvm_bank(rows, one_vs_all(4), C=C, gamma=gamma, pools=[np.arange(4)], progress=recorder)
    assert sorted(recorder.doings) == sorted(doings)
    for doing in doings:
        steps = recorder.of(doing)
        assert steps[0].total == (4 if doing == "machines" else kernels)


# --- what is shown ----------------------------------------------------------------------------------------------


def test_bars(terminal):
    with shown(1) as progress:
        progress(Step("compiling the solver (once)"))
        assert "compiling the solver (once)" in terminal.getvalue()
        progress(Step("choosing C and gamma", 12, 42, "grid points"))
        progress(Step("machines", 45, 45))
        begun = terminal.tell()
        progress.bars.refresh()
    frame = terminal.getvalue()[begun:]
    assert "choosing C and gamma: 12 of 42 grid points" in frame
    assert "machines: 45 of 45" in frame
    assert "compiling" not in frame  # that was over when the next was told
    assert "0:00:00" in frame  # the time so far
    assert terminal.getvalue().endswith("\x1b[2K")  # the bars are wiped away


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        (SVMClassifier(verbose=1), ["machines: 6 of 6"]),
        (
            SVMClassifier(None, gamma=0.2, verbose=1, decoding="mixture", cv=3),
            ["choosing C: 7 of 7 grid points", "machines: 6 of 6", "out-of-fold machines: 18 of 18"],
        ),
        (SVMClassifier(verbose=1, coding="adaptive"), ["growing the codebook: 1 machines", "machines: "]),
        (
            LSSVMClassifier(verbose=1, selection="evidence", kernel="rbf"),
            ["inferring C and gamma: 12 of 12 kernels × 6 groups", "machines: 6 of 6"],
        ),
        (LSSVMClassifier(verbose=1), ["selecting C and gamma: ", " kernels", "machines: 6 of 6"]),
        (
            LSSVMClassifier(verbose=True, coding="adaptive"),
            ["growing the codebook: 1 machines", "machines: "],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_estimators_show_bars(model, texts, terminal, problem):
    model.fit(*problem)
    for text in texts:
        assert text in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")
    begun = terminal.tell()
    model.predict(problem[0])
    assert terminal.tell() == begun


@pytest.mark.parametrize("make", [SVMClassifier, LSSVMClassifier])
def test_elsewhere_lines_are_logged(make, problem, capsys, caplog, monkeypatch):
    model = make(None, gamma=None, verbose=1)
    with caplog.at_level(logging.INFO, logger="polymargin"):
        model.fit(*problem)
        assert not [each for each in caplog.records if each.getMessage().startswith("machines")]  # too soon
        monkeypatch.setattr(_progress, "_SECONDS_BETWEEN_LINES", 0.0)
        model.fit(*problem)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[-1] == "machines: 6 of 6"
    assert "machines: 3 of 6" in lines
    assert capsys.readouterr() == ("", "")


def test_compilation_is_shown(problem, terminal, monkeypatch, tmp_path):
    class Cold:
        signatures = ()

        class stats:
            cache_path = str(tmp_path)

    recorder = Recorder()
    monkeypatch.setattr(_hinge._smo_kernels, "descend", Cold)
    _hinge._announce_compilation(recorder)
    assert [str(step) for step in recorder.steps] == ["compiling the solver (once)"]
    # Of what the machines of a growing codebook report, only this is passed on.
    kept = _progress.notes(recorder)
    kept(Step("machines", 0, 1))
    kept(recorder.steps[0])
    assert len(recorder.steps) == 2
    assert _progress.notes(None) is None


@pytest.mark.parametrize("make", [SVMClassifier, LSSVMClassifier])
def test_silence(make, problem, capsys, caplog):
    with caplog.at_level(logging.INFO, logger="polymargin"):
        make(None, gamma=None).fit(*problem)
    assert capsys.readouterr() == ("", "")
    assert not [record for record in caplog.records if "compiling" not in record.getMessage()]


def test_rich_is_not_needed_unless_asked_for():
    """(It may be loaded all the same: scikit-learn does so where it is installed.)"""
    code = (
        "import sys; sys.modules['rich'] = None; import polymargin as p; from sklearn.datasets import load_iris; "
        "[make(1.0, gamma=1.0).fit(*load_iris(return_X_y=True)) for make in (p.SVMClassifier, p.LSSVMClassifier)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- interrupts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        SVMClassifier(verbose=1),
        SVMClassifier(verbose=1, n_jobs=2),
        SVMClassifier(None, verbose=1),
        SVMClassifier(verbose=1, coding="adaptive"),
        LSSVMClassifier(verbose=1),
    ],
    ids=str,
)
def test_an_interrupt_leaves_nothing_fitted_and_no_bar(model, terminal, problem, monkeypatch):
    X, y = problem
    model.fit(X, y)
    told = []

    class Interrupted(_progress._Bars):
        def __call__(self, step):
            super().__call__(step)
            told.append(step)
            if len(told) == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(_progress, "_Bars", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(told) == 4
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert terminal.getvalue().endswith("\x1b[2K")  # wiped away,
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex(
        "\x1b[?25l"
    )  # with the cursor back
    told.clear()
    monkeypatch.undo()
    model.set_params(verbose=0).fit(X, y).predict(X)


def test_an_error_in_a_thread_is_raised_and_ends_the_others(problem):
    X, y = problem
    rows = TrainingRows(resolve_kernel("rbf"), X, y, np.ones(y.size))
    solved = []

    def stop(step):
        solved.append(step)
        if step.done == 1:
            raise KeyboardInterrupt

    options = SolverOptions(n_threads=2)
    with pytest.raises(KeyboardInterrupt):
        fit_svm_bank(rows, one_vs_one(4), C=1.0, gamma=0.2, options=options, progress=stop)
    assert [step.done for step in solved] == [0, 1]


# --- manners ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [SVMClassifier, LSSVMClassifier])
def test_the_parameter(make):
    assert list(inspect.signature(make).parameters)[-2:] == ["verbose", "random_state"]
    assert make().verbose == 0
    assert make(verbose=7).verbose == 7


@pytest.mark.parametrize("make", [SVMClassifier, LSSVMClassifier])
def test_scikit_learn_accepts_it(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check_estimator(make(1.0, gamma="scale", verbose=1), on_skip=None)
