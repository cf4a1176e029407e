"""The surface that C and gamma were chosen on, around what was chosen, to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from polymargin._threads import blas_threads_for
from polymargin.machines._gram import GroupEvidence, GroupGram, dichotomy_groups, group_grams
from polymargin.machines._parameters import criterion_of
from polymargin.machines._workspace import Workspace
from polymargin.machines.lssvm import LSSVMBank
from polymargin.selection import evidence
from polymargin.selection.leave_one_out import share_on_lattice
from polymargin.selection.samples import Samples
from polymargin.selection.settings import DEFAULT, SearchSettings
from polymargin.selection.surface import CrossValidation

Array = NDArray[Any]
Criterion = Literal["loo", "gcv", "evidence", "cv"]

__all__ = ["SelectionSurface", "selection_surface"]

LABELS: dict[Criterion, str] = {
    "loo": "squared leave-one-out error",
    "gcv": "generalised cross-validation",
    "evidence": "log-evidence",
    "cv": "cross-validated accuracy",
}
#: The lattice reaches this many decades of C and of gamma to both sides of what the search found.
_DECADES_C, _DECADES_GAMMA = 3.0, 1.5
#: The most groups of rows that are looked at.
_GROUPS = 100


@dataclass(frozen=True)
class SelectionSurface:
    """A criterion over C and gamma, and what was chosen.

    Attributes
    ----------
    criterion : {"loo", "gcv", "evidence", "cv"}
        Which: the mean squared leave-one-out error of a row in a machine, generalised cross-validation, the
        log-evidence summed over the machines, or cross-validated accuracy.
    C : ndarray of shape (n_C,)
        The values of C, ascending.
    gamma : ndarray of shape (n_gamma,)
        The values of gamma, ascending; a single one where the kernel has none or it was given.
    values : ndarray of shape (n_gamma, n_C)
        The criterion; NaN where the search does not go: a grid that was extended for some, and, for the evidence, a C
        that leaves too little noise.
    chosen_C, chosen_gamma : ndarray of shape (M,)
        What the machines have: one point if all share it, else the different ones.
    shrinkage : float
        How many times smaller the chosen C is than the one that the criterion favours, because the outputs decode
        better: one, but for some `LSSVMClassifier`.
    """

    criterion: Criterion
    C: Array
    gamma: Array
    values: Array
    chosen_C: Array
    chosen_gamma: Array
    shrinkage: float = 1.0

    @property
    def favoured_C(self) -> Array:
        """What the criterion favours at `chosen_gamma`, shape (M,): C before it was made smaller for the decoder."""
        return self.shrinkage * self.chosen_C

    @property
    def label(self) -> str:
        """What the criterion is called on an axis."""
        return LABELS[self.criterion]

    @property
    def greater_is_better(self) -> bool:
        """Whether the best point is the largest."""
        return self.criterion in ("evidence", "cv")

    @property
    def best(self) -> tuple[float, float]:
        """C and gamma of the best point of the lattice, the first of equals.

        What was chosen may be another: the search ends with steps on more rows than its lattice, is held to a range,
        or prefers a smoother machine, and a much smaller C may decode better, see `shrinkage`.
        """
        worst_first = self.values if self.greater_is_better else -self.values
        row, column = np.unravel_index(int(np.nanargmax(worst_first)), self.values.shape)
        return float(self.C[column]), float(self.gamma[row])

    @classmethod
    def from_cross_validation(cls, found: CrossValidation, machine: int | None = None) -> SelectionSurface:
        """Return the surface of a cross-validation for the best kernel.

        Parameters
        ----------
        found : CrossValidation
            The result of the cross-validation.
        machine : int or None
            The machine, where each has its own parameters; None for the mean of all.

        Returns
        -------
        SelectionSurface
        """
        n_choosers = len(found.scores)
        if machine is not None and n_choosers == 1:
            raise ValueError("all machines were judged together, by the labels: leave out machine")
        choosers = _columns(machine, n_choosers)
        scores = found.scores[choosers, found.best_index[choosers, 0]]
        chosen = np.unique(np.stack([found.best_C[choosers], found.best_gamma[choosers]], axis=1), axis=0)
        return cls("cv", found.C, found.gamma, scores.mean(axis=0), chosen[:, 0], chosen[:, 1])


def selection_surface(
    estimator: Any, *, n_C: int = 25, n_gamma: int = 17, machine: int | None = None
) -> SelectionSurface:
    """Return the criterion that C and gamma were chosen by, on a lattice around what it favours.

    For least squares it is computed from the training rows, which the estimator keeps, with one decomposition for every
    gamma and group of rows. Where these are many, it is computed on the sample that the search draws for its lattice,
    within ``SearchSettings.operations``, and for at most a hundred groups. For support vector machines it is what the
    cross-validation left.

    Parameters
    ----------
    estimator : LSSVMClassifier, SVMClassifier, or a Pipeline that ends in one
        Fitted.
    n_C, n_gamma : int
        How many values of each, evenly spaced in their logarithms; odd numbers have what the search found among them.
        (The grid of a cross-validation is as it is.)
    machine : int or None
        Whose criterion, a column of the codebook; None: of all machines together.

    Returns
    -------
    SelectionSurface

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.inspection import selection_surface
    >>> surface = selection_surface(LSSVMClassifier(kernel="rbf").fit(*load_iris(return_X_y=True)))
    >>> surface.criterion, surface.values.shape
    ('loo', (17, 25))
    """
    estimator = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    check_is_fitted(estimator)
    bank, cross_validation = getattr(estimator, "bank_", None), getattr(estimator, "selection_", None)
    if isinstance(cross_validation, CrossValidation):
        return SelectionSurface.from_cross_validation(cross_validation, machine)
    if hasattr(bank, "pilot"):
        raise ValueError(
            "leaves and landmarks have no surface of C and gamma: every leaf has its own; fit a sample of the rows "
            'with scale="exact" to look at one'
        )
    if not isinstance(bank, LSSVMBank):
        raise ValueError(_why_not(estimator))
    if n_C < 1 or n_gamma < 1:
        raise ValueError(f"n_C and n_gamma must be at least 1, not {n_C} and {n_gamma}")
    criterion = criterion_of(estimator.selection)
    # The machines' C is that of weights with a mean of one.
    unit = float(bank.C[0] / estimator.C_[0])
    with blas_threads_for(bank.data.class_index.size):
        columns = _columns(machine, bank.C.size)
        chosen = np.unique(np.stack([estimator.C_[columns], bank.gamma[columns]], axis=1), axis=0)
        C = _around(estimator.shrinkage_ * chosen[:, 0], _DECADES_C, n_C)
        gamma = _around(chosen[:, 1], _DECADES_GAMMA, n_gamma if bank.data.kernel.tunable else 1)
        if criterion == "evidence":
            given_C = None if estimator.C is None else unit * estimator.C
            values = _evidence(bank, columns, unit * C, gamma, given_C, estimator.noise_floor)
        else:
            settings = DEFAULT if estimator.search is None else estimator.search
            values = _errors(bank, criterion, columns, unit * C, gamma, settings)
    return SelectionSurface(criterion, C, gamma, values, chosen[:, 0], chosen[:, 1], estimator.shrinkage_)


def _why_not(estimator: Any) -> str:
    """Say why there is no surface, and what has one."""
    if hasattr(estimator, "members_"):
        return "a pool has a surface for each of its members: give one of members_"
    if hasattr(estimator, "selection_"):
        return "C and gamma were given, so none was selected: fit with C=None and gamma=None to see a surface"
    name = type(estimator).__name__
    return f"{name} keeps no surface; LSSVMClassifier and SVMClassifier(C=None, gamma=None) do"


def _errors(
    bank: LSSVMBank,
    criterion: Literal["loo", "gcv"],
    columns: Array,
    C: Array,
    gamma: Array,
    settings: SearchSettings,
) -> Array:
    """Return the mean criterion of a row in a machine, shape (n_gamma, n_C)."""
    groups = group_grams(Workspace(bank.data), bank.codebook, criterion)
    share = share_on_lattice(groups, settings.operations, settings)
    values, weight = np.zeros((gamma.size, C.size)), 0.0
    for group in _some(groups, columns):
        mask = np.isin(group.columns, columns)
        part = group.sample(share, settings.least_rows)
        grouped = criterion == "loo" and part.left_out is not None
        # A sample stands for the whole group, so that every group counts as much as it has rows.
        factor = group.total / float(part.weights.sum())
        for row, value in enumerate(gamma):
            # A new object each time: its decomposition is forgotten once all C have used it.
            samples = Samples(bank.kernel, [part], grouped=grouped, ridges=1.0 / C[::-1])
            costs = samples.path(criterion, float(value)).costs[::-1, 0]
            costs = np.where(np.isfinite(costs), costs, np.nan)
            values[row] += factor * costs[:, mask].sum(axis=1)
        weight += group.total * int(mask.sum())
    return values / weight


def _evidence(
    bank: LSSVMBank, columns: Array, C: Array, gamma: Array, given_C: float | None, noise_floor: float
) -> Array:
    """Return the summed level-three log-evidence of the machines, shape (n_gamma, n_C)."""
    values = np.full((gamma.size, C.size), np.nan)
    workspace = Workspace(bank.data)
    grams = [GroupGram(group, workspace) for group in dichotomy_groups(bank.data, bank.codebook)]
    groups = _some(grams, columns)
    evidences = [GroupEvidence(group) for group in groups]
    asked = [np.flatnonzero(np.isin(group.columns, columns)) for group in groups]
    for row, value in enumerate(gamma):
        levels = [of_group.level_two(float(value), True) for of_group in evidences]
        # With less noise a machine may interpolate the labels and be sure of it, see `evidence.RIDGE_RANGE`: the search
        # does not go there, but who gives C may.
        scale = float(np.mean([level.centring.bias_eigenvalue for level in levels]))
        least = evidence.least_ridge(scale, noise_floor)
        least = least if given_C is None else min(least, 1.0 / given_C)
        for column in np.flatnonzero((1.0 - 1e-9) * least <= 1.0 / C):
            ridge = 1.0 / float(C[column])
            parts = zip(levels, asked, strict=True)
            values[row, column] = sum(float(level.log_evidence(ridge, part).sum()) for level, part in parts)
    return values


def _some(groups: list[GroupGram], columns: Array) -> list[GroupGram]:
    """Return the groups of rows behind some columns, evenly chosen ones if there are many."""
    groups = [group for group in groups if np.isin(group.columns, columns).any()]
    if len(groups) <= _GROUPS:
        return groups
    return [groups[number] for number in np.linspace(0, len(groups) - 1, _GROUPS).round().astype(int)]


def _columns(machine: int | None, n_machines: int) -> Array:
    """Return the machines that are asked for."""
    if machine is None:
        return np.arange(n_machines)
    if not 0 <= machine < n_machines:
        raise ValueError(f"machine must be None or a number from 0 to {n_machines - 1}, not {machine!r}")
    return np.array([machine])


def _around(chosen: Array, decades: float, n_values: int) -> Array:
    """Return values that reach some decades to both sides of what was chosen, evenly spaced in their logarithms."""
    low, high = np.log10(chosen.min()), np.log10(chosen.max())
    if n_values == 1:
        return np.array([10.0 ** (0.5 * (low + high))]) if high > low else chosen[:1]
    values = 10.0 ** np.linspace(low - decades, high + decades, n_values)
    if low == high and n_values % 2:
        values[n_values // 2] = chosen[0]  # not a rounding beside it
    return values
