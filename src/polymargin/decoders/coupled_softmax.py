"""Coupled softmax: a ridge-penalised softmax of the outputs, with the logits of pairwise coupling as an offset."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from polymargin._threads import in_threads
from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, prior_shift, reweighted, significant
from polymargin.decoders.coupling import Coupling
from polymargin.outputs import Outputs
from polymargin.solvers._softmax_steps import step_parts
from polymargin.solvers.softmax import SoftmaxFit, fit_softmax, mean_fit, smooth_targets
from polymargin.solvers.tempering import contaminated, contamination, temper, tempered

#: The squares of the outputs are used up to this many machines, with this multiple of the ridge of the outputs.
_SQUARED, _CURVED = 60, 3.0
#: More outputs than this are rotated to as many as there are rows, if rows are fewer. That changes rounding errors
#: only, and with fewer machines saves little time. (With the 1770 machines of 60 classes of 12 rows a fit takes 11 s in
#: place of 18, with the 7140 of 120 classes 95 s in place of many minutes.)
_ROTATED = 1000
#: The candidate ridges, in multiples of half the number of machines (or of classes, if there are more).
RIDGES: tuple[float, ...] = (1.0, 1.0 / 16.0)
#: A smaller ridge must lower the log-loss by this many standard errors of the difference.
_SIGNIFICANCE = 2.0
#: Number of folds in which ridges are compared.
N_FOLDS = 2
#: Tolerance (gradient norm) of the fits of the folds.
_CROSS_TOL = 1e-7
#: Lower bound on the scale of the outputs: below it, leave-one-out margins are dominated by the leave-one-out shift.
_LEAST_SPREAD = 0.25
#: Outputs smaller than this are treated as zero; a first guess that varies by less than this as constant.
SMALLEST_OUTPUT, _CONSTANT = 1e-9, 1e-6
#: A weak ridge that shrinks the scale of the first guess, in natural units, towards one: it keeps the scale finite
#: where outputs hardly differ, and costs a tenth of a nat at a scale of five.
_SCALE_RIDGE = 0.01


class _Fold(NamedTuple):
    """A fold of the training rows: its first guess is fitted to the other rows."""

    decoder: CoupledSoftmax
    features: Array  # (n, L) or (n, 2L), of all rows
    anchor: Array  # (n, K), the logits of the first guess
    kept: Array  # the mask of the rows to learn from
    held: Array  # the other rows


class CoupledSoftmax(ProbabilisticDecoder):
    """Class probabilities from a softmax of all outputs around a first guess: the default of `LSSVMClassifier`.

    The logits are s·W + [z, z²] E + b. W is a first guess that the codebook implies: the log-probabilities of pairwise
    coupling (`Coupling`); in one-vs-all coding the outputs themselves; with a single machine plus and minus its output.
    The coefficients E of the outputs and their squares, and the bias b, are penalised by ½ ridge ‖·‖²; the scale s is
    not. With few rows this is coupling with a temperature, with many a softmax regression on all outputs. The squares
    are there because a least-squares machine estimates a probability, not its logit; with more than 60 machines they
    are left out. Outputs are clipped to the range of the training rows.

    Parameters
    ----------
    ridge : float or None, default=None
        The ridge on E, for outputs of unit variance, and on b; three times as much for the squares. None: half the
        number of machines, or of classes if that is larger; or a sixteenth of that, if its cross-fitted log-loss is
        lower by two standard errors.
    smoothing : float, default=0.3
        How many rows' worth of labels is spread evenly over all classes. It keeps the probabilities of rows that no
        training row contradicts away from zero and one.
    in_sample : bool, default=False
        Whether to learn from in-sample outputs rather than from out-of-sample ones.
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
        The cross-fitted log-probabilities of the training rows; None if the ridge was given.
    trust_ : float
        u in p^u π^(1−u), between the class frequencies π and the probabilities p of the softmax, by cross-fitted
        log-loss; it is multiplied into ``fit_``.
    contamination_ : float
        The weight of the class frequencies in a mixture with the probabilities, which bounds them away from zero and
        one; see `polymargin.solvers.tempering.contamination`.
    log_prior_ : ndarray of shape (K,)
        The logarithms of the class frequencies.
    spread_ : float
        The root mean square of the outputs, all taken together.
    range_ : ndarray of shape (2, L)
        The least and the largest outputs of the training rows.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors), which is added to the log-probabilities; zero unless priors are given.

    See Also
    --------
    Coupling : The first guess.
    Softmax : The softmax without a first guess.
    polymargin.solvers.softmax.fit_softmax : The problem that is solved.
    polymargin.solvers.tempering.temper : How far the probabilities are trusted.

    References
    ----------
    .. [1] T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for Multi-class Classification by Pairwise
           Coupling", Journal of Machine Learning Research 5, 2004.
    .. [2] C. Bravo, G. L'Huillier, J. L. Lobato and R. Weber, "Probability Estimation for Multiclass Problems
           Combining SVMs and Neural Networks", Neural Network World, 2010.

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
    uses_priors = True

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
        """Raise ValueError for invalid parameters.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
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
        """Fit the first guess, then the softmax around it.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs
            The outputs of the training rows.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            The class probabilities to expect in use; None for those of the training rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        CoupledSoftmax
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        weights = np.ones(class_index.size) if sample_weight is None else sample_weight
        self.prior_shift_ = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        self.cross_log_proba_: Array | None = None
        self.trust_, self.contamination_ = 1.0, 0.0
        start = None
        if self.ridge is None:
            start = self._cross_fit(outputs, class_index, weights)
        else:
            self.ridge_ = float(self.ridge)
        self._guess(outputs.margins, class_index, weights)
        features, anchor = self._read(outputs.margins)
        fit = self._learn(features, anchor, class_index, weights, self.ridge_, self.tol, start)
        self.log_prior_ = log_prior = self._prior_log_proba(codebook, class_index, weights)[0]
        if self.trust_ < 1.0:
            intercept = self.trust_ * (fit.intercept - log_prior) + log_prior
            fit = replace(
                fit, coef=self.trust_ * fit.coef, scale=self.trust_ * (fit.scale or 0.0), intercept=intercept
            )
        self.fit_ = fit
        return self

    def cross_fit(
        self, codebook: Codebook, outputs: Outputs, class_index: Array, *, sample_weight: Array | None = None
    ) -> Array:
        """Return cross-fitted log-probabilities, by which the ridge is chosen unless it is given.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs
            Out-of-sample outputs of the training rows.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        log_proba : ndarray of shape (n, K)
            Class frequencies for rows that are in no fold.
        """
        super().fit(codebook, outputs, class_index)
        weights = np.ones(class_index.size) if sample_weight is None else sample_weight
        self._cross_fit(outputs, class_index, weights)
        assert self.cross_log_proba_ is not None
        return self.cross_log_proba_

    def _cross_fit(self, outputs: Outputs, class_index: Array, weights: Array) -> SoftmaxFit | None:
        """Set the ridge, the cross-fitted log-probabilities, the trust and the contamination.

        Ridges are compared on plain leave-one-out outputs, in few folds: that is cheap, and the same for all ridges.
        Everything else is estimated from nested outputs, where there are some. Return the average of the folds' fits,
        a warm start for the fit to all rows.
        """
        start = None
        if self.ridge is None:
            folds = self._folds(replace(outputs, nested=None), class_index, weights)
            own = np.arange(class_index.size), class_index
            unit = max(self.codebook_.n_classes, self.codebook_.n_columns) / 2
            self.ridge_, *smaller = (unit * np.array(RIDGES)).tolist()
            log_p, fits = self._learn_folds(folds, self.ridge_, class_index, weights, [None] * len(folds))
            for ridge in smaller:
                tried, of_ridge = self._learn_folds(folds, ridge, class_index, weights, fits)
                if significant(tried[own] - log_p[own], weights, _SIGNIFICANCE):
                    self.ridge_, log_p, fits = ridge, tried, of_ridge
            start = mean_fit(fits) if fits else None
        else:
            self.ridge_ = float(self.ridge)
        if self.ridge is not None or outputs.nested is not None:
            folds = self._folds(outputs, class_index, weights)
            log_p, fits = self._learn_folds(folds, self.ridge_, class_index, weights, [start] * len(folds))
            start = mean_fit(fits) if fits else None
        self._temper(log_p, folds, class_index, weights)
        return start

    def _learn_folds(
        self,
        folds: list[_Fold],
        ridge: float,
        class_index: Array,
        weights: Array,
        starts: Sequence[SoftmaxFit | None],
    ) -> tuple[Array, list[SoftmaxFit]]:
        """Return the cross-fitted log-probabilities, shape (n, K), and the fits of the folds."""
        tol = max(self.tol, _CROSS_TOL)
        log_p = self._prior_log_proba(self.codebook_, class_index, weights)

        def learn(task: tuple[_Fold, SoftmaxFit | None]) -> SoftmaxFit:
            (decoder, features, anchor, kept, _), start = task
            known = features[kept], anchor[kept], class_index[kept], weights[kept]
            return decoder._learn(*known, ridge, tol, start)

        fits: list[SoftmaxFit] = []
        if folds and starts[0] is None:
            # What the first fold has learned is the warm start of the others.
            fits = [learn((folds[0], None))]
            starts = [None, *(fits[0] if start is None else start for start in starts[1:])]
        tasks = list(zip(folds, starts, strict=True))[len(fits) :]
        # Threads share the folds, or the rows of one after the other if these have more parts.
        n_coefficients = log_p.shape[1] * folds[0].features.shape[1] if folds else 0
        n_parts = max((len(step_parts(int(fold.kept.sum()), n_coefficients)) for fold in folds), default=0)
        fits += list(map(learn, tasks)) if n_parts > len(folds) else in_threads(learn, tasks)
        for (_, features, anchor, _, held), fit in zip(folds, fits, strict=True):
            log_p[held] = fit.log_proba(features[held], anchor[held])
        return log_p, fits

    def _temper(self, log_p: Array, folds: list[_Fold], class_index: Array, weights: Array) -> None:
        """Set trust and contamination, and the cross-fitted log-probabilities with those of the other folds."""
        log_prior = self._prior_log_proba(self.codebook_, class_index, weights)
        for *_, kept, fold in folds:
            of_others = self._prior_log_proba(self.codebook_, class_index[kept], weights[kept])
            log_prior[fold] = of_others[0]
        self.trust_ = temper(log_p, log_prior, class_index, weights)
        self.cross_log_proba_ = log_p.copy()
        for *_, kept, fold in folds:
            trust = temper(log_p[kept], log_prior[kept], class_index[kept], weights[kept])
            self.cross_log_proba_[fold] = tempered(log_p[fold], log_prior[fold], trust)
        honest = self.cross_log_proba_.copy()
        self.contamination_ = contamination(honest, log_prior, class_index, weights)
        for *_, kept, fold in folds:
            share = contamination(honest[kept], log_prior[kept], class_index[kept], weights[kept])
            self.cross_log_proba_[fold] = contaminated(honest[fold], log_prior[fold], share)

    def _folds(self, outputs: Outputs, class_index: Array, weights: Array) -> list[_Fold]:
        """Return the folds, each with the features and anchors of a decoder that has not seen it."""
        folds: list[_Fold] = []
        for of_fold, kept, held in outputs.held_out(class_index, N_FOLDS):
            margins = of_fold.margins
            decoder = copy(self)
            decoder._guess(margins[kept], class_index[kept], weights[kept])
            folds.append(_Fold(decoder, *decoder._read(margins.clip(*decoder.range_)), kept, held))
        return folds

    def _guess(self, margins: Array, class_index: Array, weights: Array) -> None:
        """Fit the first guess, and set the range and the spread of the outputs."""
        codebook = self.codebook_
        self.range_ = np.stack([margins.min(axis=0), margins.max(axis=0)])
        # The root mean square of all outputs taken together. One-vs-all outputs are mostly negative, and are taken
        # about their mean; elsewhere the signs are arbitrary.
        shares = weights / weights.sum()
        mean = float(shares @ margins.mean(axis=1)) if codebook.is_one_vs_all else 0.0
        self.spread_ = max(float(shares @ np.square(margins - mean).mean(axis=1)) ** 0.5, _LEAST_SPREAD)
        self.coupling_: Coupling | None = None
        if not codebook.is_one_vs_all and codebook.n_columns > 1:
            honest = Outputs(margins, "leave_one_out")
            self.coupling_ = Coupling().fit(codebook, honest, class_index, sample_weight=weights)

    def _learn(
        self,
        features: Array,
        anchor: Array,
        class_index: Array,
        weights: Array,
        ridge: float,
        tol: float,
        start: SoftmaxFit | None,
    ) -> SoftmaxFit:
        """Fit the softmax around the first guess.

        The log class frequencies are an offset of the logits, so that zero coefficients predict the frequencies. The
        first guess is therefore taken relative to them if it is a coupling; if it consists of outputs, it is
        standardised.
        """
        n_classes = self.codebook_.n_classes
        total = weights.sum()
        share = self.smoothing / (self.smoothing + total)
        targets = smooth_targets(class_index, n_classes, share * (n_classes - 1) / n_classes)
        offset = np.log(weights @ targets / total)
        if self.coupling_ is not None:
            middle, unit = offset, 1.0
        else:
            middle = weights @ anchor / total
            unit = float(np.sqrt(weights @ np.square(anchor - middle).mean(axis=1) / total))
        ridges: float | Array = ridge
        if self.codebook_.n_columns <= _ROTATED:  # one ridge for each feature, which forbids rotations
            ridges = np.full((features.shape[1], 1), ridge)
            ridges[self.codebook_.n_columns :] *= _CURVED  # of the squares
        problem: dict[str, Any] = {
            "features": features,
            "targets": targets,
            "sample_weight": weights,
            "ridge": ridges,
            "intercept_ridge": ridge,
            "offset": offset,
            "tol": tol,
        }
        fit = None
        if unit > _CONSTANT:
            if start is not None and start.scale is not None:
                intercept = start.intercept - offset + start.scale * middle
                start = replace(start, scale=start.scale * unit, intercept=intercept)
            fit = fit_softmax(
                **problem, anchor=(anchor - middle) / unit, scale_ridge=_SCALE_RIDGE, start=start
            )
        if fit is None or fit.scale is None or fit.scale < 0.0:
            # A negative scale means that the first guess is uninformative: it is dropped.
            fit = replace(fit_softmax(**problem), scale=0.0)
        assert fit.scale is not None
        scale = fit.scale / unit if unit > _CONSTANT else 0.0
        return replace(fit, scale=scale, intercept=fit.intercept + offset - scale * middle)

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the class probabilities, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
        """
        log_p = self.fit_.log_proba(*self._read(outputs.margins.clip(*self.range_)))
        return reweighted(contaminated(log_p, self.log_prior_, self.contamination_), self.prior_shift_)

    @property
    def squares(self) -> bool:
        """Whether the squares of the outputs are features as well."""
        return self.codebook_.n_columns <= _SQUARED

    def _read(self, margins: Array) -> tuple[Array, Array]:
        """Return the features, shape (n, L) or (n, 2L), and W, the logits of the first guess, shape (n, K)."""
        features = scaled = margins / self.spread_
        if self.squares:
            features = np.hstack([scaled, np.square(scaled)])
        if self.coupling_ is not None:
            return features, self.coupling_.log_proba(Outputs(margins, "new"))
        signs = self.codebook_.matrix.T.clip(min=0 if self.codebook_.n_columns > 1 else -1)
        # The scale of the first guess is free, so rounding errors must be set to zero.
        return features, np.where(np.abs(margins) > SMALLEST_OUTPUT, scaled, 0.0) @ signs
