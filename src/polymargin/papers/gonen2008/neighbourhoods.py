"""The numbers of Figures 5 and 6: accuracy and support vectors as the neighbourhood grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin._progress import Count, Progress
from polymargin.papers.gonen2008.machines import BINARY, SINGLE
from polymargin.papers.gonen2008.rows import FOLDS, TEST, evaluation_split
from polymargin.papers.gonen2008.synthetic import candidates, load_synthetic_protocol

__all__ = ["Effect", "neighbourhood_effect"]


@dataclass(frozen=True)
class Effect:
    """One density's results, all in percent but C.

    Attributes
    ----------
    validation_accuracy, validation_support : tuple of float
        For the chosen C, one per fold.
    test_accuracy, test_support : float
    cost : float
        The chosen C.
    """

    validation_accuracy: tuple[float, ...]
    validation_support: tuple[float, ...]
    test_accuracy: float
    test_support: float
    cost: float


def neighbourhood_effect(
    dataset: str,
    kernel: str,
    densities: Sequence[str],
    *,
    folds: Sequence[int] = FOLDS,
    protocol: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Effect]:
    """Return validation and test results of one kernel with each density.

    C is the one with the best mean accuracy over the validation folds, the smallest of equals; with it the machine
    is trained on the whole two thirds and judged on the third. Two classes: eq. (6); more: the single machine.

    Parameters
    ----------
    dataset, kernel : str
    densities : sequence of str
        ``"hard"`` for the canonical SVM, ``"knn3"``, ``"win2"`` and so on.
    folds : sequence of int
        Which of the ten folds of 5×2 cross-validation.
    protocol : mapping, optional
        For the values of C and the like.
    progress : callable, optional

    Returns
    -------
    dict of str to Effect
        By density.
    """
    protocol = load_synthetic_protocol("figures") if protocol is None else protocol
    count = Count(progress, dataset, "trainings", len(densities) * (len(folds) + 1))
    seed, n_costs = protocol["seed"], len(protocol["costs"])
    # accuracy and support vectors by density, fold and C
    accuracy = np.empty((len(densities), len(folds), n_costs))
    support = np.empty_like(accuracy)
    for j, fold in enumerate(folds):
        split = evaluation_split(dataset, fold, seed)
        machine = BINARY if split.n_classes == 2 else SINGLE
        for i, density in enumerate(densities):
            found = list(candidates(split, machine, [kernel], [density], protocol))
            accuracy[i, j] = [100.0 * choice.accuracy for choice in found]
            support[i, j] = [100.0 * choice.n_support / split.z.size for choice in found]
            count.advance()
    split = evaluation_split(dataset, TEST, seed)
    machine = BINARY if split.n_classes == 2 else SINGLE
    effects = {}
    for i, density in enumerate(densities):
        best = int(accuracy[i].mean(axis=0).argmax())
        found = list(
            candidates(
                split, machine, [kernel], [density], {**protocol, "costs": protocol["costs"][best : best + 1]}
            )
        )
        effects[density] = Effect(
            tuple(accuracy[i, :, best].tolist()),
            tuple(support[i, :, best].tolist()),
            100.0 * found[0].accuracy,
            100.0 * found[0].n_support / split.z.size,
            float(protocol["costs"][best]),
        )
        count.advance()
    return effects
