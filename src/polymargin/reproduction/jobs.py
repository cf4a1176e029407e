"""Run the jobs of an experiment by `joblib.Parallel`, each to an outcome: rows, or an error."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from polymargin._threads import at_most_threads
from polymargin.reproduction.errors import ReproductionError
from polymargin.reproduction.experiment import Experiment, Row
from polymargin.reproduction.keys import Key

__all__ = ["Outcome", "compute", "compute_all"]

#: How often a worker process looks whether the process that started it is still there.
_SECONDS_BETWEEN_LOOKS = 1.0


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
        with at_most_threads(threads):
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
    experiment: Experiment, jobs: Sequence[Key], n_jobs: int | None, threads: int
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of jobs as they finish.

    Parameters
    ----------
    experiment : Experiment
        Whose jobs these are.
    jobs : sequence of Key
        Started in this order.
    n_jobs : int or None
        How many run at once, by the backend of `joblib.parallel_config`.
    threads : int
        BLAS and OpenMP threads per job.

    Yields
    ------
    outcome : Outcome
        Of a job that has finished or failed.

    Raises
    ------
    concurrent.futures.process.BrokenProcessPool
        If a worker process was killed or crashed.
    ReproductionError
        If the experiment cannot be sent to worker processes.
    """
    # One job to a task: a batch of jobs would be lost together. No memory maps: arrays are the same in every backend.
    parallel = Parallel(
        n_jobs=1 if len(jobs) <= 1 else n_jobs,
        return_as="generator_unordered",
        batch_size=1,
        max_nbytes=None,
    )
    tasks = (delayed(_compute_for)(os.getpid(), experiment, job, threads) for job in jobs)
    with _interrupts_noticed() as check:
        outcomes: Generator[Outcome, None, None] | None = None
        try:
            outcomes = parallel(tasks)
            for outcome in outcomes:
                if outcome.error:
                    check()
                yield outcome
                check()
        except pickle.PicklingError as error:
            reason = [line for line in str(error.__cause__ or error).splitlines() if line.strip('" ')][-1]
            raise ReproductionError(
                f"{experiment.name} cannot be sent to worker processes ({reason}); run it with n_jobs=1"
            ) from error
        finally:
            if outcomes is not None:
                with warnings.catch_warnings():
                    # Of an interrupted run, joblib says how many jobs were given up; the caller knows.
                    warnings.simplefilter("ignore", UserWarning)
                    outcomes.close()


def _compute_for(parent: int, experiment: Experiment, job: Key, threads: int) -> Outcome:
    """Run one job, in a worker process that ends with the process that started it."""
    if os.getppid() == parent:
        _end_with(parent)
    return compute(experiment, job, threads)


@cache
def _end_with(parent: int) -> None:
    """End this process when its parent has, even if that was killed: joblib's workers would stay for minutes."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


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
