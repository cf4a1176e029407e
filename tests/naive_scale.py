"""Slow, obvious oracles of the machines for many rows: landmarks, statistics of classes, trees with machines in leaves.

The functions here share nothing with the library, nor with `naive`. They loop, they form every matrix, they refit.

Conventions
-----------
``F`` is an n×D array of features, ``y`` a vector of targets, ``weights`` the n weights s_i of the rows (None: all one),
``groups`` the n names of groups of rows that are left out together (None: every row alone). ``kernel`` is a function
kernel(X, Z) -> matrix with one row per row of X and one column per row of Z. A codebook ``matrix`` is a K×L array over
{-1, 0, +1} with 0 for "don't care"; ``C`` is one number or, where there is a codebook, one for every column.

A row of weight 0 takes no part, and its class does not count as present for it. A machine of no rows says 0.
A row is left out by a refit without its group, also where a column does not use the row itself: without groups that
is the plain prediction.
"""

import numpy as np
from scipy.special import logsumexp


def weights_or_ones(weights, n):
    """The weights as floats; ones for None."""
    return np.ones(n) if weights is None else np.asarray(weights, dtype=float)


def rows_without(i, n, groups):
    """The rows that stay when row i is left out, with its group where there are groups."""
    if groups is None:
        return [j for j in range(n) if j != i]
    return [j for j in range(n) if groups[j] != groups[i]]


# --------------------------------------------------------------------------------------------------
# Landmarks
# --------------------------------------------------------------------------------------------------


def landmark_features(kernel, Z, X, tolerance=1e-10):
    """Features with φ(x)·φ(z) = k(x, Z) K_ZZ⁺ k(Z, z) (Nyström), a row for every row of X.

    K_ZZ = V diag(λ) Vᵀ, φ(x) = diag(λ)^-½ Vᵀ k(Z, x), without the λ up to ``tolerance`` times the largest.
    """
    K = np.asarray(kernel(Z, Z), dtype=float)
    K_new = np.asarray(kernel(X, Z), dtype=float)
    eigenvalues, V = np.linalg.eigh((K + K.T) / 2)
    columns = []
    for k in range(len(eigenvalues)):
        if eigenvalues[k] > tolerance * max(eigenvalues):
            columns.append(K_new @ V[:, k] / np.sqrt(eigenvalues[k]))
    return np.array(columns).reshape(len(columns), len(K_new)).T


def pivoted_cholesky(K, r, tolerance=1e-10):
    """Greedy choice of r rows of a positive semidefinite K: pivots, and the trace of the residual after each.

    The next pivot has the largest diagonal of K - K_:P K_PP⁻¹ K_P:, the first of equals. There are fewer than r pivots
    where no diagonal is above ``tolerance`` times the largest of K, so that K_PP has an inverse. (Its pseudo-inverse,
    by eigenvalues, loses the small residuals of smooth kernels.)
    """
    K = np.asarray(K, dtype=float)
    n = len(K)
    residual = K.copy()
    pivots, traces = [], []
    while len(pivots) < r:
        best = None
        for i in range(n):
            if i not in pivots and (best is None or residual[i, i] > residual[best, best]):
                best = i
        if best is None or residual[best, best] <= tolerance * max(np.diag(K)):
            break
        pivots.append(best)
        residual = K - K[:, pivots] @ np.linalg.solve(K[np.ix_(pivots, pivots)], K[pivots, :])
        traces.append(sum(residual[i, i] for i in range(n)))
    return np.array(pivots, dtype=int), np.array(traces)


# --------------------------------------------------------------------------------------------------
# Machines on features
# --------------------------------------------------------------------------------------------------


def feature_machine(F, y, weights, C):
    """The (w, b) that minimise ½|w|² + (C/2) Σ s_i (y_i - w·f_i - b)², with b unregularised.

    Ordinary least squares with a row sqrt(C s_i) (f_i, 1) -> sqrt(C s_i) y_i for every row, and a row (e_j, 0) -> 0 for
    every feature.
    """
    F, y = np.asarray(F, dtype=float), np.asarray(y, dtype=float)
    n, D = F.shape
    s = weights_or_ones(weights, n)
    A = np.zeros((n + D, D + 1))
    rhs = np.zeros(n + D)
    for i in range(n):
        A[i, :D] = np.sqrt(C * s[i]) * F[i]
        A[i, D] = np.sqrt(C * s[i])
        rhs[i] = np.sqrt(C * s[i]) * y[i]
    for j in range(D):
        A[n + j, j] = 1.0
    solution = np.linalg.lstsq(A, rhs, rcond=None)[0]
    return solution[:D], float(solution[D])


def feature_machine_leave_out(F, y, weights, C, groups=None):
    """For every row the prediction of a machine refitted without the row, or without its group."""
    F, y = np.asarray(F, dtype=float), np.asarray(y, dtype=float)
    n = len(F)
    s = weights_or_ones(weights, n)
    predictions = np.zeros(n)
    for i in range(n):
        rest = rows_without(i, n, groups)
        w, b = feature_machine(F[rest], y[rest], s[rest], C)
        predictions[i] = F[i] @ w + b
    return predictions


def class_statistics(F, class_index, weights, n_classes):
    """For every class the sums of s_i, of s_i f_i and of s_i f_i f_iᵀ: arrays (K,), (K, D) and (K, D, D)."""
    F = np.asarray(F, dtype=float)
    n, D = F.shape
    s = weights_or_ones(weights, n)
    zeroth, first, second = np.zeros(n_classes), np.zeros((n_classes, D)), np.zeros((n_classes, D, D))
    for i in range(n):
        c = class_index[i]
        zeroth[c] += s[i]
        for j in range(D):
            first[c, j] += s[i] * F[i, j]
            for k in range(D):
                second[c, j, k] += s[i] * F[i, j] * F[i, k]
    return zeroth, first, second


def machine_from_statistics(stats, codeword_column, C):
    """The (w, b) of `feature_machine` for one column of a codebook, by the normal equations of the statistics.

    [[I + C Σ S_c, C Σ s_c], [C Σ s_cᵀ, C Σ n_c]] [w; b] = C [Σ ± s_c; Σ ± n_c], over the classes that take part.
    """
    zeroth, first, second = stats
    D = first.shape[1]
    A = np.zeros((D + 1, D + 1))
    rhs = np.zeros(D + 1)
    for j in range(D):
        A[j, j] = 1.0
    for c, sign in enumerate(codeword_column):
        if sign != 0:
            A[:D, :D] += C * second[c]
            A[:D, D] += C * first[c]
            A[D, :D] += C * first[c]
            A[D, D] += C * zeroth[c]
            rhs[:D] += C * sign * first[c]
            rhs[D] += C * sign * zeroth[c]
    if A[D, D] == 0:
        return np.zeros(D), 0.0
    solution = np.linalg.solve(A, rhs)
    return solution[:D], float(solution[D])


def codebook_machines(F, class_index, weights, matrix, C, groups=None):
    """The machine of every column, on the rows of the classes that take part in it.

    Returns W (D×L), b (L,), the n×L margins of all rows and their n×L leave-one-out margins.
    """
    F, matrix = np.asarray(F, dtype=float), np.asarray(matrix)
    n, D = F.shape
    L = matrix.shape[1]
    s, C = weights_or_ones(weights, n), np.broadcast_to(C, L)
    W, b, margins, left_out = np.zeros((D, L)), np.zeros(L), np.zeros((n, L)), np.zeros((n, L))
    for k in range(L):
        y = np.array([matrix[class_index[i], k] for i in range(n)], dtype=float)
        used = [i for i in range(n) if y[i] != 0]
        W[:, k], b[k] = feature_machine(F[used], y[used], s[used], C[k])
        for i in range(n):
            margins[i, k] = F[i] @ W[:, k] + b[k]
            rest = [j for j in rows_without(i, n, groups) if y[j] != 0]
            w_rest, b_rest = feature_machine(F[rest], y[rest], s[rest], C[k])
            left_out[i, k] = F[i] @ w_rest + b_rest
    return W, b, margins, left_out


# --------------------------------------------------------------------------------------------------
# Trees
# --------------------------------------------------------------------------------------------------


def route(tree, x):
    """How much of a row goes to every leaf: a dictionary, leaf number -> weight, of the positive weights.

    A tree is ("leaf", number) or ("cut", w, low, high, left, right). Of what comes to a cut, 3v² - 2v³ goes right,
    v = (w·x - low) / (high - low) clipped to 0..1. Where low = high, all goes right if w·x > low, else left.
    """
    if tree[0] == "leaf":
        return {tree[1]: 1.0}
    _, w, low, high, left, right = tree
    t = sum(float(a) * float(c) for a, c in zip(w, x, strict=True))
    if low == high:
        v = 1.0 if t > low else 0.0
    else:
        v = min(max((t - low) / (high - low), 0.0), 1.0)
    share = 3 * v**2 - 2 * v**3
    leaves = {}
    for part, child in [(1.0 - share, left), (share, right)]:
        if part > 0:
            for number, weight in route(child, x).items():
                if part * weight > 0:
                    leaves[number] = leaves.get(number, 0.0) + part * weight
    return leaves


def bordered_machine(K, y, weights, C):
    """Dual coefficients and bias (a, b) of [[0, 1ᵀ], [1, K + diag(1/(C s))]] [b; a] = [0; y], all weights positive."""
    n = len(y)
    A = np.zeros((n + 1, n + 1))
    rhs = np.zeros(n + 1)
    for i in range(n):
        A[0, i + 1] = A[i + 1, 0] = 1.0
        rhs[i + 1] = y[i]
        for j in range(n):
            A[i + 1, j + 1] = K[i, j]
        A[i + 1, i + 1] += 1.0 / (C * weights[i])
    solution = np.linalg.solve(A, rhs)
    return solution[1:], float(solution[0])


def leaf_machine(kernel, X, y, weights, C, new_X):
    """Margins of new rows by an exact kernel machine of targets -1, 0 (takes no part) and +1.

    Where all targets that take part are equal the machine is that constant; where none takes part it is 0.
    """
    used = [i for i in range(len(y)) if y[i] != 0 and weights[i] > 0]
    sides = {y[i] for i in used}
    if len(sides) == 0:
        return np.zeros(len(new_X))
    if len(sides) == 1:
        return np.full(len(new_X), sides.pop())
    a, b = bordered_machine(kernel(X[used], X[used]), y[used], weights[used], C)
    return kernel(new_X, X[used]) @ a + b


def leaf_machine_outputs(kernel, X, class_index, weights, matrix, C, new_X, groups=None):
    """Margins of new rows (m×L) and leave-one-out margins of the rows (n×L) by the exact machines of a leaf.

    Classes of the codebook may be absent from the leaf: see `leaf_machine` for the columns that lose a side, whether
    in the whole leaf or by the row left out.
    """
    X, new_X, matrix = np.asarray(X, dtype=float), np.asarray(new_X, dtype=float), np.asarray(matrix)
    n, L = len(X), matrix.shape[1]
    s, C = weights_or_ones(weights, n), np.broadcast_to(C, L)
    margins, left_out = np.zeros((len(new_X), L)), np.zeros((n, L))
    for k in range(L):
        y = np.array([matrix[class_index[i], k] for i in range(n)], dtype=float)
        margins[:, k] = leaf_machine(kernel, X, y, s, C[k], new_X)
        for i in range(n):
            rest = rows_without(i, n, groups)
            left_out[i, k] = leaf_machine(kernel, X[rest], y[rest], s[rest], C[k], X[[i]])[0]
    return margins, left_out


def leaf_numbers(tree):
    """The numbers of the leaves of a tree, each once, from left to right."""
    if tree[0] == "leaf":
        return [tree[1]]
    numbers = []
    for number in [*leaf_numbers(tree[4]), *leaf_numbers(tree[5])]:
        if number not in numbers:
            numbers.append(number)
    return numbers


def forest_outputs(
    tree, kernel, X, class_index, weights, matrix, C, new_X, groups=None, members=None, share_weights=False
):
    """Margins of new rows (m×L) and leave-one-out margins of the rows (n×L) of a tree with machines in its leaves.

    A new row has the sum of the leaves' margins, weighted by its routing. A training row has the mean of the leaves'
    leave-one-out margins, weighted by its routing, over the leaves that hold it; where no leaf that it is routed to
    holds it, the mean over all of them, of machines without its group.

    A leaf holds the rows that are routed to it with a positive weight, or the rows ``members[leaf]`` if given.
    In a leaf a row has its own weight; with ``share_weights``, its weight times its share in the leaf.
    ``kernel`` and ``C`` may be dictionaries by leaf.
    """
    X, new_X, matrix = np.asarray(X, dtype=float), np.asarray(new_X, dtype=float), np.asarray(matrix)
    n, L = len(X), matrix.shape[1]
    s = weights_or_ones(weights, n)
    shares = [route(tree, x) for x in X]

    def outputs_of_leaf(leaf, rows, at):
        """Margins at some rows, and leave-one-out margins, of the machines of a leaf that holds the rows given."""
        return leaf_machine_outputs(
            kernel[leaf] if isinstance(kernel, dict) else kernel,
            X[rows],
            [class_index[i] for i in rows],
            np.array([s[i] * (shares[i].get(leaf, 0.0) if share_weights else 1.0) for i in rows]),
            matrix,
            C[leaf] if isinstance(C, dict) else C,
            at,
            None if groups is None else [groups[i] for i in rows],
        )

    rows_of, margins_of, left_out_of = {}, {}, {}
    for leaf in leaf_numbers(tree):
        if members is None:
            rows_of[leaf] = [i for i in range(n) if leaf in shares[i]]
        else:
            rows_of[leaf] = list(members.get(leaf, []))
        margins_of[leaf], left_out_of[leaf] = outputs_of_leaf(leaf, rows_of[leaf], new_X)

    margins = np.zeros((len(new_X), L))
    for i, x in enumerate(new_X):
        for leaf, share in route(tree, x).items():
            margins[i] += share * margins_of[leaf][i]

    left_out = np.zeros((n, L))
    for i in range(n):
        held, total, total_share = False, np.zeros(L), 0.0
        for leaf, share in shares[i].items():
            if i in rows_of[leaf]:
                held = True
                total += share * left_out_of[leaf][rows_of[leaf].index(i)]
                total_share += share
        if not held:
            for leaf, share in shares[i].items():
                rest = [j for j in rows_without(i, n, groups) if j in rows_of[leaf]]
                total += share * outputs_of_leaf(leaf, rest, X[[i]])[0][0]
                total_share += share
        left_out[i] = total / total_share
    return margins, left_out


# --------------------------------------------------------------------------------------------------
# Pools
# --------------------------------------------------------------------------------------------------


def log_linear_pool(log_ps, u, log_prior):
    """Logarithms (n×K) of π_k Π_m (p_mk / π_k)^u_m, normalised in every row.

    ``log_ps`` holds M arrays n×K and ``u`` M exponents; ``log_prior`` has shape (K,), or (n, K) with a prior for every
    row. A class without prior has no probability; a member with exponent 0 does not count, whatever it says.
    """
    n, K = np.shape(log_ps[0])
    log_prior = np.broadcast_to(log_prior, (n, K))
    pooled = np.zeros((n, K))
    for i in range(n):
        for k in range(K):
            pooled[i, k] = log_prior[i, k]
            if np.isneginf(log_prior[i, k]):
                continue
            for m in range(len(u)):
                if u[m] != 0:
                    pooled[i, k] += u[m] * (log_ps[m][i][k] - log_prior[i, k])
        pooled[i] -= logsumexp(pooled[i])
    return pooled
