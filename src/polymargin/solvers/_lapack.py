"""Cholesky factors, inverses and solutions without the interpreter's lock, so that threads work on several at once.

SciPy's own wrappers hold the lock while LAPACK works. These call the same routines, which SciPy exports for Cython,
through ctypes, which lets go of it. Triangles are inverted by halves, which is mostly matrix products: LAPACK's own
routine took 1.4 to 3.3 times as long on 200 to 1500 rows. On whole fits the difference was within the noise of a busy
machine of two cores (``benchmarks/lapack.py --fit`` measures it). Large matrices are factorised and inverted by tiles,
which threads share: a matrix then takes several of them, not the threads of BLAS, which wait for each other at every
step. The tiles do not depend on the number of threads, and nor does the result, with one thread of BLAS. All matrices
are square, double (small ones may be single) and in Fortran order; results replace what was there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

from polymargin._threads import FEW_ROWS, blas_threads_for, in_threads, n_threads, over_rows

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
_dposv = _routine(cython_lapack, "dposv", 8)
_dtrtri = _routine(cython_lapack, "dtrtri", 6)
_dtrtrs = _routine(cython_lapack, "dtrtrs", 10)
_dlauum = _routine(cython_lapack, "dlauum", 5)
_dtrmm = _routine(cython_blas, "dtrmm", 11)
_dtrsm = _routine(cython_blas, "dtrsm", 11)
_dgemm = _routine(cython_blas, "dgemm", 13)
_dsyrk = _routine(cython_blas, "dsyrk", 10)

#: Factorisation and solution in either precision.
_POTRF = {"float64": _dpotrf, "float32": _routine(cython_lapack, "spotrf", 5)}
_POTRS = {"float64": _dpotrs, "float32": _routine(cython_lapack, "spotrs", 8)}
#: Columns that are cleared above the diagonal at a time, and what is above it in their square.
_STRIPE = 256
_ABOVE = np.tri(_STRIPE, k=-1, dtype=bool).T
#: The largest triangle, in rows, that is inverted by one call of LAPACK; half of that takes as long, in twice as many.
_BLOCK = 128
#: The columns of a panel and the sides of a tile of a large matrix: as fast as LAPACK with one thread (5000 rows), and
#: some hundred tiles for the threads to share.
_PANEL, _TILE_ROWS, _TILE_COLUMNS = 256, 512, 2048
_LOWER = _LEFT = byref(ctypes.c_char(b"L"))
_RIGHT = byref(ctypes.c_char(b"R"))
_NOT_UNIT = _AS_IT_IS = byref(ctypes.c_char(b"N"))
_TRANSPOSED = byref(ctypes.c_char(b"T"))
_ZERO, _ONE, _MINUS_ONE = (byref(ctypes.c_double(value)) for value in (0.0, 1.0, -1.0))


def _check(A: Array, may_be_single: bool = False) -> None:
    square = A.ndim == 2 and A.shape[0] == A.shape[1]
    right_kind = A.dtype == np.float64 or (may_be_single and A.dtype == np.float32)
    if not right_kind or not square or not A.flags.f_contiguous or not A.flags.writeable:
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
    corner, n = A.ctypes.data, A.shape[0]
    with blas_threads_for(0 if n_threads() > 1 else n):
        definite = _factor_by_tiles(corner, n) if n > FEW_ROWS else _factor(corner, n, max(n, 1))

    def clear(start: int) -> None:
        stripe = slice(start, start + _STRIPE)
        A[:start, stripe] = 0.0
        corner = A[stripe, stripe]
        np.copyto(corner, 0.0, where=_ABOVE[: corner.shape[0], : corner.shape[0]])

    starts = range(0, n, _STRIPE)
    if n > FEW_ROWS:
        in_threads(clear, starts)
    else:
        for start in starts:
            clear(start)
    return definite


def factor_small(A: Array) -> bool:
    """Replace the lower triangle of a small A, single or double, by its factor; return whether it has one.

    Examples
    --------
    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]], dtype=np.float32, order="F")
    >>> factor_small(A), solve_factored(A, np.array([[6.0], [7.0]])).ravel()
    (True, array([1., 1.], dtype=float32))
    """
    _check(A, may_be_single=True)
    size, info = byref(c_int(A.shape[0])), c_int()
    _POTRF[A.dtype.name](_LOWER, size, A.ctypes.data, size, byref(info))
    return info.value == 0


def _factor(corner: int, n: int, stride: int) -> bool:
    """Replace the matrix of n rows whose first entry has this address by its Cholesky factor."""
    info = c_int()
    _dpotrf(_LOWER, byref(c_int(n)), corner, byref(c_int(stride)), byref(info))
    return info.value == 0


def _factor_by_tiles(corner: int, n: int) -> bool:
    """Replace a large matrix by its Cholesky factor, panel by panel; threads share the tiles below and beside it."""
    stride = byref(c_int(n))

    def entry(row: int, column: int) -> int:
        return corner + 8 * (row + column * n)

    for panel in range(0, n, _PANEL):
        width = min(_PANEL, n - panel)
        rest = panel + width
        if not _factor(entry(panel, panel), width, n):
            return False

        def solve(row: int, panel: int = panel, width: int = width) -> None:
            size = byref(c_int(min(_TILE_ROWS, n - row)))
            triangle, tile = entry(panel, panel), entry(row, panel)
            columns = byref(c_int(width))
            _dtrsm(
                _RIGHT, _LOWER, _TRANSPOSED, _NOT_UNIT, size, columns, _ONE, triangle, stride, tile, stride
            )

        def update(tile: tuple[int, int], panel: int = panel, width: int = width) -> None:
            row, column = tile
            n_rows, inner = byref(c_int(min(_TILE_ROWS, n - row))), byref(c_int(width))
            left, right, target = entry(row, panel), entry(column, panel), entry(row, column)
            if row == column:
                syrk = left, stride, _ONE, target, stride
                _dsyrk(_LOWER, _AS_IT_IS, n_rows, inner, _MINUS_ONE, *syrk)
                return
            n_columns = byref(c_int(min(_TILE_COLUMNS, row - column)))
            gemm = left, stride, right, stride, _ONE, target, stride
            _dgemm(_AS_IT_IS, _TRANSPOSED, n_rows, n_columns, inner, _MINUS_ONE, *gemm)

        rows = range(rest, n, _TILE_ROWS)
        in_threads(solve, rows)
        tiles = [(row, column) for row in rows for column in range(rest, row, _TILE_COLUMNS)]
        in_threads(update, [*tiles, *((row, row) for row in rows)])
    return True


def invert_factored(lower: Array) -> None:
    """Replace L, which has zeros above its diagonal, by the lower triangle of (LLᵀ)⁻¹; the zeros stay."""
    invert_triangle(lower)
    if lower.shape[0] > FEW_ROWS:
        _square_by_tiles(lower)
        return
    size, info = byref(c_int(lower.shape[0])), c_int()
    _dlauum(_LOWER, size, lower.ctypes.data, size, byref(info))


def _square_by_tiles(lower: Array) -> None:
    """Replace a large triangle L by the lower triangle of LᵀL; threads share the tiles."""
    n = lower.shape[0]
    product, stride = np.empty_like(lower), byref(c_int(n))
    given, target = lower.ctypes.data, product.ctypes.data

    def multiply(tile: tuple[int, int]) -> None:
        row, column = tile
        sizes = (min(_TILE_ROWS, n - row), min(_TILE_ROWS, n - column), n - row)
        rows, columns, inner = (byref(c_int(size)) for size in sizes)
        left, right = given + 8 * (row + row * n), given + 8 * (row + column * n)
        gemm = left, stride, right, stride, _ZERO, target + 8 * (row + column * n), stride
        _dgemm(_TRANSPOSED, _AS_IT_IS, rows, columns, inner, _ONE, *gemm)

    starts = range(0, n, _TILE_ROWS)
    with blas_threads_for(0 if n_threads() > 1 else n):
        in_threads(multiply, [(row, column) for row in starts for column in starts if column <= row])

    def keep(columns: slice) -> None:
        for column in range(columns.start, columns.stop):
            lower[column:, column] = product[column:, column]

    over_rows(keep, n, n)


def invert_triangle(lower: Array) -> None:
    """Replace L by L⁻¹."""
    _check(lower)
    if not np.diagonal(lower).all():
        raise np.linalg.LinAlgError("the matrix is singular")
    corner, n = lower.ctypes.data, lower.shape[0]
    if n > FEW_ROWS:
        with blas_threads_for(0 if n_threads() > 1 else n):
            _invert_by_tiles(corner, n)
    else:
        _invert(corner, n, n)


def _invert_by_tiles(corner: int, n: int) -> None:
    """Replace a large triangle by its inverse: small triangles first, then what is between them, tile by tile."""
    stride = byref(c_int(n))
    levels: list[
        list[tuple[int, int, int]]
    ] = []  # the start, the middle and the end of triangles of each depth
    triangles = [(0, n)]
    while max(end - start for start, end in triangles) > _TILE_ROWS:
        levels.append([(start, (start + end) // 2, end) for start, end in triangles])
        triangles = [half for start, middle, end in levels[-1] for half in ((start, middle), (middle, end))]
    in_threads(lambda part: _invert(corner + 8 * part[0] * (n + 1), part[1] - part[0], n), triangles)

    def beside(tile: tuple[int, int, int, int]) -> None:
        _, middle, end, column = tile
        sizes = byref(c_int(end - middle)), byref(c_int(min(column + _PANEL, middle) - column))
        triangle, below = corner + 8 * middle * (n + 1), corner + 8 * (middle + column * n)
        _dtrmm(_LEFT, _LOWER, _AS_IT_IS, _NOT_UNIT, *sizes, _MINUS_ONE, triangle, stride, below, stride)

    def above(tile: tuple[int, int, int, int]) -> None:
        start, middle, end, row = tile
        sizes = byref(c_int(min(row + _PANEL, end) - row)), byref(c_int(middle - start))
        triangle, left = corner + 8 * start * (n + 1), corner + 8 * (row + start * n)
        _dtrmm(_RIGHT, _LOWER, _AS_IT_IS, _NOT_UNIT, *sizes, _ONE, triangle, stride, left, stride)

    for level in reversed(levels):
        in_threads(beside, [(*part, column) for part in level for column in range(part[0], part[1], _PANEL)])
        in_threads(above, [(*part, row) for part in level for row in range(part[1], part[2], _PANEL)])


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


def solve_positive(A: Array, y: Array) -> bool:
    """Replace y, shape (n,), by A⁻¹y, and the lower triangle of A by its factor; return whether it has one.

    Examples
    --------
    >>> A, y = np.array([[4.0, 0.0], [2.0, 5.0]], order="F"), np.array([6.0, 7.0])
    >>> solve_positive(A, y), y
    (True, array([1., 1.]))
    """
    _check(A)
    if y.dtype != np.float64 or y.shape != A.shape[:1] or not (y.flags.c_contiguous and y.flags.writeable):
        raise ValueError("LAPACK needs a writeable vector of as many doubles as the matrix has rows")
    size, info = byref(c_int(y.size)), c_int()
    _dposv(_LOWER, size, byref(c_int(1)), A.ctypes.data, size, y.ctypes.data, size, byref(info))
    return info.value == 0


def solve_factored(lower: Array, Y: Array) -> Array:
    """Return (LLᵀ)⁻¹Y, shape (n, L), in Fortran order and in the precision of L; Y is kept."""
    _check(lower, may_be_single=True)
    _check_sides(lower, Y)
    solution = np.array(Y, dtype=lower.dtype, order="F")
    size, info = byref(c_int(lower.shape[0])), c_int()
    width = byref(c_int(Y.shape[1]))
    _POTRS[lower.dtype.name](
        _LOWER, size, width, lower.ctypes.data, size, solution.ctypes.data, size, byref(info)
    )
    return solution


def solve_triangle(lower: Array, Y: Array, *, transposed: bool = False) -> Array:
    """Return L⁻¹Y, shape (n, L), in Fortran order, or with the transpose of L; Y is kept.

    Examples
    --------
    >>> lower = np.array([[2.0, 0.0], [1.0, 2.0]], order="F")
    >>> solve_triangle(lower, np.array([[2.0], [5.0]])).ravel()
    array([1., 2.])
    """
    _check(lower)
    _check_sides(lower, Y)
    solution = np.array(Y, dtype=np.float64, order="F")
    if solution.size:
        size, width, info = byref(c_int(lower.shape[0])), byref(c_int(Y.shape[1])), c_int()
        operation = _TRANSPOSED if transposed else _AS_IT_IS
        given, target = lower.ctypes.data, solution.ctypes.data
        _dtrtrs(_LOWER, operation, _NOT_UNIT, size, width, given, size, target, size, byref(info))
    return solution


def _check_sides(lower: Array, Y: Array) -> None:
    if Y.ndim != 2 or Y.shape[0] != lower.shape[0]:
        raise ValueError(f"a matrix of {lower.shape[0]} rows has no solution for the shape {Y.shape}")
