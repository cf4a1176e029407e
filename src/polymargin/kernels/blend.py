"""The blend of a Laplacian and a Gaussian kernel: rough and smooth at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polymargin.kernels._base import Array, Kernel, in_strips, symmetric
from polymargin.kernels.laplacian import Laplacian
from polymargin.kernels.rbf import RBF


@dataclass(frozen=True)
class Blend(Kernel):
    """Sum of two kernels, share exp(-gamma ratio ‖x - z‖₁) + (1 - share) exp(-gamma ‖x - z‖²).

    A sum of kernels is a sum of functions: what is smooth in the data is left to the Gaussian part, and the Laplacian
    part follows edges, single features and gaps. One search for gamma serves both: ``ratio`` makes their widths alike
    on the training rows.

    The base holds two numbers for every two rows: their city-block distance, times the ratio, and their squared
    Euclidean distance.

    Parameters
    ----------
    share : float
        The share of the Laplacian part, between 0 and 1.
    ratio : float
        The gamma of the Laplacian part over that of the Gaussian part; `fitted` chooses it.

    See Also
    --------
    RBF : The Gaussian part.
    Laplacian : The Laplacian part.

    Examples
    --------
    >>> kernel = Blend().fitted(np.array([[0.0], [1.0], [3.0]]), np.ones(3))
    >>> kernel.gram(np.array([[0.0]]), np.array([[0.0], [1.0]]), gamma=0.5).round(3)
    array([[1.   , 0.524]])
    """

    parts = ("city-block distances", "squared distances")
    base_numbers = 2

    share: float = 0.3
    ratio: float = field(default=1.0, compare=False, repr=False)

    def fitted(self, X: Any, weights: Array) -> Blend:
        """Return the kernel whose two parts have the same natural width on these rows."""
        return replace(self, ratio=_LAPLACIAN.unit_gamma(X, weights) / _RBF.unit_gamma(X, weights))

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return both distances, shape (n, m, 2)."""
        if Z is not None:
            return self.to_rows(Z)(X)
        rough, smooth = _LAPLACIAN.strips(X), _RBF.strips(X)
        base = symmetric(
            X.shape[0],
            lambda rows, columns: self._both(rough(rows, columns), smooth(rows, columns)),
            (2,),
        )
        base[np.diag_indices(X.shape[0])] = 0.0
        return base

    def to_rows(self, Z: Any) -> Callable[[Any], Array]:
        """Return what computes both distances of any rows from those of Z."""
        rough, smooth = _LAPLACIAN.to_rows(Z), _RBF.to_rows(Z)
        return lambda X: self._both(rough(X), smooth(X))

    def _both(self, rough: Array, smooth: Array) -> Array:
        base = np.empty((*rough.shape, 2))
        np.multiply(rough, self.ratio, out=base[..., 0])
        base[..., 1] = smooth
        return base

    def base_diagonal(self, X: Any) -> Array:
        """Return zeros: no row has a distance to itself."""
        return np.zeros((X.shape[0], 2))

    def apply(self, base: Array, gamma: float) -> Array:
        """Return the kernel values, shape (n, m)."""

        def values(rough: Array, smooth: Array) -> Array:
            rough, smooth = -gamma * rough, -gamma * smooth
            np.exp(rough, out=rough)
            rough *= self.share
            np.exp(smooth, out=smooth)
            smooth *= 1.0 - self.share
            rough += smooth
            return rough

        return in_strips(values, base[..., 0], base[..., 1])

    def formula(self, parts: Sequence[Any], gamma: float, exp: Callable[[Any], Any]) -> Any:
        """Return share exp(-gamma ratio ‖x - z‖₁) + (1 - share) exp(-gamma ‖x - z‖²)."""
        rough, smooth = parts
        return exp(-gamma * self.ratio * rough) * self.share + exp(-gamma * smooth) * (1.0 - self.share)

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return share e₁ exp(e₁) + (1 - share) e₂ exp(e₂), where e are the two exponents."""

        def slopes(rough: Array, smooth: Array, values: Array) -> Array:
            rough, smooth = -gamma * rough, -gamma * smooth
            # The smooth part is what the values hold besides the rough one: one exponential will do.
            part = np.exp(rough)
            part *= self.share
            smooth *= values - part
            rough *= part
            rough += smooth
            return rough

        return in_strips(slopes, base[..., 0], base[..., 1], values)

    def roundings(self, X: Any, gamma: float) -> float:
        """Return those of the Gaussian part."""
        return _RBF.roundings(X, gamma)

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return one over the mean squared distance between two rows."""
        return _RBF.unit_gamma(X, weights)


_LAPLACIAN, _RBF = Laplacian(), RBF()
