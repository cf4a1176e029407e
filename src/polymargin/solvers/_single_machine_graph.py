"""The graph of classes: improving cycles, potentials that are the biases, and flows made feasible."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.solvers._smo_kernels import HUGE
from polymargin.solvers._smo_rows import kernel

Array = NDArray[np.float64]


@kernel
def max_mean_cycle(gains: Any, cycle: Any) -> tuple[int, float]:
    """Write the classes of the cycle with the largest mean gain; return its length and the mean.

    Karp (1978): with D_k(v) the best walk of k arcs that ends in v, the mean is max_v min_k
    (D_K(v) − D_k(v))/(K − k), and the cycle lies on the walk of the best v. Without any cycle the length is 0
    and the mean −HUGE.
    """
    K = gains.shape[0]
    walk = np.full((K + 1, K), -HUGE)
    parent = np.zeros((K + 1, K), dtype=np.int64)
    walk[0] = 0.0
    for k in range(1, K + 1):
        for a in range(K):
            if walk[k - 1, a] > -0.5 * HUGE:
                for b in range(K):
                    if gains[a, b] > -0.5 * HUGE and walk[k - 1, a] + gains[a, b] > walk[k, b]:
                        walk[k, b], parent[k, b] = walk[k - 1, a] + gains[a, b], a
    best, last = -HUGE, -1
    for v in range(K):
        if walk[K, v] > -0.5 * HUGE:
            mean = HUGE
            for k in range(K):
                if walk[k, v] > -0.5 * HUGE:
                    mean = min(mean, (walk[K, v] - walk[k, v]) / (K - k))
            if mean > best:
                best, last = mean, v
    if last < 0:
        return 0, -HUGE
    nodes, v = np.empty(K + 1, dtype=np.int64), last
    for k in range(K, -1, -1):
        nodes[k] = v
        v = parent[k, v]
    # Every stretch of the walk between two visits to a class is a closed walk; the best one is the cycle.
    length, best = 0, -HUGE
    for i in range(K + 1):
        total = 0.0
        for j in range(i + 1, K + 1):
            total += gains[nodes[j - 1], nodes[j]]
            if nodes[j] == nodes[i]:
                if total / (j - i) > best:
                    best, length = total / (j - i), j - i
                    for k in range(length):
                        cycle[k] = nodes[i + k]
                break
    return length, best


@kernel
def potentials(gains: Any) -> tuple[Any, float]:
    """Return the biases b and the largest mean gain of a cycle.

    The optimality conditions ask for b_a − b_b ≥ gains[a, b]: a potential, which exists if no cycle gains
    anything. Taking the largest mean off every arc makes it exist always, and leaves no slack on the worst
    cycle. The longest walks from each class, and to each class with the sign turned, are the extreme
    potentials; b is their mean, centred.
    """
    K = gains.shape[0]
    length, mean = max_mean_cycle(gains, np.empty(K + 1, dtype=np.int64))
    shift = mean if length else 0.0
    out, into, b = np.zeros(K), np.zeros(K), np.empty(K)
    for _ in range(K):  # Bellman–Ford
        for i in range(K):
            for j in range(K):
                out[i] = max(out[i], gains[i, j] - shift + out[j])
                into[j] = max(into[j], gains[i, j] - shift + into[i])
    total = 0.0
    for k in range(K):
        b[k] = 0.5 * (out[k] - into[k])
        total += b[k]
    for k in range(K):
        b[k] -= total / K
    return b, mean


def circulation(flow: Array) -> Array:
    """Return a flow ≤ ``flow`` on the same K×K graph that is conserved in every class.

    The excess outflow of a class is reduced along a path to a class with excess inflow; such a path exists as long as
    one class is out of balance.

    Examples
    --------
    >>> circulation(np.array([[0.0, 3.0], [2.0, 0.0]]))
    array([[0., 2.], [2., 0.]])
    """
    flow = flow.copy()
    K, rounding = flow.shape[0], 1e-15 * flow.sum()
    for _ in range(K * K + K):
        balance = flow.sum(axis=1) - flow.sum(axis=0)
        source = int(balance.argmax())
        if balance[source] <= rounding:
            break
        parent = {source: source}
        queue = [source]
        for a in queue:
            for b in np.flatnonzero(flow[a]):
                if int(b) not in parent:
                    parent[int(b)] = a
                    queue.append(int(b))
        sink = min(queue, key=lambda c: balance[c])
        path = [sink]
        while path[-1] != source:
            path.append(parent[path[-1]])
        arcs = (path[1:], path[:-1])
        amount = min(balance[source], -balance[sink], float(flow[arcs].min()))
        if amount <= 0.0:
            break
        flow[arcs] -= amount
    return flow
