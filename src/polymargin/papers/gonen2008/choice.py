"""The best configuration by its mean validation accuracy over the ten folds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.gonen2008.densities import HARD
from polymargin.reproduction import Row

__all__ = ["Configuration", "choose"]

#: Accuracies and shares are compared after rounding: in which order sums are taken must not decide.
_DIGITS = 9


@dataclass(frozen=True)
class Configuration:
    """A configuration and what it has done on the folds.

    Attributes
    ----------
    kernel, density : str
    C : float
    accuracies, support : array of shape (10,)
        In %, in the order of the folds.
    n_capped : int
        Solves on the folds that the limit on steps has stopped.
    """

    kernel: str
    density: str
    C: float
    accuracies: NDArray[np.float64]
    support: NDArray[np.float64]
    n_capped: int


def choose(rows: Iterable[Row], costs: Sequence[float], kernels: Sequence[str], soft: bool) -> Configuration:
    """Return the best configuration of one dataset.

    Parameters
    ----------
    rows : iterable of dict
        The dataset's rows of `Validation`.
    costs : sequence of float
        The C that the rows are packed for.
    kernels : sequence of str
        In the order that breaks the last ties; densities come in the order of the rows.
    soft : bool
        Of the densities (PPSVM), or of the canonical SVM.

    Returns
    -------
    Configuration
        The highest mean accuracy; of equals the fewest support vectors, then the smallest C, then the first kernel.
    """
    folds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if (row["density"] != HARD) == soft:
            folds.setdefault((row["kernel"], row["density"]), []).append(row)
    candidates = []
    for (kernel, density), found in folds.items():
        found = sorted(found, key=lambda row: int(row["fold"]))
        accuracies = 100.0 * _counts(found, "correct") / _sizes(found, "n_new")
        support = 100.0 * _counts(found, "support") / _sizes(found, "n_train")
        capped = _counts(found, "capped")
        for i, C in enumerate(costs):
            merit = (
                -round(float(accuracies[:, i].mean()), _DIGITS),
                round(float(support[:, i].mean()), _DIGITS),
                C,
                kernels.index(kernel),
            )
            choice = Configuration(
                kernel, density, C, accuracies[:, i], support[:, i], int(capped[:, i].sum())
            )
            candidates.append((merit, choice))
    return min(candidates, key=lambda candidate: candidate[0])[1]  # of equals the first


def _counts(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """Unpack counts, shape (folds, costs)."""
    return np.array([[int(count) for count in row[name].split()] for row in rows], dtype=float)


def _sizes(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    return np.array([[float(row[name])] for row in rows])
