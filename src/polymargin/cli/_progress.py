"""Progress of a long run on stderr: a bar on a terminal, otherwise a line a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as rich_progress

from polymargin.cli._console import errors
from polymargin.reproduction import RunProgress

__all__ = ["duration", "logged", "show_progress", "show_rows", "show_steps", "show_time"]

_SECONDS_BETWEEN_LINES = 60.0


@contextmanager
def show_progress(title: str, least_jobs: int = 1) -> Iterator[Callable[[RunProgress], None]]:
    """Give a callback for `run_experiment` that shows where it stands, and from `least_jobs` jobs on the time left."""
    console = errors()
    known = _TimeLeft(least_jobs)
    if not console.is_terminal:
        yield _Lines(title, known)
        return
    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
        rich_progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=None, note="")

        def update(now: RunProgress) -> None:
            note = known(now)
            if now.failed:
                note += f", [red]{now.failed} failed[/]"
            bar.update(task, completed=now.done + now.failed, total=now.total, note=note)

        yield update


class _TimeLeft:
    """Writes the time left of a run, once so many of its jobs are done that it can be estimated."""

    def __init__(self, least_jobs: int) -> None:
        self._least_jobs = least_jobs
        self._found: int | None = None

    def __call__(self, now: RunProgress) -> str:
        if self._found is None:
            self._found = now.done + now.failed
        done = now.done + now.failed - self._found
        return (
            ""
            if now.remaining is None or done < self._least_jobs
            else f"about {duration(now.remaining)} left"
        )


class _Lines:
    """Writes a line a minute, and the last."""

    def __init__(self, title: str, known: _TimeLeft) -> None:
        self._title = title
        self._known = known
        self._console = errors()
        self._last = time.monotonic()

    def __call__(self, now: RunProgress) -> None:
        finished = now.job is not None and now.done + now.failed == now.total
        known = self._known(now)
        if not finished and time.monotonic() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = time.monotonic()
        left = f", {known}" if known and not finished else ""
        failed = f", {now.failed} failed" if now.failed else ""
        self._console.print(f"{self._title}: {now.done} of {now.total} jobs{failed}{left}", markup=False)


@contextmanager
def show_rows(title: str) -> Iterator[Callable[[int, float], None]]:
    """Give a callback that shows how many rows of a file are done: it takes their number and the share of the file."""
    start = last = time.monotonic()
    console = errors()
    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
        rich_progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def update(rows: int, share: float) -> None:
        nonlocal last
        seconds = max(time.monotonic() - start, 1e-9)
        speed = f"{rows:,} rows, {rows / seconds:,.0f} rows/s"
        bar.update(task, completed=share, note=speed)
        if not console.is_terminal and time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            left = f", {duration(seconds * (1.0 - share) / share)} left" if share > 0.0 else ""
            console.print(f"{title}: {share:.0%}, {speed}{left}", markup=False)

    with bar:
        task = bar.add_task(title, total=1.0, note="")
        yield update


@contextmanager
def show_steps(title: str) -> Iterator[Callable[[int, int], None]]:
    """Give a callback that shows how many of how many steps are done."""
    console = errors()
    last = time.monotonic()
    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def update(done: int, total: int) -> None:
        nonlocal last
        bar.update(task, completed=done, total=total)
        if not console.is_terminal and time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            console.print(f"{title}: {done} of {total}", markup=False)

    with bar:
        task = bar.add_task(title, total=None)
        yield update


@contextmanager
def show_time(title: str) -> Iterator[None]:
    """Write every minute how long something has taken, where stderr is no terminal."""
    console, start, ended = errors(), time.monotonic(), threading.Event()

    def write() -> None:
        while not ended.wait(_SECONDS_BETWEEN_LINES):
            console.print(f"{title}: {duration(time.monotonic() - start)} so far", markup=False)

    thread = threading.Thread(target=write, daemon=True)
    if not console.is_terminal:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()


@contextmanager
def logged() -> Iterator[None]:
    """Write what the library logs of a long fit to stderr, where that is no terminal with a bar.

    Left out are plans of a fit that is not divided, and what commands note themselves, with options in place of
    parameters.
    """
    logger, handler = logging.getLogger("polymargin"), logging.StreamHandler()
    level = logger.level
    handler.addFilter(lambda record: not any(getattr(each, "is_plain", False) for each in record.args or ()))
    handler.addFilter(lambda record: not getattr(record, "names_parameters", False))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def duration(seconds: float) -> str:
    """Write a duration for people.

    >>> duration(7.2), duration(431), duration(7500)
    ('7 s', '7 min 11 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
