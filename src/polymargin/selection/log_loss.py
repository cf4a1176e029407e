"""Selection by the leave-one-out log-loss of kernel logistic regression, approximated from one factorisation.

C is searched in decades, in units of one over the kernel's mean variance and the mean weight of a row; gamma on the
lattice of `polymargin.selection.lattice`. Coarsely with a sample of the rows first, then, with more of them, from the
best in half decades and at finer gammas.

The loss of few rows is a noisy estimate, and its minimum over many C and gamma is lower than the loss on new rows.
So the C chosen is the smallest one whose loss is within one standard error of the least (Breiman et al. 1984, §3.4.3),
where the standard error is that of the mean difference, row by row, or group by group. Where nothing can be learned
this tends to the smallest C of all, and the probabilities to the class frequencies.
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
from polymargin.selection.lattice import COARSE, ChosenParameters, climb
from polymargin.solvers.kernel_logistic import LogisticSolution, Observations, fit_and_leave_one_out

Array = NDArray[Any]

__all__ = ["N_KERNELS", "SAMPLED", "SampledRows", "choose", "log_losses"]

#: The number of distinct rows used by the coarse and by the fine search.
SAMPLED = (150, 500)
#: The fine search's step on the lattice of gamma.
_FINE_STEP = 2
#: These powers of ten are tried for C with the first gamma, and further ones, to the limits, where the best is on the
#: edge. (The loss may have several minima, one of them where the rows are separated.) The next gamma begins at the best
#: C of the one before.
_DECADES, _LIMITS = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0), (-4.0, 6.0)
#: The steps of the coarse and of the fine search for C, in decades.
_COARSE_DECADES, _FINE_DECADES = 1.0, 0.5
#: A C counts as good as the best if its loss is at most this many standard errors larger.
_STANDARD_ERRORS = 1.0
#: A step beyond the range of gamma must lower the loss by this share.
_LEAST_GAIN = 1e-3
#: Tolerance and the most steps of a fit in the search.
_TOL, _MAX_ITER = 1e-3, 60
#: The number of kernels tried if the range is not extended.
N_KERNELS = len(COARSE) + 3


@dataclass(frozen=True)
class SampledRows:
    """Some of the rows: the base matrix (m, m) of the different ones, and the rows behind them."""

    base: Array
    rows: Observations


def log_losses(logits: Array, rows: Observations) -> Array:
    """Return the log-loss of every row, shape (N,)."""
    return -np.einsum("ik,ik->i", rows.targets, log_softmax(logits, axis=1))


def choose(
    kernel: Kernel,
    small: SampledRows,
    large: SampledRows,
    *,
    gammas: Callable[[int], float] | float,
    C: float | None,
    count: Count | None = None,
) -> ChosenParameters:
    """Choose gamma of least leave-one-out log-loss and the smallest C that is as good as the best.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    small, large : SampledRows
        The rows for the coarse and for the fine search, often the same.
    gammas : float or callable int -> float
        The fixed gamma, or the lattice of values to search.
    C : float or None
        The fixed C, or None to choose it.
    count : Count or None
        Counts the kernels tried; it expects `N_KERNELS`, or two where gamma is given.

    Returns
    -------
    ChosenParameters
        Its ridge is 1/C, its score minus the loss.
    """
    count = Count(None, "") if count is None else count
    coarse = _Search(kernel, small, C, _COARSE_DECADES, _DECADES)
    known = coarse.paths if large.rows is small.rows else {}
    if not callable(gammas):
        coarse.best(gammas, count)
        fine = _Search(kernel, large, C, _FINE_DECADES, (coarse.decade,), known)
        fine.best(gammas, count)
        return fine.smallest(gammas)

    def least_gain(score: float) -> float:
        return _LEAST_GAIN * abs(score)

    decade: dict[int, float] = {}

    def attempt(search: _Search, point: int) -> ChosenParameters:
        choice = search.best(gammas(point), count)
        decade[point] = search.decade
        return choice

    best = climb(lambda point: attempt(coarse, point), {}, COARSE, COARSE.step, least_gain, count)
    fine = _Search(kernel, large, C, _FINE_DECADES, (decade[best],), known)
    points = (best, best - _FINE_STEP, best + _FINE_STEP)
    best = climb(lambda point: attempt(fine, point), {}, points, _FINE_STEP, least_gain, count)
    return fine.smallest(gammas(best))


@dataclass
class _Search:
    """The search for C on some rows.

    Attributes
    ----------
    decades : sequence of float
        The powers of ten that are tried first with the next gamma, in units of the kernel's scale: at first those that
        were given, then the best for the last gamma and its neighbours.
    decade : float
        The best for the last gamma.
    paths : dict of float to _Path
        The losses computed so far, by gamma.
    """

    kernel: Kernel
    sample: SampledRows
    C: float | None
    step: float
    decades: Sequence[float]
    paths: dict[float, _Path] = field(default_factory=dict)
    decade: float = field(default=0.0, init=False)

    def best(self, gamma: float, count: Count) -> ChosenParameters:
        """Return the best C for a gamma: of these powers of ten, and on from there as long as the loss falls."""
        path = self._path(gamma)
        count.advance()
        if self.C is not None:
            return ChosenParameters(gamma, 1.0 / self.C, -path.loss(float(np.log10(self.C / path.unit))))
        best = min(self.decades, key=path.loss)
        for direction in (self.step, -self.step):
            while _LIMITS[0] <= best + direction <= _LIMITS[1] and path.loss(best + direction) < path.loss(
                best
            ):
                best += direction
        self.decade = best
        beside = (best - self.step, best, best + self.step)
        self.decades = [decade for decade in beside if _LIMITS[0] <= decade <= _LIMITS[1]]
        return ChosenParameters(gamma, 1.0 / path.C(best), -path.loss(best))

    def _path(self, gamma: float) -> _Path:
        if gamma not in self.paths:
            before = next(reversed(self.paths.values()), None)
            self.paths[gamma] = _Path(self.kernel.apply(self.sample.base, gamma), self.sample.rows, before)
        return self.paths[gamma]

    def smallest(self, gamma: float) -> ChosenParameters:
        """Return the smallest C whose loss is as good as that of the best, for a gamma that was tried."""
        if self.C is not None:
            return ChosenParameters(gamma, 1.0 / self.C, 0.0)
        path = self.paths[gamma]
        chosen = best = min(path.losses, key=path.loss)  # of all that were tried
        while chosen - self.step >= _LIMITS[0] and path.as_good(chosen - self.step, best):
            chosen -= self.step
        return ChosenParameters(gamma, 1.0 / path.C(chosen), -path.loss(chosen))


class _Path:
    """The losses of one kernel along C; every fit starts from those before, at first from another kernel's."""

    def __init__(self, gram: Array, rows: Observations, before: _Path | None):
        self.gram, self.rows, self._before = gram, rows, before
        self._weights = weights = np.bincount(rows.cell, rows.weights)
        # One over the mean weight of an observation: copies of rows in groups change nothing.
        self.unit = rows.n_independent / (weights.sum() * _variance(gram, weights))
        #: The losses of the rows by the power of ten; None where rounding makes the matrix indefinite.
        self.losses: dict[float, Array | None] = {}
        self._solutions: dict[float, LogisticSolution] = {}

    def C(self, decade: float) -> float:
        """Return C at a power of ten."""
        return float(self.unit * 10.0**decade)

    def loss(self, decade: float) -> float:
        """Return the mean loss, infinite where C is too large for the digits of the matrix."""
        if decade not in self.losses:
            self.losses[decade] = self._row_losses(decade)
        losses = self.losses[decade]
        return np.inf if losses is None else float(np.average(losses, weights=self.rows.weights))

    def as_good(self, decade: float, best: float) -> bool:
        """Return whether the loss exceeds that of the best by at most one standard error."""
        self.loss(decade)
        losses, least = self.losses[decade], self.losses[best]
        if losses is None or least is None:
            return False
        shares = self.rows.weights / self.rows.weights.sum()
        excess = losses - least
        mean = float(shares @ excess)
        deviations = shares * (excess - mean)
        if self.rows.groups is not None:
            deviations = np.bincount(self.rows.groups, deviations)
        return mean <= _STANDARD_ERRORS * float(np.linalg.norm(deviations))

    def _start(self, decade: float) -> LogisticSolution | None:
        """Return a warm start: extrapolated from the two nearest C of this kernel, or that of the previous kernel."""
        own = sorted(self._solutions, key=lambda other: abs(other - decade))
        if len(own) > 1:
            near, far = (self._solutions[other].scaled(10.0 ** (decade - other)) for other in own[:2])
            return near.extrapolated(far, (decade - own[0]) / (own[0] - own[1]))
        if own:
            return self._solutions[own[0]].scaled(10.0 ** (decade - own[0]))
        if self._before is None or not self._before._solutions:
            return None
        others = self._before._solutions
        near_by = min(others, key=lambda other: abs(other - decade))
        start = others[near_by].scaled(10.0 ** (decade - near_by))
        return start.transferred(self.gram, self._weights, self.C(decade))

    def _row_losses(self, decade: float) -> Array | None:
        C = self.C(decade)
        try:
            solution, logits = fit_and_leave_one_out(
                self.gram, self.rows, C, tol=_TOL, max_iter=_MAX_ITER, start=self._start(decade)
            )
        except np.linalg.LinAlgError:
            return None
        self._solutions[decade] = solution
        losses = log_losses(logits, self.rows)
        return losses if np.isfinite(losses).all() else None


def _variance(gram: Array, weights: Array) -> float:
    """Return the mean squared distance of the rows from their mean in the kernel's space, 1 if there is none."""
    shares = weights / weights.sum()
    variance = float(shares @ np.diagonal(gram) - shares @ gram @ shares)
    return variance if variance > 0.0 else 1.0
