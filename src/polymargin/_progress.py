"""Progress of a long fit: bars on a terminal, a line in the log now and then elsewhere, nothing unless asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

__all__ = ["Count", "Progress", "Step", "notes", "shown"]

logger = logging.getLogger("polymargin")

#: Where there is no terminal, a line of the log at most so often.
_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Step:
    """Where a fit stands.

    Attributes
    ----------
    doing : str
        What is being done.
    done : float
        How much of it; parts of a unit count too.
    total : int or None
        How much there is, as far as is known by now; None if it is not.
    unit : str
        What is counted.

    Examples
    --------
    >>> print(Step("choosing C and gamma", 12.7, 42, "grid points"))
    choosing C and gamma: 12 of 42 grid points
    >>> print(Step("growing the codebook", 3, unit="machines"), Step("compiling"), sep="; ")
    growing the codebook: 3 machines; compiling
    """

    doing: str
    done: float = 0.0
    total: int | None = None
    unit: str = ""

    def __str__(self) -> str:
        count = f"{int(self.done)}" if self.total is None else f"{int(self.done)} of {self.total}"
        return (
            self.doing
            if self.total is None and not self.unit
            else f"{self.doing}: {count} {self.unit}".rstrip()
        )


#: Callback with every step of a fit, called by one thread at a time for each count.
Progress = Callable[[Step], None]


def notes(progress: Progress | None) -> Progress | None:
    """Return a callback that passes on only what is not counted."""
    return progress and (lambda step: progress(step) if step.total is None and not step.unit else None)


class Count:
    """Counts towards a total that may grow, and reports every step.

    Examples
    --------
    >>> machines = Count(print, "machines")
    >>> machines.expect(2)
    machines: 0 of 2
    >>> machines.advance()
    machines: 1 of 2
    """

    def __init__(self, progress: Progress | None, doing: str, unit: str = "", total: int | None = 0):
        self.progress, self.doing, self.unit, self.total = progress, doing, unit, total
        self.done = 0.0
        self._lock = Lock()

    def expect(self, more: int) -> None:
        """Raise the total."""
        self.advance(0.0, more)

    def advance(self, amount: float = 1.0, more: int = 0) -> None:
        """Count what is done; amounts like thirds add up to wholes. Threads may count together."""
        with self._lock:
            self.done += amount
            if more:
                self.total = (self.total or 0) + more
            if self.progress is not None:
                self.progress(Step(self.doing, round(self.done, 6), self.total, self.unit))


@contextmanager
def shown(verbose: Any) -> Iterator[Progress | None]:
    """Give the callback that shows progress on stderr, or None if nothing is to be shown.

    Without rich, which comes with the extra "cli", and where stderr is no terminal, progress is logged.
    """
    if not verbose:
        yield None
        return
    try:
        from rich import progress as rich_progress
    except ImportError:
        yield _Lines()
        return
    console = _console()
    if not (console.is_terminal or console.is_jupyter):
        yield _Lines()
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        # No estimate of the time left: a fit has steps of different kinds, and only the present one is counted.
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


class _Bars:
    """One bar for everything that is done; what has no total is shown only while nothing else is reported."""

    def __init__(self, bars: Any):
        self.bars = bars
        self.tasks: dict[str, Any] = {}
        self.open: set[str] = set()

    def __call__(self, step: Step) -> None:
        new = step.doing not in self.tasks
        if new:
            self.tasks[step.doing] = self.bars.add_task(str(step), total=step.total)
        for doing in self.open - {step.doing}:
            self.bars.update(self.tasks[doing], visible=False)
        self.open = {step.doing} if step.total is None else set()
        self.bars.update(
            self.tasks[step.doing],
            description=str(step),
            completed=step.done,
            total=step.total,
            visible=True,
            refresh=new,
        )


class _Lines:
    """Logs a line now and then, and at once what has neither count nor end."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, step: Step) -> None:
        now = time.monotonic()
        if now - self.last < _SECONDS_BETWEEN_LINES and str(step) != step.doing:
            return
        self.last = now
        logger.info("%s", step)
