"""Threads: ours, for work that is independent, and those of BLAS, which on small matrices cost more than they bring.

Processes take the place of ours where there is much work on small matrices, for which threads wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from multiprocessing import current_process
from numbers import Integral
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import cpu_count, effective_n_jobs
from joblib.parallel import LokyBackend, get_active_backend
from threadpoolctl import ThreadpoolController

from polymargin import _memory

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Up to this many rows one thread is faster: the threads of BLAS wait for each other by spinning.
FEW_ROWS = 2500
#: With matrices of this many rows two threads of ours are worth while: a solution then takes as long as the interpreter
#: needs for its Python code, for which threads wait on each other.
_WORTH_TWO_THREADS = 200


class _Limit:
    """The number of threads of the BLAS or OpenMP libraries: the least that is asked for, while it is asked for.

    The limit on BLAS is the process's, so that all threads must share one such object; that on OpenMP is a thread's.

    Parameters
    ----------
    user_api : {"blas", "openmp"}
        The libraries, as threadpoolctl calls them.
    """

    def __init__(self, user_api: str) -> None:
        self._user_api = user_api
        # The garbage collector may withdraw a request while this thread is in the middle of another one.
        self._lock = RLock()
        self._asked: dict[object, int] = {}
        self._controller: ThreadpoolController | None = None
        self._libraries: list[tuple[Any, int]] = []

    def request(self, who: object, number: int | None) -> None:
        """Allow at most so many threads until `who` withdraws, with None; never more than before the first request.

        A withdrawal undoes the request wherever that was interrupted; interrupted itself, it may be called again.
        """
        with self._lock:
            if number is None and who not in self._asked:
                return
            if not self._asked:
                # The libraries that are loaded are found once: to look for them takes longer than many a prediction.
                self._controller = self._controller or ThreadpoolController()
                self._libraries = [
                    (library, library.get_num_threads())
                    for library in self._controller.lib_controllers
                    if library.user_api == self._user_api
                ]
            if number is not None:
                self._asked[who] = number
            for library, before in self._libraries:
                # Of all requests but the one that is withdrawn.
                asked = [
                    least
                    for other, least in list(self._asked.items())
                    if number is not None or other is not who
                ]
                allowed = min([before, *asked])
                if library.get_num_threads() != allowed:
                    # threadpoolctl 3.8 listens to the thread that set a limit first alone: any thread may set this one.
                    getattr(library, "clear_controlling_thread", _nothing)(force=True)
                    library.set_num_threads(allowed)
                    getattr(library, "clear_controlling_thread", _nothing)(force=True)
            if number is None:
                del self._asked[who]

    def number(self) -> int:
        """Return how many threads the libraries have now."""
        with self._lock:
            self._controller = self._controller or ThreadpoolController()
            libraries = self._controller.lib_controllers
            return max(
                (each.get_num_threads() for each in libraries if each.user_api == self._user_api), default=1
            )

    def forget(self) -> None:
        """Begin anew, in a child process: those who asked for the limit are threads of its parent."""
        self._lock = RLock()
        for who in list(self._asked):
            self.request(who, None)


def _nothing(force: bool) -> None:
    """Do nothing: before threadpoolctl 3.8 every thread may set limits."""


_blas = _Limit("blas")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_blas.forget)


@contextmanager
def _at_most(limit: _Limit, number: int) -> Iterator[None]:
    """Hold to a limit; it is lifted at the end of the block, wherever Ctrl-C may strike.

    Interrupts arrive in the middle of any function, the withdrawal included, which is then called again. One that
    arrives as the block is left, before this generator goes on, closes it and lifts the limit with the traceback.
    """
    who = object()
    try:
        limit.request(who, number)
        yield
    finally:
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                limit.request(who, None)
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


@contextmanager
def blas_threads_for(n_rows: float) -> Iterator[None]:
    """Hold BLAS to one thread while a problem of so few rows is solved; let it be if there are many."""
    if n_rows > FEW_ROWS:
        yield
        return
    with _at_most(_blas, 1):
        yield


@contextmanager
def at_most_threads(number: int) -> Iterator[None]:
    """Hold BLAS and the OpenMP of this thread to so many threads, and to no more than they have."""
    with _at_most(_blas, number), _at_most(_Limit("openmp"), number):
        yield


def count_jobs(n_jobs: int | None) -> int:
    """Return how many may work at once, as joblib counts: one in a daemonic process, of which joblib warns besides.

    Examples
    --------
    >>> count_jobs(3)
    3
    >>> count_jobs("3")
    Traceback (most recent call last):
    ...
    ValueError: n_jobs must be a whole number other than 0 (-1 for all cores), or None for 1; not '3'
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise ValueError(
            f"n_jobs must be a whole number other than 0 (-1 for all cores), or None for 1; not {n_jobs!r}"
        )
    by_threads = getattr(get_active_backend()[0], "uses_threads", False)
    return 1 if current_process().daemon and not by_threads else effective_n_jobs(n_jobs)


#: Threads share elementwise work on more entries than this, which takes one of them a millisecond or more; to hand it
#: over takes a tenth of that.
_WORTH_SHARING = 10**6
#: The multiplications of a part of a matrix product: a third of a millisecond, ten times what it takes to hand over.
_PART_OPERATIONS = 1e7
#: The entries of the rows that are worked on at a time: they stay in the cache. (With one thread half or twice as many
#: take as long; threads wait for the interpreter at every step, so that fewer are better.)
ENTRIES = 2**17
#: The operations of a fit, the sum of the cubes of the rows of its matrices, for which processes are worth while. They
#: take one core 3 to 10 seconds, with a search twice that; to start the processes takes one or two.
_WORTH_PROCESSES = 1e11
#: The least number of processes: two threads hardly wait for each other.
_LEAST_PROCESSES = 4
#: The memory of a process that has imported what it needs, and the share of the free memory that all may take.
_PROCESS_BYTES, _PROCESSES_SHARE = 1.2e8, 0.5


class _Workers(NamedTuple):
    """The threads that `in_threads` may use, how many they are, and how many processes may take their place."""

    pool: ThreadPoolExecutor
    number: int
    processes: int


_threads: ContextVar[_Workers | None] = ContextVar("threads", default=None)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _threads.set(None))  # its threads are the parent's


@contextmanager
def threads(
    n_jobs: int | None, n_rows: float = FEW_ROWS, most_rows: float = 0.0, operations: float = 0.0
) -> Iterator[None]:
    """Let `in_threads` use so many threads, as joblib counts them; within another such block, those of that one.

    Where the matrices to work on have but few rows, more threads would only wait for the interpreter, and there are
    fewer or none. Where some have many rows (`most_rows`), there are at least as many as BLAS has: ours take their
    place, which is faster, and results are the same for any `n_jobs`. Where the work takes many `operations`, there may
    be processes besides (`n_processes`).
    """
    number = min(count_jobs(n_jobs), _worth_while(n_rows))
    if n_jobs is not None and n_jobs < 0:
        number = min(number, cpu_count())  # joblib counts the workers of a cluster, if that is its backend
    n_processes = min(number, cpu_count())  # each would load what it needs, and wait for a core
    n_processes = n_processes if operations >= _WORTH_PROCESSES and _may_start(n_processes) else 1
    if max(n_rows, most_rows) > FEW_ROWS:
        number = max(number, _blas.number())
    if _threads.get() is not None or number == 1:
        yield
        return
    # joblib's threads are asked every 10 ms whether they are done, which is longer than many a matrix takes.
    pool = ThreadPoolExecutor(number, thread_name_prefix="polymargin")
    token = _threads.set(_Workers(pool, number, n_processes))
    try:
        yield
    finally:
        _threads.reset(token)
        pool.shutdown(cancel_futures=True)


def n_threads() -> int:
    """Return how many threads share work here."""
    known = _threads.get()
    return 1 if known is None else known.number


def n_processes() -> int:
    """Return how many processes of joblib may share work here; one: threads are to share it."""
    known = _threads.get()
    return 1 if known is None else known.processes


def _may_start(number: int) -> bool:
    """Return whether so many processes are worth while, joblib would start them, and there is memory for them.

    They are those of loky, joblib's default: clusters would be sent the same rows again and again.
    """
    backend = get_active_backend()[0]
    if number < _LEAST_PROCESSES or not isinstance(backend, LokyBackend) or backend.nesting_level:
        return False
    return number * _PROCESS_BYTES <= _PROCESSES_SHARE * _memory.available()


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], rows: Sequence[float] | None = None
) -> list[Result]:
    """Return what the function makes of every item, in their order; threads share the work where there are some.

    `rows` has the rows of the matrix that every item stands for. Matrices of many rows are worked on one after the
    other, first, with all threads of BLAS; the others at once, the largest first, each with one thread of BLAS, which
    has no other number if there are no threads to share: results do not depend on it. Matrices of few rows are shared
    by fewer threads: more would wait for the interpreter. Without `rows` all are small, and any thread may take one.

    Within the function there are no more threads to share, unless its matrix is large. NumPy's error state and other
    context variables are as where this is called.

    Examples
    --------
    >>> with threads(2):
    ...     in_threads(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    order, n_large = list(range(len(items))), 0
    if rows is not None:
        order = sorted(order, key=lambda place: -rows[place])
        n_large = sum(size > FEW_ROWS for size in rows)
    results = {place: function(items[place]) for place in order[:n_large]}
    small = order[n_large:]
    n_used = n_threads() if rows is None or not small else min(n_threads(), _worth_while(rows[small[0]]))
    if n_used < 2 or len(small) < 2:
        with blas_threads_for(FEW_ROWS + 1 if rows is None or not small else 0):
            results |= {place: function(items[place]) for place in small}
    else:
        # Every thread has as many items as the others, the large ones first.
        shares = (
            [small[first::n_used] for first in range(n_used)]
            if n_used < n_threads()
            else [[n] for n in small]
        )
        found = _at_once(lambda share: [function(items[place]) for place in share], shares)
        for share, of_share in zip(shares, found, strict=True):
            results |= zip(share, of_share, strict=True)
    return [results[place] for place in range(len(items))]


def _worth_while(n_rows: float) -> int:
    """Return how many threads are worth while where matrices of so many rows are worked on.

    A solution takes time in n³, its Python code does not depend on n.
    """
    return 1 + int((n_rows / _WORTH_TWO_THREADS) ** 3)


def over_rows(function: Callable[[slice], None], n_rows: int, n_columns: int) -> None:
    """Call a function for all rows of a matrix, a few at a time; threads share them where the matrix is large.

    Examples
    --------
    >>> matrix = np.eye(3)
    >>> over_rows(lambda rows: np.negative(matrix[rows], out=matrix[rows]), 3, 3)
    >>> float(matrix.sum())
    -3.0
    """
    step = max(1, ENTRIES // max(1, n_columns))

    def work(part: range) -> None:
        for start in part:
            function(slice(start, min(start + step, n_rows)))

    starts = range(0, n_rows, step)
    if n_rows * n_columns > _WORTH_SHARING:
        # A few parts for each thread: they take as long as each other, but may not run at the same speed.
        length = -(-len(starts) // (4 * n_threads()))
        in_threads(work, [starts[first : first + length] for first in range(0, len(starts), length)])
    else:
        work(starts)


def row_parts(n_rows: int, operations: float) -> list[slice]:
    """Return the parts of a matrix's rows that threads may share, given the operations that a row takes.

    They do not depend on the number of threads, so that sums over them are the same for any.

    Examples
    --------
    >>> row_parts(1000, 25_000.0)
    [slice(0, 400, None), slice(400, 800, None), slice(800, 1000, None)]
    """
    step = max(1, int(_PART_OPERATIONS / max(operations, 1.0)))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _at_once(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what the function makes of every item; the threads that there are share the work."""
    known = _threads.get()
    assert known is not None
    state = np.geterr()  # before NumPy 2 it is a thread's own

    def work(item: Item) -> Result:
        with np.errstate(**state):
            return function(item)

    token = _threads.set(None)  # what is called from here on shares nothing
    try:
        contexts = [copy_context() for _ in items]
    finally:
        _threads.reset(token)
    tasks: list[Future[Result]] = []
    with blas_threads_for(0):
        try:
            for context, item in zip(contexts, items, strict=True):
                tasks.append(known.pool.submit(context.run, work, item))
            return list(map(Future.result, tasks))  # no variable of this frame holds the task that failed
        finally:
            # After an error, or an interrupt, nothing else is begun, and nothing goes on with more threads of BLAS.
            _finish(tasks)


def _finish(tasks: list[Future[Any]]) -> None:
    """Cancel tasks, wait for those that have begun, however often Ctrl-C strikes, and forget them."""
    interrupt: KeyboardInterrupt | None = None
    while tasks:
        try:
            for task in tasks:
                task.cancel()
            wait(tasks)
            tasks.clear()
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
