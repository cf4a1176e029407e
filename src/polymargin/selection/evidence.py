"""Selection by the evidence: levels two and three of Bayesian inference for LS-SVMs.

Van Gestel et al. 2002, §2.2 and §4. With A the centred Gram matrix (`polymargin.solvers.centring`), λᵢ its
N − 1 eigenvalues apart from the bias direction, t the centred targets and the ridge ε = 1/C = μ/ζ:

- level two minimises  Σ log(λᵢ + ε) + (N − 1) log tᵀ(A + ε)⁻¹t  over ε, and then μ = (N − 1) / tᵀ(A + ε)⁻¹t,
  ζ = μ/ε;
- level three compares kernels by  log p(D|H) = ½[(N − 1) log ζ − Σ log(1 + λᵢ/ε) − log(γ_eff − 1) − log(N − γ_eff)],
  where γ_eff = 1 + Σ λᵢ/(λᵢ + ε) counts the effective parameters.

N is the sum of the row weights. One tridiagonal reduction per kernel and group of rows serves every ε and every
dichotomy.

One thing is not as in that paper: ε is not less than a noise floor, by default a quarter of the mean eigenvalue. Where
the minimum of level two lies above it, the machine is that of the paper. On data that are separable or nearly so, the
minimum lies below, often at zero; there the floor is binding, C is the floor's, and the gamma that level three chooses
is the best one for it. This is common. Pass ``noise_floor=0`` for the paper's own choice
(``LSSVMClassifier(selection="evidence", noise_floor=0)``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from polymargin._progress import Count
from polymargin.selection.lattice import N_KERNELS, ChosenParameters, Pool, log_grid, rounded, search
from polymargin.solvers.centring import Centring
from polymargin.solvers.tridiagonal import Tridiagonal, tridiagonalise

Array = NDArray[Any]

__all__ = ["N_KERNELS", "LevelTwo", "best_ridge", "choose", "log_evidence"]

#: The ridge is searched between these multiples of the mean eigenvalue, three values a decade, then polished. The
#: multiple is the variance of the noise over that of z before any data. Labels ±1 that no two rows contradict would
#: be explained without any noise, by a machine that interpolates with a narrow kernel and is never in doubt; so the
#: noise is taken to be at least a quarter of the signal. (Accuracy and log-loss on the ten datasets of Van Gestel et
#: al. 2002 are flat from 0.1 to 0.3 and worse below.) The lower end is the default of ``noise_floor``.
RIDGE_RANGE = (0.25, 1e6)
#: The least noise floor: below, rounding errors dominate.
_LEAST_FLOOR = 1e-9
#: The ridge is also at least this multiple of the trace before centring: some tens of rounding errors of the centred
#: matrix, whose eigenvalues are nothing else where all rows are equal. (It exceeds the least floor from 10⁵ rows on.)
ROUNDING = 1e-14
#: log μ and log ζ have posterior variances 2/(γ_eff − 1) and 2/(N − γ_eff) (level three). Where less than one
#: parameter, or less than one residual, is left, that approximation fails, and rewards a useless kernel without
#: bound; both counts are therefore taken to be at least one.
FEWEST_PARAMETERS = 1.0


class LevelTwo:
    """The level-two evidence of one kernel, for all the dichotomies of one group of rows."""

    def __init__(self, centring: Centring, form: Tridiagonal):
        self.centring, self.form = centring, form
        self._grid_costs: dict[tuple[float, float], Array] = {}

    @classmethod
    def of(cls, A: Array, centring: Centring, Y: Array) -> LevelTwo:
        """Reduce the centred matrix A (overwritten) with the targets Y, shape (n, L)."""
        targets, _ = centring.targets(Y)
        return cls(centring, tridiagonalise(A, targets))

    def _spectral_sums(self, ridge: float) -> tuple[float, float]:
        """Return Σ log(λᵢ + ε) and Σ 1/(λᵢ + ε) over the N − 1 directions apart from the bias.

        Weights that sum to more than the number of rows stand for repeated rows, whose eigenvalues are 0.
        """
        shifted = self.form.eigenvalues + ridge
        shifted_bias = self.centring.bias_eigenvalue + ridge
        repeated = self.centring.total - shifted.size
        logs = np.log(shifted).sum() - np.log(shifted_bias) + repeated * np.log(ridge)
        inverses = (1.0 / shifted).sum() - 1.0 / shifted_bias + repeated / ridge
        return float(logs), float(inverses)

    def fit(self, ridge: float, columns: Array | slice = slice(None)) -> Array:
        """Return tᵀ(A + ε)⁻¹t = (N − 1)/μ of each of the columns."""
        return np.einsum("nl,nl->l", self.form.columns[:, columns], self.form.solve(ridge, columns))

    def cost(self, ridge: float, columns: Array | slice = slice(None)) -> tuple[Array, Array]:
        """Return the level-two cost and its derivative in log ε, for each of the columns."""
        logs, inverses = self._spectral_sums(ridge)
        solution = self.form.solve(ridge, columns)
        fit = np.einsum("nl,nl->l", self.form.columns[:, columns], solution)
        norm = np.einsum("nl,nl->l", solution, solution)
        degrees = self.centring.total - 1.0
        return logs + degrees * np.log(fit), ridge * (inverses - degrees * norm / fit)

    def grid_costs(self, grid: Array) -> Array:
        """Return the costs of all columns on a grid of logarithms of ridges, shape (grid, L), computed once."""
        key = float(grid[0]), float(grid[-1])
        if key not in self._grid_costs:
            self._grid_costs[key] = np.stack([self.cost(float(np.exp(point)))[0] for point in grid])
        return self._grid_costs[key]

    def log_evidence(self, ridge: float, columns: Array | slice = slice(None)) -> Array:
        """Return the level-three log-evidence of each column, up to a constant in N."""
        logs, inverses = self._spectral_sums(ridge)
        return log_evidence(self.centring.total, ridge, self.fit(ridge, columns), logs, inverses)


def log_evidence(total: float, ridge: Any, fit: Array, logs: Any, inverses: Any) -> Array:
    """Return the level-three log-evidence from tᵀ(A + ε)⁻¹t, Σ log(λᵢ + ε) and Σ 1/(λᵢ + ε)."""
    degrees = total - 1.0
    zeta = degrees / fit / ridge
    residual = np.maximum(ridge * inverses, FEWEST_PARAMETERS)  # N − γ_eff
    parameters = np.maximum(degrees - ridge * inverses, FEWEST_PARAMETERS)  # γ_eff − 1
    volume = logs - degrees * np.log(ridge)  # Σ log(1 + λᵢ/ε)
    return 0.5 * (degrees * np.log(zeta) - volume - np.log(parameters) - np.log(residual))


#: Some columns of some groups that share their parameters: (level two, columns) pairs.
Members = Sequence[tuple[LevelTwo, Array]]


def log_ridge_grid(scale: float, noise_floor: float | None = None, trace: float = 0.0) -> Array:
    """Return the logarithms of the ridges that are tried first, for kernels of this mean eigenvalue.

    They are at least a rounding error of ``trace``, the trace of the kernel matrix before centring.

    Examples
    --------
    >>> np.exp(log_ridge_grid(2.0)[[0, -1]])
    array([5.e-01, 2.e+06])
    >>> np.exp(log_ridge_grid(2.0, noise_floor=0.01)[[0]])
    array([0.02])
    """
    least = max(least_ridge(scale, noise_floor), ROUNDING * trace)
    return log_grid(float(np.log(least)), float(np.log(max(RIDGE_RANGE[1] * scale, least))))


def least_ridge(scale: float, noise_floor: float | None = None) -> float:
    """Return the least ridge for kernels of this mean eigenvalue.

    Examples
    --------
    >>> least_ridge(2.0), least_ridge(2.0, noise_floor=0)
    (0.5, 2e-09)
    """
    floor = RIDGE_RANGE[0] if noise_floor is None else check_noise_floor(noise_floor)
    return max(floor, _LEAST_FLOOR) * scale


def check_noise_floor(noise_floor: Any) -> float:
    """Return a noise floor, or raise ValueError."""
    number = isinstance(noise_floor, Real) and not isinstance(noise_floor, bool)
    if not number or not 0.0 <= float(noise_floor) < RIDGE_RANGE[1]:
        raise ValueError(
            f"noise_floor must be a number from 0 to less than {RIDGE_RANGE[1]:g}, not {noise_floor!r}"
        )
    return float(noise_floor)


def best_ridge(members: Members, noise_floor: float | None = None) -> float:
    """Return the ε that minimises the summed level-two cost: the best of a grid, polished.

    Parameters
    ----------
    members : list of (LevelTwo, columns)
        The terms of the sum.
    noise_floor : float or None
        The least ε in multiples of the mean eigenvalue, which is the variance of the noise over that of the signal; 0
        for none, and less than 1e6, the upper end of `RIDGE_RANGE`. None is its lower end.

    Returns
    -------
    float
    """

    def cost(log_ridge: float) -> tuple[float, float]:
        parts = [level.cost(float(np.exp(log_ridge)), columns) for level, columns in members]
        return sum(float(c.sum()) for c, _ in parts), sum(float(s.sum()) for _, s in parts)

    scale = float(np.mean([level.centring.bias_eigenvalue for level, _ in members]))
    grid = log_ridge_grid(scale, noise_floor, max(level.centring.trace for level, _ in members))
    costs = sum(level.grid_costs(grid)[:, columns].sum(axis=1) for level, columns in members)
    best = int(np.argmin(costs))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    # The derivative finds the minimum to machine precision, which the cost itself cannot.
    if cost(left)[1] < 0.0 < cost(right)[1]:
        return float(np.exp(brentq(lambda point: cost(point)[1], left, right, xtol=1e-13)))
    return float(np.exp(grid[best]))


#: Gives the level-two evidence of a group of rows for a value of gamma: of all its rows, or, if the last argument
#: is true and the group is large, of a sample of them.
Profile = Callable[[int, float, bool], LevelTwo]
#: A step beyond the range must gain this many nats.
LEAST_GAIN = 0.01


def choose(
    profile: Profile,
    pools: Sequence[Pool],
    *,
    gammas: Callable[[int], float] | float,
    ridge: float | None,
    count: Count | None = None,
    noise_floor: float | None = None,
) -> list[ChosenParameters]:
    """Choose gamma by level three and the ridge by level two, for every pool of columns.

    Parameters
    ----------
    profile : callable (group, gamma, sample) -> LevelTwo
        The evidence of one group of rows. It is called repeatedly with the same arguments and should be cached.
    pools : list of pools
        Each pool gets parameters of its own.
    gammas : float or callable int -> float
        The fixed gamma, or the lattice of values to search.
    ridge : float or None
        The fixed ridge 1/C, or None to infer it.
    count : Count or None
        Counts the kernels tried; it expects `N_KERNELS` for every pool, or one if gamma is fixed.
    noise_floor : float or None
        See `best_ridge`; a fixed ridge may be below it.

    Returns
    -------
    list of ChosenParameters
        One for every pool.
    """
    count = Count(None, "") if count is None else count

    def choice(pool: Pool, gamma: float, sample: bool) -> ChosenParameters:
        members = []
        for group, columns in pool:
            members.append((profile(group, gamma, sample), columns))
            count.advance(1.0 / len(pool))
        epsilon = best_ridge(members, noise_floor) if ridge is None else ridge
        score = sum(float(level.log_evidence(epsilon, columns).sum()) for level, columns in members)
        return ChosenParameters(gamma, epsilon, rounded(score))

    if not callable(gammas):
        return [choice(pool, gammas, False) for pool in pools]
    lattice = gammas

    def best(pool: Pool) -> ChosenParameters:
        return search(
            lambda point, sample: choice(pool, lattice(point), sample),
            least_gain=lambda score: LEAST_GAIN,
            count=count,
        )

    return [best(pool) for pool in pools]
