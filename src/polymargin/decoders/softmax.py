"""Softmax decoding: a network reads the outputs (Bravo, L'Huillier, Lobato and Weber 2010, §3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from polymargin._warnings import warn
from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder, prior_shift, reweighted
from polymargin.outputs import Outputs
from polymargin.solvers.parabola import vertex
from polymargin.solvers.softmax import (
    SoftmaxFit,
    fit_softmax,
    log_softmax,
    reduced_features,
    smooth_targets,
)
from polymargin.solvers.softmax_hidden import fit_hidden, train_epochs
from polymargin.solvers.status import Status

#: The search for the ridge, on standardised outputs: first value, factor between values, most steps in a direction.
_FIRST_RIDGE, _RIDGE_STEP, _RIDGE_STEPS_EITHER_WAY = 1.0, 10.0, 3
#: Above this product of rows, outputs and classes the ridge is searched in single precision and with fewer folds.
_MANY = 5_000_000
#: The search ends when a smaller ridge lowers the log-loss by less than this share, or by less than this many nats.
_ENOUGH, _ENOUGH_NATS = 2e-3, 5e-4
#: Tolerance of the fits that compare ridges: the gradient norm, and its share of the gradient of the ridge term.
_ROUGH, _ROUGH_SHARE = 1e-4, 0.1
#: The gradient norm that single precision can reach.
_FINEST = 2e-6


class Softmax(ProbabilisticDecoder):
    """Class probabilities from a softmax of a linear map of all outputs, eq. (14): MCP-SVM-ANN.

    The logit of class k is Σ_l β_kl z_l + b_k, for any codebook, trained by cross-entropy. Without a hidden layer the
    problem is convex and solved to the end; with two classes and one machine it is Platt's sigmoid. A hidden layer of M
    *linear* units multiplies out to a map of rank at most M, so from M = K − 1 on it changes nothing once training
    has converged.

    Parameters
    ----------
    hidden : int or None, default=None
        M, the number of hidden units; None: no hidden layer.
    ridge : float or None, default=None
        Weight decay: ½ ridge ‖β‖² on the map from standardised outputs, biases free, is added to the summed
        cross-entropy. None: chosen by cross-validation of this decoder (the machines are not refitted), for the map
        without the hidden layer.
    smoothing : float, default=0.3
        How many rows' worth of labels is spread evenly over all classes. It keeps the probabilities of rows that no
        training row contradicts away from zero and one. With zero, and a ridge of zero, this is maximum likelihood,
        which for classes that the outputs separate has no finite solution.
    in_sample : bool, default=False
        Whether to learn from in-sample outputs, as the paper does, rather than from out-of-sample ones.
    epochs : int or None, default=None
        None trains to convergence. A number stops the network early, after so many passes (of L-BFGS; the paper does
        not name its method) from small random weights, which makes sense with a hidden layer only.
    max_iter : int, default=500
        The most iterations where ``epochs`` is None.
    random_state : int, RandomState instance or None, default=None
        For the weights that ``epochs`` start from; None is the same as 0, so that a fit can be repeated.

    Attributes
    ----------
    beta_ : ndarray of shape (K, L)
        β of eq. (14), on the outputs as they are; with a hidden layer, the product of the layers.
    intercept_ : ndarray of shape (K,)
        The biases b, which the paper leaves out "for clarity".
    hidden_, output_ : ndarray of shape (M, L) and (K, M), or None
        The two layers, ``β = output_ @ hidden_``.
    ridge_ : float
        The ridge, given or chosen.
    ridge_path_ : dict of float to float, or None
        The cross-validated log-loss of every ridge tried; None if the ridge was given.
    status_ : {"converged", "no_progress", "iteration_limit"}
        How training ended; "no_progress" is as far as rounding allows.
    gradient_norm_ : float
        The largest entry of the gradient per unit of sample weight, on standardised outputs.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors), which is added to the log-probabilities; zero unless priors are given.

    See Also
    --------
    CoupledSoftmax : A softmax around a first guess.
    PlainSoftmax : The softmax without parameters.
    polymargin.solvers.softmax.fit_softmax, polymargin.solvers.softmax_hidden.fit_hidden : The problems that are solved.

    References
    ----------
    .. [1] C. Bravo, G. L'Huillier, J. L. Lobato and R. Weber, "Probability Estimation for Multiclass Problems
           Combining SVMs and Neural Networks", Neural Network World, 2010.
    .. [2] J. C. Platt, "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood
           Methods", Advances in Large Margin Classifiers, MIT Press, 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = StandardScaler().fit_transform(X)
    >>> model = LSSVMClassifier(kernel="rbf", coding="one-vs-all", decoding=Softmax()).fit(X, y)
    >>> model.decoder_.beta_.shape, model.decoder_.status_
    ((3, 3), 'converged')
    >>> model.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    learns = True
    uses_priors = True

    hidden_: Array | None
    output_: Array | None

    def __init__(
        self,
        hidden: int | None = None,
        ridge: float | None = None,
        smoothing: float = 0.3,
        in_sample: bool = False,
        epochs: int | None = None,
        max_iter: int = 500,
        random_state: Any = None,
    ):
        self.hidden = hidden
        self.ridge = ridge
        self.smoothing = smoothing
        self.in_sample = in_sample
        self.epochs = epochs
        self.max_iter = max_iter
        self.random_state = random_state

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
        if self.hidden is not None and self.hidden < 1:
            raise ValueError(f"hidden must be None or at least one unit, not {self.hidden!r}")
        if self.ridge is not None and not self.ridge >= 0.0:
            raise ValueError(f"ridge must be None or a number that is not negative, not {self.ridge!r}")
        if not self.smoothing >= 0.0:
            raise ValueError(f"smoothing must not be negative, not {self.smoothing!r}")
        if self.epochs is not None and (self.epochs < 1 or self.hidden is None):
            raise ValueError(
                "epochs must be None or at least 1, and need a hidden layer: give hidden=10, say"
            )
        if self.max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, not {self.max_iter!r}")

    def fit(
        self,
        codebook: Codebook,
        outputs: Outputs | None,
        class_index: Array,
        *,
        priors: Array | None = None,
        sample_weight: Array | None = None,
    ) -> Softmax:
        """Train the network on the outputs.

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
        Softmax
            The fitted decoder.
        """
        super().fit(codebook, outputs, class_index)
        assert outputs is not None
        self.prior_shift_ = prior_shift(priors, class_index, codebook.n_classes, sample_weight)
        rows = np.ones(class_index.size, dtype=bool) if sample_weight is None else sample_weight > 0.0
        class_index, margins = class_index[rows], outputs.margins[rows]
        weights = np.ones(class_index.size) if sample_weight is None else sample_weight[rows]
        mean, spread = _moments(margins, weights)
        features, back = (margins - mean) / spread, None
        if margins.shape[1] > margins.shape[0]:
            features, back = reduced_features(features)
        targets = _targets(class_index, codebook.n_classes, weights, self.smoothing)
        self.ridge_path_: dict[float, float] | None = None
        if self.ridge is None:
            n_folds = 5 if features.size * codebook.n_classes <= _MANY else 3
            folds = outputs.rows(np.flatnonzero(rows)).deal(class_index).folds(n_folds)
            self.ridge_, self.ridge_path_ = choose_ridge(features, targets, weights, folds)
        else:
            self.ridge_ = float(self.ridge)
        fit = self._train(features, targets, weights)
        self.beta_ = (fit.coef if back is None else back @ fit.coef).T / spread
        if self.hidden_ is not None:
            self.hidden_ = (self.hidden_ if back is None else self.hidden_ @ back.T) / spread
        self.intercept_ = fit.intercept - self.beta_ @ mean
        self.status_, self.gradient_norm_ = fit.status.name.lower(), fit.gradient_norm
        if self.epochs is None and fit.status is Status.ITERATION_LIMIT:
            warn(
                f"the softmax is not trained to the end after {self.max_iter} iterations; give it a larger ridge or "
                "smoothing, or a larger max_iter",
                ConvergenceWarning,
            )
        return self

    def _train(self, features: Array, targets: Array, weights: Array) -> SoftmaxFit:
        """Train on standardised outputs and keep the layers."""
        self.hidden_ = self.output_ = None
        if self.hidden is None:
            return fit_softmax(
                features, targets, sample_weight=weights, ridge=self.ridge_, max_iter=self.max_iter
            )
        if self.epochs is None:
            network = fit_hidden(
                features, targets, weights, self.ridge_, self.hidden, tol=1e-6, max_iter=self.max_iter
            )
        else:
            random = check_random_state(0 if self.random_state is None else self.random_state)
            network = train_epochs(features, targets, weights, self.ridge_, self.hidden, self.epochs, random)
        self.hidden_, self.output_ = network.inward.T, network.outward.T
        return network.fit

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
        logits = outputs.margins @ self.beta_.T + self.intercept_
        return reweighted(log_softmax(logits), self.prior_shift_)


def choose_ridge(
    features: Array, targets: Array, weights: Array, folds: list[Array], **parameters: Any
) -> tuple[float, dict[float, float]]:
    """Return the ridge of least cross-validated log-loss, and the log-loss of every ridge tried.

    The search goes downhill from a middle value in steps of a factor of ten, with warm starts, and ends with the vertex
    of a parabola through the best ridge and its neighbours.

    Parameters
    ----------
    features : ndarray of shape (n, d)
        The features of the softmax.
    targets : ndarray of shape (n, K)
        For every row a distribution over the classes.
    weights : ndarray of shape (n,)
        Row weights.
    folds : list of ndarray of int
        The rows of every fold.
    **parameters : dict
        Further arguments of `fit_softmax`.

    Returns
    -------
    ridge : float
    path : dict of float to float
    """
    if features.size * targets.shape[1] > _MANY:
        features = features.astype(np.float32)
    finest = _FINEST if features.dtype == np.float32 else 0.0
    starts: list[SoftmaxFit | None] = [None] * len(folds)
    path: dict[float, float] = {}

    def loss(ridge: float) -> float:
        total = 0.0
        for number, fold in enumerate(folds):
            kept = np.ones(len(features), dtype=bool)
            kept[fold] = len(folds) == 1  # a single fold: nothing can be held out
            starts[number] = fit = fit_softmax(
                features[kept],
                targets[kept],
                sample_weight=weights[kept],
                ridge=ridge,
                start=starts[number],
                tol=max(finest, _rough_tolerance(ridge, starts[number], weights)),
                max_iter=50,
                **parameters,
            )
            total -= weights[fold] @ np.sum(targets[fold] * fit.log_proba(features[fold]), axis=1)
        path[ridge] = float(total / weights.sum())
        return path[ridge]

    best = _FIRST_RIDGE
    loss(best)
    for factor in (_RIDGE_STEP, 1.0 / _RIDGE_STEP):
        for _ in range(_RIDGE_STEPS_EITHER_WAY):
            before = path[best]
            if loss(best * factor) >= before:
                break
            best *= factor
            # Smaller ridges take longer to fit, so that search ends early.
            if factor < 1.0 and path[best] > before - max(_ENOUGH * before, _ENOUGH_NATS):
                break
        if best != _FIRST_RIDGE:
            break
    return _lowest(best, path), dict(sorted(path.items()))


def _rough_tolerance(ridge: float, start: SoftmaxFit | None, weights: Array) -> float:
    """Return the gradient norm to which a fit must converge to be distinguishable from its warm start."""
    if start is None:
        return _ROUGH
    return min(_ROUGH, _ROUGH_SHARE * ridge * float(np.abs(start.coef).max(initial=0.0)) / weights.sum())


def _lowest(best: float, path: dict[float, float]) -> float:
    """Return the lowest point of the parabola, over log ridge, through the best ridge and its two neighbours."""
    ridges = sorted(path)
    place = ridges.index(best)
    if not 0 < place < len(ridges) - 1:
        return best
    around = ridges[place - 1 : place + 2]
    return float(np.exp(vertex(np.log(around), np.array([path[ridge] for ridge in around]))))


def _moments(margins: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weighted means and standard deviations of the outputs; one for a constant output."""
    mean = weights @ margins / weights.sum()
    spread = np.sqrt(weights @ np.square(margins - mean) / weights.sum())
    rounding = np.maximum(1e-12 * np.abs(margins).max(axis=0), 1e-9)
    return mean, np.where(spread > rounding, spread, 1.0)


def _targets(class_index: Array, n_classes: int, weights: Array, smoothing: float) -> Array:
    """Return n×K targets of which the rows' worth ``smoothing`` is spread evenly over all classes."""
    share = smoothing / (smoothing + weights.sum())
    return smooth_targets(class_index, n_classes, share * (n_classes - 1) / n_classes)
