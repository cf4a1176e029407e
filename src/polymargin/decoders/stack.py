"""Stacking: a second classifier reads the outputs (Mayoraz and Alpaydın 1998, §§4–6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder
from polymargin.decoders.argmax import over_norms
from polymargin.outputs import Outputs


class Stack(ProbabilisticDecoder):
    """A second classifier, trained on the outputs of the machines as features.

    This is the paper's a-posteriori reconstruction m: R^L → R^K, "basically any classification technique". It
    solves the problem of outputs in different ranges, because it learns from them.

    If the classifier has ``predict_proba``, the label is the most probable class, even where the classifier's own
    ``predict`` differs. Otherwise the scores are its ``decision_function``, or its predictions if it has none with one
    value per class.

    Parameters
    ----------
    estimator : classifier or None, default=None
        A scikit-learn classifier. A clone is fitted to the L outputs and the classes 0, …, K−1.
        None: ``LinearSVC()``, one linear SVM per class, as the paper stacks SVMs on SVMs.
    in_sample : bool, default=False
        Whether to learn from in-sample outputs rather than from out-of-sample ones (the paper asks for "new data").
    scale : {None, "norm"}, default=None
        "norm" multiplies the outputs by π_w = 1/‖w‖ first, eqs. (3)–(4).

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.

    See Also
    --------
    Mixture : A linear map of the outputs.
    Softmax : A softmax of a linear map.

    References
    ----------
    .. [1] E. Mayoraz and E. Alpaydın, "Support Vector Machines for Multi-Class Classification", IDIAP-RR 98-06, 1998.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LSSVMClassifier(decoding=Stack(LogisticRegression())).fit(StandardScaler().fit_transform(X), y)
    >>> model.predict_proba(StandardScaler().fit_transform(X)[:1]).round(1)
    array([[1., 0., 0.]])
    """

    learns = True

    def __init__(self, estimator: Any = None, in_sample: bool = False, scale: str | None = None):
        self.estimator = estimator
        self.in_sample = in_sample
        self.scale = scale

    @property
    def probabilistic(self) -> bool:  # type: ignore[override]
        """Whether the classifier has probabilities."""
        return hasattr(getattr(self, "estimator_", self.estimator), "predict_proba")

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Stack:
        """Train the classifier on the outputs.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies behind the outputs.
        outputs : Outputs
            The outputs of the training rows.
        class_index : ndarray of int, shape (n,)
            The classes of these rows.
        priors : ndarray of shape (K,) or None
            Ignored.
        sample_weight : ndarray of shape (n,) or None
            Row weights.

        Returns
        -------
        Stack
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        estimator = _linear_svms() if self.estimator is None else clone(self.estimator)
        self.estimator_ = estimator.fit(
            self._features(outputs), class_index, **_weight_parameter(estimator, sample_weight)
        )
        return self

    def check(self, codebook: Codebook) -> None:
        """Raise ValueError for an unknown scale.

        Parameters
        ----------
        codebook : Codebook
            The codebook behind the outputs.

        Raises
        ------
        ValueError
            If the decoder cannot be used with this codebook or these parameters.
        """
        if self.scale not in (None, "norm"):
            raise ValueError(f'unknown scale {self.scale!r}; choose None or "norm"')

    def log_proba(self, outputs: Outputs) -> Array:
        """Return the logarithms of the classifier's probabilities, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
        """
        proba = self._all_classes(self.estimator_.predict_proba(self._features(outputs)), missing=0.0)
        # Clip so that the logarithm is finite.
        return np.log(np.maximum(proba, np.finfo(np.float64).tiny))

    def scores(self, outputs: Outputs) -> Array:
        """Return the log-probabilities, or else the classifier's decision function or predictions, shape (n, K).

        Parameters
        ----------
        outputs : Outputs
            The outputs of the machines for n rows.

        Returns
        -------
        ndarray of shape (n, K)
            The largest in a row gives its label.
        """
        if self.probabilistic:
            return self.log_proba(outputs)
        values = self._decisions(self._features(outputs))
        return self._all_classes(values, missing=values.min(axis=1, keepdims=True) - 1.0)

    def _features(self, outputs: Outputs) -> Array:
        return over_norms(outputs) if self.scale == "norm" else outputs.margins

    def _decisions(self, features: Array) -> Array:
        """Return one value for each of the classifier's classes."""
        known = self.estimator_.classes_
        by_pairs = known.size > 2 and _decides_by_pairs(self.estimator_)
        if hasattr(self.estimator_, "decision_function") and not by_pairs:
            values = np.asarray(self.estimator_.decision_function(features), dtype=np.float64)
            if known.size == 2 and values.size == features.shape[0]:
                # Half on either side: the difference of the two scores is the classifier's own decision.
                return 0.5 * values.reshape(-1, 1) * np.array([-1.0, 1.0])
            if values.shape == (features.shape[0], known.size):
                return values
        return (self.estimator_.predict(features)[:, np.newaxis] == known).astype(np.float64)

    def _all_classes(self, values: Array, missing: Any) -> Array:
        """Return values for all K classes, shape (n, K), with `missing` for those the classifier does not have."""
        every = np.empty((values.shape[0], self.codebook_.n_classes))
        every[:] = missing
        every[:, self.estimator_.classes_] = values
        return every


def _linear_svms() -> Any:
    """Return the default classifier, one linear SVM per class."""
    from sklearn.svm import LinearSVC  # imported late because it is slow to import

    return LinearSVC(random_state=0)


def _weight_parameter(estimator: Any, sample_weight: Array | None) -> dict[str, Array]:
    """Return the keyword with which the classifier's `fit` takes row weights."""
    if sample_weight is None:
        return {}
    name, last = "sample_weight", estimator
    while hasattr(last, "steps"):  # a pipeline passes the weights to its last step
        step, last = last.steps[-1]
        name = f"{step}__{name}"
    if has_fit_parameter(last, "sample_weight"):
        return {name: sample_weight}
    if np.ptp(sample_weight) > 0.0:
        raise ValueError(
            f"{last!r} takes no sample weights; stack a classifier that does, or fit without weights"
        )
    return {}


def _decides_by_pairs(estimator: Any) -> bool:
    """Return whether the decision function has one value per pair of classes, as SVC's can."""
    parameters = estimator.get_params()
    return any(
        name.split("__")[-1] == "decision_function_shape" and value == "ovo"
        for name, value in parameters.items()
    )
