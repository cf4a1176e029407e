"""Whether a learned metric is kept: only if it is better on rows that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Progress
from polymargin.decoders._base import significant
from polymargin.estimators._candidates import Candidate, Trainer, evaluated, sample_of
from polymargin.estimators._metric import Round, learn_metric, relevance, select_around
from polymargin.kernels import Kernel, Scaled
from polymargin.machines import LSSVMBank

Array = NDArray[Any]

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


def try_metric(
    trainer: Trainer, chosen: Candidate, first: Candidate, keep_factors: bool, progress: Progress | None
) -> MetricChoice:
    """Learn a metric for the first kernel, and compare it with the candidate that was chosen without one."""
    plan, data, settings = trainer.plan, trainer.data, trainer.plan.settings
    # Every round trains the machines of all folds, and searches C and gamma.
    sample = sample_of(data, trainer.codebook, plan, _METRIC_CANDIDATES)

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
        return Round.plain(bank, kernel, evaluated(bank, trainer.judge))

    without = plain(chosen, chosen.kernel)
    rounds = learn_metric(
        plain(first, plan.kernels[0]),
        given={"C": plan.C, "gamma": plan.gamma, "smaller": first.smaller},
        criterion=trainer.criterion,
        judge=lambda bank: evaluated(bank, trainer.judge),
        place=trainer.place,
        needed=without.judged.loss - (_METRIC_GAIN / without.judged.weights.sum() if trainer.judge else 0.0),
        settings=settings,
        progress=progress,
    )
    return MetricChoice([without, *rounds], sample)


def kept_if_better(
    trainer: Trainer, plain: LSSVMBank, metric: MetricChoice, chosen: Candidate, **final: Any
) -> tuple[LSSVMBank, MetricChoice]:
    """Return the machines with a metric, if one was found, or else those without; trained on all rows.

    A metric that was learned from a sample must be better on all rows, too: the more rows, the less there is to
    gain. Both are judged by the rows that it has not seen.
    """
    if metric.proposed is None:
        return plain, metric
    scaled = _scaled_bank(trainer, metric.proposed, metric.sample is None, chosen, **final)
    if metric.sample is None:
        return scaled, metric
    seen = np.zeros(trainer.data.class_index.size, dtype=bool)
    seen[metric.sample] = True
    scaled = replace(scaled, leak=seen)
    if trainer.judge is not None:
        losses = [evaluated(replace(bank, nested=None), trainer.judge, seen).loss for bank in (plain, scaled)]
        metric = replace(metric, on_all=(losses[0], losses[1]))
    return (plain if metric.chosen is None else scaled), metric


def _scaled_bank(trainer: Trainer, found: Round, on_all: bool, chosen: Candidate, **final: Any) -> LSSVMBank:
    """Return the machines of a metric that was found, from all rows or not, trained on all rows."""
    learned, data, plan = found.bank, trainer.data, trainer.plan
    kernel = Scaled(found.kernel, found.widths).fitted(data.X, data.weights)
    if on_all:
        if not final["keep_factors"]:
            return learned
        bank = trainer.bank(kernel, learned.C, learned.gamma, **final)
        return replace(bank, nested=learned.nested)
    C, gamma = select_around(
        trainer.shared.workspace(replace(data, kernel=kernel)),
        trainer.codebook,
        learned,
        C=plan.C,
        gamma=plan.gamma,
        smaller=chosen.smaller,
        criterion=trainer.criterion,
    )
    return trainer.final(kernel, C, gamma, smaller=chosen.smaller, **final)
