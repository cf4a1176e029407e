"""Coupled softmax: coupling first, then a ridged softmax that may depart from it where the outputs say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import entr
from sklearn.base import clone

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, prior_shift, reweighted
from polymargin.decoders._folds import deal_rows
from polymargin.decoders._softmax_fit import SoftmaxFit, fit_softmax, smooth_targets
from polymargin.decoders.coupling import Coupling
from polymargin.outputs import Outputs

#: With more machines than this, their squares are left out; the squares' ridge is this times that of the outputs.
_SQUARED, _CURVED = 60, 3.0
#: A ridge smaller by this factor is tried where the honest log-loss is below this share of the classes' entropy. Where
#: classes overlap more, leave-one-out outputs would tell a decoder with so much freedom the labels, not the classes.
_SMALLER, _CLEAR = 16.0, 0.3
#: Into so many folds rows are dealt to compare ridges; rough fits, to this gradient norm, will do to compare kernels.
_FOLDS, ROUGH = 2, 1e-4
#: Outputs that hardly differ are not blown up: what is left in them is how each row's absence moves its surroundings.
_LEAST_SPREAD = 0.25
#: Outputs below this are silence.
_SILENT = 1e-9


class CoupledSoftmax(ProbabilisticDecoder):
    """Class probabilities from a first guess and all outputs together: the default of `LSSVMClassifier`.

    The logits are s·W + [z, z²] E + b. W is what the classes get from the codebook alone: the log-probabilities of
    pairwise coupling (`Coupling`), in one-vs-all coding the outputs themselves, with one machine plus and minus its
    output.
    E may let any output, and its square, speak for or against any class, but costs ½ ridge ‖E‖², and so does b; the
    scale s is free. With few rows this is coupling with a temperature, with many it is a softmax of curves: a
    least-squares machine estimates a probability, not its logit, and the squares can bend it. (They are left out where
    there are more than 60 machines.) Outputs beyond those of the training rows are not believed: they count as the
    largest, or the least, that was seen.

    Parameters
    ----------
    ridge : float or None, default=None
        The ridge on E, for outputs of unit variance, and on b; three times as much for the squares. None: half the
        number of machines, or of classes if that is larger; or a sixteenth of that, if the classes hardly overlap and
        halves of the rows, decoded by what was learned from the other half, say so by a standard error.
    smoothing : float, default=0.3
        How many rows' worth of labels is spread evenly over all classes. It keeps the probabilities of rows that no
        training row contradicts away from zero and one.
    in_sample : bool, default=False
        Whether to learn from what the machines say of the rows they were trained on, rather than from honest outputs.
    tol : float, default=1e-8
        The gradient norm at which the fit ends.

    Attributes
    ----------
    coupling_ : Coupling or None
        The first guess, where it is a coupling.
    fit_ : SoftmaxFit
        E (``coef``, for outputs over ``spread_``, then for their squares), b (``intercept``), s (``scale``), and how
        the fit ended.
    ridge_ : float
        The ridge, given or chosen.
    cross_log_proba_ : ndarray of shape (n, K) or None
        The log-probabilities of the rows it was fitted on, each learned from the other half of the rows; None if the
        ridge was given.
    spread_ : float
        The root mean square of the outputs, all taken together.
    range_ : ndarray of shape (2, L)
        The least and the largest outputs of the training rows.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors), which is added to the log-probabilities; zero unless priors are given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LSSVMClassifier(decoding=CoupledSoftmax()).fit(X, y)
    >>> model.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    learns = True

    fit_: SoftmaxFit

    def __init__(
        self,
        ridge: float | None = None,
        smoothing: float = 0.3,
        in_sample: bool = False,
        tol: float = 1e-8,
    ):
        self.ridge = ridge
        self.smoothing = smoothing
        self.in_sample = in_sample
        self.tol = tol

    def check(self, codebook: Codebook) -> None:
        """Refuse parameters that make no sense."""
        if self.ridge is not None and not self.ridge >= 0.0:
            raise ValueError(f"ridge must be None or a number that is not negative, not {self.ridge!r}")
        if not self.smoothing >= 0.0:
            raise ValueError(f"smoothing must not be negative, not {self.smoothing!r}")
        if not self.tol > 0.0:
            raise ValueError(f"tol must be positive, not {self.tol!r}")

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> CoupledSoftmax:
        """Fit the coupling, then the softmax around it."""
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        weights = np.ones(class_index.size) if sample_weight is None else sample_weight
        self.prior_shift_ = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        self.cross_log_proba_: Array | None = None
        self.__dict__.pop("fit_", None)
        self.ridge_ = default_ridge(codebook) if self.ridge is None else float(self.ridge)
        if self.ridge is None:
            self._choose_ridge(outputs, class_index, weights)
        return self._learn(outputs, class_index, weights, self.tol)

    def _choose_ridge(self, outputs: Outputs, class_index: Array, weights: Array) -> None:
        """Decode each half of the rows by what is learned from the other; try a smaller ridge if classes are clear."""
        folds = deal_rows(outputs.margins, class_index, _FOLDS)
        halves = [clone(self).set_params(ridge=self.ridge_) for _ in folds]
        for half in halves:
            half.codebook_, half.prior_shift_ = self.codebook_, np.zeros(self.codebook_.n_classes)

        def crossed(ridge: float) -> tuple[Array, Array]:
            log_p = np.empty((class_index.size, self.codebook_.n_classes))
            for half, fold in zip(halves, folds, strict=True):
                kept = np.ones(class_index.size, dtype=bool)
                kept[fold] = False
                if np.unique(class_index[kept]).size < self.codebook_.n_classes:
                    kept[:] = True  # a class of one row has no halves
                half.ridge_ = ridge
                half._learn(outputs.rows(kept), class_index[kept], weights[kept], self.tol)
                log_p[fold] = half.log_proba(outputs.rows(fold))
            return log_p, -log_p[np.arange(class_index.size), class_index]

        self.cross_log_proba_, losses = crossed(self.ridge_)
        total = weights.sum()
        shares = np.bincount(class_index, weights) / total
        if weights @ losses < _CLEAR * float(entr(shares).sum()) * total:
            log_p, smaller = crossed(self.ridge_ / _SMALLER)
            gains = losses - smaller
            gain = weights @ gains / total
            error = np.sqrt(weights @ np.square(gains - gain)) / total
            if gain > error:
                self.cross_log_proba_, self.ridge_ = log_p, self.ridge_ / _SMALLER
        self.fit_ = halves[0].fit_

    def _learn(self, outputs: Outputs, class_index: Array, weights: Array, tol: float) -> CoupledSoftmax:
        """Fit the coupling, then the softmax around it, with the ridge that is set; start from an earlier fit."""
        codebook = self.codebook_
        n_classes = codebook.n_classes
        self.range_ = np.stack([outputs.margins.min(axis=0), outputs.margins.max(axis=0)])
        self.spread_ = _spread(outputs.margins, weights, about_mean=codebook.is_one_vs_all)
        direct = codebook.is_one_vs_all or codebook.n_columns == 1
        self.coupling_: Coupling | None = None
        if not direct:
            self.coupling_ = Coupling().fit(codebook, outputs, class_index, sample_weight=weights)
        share = self.smoothing / (self.smoothing + weights.sum())
        problem: dict[str, Any] = {
            "features": self._features(outputs),
            "targets": smooth_targets(class_index, n_classes, share * (n_classes - 1) / n_classes),
            "sample_weight": weights,
            "ridge": self._ridges(self.ridge_),
            "intercept_ridge": self.ridge_,
            "tol": tol,
        }
        self.fit_ = fit_softmax(**problem, anchor=self._anchor(outputs), start=getattr(self, "fit_", None))
        if self.fit_.scale is not None and self.fit_.scale < 0.0:
            # A first guess that is best read backwards is worth nothing.
            self.fit_ = replace(fit_softmax(**problem), scale=0.0)
        return self

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the class probabilities, shape (n, K)."""
        outputs = replace(outputs, margins=outputs.margins.clip(*self.range_))
        log_p = self.fit_.log_proba(self._features(outputs), self._anchor(outputs))
        return reweighted(log_p, self.prior_shift_)

    @property
    def squares(self) -> bool:
        """Whether the squares of the outputs are read too."""
        return self.codebook_.n_columns <= _SQUARED

    def _ridges(self, ridge: float) -> Array:
        """Return the ridges of the rows of E, shape (L, 1) or (2L, 1)."""
        of_outputs = np.full((self.codebook_.n_columns, 1), ridge)
        return np.vstack([of_outputs, _CURVED * of_outputs]) if self.squares else of_outputs

    def _features(self, outputs: Outputs) -> Array:
        """Return what E reads, shape (n, L) or (n, 2L)."""
        scaled = outputs.margins / self.spread_
        return np.hstack([scaled, np.square(scaled)]) if self.squares else scaled

    def _anchor(self, outputs: Outputs) -> Array:
        """Return W, the logits of the first guess, shape (n, K)."""
        if self.coupling_ is not None:
            return self.coupling_.log_proba(outputs)
        signs = self.codebook_.matrix.T.clip(min=0 if self.codebook_.n_columns > 1 else -1)
        # The scale of the first guess is free, so outputs that are nothing but rounding must not be one.
        heard = np.where(np.abs(outputs.margins) > _SILENT, outputs.margins, 0.0)
        return heard / self.spread_ @ signs


def default_ridge(codebook: Codebook) -> float:
    """Return the ridge for outputs of unit variance where nothing is known yet."""
    return max(codebook.n_classes, codebook.n_columns) / 2


def _spread(margins: Array, weights: Array, *, about_mean: bool) -> float:
    """Return the root mean square of all outputs taken together, but not less than a quarter of a target.

    One-vs-all outputs are mostly negative, and are taken about their mean; elsewhere the signs are arbitrary.
    """
    shares = weights / weights.sum()
    mean = float(shares @ margins.mean(axis=1)) if about_mean else 0.0
    return max(float(shares @ np.square(margins - mean).mean(axis=1)) ** 0.5, _LEAST_SPREAD)
