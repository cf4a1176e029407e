"""Selection of C and the kernel's parameters of hinge machines by cross-validation on a grid.

One Gram matrix per kernel parameter serves all folds and dichotomies, and every machine follows its path of increasing
C with warm starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_X_y

from polymargin._progress import Count, Progress, logger
from polymargin._threads import count_jobs
from polymargin.codebooks import Codebook, resolve_codebook
from polymargin.decoders import Decoder, Hamming, resolve_decoder
from polymargin.folds import fold_numbers, training_folds
from polymargin.kernels import Kernel, resolve_kernel
from polymargin.machines._hinge import HingeRows, SolverOptions, dense_gram, solve_paths, weight_norms
from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows
from polymargin.selection.surface import CrossValidation, GridScores, Surface
from polymargin.solvers.smo import Solution
from polymargin.solvers.smo_dichotomies import Dichotomy
from polymargin.solvers.smo_expansion import KernelExpansion
from polymargin.solvers.status import Status

Array = NDArray[Any]

__all__ = ["cross_validate", "cross_validate_svm", "default_C", "default_gamma"]

#: The initial grid, as powers of two: C, and gamma in multiples of the kernel's natural unit.
C_EXPONENTS, GAMMA_EXPONENTS = range(-3, 10, 2), range(-6, 5, 2)
#: A machine of the search takes at most this many steps, or this many per row; larger C of the same gamma, which take
#: more, are then left out. Most take some tens of steps per row. Where kernel values are large and the classes overlap
#: the number grows with C, here and in LIBSVM: 100 rows of iris (cubic kernel, gamma = 4) take 5 million steps with
#: C = 8 and more than 100 million with C = 512.
STEPS, STEPS_PER_ROW = 200_000, 1000


def default_C() -> Array:
    """Return the values of C of the initial grid, ascending."""
    return 2.0 ** np.array(C_EXPONENTS)


def default_gamma(data: TrainingRows) -> Array:
    """Return the values of gamma of the initial grid, ascending, around one over the mean squared distance."""
    if not data.kernel.tunable:
        return np.ones(1)
    return data.kernel.unit_gamma(data.X, data.weights) * 2.0 ** np.array(GAMMA_EXPONENTS)


def cross_validate_svm(
    X: Any,
    y: Any,
    *,
    C: ArrayLike | None = None,
    kernel: Any = "rbf",
    gamma: ArrayLike | None = None,
    degree: ArrayLike = 3,
    coef0: ArrayLike = 0.0,
    coding: Any = "one-vs-one",
    decoding: Any = "hamming",
    shared_parameters: bool = True,
    sample_weight: ArrayLike | None = None,
    cv: Any = 5,
    max_extensions: int = 3,
    tol: float = 1e-3,
    max_iter: int = -1,
    n_jobs: int | None = None,
    random_state: Any = None,
    progress: Progress | None = None,
) -> CrossValidation:
    """Score support vector machines on a grid of C and kernel parameters by cross-validation.

    Where a machine takes more than 1000 steps per row, and more than 200 000, larger values of C with the same gamma
    are not scored, unless ``max_iter`` is given.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Rows; the square Gram matrix for ``kernel="precomputed"``.
    y : array-like of shape (n,)
        Class labels.
    C : array-like or None
        The values to try; None for a default range. A single value stays fixed.
    kernel : str or callable
        As in `SVMClassifier`.
    gamma : array-like or None
        The values to try; None for a range around one over the mean squared distance of two rows.
    degree, coef0 : float or array-like
        The values to try for the polynomial kernel.
    coding : str, array-like or callable
        As in `SVMClassifier`.
    decoding : str or Decoder
        As in `SVMClassifier`. In place of a decoder that learns, "hamming" is used.
    shared_parameters : bool
        True: the same parameters for all machines, selected by the accuracy of the decoded labels. False: separate
        ones for every machine, selected by its accuracy on its own dichotomy, as in Table III of Van Gestel et al.
        (2002).
    sample_weight : array-like of shape (n,) or None
        Row weights, which scale C row by row and count in the accuracy.
    cv : int, splitter or iterable of splits
        The folds, see `polymargin.folds.training_folds`.
    max_extensions : int
        How often a range of C or gamma is extended because the best value lies on its edge.
    tol : float
        Tolerance of the solver.
    max_iter : int
        Limit of steps of the solver; -1 for its own.
    n_jobs : int or None
        Number of threads, which does not change the result.
    random_state : int, RandomState instance or None
        For the folds and the coding.
    progress : callable or None
        Called with every step, see `polymargin._progress`; the number of grid points grows with the ranges.

    Returns
    -------
    CrossValidation
        The scores of all grid points, and the best of them.

    See Also
    --------
    polymargin.SVMClassifier : Selects its parameters this way.
    polymargin.inspection.selection_surface : The scores of a fitted estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> result = cross_validate_svm(X, y, C=[0.1, 1.0, 10.0], gamma=[0.01, 0.1, 1.0], max_extensions=0)
    >>> result.scores.shape, result.best_score.round(2)
    ((1, 1, 3, 3), array([0.97]))
    """
    resolved = resolve_kernel(kernel)
    X, y = check_X_y(X, y, accept_sparse=False if resolved.precomputed else "csr", dtype=np.float64)
    check_classification_targets(y)
    if resolved.precomputed and X.shape[0] != X.shape[1]:
        raise ValueError(f"a precomputed kernel matrix must be square, not {X.shape}")
    classes, class_index = np.unique(y, return_inverse=True)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if classes.size < 2 or (np.bincount(class_index, weights) == 0).any():
        raise ValueError("y must hold two classes or more, each with a row of positive weight")
    codebook = resolve_codebook(coding, classes.size, random_state)
    variants = [
        resolve_kernel(kernel, d, c).fitted(X, weights)
        for d, c in product(np.atleast_1d(degree), np.atleast_1d(coef0))
    ]
    data = TrainingRows(variants[0], X, class_index, weights)
    return cross_validate(
        data,
        codebook,
        C=default_C() if C is None else np.unique(C),
        gamma=default_gamma(data) if gamma is None else np.unique(gamma),
        variants=variants if hasattr(resolved, "degree") else variants[:1],
        decoder=resolve_decoder(decoding) if shared_parameters else None,
        folds=training_folds(data, cv, random_state),
        max_extensions=max_extensions,
        options=SolverOptions(tol, max_iter, count_jobs(n_jobs)),
        progress=progress,
    )


def cross_validate(
    data: TrainingRows,
    codebook: Codebook,
    *,
    C: Array,
    gamma: Array,
    folds: Sequence[Array],
    decoder: Decoder | None,
    variants: Sequence[Kernel] | None = None,
    box_weights: Array | None = None,
    max_extensions: int = 3,
    options: SolverOptions | None = None,
    give_up: bool = True,
    progress: Progress | None = None,
) -> CrossValidation:
    """Score the machines of every column of the codebook on a grid; see `cross_validate_svm`.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    C, gamma : ndarray
        The values to try, ascending.
    folds : sequence of ndarray of int
        The rows of every fold; every row is in one fold.
    decoder : Decoder or None
        Decodes the labels by whose accuracy parameters shared by all machines are selected; None to select them for
        every machine separately.
    variants : sequence of Kernel or None
        Kernels with the same base matrix to try; by default the kernel of the data.
    box_weights : ndarray of shape (n,) or None
        The box of every row in multiples of C, also its weight in the accuracy; by default the row weights.
    max_extensions : int
        See `cross_validate_svm`.
    options : SolverOptions or None
        Options of the solver.
    give_up : bool
        Whether larger C are left out once a machine takes too many steps (see `STEPS`), unless a limit is given.
    progress : callable or None
        See `cross_validate_svm`.

    Returns
    -------
    CrossValidation
    """
    if not (np.asarray(C) > 0).all() or not (np.asarray(gamma) > 0).all():
        raise ValueError("the values of C and gamma to try must be positive")
    if decoder is not None:
        decoder = decoder if not decoder.learns and not decoder.needs_variances else Hamming()
        decoder = decoder.fit(codebook, None, data.class_index)
    trial = _Trial(
        data,
        codebook,
        data.weights if box_weights is None else box_weights,
        list(folds),
        decoder,
        [data.kernel] if variants is None else list(variants),
        SolverOptions() if options is None else options,
        give_up,
        Count(progress, _doing(C, gamma), "grid points"),
    )
    surface = Surface(trial, np.asarray(C, dtype=np.float64), np.asarray(gamma, dtype=np.float64))
    for _ in range(max_extensions):
        if not surface.extend():
            break
    return surface.result()


def _doing(C: Array, gamma: Array) -> str:
    """Return the description of the step for progress reports."""
    chosen = [name for name, values in (("C", C), ("gamma", gamma)) if np.size(values) > 1]
    return f"choosing {' and '.join(chosen)}" if chosen else "cross-validating"


class _Trial:
    """Trains machines without each fold and scores them on it, for any rectangle of the grid."""

    def __init__(
        self,
        data: TrainingRows,
        codebook: Codebook,
        box_weights: Array,
        folds: list[Array],
        decoder: Decoder | None,
        variants: list[Kernel],
        options: SolverOptions,
        give_up: bool,
        count: Count,
    ):
        self.data, self.codebook, self.folds, self.weights = data, codebook, folds, box_weights
        self.decoder, self.variants, self.options, self.count = decoder, variants, options, count
        self.n_choosers = codebook.n_columns if decoder is None else 1
        self.rows = HingeRows(data, codebook, box_weights, leading=fold_numbers(folds))
        self.rows.require_gram(4, "give C and gamma, or select them on fewer rows")
        self._base = self.rows.base()
        self.give_up_after: int | None = None
        if give_up and options.max_iter < 0:
            self.give_up_after = max(STEPS, STEPS_PER_ROW * data.class_index.size)
        # For every kernel and gamma, the C at which every column gave up.
        self._largest: dict[tuple[int, float], Array] = {}

    def __call__(self, C: Array, gamma: Array, choosers: Array) -> GridScores:
        """Return the scores of some choosers (all machines together, or each) on a rectangle of the grid."""
        shape = (len(self.folds), self.n_choosers, len(self.variants), gamma.size, C.size)
        block = GridScores(np.full(shape, np.nan), np.full(shape, np.nan))
        columns = choosers if self.decoder is None else np.arange(self.codebook.n_columns)
        ones = np.ones(self.codebook.n_columns)
        problems = [self.rows.dichotomies(ones, columns, fold) for fold in self.folds]
        self.count.expect(len(self.variants) * gamma.size * C.size)
        for (v, kernel), (g, value) in product(enumerate(self.variants), enumerate(gamma)):
            # Where machines gave up at a smaller C, this one is left out.
            largest = self._largest.setdefault((v, float(value)), np.full(ones.size, np.inf))
            tried = np.flatnonzero(largest[columns] >= C[0])
            if tried.size == 0:
                self.count.advance(C.size)
                continue
            together = [of_fold[k] for of_fold in problems for k in tried]
            logger.debug("cross-validating %d machines: %r, gamma=%.3g", len(together), kernel, value)
            gram = dense_gram(kernel, self._base, float(value))
            each = C.size / len(together)
            paths = solve_paths(gram, together, C, self.options, self.count, each, self.give_up_after)
            by_fold = [paths[f * tried.size : (f + 1) * tried.size] for f in range(len(self.folds))]
            last = self._last_C(by_fold, C)
            gave_up = last < C.size
            largest[columns[tried[gave_up]]] = C[last[gave_up]]
            for c in range(C.size):
                solved = np.flatnonzero(last >= c)
                own = tried[solved]
                for f, fold in enumerate(self.folds if own.size else []):
                    of_fold = [by_fold[f][k][c] for k in solved]
                    outputs = self._held_out(gram.K, fold, [problems[f][k] for k in own], of_fold)
                    place = (f, choosers if self.decoder else columns[own], v, g, c)
                    block.right[place], block.hinge[place] = self._score(outputs, fold, columns[own])
        return block

    def _last_C(self, by_fold: list[list[list[Solution]]], C: Array) -> Array:
        """Return, for every column, the position of the last C that was tried in all folds; n_C if none gave up.

        Machines that share their C give up together.
        """
        gave_up = self.give_up_after is not None
        last = np.array(
            [
                [
                    len(path) - 1 if gave_up and path[-1].status is Status.STEP_LIMIT else C.size
                    for path in paths
                ]
                for paths in by_fold
            ]
        ).min(axis=0)
        return last if self.decoder is None else np.full_like(last, last.min())

    def _held_out(
        self, K: Array, fold: Array, problems: list[Dichotomy], solutions: list[Solution]
    ) -> Outputs:
        """Return the outputs of the fold's rows by the machines trained without them."""
        expansion = KernelExpansion.join(self.rows.first.size, problems, solutions)
        margins = expansion.evaluate(K[self.rows.inverse[fold]])
        return Outputs(margins, "out_of_fold", norms=weight_norms(solutions))

    def _score(self, outputs: Outputs, fold: Array, columns: Array) -> tuple[Any, Any]:
        """Return the weight of the correctly classified rows and the summed hinge loss, of every chooser."""
        weights = self.weights[fold]
        targets = self.codebook.targets(self.data.class_index[fold])[:, columns]
        losses = np.where(targets == 0, 0.0, np.maximum(1.0 - targets * outputs.margins, 0.0))
        hinge = weights @ losses
        if self.decoder is None:
            return weights @ ((targets != 0) & ((outputs.margins > 0) == (targets > 0))), hinge
        right = self.decoder.scores(outputs).argmax(axis=1) == self.data.class_index[fold]
        return weights @ right, hinge.sum()

    def fold_weights(self) -> Array:
        """Return the weight of the rows on which every chooser is scored, in every fold, shape (F, M)."""
        if self.decoder is not None:
            return np.array([[self.weights[fold].sum()] for fold in self.folds])
        targets = self.codebook.targets(self.data.class_index)
        return np.stack([self.weights[fold] @ (targets[fold] != 0) for fold in self.folds])
