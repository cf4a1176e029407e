"""The jitted loops that compute Gram rows, and the bounded store that keeps them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from polymargin.solvers._compile import compiled

#: Codes of `RowSource.kind`.
DENSE, LINEAR, POLY, RBF, LAPLACIAN, EXPONENTIAL = range(6)

#: How the kernels are compiled. The fast ones may reorder sums and must not see infinities. Those that
#: compute rows may only fuse a product with a sum: a kernel value then has the same bits wherever it stands
#: in a row, and no solution depends on the contents of a cache.
kernel = compiled(nogil=True, error_model="numpy")
row_kernel = compiled(nogil=True, error_model="numpy", fastmath={"contract"})
fast_kernel = compiled(nogil=True, error_model="numpy", fastmath=True)


class RowSource(NamedTuple):
    """Source of the Gram rows of one problem of n rows.

    For ``kind == DENSE`` the table is a Gram matrix and row i of the problem is ``table[index[i], index]``,
    copied by runs of consecutive columns. Otherwise the table holds the n rows' features, shape (d, n) with
    d a multiple of four, scaled such that no factor gamma is left (see `polymargin.solvers.smo_gram`).
    """

    kind: int
    table: Any
    index: Any  # (n,)
    runs: Any  # (r, 3): place in the row, first column in the table, length
    half_norms: Any  # (n,), −½|x|² of the scaled features (RBF)
    diagonal: Any  # (n,), K_ii
    exp2_series: Any  # (13,), Taylor coefficients of 2^x
    coef0: float
    degree: int


class RowCache(NamedTuple):
    """A bounded store of Gram rows, least recently used out first."""

    rows: Any  # (slots, n), Gram rows
    slot_of: Any  # (n,), where a row is stored, -1 when it is not
    owner: Any  # (slots,), which row is stored here
    stamp: Any  # (slots,), time of its last use
    tally: Any  # (2,), slots in use, clock
    bits: Any  # (n,), integer scratch of the exponential


@row_kernel
def exp2_inplace(values: Any, bits: Any, series: Any) -> None:
    """Overwrite ``values`` ≤ 0 by 2^values; ``bits`` is scratch of the same length and item size.

    2^x = 2^m 2^f with m the nearest integer: 2^f, |f| ≤ ½, is a Taylor polynomial of degree 12 (good to
    float64) and 2^m is built from its bits. All of it vectorises, which a call of the system's exp does
    not.
    """
    one = values.dtype.type(1.0)
    half = values.dtype.type(0.5)
    wide = values.itemsize == 8
    lowest = values.dtype.type(-1022.0 if wide else -126.0)
    bias, shift = (1023, 52) if wide else (127, 23)
    c1, c2, c3, c4, c5, c6 = series[1], series[2], series[3], series[4], series[5], series[6]
    c7, c8, c9, c10, c11, c12 = series[7], series[8], series[9], series[10], series[11], series[12]
    for k in range(values.size):
        x = values[k] if values[k] > lowest else lowest
        m = np.int32(x - half)  # truncation towards zero: the nearest integer, as x ≤ 0
        f = x - values.dtype.type(m)
        bits[k] = m + bias
        tail = c7 + f * (c8 + f * (c9 + f * (c10 + f * (c11 + f * c12))))
        values[k] = one + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * (c5 + f * (c6 + f * tail))))))
    for k in range(values.size):
        bits[k] = bits[k] << shift
    powers = bits.view(values.dtype)
    for k in range(values.size):
        values[k] *= powers[k]


@row_kernel
def finish_row(row: Any, half_norm: float, half_norms: Any, kind: int, coef0: float, degree: int, bits: Any,
               series: Any) -> None:  # fmt: skip
    """Turn inner products (or minus L1 distances, or squared distances), in ``row``, into kernel values in place."""
    n = row.size
    if kind == RBF:
        zero = row.dtype.type(0.0)
        for k in range(n):
            exponent = row[k] + (half_norm + half_norms[k])
            row[k] = exponent if exponent < zero else zero
        exp2_inplace(row, bits, series)
    elif kind == LAPLACIAN:
        exp2_inplace(row, bits, series)
    elif kind == EXPONENTIAL:
        for k in range(n):
            row[k] = -np.sqrt(row[k])
        exp2_inplace(row, bits, series)
    elif kind == POLY:
        shift = row.dtype.type(coef0)
        for k in range(n):
            base = row[k] + shift
            power = base
            for _ in range(degree - 1):
                power *= base
            row[k] = power


@row_kernel
def finish_block(block: Any, left: Any, right: Any, kind: int, coef0: float, degree: int, bits: Any,
                 series: Any) -> None:  # fmt: skip
    """Turn inner products or distances, shape (m, n), into kernel values in place; left and right are half norms."""
    for r in range(block.shape[0]):
        finish_row(block[r], left[r], right, kind, coef0, degree, bits, series)


@row_kernel
def l1_block(block: Any, left: Any, right: Any) -> None:
    """Write minus the L1 distances between the columns of left and of right into ``block``, shape (m, n)."""
    for r in range(block.shape[0]):
        row = block[r]
        row[:] = 0.0
        for q in range(left.shape[0]):
            x, feature = left[q, r], right[q]
            for k in range(row.size):
                row[k] -= abs(feature[k] - x)


@row_kernel
def l2_block(block: Any, left: Any, right: Any) -> None:
    """Write the squared distances between the columns of left and of right into ``block``, shape (m, n)."""
    for r in range(block.shape[0]):
        row = block[r]
        row[:] = 0.0
        for q in range(left.shape[0]):
            x, feature = left[q, r], right[q]
            for k in range(row.size):
                row[k] += (feature[k] - x) * (feature[k] - x)


@row_kernel
def fill_row(row: Any, i: int, source: RowSource, bits: Any) -> None:
    """Write Gram row i of the problem into ``row``, shape (n,)."""
    n, table = row.size, source.table
    if source.kind == DENSE:
        whole = table[source.index[i]]
        for r in range(source.runs.shape[0]):
            to, start, length = source.runs[r, 0], source.runs[r, 1], source.runs[r, 2]
            target, run = row[to : to + length], whole[start : start + length]
            for k in range(length):
                target[k] = run[k]
        return
    row[:] = 0.0
    # Features run slowest: every inner loop is a contiguous, vectorised update of the whole row. Four
    # features at a time quarter the traffic of the row itself.
    for q in range(0, table.shape[0], 4):
        t0, t1, t2, t3 = table[q], table[q + 1], table[q + 2], table[q + 3]
        x0, x1, x2, x3 = t0[i], t1[i], t2[i], t3[i]
        if source.kind == LAPLACIAN:
            for k in range(n):
                row[k] -= abs(t0[k] - x0) + abs(t1[k] - x1) + abs(t2[k] - x2) + abs(t3[k] - x3)
        elif source.kind == EXPONENTIAL:
            # Not by inner products, whose rounding errors the square root would magnify.
            for k in range(n):
                u0, u1, u2, u3 = t0[k] - x0, t1[k] - x1, t2[k] - x2, t3[k] - x3
                row[k] += u0 * u0 + u1 * u1 + u2 * u2 + u3 * u3
        else:
            for k in range(n):
                row[k] += x0 * t0[k] + x1 * t1[k] + x2 * t2[k] + x3 * t3[k]
    finish_row(row, source.half_norms[i], source.half_norms, source.kind, source.coef0, source.degree, bits,
               source.exp2_series)  # fmt: skip
    row[i] = source.diagonal[i]


@kernel
def load_row(i: int, source: RowSource, cache: RowCache) -> int:
    """Compute Gram row i into a slot of ``cache``, free or else least recently used; return the slot."""
    if cache.tally[0] < cache.owner.size:
        slot = cache.tally[0]
        cache.tally[0] += 1
    else:
        slot = np.argmin(cache.stamp)
        cache.slot_of[cache.owner[slot]] = -1
    fill_row(cache.rows[slot], i, source, cache.bits)
    cache.slot_of[i] = slot
    cache.owner[slot] = i
    return slot


@kernel
def mirror_block(K: Any, block: Any, start: int) -> None:
    """Write block[r, k] into K[start + r, start + k] and into its mirror image."""
    height, width = block.shape
    for r in range(height):
        K[start + r, start:] = block[r]
    for column in range(0, width, 16):  # tiles: the mirror image is written 16 columns at a time
        for k in range(column, min(column + 16, width)):
            below = K[start + k]
            for r in range(height):
                below[start + r] = block[r, k]
