"""The jitted loops of the SMO solver; `polymargin.solvers.smo` tells what they solve.

The box-constrained dual is written in signed coefficients β_i = s_i a_i, which removes the signs from every loop:

    minimise  ½ βᵀKβ − cᵀβ   subject to   lower ≤ β ≤ upper,   Σ β_i = 0,    with c_i = s_i p_i.

The *gradient* below is that of the negated objective, F = c − Kβ. A row that can go up (β_i < upper_i) and a row that
can go down (β_j > lower_j) violate the optimality conditions when F_i > F_j; at the optimum F equals the intercept on
every row strictly inside its box.

Everything is compiled twice at most: for float32 and for float64 Gram rows. β and its bounds are always float64.
The functions have no closures, so `cache=True` keeps the machine code between sessions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic

#: Stands for infinity: fastmath may assume that there are no infinite values.
HUGE = 1e30
#: Rows per block of the two-stage argmax: a vectorised maximum over each block, then a scan of the best block.
BLOCK = 64
#: Codes of `RowSource.kind`.
DENSE, LINEAR, POLY, RBF, LAPLACIAN = range(5)


#: Every kernel is compiled like this; the fast ones may reorder sums and must not see infinities.
kernel = njit(cache=True, nogil=True, error_model="numpy")
fast_kernel = njit(cache=True, nogil=True, error_model="numpy", fastmath=True)


class RowSource(NamedTuple):
    """Whence the Gram rows of one problem of n rows come.

    For ``kind == DENSE`` the table is a Gram matrix and row i of the problem is ``table[index[i], index]``;
    otherwise the table holds the n rows' features, shape (d, n) with d a multiple of four, scaled such that no
    factor gamma is left (see `polymargin.solvers.smo_gram`).
    """

    kind: int
    table: Any
    index: Any
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
    stamp: Any  # (slots,), when it was last asked for
    tally: Any  # (3,), slots in use, clock, rows computed
    bits: Any  # (n,), integer scratch of the exponential


@intrinsic
def larger(typing_context: Any, a: Any, b: Any) -> Any:
    """Return the larger of two floats of one type, by LLVM's maxnum.

    A maximum over a loop written with ``max`` or with a conditional expression does not vectorise: it must say what
    becomes of NaN and of −0.
    """
    if a != b or not isinstance(a, types.Float):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        maxnum = builder.module.declare_intrinsic("llvm.maxnum", [kind], ir.FunctionType(kind, [kind, kind]))
        return builder.call(maxnum, args, fastmath=("fast",))

    return a(a, b), codegen


if config.DISABLE_JIT:
    larger = max


@fast_kernel
def exp2_inplace(values: Any, bits: Any, series: Any) -> None:
    """Overwrite ``values`` ≤ 0 by 2^values; ``bits`` is scratch of the same length and item size.

    2^x = 2^m 2^f with m the nearest integer: 2^f, |f| ≤ ½, is its Taylor polynomial of degree 12 (good to float64),
    2^m is built from its bits. Both loops vectorise, which a call of the system's exp does not.
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


@fast_kernel
def finish_row(row: Any, half_norm: float, half_norms: Any, kind: int, coef0: float, degree: int, bits: Any,
               series: Any) -> None:  # fmt: skip
    """Turn inner products (or minus the L1 distances), in ``row``, into kernel values in place."""
    n = row.size
    if kind == RBF:
        zero = row.dtype.type(0.0)
        for k in range(n):
            exponent = row[k] + (half_norm + half_norms[k])
            row[k] = exponent if exponent < zero else zero
        exp2_inplace(row, bits, series)
    elif kind == LAPLACIAN:
        exp2_inplace(row, bits, series)
    elif kind == POLY:
        shift = row.dtype.type(coef0)
        for k in range(n):
            base = row[k] + shift
            power = base
            for _ in range(degree - 1):
                power *= base
            row[k] = power


@fast_kernel
def finish_block(block: Any, left: Any, right: Any, kind: int, coef0: float, degree: int, bits: Any,
                 series: Any) -> None:  # fmt: skip
    """Turn a block of inner products, shape (m, n), into kernel values in place; left and right are half norms."""
    for r in range(block.shape[0]):
        finish_row(block[r], left[r], right, kind, coef0, degree, bits, series)


@fast_kernel
def l1_block(block: Any, left: Any, right: Any) -> None:
    """Write minus the L1 distances between the columns of left (d, m) and of right (d, n) into ``block`` (m, n)."""
    for r in range(block.shape[0]):
        row = block[r]
        row[:] = 0.0
        for q in range(left.shape[0]):
            x, feature = left[q, r], right[q]
            for k in range(row.size):
                row[k] -= abs(feature[k] - x)


@fast_kernel
def fill_row(row: Any, i: int, source: RowSource, bits: Any) -> None:
    """Write Gram row i of the problem into ``row``, shape (n,)."""
    n, table = row.size, source.table
    if source.kind == DENSE:
        whole, index = table[source.index[i]], source.index
        for k in range(n):
            row[k] = whole[index[k]]
        return
    row[:] = 0.0
    # Features run slowest: every inner loop is a contiguous, vectorised update of the whole row. Four features at a
    # time quarter the traffic of the row itself.
    for q in range(0, table.shape[0], 4):
        t0, t1, t2, t3 = table[q], table[q + 1], table[q + 2], table[q + 3]
        x0, x1, x2, x3 = t0[i], t1[i], t2[i], t3[i]
        if source.kind == LAPLACIAN:
            for k in range(n):
                row[k] -= abs(t0[k] - x0) + abs(t1[k] - x1) + abs(t2[k] - x2) + abs(t3[k] - x3)
        else:
            for k in range(n):
                row[k] += x0 * t0[k] + x1 * t1[k] + x2 * t2[k] + x3 * t3[k]
    finish_row(row, source.half_norms[i], source.half_norms, source.kind, source.coef0, source.degree, bits,
               source.exp2_series)  # fmt: skip
    row[i] = source.diagonal[i]


@kernel
def fetch_row(i: int, source: RowSource, cache: RowCache) -> int:
    """Return the slot that holds Gram row i, computing the row (and modifying ``cache``) if it is not there."""
    cache.tally[1] += 1
    slot = cache.slot_of[i]
    if slot < 0:
        if cache.tally[0] < cache.owner.size:
            slot = cache.tally[0]
            cache.tally[0] += 1
        else:
            slot = np.argmin(cache.stamp)
            cache.slot_of[cache.owner[slot]] = -1
        fill_row(cache.rows[slot], i, source, cache.bits)
        cache.tally[2] += 1
        cache.slot_of[i] = slot
        cache.owner[slot] = i
    cache.stamp[slot] = cache.tally[1]
    return slot


@fast_kernel
def first_index(gradient: Any, up_mask: Any) -> int:
    """Return argmax F_i over the rows that can go up; a mask is 0 where a row may move, -HUGE where not."""
    best = gradient.dtype.type(-4.0 * HUGE)
    chosen = 0
    for k in range(gradient.size):
        value = gradient[k] + up_mask[k]
        if value > best:
            best, chosen = value, k
    return chosen


@fast_kernel
def second_index(i: int, row: Any, gradient: Any, down_mask: Any, diagonal: Any, tau: Any) -> tuple[int, float]:
    """Return the partner j of i by second-order selection, and the largest violation F_i − F_j.

    j maximises the gain (F_i − F_j)²/η_ij of an unclipped step among the rows that can go down, where
    η_ij = K_ii + K_jj − 2K_ij (Fan, Chen and Lin 2005, WSS 2); η ≤ 0 is replaced by tau.
    """
    n = gradient.size
    f_i, k_ii = gradient[i], diagonal[i]
    zero, two = gradient.dtype.type(0.0), gradient.dtype.type(2.0)
    violation = gradient.dtype.type(-4.0 * HUGE)
    best_gain, best_start = zero, 0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        f, k_i, k_jj, mask = gradient[start:stop], row[start:stop], diagonal[start:stop], down_mask[start:stop]
        block_gain = zero
        for j in range(f.size):
            gap = f_i - f[j] + mask[j]
            violation = larger(violation, gap)
            gap = larger(gap, zero)
            eta = larger(k_ii + k_jj[j] - two * k_i[j], tau)
            block_gain = larger(block_gain, gap * gap / eta)
        if block_gain > best_gain:
            best_gain, best_start = block_gain, start
    almost = best_gain * gradient.dtype.type(1.0 - 1e-6)  # two roundings of one expression need not agree
    for j in range(best_start, min(best_start + BLOCK, n)):
        gap = larger(f_i - gradient[j] + down_mask[j], zero)
        eta = larger(k_ii + diagonal[j] - two * row[j], tau)
        if gap * gap >= almost * eta:
            return j, violation
    return best_start, violation


@fast_kernel
def move_gradient(gradient: Any, step: Any, row_i: Any, row_j: Any, up_mask: Any) -> int:
    """Update F −= step (K_i − K_j) in place and return the next first index, from the same pass."""
    n = gradient.size
    lowest = gradient.dtype.type(-4.0 * HUGE)
    best, best_start = lowest, 0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        f, k_i, k_j, mask = gradient[start:stop], row_i[start:stop], row_j[start:stop], up_mask[start:stop]
        block_best = lowest
        for k in range(f.size):
            value = f[k] - step * (k_i[k] - k_j[k])
            f[k] = value
            block_best = larger(block_best, value + mask[k])
        if block_best > best:
            best, best_start = block_best, start
    stop = min(best_start + BLOCK, n)
    return best_start + first_index(gradient[best_start:stop], up_mask[best_start:stop])


@kernel
def step_pair(i: int, j: int, slope: float, eta: float, beta: Any, lower: Any, upper: Any) -> float:
    """Move β_i up and β_j down by the clipped Newton step slope/η; return it.

    A coefficient that reaches its bound is set to it exactly, so that "at the bound" is a test for equality.
    """
    step = slope / eta
    room_i, room_j = upper[i] - beta[i], beta[j] - lower[j]
    new_i, new_j = beta[i] + step, beta[j] - step
    if step >= room_i and room_i <= room_j:
        step = room_i
        new_i, new_j = upper[i], (lower[j] if room_j == room_i else beta[j] - step)
    elif step >= room_j:
        step = room_j
        new_i, new_j = beta[i] + step, lower[j]
    beta[i] = min(new_i, upper[i])
    beta[j] = max(new_j, lower[j])
    return step


@kernel
def set_masks(beta: Any, lower: Any, upper: Any, up_mask: Any, down_mask: Any) -> None:
    """Overwrite both masks: 0 where β can go up (down), -HUGE where it cannot."""
    for k in range(beta.size):
        up_mask[k] = 0.0 if beta[k] < upper[k] else -HUGE
        down_mask[k] = 0.0 if beta[k] > lower[k] else -HUGE


@kernel
def descend(gradient: Any, beta: Any, lower: Any, upper: Any, up_mask: Any, down_mask: Any, tau: Any,
            source: RowSource, cache: RowCache, tol: float, max_iter: int) -> int:  # fmt: skip
    """Take up to max_iter SMO steps, until the largest violation falls below tol; return their number.

    Modifies ``gradient``, ``beta``, both masks and ``cache``.
    """
    set_masks(beta, lower, upper, up_mask, down_mask)
    diagonal = source.diagonal
    i = first_index(gradient, up_mask)
    for iteration in range(max_iter):
        row_i = cache.rows[fetch_row(i, source, cache)]
        j, violation = second_index(i, row_i, gradient, down_mask, diagonal, tau)
        if violation < tol or up_mask[i] < 0.0:
            return iteration
        row_j = cache.rows[fetch_row(j, source, cache)]
        slope = np.float64(gradient[i]) - np.float64(gradient[j])
        eta = max(np.float64(diagonal[i]) + np.float64(diagonal[j]) - 2.0 * np.float64(row_i[j]), np.float64(tau))
        step = step_pair(i, j, slope, eta, beta, lower, upper)
        up_mask[i] = 0.0 if beta[i] < upper[i] else -HUGE
        up_mask[j] = 0.0
        down_mask[i] = 0.0
        down_mask[j] = 0.0 if beta[j] > lower[j] else -HUGE
        i = move_gradient(gradient, gradient.dtype.type(step), row_i, row_j, up_mask)
    return max_iter


@fast_kernel
def subtract_row(exact: Any, coefficient: float, row: Any) -> None:
    """Update ``exact`` −= coefficient · row in place, in float64."""
    for k in range(exact.size):
        exact[k] -= coefficient * row[k]


@kernel
def exact_gradient(exact: Any, linear: Any, beta: Any, source: RowSource, cache: RowCache) -> None:
    """Overwrite ``exact`` by F = c − Kβ accumulated in float64; rows that are missing enter ``cache``."""
    exact[:] = linear
    for i in range(beta.size):
        if beta[i] != 0.0:
            subtract_row(exact, beta[i], cache.rows[fetch_row(i, source, cache)])


@kernel
def extremes(exact: Any, beta: Any, lower: Any, upper: Any) -> tuple[float, float]:
    """Return max F over the rows that can go up and min F over those that can go down (±HUGE if there are none)."""
    highest, lowest = -HUGE, HUGE
    for k in range(beta.size):
        if beta[k] < upper[k]:
            highest = max(highest, exact[k])
        if beta[k] > lower[k]:
            lowest = min(lowest, exact[k])
    return highest, lowest


@kernel
def mirror_block(K: Any, block: Any, start: int) -> None:
    """Write a block of rows of K from its diagonal on, block[r, k] = K[start + r, start + k], and its mirror image."""
    height, width = block.shape
    for r in range(height):
        K[start + r, start:] = block[r]
    for column in range(0, width, 16):  # tiles: the mirror image is written 16 columns at a time
        for k in range(column, min(column + 16, width)):
            below = K[start + k]
            for r in range(height):
                below[start + r] = block[r, k]
