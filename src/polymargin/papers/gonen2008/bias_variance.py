"""The numbers of Figure 4: bias, variance and noise of machines that differ by their training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count, Progress
from polymargin.datasets import generators
from polymargin.metrics import Decomposition, bias_variance_noise
from polymargin.papers.gonen2008.densities import posteriors
from polymargin.papers.gonen2008.machines import BINARY, SINGLE
from polymargin.papers.gonen2008.rows import Split
from polymargin.papers.gonen2008.synthetic import (
    candidates,
    choose,
    class_probabilities,
    labels_of,
    load_synthetic_protocol,
    outputs,
    train,
)
from polymargin.reproduction import derive_seed

__all__ = ["Parts", "decompose"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Parts:
    """The decomposition for one density, the mean over the test sets.

    Attributes
    ----------
    soft : Decomposition
        With the mean of the machines' softmax probabilities, as in the paper: the error of labels drawn from them.
    votes : Decomposition
        With the mean of the machines' votes: the error of the machines themselves.
    """

    soft: Decomposition
    votes: Decomposition


def decompose(
    densities: Sequence[str],
    *,
    dataset: str = "r4",
    kernel: str = "P3",
    n_sets: int = 100,
    n_train: int = 200,
    n_test_sets: int = 50,
    n_test: int = 1000,
    protocol: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Parts]:
    """Decompose the error of the machines with each density.

    Each training set is halved, C is chosen on the second half by a machine trained on the first, and the final
    machine is trained on all of it. All densities use the same sets.

    Parameters
    ----------
    densities : sequence of str
        ``"hard"`` for the canonical SVM, ``"knn3"``, ``"win2"`` and so on.
    dataset, kernel : str
        Which problem and which kernel.
    n_sets, n_train, n_test_sets, n_test : int
        How many sets of how many rows.
    protocol : mapping, optional
        Another protocol than that of Table II, for the values of C and the like.
    progress : callable, optional

    Returns
    -------
    dict of str to Parts
        By density.
    """
    protocol = load_synthetic_protocol("2") if protocol is None else protocol
    generator = generators()[dataset]
    n_classes = generator.classes.size
    machine = BINARY if n_classes == 2 else SINGLE
    X_test, _ = generator.sample(
        n_test_sets * n_test, random_state=derive_seed(protocol["seed"], "test", dataset)
    )
    soft = {density: np.zeros((len(X_test), n_classes)) for density in densities}
    votes = {density: np.zeros((len(X_test), n_classes)) for density in densities}
    count = Count(progress, "bias and variance", "training sets", n_sets)
    for number in range(n_sets):
        seed = derive_seed(protocol["seed"], "train", dataset, number)
        X, z = generator.sample(n_train, random_state=seed)
        half = n_train // 2
        tuning = Split(X[:half], z[:half], X[half:], z[half:], n_classes)
        whole = Split(X, z, X_test, np.zeros(len(X_test), dtype=np.intp), n_classes)
        gram, gram_test = whole.gram(kernel)
        for density in densities:
            cost = choose(candidates(tuning, machine, [kernel], [density], protocol), protocol["ties"]).cost
            P = posteriors(whole, density)
            trained = train(machine, gram, P, z, [cost], protocol)[0]
            values = outputs(trained, gram_test)
            soft[density] += class_probabilities(values) / n_sets
            votes[density] += np.eye(n_classes)[labels_of(values)] / n_sets
        count.advance()
    truth = generator.posterior(X_test)
    return {
        density: Parts(
            _mean_over_sets(truth, soft[density], n_test_sets),
            _mean_over_sets(truth, votes[density], n_test_sets),
        )
        for density in densities
    }


def _mean_over_sets(truth: Array, estimate: Array, n_test_sets: int) -> Decomposition:
    """Return the mean of eq. (16) over test sets of equal size."""
    parts = [
        bias_variance_noise(P, Q)
        for P, Q in zip(np.split(truth, n_test_sets), np.split(estimate, n_test_sets), strict=True)
    ]
    return Decomposition(
        float(np.mean([part.bias for part in parts])),
        float(np.mean([part.variance for part in parts])),
        float(np.mean([part.noise for part in parts])),
    )
