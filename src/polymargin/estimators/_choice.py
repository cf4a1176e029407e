"""Which kernel and which C: PRESS proposes, the decoder's cross-fitted log-loss on honest outputs decides.

For every kernel the least squared leave-one-out errors propose C and gamma, and the decoder's log-loss on leave-one-out
outputs of rows that it has not learned from decides between the kernels. Squared errors punish outputs that are too
small, which a decoder that learns their scale does not mind: on noisy data machines that are regularised far more give
smoother outputs and better probabilities. So a path of smaller C follows for the kernel that was chosen, judged alike.
(To follow it for every kernel takes a fifth longer and is no better: 0.378 for 0.377 on 39 development sets.)
A metric is then learned for the first kernel, if asked for, and kept if it is better than what was chosen before, on
rows that it has not seen (`polymargin.estimators._metric`). (Metrics of the polynomial kernel seldom help.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone

from polymargin._progress import Progress
from polymargin._threads import FEW_ROWS, blas_threads_for, count_jobs
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder, ProbabilisticDecoder
from polymargin.decoders._base import significant
from polymargin.estimators._metric import Round, learn_metric, relevance, select_around
from polymargin.estimators._soft_labels import decoder_rows, decoder_shares
from polymargin.kernels import Kernel, Scaled
from polymargin.machines import LSSVMBank, TrainingRows, Workspace
from polymargin.machines._gram import Selection
from polymargin.machines._workspace import SharedWork, cache_key
from polymargin.machines.lssvm_training import BankTraining, select
from polymargin.scale._places import OnCPU, Place, place_for
from polymargin.selection.settings import SearchSettings

Array = NDArray[Any]


#: If fewer than this share of the rows are distinct, nested outputs are computed for any number of rows: leave-one-out
#: margins are anti-correlated with the row's own label, and equal rows reveal this leak.
_DISTINCT = 0.9
#: A metric is learned from as many rows as this number of candidates could be compared on, a quarter of the rows where
#: there are many, since every round trains the machines of all folds: five rounds take about half as long as the final
#: fit. On 39 development sets, where this is the least sample of 800 rows, five rounds have 0.892 of the log-loss
#: without a metric and take 2.8 times as long, three rounds on all of up to 2000 rows 0.911 and 5.2.
_METRIC_CANDIDATES = 24
#: A metric must be better by this many standard errors: with few rows the better of two is often a matter of chance. On
#: 39 development sets 0, 1 and 2 have 0.892, 0.923 and 0.976 of the log-loss without a metric; from pure noise of 60
#: rows and 100 columns a metric is learned in 3 of 12 draws with 0, in none of 30 with 1.
_METRIC_SIGNIFICANCE = 1.0
#: The gains of all rows together must be at least this: the rows are e³ = 20 times as probable, "strong evidence" (Kass
#: and Raftery 1995, Bayes Factors, JASA 90). Where few rows are uncertain, the standard error is uncertain, too. On 39
#: development sets 0, 3 and 6 have 0.945, 0.954 and 0.977 of the log-loss without a metric.
_METRIC_GAIN = 3.0
#: The operations of each stage of the search for C and gamma of machines on a device: more would take the CPU longer
#: than the device takes for everything else. With 4000 rows on each side of a dichotomy there are as many.
_DEVICE_SEARCH = 4e10
#: The rows on which kernels, C and metrics are compared where the search is bounded by that.
_DEVICE_ROWS = 4000


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
    metric : MetricChoice or None
        What was tried in learning a metric; None if it was not asked for.
    """

    bank: LSSVMBank
    chosen: Candidate | None
    candidates: list[Candidate]
    n_rows: int
    metric: MetricChoice | None = None

    def table(self, weight_unit: float) -> dict[str, list[Any]] | None:
        """Return the candidates as a table, by columns, with C over the unit of the weights; None for only one."""
        if self.chosen is None:
            return None
        tried = self.candidates
        # A number where all machines share it, else an array.
        Cs, gammas = (
            [float(each[0]) if (each == each[0]).all() else each for each in values]
            for values in ([each.C for each in tried], [each.gamma for each in tried])
        )
        return {
            "kernel": [each.kernel.name for each in tried],
            "C": [C / weight_unit for C in Cs],
            "gamma": gammas,
            "smaller_C": [each.smaller for each in tried],
            "loss": [each.loss for each in tried],
            "chosen": [each is self.chosen for each in tried],
            "n_rows": [self.n_rows] * len(tried),
        }


def choose(
    data: TrainingRows,
    codebook: Codebook,
    decoder: Decoder,
    plan: Plan,
    shared: SharedWork,
    progress: Progress | None = None,
    n_jobs: int | None = None,
    place: Place | None = None,
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
    place : Place or None
        Where machines are trained; None: on the plan's device, all of them.

    Returns
    -------
    Choice
    """
    plan, bounded = _bounded(plan, data, codebook)
    # Candidates are compared by log-loss if the decoder learns probabilities out-of-sample.
    judge = decoder if decoder.learns_probabilities and not decoder.in_sample else None
    pools = [np.arange(codebook.n_columns)] if plan.shared_parameters else None
    criterion = {
        "selection": plan.selection,
        "pools": pools,
        "settings": plan.settings,
        "noise_floor": plan.noise_floor,
    }
    if place is None:
        place = place_for(plan.device, refines=bounded, falls_back=False)
    trainer = _Trainer(data, codebook, plan, criterion, shared, judge, place)
    if bounded and plan.selection == "evidence":
        # It needs eigendecompositions, of a sample.
        some = data.take(data.deal.sample(_DEVICE_ROWS / data.class_index.size, plan.settings.least_rows))
        found = choose(some, codebook, decoder, replace(plan, device=None), shared, progress, n_jobs)
        bank = found.bank
        return replace(found, bank=trainer.bank(bank.kernel, bank.C, bank.gamma, progress=progress))
    final: dict[str, Any] = {"keep_factors": decoder.needs_variances, "progress": progress}
    n_folds = 0 if judge is None else plan.settings.folds
    kernels = [kernel.fitted(data.X, data.weights) for kernel in plan.kernels]
    follow = judge is not None and plan.C is None and plan.selection == "loo"
    path = plan.settings.smaller if follow else (1.0,)
    if len(kernels) == 1 and len(path) == 1:
        bank = trainer.final(kernels[0], plan.C, plan.gamma, n_folds=n_folds, **final)
        if not plan.learns_metric:
            return Choice(bank, None, [], data.class_index.size)
        only = Candidate(kernels[0], bank.C, bank.gamma, 1.0, np.nan)
        metric = _learned(trainer, only, only, **final)
        bank, metric = trainer.best(bank, metric, only, **final)
        return Choice(bank, None, [], data.class_index.size, metric)
    sample = _sample(data, codebook, plan, len(kernels) + len(path) - 1)
    n_jobs = 1 if data.class_index.size > FEW_ROWS else min(count_jobs(n_jobs), len(kernels))
    evaluations = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(trainer.proposal)(kernel, sample, progress if n_jobs == 1 else None) for kernel in kernels
    )
    # Results of another process hold copies of the kernels.
    compared = [
        Candidate(kernel, each.C, each.gamma, 1.0, each.loss)
        for kernel, each in zip(kernels, evaluations, strict=True)
    ]
    chosen, evaluation = min(zip(compared, evaluations, strict=True), key=lambda pair: pair[0].loss)
    kernel, proposed = chosen.kernel, chosen.C
    for smaller in path[1:]:
        bank = trainer.bank(kernel, proposed / smaller, chosen.gamma, sample)
        before, evaluation = evaluation, _evaluated(bank, judge)
        compared.append(Candidate(kernel, bank.C, bank.gamma, smaller, evaluation.loss))
        gains = before.losses - evaluation.losses
        if not significant(gains, evaluation.weights, plan.settings.significance):
            break  # and a still smaller C would be worse again
        chosen = compared[-1]
    for other in kernels:
        if other is not kernel:
            shared.drop(other)
    n_compared = data.class_index.size if sample is None else sample.size
    if plan.learns_metric:
        first = replace(compared[0], C=compared[0].C / chosen.smaller, smaller=chosen.smaller)
        metric = _learned(trainer, chosen, chosen if kernel is kernels[0] else first, **final)
        if metric.sample is None:
            bank, metric = trainer.best(metric.plain, metric, chosen, **final)
            return Choice(bank, chosen, compared, n_compared, metric)
    if sample is not None:
        distinct = shared.workspace(replace(data, kernel=kernel)).distinct
        # With many rows the leak of leave-one-out outputs is negligible, unless many rows are equal.
        if distinct.first.size >= _DISTINCT * data.class_index.size:
            n_folds = 0
    bank = trainer.final(kernel, chosen.C, chosen.gamma, smaller=chosen.smaller, n_folds=n_folds, **final)
    if not plan.learns_metric:
        return Choice(bank, chosen, compared, n_compared)
    shared.drop(kernel)
    bank, metric = trainer.best(bank, metric, chosen, **final)
    return Choice(bank, chosen, compared, n_compared, metric)


@dataclass(frozen=True)
class MetricChoice:
    """What was tried in learning a metric.

    Attributes
    ----------
    rounds : list of Round
        The machines without a metric, and the rounds that followed.
    sample : ndarray of int or None
        The rows from which the metric was learned; None: all.
    on_all : (float, float) or None
        If from a sample, and a metric was found: the losses without and with it of machines trained on all rows.
    """

    rounds: list[Round]
    sample: Array | None
    on_all: tuple[float, float] | None = None

    @property
    def plain(self) -> LSSVMBank:
        """The machines without a metric, with nested outputs."""
        bank = self.rounds[0].bank
        return bank if bank.nested is None else replace(bank, nested=replace(bank.nested, coef=None))

    @property
    def chosen(self) -> Round | None:
        """The best round; None if it is not better than the machines without a metric, also of all rows."""
        return self.proposed if self.on_all is None or self.on_all[1] < self.on_all[0] else None

    @property
    def proposed(self) -> Round | None:
        """The best round on the rows it was learned from; None if the machines without a metric are as good."""
        without, best = self.rounds[0].judged, min(self.rounds, key=lambda each: each.judged.loss)
        if best is self.rounds[0]:
            return None
        gains = without.losses - best.judged.losses
        if not gains.size:
            return best
        certain = significant(gains, without.weights, _METRIC_SIGNIFICANCE)
        return best if certain and without.weights @ gains >= _METRIC_GAIN else None

    @property
    def fold_relevances(self) -> Array | None:
        """The relevance of the columns without each fold, shape (n_folds, d); None with fewer than two folds."""
        machines = (self.chosen or self.rounds[0]).without
        shares = [relevance(each) for each in machines if each is not None]
        return np.array(shares) if len(shares) > 1 else None

    @property
    def table(self) -> dict[str, list[Any]]:
        """The rounds as a table, by columns."""
        chosen = self.chosen or self.rounds[0]
        both = (self.rounds[0], self.proposed)
        return {
            "kernel": [each.kernel.name for each in self.rounds],
            "rounds": [each.number for each in self.rounds],
            "loss": [each.judged.loss for each in self.rounds],
            "loss_on_all_rows": [
                np.nan if self.on_all is None or each not in both else self.on_all[both.index(each)]
                for each in self.rounds
            ],
            "chosen": [each is chosen for each in self.rounds],
            "n_rows": [self.rounds[0].bank.data.class_index.size] * len(self.rounds),
        }


def _learned(
    trainer: _Trainer, chosen: Candidate, first: Candidate, keep_factors: bool, progress: Progress | None
) -> MetricChoice:
    """Learn a metric for the first kernel, and compare it with the candidate that was chosen without one."""
    plan, data, settings = trainer.plan, trainer.data, trainer.plan.settings
    # Every round trains the machines of all folds, and searches C and gamma.
    sample = _sample(data, trainer.codebook, plan, _METRIC_CANDIDATES)

    def plain(candidate: Candidate, kernel: Kernel) -> Round:
        bank = trainer.bank(
            candidate.kernel,
            candidate.C,
            candidate.gamma,
            sample,
            n_folds=settings.folds,
            keep_factors=keep_factors,
            keep_fold_coef=True,
        )
        return Round.plain(bank, kernel, _evaluated(bank, trainer.judge))

    without = plain(chosen, chosen.kernel)
    rounds = learn_metric(
        plain(first, plan.kernels[0]),
        given={"C": plan.C, "gamma": plan.gamma, "smaller": first.smaller},
        criterion=trainer.criterion,
        judge=lambda bank: _evaluated(bank, trainer.judge),
        place=trainer.place,
        needed=without.judged.loss - (_METRIC_GAIN / without.judged.weights.sum() if trainer.judge else 0.0),
        settings=settings,
        progress=progress,
    )
    return MetricChoice([without, *rounds], sample)


@dataclass(frozen=True)
class _Trainer:
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

    def best(
        self, plain: LSSVMBank, metric: MetricChoice, chosen: Candidate, **final: Any
    ) -> tuple[LSSVMBank, MetricChoice]:
        """Return the machines with a metric, if one was found, or else those without; trained on all rows.

        A metric that was learned from a sample must be better on all rows, too: the more rows, the less there is to
        gain. Both are judged by the rows that it has not seen.
        """
        if metric.proposed is None:
            return plain, metric
        scaled = self._scaled_bank(metric.proposed, metric.sample is None, chosen, **final)
        if metric.sample is None:
            return scaled, metric
        seen = np.zeros(self.data.class_index.size, dtype=bool)
        seen[metric.sample] = True
        scaled = replace(scaled, leak=seen)
        if self.judge is not None:
            losses = [
                _evaluated(replace(bank, nested=None), self.judge, seen).loss for bank in (plain, scaled)
            ]
            metric = replace(metric, on_all=(losses[0], losses[1]))
        return (plain if metric.chosen is None else scaled), metric

    def _scaled_bank(self, found: Round, on_all: bool, chosen: Candidate, **final: Any) -> LSSVMBank:
        """Return the machines of a metric that was found, from all rows or not, trained on all rows."""
        learned, data, plan = found.bank, self.data, self.plan
        kernel = Scaled(found.kernel, found.widths).fitted(data.X, data.weights)
        if on_all:
            if not final["keep_factors"]:
                return learned
            bank = self.bank(kernel, learned.C, learned.gamma, **final)
            return replace(bank, nested=learned.nested)
        C, gamma = select_around(
            self.shared.workspace(replace(data, kernel=kernel)),
            self.codebook,
            learned,
            C=plan.C,
            gamma=plan.gamma,
            smaller=chosen.smaller,
            criterion=self.criterion,
        )
        return self.final(kernel, C, gamma, smaller=chosen.smaller, **final)

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
        return _evaluated(bank, self.judge)


def _bounded(plan: Plan, data: TrainingRows, codebook: Codebook) -> tuple[Plan, bool]:
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
        decided_rows=max(settings.decided_rows, _DEVICE_ROWS),
    )
    return replace(plan, settings=settings), True


def _cubes(data: TrainingRows, codebook: Codebook) -> float:
    """Return the operations of a fit: the sum of the cubes of the rows of all groups of columns."""
    counts = np.bincount(data.class_index, minlength=codebook.n_classes).astype(np.float64)
    return sum(float(counts[group.classes].sum()) ** 3 for group in codebook.column_groups)


def _sample(data: TrainingRows, codebook: Codebook, plan: Plan, n_candidates: int) -> Array | None:
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


def _evaluated(bank: LSSVMBank, judge: Decoder | None, left_out: Array | None = None) -> Evaluation:
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
