"""Selection by the leave-one-out log-loss of kernel logistic regression, which one factorisation approximates.

C is searched in decades, in units of one over the kernel's mean variance; gamma on the lattice of
`polymargin.selection.lattice`. Coarsely with a sample of the rows first, then, with more of them, from the best in half
decades and at finer gammas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from polymargin._progress import Count
from polymargin.kernels import Kernel
from polymargin.selection.lattice import COARSE, Choice, climb
from polymargin.solvers.kernel_logistic import Solution, fit_kernel_logistic, leave_one_out_logits

Array = NDArray[Any]

__all__ = ["KERNELS", "SAMPLED", "Part", "choose", "log_loss"]

#: How many rows the coarse search and the fine search look at.
SAMPLED = (150, 500)
#: The fine search's step on the lattice of gamma.
_FINE_STEP = 2
#: These powers of ten are tried for C, and further ones, to the limits, where the best is on the edge. (The loss may
#: have several minima, one of them where the rows are separated.)
_DECADES, _LIMITS = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0), (-4.0, 6.0)
#: A step beyond the range of gamma must lower the loss by this share.
_LEAST_GAIN = 1e-3
#: Tolerance and the most steps of a fit whose parameters may not be the ones.
_TOL, _MAX_ITER = 1e-4, 60
#: How many kernels are tried if the range does not move.
KERNELS = len(COARSE) + 3


@dataclass(frozen=True)
class Part:
    """Some of the rows: their base matrix (m, m), class probabilities (m, K) and weights (m,)."""

    base: Array
    targets: Array
    weights: Array


def log_loss(gram: Array, part: Part, C: float, solution: Solution) -> float:
    """Return the mean leave-one-out log-loss."""
    logits = leave_one_out_logits(gram, part.targets, part.weights, C, solution)
    losses = -np.einsum("ik,ik->i", part.targets, log_softmax(logits, axis=1))
    return float(part.weights @ losses / part.weights.sum())


def choose(
    kernel: Kernel,
    few: Part,
    more: Part,
    *,
    gammas: Callable[[int], float] | float,
    C: float | None,
    count: Count | None = None,
) -> Choice:
    """Choose gamma and C of least leave-one-out log-loss.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    few, more : Part
        The rows for the coarse and for the fine search, often the same.
    gammas : float or callable int -> float
        The fixed gamma, or the lattice of values to search.
    C : float or None
        The fixed C, or None to choose it.
    count : Count or None
        Counts the kernels tried; it expects `KERNELS`, or two where gamma is given.

    Returns
    -------
    Choice
        Its ridge is 1/C, its score minus the loss.
    """
    count = Count(None, "") if count is None else count
    if not callable(gammas):
        fixed = gammas
        rough = _Search(kernel, few, C, step=1.0).best(fixed, _DECADES, count)
        return _Search(kernel, more, C, step=0.5).best(fixed, [rough.decade], count).choice

    def least_gain(score: float) -> float:
        return _LEAST_GAIN * abs(score)

    decades: Sequence[float] = _DECADES
    found: dict[int, _Found] = {}

    def attempt(search: _Search, point: int) -> Choice:
        found[point] = search.best(gammas(point), decades, count)
        return found[point].choice

    coarse, fine = _Search(kernel, few, C, step=1.0), _Search(kernel, more, C, step=0.5)
    best = climb(lambda point: attempt(coarse, point), {}, COARSE, COARSE.step, least_gain, count)
    decades = [found[best].decade]
    tried: dict[int, Choice] = {}
    points = (best, best - _FINE_STEP, best + _FINE_STEP)
    best = climb(lambda point: attempt(fine, point), tried, points, _FINE_STEP, least_gain, count)
    return tried[best]


@dataclass(frozen=True)
class _Found:
    """The best C for a kernel, and its power of ten in units of the kernel's scale."""

    choice: Choice
    decade: float


@dataclass
class _Search:
    """The search for C on some rows; every fit starts from the one before."""

    kernel: Kernel
    part: Part
    C: float | None
    step: float
    _start: Solution | None = field(default=None, init=False)
    _start_C: float = field(default=1.0, init=False)

    def best(self, gamma: float, decades: Sequence[float], count: Count) -> _Found:
        """Return the best C for a gamma: of these powers of ten, and on from there as long as the loss falls."""
        gram = self.kernel.apply(self.part.base, gamma)
        self._start = None
        if self.C is not None:
            found = _Found(Choice(gamma, 1.0 / self.C, -self._loss(gram, self.C)), decades[0])
        else:
            found = self._walk(gram, gamma, decades)
        count.advance()
        return found

    def _walk(self, gram: Array, gamma: float, decades: Sequence[float]) -> _Found:
        unit = 1.0 / _variance(gram, self.part.weights)
        losses: dict[float, float] = {}

        def loss(decade: float) -> float:
            if decade not in losses:
                losses[decade] = self._loss(gram, unit * 10.0**decade)
            return losses[decade]

        best = min(decades, key=loss)
        for direction in (self.step, -self.step):
            while _LIMITS[0] <= best + direction <= _LIMITS[1] and loss(best + direction) < loss(best):
                best += direction
        return _Found(Choice(gamma, 1.0 / (unit * 10.0**best), -loss(best)), best)

    def _loss(self, gram: Array, C: float) -> float:
        start = None if self._start is None else self._start.scaled(C / self._start_C)
        try:
            solution = fit_kernel_logistic(
                gram, self.part.targets, self.part.weights, C, tol=_TOL, max_iter=_MAX_ITER, start=start
            )
            loss = log_loss(gram, self.part, C, solution)
        except np.linalg.LinAlgError:  # rounding makes the matrix indefinite: C is too large for it
            return np.inf
        self._start, self._start_C = solution, C
        return loss if np.isfinite(loss) else np.inf


def _variance(gram: Array, weights: Array) -> float:
    """Return the mean squared distance of the rows from their mean in the kernel's space, 1 if there is none."""
    shares = weights / weights.sum()
    variance = float(shares @ np.diagonal(gram) - shares @ gram @ shares)
    return variance if variance > 0.0 else 1.0
