"""Threads that share work; and the limit on those of BLAS, in a process of its own: the tests run with one."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin._threads import in_threads, n_threads, row_parts, threads
from polymargin.codebooks import resolve_codebook
from polymargin.decoders import CoupledSoftmax
from polymargin.outputs import Outputs

CODE = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "2"
import threading
import numpy as np
from threadpoolctl import threadpool_info
from polymargin._threads import blas_threads_for

def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

before = threads()
if set(before) != {2}:
    print("one thread here", before)
    raise SystemExit
with blas_threads_for(10_000):
    assert threads() == before
with blas_threads_for(10):
    assert set(threads()) == {1}
    with blas_threads_for(0):
        assert set(threads()) == {1}
    assert set(threads()) == {1}
assert threads() == before

# Two threads whose limits overlap: the first to come is the first to go, and still alive.
first_in, second_in, first_out, second_out = (threading.Event() for _ in range(4))

def first():
    with blas_threads_for(10):
        first_in.set()
        second_in.wait(10)
    first_out.set()
    second_out.wait(10)

def second():
    first_in.wait(10)
    with blas_threads_for(10):
        second_in.set()
        first_out.wait(10)
        assert set(threads()) == {1}
    second_out.set()

pair = [threading.Thread(target=first), threading.Thread(target=second)]
[thread.start() for thread in pair]
[thread.join() for thread in pair]
assert threads() == before, threads()
print("fine")
"""


def run_with_two_blas_threads(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    if "one thread here" in result.stdout:
        pytest.skip("this BLAS has one thread, or does not say how many")
    assert result.returncode == 0, result.stderr
    assert "fine" in result.stdout


def test_the_limit_holds_while_anybody_wants_it_and_is_lifted_after():
    run_with_two_blas_threads(CODE)


def test_work_is_shared_and_results_keep_their_order():
    meeting = threading.Barrier(3)

    def meet(item):
        meeting.wait(10)  # nobody gets on unless three work at once
        return item * item

    with threads(3):
        assert n_threads() == 3
        assert in_threads(meet, [1, 2, 3]) == [1, 4, 9]
    assert n_threads() == 1


def test_nested_work_does_not_wait_for_helpers_that_are_busy():
    def outer(item):
        return sum(in_threads(lambda inner: item * inner, range(50)))

    with threads(2):
        assert in_threads(outer, range(8)) == [item * sum(range(50)) for item in range(8)]


def test_a_block_within_a_block_has_the_threads_of_the_outer_one():
    with threads(2), threads(5):
        assert n_threads() == 2


def test_workers_see_the_error_state_of_the_caller():
    with threads(2), np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        in_threads(lambda item: np.ones(1) / np.zeros(1), range(4))


@pytest.mark.parametrize("failing", [0, 7])
def test_a_failure_ends_the_work_and_is_told(failing):
    done = []

    def work(item):
        if item == failing:
            raise KeyError("this one")
        done.append(item)

    with threads(2):
        with pytest.raises(KeyError, match="this one"):
            in_threads(work, range(8))
        assert in_threads(abs, [-1, -2]) == [1, 2]  # and the helpers are there for the next
    assert failing not in done


@pytest.mark.parametrize("estimator", [LSSVMClassifier, AutoKernelClassifier])
def test_the_number_of_threads_does_not_show(estimator):
    X, y = load_digits(n_class=4, return_X_y=True)
    X, y = X[::2] / 16.0, y[::2]  # enough rows to a pair of classes to be worth a thread
    one, three = (estimator(n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 3))
    assert_array_equal(one.predict_proba(X), three.predict_proba(X))
    assert_array_equal(one.loo_log_proba_, three.loo_log_proba_)


SAME_BITS = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "2"
import numpy as np
from polymargin import LSSVMClassifier
from polymargin._threads import FEW_ROWS

rng = np.random.default_rng(0)
n = FEW_ROWS + 100
X = rng.normal(size=(n, 5))
y = (X[:, 0] + rng.normal(size=n) > 0).astype(int)
given = {"kernel": "rbf", "C": 1.0, "gamma": 0.1, "scale": "exact"}
one, two = (LSSVMClassifier(**given, n_jobs=n_jobs).fit(X, y) for n_jobs in (None, 2))
for name in ("dual_coef_", "loo_margins_"):
    np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
np.testing.assert_array_equal(one.predict_proba(X[:50]), two.predict_proba(X[:50]))
"""


def test_the_number_of_jobs_does_not_show_in_large_matrices():
    subprocess.run([sys.executable, "-c", SAME_BITS], check=True, timeout=120)


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_the_number_of_threads_does_not_show_in_decoders(coding):
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(16), 800)
    book = resolve_codebook(coding, 16)
    margins = book.targets(classes) + 0.5 * rng.normal(size=(classes.size, book.n_columns))
    outputs = Outputs(margins, "leave_one_out")
    # There is something to share: more than one part of the rows, of the pairs and of the blocks of a coupling.
    assert len(row_parts(classes.size // 2, 16 * book.n_columns)) > 1 or coding == "one-vs-all"
    found = []
    for number in (1, 3):
        with threads(number):
            decoder = CoupledSoftmax().fit(book, outputs, classes)
            found.append((decoder.cross_log_proba_, decoder.log_proba(Outputs(margins, "new"))))
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)
    assert (found[0][1].argmax(axis=1) == classes).mean() > 0.5


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_the_number_of_jobs_does_not_show_in_predictions(kernel):
    X, y = load_digits(return_X_y=True)
    train, new = slice(0, 300), np.tile(X / 16.0, (20, 1))
    rows = X[train] / 16.0
    if kernel == "precomputed":
        rows, new = rows @ rows.T, new @ rows.T
    given = {"kernel": kernel, "C": 1.0} | ({"gamma": 0.05} if kernel == "rbf" else {})
    model = LSSVMClassifier(**given).fit(rows, y[train])
    alone = model.predict_log_proba(new), model.margins(new)
    model.set_params(n_jobs=3)
    for one, other in zip(alone, (model.predict_log_proba(new), model.margins(new)), strict=True):
        assert_array_equal(one, other)
    # Rows alone and together: rounding apart.
    assert_allclose(model.predict_log_proba(new[:1]), alone[0][:1], rtol=0, atol=1e-10)


FORK = """
import os, signal
from polymargin._threads import in_threads, threads

with threads(2):
    in_threads(abs, [-1, 2, -3])
    child = os.fork()
    if not child:
        signal.alarm(20)  # rather than hang
        os._exit(in_threads(abs, [-1, 2]) != [1, 2])
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_has_no_threads_of_its_parent():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=60)


def test_a_failure_keeps_nothing_alive():
    class Item:
        pass

    def work(item):
        raise ValueError

    items = [Item() for _ in range(3)]
    known = [weakref.ref(item) for item in items]
    gc.disable()
    try:
        with threads(2), pytest.raises(ValueError):
            in_threads(work, items)
        del items
        assert [each() for each in known] == [None] * 3
    finally:
        gc.enable()


OWNERS = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "2"
import threading, time
import numpy as np
from threadpoolctl import threadpool_info
from polymargin._threads import blas_threads_for, in_threads, threads as jobs

def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

if threads() != {2}:
    print("one thread here")
    raise SystemExit

def run(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread

# The first to come is the first to go; after that everybody, from every thread, is heard again.
inside, go = threading.Event(), threading.Event()

def other():
    with blas_threads_for(0):
        inside.set()
        go.wait(10)

with blas_threads_for(0):
    thread = run(other)
    inside.wait(10)
go.set()
thread.join()
assert threads() == {2}
with blas_threads_for(0):
    assert threads() == {1}
seen = []

def helper():
    with blas_threads_for(0):
        seen.append(threads())

run(helper).join()
assert seen == [{1}], seen
assert threads() == {2}

# Helpers are held to it from their first item to the end of their last.
noted = []

def slow(item):
    noted.append(threads())
    time.sleep(0.2 * item)
    noted.append(threads())

with jobs(2):
    in_threads(slow, [0, 1])
assert noted == [{1}] * 4, noted
assert threads() == {2}

# A child of a process in the middle of a fit has no part in its limit.
inside.clear()
go.clear()
thread = run(other)
inside.wait(10)
child = os.fork()
if child == 0:
    with blas_threads_for(0):
        held = threads()
    os._exit(0 if held == {1} and threads() == {2} else 1)
assert os.waitpid(child, 0)[1] == 0
go.set()
thread.join()
print("fine")
"""


def test_the_limit_belongs_to_no_thread_and_to_no_child():
    run_with_two_blas_threads(OWNERS)


INTERRUPTS = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "2"
import gc, sys, threading
import numpy as np, sklearn.ensemble
from threadpoolctl import threadpool_info
import polymargin._threads as module
from polymargin._threads import at_most_threads, blas_threads_for, in_threads, threads as jobs

def threads(api="blas"):
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == api}

if threads() != {2}:
    print("one thread here")
    raise SystemExit
openmp = threads("openmp")

def nested():
    with blas_threads_for(0):
        with blas_threads_for(10):
            abs(1)

def of_a_job():
    with at_most_threads(1):
        abs(1)

# Ctrl-C is heard where a function begins and where a built-in one returns: it is sent to each of these in turn.
ours = [module.__file__, __import__("contextlib").__file__]
theirs = [__import__("threadpoolctl").__file__]

def interrupted_at(number, function, files):
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        inside = frame.f_code.co_filename in files or frame.f_code is function.__code__
        if inside and event in ("call", "c_return"):
            count += 1
            if count == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False

for function, files in ((nested, ours + theirs), (of_a_job, ours)):
    function()  # what is looked for once is found
    number = 1
    while interrupted_at(number, function, files):
        assert threads() == {2}, (function.__name__, number, threads())
        assert threads("openmp") == openmp, (function.__name__, number)
        with blas_threads_for(0):
            assert threads() == {1}, (function.__name__, number)
        assert threads() == {2}, (function.__name__, number)
        number += 1
    assert number > 30, number

# In the middle of work that is shared with another thread.
def interrupt(item):
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    assert threads() == {1}

for _ in range(20):
    try:
        with jobs(2):
            in_threads(interrupt, range(8))
    except KeyboardInterrupt:
        pass
    assert threads() == {2}
print("fine")
"""


def test_an_interrupt_lifts_the_limit_wherever_it_arrives():
    run_with_two_blas_threads(INTERRUPTS)


SIGNALS = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "2"
import random, signal
from threadpoolctl import threadpool_info
from polymargin._threads import blas_threads_for

def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

if threads() != {2}:
    print("one thread here")
    raise SystemExit
signal.signal(signal.SIGALRM, signal.default_int_handler)
random.seed(0)
for _ in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
        while True:
            with blas_threads_for(0), blas_threads_for(0):
                pass
    except KeyboardInterrupt:
        pass
    assert threads() == {2}
    with blas_threads_for(0):
        assert threads() == {1}
    assert threads() == {2}
print("fine")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_signals_lift_the_limit():
    run_with_two_blas_threads(SIGNALS)
