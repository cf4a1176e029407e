"""A learned metric: every column is scaled by how steep the machines are along it.

A round takes the machines' mean squared gradient along every column (the diagonal of the average gradient outer
product), multiplies the column's width by a power of it, selects C and gamma anew, and trains the machines of the
scaled columns.

The metric has seen the labels of all rows, so that leave-one-out outputs of the scaled rows are not honest. Every round
is therefore repeated without each fold, metric and machines, and judged by the nested outputs that this gives: the
decoder of a fold is fitted to leave-one-out outputs within the other folds, and its log-loss is that of the fold, whose
labels neither it, nor the machines, nor the metric have seen. From the same outputs the final decoder learns how far
its probabilities can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin._progress import Count, Progress
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel, Scaled
from polymargin.kernels._base import weighted_moments
from polymargin.machines import LSSVMBank, TrainingRows, Workspace
from polymargin.machines.lssvm_training import BankTraining, select
from polymargin.outputs import Nested
from polymargin.scale._places import OnCPU, Place
from polymargin.selection.settings import SearchSettings
from polymargin.solvers.sensitivity import swap_effects

Array = NDArray[Any]

#: The lattice of gamma of a round lies around the gamma of the last one, in octaves. A round changes the scale of the
#: rows, which the natural gamma follows, more than the shape of the kernel.
_AROUND = (-3, 0, 3)
#: The number of rows at which gradients are taken: their mean squares are then known to some 10 %, the widths, by the
#: damping, to some 2 %.
_LOOKED_AT = 500
#: The number of rows whose values are exchanged to see how much machines depend on a column: relevances are then known
#: to some tenths of themselves, and take less time than a fit.
_SWAPPED = 200


class Judged(Protocol):
    """The loss of machines, and of every row."""

    @property
    def loss(self) -> float:
        """The mean loss."""

    @property
    def losses(self) -> Array:
        """The loss of every row, shape (n,); empty where there are no probabilities."""

    @property
    def weights(self) -> Array:
        """The weights of these rows."""


@dataclass(frozen=True)
class Expansion:
    """What gradients and relevances are computed of: the kernel expansions of machines.

    Attributes
    ----------
    data : TrainingRows
        The rows, with the kernel.
    codebook : Codebook
        The dichotomies.
    coef : ndarray of shape (L, n)
        The coefficients.
    gamma : ndarray of shape (L,)
        The kernel's parameter of every machine.
    """

    data: TrainingRows
    codebook: Codebook
    coef: Array
    gamma: Array

    @classmethod
    def of(cls, bank: LSSVMBank) -> Expansion:
        """Return the expansions of a bank."""
        return cls(bank.data, bank.codebook, bank.dual_coef, bank.gamma)

    @classmethod
    def without_folds(cls, bank: LSSVMBank, folds: list[Array | None]) -> list[Expansion | None]:
        """Return the expansions without each fold, by the rows that are kept, from the bank's nested outputs."""
        assert bank.nested is not None
        assert bank.nested.coef is not None
        return [
            None if kept is None else cls(bank.data.take(kept), bank.codebook, coef[:, kept], bank.gamma)
            for kept, coef in zip(folds, bank.nested.coef, strict=True)
        ]


@dataclass(frozen=True)
class Round:
    """The machines of a metric.

    Attributes
    ----------
    number : int
        The number of times that widths were learned.
    kernel : Kernel
        The kernel of the scaled columns, not fitted.
    widths : ndarray of shape (d,)
        The widths of the columns.
    bank : LSSVMBank
        The machines of the scaled columns, with nested outputs.
    without : list of Expansion or None
        The machines of the folds: metric and machines learned without the rows of the fold; None for a fold that holds
        all rows of a class.
    judged : Judged
        Their loss on rows that neither metric, nor machines, nor decoder have seen.
    """

    number: int
    kernel: Kernel
    widths: Array
    bank: LSSVMBank
    without: list[Expansion | None]
    judged: Judged

    @classmethod
    def plain(cls, bank: LSSVMBank, kernel: Kernel, judged: Judged) -> Round:
        """Return the machines without a metric, of a kernel that is given as it was before it was fitted.

        Without nested outputs, which rounding errors can forbid, no machines of the folds are known.
        """
        without: list[Expansion | None] = []
        if bank.nested is not None:
            without = Expansion.without_folds(bank, _kept_rows(bank.data.class_index, bank.nested.numbers))
        return cls(0, kernel, np.ones(bank.data.X.shape[1]), bank, without, judged)


def learn_metric(
    first: Round,
    *,
    given: dict[str, Any],
    criterion: dict[str, Any],
    judge: Callable[[LSSVMBank], Judged],
    place: Place,
    needed: float,
    settings: SearchSettings,
    progress: Progress | None = None,
) -> list[Round]:
    """Return the rounds that follow the machines without a metric.

    They end where the loss rises, or where the same gain once more in every round to come would not lower it as far as
    needed. There are none if no machines of the folds are known, by which a metric could be judged.

    Parameters
    ----------
    first : Round
        The machines without a metric.
    given : dict
        The arguments ``C``, ``gamma`` and ``smaller`` of `select_around`.
    criterion : dict
        The other arguments of a selection of C and gamma.
    judge : callable (LSSVMBank) -> Judged
        Returns the loss of machines by their nested outputs.
    place : Place
        Where machines are trained.
    needed : float
        The largest loss with which a metric would be kept.
    settings : SearchSettings
        The number of rounds, the damping and the folds.
    progress : callable or None
        Called with every round.

    Returns
    -------
    list of Round
    """
    if first.bank.nested is None:
        return []
    rows, codebook, kernel, numbers = (
        first.bank.data,
        first.bank.codebook,
        first.kernel,
        first.bank.nested.numbers,
    )
    count = Count(progress, "learning the metric", "rounds")
    count.expect(settings.rounds)
    folds = _kept_rows(rows.class_index, numbers)
    widths = [first.widths] * (len(folds) + 1)
    rounds = [first]
    for number in range(1, settings.rounds + 1):
        last = rounds[-1]
        machines = [Expansion.of(last.bank), *last.without]
        widths = [
            each if machine is None else _learned(each, machine, settings.damping, place)
            for each, machine in zip(widths, machines, strict=True)
        ]
        scaled = _with_kernel(rows, Scaled(kernel, widths[0]))
        workspace = Workspace(scaled)
        C, gamma = select_around(workspace, codebook, last.bank, **given, criterion=criterion)
        fixed: dict[str, Any] = {
            "C": C,
            "gamma": gamma,
            "check_memory": isinstance(place, OnCPU),
            **criterion,
        }
        trainings = [BankTraining.of(scaled, codebook, workspace=workspace, **fixed)]
        trainings += [
            BankTraining.of(_with_kernel(rows.take(kept), Scaled(kernel, each)), codebook, **fixed)
            for kept, each in zip(folds, widths[1:], strict=True)
            if kept is not None
        ]
        whole, *others = place.train(trainings)
        remaining = iter(others)
        without = [None if kept is None else next(remaining) for kept in folds]
        whole = replace(whole, nested=_nested(whole, without, folds, numbers, place))
        expansions = [None if bank is None else Expansion.of(bank) for bank in without]
        rounds.append(Round(number, kernel, widths[0], whole, expansions, judge(whole)))
        count.advance()
        before, now = last.judged.loss, rounds[-1].judged.loss
        if now >= before or now - (before - now) * (settings.rounds - number) > needed:
            break
    return rounds[1:]


def _kept_rows(class_index: Array, numbers: Array) -> list[Array | None]:
    """Return the rows outside every fold, None where a class is missing; rows alone in their class are outside all."""
    alone = np.bincount(class_index)[class_index] == 1
    n_classes = np.unique(class_index).size
    kept = [np.flatnonzero((numbers != fold) | alone) for fold in range(int(numbers.max()) + 1)]
    return [rows if np.unique(class_index[rows]).size == n_classes else None for rows in kept]


def _with_kernel(rows: TrainingRows, kernel: Kernel) -> TrainingRows:
    """Return the rows with a kernel that is fitted to them."""
    return replace(rows, kernel=kernel.fitted(rows.X, rows.weights))


def select_around(
    workspace: Workspace,
    codebook: Codebook,
    last: LSSVMBank,
    *,
    C: float | None,
    gamma: float | None,
    smaller: float,
    criterion: dict[str, Any],
) -> tuple[Array, Array]:
    """Return C and gamma, shape (L,) each, searched around those of machines with other widths.

    Parameters
    ----------
    workspace : Workspace
        The rows, with the kernel of their scaled columns.
    codebook : Codebook
        The dichotomies.
    last : LSSVMBank
        The machines with other widths.
    C, gamma : float or None
        Those that are given.
    smaller : float
        The factor by which C is smaller than the C of least PRESS.
    criterion : dict
        The other arguments of the selection.

    Returns
    -------
    C, gamma : ndarray of shape (L,)
    """
    unit = last.kernel.unit_gamma(last.data.X, last.data.weights)
    octave = float(np.median(np.log2(last.gamma / unit)))
    settings = replace(criterion["settings"], octaves=tuple(octave + step for step in _AROUND))
    Cs, gammas = select(workspace, codebook, C=C, gamma=gamma, **{**criterion, "settings": settings})
    return (Cs / smaller if C is None else Cs), gammas


def _learned(widths: Array, machines: Expansion, damping: float, place: Place) -> Array:
    """Return the widths of the next round, by the gradients of the machines of this one."""
    squares = _squared_gradients(machines, place)
    if not squares.any():
        return widths
    factors = (squares / squares.max()) ** (damping / 2.0)
    # The mean squared distance between rows stays the same, so that a gamma that is given keeps its meaning.
    variances = weighted_moments(machines.data.kernel.scaled(machines.data.X), machines.data.weights)[1]
    return widths * factors * np.sqrt(variances.sum() / (np.square(factors) @ variances))


def _squared_gradients(machines: Expansion, place: Place) -> Array:
    """Return the mean squared gradient of the machines along every scaled column, over the rows of each, shape (d,)."""
    data = machines.data
    kernel = data.kernel
    inner = kernel.kernel if isinstance(kernel, Scaled) else kernel
    X, looked_at = kernel.scaled(data.X), np.arange(data.class_index.size)
    if looked_at.size > _LOOKED_AT:
        looked_at = data.deal.sample(_LOOKED_AT / looked_at.size, 1)
    used = (machines.codebook.targets(data.class_index) != 0) * data.weights[:, np.newaxis]
    used = used[looked_at]
    squares = place.mean_squared_gradients(
        inner, X, machines.coef.T, machines.gamma, X[looked_at], np.where(used.any(axis=0), used, 1.0)
    )
    return used.sum(axis=0) @ squares / used.sum()


def relevance(machines: Expansion) -> Array:
    """Return how much machines depend on every column, shape (d,), as shares that sum to one.

    It is the mean squared change of their outputs if another row's value is put into the column. Zeros if no machine
    depends on any column.
    """
    data = machines.data
    kernel = data.kernel
    inner = kernel.kernel if isinstance(kernel, Scaled) else kernel
    rows, others = swapped_rows(data)
    X = kernel.scaled(data.X)
    Z, replacements = (_dense(X[some]) for some in (rows, others))
    used = (machines.codebook.targets(data.class_index[rows]) != 0) * data.weights[rows, np.newaxis]
    effects = swap_effects(
        inner,
        _dense(X),
        machines.coef.T,
        machines.gamma,
        Z,
        replacements,
        np.where(used.any(axis=0), used, 1.0),
    )
    shares = used.sum(axis=0) @ effects
    total = shares.sum()
    return shares / total if total > 0.0 else shares


def swapped_rows(data: TrainingRows) -> tuple[Array, Array]:
    """Return some rows in a random order, and for each of them the row whose values are put into it."""
    rows = np.arange(data.class_index.size)
    if rows.size > _SWAPPED:
        rows = data.deal.sample(_SWAPPED / rows.size, 1)
    # Classes are mixed: within a class the columns that tell it from others hardly vary.
    deal = data.deal
    position = (deal.turn[deal.class_index] + deal.place)[rows]
    shuffled = np.random.RandomState(deal.seed).permutation(int(position.max()) + 1)
    rows = rows[np.argsort(shuffled[position], kind="stable")]
    return rows, np.roll(rows, 1)


def _dense(X: Any) -> Array:
    return X.toarray() if sparse.issparse(X) else X


def spread(folds: Array | None) -> Array | None:
    """Return the standard deviation over folds, shape (d,), of relevances of shape (n_folds, d); None for None."""
    return None if folds is None else np.std(folds, axis=0, ddof=1)


def _nested(
    whole: LSSVMBank,
    without: list[LSSVMBank | None],
    folds: list[Array | None],
    numbers: Array,
    place: Place,
) -> Nested:
    """Return the outputs of the machines of the folds for all rows."""
    margins = np.tile(whole.honest_margins, (len(folds), 1, 1))
    for fold, (bank, kept) in enumerate(zip(without, folds, strict=True)):
        if bank is not None and kept is not None:
            held = np.setdiff1d(np.arange(numbers.size), kept)
            margins[fold, kept] = bank.honest_margins
            margins[fold, held] = place.margins(bank, whole.data.X[held])
    return Nested(numbers, margins)
