"""The device of a fit, for solvers that can use one but know nothing of devices: `device/` is built on them.

A fit that has a device enters a block (`accelerated`); solvers that are called there ask for it (`accelerator`), and
decoders and other callers between them need not pass it on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Accelerator(Protocol):
    """What solvers ask of a device."""

    def fit_softmax(self, data: Any, start: Any, tol: float, max_iter: int, on_cpu: Callable[[], Any]) -> Any:
        """Solve a softmax problem where it is solved sooner, and on the CPU if the device has no memory for it.

        Parameters
        ----------
        data : SoftmaxData
            The problem.
        start, tol, max_iter
            As for `polymargin.solvers.softmax.fit_softmax`.
        on_cpu : callable
            Solves it on the CPU.

        Returns
        -------
        SoftmaxFit
        """


_accelerator: ContextVar[Accelerator | None] = ContextVar("accelerator", default=None)


@contextmanager
def accelerated(by: Accelerator | None) -> Iterator[None]:
    """Let solvers use a device within this block; None: the CPU alone.

    Examples
    --------
    >>> with accelerated(None):
    ...     accelerator() is None
    True
    """
    token = _accelerator.set(by)
    try:
        yield
    finally:
        _accelerator.reset(token)


def accelerator() -> Accelerator | None:
    """Return the device that solvers may use here; None: the CPU alone."""
    return _accelerator.get()
