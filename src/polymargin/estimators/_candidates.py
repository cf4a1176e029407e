"""Candidates for the machines of a fit: kernels with their parameters, trained and judged on all rows or a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from polymargin._accelerator import accelerated
from polymargin._progress import Progress
from polymargin._threads import blas_threads_for
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder, ProbabilisticDecoder
from polymargin.estimators._soft_labels import decoder_rows, decoder_shares
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, TrainingRows, Workspace
from polymargin.machines._gram import Selection
from polymargin.machines._workspace import SharedWork, cache_key
from polymargin.machines.lssvm_training import BankTraining, select
from polymargin.scale._places import OnCPU, Place
from polymargin.selection.settings import SearchSettings

Array = NDArray[Any]

#: The operations of each stage of the search for C and gamma of machines on a device: more would take the CPU longer
#: than the device takes for everything else. With 4000 rows on each side of a dichotomy there are as many.
_DEVICE_SEARCH = 4e10
#: The rows on which kernels, C and metrics are compared where the search is bounded by that.
DEVICE_ROWS = 4000


@dataclass(frozen=True)
class Plan:
    """The parameters of an estimator that concern the training of its machines.

    Attributes
    ----------
    kernels : tuple of Kernel
        The candidate kernels, not fitted.
    C, gamma : float or None
        Their values; None to select them.
    selection : {"loo", "gcv", "evidence"}
        The criterion by which C and gamma are proposed.
    shared_parameters : bool
        Whether all machines have the same C and gamma.
    settings : SearchSettings
        Width and budget of the search.
    noise_floor : float or None
        The least noise of a selection by the evidence.
    learns_metric : bool
        Whether to try a learned metric.
    device : str or None
        The device on which machines are trained; None: the CPU.
    """

    kernels: tuple[Kernel, ...]
    C: float | None
    gamma: float | None
    selection: Selection
    shared_parameters: bool
    settings: SearchSettings
    noise_floor: float | None = None
    learns_metric: bool = False
    device: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A kernel with its parameters, and its loss.

    Attributes
    ----------
    kernel : Kernel
        The kernel, fitted to the training rows.
    C, gamma : ndarray of shape (L,)
        The parameters of every machine.
    smaller : float
        The factor by which C is smaller than the C of least PRESS.
    loss : float
        The cross-fitted log-loss of the decoder, or the mean squared leave-one-out error where it has none.
    """

    kernel: Kernel
    C: Array
    gamma: Array
    smaller: float
    loss: float


@dataclass(frozen=True)
class Trainer:
    """Trains machines by a plan, on all rows or on a sample of them.

    `criterion` holds the arguments of a selection of C and gamma, `judge` is the decoder that compares machines, and
    `place` is where they are trained.
    """

    data: TrainingRows
    codebook: Codebook
    plan: Plan
    criterion: dict[str, Any]
    shared: SharedWork
    judge: Decoder | None
    place: Place

    def final(self, kernel: Kernel, C: Any, gamma: Any, smaller: float = 1.0, **options: Any) -> LSSVMBank:
        """Return machines of all rows, with parameters that were proposed by a sample, or given."""
        if self.plan.C is None and self.plan.gamma is None and C is not None:
            rows = replace(self.data, kernel=kernel)
            C, gamma = self.place.refined(rows, self.codebook, C, gamma, smaller)
        return self.bank(kernel, C, gamma, **options)

    def bank(
        self,
        kernel: Kernel,
        C: Any,
        gamma: Any,
        sample: Array | None = None,
        *,
        n_folds: int = 0,
        keep_factors: bool = False,
        keep_fold_coef: bool = False,
        progress: Progress | None = None,
    ) -> LSSVMBank:
        """Return machines with these parameters, selected if None."""
        data = replace(self.data, kernel=kernel)
        rows = data if sample is None else data.take(sample)
        options = n_folds, keep_factors, keep_fold_coef
        key = cache_key("bank", kernel, sample, self.codebook.matrix, C, gamma, *options)

        def train() -> LSSVMBank:
            training = BankTraining.of(
                rows,
                self.codebook,
                C=C,
                gamma=gamma,
                keep_factors=keep_factors,
                n_folds=n_folds,
                keep_fold_coef=keep_fold_coef,
                progress=progress,
                workspace=self.shared.workspace(rows, sample),
                check_memory=isinstance(self.place, OnCPU),
                **self.criterion,
            )
            (bank,) = self.place.train([training])
            return bank

        return self.shared.once(key, train)

    def proposal(self, kernel: Kernel, sample: Array | None, progress: Progress | None) -> Evaluation:
        """Judge a kernel with the parameters that PRESS proposes for it, on all rows or within its budget."""
        plan = self.plan
        if sample is None:
            bank = self.bank(kernel, plan.C, plan.gamma, progress=progress)
        else:
            selection = partial(
                select,
                Workspace(replace(self.data, kernel=kernel)),
                self.codebook,
                C=plan.C,
                gamma=plan.gamma,
                progress=progress,
                **self.criterion,
            )
            C, gamma = self.shared.once(cache_key("selected", kernel, self.codebook.matrix), selection)
            bank = self.bank(kernel, C, gamma, sample)
        with accelerated(self.place.accelerator):  # threads of joblib do not know that of the fit
            return evaluated(bank, self.judge)


def bounded(plan: Plan, data: TrainingRows, codebook: Codebook) -> tuple[Plan, bool]:
    """Return the plan with a search that does not take longer than machines on a device; and whether it is shorter.

    C and gamma are searched for on the CPU. Where that would take more than `_DEVICE_SEARCH`, it has fewer rows,
    and all rows refine on the device what it has found.
    """
    settings = plan.settings
    if plan.device is None or settings.budget(_cubes(data, codebook)) <= _DEVICE_SEARCH:
        return plan, False
    settings = replace(
        settings,
        operations=_DEVICE_SEARCH,
        relative=0.0,
        decided_rows=max(settings.decided_rows, DEVICE_ROWS),
    )
    return replace(plan, settings=settings), True


def _cubes(data: TrainingRows, codebook: Codebook) -> float:
    """Return the operations of a fit: the sum of the cubes of the rows of all groups of columns."""
    counts = np.bincount(data.class_index, minlength=codebook.n_classes).astype(np.float64)
    return sum(float(counts[group.classes].sum()) ** 3 for group in codebook.column_groups)


def sample_of(data: TrainingRows, codebook: Codebook, plan: Plan, n_candidates: int) -> Array | None:
    """Return the rows on which candidates are compared; None: all."""
    settings = plan.settings
    n_rows = data.class_index.size if data.groups is None else int(data.groups.max()) + 1
    cubes = _cubes(data, codebook)
    share = (settings.budget(cubes) / (n_candidates * cubes)) ** (1 / 3)
    share = max(share, settings.decided_rows / n_rows)
    if share >= 1.0:
        return None
    return data.deal.sample(share, settings.least_rows)


@dataclass(frozen=True)
class Evaluation:
    """How machines were judged: by log-probabilities of rows that were not learned from, if the decoder has them.

    Attributes
    ----------
    C, gamma : ndarray of shape (L,)
        The parameters of the machines.
    loss : float
        The log-loss, or the mean squared leave-one-out error.
    losses : ndarray of shape (n,)
        The log-loss of every row; empty where the decoder has no probabilities.
    weights : ndarray of shape (n,)
        The weights of these rows.
    """

    C: Array
    gamma: Array
    loss: float
    losses: Array
    weights: Array


def evaluated(bank: LSSVMBank, judge: Decoder | None, left_out: Array | None = None) -> Evaluation:
    """Return the decoder's cross-fitted log-loss, or the machines' squared error if there is no decoder to judge by.

    Some rows can be left out of the mean, shape (n,).
    """
    if judge is None:
        return Evaluation(bank.C, bank.gamma, _squared_error(bank), np.empty(0), np.empty(0))
    rows = decoder_rows(bank.data, bank.training_outputs(honest=True))
    assert isinstance(judge, ProbabilisticDecoder)
    assert rows.outputs is not None
    with blas_threads_for(0):  # a decoder's matrices are thin
        log_p = clone(judge).cross_fit(
            bank.codebook, rows.outputs, rows.class_index, sample_weight=rows.weights
        )
    losses, weights = -log_p[np.arange(rows.class_index.size), rows.class_index], rows.weights
    if left_out is not None:
        weights = weights * decoder_shares(bank.data, left_out)
    return Evaluation(bank.C, bank.gamma, float(weights @ losses / weights.sum()), losses, weights)


def _squared_error(bank: LSSVMBank) -> float:
    """Return the mean squared error of the machines on the rows of their classes, out-of-fold or leave-one-out."""
    data, nested = bank.data, bank.nested
    targets = bank.codebook.targets(data.class_index)
    margins = (
        bank.loo_margins if nested is None else nested.margins[nested.numbers, np.arange(targets.shape[0])]
    )
    squares = np.where(targets == 0, 0.0, np.square(targets - margins))
    return float((data.weights @ squares).sum() / (data.weights @ (targets != 0)).sum())
