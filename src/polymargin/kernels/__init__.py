"""Kernels: how similar two rows are.

Each kernel is one small class in one file, see `polymargin.kernels._base.Kernel` for what it must offer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polymargin.kernels._base import Kernel
from polymargin.kernels.blend import Blend
from polymargin.kernels.exponential import Exponential
from polymargin.kernels.given import FunctionKernel, Precomputed
from polymargin.kernels.laplacian import Laplacian
from polymargin.kernels.linear import Linear
from polymargin.kernels.polynomial import Polynomial
from polymargin.kernels.rbf import RBF
from polymargin.kernels.scaled import Scaled
from polymargin.kernels.sigmoid import Sigmoid

__all__ = [
    "RBF",
    "Blend",
    "Exponential",
    "FunctionKernel",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Scaled",
    "Sigmoid",
    "resolve_kernel",
]

#: The kernels that have a name.
NAMES = ("linear", "poly", "rbf", "laplacian", "exponential", "blend", "precomputed")


def resolve_kernel(
    kernel: str | Callable[..., Any] | Kernel, degree: float = 3, coef0: float = 1.0
) -> Kernel:
    """Return the kernel object for an estimator's ``kernel`` parameter.

    Parameters
    ----------
    kernel : str, callable or Kernel
        The name of a kernel, a function of two arrays of rows, or a kernel object, which is returned as it is.
    degree, coef0 : float
        Parameters of ``"poly"``; other kernels have none of them.

    Returns
    -------
    kernel : Kernel
        The kernel object.

    Raises
    ------
    ValueError
        If no kernel has this name.

    Examples
    --------
    >>> resolve_kernel("poly", degree=2)
    Polynomial(degree=2, coef0=1.0)
    """
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return FunctionKernel(kernel)
    match kernel:
        case "linear":
            return Linear()
        case "poly":
            return Polynomial(degree, coef0)
        case "rbf":
            return RBF()
        case "laplacian":
            return Laplacian()
        case "exponential":
            return Exponential()
        case "blend":
            return Blend()
        case "precomputed":
            return Precomputed()
        case "sigmoid":
            raise ValueError(
                'kernel="sigmoid" is not positive definite, which this classifier needs; choose "rbf", or use '
                "SVMClassifier"
            )
    raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(NAMES)}, or give a function")
