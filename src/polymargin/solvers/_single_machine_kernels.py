"""The jitted loops of the single-machine solver; `polymargin.solvers.single_machine` tells what they solve.

Read α_im as a flow on the graph of classes, along the edge z_i → m. The equality constraints conserve the
flow, so a feasible move is a cycle of classes. Its *arcs* a → b are of two kinds: a row of class a raises α_ib,
or a row of class b lowers α_ia. Both add t to β_ia and −t to β_ib, and both have the slope

    E_ib − E_ia,    with E_im = d_im + G_im, d_iz = 0,

so that G, d and the two kinds need no cases in the loops. A cycle improves the dual if its slopes add up to
more than zero.

Inside the solver the rows are sorted by class ("block" z is ``starts[z]:starts[z + 1]``) and all n×K arrays
are transposed, shape (K, n), so that all scans and updates are contiguous. The Gram matrix keeps its own order;
``order`` maps the rows to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin.solvers._single_machine_graph import max_mean_cycle, potentials
from polymargin.solvers._smo_kernels import BLOCK, HUGE, larger
from polymargin.solvers._smo_rows import fast_kernel, kernel

#: A cycle of three classes is taken if its mean gain exceeds that of the best two-cycle by this factor.
THREE_CYCLE_FACTOR = 1.5
#: With more classes than this, three-cycles are looked for only when no two-cycle improves.
THREE_CYCLE_CLASSES = 12
#: A two-cycle is kept as long as its gain is at least this share of the gain at which it was chosen.
KEPT_GAIN = 0.7


@fast_kernel
def scan_block(e_m: Any, e_z: Any, alpha: Any, upper: Any) -> tuple[float, int, float, int]:
    """Return the best slopes to raise, and to lower, α_im in a block of class z, and in which stretch of rows.

    That is slope, start, slope, start; a stretch has BLOCK rows. A slope is below −HUGE/2 if there is no such
    row.
    """
    n = e_m.size
    up, down, up_start, down_start = -HUGE, -HUGE, 0, 0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        m, z, a, c = e_m[start:stop], e_z[start:stop], alpha[start:stop], upper[start:stop]
        block_up, block_down = -HUGE, -HUGE
        for k in range(m.size):
            slope = m[k] - z[k]
            block_up = larger(block_up, slope if a[k] < c[k] else -HUGE)
            block_down = larger(block_down, -slope if a[k] > 0.0 else -HUGE)
        if block_up > up:
            up, up_start = block_up, start
        if block_down > down:
            down, down_start = block_down, start
    return up, up_start, down, down_start


@kernel
def scan_pair(z: int, m: int, alpha: Any, E: Any, upper: Any, starts: Any, arcs: Any, places: Any) -> None:
    """Overwrite ``arcs[0, z, m]`` by the best slope that raises α_im in block z, ``arcs[1, z, m]`` for lowering it.

    ``places`` tells where the stretches start in which `arc_row` will find the rows.
    """
    begin, end = starts[z], starts[z + 1]
    up, up_start, down, down_start = scan_block(
        E[m, begin:end], E[z, begin:end], alpha[m, begin:end], upper[begin:end]
    )
    arcs[0, z, m], arcs[1, z, m] = up, down
    places[0, z, m], places[1, z, m] = begin + up_start, begin + down_start


@kernel
def scan_classes(alpha: Any, E: Any, upper: Any, starts: Any, changed: Any, arcs: Any, places: Any) -> None:
    """Bring the best arcs up to date after E, or α, has changed in the classes marked in ``changed``."""
    n_classes = starts.size - 1
    for z in range(n_classes):
        for m in range(n_classes):
            if z != m and (changed[z] or changed[m]):
                scan_pair(z, m, alpha, E, upper, starts, arcs, places)


@kernel
def arc_row(a: int, b: int, alpha: Any, E: Any, upper: Any, starts: Any, arcs: Any, places: Any) -> int:
    """Return the row of the best arc a → b."""
    raising = arcs[0, a, b] >= arcs[1, b, a]
    z, m = (a, b) if raising else (b, a)
    start = places[0 if raising else 1, z, m]
    best, row = -HUGE, start
    for i in range(start, min(start + BLOCK, starts[z + 1])):
        may_move = alpha[m, i] < upper[i] if raising else alpha[m, i] > 0.0
        if may_move and E[b, i] - E[a, i] > best:
            best, row = E[b, i] - E[a, i], i
    return row


@kernel
def gain_matrix(arcs: Any, gains: Any) -> None:
    """Overwrite ``gains[a, b]`` by the largest slope of an arc a → b, −HUGE where there is none."""
    for a in range(gains.shape[0]):
        for b in range(gains.shape[0]):
            gains[a, b] = max(arcs[0, a, b], arcs[1, b, a]) if a != b else -HUGE


@kernel
def find_cycle(gains: Any, tol: float, cycle: Any) -> tuple[int, float]:
    """Write the classes of a cycle that improves by more than tol on average; return length and mean gain.

    Two-cycles come first, three-cycles if clearly better, the best of all cycles (Karp 1978) where neither
    will do and there are enough classes for it.
    """
    K = gains.shape[0]
    best, length = -HUGE, 0
    for a in range(K):
        for b in range(a + 1, K):
            mean = 0.5 * (gains[a, b] + gains[b, a])
            if mean > best:
                best, length = mean, 2
                cycle[0], cycle[1] = a, b
    if K > 2 and (K <= THREE_CYCLE_CLASSES or best <= tol):
        threshold = best if best <= tol else best * THREE_CYCLE_FACTOR
        for a in range(K):
            for b in range(a + 1, K):
                for c in range(a + 1, K):
                    mean = (gains[a, b] + gains[b, c] + gains[c, a]) / 3.0
                    if b != c and mean > threshold:
                        threshold, best, length = mean, mean, 3
                        cycle[0], cycle[1], cycle[2] = a, b, c
    if best <= tol and K > 3:
        length, best = max_mean_cycle(gains, cycle)
    return (length, best) if best > tol else (0, best)


@fast_kernel
def second_row(
    first_slope: float, k_ii: float, row: Any, e_a: Any, e_b: Any, alpha: Any, upper: Any, diagonal: Any,
    tau: float, raising: bool,
) -> tuple[float, int]:  # fmt: skip
    """Return the largest gain (s_i + s_j)²/η_ij of a two-cycle over the rows j of one block, and j.

    i runs a → b with the slope ``first_slope``, j runs b → a with E_ja − E_jb, raising its α or lowering it.
    """
    n = e_a.size
    best, best_start = 0.0, 0
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        a, b, x, c = e_a[start:stop], e_b[start:stop], alpha[start:stop], upper[start:stop]
        k_i, k_jj = row[start:stop], diagonal[start:stop]
        block_best = 0.0
        for j in range(a.size):
            may_move = x[j] < c[j] if raising else x[j] > 0.0
            slope = larger(first_slope + a[j] - b[j], 0.0) if may_move else 0.0
            block_best = larger(block_best, slope * slope / larger(k_ii + k_jj[j] - 2.0 * k_i[j], tau))
        if block_best > best:
            best, best_start = block_best, start
    almost = best * (1.0 - 1e-6)  # two roundings of one expression need not agree
    for j in range(best_start, min(best_start + BLOCK, n)):
        may_move = alpha[j] < upper[j] if raising else alpha[j] > 0.0
        slope = larger(first_slope + e_a[j] - e_b[j], 0.0) if may_move else 0.0
        if slope * slope >= almost * larger(k_ii + diagonal[j] - 2.0 * row[j], tau):
            return best, j
    return best, best_start


@fast_kernel
def gather(row: Any, order: Any, out: Any) -> None:
    """Overwrite ``out`` by a Gram row in the solver's order."""
    for k in range(order.size):
        out[k] = row[order[k]]


@fast_kernel
def add_difference(e: Any, step: float, row_i: Any, row_j: Any) -> None:
    """Update e += step (K_i − K_j) in place."""
    for k in range(e.size):
        e[k] += step * (row_i[k] - row_j[k])


@kernel
def step_cycle(length: int, cycle: Any, path: Any, alpha: Any, E: Any, upper: Any, classes: Any, diagonal: Any,
               gram_rows: Any, tau: float) -> None:  # fmt: skip
    """Move along a cycle as far as it pays or the box allows; α and E change in place.

    ``path[k]`` is the row on the arc from ``cycle[k]`` to the next class, ``gram_rows[k]`` its Gram row. A
    variable that reaches its bound is set to it exactly.
    """
    slope, eta, room, tightest = 0.0, 0.0, HUGE, -1
    for k in range(length):
        i, a, b = path[k], cycle[k], cycle[(k + 1) % length]
        before = path[k - 1] if k > 0 else path[length - 1]
        slope += E[b, i] - E[a, i]
        eta += diagonal[i] + diagonal[before] - 2.0 * gram_rows[k, before]
        here = upper[i] - alpha[b, i] if classes[i] == a else alpha[a, i]
        if here < room:
            room, tightest = here, k
    step = slope / max(eta, tau)
    if step < room:
        tightest = -1
    else:
        step = room
    for k in range(length):
        i, a, b = path[k], cycle[k], cycle[(k + 1) % length]
        if classes[i] == a:
            alpha[b, i] = upper[i] if k == tightest else min(alpha[b, i] + step, upper[i])
        else:
            alpha[a, i] = 0.0 if k == tightest else max(alpha[a, i] - step, 0.0)
    for k in range(length):
        add_difference(E[cycle[k]], step, gram_rows[k], gram_rows[k - 1] if k > 0 else gram_rows[length - 1])


@kernel
def ascend(gram: Any, order: Any, starts: Any, classes: Any, diagonal: Any, upper: Any, alpha: Any, E: Any,
           arcs: Any, places: Any, gram_rows: Any, tau: float, tol: float, max_steps: int) -> int:  # fmt: skip
    """Take steps until no cycle gains more than tol on average, or max_steps; return their number.

    α and E change in place; ``arcs``, ``places`` and ``gram_rows`` (K, n) are scratch.
    """
    n_classes = starts.size - 1
    gains = np.empty((n_classes, n_classes))
    cycle, path = np.empty(n_classes + 1, dtype=np.int64), np.empty(n_classes + 1, dtype=np.int64)
    changed = np.ones(n_classes, dtype=np.bool_)
    length, gain, enough = 0, 0.0, 0.0
    for iteration in range(max_steps):
        if gain <= enough:
            scan_classes(alpha, E, upper, starts, changed, arcs, places)
            gain_matrix(arcs, gains)
            length, gain = find_cycle(gains, tol, cycle)
            if length == 0:
                return iteration
            changed[:] = False
            for k in range(length):
                changed[cycle[k]] = True
            # Two classes are kept for some steps: the arcs between them are few to scan.
            enough = max(tol, KEPT_GAIN * gain) if length == 2 else HUGE
        for k in range(length if length > 2 else 1):
            path[k] = arc_row(cycle[k], cycle[(k + 1) % length], alpha, E, upper, starts, arcs, places)
            gather(gram[order[path[k]]], order, gram_rows[k])
        a, b, i = cycle[0], cycle[1], path[0]
        if length == 2:
            in_a, in_b = slice(starts[a], starts[a + 1]), slice(starts[b], starts[b + 1])
            first_slope, k_i = E[b, i] - E[a, i], gram_rows[0]
            raised, j = second_row(first_slope, diagonal[i], k_i[in_b], E[a, in_b], E[b, in_b], alpha[a, in_b],
                                   upper[in_b], diagonal[in_b], tau, True)  # fmt: skip
            lowered, k = second_row(first_slope, diagonal[i], k_i[in_a], E[a, in_a], E[b, in_a], alpha[b, in_a],
                                    upper[in_a], diagonal[in_a], tau, False)  # fmt: skip
            path[1] = starts[b] + j if raised >= lowered else starts[a] + k
            gather(gram[order[path[1]]], order, gram_rows[1])
        step_cycle(length, cycle, path, alpha, E, upper, classes, diagonal, gram_rows, tau)
        if length == 2:
            for k in range(2):
                scan_pair(cycle[k], cycle[1 - k], alpha, E, upper, starts, arcs, places)
            gain = 0.5 * (max(arcs[0, a, b], arcs[1, b, a]) + max(arcs[0, b, a], arcs[1, a, b]))
    return max_steps


@fast_kernel
def block_sums(e_m: Any, e_z: Any, alpha: Any, d: Any) -> tuple[float, float]:
    """Return Σ α d and Σ α (G_z − G_m) over one block and one class m."""
    linear, quadratic = 0.0, 0.0
    for k in range(d.size):
        linear += alpha[k] * d[k]
        quadratic += alpha[k] * (e_z[k] - e_m[k] + d[k])
    return linear, quadratic


@fast_kernel
def block_loss(e_m: Any, e_z: Any, d: Any, upper: Any, bias: float, scale: float) -> tuple[float, float]:
    """Return Σ C ξ at the scaled machine over one block and one class m, and its derivative in the scale."""
    loss, derivative = 0.0, 0.0
    for k in range(d.size):
        margin = e_z[k] - e_m[k] + d[k] + bias
        slack = d[k] - scale * margin
        loss += upper[k] * slack if slack > 0.0 else 0.0
        derivative -= upper[k] * margin if slack > 0.0 else 0.0
    return loss, derivative


@kernel
def duality_gap(alpha: Any, E: Any, d: Any, upper: Any, starts: Any, b: Any) -> tuple[float, float]:
    """Return the dual objective and the least primal objective of the machines s(F_1, …, F_K).

    The primal ½s² Σ βG + Σ C [d − s(F_z − F_m)]₊ is convex in s, its derivative piecewise linear: a Newton
    iteration between bounds finds the zero, or comes so close that the rest is nothing beside the gap.
    """
    n_classes = starts.size - 1
    linear, quadratic = 0.0, 0.0
    for z in range(n_classes):
        begin, end = starts[z], starts[z + 1]
        for m in range(n_classes):
            if m != z:
                sums = block_sums(E[m, begin:end], E[z, begin:end], alpha[m, begin:end], d[m, begin:end])
                linear += sums[0]
                quadratic += sums[1]
    dual = linear - 0.5 * quadratic
    low, high, scale = 0.0, HUGE, 1.0
    best = HUGE
    for _ in range(50):
        primal, slope = 0.5 * scale * scale * quadratic, scale * quadratic
        for z in range(n_classes):
            begin, end = starts[z], starts[z + 1]
            for m in range(n_classes):
                if m != z:
                    loss = block_loss(E[m, begin:end], E[z, begin:end], d[m, begin:end], upper[begin:end],
                                      b[z] - b[m], scale)  # fmt: skip
                    primal += loss[0]
                    slope += loss[1]
        best = min(best, primal)
        if slope > 0.0:
            high = scale
        else:
            low = scale
        # A convex function lies above its tangents: no scale between the bounds is better by more than this.
        better = abs(slope) * (high - low)
        if quadratic <= 0.0 or better <= 1e-3 * (best - dual) or high - low <= 1e-13 * high:
            break
        scale -= slope / quadratic
        if scale <= low or scale >= high:
            scale = 0.5 * (low + high) if high < HUGE else 2.0 * low
    return dual, best


@kernel
def bounds(alpha: Any, E: Any, d: Any, upper: Any, starts: Any, arcs: Any, places: Any) -> tuple[Any, ...]:
    """Return the dual objective, the least primal one of `duality_gap`, the largest mean gain, and the biases.

    ``arcs`` and ``places`` are scratch.
    """
    n_classes = starts.size - 1
    gains = np.empty((n_classes, n_classes))
    scan_classes(alpha, E, upper, starts, np.ones(n_classes, dtype=np.bool_), arcs, places)
    gain_matrix(arcs, gains)
    b, mean = potentials(gains)
    dual, primal = duality_gap(alpha, E, d, upper, starts, b)
    return dual, primal, mean, b


@fast_kernel
def fill_hessian(gram: Any, rows: Any, classes: Any, others: Any, ridge: float, H: Any) -> None:
    """Overwrite the lower triangle of H by the Hessian of −D in the variables α_im, plus the ridge.

    H = K_ij ([z_i = z_j] − [z_i = l] − [m = z_j] + [m = l]) for the variables (i, m) and (j, l); ``rows`` are
    rows of the Gram matrix.
    """
    for p in range(rows.size):
        z, m, row = classes[p], others[p], gram[rows[p]]
        for q in range(p + 1):
            same = (1.0 if z == classes[q] else 0.0) + (1.0 if m == others[q] else 0.0)
            opposite = (1.0 if z == others[q] else 0.0) + (1.0 if m == classes[q] else 0.0)
            H[p, q] = row[rows[q]] * (same - opposite)
        H[p, p] += ridge
