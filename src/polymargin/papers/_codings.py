"""Every coding with every decoder from one set of machines, as the papers' tables have them.

The machines of all codings are trained together, with parameters that do not depend on the decoder: dichotomies that
use the same rows share Gram matrices and factorisations, whichever coding they belong to, and each decoder reads the
outputs that are there already. (`polymargin.comparison` compares estimators, whose parameters depend on the decoder.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.codebooks import Codebook, join, resolve_codebook
from polymargin.comparison import Prediction, Score
from polymargin.comparison.codings import class_positions, named
from polymargin.decoders import Decoder, ProbabilisticDecoder, resolve_decoder
from polymargin.decoders._base import can_read
from polymargin.kernels import resolve_kernel
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.machines._gram import Selection
from polymargin.outputs import Outputs

__all__ = ["Hinge", "Machines", "compare_codings", "least_squares", "predict_codings"]

Array = NDArray[Any]


class Bank(Protocol):
    """What a comparison needs of trained machines."""

    def training_outputs(self, *, honest: bool) -> Outputs:
        """Return the outputs of the machines for the training rows."""
        ...

    def outputs(self, X: Any, *, variances: bool) -> Outputs:
        """Return the outputs of the machines for new rows."""
        ...


class Machines(Protocol):
    """A way to train the machines of a codebook with parameters of their own choice."""

    def __call__(
        self, rows: TrainingRows, codebook: Codebook, *, pools: Sequence[Array] | None, variances: bool
    ) -> Bank:
        """Train one machine per column.

        Parameters
        ----------
        rows : TrainingRows
            The training rows.
        codebook : Codebook
            The dichotomies.
        pools : sequence of ndarray of int, or None
            The columns that share their parameters; None: each has its own.
        variances : bool
            Whether variances will be wanted.
        """
        ...


def least_squares(
    rows: TrainingRows,
    codebook: Codebook,
    *,
    pools: Sequence[Array] | None,
    variances: bool,
    selection: Selection = "evidence",
    noise_floor: float | None = None,
) -> Bank:
    """Train least-squares machines, with C and gamma inferred by the evidence, or selected otherwise."""
    return fit_lssvm_bank(
        rows,
        codebook,
        C=None,
        gamma=None,
        selection=selection,
        pools=pools,
        noise_floor=noise_floor,
        keep_factors=variances,
    )


@dataclass(frozen=True)
class Hinge:
    """Trains support vector machines, with C and gamma chosen by cross-validation on a grid.

    Machines with parameters of their own are scored by their own errors, those of a pool by the labels that Hamming
    decoding gives.

    Attributes
    ----------
    cv : int
        The number of folds.
    C : sequence of float or None
        The values to try; None for a default range.
    gamma_factors : sequence of float or None
        The values of gamma to try, in multiples of one over the mean squared distance of two rows.
    max_extensions : int
        How often a range is extended because the best value lies on its edge.
    random_state : int or None
        For the folds.
    """

    cv: int = 5
    C: Sequence[float] | None = None
    gamma_factors: Sequence[float] | None = None
    max_extensions: int = 3
    random_state: int | None = None

    def __call__(
        self, rows: TrainingRows, codebook: Codebook, *, pools: Sequence[Array] | None, variances: bool
    ) -> Bank:
        """Choose the parameters and train the machines; see `Machines`."""
        from polymargin.folds import training_folds
        from polymargin.machines.cross_validation import cross_validate, default_C, default_gamma
        from polymargin.machines.svm import fit_svm_bank

        gammas = default_gamma(rows)
        if self.gamma_factors is not None and rows.kernel.tunable:
            gammas = rows.kernel.unit_gamma(rows.X, rows.weights) * np.unique(self.gamma_factors)
        C, gamma = np.empty(codebook.n_columns), np.empty(codebook.n_columns)
        for pool in [np.arange(codebook.n_columns)] if pools is None else pools:
            chosen = cross_validate(
                rows,
                Codebook(codebook.matrix[:, pool]),
                C=default_C() if self.C is None else np.unique(self.C),
                gamma=gammas,
                folds=training_folds(rows, self.cv, self.random_state),
                decoder=None if pools is None else resolve_decoder("hamming"),
                max_extensions=self.max_extensions,
                give_up=False,  # every point of a paper's grid counts
            )
            C[pool], gamma[pool] = chosen.best_C, chosen.best_gamma
        return fit_svm_bank(rows, codebook, C=C, gamma=gamma, cv=self.cv, random_state=self.random_state)


def compare_codings(
    X_train: ArrayLike, y_train: ArrayLike, X_test: ArrayLike, y_test: ArrayLike, **options: Any
) -> list[Score]:
    """Train machines for every coding, decode with every decoder, and score on test rows.

    Parameters
    ----------
    X_train, y_train, X_test, y_test : array-like
        The split, with features already scaled.
    **options
        Those of `predict_codings`.

    Returns
    -------
    list of Score
        In the order of codings, then decodings.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_iris(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> scores = compare_codings(X_train, y_train, X_test, y_test, codings=["minimal"], decodings=["bayes"])
    >>> [(score.coding, score.decoding, round(score.accuracy, 2)) for score in scores]
    [('minimal', 'bayes', 0.97)]
    """
    test_index = class_positions(y_test, _order(y_train, options.get("classes")))
    return [
        Score.of(prediction, test_index)
        for prediction in predict_codings(X_train, y_train, X_test, **options)
    ]


def predict_codings(
    X_train: ArrayLike,
    y_train: ArrayLike,
    X_test: ArrayLike,
    *,
    codings: Sequence[str] | Mapping[str, Any] = ("one-vs-one", "one-vs-all", "minimal", "ecoc"),
    decodings: Sequence[str] | Mapping[str, Any] = ("hamming", "loss", "bayes"),
    kernel: Any = "rbf",
    degree: float = 3,
    coef0: float = 1.0,
    shared_parameters: bool = True,
    classes: ArrayLike | None = None,
    machines: Machines = least_squares,
    random_state: Any = None,
) -> list[Prediction]:
    """Train machines for every coding, and decode their outputs for new rows with every decoder.

    The parameters are those of `LSSVMClassifier` and `SVMClassifier`. A decoder that cannot read a coding (voting
    needs one-vs-one) is left out for it.

    Parameters
    ----------
    X_train, y_train, X_test : array-like
        Training rows, their labels and new rows, with features already scaled.
    codings, decodings : sequence of str, or mapping of str to anything the estimators take
        What is compared.
    classes : array-like of shape (K,) or None
        The classes in the order in which codings use them; sorted unless given.
    machines : Machines
        How machines are trained: `least_squares`, or a `Hinge`.

    Returns
    -------
    list of Prediction
        In the order of codings, then decodings.

    Examples
    --------
    >>> X, y = [[0.0], [0.1], [0.9], [1.0]], ["a", "a", "b", "b"]
    >>> (prediction,) = predict_codings(X, y, [[0.05], [0.95]], codings=["minimal"], decodings=["hamming"])
    >>> prediction.labels, prediction.log_proba
    (array([0, 1]), None)
    """
    order = _order(y_train, classes)
    train_index = class_positions(y_train, order)
    books = {
        name: resolve_codebook(coding, order.size, random_state) for name, coding in named(codings).items()
    }
    decoders = {name: resolve_decoder(decoding) for name, decoding in named(decodings).items()}

    joined, parts = join(list(books.values()), merge=not shared_parameters)
    variances = any(decoder.needs_variances for decoder in decoders.values())
    X, weights = np.asarray(X_train, dtype=np.float64), np.ones(train_index.size)
    rows = TrainingRows(resolve_kernel(kernel, degree, coef0).fitted(X, weights), X, train_index, weights)
    pools = [part.columns for part in parts] if shared_parameters else None
    bank = machines(rows, joined, pools=pools, variances=variances)
    training_outputs = cache(lambda honest: bank.training_outputs(honest=honest))
    outputs = bank.outputs(np.asarray(X_test, dtype=np.float64), variances=variances)
    predictions = []
    for (coding, book), part in zip(books.items(), parts, strict=True):
        for decoding, decoder in decoders.items():
            if can_read(decoder, book):
                known = training_outputs(not decoder.in_sample).part(part) if decoder.learns else None
                fitted = resolve_decoder(decoder).fit(book, known, train_index)
                predictions.append(_decoded(coding, decoding, fitted, outputs.part(part)))
    return predictions


def _decoded(coding: str, decoding: str, decoder: Decoder, outputs: Outputs) -> Prediction:
    if not decoder.probabilistic:
        return Prediction(coding, decoding, decoder.scores(outputs).argmax(axis=1), None)
    assert isinstance(decoder, ProbabilisticDecoder)
    log_proba = decoder.log_proba(outputs)
    return Prediction(coding, decoding, np.exp(log_proba).argmax(axis=1), log_proba)


def _order(y_train: ArrayLike, classes: ArrayLike | None) -> Array:
    return np.unique(np.asarray(y_train)) if classes is None else np.asarray(classes)
