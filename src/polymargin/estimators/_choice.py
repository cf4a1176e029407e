"""Which kernel and which C: PRESS proposes, the decoder's cross-fitted log-loss on honest outputs decides.

For every kernel the least squared leave-one-out errors propose C and gamma, and the decoder's log-loss on leave-one-out
outputs of rows that it has not learned from decides between the kernels. Squared errors punish outputs that are too
small, which a decoder that learns their scale does not mind: on noisy data machines that are regularised far more give
smoother outputs and better probabilities. So a path of smaller C follows for the kernel that was chosen, judged alike.
(To follow it for every kernel takes a fifth longer and is no better: 0.378 for 0.377 on 39 development sets.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone

from polymargin._progress import Progress
from polymargin._threads import FEW_ROWS, blas_threads_for, count_jobs
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder, ProbabilisticDecoder
from polymargin.estimators._soft_labels import DecoderRows
from polymargin.kernels import RBF, Blend, Kernel, Polynomial, resolve_kernel
from polymargin.machines import LSSVMBank, TrainingRows, Workspace, fit_lssvm_bank
from polymargin.machines._gram import Selection
from polymargin.machines._workspace import SharedWork, array_key, kernel_key
from polymargin.machines.lssvm import select
from polymargin.selection.settings import SearchSettings

Array = NDArray[Any]


#: If fewer than this share of the rows are distinct, nested outputs are computed for any number of rows: leave-one-out
#: margins are anti-correlated with the row's own label, and equal rows reveal this leak.
_DISTINCT = 0.9


def candidates(kernel: Any, degree: Any, coef0: float, *, fixed: bool) -> list[Kernel]:
    """Return the candidate kernels; a single one if the parameters name it.

    With ``fixed`` parameters, whose meaning depends on the kernel, None is "rbf", and degree 3.
    """
    if kernel is None:
        if fixed:
            return [RBF()]
        return [Blend(), Polynomial(2 if degree is None else degree, coef0, centred=True)]
    if kernel == "poly" and degree is None and not fixed:
        return [Polynomial(number, coef0) for number in (2, 3, 4)]
    return [resolve_kernel(kernel, 3 if degree is None else degree, coef0)]


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
    """

    kernels: tuple[Kernel, ...]
    C: float | None
    gamma: float | None
    selection: Selection
    shared_parameters: bool
    settings: SearchSettings
    noise_floor: float | None = None

    def pools(self, codebook: Codebook) -> list[Array] | None:
        """Return the columns that share their parameters; None: each has its own."""
        return [np.arange(codebook.n_columns)] if self.shared_parameters else None


def _comparable(decoder: Decoder) -> bool:
    """Return whether candidates are compared by log-loss: the decoder learns probabilities out-of-sample."""
    return decoder.learns_probabilities and not decoder.in_sample


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
class Choice:
    """The chosen machines, and the table of candidates.

    Attributes
    ----------
    bank : LSSVMBank
        The machines, trained on all rows.
    chosen : Candidate or None
        Their kernel and parameters; None if there was only one candidate.
    candidates : list of Candidate
        The candidates, compared on a sample if there are many rows.
    n_rows : int
        The number of rows on which they were compared.
    """

    bank: LSSVMBank
    chosen: Candidate | None
    candidates: list[Candidate]
    n_rows: int

    @property
    def table(self) -> dict[str, list[Any]] | None:
        """The candidates as a table, by columns; None if there was only one."""
        if self.chosen is None:
            return None
        tried = self.candidates
        return {
            "kernel": [each.kernel.name for each in tried],
            "C": [_common(each.C) for each in tried],
            "gamma": [_common(each.gamma) for each in tried],
            "smaller_C": [each.smaller for each in tried],
            "loss": [each.loss for each in tried],
            "chosen": [each is self.chosen for each in tried],
            "n_rows": [self.n_rows] * len(tried),
        }

    @property
    def kernel_losses(self) -> dict[str, float] | None:
        """The least loss of every kernel; None if there was only one."""
        names = list(dict.fromkeys(each.kernel.name for each in self.candidates))
        if len(names) < 2:
            return None
        return {
            name: min(each.loss for each in self.candidates if each.kernel.name == name) for name in names
        }


def _common(values: Array) -> Any:
    """Return the value that all machines share, or the array if they differ."""
    return float(values[0]) if (values == values[0]).all() else values


def choose(
    data: TrainingRows,
    codebook: Codebook,
    decoder: Decoder,
    plan: Plan,
    shared: SharedWork,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> Choice:
    """Train machines with the best kernel and the best C.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    decoder : Decoder
        The decoder, not fitted, by whose log-loss candidates are compared.
    plan : Plan
        The parameters of the estimator.
    shared : SharedWork
        The cache that other fits to the same rows share.
    progress : callable or None
        Called with every step, see `polymargin._progress`.
    n_jobs : int or None
        The number of kernels that joblib tries in parallel.

    Returns
    -------
    Choice
    """
    trainer = _Trainer(
        data, codebook, plan, shared, n_folds=plan.settings.folds if _comparable(decoder) else 0
    )
    kernels = [kernel.fitted(data.X, data.weights) for kernel in plan.kernels]
    path = plan.settings.smaller if _comparable(decoder) and plan.C is None else (1.0,)
    if plan.selection != "loo":
        path = (1.0,)
    if len(kernels) == 1 and len(path) == 1:
        bank = trainer.bank(
            kernels[0],
            plan.C,
            plan.gamma,
            nested=True,
            keep_factors=decoder.needs_variances,
            progress=progress,
        )
        return Choice(bank, None, [], data.class_index.size)
    trainer = replace(trainer, sample=_sample(data, codebook, plan, len(kernels) + len(path) - 1))
    n_jobs = 1 if data.class_index.size > FEW_ROWS else min(count_jobs(n_jobs), len(kernels))
    evaluations = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_proposal)(trainer, kernel, decoder, progress if n_jobs == 1 else None) for kernel in kernels
    )
    # Results of another process hold copies of the kernels.
    compared = [
        Candidate(kernel, each.C, each.gamma, 1.0, each.loss)
        for kernel, each in zip(kernels, evaluations, strict=True)
    ]
    chosen, evaluation = min(zip(compared, evaluations, strict=True), key=lambda pair: pair[0].loss)
    kernel, proposed = chosen.kernel, chosen.C
    for smaller in path[1:]:
        bank = trainer.bank(kernel, proposed / smaller, chosen.gamma)
        before, evaluation = evaluation, _evaluated(bank, decoder)
        compared.append(Candidate(kernel, bank.C, bank.gamma, smaller, evaluation.loss))
        if not evaluation.significantly_better(before, plan.settings.significance):
            break  # and a still smaller C would be worse again
        chosen = compared[-1]
    for other in kernels:
        if other is not kernel:
            shared.drop(other)
    whole = replace(trainer, sample=None)
    distinct = shared.workspace(data.with_kernel(kernel)).distinct
    bank = whole.bank(
        kernel,
        chosen.C,
        chosen.gamma,
        # With many rows the leak of leave-one-out outputs is negligible, unless many rows are equal.
        nested=trainer.sample is None or distinct.first.size < _DISTINCT * data.class_index.size,
        keep_factors=decoder.needs_variances,
        progress=progress,
    )
    n_rows = data.class_index.size if trainer.sample is None else trainer.sample.size
    return Choice(bank, chosen, compared, n_rows)


@dataclass(frozen=True)
class _Trainer:
    """Trains machines by a plan, on all rows or on a sample of them."""

    data: TrainingRows
    codebook: Codebook
    plan: Plan
    shared: SharedWork
    n_folds: int
    sample: Array | None = None

    def rows(self, kernel: Kernel) -> TrainingRows:
        """Return the rows that machines are trained on."""
        data = self.data.with_kernel(kernel)
        return data if self.sample is None else data.take(self.sample)

    def bank(
        self,
        kernel: Kernel,
        C: Any,
        gamma: Any,
        *,
        nested: bool = False,
        keep_factors: bool = False,
        progress: Progress | None = None,
    ) -> LSSVMBank:
        """Return machines with these parameters, selected if None; with nested outputs if the decoder uses them."""
        n_folds = self.n_folds if nested else 0
        which = array_key(self.sample)
        dichotomies = array_key(self.codebook.matrix)
        key = (
            "bank",
            kernel_key(kernel),
            which,
            dichotomies,
            array_key(C),
            array_key(gamma),
            n_folds,
            keep_factors,
        )

        def trained() -> LSSVMBank:
            rows = self.rows(kernel)
            return fit_lssvm_bank(
                rows,
                self.codebook,
                C=C,
                gamma=gamma,
                selection=self.plan.selection,
                pools=self.plan.pools(self.codebook),
                settings=self.plan.settings,
                noise_floor=self.plan.noise_floor,
                keep_factors=keep_factors,
                n_folds=n_folds,
                progress=progress,
                workspace=self.shared.workspace(rows, which),
            )

        return self.shared.once(key, trained)

    def proposed(self, kernel: Kernel, progress: Progress | None) -> LSSVMBank:
        """Return machines with the parameters selected by PRESS, on all rows or within its budget."""
        plan = self.plan
        if self.sample is None:
            return self.bank(kernel, plan.C, plan.gamma, progress=progress)

        def selected() -> tuple[Array, Array]:
            return select(
                Workspace(self.data.with_kernel(kernel)),
                self.codebook,
                C=plan.C,
                gamma=plan.gamma,
                selection=plan.selection,
                pools=plan.pools(self.codebook),
                settings=plan.settings,
                noise_floor=plan.noise_floor,
                progress=progress,
            )

        C, gamma = self.shared.once(
            ("selected", kernel_key(kernel), array_key(self.codebook.matrix)), selected
        )
        return self.bank(kernel, C, gamma)


def _proposal(trainer: _Trainer, kernel: Kernel, decoder: Decoder, progress: Progress | None) -> Evaluation:
    """Judge a kernel with the parameters that PRESS proposes for it."""
    return _evaluated(trainer.proposed(kernel, progress), decoder)


def _sample(data: TrainingRows, codebook: Codebook, plan: Plan, n_candidates: int) -> Array | None:
    """Return the rows on which candidates are compared; None: all."""
    settings = plan.settings
    n_rows = data.class_index.size if data.groups is None else int(data.groups.max()) + 1
    counts = np.bincount(data.class_index, minlength=codebook.n_classes).astype(np.float64)
    cubes = sum(float(counts[group.classes].sum()) ** 3 for group in codebook.row_groups)
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
    rows : DecoderRows
        The rows that the decoder learned from.
    log_proba : ndarray of shape (n, K)
        Its cross-fitted log-probabilities; empty where it has none.
    """

    C: Array
    gamma: Array
    loss: float
    rows: DecoderRows
    log_proba: Array

    @property
    def losses(self) -> Array:
        """The loss of every row, shape (n,)."""
        return -self.log_proba[np.arange(self.rows.class_index.size), self.rows.class_index]

    def significantly_better(self, other: Evaluation, significance: float) -> bool:
        """Return whether the loss is lower by more than this many standard errors of the difference."""
        weights = self.rows.weights
        assert weights is not None
        gains = other.losses - self.losses
        mean = float(weights @ gains / weights.sum())
        return mean > significance * float(np.sqrt(weights @ np.square(gains - mean)) / weights.sum())


def _evaluated(bank: LSSVMBank, decoder: Decoder) -> Evaluation:
    """Return the decoder's cross-fitted log-loss, or the machines' squared error if it has none."""
    if not _comparable(decoder):
        nothing = DecoderRows(None, bank.data.class_index, None)
        return Evaluation(bank.C, bank.gamma, _squared_error(bank), nothing, np.empty((0, 0)))
    assert isinstance(decoder, ProbabilisticDecoder)
    rows, log_p = cross_fitted_log_proba(bank, decoder)
    assert rows.weights is not None
    evaluation = Evaluation(bank.C, bank.gamma, np.nan, rows, log_p)
    return replace(evaluation, loss=float(rows.weights @ evaluation.losses / rows.weights.sum()))


def decoder_rows(bank: LSSVMBank) -> DecoderRows:
    """Return the out-of-sample outputs that a decoder is fitted to, with classes and weights."""
    data = bank.data
    rows = DecoderRows(bank.training_outputs(honest=True), data.class_index, data.effective_weights)
    return rows if data.soft_labels is None else rows.divided(data.soft_labels)


def cross_fitted_log_proba(bank: LSSVMBank, decoder: ProbabilisticDecoder) -> tuple[DecoderRows, Array]:
    """Return the training data of a decoder, and its cross-fitted log-probabilities, shape (n, K)."""
    rows = decoder_rows(bank)
    assert rows.outputs is not None
    with blas_threads_for(0):  # a decoder's matrices are thin
        log_p = clone(decoder).cross_fit(
            bank.codebook, rows.outputs, rows.class_index, sample_weight=rows.weights
        )
    return rows, log_p


def _squared_error(bank: LSSVMBank) -> float:
    """Return the mean squared leave-one-out error of the machines on the rows of their classes."""
    data = bank.data
    targets = bank.codebook.targets(data.class_index)
    squares = np.where(targets == 0, 0.0, np.square(targets - bank.loo_margins))
    return float((data.weights @ squares).sum() / (data.weights @ (targets != 0)).sum())
