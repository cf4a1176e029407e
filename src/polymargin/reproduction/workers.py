"""Jobs in worker processes that never outlive the run.

Workers are spawned (no state of the parent leaks in), hold one end of a *lifeline* pipe and leave the moment
it closes: when the run ends, is interrupted, or is killed. Each computes with a fixed number of BLAS threads.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from polymargin.reproduction.errors import ReproductionError
from polymargin.reproduction.experiment import Experiment, Row
from polymargin.reproduction.keys import Key

__all__ = ["Outcome", "compute", "compute_all"]

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Outcome:
    """What became of a job: rows, or an error."""

    job: Key
    seconds: float
    rows: tuple[Row, ...] = ()
    error: str = ""
    traceback: str = ""


def compute(experiment: Experiment, job: Key, threads: int) -> Outcome:
    """Run one job; an exception becomes part of the outcome."""
    start = time.perf_counter()
    try:
        with threadpool_limits(threads):
            rows = _checked(experiment, job, experiment.run(job))
        return Outcome(job, time.perf_counter() - start, rows)
    except (Exception, SystemExit) as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        return Outcome(
            job,
            time.perf_counter() - start,
            error=f"{type(error).__name__}: {first_line}".rstrip(": "),
            traceback=traceback.format_exc(),
        )


def _checked(experiment: Experiment, job: Key, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows in plain types and in the order of the cells, having seen that all are there."""
    expected = list(experiment.cells(job))
    fields = list(expected[0])
    by_cell = {Key.from_mapping(row).only(fields): row for row in rows}
    if len(rows) != len(expected) or by_cell.keys() != set(expected):
        stray = [str(cell) for cell in by_cell.keys() ^ set(expected)]
        raise ReproductionError(f"the job's rows are not its cells (missing, strange or double: {stray[:3]})")
    checked = []
    for cell in expected:
        row = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in by_cell[cell].items()
        }
        if not np.isfinite(row["value"]):
            raise ReproductionError(f"the value of {cell} is {row['value']}")
        json.dumps(row, allow_nan=False)  # what the journal could not hold must fail here, not in the parent
        checked.append(cell.asdict() | {name: row[name] for name in row if name not in fields})
    return tuple(checked)


def compute_all(
    experiment: Experiment, jobs: Sequence[Key], n_jobs: int, threads: int
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of jobs as they finish.

    Parameters
    ----------
    experiment : Experiment
    jobs : sequence of Key
        Started in this order.
    n_jobs : int
        Worker processes; with 1, jobs run in this process.
    threads : int
        BLAS and OpenMP threads per job.
    """
    if n_jobs == 1 or len(jobs) <= 1:
        with _interrupts_noticed() as check:
            for job in jobs:
                outcome = compute(experiment, job, threads)
                check()
                yield outcome
        return
    _check_picklable(experiment)
    waiting = deque(jobs)
    while waiting:
        suspects: list[Key] = []
        yield from _compute_in_pool(experiment, waiting, suspects, min(n_jobs, len(waiting)), threads)
        yield from _compute_one_by_one(experiment, deque(suspects), threads)


@contextmanager
def _interrupts_noticed() -> Iterator[Callable[[], None]]:
    """Give what raises KeyboardInterrupt if one was swallowed: compilers and callbacks turn it into other errors."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    seen = False
    before = signal.getsignal(signal.SIGINT)

    def handler(number: int, frame: Any) -> None:
        nonlocal seen
        seen = True
        (before if callable(before) else signal.default_int_handler)(number, frame)

    def check() -> None:
        if seen:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _check_picklable(experiment: Experiment) -> None:
    try:
        pickle.dumps(experiment)
    except Exception as error:
        raise ReproductionError(f"{experiment.name} cannot be sent to worker processes: {error}") from error


def _compute_in_pool(
    experiment: Experiment, waiting: deque[Key], suspects: list[Key], n_workers: int, threads: int
) -> Iterator[Outcome]:
    """Yield outcomes of jobs from `waiting`; if a worker dies, leave the jobs in flight in `suspects`."""
    in_flight: dict[Future[Outcome], Key] = {}
    with _pool(n_workers, threads) as pool:
        try:
            while waiting or in_flight:
                while waiting and len(in_flight) <= n_workers:  # one job lies ready behind the running ones
                    job = waiting.popleft()
                    try:
                        with _interrupts_wait():
                            in_flight[pool.submit(compute, experiment, job, threads)] = job
                    except BrokenProcessPool:
                        waiting.appendleft(job)
                        raise
                finished, _ = wait(in_flight, return_when=FIRST_COMPLETED)
                for future in finished:
                    outcome = future.result()
                    del in_flight[future]
                    yield outcome
        except BrokenProcessPool:
            suspects.extend(in_flight.values())


def _compute_one_by_one(experiment: Experiment, suspects: deque[Key], threads: int) -> Iterator[Outcome]:
    """Yield the outcomes of jobs in flight when a worker died: alone, the guilty one shows itself."""
    while suspects:
        with _pool(1, threads) as pool:
            while suspects:
                job = suspects.popleft()
                start = time.perf_counter()
                try:
                    with _interrupts_wait():
                        future = pool.submit(compute, experiment, job, threads)
                    outcome = future.result()
                except BrokenProcessPool as error:
                    message = "the worker process died (out of memory? or it cannot import the experiment)"
                    yield Outcome(job, time.perf_counter() - start, error=message, traceback=repr(error))
                    break  # to the next suspect with a new worker
                yield outcome


@contextmanager
def _pool(n_workers: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of spawned workers that is gone, jobs in flight included, when the block is left."""
    context = multiprocessing.get_context("spawn")
    worker_end, our_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        n_workers, mp_context=context, initializer=_start_worker, initargs=(worker_end, threads)
    )
    try:
        yield pool
    finally:
        our_end.close()
        pool.shutdown(wait=True, cancel_futures=True)
        worker_end.close()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold back Ctrl-C while a worker is started: it inherits the mask, and is not torn up half awake."""
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover - Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(lifeline: Connection, threads: int) -> None:
    """Prepare a worker: Ctrl-C is the parent's affair, threads are limited, the lifeline is watched."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # the mask that `_interrupts_wait` left behind
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for variable in _THREAD_VARIABLES:  # for libraries loaded later; `compute` limits those already loaded
        os.environ[variable] = str(threads)
    threading.Thread(target=_leave_when_closed, args=(lifeline,), daemon=True).start()


def _leave_when_closed(lifeline: Connection) -> None:
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        pass
    finally:
        os._exit(1)
