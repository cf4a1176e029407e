"""Artificial problems whose class probabilities are known.

A `Generator` draws rows and gives the true posterior of any point, so that an estimator's probabilities can
be compared with the truth, not only with labels. All computations are in log space: far from the data the
posterior still sums to one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, log_softmax
from sklearn.utils import check_array, check_random_state

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
RandomState = int | np.random.RandomState | None


class Generator(ABC):
    """A joint distribution of x and class that can be drawn from and whose posterior is known.

    Parameters
    ----------
    name : str
        Short name, the key in `generators()`.
    n_features : int
        Length of x.
    priors : array-like of shape (n_classes,)
        Class probabilities.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The labels 0, 1, ..., in the order of the posterior's columns.
    """

    def __init__(self, name: str, n_features: int, priors: ArrayLike):
        self.name = name
        self.n_features = n_features
        self.priors: FloatArray = np.asarray(priors, dtype=np.float64)
        self.classes: IntArray = np.arange(len(self.priors))

    def sample(self, n_samples: int, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
        """Draw rows.

        Parameters
        ----------
        n_samples : int
            The number of rows.
        random_state : int, RandomState instance or None
            For the draws.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows.
        y : ndarray of int, shape (n_samples,)
            Their classes.
        """
        rng = check_random_state(random_state)
        y = rng.choice(len(self.priors), size=n_samples, p=self.priors).astype(np.int64)
        return self._draw(y, rng), y

    def log_posterior(self, X: ArrayLike) -> FloatArray:
        """Return log P(class | x).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any points.

        Returns
        -------
        log_posterior : ndarray of shape (n_samples, n_classes)
            Logarithms of the true class probabilities.
        """
        rows: FloatArray = check_array(X, dtype=np.float64)
        if rows.shape[1] != self.n_features:
            raise ValueError(f"{self.name} has {self.n_features} features, X has {rows.shape[1]}.")
        return log_softmax(np.log(self.priors) + self._log_likelihood(rows), axis=1)

    def posterior(self, X: ArrayLike) -> FloatArray:
        """Return the true P(class | x).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any points.

        Returns
        -------
        posterior : ndarray of shape (n_samples, n_classes)
            The true class probabilities.
        """
        return np.exp(self.log_posterior(X))

    def bayes_labels(self, X: ArrayLike) -> IntArray:
        """Return the most probable class of each row: no classifier does better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Any points.

        Returns
        -------
        labels : ndarray of int, shape (n_samples,)
            The Bayes classifier's labels.
        """
        return self.classes[self.log_posterior(X).argmax(axis=1)]

    def __repr__(self) -> str:
        return f"<generator {self.name}: {self.n_features} features, {len(self.priors)} classes>"

    @abstractmethod
    def _draw(self, y: IntArray, rng: np.random.RandomState) -> FloatArray:
        """Draw x given the class, shape (n_samples, n_features)."""

    @abstractmethod
    def _log_likelihood(self, X: FloatArray) -> FloatArray:
        """Return log p(x | class) up to a constant per row, shape (n_samples, n_classes)."""


class Gaussians(Generator):
    """Gaussian classes with diagonal covariance matrices.

    Parameters
    ----------
    name : str
    priors : array-like of shape (n_classes,)
    means, variances : array-like of shape (n_classes, n_features)
    """

    def __init__(self, name: str, priors: ArrayLike, means: ArrayLike, variances: ArrayLike):
        self.means: FloatArray = np.asarray(means, dtype=np.float64)
        self.variances: FloatArray = np.broadcast_to(
            np.asarray(variances, dtype=np.float64), self.means.shape
        )
        super().__init__(name, self.means.shape[1], priors)

    def _draw(self, y: IntArray, rng: np.random.RandomState) -> FloatArray:
        noise = rng.standard_normal((len(y), self.n_features))
        return self.means[y] + np.sqrt(self.variances[y]) * noise

    def _log_likelihood(self, X: FloatArray) -> FloatArray:
        # Class by class, so that n·d numbers are held, not n·K·d. The power of 2π is common to all classes.
        columns = [
            -0.5 * (((X - mean) ** 2 / variance).sum(axis=1) + np.log(variance).sum())
            for mean, variance in zip(self.means, self.variances, strict=True)
        ]
        return np.column_stack(columns)


class Led7(Generator):
    """A digit on a seven-segment display whose segments each fail with the same probability.

    Ten equally likely digits; the segments are top, upper left, upper right, middle, lower left, lower right,
    bottom; each bit is inverted independently (Breiman, Friedman, Olshen and Stone, 1984).

    Parameters
    ----------
    noise : float, default=0.1
        Probability that a segment is wrong, strictly between 0 and 1.
    """

    CODES: FloatArray = np.array(
        [
            [1, 1, 1, 0, 1, 1, 1],
            [0, 0, 1, 0, 0, 1, 0],
            [1, 0, 1, 1, 1, 0, 1],
            [1, 0, 1, 1, 0, 1, 1],
            [0, 1, 1, 1, 0, 1, 0],
            [1, 1, 0, 1, 0, 1, 1],
            [1, 1, 0, 1, 1, 1, 1],
            [1, 0, 1, 0, 0, 1, 0],
            [1, 1, 1, 1, 1, 1, 1],
            [1, 1, 1, 1, 0, 1, 1],
        ],
        dtype=np.float64,
    )

    def __init__(self, noise: float = 0.1):
        if not 0.0 < noise < 1.0:
            raise ValueError(f"noise must lie strictly between 0 and 1, it is {noise}.")
        self.noise = noise
        super().__init__("led7", 7, np.full(10, 0.1))

    def _draw(self, y: IntArray, rng: np.random.RandomState) -> FloatArray:
        wrong = rng.random_sample((len(y), 7)) < self.noise
        return np.abs(self.CODES[y] - wrong)

    def _log_likelihood(self, X: FloatArray) -> FloatArray:
        if not np.isin(X, (0.0, 1.0)).all():
            raise ValueError("Segments are 0 or 1.")
        n_wrong = X @ (1 - self.CODES.T) + (1 - X) @ self.CODES.T
        return n_wrong * np.log(self.noise) + (7 - n_wrong) * np.log1p(-self.noise)


class Waveform(Generator):
    """Three classes of random mixtures of two of three triangular waves, plus noise.

    With h_c(i) = max(6 - |i - c|, 0), i = 1..21, a row is x = u h_a + (1 - u) h_b + e, where u is uniform
    on (0, 1) and e standard normal. The peaks (a, b) are (7, 15) for class 0, (7, 11) for class 1 and
    (11, 15) for class 2: the labels of the UCI file (Breiman, Friedman, Olshen and Stone, 1984).
    """

    PEAKS = ((7, 15), (7, 11), (11, 15))

    def __init__(self) -> None:
        place = np.arange(1, 22)
        waves = [[np.maximum(6.0 - np.abs(place - peak), 0.0) for peak in pair] for pair in self.PEAKS]
        self.waves: FloatArray = np.array(waves)
        super().__init__("waveform", 21, np.full(3, 1 / 3))

    def _draw(self, y: IntArray, rng: np.random.RandomState) -> FloatArray:
        u = rng.random_sample((len(y), 1))
        noise = rng.standard_normal((len(y), 21))
        return u * self.waves[y, 0] + (1 - u) * self.waves[y, 1] + noise

    def _log_likelihood(self, X: FloatArray) -> FloatArray:
        """Integrate u out in closed form.

        With r = x - h_b and d = h_a - h_b the density given u is Gaussian in u, so, û = rᵀd / ‖d‖²,
        ∫₀¹ exp(-½‖r - u d‖²) du = √(2π)/‖d‖ · exp(-½(‖r‖² - û²‖d‖²)) · [Φ(‖d‖(1 - û)) - Φ(-‖d‖û)].
        """
        columns = []
        for wave_a, wave_b in self.waves:
            r, d = X - wave_b, wave_a - wave_b
            length = np.linalg.norm(d)
            along = r @ d / length  # û‖d‖
            rest = r - np.outer(along, d / length)  # ‖rest‖² = ‖r‖² - û²‖d‖² without cancellation
            log_mass = _log_normal_mass(-along, length - along)
            columns.append(log_mass - 0.5 * (rest**2).sum(axis=1) - np.log(length))
        return np.column_stack(columns)


def _log_normal_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return log(Φ(high) - Φ(low)) for low < high, elementwise, exact in both tails.

    >>> _log_normal_mass(np.array([-1.0, 40.0]), np.array([1.0, 45.0])).round(3).tolist()
    [-0.382, -804.608]
    """
    # In the upper half both Φ are near one; the mirror image has the same mass without the cancellation.
    mirror = low + high > 0
    low, high = np.where(mirror, -high, low), np.where(mirror, -low, high)
    log_high = log_ndtr(high)
    return log_high + np.log1p(-np.exp(log_ndtr(low) - log_high))


# Gönen et al. (2008), Table I: priors, means and variances; all covariance matrices are diagonal.
_WIDE = (2.0, 4.0)
_UPRIGHT, _FLAT, _ROUND = (0.25, 1.0), (1.0, 0.25), (1.0, 1.0)
_TWO, _THREE = (0.7, 0.3), (0.5, 0.3, 0.2)

_GENERATORS: Mapping[str, Generator] = MappingProxyType(
    {
        generator.name: generator
        for generator in (
            Led7(),
            Waveform(),
            Gaussians("twonorm", (0.5, 0.5), np.outer((1.0, -1.0), np.full(20, 2 / np.sqrt(20))), 1.0),
            Gaussians("r1", _TWO, ((0, 0), (2, 2)), _WIDE),
            Gaussians("r2", _TWO, ((0, 0), (2, 0)), (_UPRIGHT, _FLAT)),
            Gaussians("r3", _THREE, ((0, 0), (2, 0), (2, 2)), _WIDE),
            Gaussians("r4", _THREE, ((0, 0), (2, 0), (2, 2)), (_UPRIGHT, _FLAT, _ROUND)),
        )
    }
)


def generators() -> Mapping[str, Generator]:
    """Return all generators by name: led7, waveform, twonorm, r1, r2, r3, r4.

    Returns
    -------
    mapping of str to Generator

    Examples
    --------
    >>> r1 = generators()["r1"]
    >>> r1.posterior([[1.0, 1.0], [0.0, 0.0]])
    array([[0.7   , 0.3   ],
           [0.9127, 0.0873]])
    >>> r1.bayes_labels([[3.0, 3.0]])
    array([1])
    """
    return _GENERATORS


def make_led7(
    n_samples: int = 600, *, noise: float = 0.1, random_state: RandomState = None
) -> tuple[FloatArray, IntArray]:
    """Draw from the seven-segment display, see `Led7`.

    Parameters
    ----------
    n_samples : int
        The number of rows.
    noise : float
        Probability that a segment is wrong, strictly between 0 and 1.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 7)
        The rows, of zeros and ones.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 9.

    Examples
    --------
    >>> X, y = make_led7(3, random_state=0)
    >>> X.shape, y.shape
    ((3, 7), (3,))
    """
    return Led7(noise).sample(n_samples, random_state)


def make_waveform(n_samples: int = 5000, *, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
    """Draw from the waveform problem, see `Waveform`.

    Parameters
    ----------
    n_samples : int
        The number of rows.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 21)
        The rows.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 2.
    """
    return _GENERATORS["waveform"].sample(n_samples, random_state)


def make_twonorm(n_samples: int = 7400, *, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
    """Draw from N(+a, I), class 0, and N(-a, I), class 1, a = 2/√20 in all 20 coordinates (Breiman, 1996).

    Parameters
    ----------
    n_samples : int
        The number of rows.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 20)
        The rows.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 1.
    """
    return _GENERATORS["twonorm"].sample(n_samples, random_state)


def make_r1(n_samples: int = 400, *, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
    """Draw from R1 of Gönen et al. (2008), Table I: two wide Gaussians in the plane, priors 0.7 and 0.3.

    Parameters
    ----------
    n_samples : int
        The number of rows.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The rows.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 1.
    """
    return _GENERATORS["r1"].sample(n_samples, random_state)


def make_r2(n_samples: int = 400, *, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
    """Draw from R2 of Gönen et al. (2008), Table I: an upright and a flat Gaussian, priors 0.7 and 0.3.

    Parameters
    ----------
    n_samples : int
        The number of rows.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The rows.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 1.
    """
    return _GENERATORS["r2"].sample(n_samples, random_state)


def make_r3(n_samples: int = 400, *, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
    """Draw from R3 of Gönen et al. (2008), Table I: three wide Gaussians, priors 0.5, 0.3 and 0.2.

    Parameters
    ----------
    n_samples : int
        The number of rows.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The rows.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 2.
    """
    return _GENERATORS["r3"].sample(n_samples, random_state)


def make_r4(n_samples: int = 400, *, random_state: RandomState = None) -> tuple[FloatArray, IntArray]:
    """Draw from R4 of Gönen et al. (2008), Table I: upright, flat and round, priors 0.5, 0.3 and 0.2.

    Parameters
    ----------
    n_samples : int
        The number of rows.
    random_state : int, RandomState instance or None
        For the draws.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The rows.
    y : ndarray of int, shape (n_samples,)
        Their classes, from 0 to 2.
    """
    return _GENERATORS["r4"].sample(n_samples, random_state)
