"""Feature maps: a kernel as an inner product of finitely many features, exactly or by landmarks (Nyström).

With landmarks Z and RᵀR = K(Z, Z) the features of a row are φ(x) = R⁻ᵀ K(Z, x): φ(x)·φ(z) is the projection of the
kernel on the functions K(·, Z). Polynomial and linear kernels of few columns have an explicit map, which is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack
from scipy.linalg.blas import dtrmm

from polymargin import _memory
from polymargin.kernels import Kernel
from polymargin.rows import TrainingRows
from polymargin.scale.statistics import ClassStatistics

Array = NDArray[Any]

#: Landmarks whose squared distance from the span of the others is less than this part of K(x, x) are dropped: single
#: digits of their features would be rounding errors of the kernel.
_LEAST_RESIDUAL = 1e-10


class FeatureMap(Protocol):
    """A finite feature map of a kernel."""

    @property
    def kernel(self) -> Kernel:
        """The kernel, fitted to training rows."""

    @property
    def gamma(self) -> float:
        """The kernel's parameter."""

    @property
    def n_features(self) -> int:
        """The number of features D."""

    @property
    def centre(self) -> Array:
        """What is subtracted from the features, shape (D,)."""

    @property
    def on_cpu(self) -> LandmarkMap | ExplicitMap:
        """The same map, computed on the CPU."""

    def __call__(self, X: Any) -> Array:
        """Return the features of rows, shape (n, D), about a fixed centre."""

    def times(self, X: Any, weights: Array) -> Array:
        """Return the features of rows times weights of shape (D, L), shape (n, L)."""

    def missing(self, X: Any) -> Array:
        """Return K(x, x) − φ(x)·φ(x) of rows, what the map leaves out, shape (n,)."""

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of rows whose features are computed together."""

    def statistics(self, rows: TrainingRows, n_classes: int, together: bool) -> ClassStatistics:
        """Return the statistics of the classes among rows; `together`: the products of all classes are added up."""


class _OnCPU(ABC):
    """What the maps below have in common: their features are computed on the CPU."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number of features D."""

    @abstractmethod
    def __call__(self, X: Any) -> Array:
        """Return the features of rows, shape (n, D)."""

    @property
    def on_cpu(self) -> Self:
        """The map itself."""
        return self

    def times(self, X: Any, weights: Array) -> Array:
        """Return the features of rows times weights.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        weights : ndarray of shape (D, L)
            The weights.

        Returns
        -------
        ndarray of shape (n, L)
        """
        return self(X) @ weights

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of rows whose features are computed together.

        Parameters
        ----------
        n_rows : int
            The number of rows.

        Yields
        ------
        slice
        """
        return _memory.row_blocks(n_rows, self.n_features)

    def statistics(self, rows: TrainingRows, n_classes: int, together: bool) -> ClassStatistics:
        """Return the statistics of the classes among rows.

        Parameters
        ----------
        rows : TrainingRows
            The rows.
        n_classes : int
            K.
        together : bool
            Whether the products of all classes are added up.

        Returns
        -------
        ClassStatistics
        """
        return ClassStatistics.of(
            self(rows.X),
            rows.class_index,
            rows.weights,
            n_classes=n_classes,
            soft_labels=rows.soft_labels,
            together=together,
        )


@dataclass(frozen=True)
class LandmarkMap(_OnCPU):
    """The features of a kernel by landmarks.

    Attributes
    ----------
    kernel : Kernel
        The kernel, fitted to training rows.
    gamma : float
        The kernel's parameter.
    landmarks : array or sparse matrix of shape (D, d)
        The landmarks Z, none of them in the span of the others.
    whitening : ndarray of shape (D, D)
        R⁻¹, upper triangular.
    centre : ndarray of shape (D,)
        What is subtracted from the features, the mean of a sample, so that statistics of them do not cancel.

    See Also
    --------
    ExplicitMap : The features of polynomial kernels.

    Examples
    --------
    >>> from polymargin.kernels import RBF
    >>> X = np.array([[0.0], [1.0], [1.0], [4.0]])
    >>> features = LandmarkMap.of(RBF(), 0.5, X[:3])
    >>> features.n_features, bool(np.allclose(features(X[:2]) @ features(X[:2]).T, RBF().gram(X[:2], gamma=0.5)))
    (2, True)
    >>> features.missing(X).round(2)
    array([0., 0., 0., 1.])
    """

    kernel: Kernel
    gamma: float
    landmarks: Any
    whitening: Array
    centre: Array

    @classmethod
    def of(cls, kernel: Kernel, gamma: float, landmarks: Any) -> LandmarkMap:
        """Return the map of these landmarks, but for those that the others span, about zero.

        Parameters
        ----------
        kernel : Kernel
            The kernel, fitted to training rows.
        gamma : float
            The kernel's parameter.
        landmarks : array or sparse matrix of shape (r, d)
            Rows.

        Returns
        -------
        LandmarkMap
        """
        K = np.asfortranarray(kernel.gram(landmarks, gamma=gamma), dtype=np.float64)
        if not np.isfinite(K).all():
            raise ValueError(
                "the kernel matrix of the landmarks holds infinite or undefined values; scale the features, for "
                "example with StandardScaler"
            )
        upper, pivots, rank, _ = lapack.dpstrf(K, tol=_LEAST_RESIDUAL * float(np.diagonal(K).max()))
        kept = pivots[:rank] - 1
        inverse, info = lapack.dtrtri(np.asfortranarray(upper[:rank, :rank]))
        if info != 0 or not rank:
            raise ValueError("the kernel is zero at all landmarks: there is nothing to learn from it")
        return cls(kernel, float(gamma), landmarks[kept], np.triu(inverse), np.zeros(rank))

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.centre.size

    def __call__(self, X: Any) -> Array:
        """Return the features of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, D)
        """
        K = self.kernel.gram(X, self.landmarks, self.gamma)
        # K R⁻¹, from the right; the transpose of a row-major matrix is what BLAS calls by columns.
        values = dtrmm(1.0, self.whitening, K.T, side=0, lower=0, trans_a=1, overwrite_b=1).T
        values -= self.centre
        return values

    def missing(self, X: Any) -> Array:
        """Return K(x, x) − φ(x)·φ(x) of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        values = self(X) + self.centre
        explained = np.einsum("nd,nd->n", values, values)
        return np.maximum(self.kernel.diagonal(X, self.gamma) - explained, 0.0)


@dataclass(frozen=True)
class ExplicitMap(_OnCPU):
    """The explicit feature map of a polynomial or linear kernel, but for its constant.

    Attributes
    ----------
    kernel : Kernel
        The kernel, fitted to training rows.
    gamma : float
        The kernel's parameter.
    unit : float
        The unit in which rows are measured.
    scales : ndarray of shape (D,)
        What the features are multiplied by.
    centre : ndarray of shape (D,)
        What is subtracted from them, the mean of a sample.

    See Also
    --------
    LandmarkMap : The features of any kernel.

    Examples
    --------
    >>> from polymargin.kernels import Linear
    >>> ExplicitMap.of(Linear(), 1.0, np.array([[2.0], [4.0]]))(np.array([[3.0]]))
    array([[3.]])
    """

    kernel: Kernel
    gamma: float
    unit: float
    scales: Array
    centre: Array

    @classmethod
    def of(cls, kernel: Kernel, gamma: float, X: Any) -> ExplicitMap:
        """Return the map of a kernel that has one, about zero.

        Parameters
        ----------
        kernel : Kernel
            The kernel, fitted to training rows.
        gamma : float
            The kernel's parameter.
        X : array or sparse matrix of shape (n, d)
            A sample of rows, for their unit.

        Returns
        -------
        ExplicitMap
        """
        features = kernel.features(X.toarray() if sparse.issparse(X) else X)
        scales = np.sqrt(features.powers(gamma))
        return cls(kernel, float(gamma), features.unit, scales, np.zeros(scales.size))

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.centre.size

    def __call__(self, X: Any) -> Array:
        """Return the features of rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, D)
        """
        values = self.kernel.features(X.toarray() if sparse.issparse(X) else X, self.unit).values
        return values * self.scales - self.centre

    def missing(self, X: Any) -> Array:
        """Return zeros: an explicit map leaves nothing out.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
        """
        return np.zeros(X.shape[0])


def centred(features: LandmarkMap | ExplicitMap, X: Any) -> LandmarkMap | ExplicitMap:
    """Return a feature map about the mean of these rows.

    Parameters
    ----------
    features : LandmarkMap or ExplicitMap
        The map.
    X : array or sparse matrix of shape (n, d)
        A sample of rows.

    Returns
    -------
    LandmarkMap or ExplicitMap
    """
    return replace(features, centre=features.centre + features(X).mean(axis=0))
