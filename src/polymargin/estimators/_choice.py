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
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from polymargin._progress import Progress
from polymargin._threads import FEW_ROWS, count_jobs
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder
from polymargin.decoders._base import significant
from polymargin.estimators._candidates import (
    DEVICE_ROWS,
    Candidate,
    Plan,
    Trainer,
    bounded,
    evaluated,
    sample_of,
)
from polymargin.estimators._metric_choice import MetricChoice, kept_if_better, try_metric
from polymargin.machines import LSSVMBank, TrainingRows
from polymargin.machines._workspace import SharedWork, Workspace
from polymargin.machines.lssvm_training import require_memory
from polymargin.scale._places import OnCPU, Place, place_for

Array = NDArray[Any]


#: If fewer than this share of the rows are distinct, nested outputs are computed for any number of rows: leave-one-out
#: margins are anti-correlated with the row's own label, and equal rows reveal this leak.
_DISTINCT = 0.9


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
    plan, is_bounded = bounded(plan, data, codebook)
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
        place = place_for(plan.device, refines=is_bounded, falls_back=False)
    trainer = Trainer(data, codebook, plan, criterion, shared, judge, place)
    if is_bounded and plan.selection == "evidence":
        # It needs eigendecompositions, of a sample.
        some = data.take(data.deal.sample(DEVICE_ROWS / data.class_index.size, plan.settings.least_rows))
        found = choose(some, codebook, decoder, replace(plan, device=None), shared, progress, n_jobs)
        bank = found.bank
        return replace(found, bank=trainer.bank(bank.kernel, bank.C, bank.gamma, progress=progress))
    final: dict[str, Any] = {"keep_factors": decoder.needs_variances, "progress": progress}
    n_folds = 0 if judge is None else plan.settings.folds
    kernels = [kernel.fitted(data.X, data.weights) for kernel in plan.kernels]
    if isinstance(place, OnCPU) and data.class_index.size > FEW_ROWS:
        workspaces = [shared.workspace(replace(data, kernel=kernel)) for kernel in kernels]
        _require_memory_for_any(workspaces, codebook, plan, keep_factors=decoder.needs_variances)
    follow = judge is not None and plan.C is None and plan.selection == "loo"
    path = plan.settings.smaller if follow else (1.0,)
    if len(kernels) == 1 and len(path) == 1:
        bank = trainer.final(kernels[0], plan.C, plan.gamma, n_folds=n_folds, **final)
        if not plan.learns_metric:
            return Choice(bank, None, [], data.class_index.size)
        only = Candidate(kernels[0], bank.C, bank.gamma, 1.0, np.nan)
        metric = try_metric(trainer, only, only, **final)
        bank, metric = kept_if_better(trainer, bank, metric, only, **final)
        return Choice(bank, None, [], data.class_index.size, metric)
    sample = sample_of(data, codebook, plan, len(kernels) + len(path) - 1)
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
        before, evaluation = evaluation, evaluated(bank, judge)
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
        metric = try_metric(trainer, chosen, chosen if kernel is kernels[0] else first, **final)
        if metric.sample is None:
            bank, metric = kept_if_better(trainer, metric.plain, metric, chosen, **final)
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
    bank, metric = kept_if_better(trainer, bank, metric, chosen, **final)
    return Choice(bank, chosen, compared, n_compared, metric)


def _require_memory_for_any(
    workspaces: list[Workspace], codebook: Codebook, plan: Plan, *, keep_factors: bool
) -> None:
    """Raise MemoryError if there is no kernel with which the machines of all rows fit into memory."""
    by_evidence = plan.selection == "evidence" and (plan.C is None or plan.gamma is None)
    refused: list[MemoryError] = []
    for workspace in workspaces:
        try:
            require_memory(
                workspace, codebook, plan.selection, keep_factors=keep_factors, by_matrix=by_evidence
            )
            return
        except MemoryError as error:
            refused.append(error)
    raise refused[0]
