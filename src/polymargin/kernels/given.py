"""Kernels that come from the user: a precomputed Gram matrix or a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
from scipy import sparse

from polymargin.kernels._base import Array, Kernel

#: Functions of users are called by one thread at a time: they may not be written for several.
_one_call = RLock()


def _renew_lock() -> None:
    """Forget, in a child process, a thread of its parent that was calling a function."""
    global _one_call
    _one_call = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True)
class Precomputed(Kernel):
    """X is the Gram matrix itself: (n, n) to fit, (m, n) to predict."""

    tunable = False
    untrusted = True
    precomputed = True

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return a copy of X, which holds the kernel values already."""
        return np.array(X)

    def base_among(self, X: Any, rows: Array) -> Array:
        """Return a square part of the training Gram matrix."""
        return X[np.ix_(rows, rows)]

    def base_diagonal(self, X: Any) -> Array:
        """Return K(x, x), which a square matrix holds; for new rows nobody has it."""
        if X.shape[0] != X.shape[1]:
            raise ValueError("a precomputed kernel does not say K(x, x) of new rows")
        return np.diagonal(X).copy()

    def apply(self, base: Array, gamma: float) -> Array:
        """Return a copy of the base: there is no parameter."""
        return base.copy()


@dataclass(frozen=True)
class FunctionKernel(Kernel):
    """A kernel that a function of the user computes.

    Parameters
    ----------
    function : callable (X, Z) -> array of shape (n, m)
        Returns the kernel values between the rows of X and of Z.

    Examples
    --------
    >>> FunctionKernel(lambda X, Z: X @ Z.T).gram(np.array([[2.0]]), np.array([[3.0], [4.0]]))
    array([[6., 8.]])
    """

    function: Callable[[Array, Array], Array]

    tunable = False
    untrusted = True

    @property
    def name(self) -> str:
        """The name of the function, or of its class if it has none."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the function's values, checked for their type and shape."""
        Z = X if Z is None else Z
        with _one_call:
            values = _dense_numbers(self.function(X, Z))
        if values.shape != (X.shape[0], Z.shape[0]):
            raise ValueError(
                f"the kernel function returned an array of shape {values.shape} for {X.shape[0]} and "
                f"{Z.shape[0]} rows; it must return {(X.shape[0], Z.shape[0])}"
            )
        if not np.isfinite(values).all():
            raise ValueError("the kernel function returned infinite or undefined values")
        return values

    def base_diagonal(self, X: Any) -> Array:
        """Return the function's value of every row with itself."""
        return np.array([self.base(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])])

    def apply(self, base: Array, gamma: float) -> Array:
        """Return a copy of the base: there is no parameter."""
        return base.copy()


def _dense_numbers(values: Any) -> Array:
    """Return what a kernel function returned as a new array of real numbers, or say what is wrong with it."""
    if sparse.issparse(values):  # as the product of sparse rows is
        values = values.toarray()
    wanted = "it must return a dense array of real numbers, one row for each row of its first argument"
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the kernel function returned a {type(values).__name__} that is no array ({error}); {wanted}"
        ) from None
    if array.dtype.kind == "O" and values is not None:
        # Numbers may be held as objects, such as decimals.
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"the kernel function returned {_described(values)}; {wanted}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the kernel function returned {_described(values)}; {wanted}")
    return np.array(array, dtype=np.float64)


def _described(values: Any) -> str:
    """Return the type of what a kernel function returned, and of its entries if it has any."""
    dtype = getattr(values, "dtype", None)
    return f"{type(values).__name__}" if dtype is None else f"{type(values).__name__} of type {dtype}"
