"""The surface of scores over a grid of C and gamma, which grows where the best point lies on an edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polymargin.kernels import Kernel

Array = NDArray[Any]

__all__ = ["CrossValidation", "GridScores", "Surface"]


@dataclass(frozen=True)
class GridScores:
    """Scores on a rectangle of the grid, shape (F, M, V, G, n_C): folds, choosers, kernels, gammas, Cs.

    Attributes
    ----------
    right : ndarray
        Weight of the correctly classified rows; NaN for choosers and points that were not scored.
    hinge : ndarray
        Summed hinge loss, for ties.
    """

    right: Array
    hinge: Array


class Trial(Protocol):
    """Callable that scores a rectangle of the grid."""

    n_choosers: int
    variants: list[Kernel]

    def __call__(self, C: Array, gamma: Array, choosers: Array) -> GridScores:
        """Return the scores of some choosers on a rectangle of the grid."""
        ...

    def fold_weights(self) -> Array:
        """Return the weight of the rows behind each score, shape (F, M)."""
        ...


@dataclass(frozen=True)
class CrossValidation:
    """The scores of every point of the grid, and the best.

    There are M choosers, for which parameters are selected separately: one if all machines share them, else L.

    Attributes
    ----------
    C : ndarray of shape (n_C,)
        The values of C, ascending.
    gamma : ndarray of shape (G,)
        The values of gamma, ascending.
    kernels : list of V Kernel
        The kernels.
    scores : ndarray of shape (M, V, G, n_C)
        Share of the held-out rows that are right; NaN where a range was extended for other choosers only, and where
        the solver gave up at a smaller C.
    fold_scores : ndarray of shape (F, M, V, G, n_C)
        The same in every fold; NaN in a fold that has no row for a machine.
    hinge : ndarray of shape (M, V, G, n_C)
        Mean hinge loss of the held-out rows. Among equal scores the smallest wins.
    best_index : ndarray of int, shape (M, 3)
        Which kernel, gamma and C each chooser takes.
    on_edge : ndarray of bool, shape (M, 2)
        Whether the best gamma, the best C, lies on the edge of a range of several values.
    """

    C: Array
    gamma: Array
    kernels: list[Kernel]
    scores: Array
    fold_scores: Array
    hinge: Array
    best_index: Array
    on_edge: Array

    @property
    def best_C(self) -> Array:
        """The best C of every chooser, shape (M,)."""
        return self.C[self.best_index[:, 2]]

    @property
    def best_gamma(self) -> Array:
        """The best gamma of every chooser, shape (M,)."""
        return self.gamma[self.best_index[:, 1]]

    @property
    def best_kernel(self) -> list[Kernel]:
        """The best kernel of every chooser."""
        return [self.kernels[index] for index in self.best_index[:, 0]]

    @property
    def best_score(self) -> Array:
        """The score of every chooser's best point, shape (M,)."""
        v, g, c = self.best_index.T
        return self.scores[np.arange(v.size), v, g, c]

    def to_table(self, chooser: int = 0) -> dict[str, Array]:
        """Return one chooser's scores in the format of `GridSearchCV.cv_results_`.

        Parameters
        ----------
        chooser : int
            The machine, where each has its own parameters; 0 otherwise.

        Returns
        -------
        dict of str to ndarray
            One entry per point of the grid; NaN for points that were not scored.
        """
        v, g, c = (index.ravel() for index in np.indices(self.scores.shape[1:]))
        folds = self.fold_scores[:, chooser].reshape(len(self.fold_scores), -1)
        mean = self.scores[chooser].ravel()
        table: dict[str, Array] = {"param_C": self.C[c], "param_gamma": self.gamma[g]}
        for name in ("degree", "coef0"):
            if hasattr(self.kernels[0], name):
                table[f"param_{name}"] = np.array([getattr(self.kernels[i], name) for i in v])
        table |= {f"split{number}_test_score": fold for number, fold in enumerate(folds)}
        table["mean_test_score"] = mean
        known = ~np.isnan(mean)
        table["std_test_score"] = np.full(mean.size, np.nan)
        table["std_test_score"][known] = np.nanstd(folds[:, known], axis=0)
        # Points that were not scored come last, as in scikit-learn.
        table["rank_test_score"] = 1 + (np.where(known, mean, -np.inf)[:, np.newaxis] < mean).sum(axis=1)
        return table


class Surface:
    """Scores on a grid that can grow."""

    def __init__(self, trial: Trial, C: Array, gamma: Array):
        self.trial, self.C, self.gamma = trial, C, gamma
        self.block = trial(C, gamma, np.arange(trial.n_choosers))
        self.weights = trial.fold_weights()

    def extend(self) -> bool:
        """Extend the grid by one step at every edge on which a best point lies; return whether there was one."""
        grown = False
        for axis in (3, 4):
            values = self._values(axis)
            best = self._best()[:, axis - 2]
            for end in (0, values.size - 1):
                choosers = np.flatnonzero(best == end)
                if values.size > 1 and choosers.size:
                    inner = values[1] if end == 0 else values[-2]
                    self._grow(axis, end == 0, values[end] ** 2 / inner, choosers)
                    grown = True
        return grown

    def result(self) -> CrossValidation:
        """Return the surface as it is."""
        best = self._best()
        on_edge = np.stack(
            [
                np.isin(best[:, axis - 2], (0, self._values(axis).size - 1)) & (self._values(axis).size > 1)
                for axis in (3, 4)
            ],
            axis=1,
        )
        scores, hinge = self._totals()
        with np.errstate(invalid="ignore"):
            fold_scores = self.block.right / self.weights[:, :, np.newaxis, np.newaxis, np.newaxis]
        return CrossValidation(
            self.C, self.gamma, self.trial.variants, scores, fold_scores, hinge, best, on_edge
        )

    def _values(self, axis: int) -> Array:
        return self.gamma if axis == 3 else self.C

    def _grow(self, axis: int, below: bool, value: float, choosers: Array) -> None:
        """Score one more value of gamma (axis 3) or C (axis 4), for some choosers."""
        new = np.array([value])
        added = self.trial(self.C, new, choosers) if axis == 3 else self.trial(new, self.gamma, choosers)

        def joined(old: Array, more: Array, along: int) -> Array:
            return np.concatenate([more, old] if below else [old, more], axis=along)

        self.block = GridScores(
            joined(self.block.right, added.right, axis), joined(self.block.hinge, added.hinge, axis)
        )
        if axis == 3:
            self.gamma = joined(self.gamma, new, 0)
        else:
            self.C = joined(self.C, new, 0)

    def _totals(self) -> tuple[Array, Array]:
        """Return the share of rows that are right and the mean hinge loss, each of shape (M, V, G, n_C)."""
        weight = self.weights.sum(axis=0)[:, np.newaxis, np.newaxis, np.newaxis]
        return self.block.right.sum(axis=0) / weight, self.block.hinge.sum(axis=0) / weight

    def _best(self) -> Array:
        """Return the best point of every chooser, shape (M, 3): most right, then least loss, then smallest C."""
        return np.array([_best_point(*surfaces) for surfaces in zip(*self._totals(), strict=True)])


def _best_point(scores: Array, hinge: Array) -> Sequence[int]:
    # Ties in score and loss go to the smallest C, then the smallest gamma, then the first kernel.
    v, g, c = (index.ravel() for index in np.indices(scores.shape))
    known = np.flatnonzero(~np.isnan(scores.ravel()))
    order = np.lexsort((v[known], g[known], c[known], hinge.ravel()[known], -scores.ravel()[known]))
    best = known[order[0]]
    return int(v[best]), int(g[best]), int(c[best])
