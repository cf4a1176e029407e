"""Processes that share work: who does what, and what becomes of errors, warnings, interrupts and deaths."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from multiprocessing import Pool

import numpy as np
import pytest
import sklearn
from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from polymargin import _workers
from polymargin._workers import in_processes

PATIENCE = 30.0


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def warm(n_workers=1):
    """Have so many workers that are there already; return their process ids."""
    awake = [_workers._awake() for _ in range(n_workers)]
    ids = [worker.submit(os.getpid).result(PATIENCE) for worker, _ in awake]
    _workers._idle.extend(worker for worker, _ in awake)
    return ids


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def met(folder, number, item):
    """Return the item and who did it, once so many items have been begun."""
    (folder / str(item)).write_text(str(os.getpid()))
    wait_until(lambda: len(list(folder.iterdir())) >= number)
    return item, os.getpid()


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_processes_work_at_once_and_results_keep_their_order(tmp_path, n_jobs):
    ids = warm(n_jobs - 1)
    results = in_processes(functools.partial(met, tmp_path, n_jobs), range(7), n_jobs)
    assert [item for item, _ in results] == list(range(7))
    assert results[0][1] == os.getpid()
    assert {pid for _, pid in results} == {os.getpid(), *ids}


def test_few_items():
    assert in_processes(abs, [], 2) == []
    assert in_processes(lambda item: (item, os.getpid()), [5], 2) == [(5, os.getpid())]


def test_one_job_is_done_here():
    assert in_processes(lambda item: os.getpid(), range(3), 1) == [os.getpid()] * 3
    assert in_processes(lambda item: os.getpid(), range(3), None) == [os.getpid()] * 3


def test_a_worker_that_is_still_starting_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(_workers, "_idle", [])
    monkeypatch.setattr(_workers, "_hello", functools.partial(time.sleep, 2 * PATIENCE))
    begun = time.monotonic()
    assert in_processes(lambda item: os.getpid(), range(3), 2) == [os.getpid()] * 3
    assert time.monotonic() - begun < PATIENCE
    (worker,) = _workers._idle
    worker.kill()


def test_the_same_workers_serve_the_next_call(tmp_path):
    ids = []
    warm()
    for call in ("first", "second"):
        (tmp_path / call).mkdir()
        ids.append({pid for _, pid in in_processes(functools.partial(met, tmp_path / call, 2), range(2), 2)})
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2


def test_every_item_is_counted(tmp_path):
    warm()
    for n_jobs in (1, 2):
        counted = []
        in_processes(
            functools.partial(met, tmp_path, 1), range(5), n_jobs, done=lambda c=counted: c.append(1)
        )
        assert len(counted) == 5


# Errors ------------------------------------------------------------------------------------------------------


def test_an_error_in_a_worker_is_raised_here_and_ends_the_work(tmp_path):
    def work(item):
        (tmp_path / str(item)).touch()
        if item == 1:
            raise KeyError("this one")
        wait_until((tmp_path / "1").exists)
        time.sleep(0.2)

    (pid,) = warm()
    with pytest.raises(KeyError, match="this one") as caught:
        in_processes(work, range(6), 2)
    assert "In a worker process" in caught.value.__notes__[0]
    assert "in work" in caught.value.__notes__[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert not gone(pid)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_here_kills_workers_that_are_at_work(tmp_path, error):
    def work(item):
        if item > 0:
            (tmp_path / "begun").touch()
            time.sleep(2 * PATIENCE)
        wait_until((tmp_path / "begun").exists)
        raise error("here")

    (pid,) = warm()
    begun = time.monotonic()
    with pytest.raises(error, match="here"):
        in_processes(work, range(6), 2)
    wait_until(lambda: gone(pid))
    assert time.monotonic() - begun < PATIENCE
    assert in_processes(abs, [-1, -2, -3], 2) == [1, 2, 3]


def test_an_interrupt_while_waiting_for_workers_is_prompt_and_for_us_alone(tmp_path):
    (busy, idle) = warm(2)

    def work(item):
        if item == 1:
            (tmp_path / "begun").write_text(str(os.getpid()))
            time.sleep(2 * PATIENCE)
        wait_until((tmp_path / "begun").exists)

    def interrupt():
        wait_until((tmp_path / "begun").exists)
        time.sleep(0.2)
        for pid in (busy, idle, os.getpid()):  # as a terminal does
            os.kill(pid, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        in_processes(work, range(2), 2)
    thread.join()
    worker = int((tmp_path / "begun").read_text())
    wait_until(lambda: gone(worker))
    assert not gone(busy + idle - worker)


def test_what_a_dying_worker_was_doing_is_done_here(tmp_path):
    here = os.getpid()

    def work(item):
        (tmp_path / f"{item} {os.getpid() == here}").touch()
        if os.getpid() != here:
            os._exit(1)
        wait_until((tmp_path / "1 False").exists)
        return item * item

    warm()
    assert in_processes(work, range(5), 2) == [0, 1, 4, 9, 16]
    folder = tmp_path / "again"
    folder.mkdir()
    (pid,) = warm()
    assert {pid for _, pid in in_processes(functools.partial(met, folder, 2), range(2), 2)} == {here, pid}


def test_a_worker_that_died_idle_is_replaced():
    (pid,) = warm()
    os.kill(pid, signal.SIGKILL)
    assert in_processes(abs, [-1, -2, -3], 2) == [1, 2, 3]  # whether its death is known already or not

    def replaced():
        try:
            return warm() != [pid]
        except RuntimeError:
            return False

    wait_until(replaced)


def test_what_a_worker_has_no_memory_for_is_done_here(tmp_path):
    here = os.getpid()

    def work(item):
        (tmp_path / f"{item} {os.getpid() == here}").touch()
        if os.getpid() != here:
            raise MemoryError
        wait_until((tmp_path / "1 False").exists)
        return item

    warm()
    assert in_processes(work, range(3), 2) == [0, 1, 2]


class Unsendable:
    """Says where it was made; neither it nor an error with it inside can be pickled."""

    def __init__(self):
        self.lock, self.pid = threading.Lock(), os.getpid()


class UnsendableError(Exception):
    def __init__(self, message, lock):
        super().__init__(message)
        self.lock = lock


class OneWayError(Exception):
    """Is pickled, but not made again: that takes two arguments."""

    def __init__(self, one, two):
        super().__init__(one + two)


def test_items_that_cannot_be_sent_are_done_here():
    warm()
    pids = in_processes(lambda item: (item.pid, os.getpid()), [Unsendable() for _ in range(4)], 2)
    assert pids == [(os.getpid(), os.getpid())] * 4


def test_results_that_cannot_be_sent_are_made_here(tmp_path):
    def work(item):
        met(tmp_path, 2, item)
        return Unsendable()

    warm()
    assert [result.pid for result in in_processes(work, range(4), 2)] == [os.getpid()] * 4


@pytest.mark.parametrize(
    "error", [lambda: UnsendableError("this", threading.Lock()), lambda: OneWayError("th", "is")]
)
def test_errors_that_cannot_be_sent_are_raised_here(tmp_path, error):
    def work(item):
        met(tmp_path, 2, item)
        if item == 1:
            raise error()

    warm()
    with pytest.raises((UnsendableError, OneWayError), match="this"):
        in_processes(work, range(2), 2)


# Surroundings ------------------------------------------------------------------------------------------------


def noisy(folder, item):
    met(folder, 2, item)
    if item:
        warnings.warn(f"item {item}", FutureWarning, stacklevel=1)
    return os.getpid()


def test_warnings_of_workers_are_given_here(tmp_path):
    warm()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(set(in_processes(functools.partial(noisy, tmp_path), range(4), 2))) == 2
    told = {str(warning.message) for warning in caught}
    assert told == {"item 1", "item 2", "item 3"}
    assert {warning.category for warning in caught} == {FutureWarning}
    assert {warning.filename for warning in caught} == {__file__}


def test_filters_here_decide_about_warnings_of_workers(tmp_path):
    warm()
    for name in ("ignore", "error"):
        (tmp_path / name).mkdir()
    work = functools.partial(noisy, tmp_path / "ignore")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        in_processes(work, range(2), 2)
    assert not caught
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        with pytest.raises(FutureWarning, match="item 1"):
            in_processes(functools.partial(noisy, tmp_path / "error"), range(2), 2)


def surroundings(folder, item):
    return met(folder, 2, item)[1], sklearn.get_config()["assume_finite"], np.geterr()["divide"]


def test_settings_are_those_of_the_caller(tmp_path):
    warm()
    with sklearn.config_context(assume_finite=True), np.errstate(divide="raise"):
        results = in_processes(functools.partial(surroundings, tmp_path), range(2), 2)
    assert len({pid for pid, *_ in results}) == 2
    assert [tuple(rest) for _, *rest in results] == [(True, "raise")] * 2


def jobs_within(folder, item):
    pid = met(folder, 2, item)[1]
    inner = {in_processes(lambda _: os.getpid(), range(3), 2)[-1]}
    return pid, inner == {pid}, effective_n_jobs(None), effective_n_jobs(2)


@pytest.mark.parametrize(("n_jobs", "expected"), [(2, (True, 1, 1)), (6, (True, 3, 2))])
def test_an_item_has_threads_only_where_there_are_more_jobs_than_items(tmp_path, n_jobs, expected):
    warm()
    results = in_processes(functools.partial(jobs_within, tmp_path), range(2), n_jobs)
    assert len({pid for pid, *_ in results}) == 2
    assert [tuple(rest) for _, *rest in results] == [expected] * 2
    assert effective_n_jobs(None) == 1


def test_threads_where_joblib_is_told_to_use_them():
    meeting = threading.Barrier(2)

    def work(item):
        meeting.wait(PATIENCE)
        return os.getpid(), threading.get_ident()

    for wish in ({"backend": "threading"}, {"require": "sharedmem"}, {"prefer": "threads"}):
        with parallel_config(**wish):
            results = in_processes(work, range(2), 2)
        assert {pid for pid, _ in results} == {os.getpid()}
        assert len({thread for _, thread in results}) == 2


def all_in_one_process(_):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {*in_processes(lambda item: os.getpid(), range(3), 2)} == {os.getpid()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 on forks where there are threads
def test_no_workers_within_those_of_others():
    with Pool(1) as pool:  # daemonic
        assert pool.map(all_in_one_process, range(1)) == [True]
    assert Parallel(2)(delayed(all_in_one_process)(item) for item in range(2)) == [True, True]


def test_joblib_goes_on_working_beside_us():
    warm()
    for _ in range(2):
        assert in_processes(abs, [-1, -2, -3], 2) == [1, 2, 3]
        assert Parallel(2)(delayed(abs)(item) for item in [-1, -2, -3]) == [1, 2, 3]


def test_threads_of_the_caller_have_workers_of_their_own(tmp_path):
    warm(2)
    results = {}

    def call(name):
        results[name] = in_processes(functools.partial(met, tmp_path, 4), [name + "0", name + "1"], 2)

    pair = [threading.Thread(target=call, args=(name,)) for name in "ab"]
    [thread.start() for thread in pair]
    [thread.join() for thread in pair]
    assert [item for name in "ab" for item, _ in results[name]] == ["a0", "a1", "b0", "b1"]
    assert len({results["a"][1][1], results["b"][1][1], os.getpid()}) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_workers_of_its_own(tmp_path):
    ids = warm()
    child = os.fork()
    if child == 0:
        fine = False
        try:
            inherited = list(_workers._idle)
            own = warm()
            results = in_processes(functools.partial(met, tmp_path, 2), range(2), 2)
            _workers._idle[0].kill()
            wait_until(lambda: gone(own[0]))  # by a thread, which does not outlive this process
            fine = not inherited and own != ids and {pid for _, pid in results} == {os.getpid(), *own}
        finally:
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    (tmp_path / "here").mkdir()
    results = in_processes(functools.partial(met, tmp_path / "here", 2), range(2), 2)
    assert {pid for _, pid in results} <= {os.getpid(), *ids, *warm()}


SCRIPT = """
import os
from polymargin import _workers
from polymargin._workers import in_processes

def own(item):  # of a script that does not protect its entry
    return item * scale

scale = 3
if SLOW:
    _workers._hello = lambda: __import__("time").sleep(600)
else:
    worker, answer = _workers._awake()
    answer.result()
    _workers._idle.append(worker)
print(in_processes(own, range(3), 2))
"""


@pytest.mark.parametrize("slow", [False, True])
def test_a_script_ends_at_once_and_quietly(slow):
    code = SCRIPT.replace("SLOW", str(slow))
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=4 * PATIENCE
    )
    assert result.stdout.strip() == "[0, 3, 6]"
    assert result.stderr == ""
    assert result.returncode == 0


CHILD = """
import multiprocessing
import os
import sys
from polymargin import _workers
from polymargin._workers import in_processes

def work(n_fits):
    worker, answer = _workers._awake()
    answer.result()
    _workers._idle.append(worker)
    print(in_processes(abs, [-1, -2], 2), worker.submit(os.getpid).result(), flush=True)

if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(1,))
    child.start()
    child.join(60)
    print(child.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_ends_at_once(tmp_path, method):
    if method == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    (tmp_path / "child.py").write_text(CHILD)
    result = subprocess.run(
        [sys.executable, str(tmp_path / "child.py"), method],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        env={**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"},
    )
    first, exit_code = result.stdout.splitlines()
    assert first.startswith("[1, 2]")
    assert exit_code == "0"
    assert result.stderr == ""
    wait_until(lambda: gone(int(first.split()[-1])))


@pytest.mark.skipif(os.name != "posix", reason="only there a process sees that its parent has ended")
def test_a_worker_does_not_outlive_a_parent_that_is_killed():
    code = """
import os, signal
from polymargin import _workers
worker, answer = _workers._awake()
print(worker.submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # It holds the pipes open, too, so that this would not return before it is gone.
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=4 * PATIENCE
    )
    assert result.returncode == -signal.SIGKILL
    wait_until(lambda: gone(int(result.stdout)))


def test_warnings_of_code_that_is_in_no_file_are_given_here():
    code = """
import os, warnings
from polymargin import _workers
from polymargin._workers import in_processes
parent = os.getpid()
def work(item):
    while item == 0 and not os.path.exists(FLAG):
        pass
    if item == 1:
        open(FLAG, "w").close()
        warnings.warn(f"from a worker: {os.getpid() != parent}")
worker, answer = _workers._awake()
answer.result()
_workers._idle.append(worker)
in_processes(work, range(2), 2)
"""
    with tempfile.TemporaryDirectory() as folder:
        code = code.replace("FLAG", repr(os.path.join(folder, "flag")))
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=4 * PATIENCE
        )
    assert "UserWarning: from a worker: True" in result.stderr
