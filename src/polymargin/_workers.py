"""Processes of our own for work that threads would wait for each other in: whoever calls works too."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import resource_tracker
from multiprocessing.util import Finalize
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np
from joblib import parallel_config
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config

from polymargin._threads import (
    FEW_ROWS,
    blas_threads_for,
    count_jobs,
    in_threads,
    n_threads,
    other_threads,
    threads,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Workers that have had nothing to do for so long leave.
_IDLE_SECONDS = 300.0
#: For so long after it was given something a worker is not asked whether it is still there.
_SURELY_THERE = 60.0
#: What is raised if a worker has died or cannot be started, if the interpreter is about to end, or if this joblib has
#: its executors elsewhere.
_NO_WORKER = (RuntimeError, OSError, ImportError)


def in_processes(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    n_jobs: int | None,
    *,
    n_rows: float = FEW_ROWS,
    done: Callable[[], None] | None = None,
) -> list[Result]:
    """Return what the function makes of every item, in their order; processes share the work.

    This process does the first item, and takes the next whenever it is free. So does each of the others, once it is
    there: nobody waits for one that is still starting, which takes longer than many a fit. They stay for the next call.
    What a process cannot be sent or cannot send back is done here, and so is what one was doing when it died.

    Within the function joblib allows as many threads as there are jobs to an item, and no processes. Its warnings are
    given here, its errors raised here; scikit-learn's configuration and NumPy's error state are as where this is
    called. Where joblib's backend is one of threads, `in_threads` does it all.

    Parameters
    ----------
    function : callable
        It should leave alone what it is given: others may have a copy.
    items : sequence
        Those that take long come first, if that is known.
    n_jobs : int or None
        How many work at once, this process included, as joblib counts.
    n_rows : float
        The size of the matrices, which decides whether threads are worth it where they are asked for, see `threads`.
    done : callable or None
        Is called after every item, in this process, in any thread.

    Examples
    --------
    >>> in_processes(abs, [-1, 2, -3], 2)
    [1, 2, 3]
    """
    number = count_jobs(n_jobs)
    share = max(number // max(len(items), 1), 1)
    surroundings = _Surroundings(share, n_threads() > 1, get_config(), dict(np.geterr()))
    call = _Call(function, items, surroundings, done or _nothing)
    if number == 1:
        return [call.here(place) for place in range(len(items))]
    if getattr(get_active_backend()[0], "uses_threads", False):
        with threads(n_jobs, n_rows):
            return in_threads(call.here, range(len(items)))
    return call.shared(min(number, len(items)) - 1)


def _nothing() -> None:
    """Do nothing when an item is done."""


@dataclass(frozen=True)
class _Surroundings:
    """What an item finds, in whichever process: how many threads it may use, and the caller's settings."""

    n_threads: int
    #: Whether the caller has threads that help, in place of which there are now so many.
    helped: bool
    configuration: dict[str, Any]
    error_state: dict[str, Any]

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let joblib, and so `threads`, count so many threads and no processes."""
        backend = "sequential" if self.n_threads == 1 else "threading"
        with (
            parallel_config(backend=backend, n_jobs=self.n_threads),
            other_threads(self.n_threads) if self.helped else nullcontext(),
        ):
            yield

    @contextmanager
    def there(self) -> Iterator[None]:
        """Have the same in a worker."""
        with (
            config_context(**self.configuration),
            np.errstate(**self.error_state),
            blas_threads_for(0),
            self.here(),
        ):
            yield


@dataclass(frozen=True)
class _Outcome:
    """What became of an item: a result or an error, and the warnings (message, category, file name, line)."""

    result: Any = None
    error: BaseException | None = None
    warnings: tuple[tuple[Any, type[Warning], str, int], ...] = ()


@dataclass
class _Call(Generic[Item, Result]):
    """The items of one call, which this process and the workers take one by one."""

    function: Callable[[Item], Result]
    items: Sequence[Item]
    surroundings: _Surroundings
    done: Callable[[], None]
    _left: Iterator[int] = field(init=False)
    #: Which item each worker is at; changed under the lock, as is `_left`.
    _busy: dict[_Worker, int] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)
    #: The outcomes from workers, None where an item has to be done here.
    _arrived: SimpleQueue[tuple[int, _Outcome | None]] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self._left = iter(range(len(self.items)))

    def here(self, place: int) -> Result:
        """Do an item in this process."""
        result = self.function(self.items[place])
        self.done()
        return result

    def shared(self, n_workers: int) -> list[Result]:
        """Do all items, together with so many workers; leave none of them at work."""
        outcomes: dict[int, _Outcome] = {}
        mine = next(self._left, None)  # before any worker comes
        workers = self._called(n_workers)
        try:
            with self.surroundings.here():
                while mine is not None:
                    outcomes[mine] = _Outcome(self.here(mine))
                    mine = self._next()
                while len(outcomes) < len(self.items):
                    place, outcome = self._awaited()
                    if outcome is not None and outcome.error is not None:
                        raise outcome.error
                    outcomes[place] = _Outcome(self.here(place)) if outcome is None else outcome
        finally:
            busy = self._end()
            _idle.extend(worker for worker in workers if worker not in busy)
            for worker in busy:  # there was an error, and what they work at is of no use
                worker.kill()
        ordered = [outcomes[place] for place in range(len(self.items))]
        for outcome in ordered:
            _warn_again(outcome)
        return [outcome.result for outcome in ordered]

    def _awaited(self) -> tuple[int, _Outcome | None]:
        """Wait for an outcome, a little at a time: not everywhere can a long wait be interrupted."""
        while True:
            try:
                return self._arrived.get(timeout=1.0)
            except Empty:
                continue

    def _next(self) -> int | None:
        with self._lock:
            return next(self._left, None)

    def _end(self) -> list[_Worker]:
        """Let nobody begin another item; return the workers that are still at one."""
        with self._lock:
            self._left = iter(())
            return list(self._busy)

    def _called(self, n_workers: int) -> list[_Worker]:
        """Return workers that will ask for items as soon as they are there."""
        workers = []
        for _ in range(n_workers):
            try:
                worker, answer = _awake()
            except _NO_WORKER:
                break
            workers.append(worker)
            answer.add_done_callback(partial(self._feed, worker))
        return workers

    def _feed(self, worker: _Worker, answer: Future[Any]) -> None:
        """Give a worker the next item."""
        if answer.exception() is not None:
            return
        with self._lock:
            place = next(self._left, None)
            if place is None:
                return
            try:
                coming = worker.submit(_work, self.function, self.items[place], self.surroundings)
            except _NO_WORKER:
                self._arrived.put((place, None))
                return
            self._busy[worker] = place
        coming.add_done_callback(partial(self._take, worker))

    def _take(self, worker: _Worker, coming: Future[_Outcome]) -> None:
        """Take from a worker what it has done, and feed it again."""
        with self._lock:
            place = self._busy.pop(worker)
        # An error of the item itself is part of the outcome; others mean that there is none, whoever is to blame.
        outcome = None if coming.exception() is not None else coming.result()
        if outcome is not None and outcome.error is not None:
            self._end()
        try:
            if outcome is not None:
                self.done()
        finally:
            self._arrived.put((place, outcome))
        self._feed(worker, coming)


# In the workers ----------------------------------------------------------------------------------------------


def _begin(parent: int) -> None:
    """Listen to nobody's interrupts, and do not outlive the parent, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if os.name == "posix":  # elsewhere a process keeps the number of a parent that has ended
        threading.Thread(target=watch, daemon=True).start()


def _hello() -> None:
    """Be there, with what takes long to import."""
    importlib.import_module("polymargin.estimators")
    with blas_threads_for(0):
        pass


def _work(function: Callable[[Item], Result], item: Item, surroundings: _Surroundings) -> _Outcome:
    """Do an item in a worker."""
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught, surroundings.there():
        warnings.simplefilter("always")  # which of them are shown is decided where they are given again
        try:
            result = function(item)
        except MemoryError:
            raise  # it is done over where the others have come to an end
        except BaseException as failure:
            failure.add_note("In a worker process:\n" + "".join(traceback.format_exception(failure)))
            error = failure
    told = tuple((warning.message, warning.category, warning.filename, warning.lineno) for warning in caught)
    return _Outcome(result, error, told)


def _warn_again(outcome: _Outcome) -> None:
    """Give the warnings of a worker here, as if from the module that gave them there."""
    for message, category, filename, line in outcome.warnings:
        spaces = [getattr(module, "__dict__", {}) for module in tuple(sys.modules.values())]
        space = next((space for space in spaces if space.get("__file__") == filename), {})
        registry = space.setdefault("__warningregistry__", {})
        # Without a module's name there would be no warning.
        warnings.warn_explicit(message, category, filename, line, space.get("__name__", filename), registry)


# The workers -------------------------------------------------------------------------------------------------


class _Worker:
    """A process that waits for work: an executor of one, so that it is known whether it is there and what it does."""

    def __init__(self) -> None:
        # Not joblib's reusable executor: joblib expects things of it that only joblib puts there. (And where there are
        # no processes, joblib can be imported, but not this.)
        from joblib.externals.loky.backend import get_context
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        self._executor = ProcessPoolExecutor(
            1, timeout=_IDLE_SECONDS, context=get_context("loky"), initializer=partial(_begin, os.getpid())
        )
        with _deaf():
            self.submit(_hello)
        _end_with_the_interpreter()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have it do something, once it has done what it was given before."""
        self._last_seen = -float("inf")  # should this fail
        self._last = self._executor.submit(function, *arguments)
        self._last_seen = time.monotonic()
        return self._last

    def hello(self) -> Future[Any]:
        """Return an answer, which tells that it is there, to be waited for if it is only starting."""
        if not self._last.done():
            return self._last
        there = time.monotonic() - self._last_seen < _SURELY_THERE and self._last.exception() is None
        return self._last if there else self.submit(_hello)

    def end(self) -> None:
        """Let it go; where it is only starting, that would take too long."""
        if self._last.done():
            self._executor.shutdown(wait=True)
        else:
            self.kill()

    def kill(self) -> None:
        """End it, whatever it does."""
        end = time.monotonic() + 1.0
        while not (self._last.running() or self._last.done()) and time.monotonic() < end:
            time.sleep(0.0005)  # an executor fails if it is shut down before it has seen what was submitted
        self._executor.shutdown(wait=False, kill_workers=True)


#: Those that nobody uses.
_idle: list[_Worker] = []
#: Those of the process that this one was forked from: they are not ours, and even to forget them could disturb it.
_of_our_parent: list[_Worker] = []


def _awake() -> tuple[_Worker, Future[Any]]:
    """Return a worker that nobody uses, an old or a new one, and its answer."""
    while _idle:
        try:
            worker = _idle.pop()
            return worker, worker.hello()
        except (IndexError, *_NO_WORKER):  # another thread was faster, or it has died
            continue
    worker = _Worker()
    return worker, worker.hello()


@contextmanager
def _deaf() -> Iterator[None]:
    """Start processes that an interrupt from the terminal does not reach: it is for us, who decide about them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def _end_with_the_interpreter() -> None:
    """See to it that the interpreter's end does not wait for workers that are idle or only starting."""
    # It waits for the threads of executors before the functions of `atexit` are called. Theirs was registered when the
    # first one started: ours, registered later, comes before it.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_end_idle)
    # A child of multiprocessing calls none of these, but its own.
    Finalize(None, _end_idle, exitpriority=100)


def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


def _forget() -> None:
    """Have no workers, in a child process."""
    _of_our_parent.extend(_idle)
    _idle.clear()
    _end_with_the_interpreter.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
