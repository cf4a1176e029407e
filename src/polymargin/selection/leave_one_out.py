"""Selection by leave-one-out errors, exact and free of refits (Shim, Bae and Hwang 2008, §4).

With A the centred Gram matrix (`polymargin.solvers.centring`) and P the inverse of A + ε without the bias direction, a
machine's residual at row i is ε ãᵢ, ã = Pt, and its residual had it been trained without that row is ãᵢ/Pᵢᵢ. There
are two criteria:

- ``"loo"``, PRESS: the sum of the squared leave-one-out residuals over all dichotomies and their rows;
- ``"gcv"``, generalised cross-validation: the squared residuals over the square of the mean 1 − leverage, eq. (4.5). In
  one-vs-all coding the paper counts, of every row, the column of its own class only; so do we.

The search is coarse first, on small samples of all groups of rows at once: one batch of eigendecompositions for each
gamma serves every ridge ε = 1/C (`Samples`). With the best ridge, PRESS falls and then rises along gamma, or is flat
where a kernel is so wide that it is as good as linear: it is enough to have the least value between two others, and the
minimum of the parabola through the three. Then a few steps down the exact gradient, which one Cholesky factor gives
(`polymargin.selection.press`), on larger samples of the groups that matter; on all rows if that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count
from polymargin._threads import in_threads
from polymargin.kernels import Kernel
from polymargin.selection.lattice import Choice, Pool, climb, rounded
from polymargin.selection.press import press, press_of_features
from polymargin.selection.samples import RIDGE_LIMITS, Criterion, Part, Samples
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]

__all__ = ["Group", "Polish", "Start", "choose", "search"]

#: Whether the search ends with steps down the gradient, and whether these look at all rows, or at some where there are
#: many.
Polish = Literal["all", "some"] | None

#: The least ridge is also this times the square of the weight of the rows: below, rounding decides.
_ROUNDING = 1e-14
#: The coarse search samples between so many rows of every group, and about as many as make for so many operations.
_SAMPLED_ROWS, _SAMPLED_OPERATIONS = (40, 200), 8e6
#: There are no further steps for "gcv", so it looks at more rows at once.
_GCV_ROWS, _GCV_OPERATIONS = (40, 700), 3e8
#: Of pools with more groups than this, so many are searched.
_GROUPS = 30
#: gamma is tried at these points of the lattice unit · 2^(k/2), then by the same step beyond the best one.
COARSE: dict[Criterion, range] = {"loo": range(-4, 3, 6), "gcv": range(-16, 9, 6)}
#: Another step beyond must lower the criterion by this share.
_LEAST_GAIN = 1e-3
#: Steps down the gradient of the logarithm of PRESS in (log gamma, log ε): how many at most, the longest in each, and
#: the gain below which none is taken; the least curvature in log gamma to begin with, and the least and largest in
#: log ε.
_STEPS, _LONGEST, _ENOUGH = 5, (0.5, 2.0), 1e-3
_CURVATURE, _CURVATURES = 0.1, (0.003, 1.0)
#: They look at the groups that carry this share of the criterion, and at so many of their rows that a step takes this
#: many operations (a group of m rows takes m³, one with D features mD²/2).
_SHARE, _OPERATIONS = 0.95, 1e8
#: Steps on all rows go on for longer, and to a smaller gain.
_STEPS_ON_ALL, _ENOUGH_ON_ALL = 20, 1e-5
#: More operations than all rows take.
_UNLIMITED = 1e30


class Group(Protocol):
    """Rows that some columns of the codebook share."""

    @property
    def kernel(self) -> Kernel:
        """The kernel."""

    @property
    def total(self) -> float:
        """The weight of all rows."""

    def samples_features(self, size: int) -> bool:
        """Tell whether a sample of so many rows may come with features in place of the base matrix."""

    def few(self, size: int, by_features: bool = False) -> Part:
        """Return a sample of about so many rows, all of them if there are no more."""

    def affordable(self, operations: float) -> Part:
        """Return as many rows as such a number of operations factor, with their features where these are fewer."""


@dataclass(frozen=True)
class Start:
    """What the coarse search found for a pool of columns: where the polish starts, and what it may expect there.

    Attributes
    ----------
    choice : Choice
        The best parameters.
    curvatures : tuple of two floats
        The second derivatives of the logarithm of the criterion in log gamma and log ε, roughly.
    errors : ndarray of float
        The criterion of each of the pool's groups, per unit of the rows' weight.
    """

    choice: Choice
    curvatures: tuple[float, float]
    errors: Array


def choose(
    groups: Sequence[Group],
    pools: Sequence[Pool],
    *,
    criterion: Criterion,
    gammas: Callable[[int], float] | float,
    ridge: float | None,
    starts: Sequence[Start] | None = None,
    polish: Polish = "some",
    count: Count | None = None,
) -> list[Choice]:
    """Choose gamma and the ridge of least criterion, for every pool of columns.

    Parameters
    ----------
    groups : sequence of Group
        The groups of rows.
    pools : list of pools
        Each pool gets parameters of its own.
    criterion : {"loo", "gcv"}
        What is minimised.
    gammas : float or callable int -> float
        The fixed gamma, or the lattice of values to search.
    ridge : float or None
        The fixed ridge 1/C, or None to choose it.
    starts : sequence of Start, or None
        What `search` has found; None has it done here.
    polish : {"some", "all", None}
        Whether to go on from there by the gradient, and at how many rows to look. (There are no such steps for "gcv".)
    count : Count or None
        Counts the kernels tried.

    Returns
    -------
    list of Choice
        Their scores are minus the criterion, per unit of row weight and column.
    """
    count = Count(None, "") if count is None else count
    if starts is None:
        starts = search(groups, pools, criterion=criterion, gammas=gammas, ridge=ridge, count=count)
    free = (callable(gammas), ridge is None)
    if polish is None or criterion == "gcv" or not any(free):
        return [start.choice for start in starts]
    least_ridge = _least_ridge(groups)
    steps, enough = (_STEPS_ON_ALL, _ENOUGH_ON_ALL) if polish == "all" else (_STEPS, _ENOUGH)
    chosen = []
    for pool, start in zip(pools, starts, strict=True):
        seen = _telling(groups, pool, start, polish)
        exact = _Press(groups[0].kernel, seen, free, least_ridge, count)
        chosen.append(_polished(exact, start, steps, enough))
    return chosen


def search(
    groups: Sequence[Group],
    pools: Sequence[Pool],
    *,
    criterion: Criterion,
    gammas: Callable[[int], float] | float,
    ridge: float | None,
    count: Count,
) -> list[Start]:
    """Search coarsely, on samples of the rows; see `choose`."""
    least_ridge = _least_ridge(groups)
    groups, pools = _searched(groups, pools)
    operations, rows = (
        (_SAMPLED_OPERATIONS, _SAMPLED_ROWS) if criterion == "loo" else (_GCV_OPERATIONS, _GCV_ROWS)
    )
    size = int(np.clip((operations / len(groups)) ** (1 / 3), *rows))
    by_features = all(group.samples_features(size) for group in groups)
    parts = [group.few(size, by_features) for group in groups]
    samples = Samples(groups[0].kernel, parts, least_ridge)
    return [_coarse(samples, pool, criterion, gammas, ridge, count) for pool in pools]


def _searched(groups: Sequence[Group], pools: Sequence[Pool]) -> tuple[Sequence[Group], Sequence[Pool]]:
    """Return the groups that are searched, and the pools of their columns."""
    pools = [_evenly(pool) for pool in pools]
    used = np.unique([group for pool in pools for group, _ in pool])
    renumbered = [[(int(np.searchsorted(used, group)), columns) for group, columns in pool] for pool in pools]
    return [groups[group] for group in used], renumbered


def _least_ridge(groups: Sequence[Group]) -> float:
    """Return the least ridge to consider, in multiples of the mean eigenvalue."""
    return max(RIDGE_LIMITS[0], _ROUNDING * max(group.total for group in groups) ** 2)


def _evenly(pool: Pool) -> Pool:
    """Return some of the pool's groups, evenly spaced, if there are many."""
    if len(pool) <= _GROUPS:
        return pool
    return [pool[number] for number in np.linspace(0, len(pool) - 1, _GROUPS).round().astype(int)]


def _coarse(
    samples: Samples,
    pool: Pool,
    criterion: Criterion,
    gammas: Callable[[int], float] | float,
    ridge: float | None,
    count: Count,
) -> Start:
    """Return the best choice on the samples, and what the samples say about its surroundings."""
    mask = np.zeros((samples.totals.size, samples.n_columns))
    for group, columns in pool:
        mask[group, columns] = 1.0

    def attempt(gamma: float) -> Choice:
        epsilon, cost = samples.best_ridge(criterion, gamma, mask, ridge)
        count.advance(1.0)
        return Choice(gamma, epsilon, -rounded(cost))

    if not callable(gammas):
        count.expect(1)
        tried = [attempt(gammas)]
    else:
        tried = _along_gamma(attempt, criterion, gammas, count)
    best = max(tried, key=lambda choice: choice.score)
    ridges = best.ridge * np.array([1.0 / 3.0, 1.0, 3.0])
    costs = samples.costs(criterion, best.gamma, ridges)
    of_groups = np.array([[of_ridge[group, columns].sum() for group, columns in pool] for of_ridge in costs])
    bend = _bend(np.log(ridges), np.log(np.maximum(of_groups.sum(axis=1), 1e-300)))
    return Start(
        best,
        (_gamma_curvature(tried, best), float(np.clip(bend, *_CURVATURES))),
        of_groups[1] / samples.totals[[group for group, _ in pool]],
    )


def _along_gamma(
    attempt: Callable[[float], Choice], criterion: Criterion, lattice: Callable[[int], float], count: Count
) -> list[Choice]:
    """Return the choices tried, in the order of gamma: the best of them lies between others, or where it is flat."""
    points = COARSE[criterion]
    count.expect(len(points))
    tried: dict[int, Choice] = {}
    best = climb(
        lambda point: attempt(lattice(point)),
        tried,
        points,
        points.step,
        lambda score: _LEAST_GAIN * abs(score),
        count,
    )
    half = points.step // 2
    # There are no further steps for "gcv", so it looks to both sides.
    nearer = [best - half, best + half] if criterion == "gcv" else [_lowest(tried, best, points.step)]
    for point in nearer:
        if point not in tried:
            count.expect(1)
            tried[point] = attempt(lattice(point))
    return [tried[point] for point in sorted(tried)]


def _lowest(tried: dict[int, Choice], best: int, step: int) -> int:
    """Return where a parabola through the best point and its neighbours is lowest; the best where it lacks one."""
    around = [best - step, best, best + step]
    if any(point not in tried for point in around):
        return best
    below, middle, above = np.log([max(-tried[point].score, 1e-300) for point in around])
    bend = below - 2.0 * middle + above
    return best + round(0.5 * step * (below - above) / bend) if bend > 0.0 else best


def _gamma_curvature(tried: Sequence[Choice], best: Choice) -> float:
    """Return the curvature of the logarithm of the criterion in log gamma, from the best choice and its neighbours."""
    place = tried.index(best)
    if not 0 < place < len(tried) - 1:
        return _CURVATURE
    around = tried[place - 1 : place + 2]
    values = np.log([max(-choice.score, 1e-300) for choice in around])
    return float(np.clip(_bend(np.log([choice.gamma for choice in around]), values), _CURVATURE, 1.0))


def _bend(places: Array, values: Array) -> float:
    """Return the second derivative of the parabola through three points."""
    slopes = np.diff(values) / np.diff(places)
    return float(2.0 * (slopes[1] - slopes[0]) / (places[2] - places[0]))


def _telling(groups: Sequence[Group], pool: Pool, start: Start, polish: Polish) -> list[tuple[Part, Array]]:
    """Return the rows and the columns to look at: all, or as many as are affordable of the groups with large errors."""
    share = _UNLIMITED
    if polish != "all":
        pool = _evenly(pool)
        errors = start.errors * [groups[group].total for group, _ in pool]
        order = np.argsort(-errors, kind="stable")
        enough = int(np.searchsorted(np.cumsum(errors[order]), _SHARE * errors.sum())) + 1
        pool = [pool[number] for number in np.sort(order[:enough])]
        share = _OPERATIONS / len(pool)
    parts = in_threads(lambda member: groups[member[0]].affordable(share), pool)
    return [(part, columns) for part, (_, columns) in zip(parts, pool, strict=True)]


class _Press:
    """PRESS on some rows of some groups, as a function of the two parameters."""

    def __init__(
        self,
        kernel: Kernel,
        parts: Sequence[tuple[Part, Array]],
        free: tuple[bool, bool],
        least_ridge: float,
        count: Count,
    ):
        self.kernel, self.parts, self.least_ridge, self.count = kernel, parts, least_ridge, count
        self.free = np.array(free)
        self.weight = sum(float(part.weights.sum()) * columns.size for part, columns in parts)

    def evaluate(self, point: Array) -> tuple[float, Array]:
        """Return the logarithm of PRESS at (log gamma, log ε), per unit of row weight and column, and its slopes."""
        self.count.expect(1)
        gamma, ridge = (float(value) for value in np.exp(point))

        def of_part(part: tuple[Part, Array]) -> tuple[float, Array]:
            rows, columns = part
            targets, least = rows.targets[:, columns], self.least_ridge
            if isinstance(rows.base, ThinMatrix):
                of_columns, slopes = press_of_features(
                    rows.base, targets, gamma, ridge, copies=rows.copies, least_ridge=least
                )
            else:
                of_columns, slopes = press(
                    self.kernel,
                    rows.base,
                    rows.weights,
                    targets,
                    gamma,
                    ridge,
                    copies=rows.copies,
                    with_gamma=bool(self.free[0]),
                    least_ridge=least,
                )
            return float(of_columns.sum()), slopes

        try:
            values, slopes = zip(*in_threads(of_part, self.parts), strict=True)
        finally:
            self.count.advance(1.0)
        value = max(sum(values), 1e-300)
        return float(np.log(value / self.weight)), np.where(self.free, sum(slopes) / value, 0.0)


def _polished(exact: _Press, start: Start, steps: int, enough: float) -> Choice:
    """Return the choice after some quasi-Newton steps down the exact gradient of log PRESS."""
    point = np.log([start.choice.gamma, start.choice.ridge])
    try:
        value, slope = exact.evaluate(point)
    except np.linalg.LinAlgError:  # a matrix of so low a rank is best left to the samples
        return start.choice
    curvature = np.diag(start.curvatures)
    for _ in range(steps):
        step = np.where(exact.free, -np.linalg.solve(curvature, slope), 0.0)
        step /= max(1.0, float((np.abs(step) / _LONGEST).max()))
        if -(slope @ step + 0.5 * step @ curvature @ step) < enough:
            break
        try:
            new_value, new_slope = exact.evaluate(point + step)
        except np.linalg.LinAlgError:
            curvature = curvature * 4.0
            continue
        change = new_slope - slope
        if change @ step > 1e-6 * (step @ step):
            bent = curvature @ step
            curvature = (
                curvature + np.outer(change, change) / (change @ step) - np.outer(bent, bent) / (step @ bent)
            )
        elif new_value >= value:
            curvature = curvature * 4.0
        if new_value < value:
            point, value, slope = point + step, new_value, new_slope
    gamma, ridge = (float(value) for value in np.exp(point))
    return Choice(gamma, ridge, -float(np.exp(value)))
