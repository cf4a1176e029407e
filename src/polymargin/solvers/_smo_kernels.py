"""The jitted loops of the SMO solver; `polymargin.solvers.smo` tells what they solve.

The dual is written in signed coefficients β_i = s_i a_i, which removes the signs from every loop:

    minimise  ½ βᵀKβ − cᵀβ   subject to   lower ≤ β ≤ upper,   Σ β_i = 0,    with c_i = s_i p_i.

The *gradient* below is that of the negated objective, F = c − Kβ. A row that can go up (β_i < upper_i) and
a row that can go down (β_j > lower_j) violate the optimality conditions when F_i > F_j; at the optimum F
equals the intercept on every row strictly inside its box.

Everything is compiled twice at most, for Gram rows in float32 and in float64; β and its bounds are always
float64. None of the functions is a closure, so that the machine code is kept on disk between sessions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from polymargin.solvers._smo_rows import RowCache, RowSource, fast_kernel, kernel, load_row

#: Stands for infinity: fastmath may assume that there are no infinite values.
HUGE = 1e30
#: Rows per block of a two-stage argmax: a vectorised maximum of each block, then a scan of the best block.
BLOCK = 64


def _maxnum(typing_context: Any, a: Any, b: Any) -> Any:
    """Define the larger of two floats of one type as LLVM's maxnum.

    A maximum over a loop does not vectorise when written with ``max`` or with a conditional expression,
    which have to care for NaN and for −0.
    """
    if a != b or not isinstance(a, types.Float):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        maxnum = builder.module.declare_intrinsic("llvm.maxnum", [kind], ir.FunctionType(kind, [kind, kind]))
        return builder.call(maxnum, args, fastmath=("fast",))

    return a(a, b), codegen


larger: Any = max if config.DISABLE_JIT else intrinsic(_maxnum)  # type: ignore[attr-defined]


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
def second_index(
    i: int, row: Any, gradient: Any, down_mask: Any, diagonal: Any, tau: Any
) -> tuple[int, float]:
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
        f, mask = gradient[start:stop], down_mask[start:stop]
        k_i, k_jj = row[start:stop], diagonal[start:stop]
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
        f, mask = gradient[start:stop], up_mask[start:stop]
        k_i, k_j = row_i[start:stop], row_j[start:stop]
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
    # Look-ups are spelled out: to hand the two tuples to a function costs as much as a short row.
    rows, slot_of, stamp, clock = cache.rows, cache.slot_of, cache.stamp, cache.tally[1:]
    diagonal = source.diagonal
    if beta.size == 0:
        return 0
    i = first_index(gradient, up_mask)
    for iteration in range(max_iter):
        slot_i = slot_of[i] if slot_of[i] >= 0 else load_row(i, source, cache)
        clock[0] += 1
        stamp[slot_i] = clock[0]
        row_i = rows[slot_i]
        j, violation = second_index(i, row_i, gradient, down_mask, diagonal, tau)
        if violation < tol or up_mask[i] < 0.0:
            return iteration
        slot_j = slot_of[j] if slot_of[j] >= 0 else load_row(j, source, cache)
        stamp[slot_j] = clock[0]
        row_j = rows[slot_j]
        slope = np.float64(gradient[i]) - np.float64(gradient[j])
        eta = np.float64(diagonal[i]) + np.float64(diagonal[j]) - 2.0 * np.float64(row_i[j])
        step = step_pair(i, j, slope, max(eta, np.float64(tau)), beta, lower, upper)
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
    for k in range(beta.size):
        exact[k] = linear[k]
    for i in range(beta.size):
        if beta[i] != 0.0:
            slot = cache.slot_of[i] if cache.slot_of[i] >= 0 else load_row(i, source, cache)
            subtract_row(exact, beta[i], cache.rows[slot])


@kernel
def summarise(
    exact: Any, linear: Any, beta: Any, lower: Any, upper: Any
) -> tuple[float, float, float, float]:
    """Return max F over the rows that can go up, min F over those that can go down, the objective and b.

    The first two are -HUGE and HUGE where there are no such rows. The objective is ½βᵀKβ − cᵀβ, or
    −½ Σ β_i (c_i + F_i); b is the mean of F over the rows inside their boxes, or else the middle of the
    interval that F leaves to it.
    """
    highest, lowest, objective, total, n_free = -HUGE, HUGE, 0.0, 0.0, 0
    for k in range(beta.size):
        up, down = beta[k] < upper[k], beta[k] > lower[k]
        if up:
            highest = max(highest, exact[k])
        if down:
            lowest = min(lowest, exact[k])
        if up and down:
            total += exact[k]
            n_free += 1
        objective -= 0.5 * beta[k] * (linear[k] + exact[k])
    if n_free > 0:
        intercept = total / n_free
    elif highest > -HUGE and lowest < HUGE:
        intercept = 0.5 * (highest + lowest)
    elif highest > -HUGE:  # one class only
        intercept = highest
    else:
        intercept = lowest if lowest < HUGE else 0.0
    return highest, lowest, objective, intercept


@kernel
def duality_gap(exact: Any, beta: Any, lower: Any, upper: Any, intercept: float) -> float:
    """Return the primal minus the dual objective.

    As p_i − s_i f(x_i) = s_i (F_i − b), the gap is the sum of C_i ξ_i − a_i s_i (F_i − b) ≥ 0 over the rows.
    """
    gap = 0.0
    for k in range(beta.size):
        residual = exact[k] - intercept
        gap += max(lower[k] * residual, upper[k] * residual) - beta[k] * residual
    return gap
