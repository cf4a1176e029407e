"""Cholesky factors and inverses without the interpreter's lock, so that threads work on different matrices at once.

SciPy's own wrappers hold the lock while LAPACK works. These call the same routines, which SciPy exports for Cython,
through ctypes, which lets go of it. Triangles are inverted by halves, which is mostly matrix products: LAPACK's own
routine took 1.4 to 3.3 times as long on 200 to 1500 rows. On whole fits the difference was within the noise of a busy
machine of two cores (``benchmarks/lapack.py --fit`` measures it). All matrices are square, double and in Fortran order;
results replace what was there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

Array = NDArray[Any]


def _routine(library: Any, name: str, n_arguments: int) -> Callable[..., None]:
    """Return a routine of BLAS or LAPACK, all of whose arguments are addresses."""
    capsule = library.__pyx_capi__[name]
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)
    return signature(address_of(capsule, name_of(capsule)))


_dpotrf = _routine(cython_lapack, "dpotrf", 5)
_dpotrs = _routine(cython_lapack, "dpotrs", 8)
_dtrtri = _routine(cython_lapack, "dtrtri", 6)
_dlauum = _routine(cython_lapack, "dlauum", 5)
_dtrmm = _routine(cython_blas, "dtrmm", 11)

#: Columns that are cleared above the diagonal at a time.
_STRIPE = 64
#: The largest triangle, in rows, that is inverted by one call of LAPACK.
_BLOCK = 64
_LOWER = _LEFT = byref(ctypes.c_char(b"L"))
_RIGHT = byref(ctypes.c_char(b"R"))
_NOT_UNIT = _AS_IT_IS = byref(ctypes.c_char(b"N"))
_ONE, _MINUS_ONE = byref(ctypes.c_double(1.0)), byref(ctypes.c_double(-1.0))


def _check(A: Array) -> None:
    square = A.ndim == 2 and A.shape[0] == A.shape[1]
    if A.dtype != np.float64 or not square or not A.flags.f_contiguous or not A.flags.writeable:
        raise ValueError("LAPACK needs a writeable, square matrix of doubles in Fortran order")


def factor(A: Array) -> bool:
    """Replace A by its lower Cholesky factor, with zeros above the diagonal; return whether it is positive definite.

    Examples
    --------
    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]], order="F")
    >>> factor(A), A
    (True, array([[2., 0.],
           [1., 2.]]))
    """
    _check(A)
    size, info = byref(c_int(A.shape[0])), c_int()
    _dpotrf(_LOWER, size, A.ctypes.data, size, byref(info))
    for start in range(0, A.shape[0], _STRIPE):
        stripe = slice(start, start + _STRIPE)
        A[:start, stripe] = 0.0
        A[stripe, stripe] = np.tril(A[stripe, stripe])
    return info.value == 0


def invert_factored(lower: Array) -> None:
    """Replace L by the lower triangle of (LLᵀ)⁻¹; what is above the diagonal stays."""
    invert_triangle(lower)
    size, info = byref(c_int(lower.shape[0])), c_int()
    _dlauum(_LOWER, size, lower.ctypes.data, size, byref(info))


def invert_triangle(lower: Array) -> None:
    """Replace L by L⁻¹."""
    _check(lower)
    if not np.diagonal(lower).all():
        raise np.linalg.LinAlgError("the matrix is singular")
    _invert(lower.ctypes.data, lower.shape[0], lower.shape[0])


def _invert(corner: int, n: int, stride: int) -> None:
    """Invert the triangle of n rows whose first entry has this address, in two halves and what is between them."""
    step = byref(c_int(stride))
    if n <= _BLOCK:
        info = c_int()
        _dtrtri(_LOWER, _NOT_UNIT, byref(c_int(n)), corner, step, byref(info))
        return
    half = n // 2
    beside, below = corner + 8 * half * (stride + 1), corner + 8 * half
    _invert(corner, half, stride)
    _invert(beside, n - half, stride)
    rows, columns = byref(c_int(n - half)), byref(c_int(half))
    for side, factor_, triangle in ((_LEFT, _MINUS_ONE, beside), (_RIGHT, _ONE, corner)):
        _dtrmm(side, _LOWER, _AS_IT_IS, _NOT_UNIT, rows, columns, factor_, triangle, step, below, step)


def solve_factored(lower: Array, Y: Array) -> Array:
    """Return (LLᵀ)⁻¹Y, shape (n, L), in Fortran order; Y is kept."""
    _check(lower)
    if Y.ndim != 2 or Y.shape[0] != lower.shape[0]:
        raise ValueError(f"a matrix of {lower.shape[0]} rows has no solution for the shape {Y.shape}")
    solution = np.array(Y, dtype=np.float64, order="F")
    size, info = byref(c_int(lower.shape[0])), c_int()
    width = byref(c_int(Y.shape[1]))
    _dpotrs(_LOWER, size, width, lower.ctypes.data, size, solution.ctypes.data, size, byref(info))
    return solution
