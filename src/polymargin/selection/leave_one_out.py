"""Selection by leave-one-out errors, exact and free of refits (Shim, Bae and Hwang 2008, §4).

With A the centred Gram matrix (`polymargin.solvers.centring`) and P the inverse of A + ε without the bias direction, a
machine's residual at row i is ε ãᵢ, ã = Pt, and its residual had it been trained without that row is ãᵢ/Pᵢᵢ. There
are two criteria:

- ``"loo"``, PRESS: the sum of the squared leave-one-out residuals over all dichotomies and their rows;
- ``"gcv"``, generalised cross-validation: the squared residuals over the square of the mean 1 − leverage, eq. (4.5). In
  one-vs-all coding only the column of the row's own class is counted, as in the paper.

The search has two stages. The *lattice*: gamma on a wide lattice, for each the best ridge ε = 1/C along a path, by one
eigendecomposition (`Samples`). The *polish*: from the lowest point of the lattice, quasi-Newton steps down the exact
gradient of PRESS, from one Cholesky factorisation per step (`polymargin.selection.press`); for GCV, a finer lattice.
Each stage uses all rows if its budget allows it, else a stratified sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polymargin._processes import can_be_sent, processes
from polymargin._progress import Count
from polymargin._threads import FEW_ROWS, in_threads, n_processes
from polymargin.kernels import Kernel
from polymargin.selection.lattice import ChosenParameters, Pool
from polymargin.selection.press import press, press_of_features
from polymargin.selection.samples import EIGEN, RIDGE_LIMITS, Criterion, SampledGroup, Samples
from polymargin.selection.settings import DEFAULT, SearchSettings
from polymargin.solvers.parabola import curvature
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]

__all__ = ["Group", "choose", "share_on_lattice"]

#: The least ridge is also this multiple of the squared total weight of the rows: below, rounding errors dominate.
_ROUNDING = 1e-14
#: The operations of PRESS of m rows with its gradient by Cholesky, in multiples of m³.
_GRADIENT = 3.0
#: The polish uses the groups of rows that make up this share of the criterion on the lattice.
_CARRIED = 0.95
#: Steps of the polish in (log gamma, log ε): the longest in each, the least curvature of log PRESS in log gamma to
#: begin with, and the least and largest in log ε.
_LONGEST, _CURVATURE, _CURVATURES = (0.7, 2.0), 0.05, (0.003, 1.0)
#: The lattice is extended further only if the last extension lowered the criterion by this share.
_LEAST_GAIN = 1e-3
#: The operations of PRESS, the sum of the cubes of the rows, for which processes are worth while: they take one core a
#: tenth of a second or more, to send them to processes takes a fifth of that, and to send the matrices, once, as long.
_WORTH_SENDING = 1e9

#: The sampled rows of a group, and some of its columns.
_Part = tuple[SampledGroup, Array]
#: Returns what a function makes of every part.
_ShareOut = Callable[[Callable[[_Part], Any]], list[Any]]


class Group(Protocol):
    """Rows that some columns of the codebook share."""

    @property
    def kernel(self) -> Kernel:
        """The kernel."""

    @property
    def total(self) -> float:
        """The weight of all rows."""

    @property
    def n_different(self) -> int:
        """The number of distinct rows."""

    @property
    def n_features(self) -> int | None:
        """The dimension of the feature map, where it is used in place of the kernel matrix."""

    def sample(self, share: float, least_rows: int) -> SampledGroup:
        """Return a sample of this share of every class, or all rows, with their features if these are fewer."""


def choose(
    groups: Sequence[Group],
    pools: Sequence[Pool],
    *,
    criterion: Criterion,
    unit: float,
    gamma: float | None,
    ridge: float | None,
    unit_ridge: float = 1.0,
    settings: SearchSettings = DEFAULT,
    count: Count | None = None,
) -> list[ChosenParameters]:
    """Choose gamma and the ridge of least criterion, for every pool of columns.

    Parameters
    ----------
    groups : sequence of Group
        The groups of rows.
    pools : list of pools
        Each pool gets parameters of its own.
    criterion : {"loo", "gcv"}
        The criterion that is minimised.
    unit : float
        The natural gamma, from which octaves are counted.
    gamma, ridge : float or None
        The fixed gamma, and the fixed ridge 1/C; None to choose it.
    unit_ridge : float
        The natural ridge, from which octaves are counted: the size of the kernel's values.
    settings : SearchSettings
        Width and budget of the search.
    count : Count or None
        Counts the kernels tried.

    Returns
    -------
    list of ChosenParameters
        Their scores are minus the criterion, per unit of row weight and column.
    """
    count = Count(None, "") if count is None else count
    least_ridge = max(RIDGE_LIMITS[0], _ROUNDING * max(group.total for group in groups) ** 2)
    # Operations of the final factorisations and leave-one-out errors, roughly.
    final = sum(
        float(group.n_different) ** 3
        if group.n_features is None
        else 2.0 * group.n_different * group.n_features**2
        for group in groups
    )
    budget = settings.budget(final)
    share = share_on_lattice(groups, budget, settings)
    rows = [share * group.n_different for group in groups]
    parts = in_threads(lambda group: group.sample(share, settings.least_rows), groups, rows)
    kernel = groups[0].kernel
    grouped = criterion == "loo" and any(part.left_out is not None for part in parts)
    samples = Samples(kernel, parts, least_ridge, grouped=grouped)
    chosen = []
    for pool in pools:
        lattice = _Lattice(samples, pool, criterion, unit, ridge, count)
        best = lattice.lowest(settings) if gamma is None else lattice.attempt(gamma)
        if criterion == "loo" and (gamma is None or ridge is None):
            free = np.array([gamma is None, ridge is None])
            sampled = _polish_samples(groups, lattice, best, budget, settings)
            with _sharing(kernel, sampled) as share_out:
                log_press = partial(_log_press, kernel, sampled, free, least_ridge, count, share_out)
                best = _polished(log_press, free, best, lattice.curvatures(best), settings)
        elif gamma is None:
            best = lattice.refined(best, settings)
        # Rounded to a fraction of an octave.
        octaves = np.log2([best.gamma / unit, best.ridge / unit_ridge])
        factors = 2.0 ** (np.round(octaves * settings.per_octave) / settings.per_octave)
        chosen.append(
            ChosenParameters(
                gamma if gamma is not None else unit * float(factors[0]),
                ridge if ridge is not None else unit_ridge * float(factors[1]),
                best.score,
            )
        )
    return chosen


def share_on_lattice(groups: Sequence[Group], budget: float, settings: SearchSettings) -> float:
    """Return the share of the rows of every group for which the lattice takes this many operations, at most one.

    Parameters
    ----------
    groups : sequence of Group
        The groups of rows.
    budget : float
        The number of operations.
    settings : SearchSettings
        The lattice.

    Returns
    -------
    float
    """
    return _share_within_budget(groups, budget / (EIGEN * len(settings.octaves)))


def _share_within_budget(groups: Sequence[Group], operations: float) -> float:
    """Return the share of the rows of every group for which Σ m³ is this number of operations, at most one.

    Of groups with features the operations in feature space are counted, where these are fewer.
    """
    rows = np.array([float(group.n_different) for group in groups])
    features = np.array([np.inf if group.n_features is None else group.n_features for group in groups])
    if np.minimum(rows**3, rows * features**2).sum() <= operations:
        return 1.0
    low, high = -12.0, 0.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        m = np.exp(middle) * rows
        above = np.minimum(m**3, m * features**2).sum() > operations
        low, high = (low, middle) if above else (middle, high)
    return float(np.exp(low))


class _Lattice:
    """The criterion of one pool of columns on the lattice, with the best ridge for every gamma."""

    def __init__(
        self,
        samples: Samples,
        pool: Pool,
        criterion: Criterion,
        unit: float,
        ridge: float | None,
        count: Count,
    ):
        self.samples, self.pool, self.criterion, self.unit = samples, pool, criterion, unit
        self.ridge, self.count = ridge, count
        self.mask = np.zeros((samples.totals.size, samples.n_columns))
        for group, columns in pool:
            self.mask[group, columns] = 1.0
        self.tried: dict[int, ChosenParameters] = {}

    def attempt(self, gamma: float) -> ChosenParameters:
        """Return the best ridge for one gamma."""
        self.count.expect(1)
        ridge, cost = self.samples.best_ridge(self.criterion, gamma, self.mask, self.ridge)
        self.count.advance(1.0)
        return ChosenParameters(gamma, ridge, -cost)

    def lowest(self, settings: SearchSettings) -> ChosenParameters:
        """Return the lowest point of the lattice, which is extended where that lies on an edge."""
        octaves = list(settings.octaves)
        step = octaves[1] - octaves[0] if len(octaves) > 1 else 1
        while True:
            while octaves:
                at_once = self.samples.gammas_at_once()
                some, octaves = octaves[:at_once], octaves[at_once:]
                gammas = [self.unit * 2.0**octave for octave in some]
                self.samples.compute(self.criterion, gammas, self.ridge)
                self.tried |= {
                    octave: self.attempt(gamma) for octave, gamma in zip(some, gammas, strict=True)
                }
            known = sorted(self.tried)
            costs = np.array([-self.tried[octave].score for octave in known])
            best = int(costs.argmin())
            at_edge = best in (0, len(known) - 1) and len(known) > 1
            gained = at_edge and costs[best] < (1.0 - _LEAST_GAIN) * (costs[1] if best == 0 else costs[-2])
            if not (gained and abs(known[best]) < settings.furthest_octave):
                return self.tried[known[best]]
            octaves = [known[best] + (step if best else -step)]

    def refined(self, best: ChosenParameters, settings: SearchSettings) -> ChosenParameters:
        """Return the lowest point of a lattice of half the spacing, refined around it by repeated bisection."""
        known = np.array(sorted(self.tried), dtype=np.float64)
        between = [self.attempt(self.unit * 2.0**octave) for octave in 0.5 * (known[1:] + known[:-1])]
        best = max([best, *between], key=lambda choice: choice.score)
        step = 0.25 * float(known[1] - known[0]) if known.size > 1 else 0.0
        while step * settings.per_octave >= 1.0:
            around = [self.attempt(best.gamma * 2.0**side) for side in (-step, step)]
            best = max([best, *around], key=lambda choice: choice.score)
            step *= 0.5
        return best

    def curvatures(self, choice: ChosenParameters) -> tuple[float, float]:
        """Return the second derivatives of the logarithm of the criterion in log gamma and log ε, roughly."""
        path = self.samples.path(self.criterion, choice.gamma, self.ridge)
        of_ridge = _CURVATURES[0]
        if path.log_ridges.size > 2:
            place = int(np.abs(path.log_ridges - np.log(choice.ridge)).argmin())
            place = min(max(place, 1), path.log_ridges.size - 2)
            costs = np.einsum("rpl,pl->r", path.costs[place - 1 : place + 2], self.mask)
            if np.isfinite(costs).all():
                of_ridge = curvature(
                    path.log_ridges[place - 1 : place + 2], np.log(np.maximum(costs, 1e-300))
                )
        of_gamma = _CURVATURE
        known = sorted(self.tried)
        place = next((n for n, octave in enumerate(known) if self.tried[octave] is choice), 0)
        if 0 < place < len(known) - 1:
            around = [self.tried[octave] for octave in known[place - 1 : place + 2]]
            values = np.log([max(-each.score, 1e-300) for each in around])
            of_gamma = max(curvature(np.log([each.gamma for each in around]), values), _CURVATURE)
        return min(of_gamma, 1.0), float(np.clip(of_ridge, *_CURVATURES))


def _polish_samples(
    groups: Sequence[Group],
    lattice: _Lattice,
    best: ChosenParameters,
    budget: float,
    settings: SearchSettings,
) -> list[_Part]:
    """Return samples and columns for the polish: of the groups that make up most of the criterion."""
    pool, samples = lattice.pool, lattice.samples
    path = samples.path(lattice.criterion, best.gamma, lattice.ridge)
    costs = path.costs[int(np.abs(path.log_ridges - np.log(best.ridge)).argmin())]
    of_groups = np.array(
        [costs[group, columns].sum() / samples.totals[group] * groups[group].total for group, columns in pool]
    )
    order = np.argsort(-of_groups, kind="stable")
    enough = int(np.searchsorted(np.cumsum(of_groups[order]), _CARRIED * of_groups.sum())) + 1
    kept = [pool[number] for number in np.sort(order[:enough])]
    operations = budget / (_GRADIENT * max(settings.steps, 1))
    share = _share_within_budget([groups[group] for group, _ in kept], operations)
    rows = [share * groups[group].n_different for group, _ in kept]
    parts = in_threads(lambda member: groups[member[0]].sample(share, settings.least_rows), kept, rows)
    return [(of_group, columns) for of_group, (_, columns) in zip(parts, kept, strict=True)]


@contextmanager
def _sharing(kernel: Kernel, parts: Sequence[_Part]) -> Iterator[_ShareOut]:
    """Give what computes PRESS of every part: processes share them where that is worth while, else threads."""
    rows = [sampled.weights.size for sampled, _ in parts]
    operations = [float(size) ** 3 for size in rows]
    enough = 1 < n_processes() <= len(parts) and sum(operations) > _WORTH_SENDING and max(rows) <= FEW_ROWS
    if enough and not kernel.untrusted and can_be_sent(kernel):
        with processes() as shared:
            yield lambda function: shared.each(function, parts, operations)
    else:
        yield lambda function: in_threads(function, parts, rows)


def _log_press(
    kernel: Kernel,
    parts: Sequence[_Part],
    free: Array,
    least_ridge: float,
    count: Count,
    share_out: _ShareOut,
    point: Array,
) -> tuple[float, Array]:
    """Return the logarithm of PRESS at (log gamma, log ε), per unit of row weight and column, and its slopes.

    `parts` are some rows and columns of some groups; the slopes of parameters that are not `free` are zero.
    """
    count.expect(1)
    gamma, ridge = (float(value) for value in np.exp(point))
    of_part = partial(
        _press_of_part,
        kernel=kernel,
        gamma=gamma,
        ridge=ridge,
        with_gamma=bool(free[0]),
        least_ridge=least_ridge,
    )
    try:
        found = [each for each in share_out(of_part) if each is not None]
    finally:
        count.advance(1.0)
    if len(found) < len(parts):
        raise np.linalg.LinAlgError("the ridge is too small for some matrix")
    values, slopes = zip(*found, strict=True)
    value = max(sum(values), 1e-300)
    weight = sum(float(rows.weights.sum()) * columns.size for rows, columns in parts)
    return float(np.log(value / weight)), np.where(free, sum(slopes) / value, 0.0)


def _press_of_part(
    part: _Part, *, kernel: Kernel, gamma: float, ridge: float, with_gamma: bool, least_ridge: float
) -> tuple[float, Array] | None:
    """Return PRESS of a part and its slopes; None where the ridge is too small, an error that would end processes."""
    rows, columns = part
    targets = rows.targets[:, columns]
    try:
        if isinstance(rows.base, ThinMatrix):
            of_columns, slopes = press_of_features(
                rows.base, targets, gamma, ridge, copies=rows.copies, least_ridge=least_ridge
            )
        else:
            of_columns, slopes = press(
                kernel,
                rows.base,
                rows.weights,
                targets,
                gamma,
                ridge,
                copies=rows.copies,
                left_out=rows.left_out,
                with_gamma=with_gamma,
                least_ridge=least_ridge,
            )
    except np.linalg.LinAlgError:
        return None
    return float(of_columns.sum()), slopes


def _polished(
    log_press: Callable[[Array], tuple[float, Array]],
    free: Array,
    start: ChosenParameters,
    curvatures: tuple[float, float],
    settings: SearchSettings,
) -> ChosenParameters:
    """Return the choice after quasi-Newton steps (BFGS) down the exact gradient of log PRESS."""
    point = np.log([start.gamma, start.ridge])
    try:
        value, slope = log_press(point)
    except np.linalg.LinAlgError:  # the rank is too low: keep the choice of the lattice
        return start
    curvature = np.diag(curvatures)
    for _ in range(settings.steps):
        step = np.where(free, -np.linalg.solve(curvature, slope), 0.0)
        step /= max(1.0, float((np.abs(step) / _LONGEST).max()))
        if -(slope @ step + 0.5 * step @ curvature @ step) < settings.converged:
            break
        try:
            new_value, new_slope = log_press(point + step)
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
    return ChosenParameters(gamma, ridge, -float(np.exp(value)))
