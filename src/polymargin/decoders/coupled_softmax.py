"""Coupled softmax: coupling first, then a ridged softmax that may depart from it where the outputs say so."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, prior_shift, reweighted
from polymargin.decoders._folds import deal_rows
from polymargin.decoders._softmax_fit import SoftmaxFit, fit_softmax, mean_fit, smooth_targets
from polymargin.decoders.coupling import Coupling
from polymargin.outputs import Outputs

#: With more machines than this, their squares are left out; the squares' ridge is this times that of the outputs.
_SQUARED, _CURVED = 60, 3.0
#: A ridge smaller by this factor is tried where the honest log-loss is below this share of the classes' entropy. Where
#: classes overlap more, leave-one-out outputs would tell a decoder with so much freedom the labels, not the classes.
_SMALLER, _CLEAR = 16.0, 0.3
#: Into so many folds rows are dealt to compare ridges; rough fits, to this gradient norm, will do to compare kernels.
_FOLDS, ROUGH = 2, 1e-4
#: The gradient norm at which the fits of the halves end.
_CROSS_TOL = 1e-6
#: Outputs that hardly differ are not blown up: what is left in them is how each row's absence moves its surroundings.
_LEAST_SPREAD = 0.25
#: Outputs below this are silence.
_SILENT = 1e-9


class _Rows(NamedTuple):
    """Rows as the softmax reads them."""

    features: Array  # (n, L) or (n, 2L)
    anchor: Array  # (n, K), the logits of the first guess
    class_index: Array
    weights: Array

    def part(self, rows: Array) -> _Rows:
        return _Rows(*(values[rows] for values in self))


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
        self.ridge_ = default_ridge(codebook) if self.ridge is None else float(self.ridge)
        start = self._choose_ridge(outputs.margins, class_index, weights) if self.ridge is None else None
        self._guess(outputs.margins, class_index, weights)
        rows = _Rows(*self._read(outputs.margins), class_index, weights)
        self.fit_ = self._learn(rows, self.ridge_, self.tol, start)
        return self

    def _choose_ridge(self, margins: Array, class_index: Array, weights: Array) -> SoftmaxFit:
        """Decode each half of the rows by what is learned from the other; try a smaller ridge if classes are clear.

        Return the mean of what the halves learned, from which what all rows teach is not far.
        """
        halves = self._halves(margins, class_index, weights)
        tol = max(self.tol, _CROSS_TOL)

        def crossed(ridge: float, starts: list[SoftmaxFit]) -> tuple[Array, Array, list[SoftmaxFit]]:
            log_p = np.empty((class_index.size, self.codebook_.n_classes))
            fits: list[SoftmaxFit] = []
            for number, (half, rows, kept, fold) in enumerate(halves):
                start = starts[number] if starts else fits[0] if fits else None
                fits.append(half._learn(rows.part(kept), ridge, tol, start))
                held = rows.part(fold)
                log_p[fold] = fits[-1].log_proba(held.features, held.anchor)
            return log_p, -log_p[np.arange(class_index.size), class_index], fits

        self.cross_log_proba_, losses, fits = crossed(self.ridge_, [])
        total = weights.sum()
        shares = np.bincount(class_index, weights) / total
        if weights @ losses < _CLEAR * float(entr(shares).sum()) * total:
            log_p, smaller, freer = crossed(self.ridge_ / _SMALLER, fits)
            gains = losses - smaller
            gain = weights @ gains / total
            error = np.sqrt(weights @ np.square(gains - gain)) / total
            if gain > error:
                self.cross_log_proba_, self.ridge_, fits = log_p, self.ridge_ / _SMALLER, freer
        return mean_fit(fits)

    def _halves(
        self, margins: Array, class_index: Array, weights: Array
    ) -> list[tuple[CoupledSoftmax, _Rows, Array, Array]]:
        """Return, for each half, a decoder with its first guess, all rows as it reads them, its own and the others."""
        halves: list[tuple[CoupledSoftmax, _Rows, Array, Array]] = []
        for fold in deal_rows(margins, class_index, _FOLDS):
            kept = np.ones(class_index.size, dtype=bool)
            kept[fold] = False
            if np.unique(class_index[kept]).size < self.codebook_.n_classes:
                kept[:] = True  # a class of one row has no halves
            half = copy(self)
            half._guess(margins[kept], class_index[kept], weights[kept])
            rows = _Rows(*half._read(margins.clip(*half.range_)), class_index, weights)
            halves.append((half, rows, kept, fold))
        return halves

    def _guess(self, margins: Array, class_index: Array, weights: Array) -> None:
        """Fit the first guess."""
        codebook = self.codebook_
        self.range_ = np.stack([margins.min(axis=0), margins.max(axis=0)])
        self.spread_ = _spread(margins, weights, about_mean=codebook.is_one_vs_all)
        self.coupling_: Coupling | None = None
        if not codebook.is_one_vs_all and codebook.n_columns > 1:
            honest = Outputs(margins, "leave_one_out")
            self.coupling_ = Coupling().fit(codebook, honest, class_index, sample_weight=weights)

    def _learn(self, rows: _Rows, ridge: float, tol: float, start: SoftmaxFit | None) -> SoftmaxFit:
        """Fit the softmax around the first guess."""
        n_classes = self.codebook_.n_classes
        share = self.smoothing / (self.smoothing + rows.weights.sum())
        problem: dict[str, Any] = {
            "features": rows.features,
            "targets": smooth_targets(rows.class_index, n_classes, share * (n_classes - 1) / n_classes),
            "sample_weight": rows.weights,
            "ridge": self._ridges(ridge),
            "intercept_ridge": ridge,
            "tol": tol,
        }
        fit = fit_softmax(**problem, anchor=rows.anchor, start=start)
        if fit.scale is not None and fit.scale < 0.0:
            # A first guess that is best read backwards is worth nothing.
            fit = replace(fit_softmax(**problem), scale=0.0)
        return fit

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the class probabilities, shape (n, K)."""
        log_p = self.fit_.log_proba(*self._read(outputs.margins.clip(*self.range_)))
        return reweighted(log_p, self.prior_shift_)

    @property
    def squares(self) -> bool:
        """Whether the squares of the outputs are read too."""
        return self.codebook_.n_columns <= _SQUARED

    def _ridges(self, ridge: float) -> Array:
        """Return the ridges of the rows of E, shape (L, 1) or (2L, 1)."""
        of_outputs = np.full((self.codebook_.n_columns, 1), ridge)
        return np.vstack([of_outputs, _CURVED * of_outputs]) if self.squares else of_outputs

    def _read(self, margins: Array) -> tuple[Array, Array]:
        """Return what E reads, shape (n, L) or (n, 2L), and W, the logits of the first guess, shape (n, K)."""
        features = scaled = margins / self.spread_
        if self.squares:
            features = np.hstack([scaled, np.square(scaled)])
        if self.coupling_ is not None:
            return features, self.coupling_.log_proba(Outputs(margins, "new"))
        signs = self.codebook_.matrix.T.clip(min=0 if self.codebook_.n_columns > 1 else -1)
        # The scale of the first guess is free, so outputs that are nothing but rounding must not be one.
        return features, np.where(np.abs(margins) > _SILENT, scaled, 0.0) @ signs


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
