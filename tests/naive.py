"""Slow, obvious oracles: every formula of the papers written once more, without cleverness.

The functions here share nothing with the library. They loop, they form every matrix, they refit n times. The
test-suite compares the library's fast routines with them.

References
----------
- Van Gestel, Suykens, Lanckriet, Lambrechts, De Moor and Vandewalle (2002). Multiclass LS-SVMs: Moderated Outputs and
  Coding-Decoding Schemes. Neural Processing Letters 15.
- Bravo, L'Huillier, Lobato and Weber (2010). Probability Estimation for Multiclass Problems Combining SVMs and Neural
  Networks. Neural Network World.
- Allwein, Schapire and Singer (2000). Reducing Multiclass to Binary: A Unifying Approach for Margin Classifiers.
  Journal of Machine Learning Research 1, 113-141.
- Platt, Cristianini and Shawe-Taylor (2000). Large Margin DAGs for Multiclass Classification. NIPS 12.

Conventions
-----------
``K`` is an n×n Gram matrix, ``y`` a vector (or n×L matrix) of targets, ``C = zeta / mu`` the regularisation.
A codebook ``M`` is a K×L array over {-1, 0, +1} with 0 for "don't care"; ``z`` holds n×L margins.
"""

import itertools

import numpy as np
from scipy.linalg import helmert
from scipy.optimize import minimize, nnls
from scipy.special import logsumexp

# --------------------------------------------------------------------------------------------------
# Kernels
# --------------------------------------------------------------------------------------------------


def kernel_matrix(kind, X, Z, gamma=1.0, degree=3, coef0=1.0, share=0.3, ratio=1.0):
    """Gram matrix between the rows of X and of Z, entry by entry (Van Gestel et al. 2002, §2.1).

    linear x·z; poly (gamma x·z + coef0)^degree; rbf exp(-gamma |x - z|²); laplacian exp(-gamma |x - z|_1);
    exponential exp(-gamma |x - z|_2); blend, a sum of two: share of the Laplacian, with gamma times ratio, and the rest
    of the Gaussian.
    """
    X, Z = np.asarray(X, dtype=float), np.asarray(Z, dtype=float)
    K = np.zeros((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            if kind == "linear":
                K[i, j] = np.sum(x * z)
            elif kind == "poly":
                K[i, j] = (gamma * np.sum(x * z) + coef0) ** degree
            elif kind == "rbf":
                K[i, j] = np.exp(-gamma * np.sum((x - z) ** 2))
            elif kind == "laplacian":
                K[i, j] = np.exp(-gamma * np.sum(np.abs(x - z)))
            elif kind == "exponential":
                K[i, j] = np.exp(-gamma * np.sqrt(np.sum((x - z) ** 2)))
            elif kind == "blend":
                rough, smooth = np.sum(np.abs(x - z)), np.sum((x - z) ** 2)
                K[i, j] = share * np.exp(-gamma * ratio * rough) + (1 - share) * np.exp(-gamma * smooth)
            else:
                raise ValueError(f"unknown kernel {kind!r}")
    return K


def kernel_gradient(kind, x, z, gamma=1.0, degree=3, coef0=1.0, share=0.3, ratio=1.0, flat=0.0, flats=0.0):
    """Gradient of k(x, z) in z, from the formulas of `kernel_matrix`.

    Where the distance or the difference of a column has a kink, at zero, the derivative is zero. Within ``flat`` of the
    kink (``flats`` of every column, for city-block distances) it rises in proportion to the distance.
    """
    x, z = np.asarray(x, dtype=float), np.asarray(z, dtype=float)
    u = z - x
    signs = np.zeros(u.size)
    for j, (difference, within) in enumerate(zip(u, np.broadcast_to(flats, u.shape), strict=True)):
        if difference != 0:
            signs[j] = difference / max(abs(difference), within)
    distance = np.sqrt(np.sum(u**2))
    if kind == "linear":
        return x
    if kind == "poly":
        return degree * gamma * (gamma * np.sum(x * z) + coef0) ** (degree - 1) * x
    if kind == "rbf":
        return -2 * gamma * np.exp(-gamma * np.sum(u**2)) * u
    if kind == "laplacian":
        return -gamma * np.exp(-gamma * np.sum(np.abs(u))) * signs
    if kind == "exponential":
        return -gamma * np.exp(-gamma * distance) * (u / max(distance, flat) if distance > 0 else 0 * u)
    if kind == "blend":
        rough = kernel_gradient("laplacian", x, z, gamma * ratio, flats=flats)
        return share * rough + (1 - share) * kernel_gradient("rbf", x, z, gamma)
    raise ValueError(f"unknown kernel {kind!r}")


def mean_squared_gradients(kind, X, Z, a, gamma, weights, **parameters):
    """G_lj = Σ_m w_ml (∂f_l/∂x_j(z_m))² / Σ_m w_ml, of machines f_l(z) = Σ_i a_il k(x_i, z) with their own gamma."""
    L, d = a.shape[1], X.shape[1]
    G = np.zeros((L, d))
    for k in range(L):
        for m, z in enumerate(Z):
            gradient = np.zeros(d)
            for i, x in enumerate(X):
                gradient += a[i, k] * kernel_gradient(kind, x, z, gamma[k], **parameters)
            G[k] += weights[m, k] * gradient**2
        G[k] /= np.sum(weights[:, k])
    return G


def poly2_features(X, gamma, coef0):
    """Explicit feature map of (gamma x·z + coef0)²: its inner products are the kernel of degree 2.

    (gamma x·z + c)² = gamma² Σ_ij x_i x_j z_i z_j + 2 gamma c Σ_i x_i z_i + c², so the features are all
    products gamma x_i x_j, all sqrt(2 gamma c) x_i, and the constant c. Needs gamma * coef0 >= 0.
    """
    rows = []
    for x in np.asarray(X, dtype=float):
        products = [gamma * u * v for u in x for v in x]
        linear = [np.sqrt(2 * gamma * coef0) * u for u in x]
        rows.append([*products, *linear, coef0])
    return np.array(rows)


# --------------------------------------------------------------------------------------------------
# LS-SVM: level 1
# --------------------------------------------------------------------------------------------------


def lssvm_solve(K, y, C, sample_weight=None):
    """Dual coefficients and bias (a, b) of the LS-SVM in regression form (Van Gestel et al. 2002, eq. (6)).

    Minimises ½|w|² + (C/2) Σ s_i e_i², e_i = y_i - w·φ_i - b, by the dense bordered system
    [[0, 1ᵀ], [1, K + diag(1/(C s))]] [b; a] = [0; y]. A row of weight 0 takes no part and has a = 0.
    For y of shape (n, L), a has shape (n, L) and b shape (L,); for a vector y, b is a float.
    """
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    n = len(K)
    s = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    used = [i for i in range(n) if s[i] > 0]
    m = len(used)

    A = np.zeros((m + 1, m + 1))
    rhs = np.zeros((m + 1, *y.shape[1:]))
    for p, i in enumerate(used):
        A[0, p + 1] = A[p + 1, 0] = 1.0
        rhs[p + 1] = y[i]
        for q, j in enumerate(used):
            A[p + 1, q + 1] = K[i, j]
        A[p + 1, p + 1] += 1.0 / (C * s[i])
    solution = np.linalg.solve(A, rhs)

    a = np.zeros(y.shape)
    a[used] = solution[1:]
    b = solution[0]
    return a, (float(b) if y.ndim == 1 else b)


def lssvm_solve_classification_form(K, y, C):
    """Support values and bias (alpha, b) from Van Gestel et al. 2002, eq. (4), Ω_ij = y_i y_j K_ij, mu/zeta = 1/C.

    y must be ±1. Then alpha_i y_i is the a_i of `lssvm_solve`.
    """
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    n = len(y)
    omega = np.array([[y[i] * y[j] * K[i, j] for j in range(n)] for i in range(n)])
    A = np.zeros((n + 1, n + 1))
    A[0, 1:] = y
    A[1:, 0] = y
    A[1:, 1:] = omega + np.eye(n) / C
    solution = np.linalg.solve(A, np.concatenate([[0.0], np.ones(n)]))
    return solution[1:], float(solution[0])


def lssvm_predict(K_new, a, b):
    """Margins z(x) = Σ_i a_i K(x, x_i) + b, Van Gestel et al. 2002, eq. (5); K_new has one row per new point."""
    return np.asarray(K_new) @ a + b


def lssvm_loo_margins(K, y, C, sample_weight=None, groups=None):
    """Leave-one-out margins by refits: row i is removed whole, whatever its weight, with all rows of its group."""
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    n = len(K)
    s = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    group = range(n) if groups is None else groups
    margins = np.zeros(y.shape)
    for i in range(n):
        rest = [j for j in range(n) if group[j] != group[i]]
        a, b = lssvm_solve(K[np.ix_(rest, rest)], y[rest], C, s[rest])
        margins[i] = lssvm_predict(K[i, rest], a, b)
    return margins


def lssvm_press(K, y, C, sample_weight=None, groups=None):
    """Σ s_i (y_i - margin of a machine without row i and its group)², column by column."""
    s = np.ones(len(K)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    errors = y - lssvm_loo_margins(K, y, C, s, groups)
    return np.sum(s.reshape(-1, *[1] * (np.ndim(y) - 1)) * errors**2, axis=0)


def lssvm_nested_margins(K, y, C, folds, sample_weight=None, groups=None):
    """F×n margins, one machine after the other, for a vector y.

    In fold f: of its rows, those of a machine trained without the fold; of any other row, those of a machine trained
    without the fold and without the row's group.
    """
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    n = len(K)
    s = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    group = range(n) if groups is None else groups
    margins = np.zeros((max(folds) + 1, n))
    for f in range(max(folds) + 1):
        for i in range(n):
            rest = [j for j in range(n) if folds[j] != f and (folds[i] == f or group[j] != group[i])]
            a, b = lssvm_solve(K[np.ix_(rest, rest)], y[rest], C, s[rest])
            margins[f, i] = lssvm_predict(K[i, rest], a, b)
    return margins


def shift_of_the_mean(y, sample_weight=None, groups=None, kept=None):
    """By how much the weighted mean of the kept targets exceeds that without row i and its group; zero if not kept."""
    n = len(y)
    s = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    group = range(n) if groups is None else groups
    kept = [True] * n if kept is None else kept
    shifts = np.zeros(n)
    for i in range(n):
        if kept[i]:
            rows = [j for j in range(n) if kept[j]]
            rest = [j for j in rows if group[j] != group[i]]
            shifts[i] = np.average(y[rows], weights=s[rows]) - np.average(y[rest], weights=s[rest])
    return shifts


def hat_matrix(K, C, sample_weight=None):
    """The matrix that takes the targets to what the machine says of its own rows."""
    a, b = lssvm_solve(K, np.eye(len(K)), C, sample_weight)
    return lssvm_predict(K, a, b)


def lssvm_gcv(K, y, C, sample_weight=None, counted=None):
    """Shim et al. (2008), eq. (4.5), times n: squared residuals over the squared mean of one minus the leverages."""
    y = np.asarray(y, dtype=float)
    s = np.ones(len(K)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    counted = np.ones_like(y) if counted is None else counted
    H = hat_matrix(K, C, s)
    squares = np.sum(s[:, None] * counted * (y - H @ y) ** 2, axis=0)
    return squares / np.mean([1.0 - H[i, i] for i in range(len(K))]) ** 2


# --------------------------------------------------------------------------------------------------
# LS-SVM: evidence (levels 2 and 3)
# --------------------------------------------------------------------------------------------------


def centred_eigenvalues(K):
    """The N-1 eigenvalues of G = M K M on the complement of the vector 1, none below 0.

    The direction 1 itself, on which G is zero by construction, is left out by projecting on Helmert's
    orthonormal basis of its complement.
    """
    V = helmert(len(K))
    return np.maximum(np.linalg.eigvalsh(V @ np.asarray(K, dtype=float) @ V.T), 0.0)


def log_evidence(K, y, mu, zeta, sample_weight=None):
    """Log p(D | mu, zeta, H), the denominator of Van Gestel et al. 2002, eq. (7), exact, from function space.

    With w ~ N(0, I/mu) integrated out and e_i ~ N(0, 1/zeta): y | b ~ N(b 1, Σ), Σ = K/mu + I/zeta. The
    prior on b is flat; the integral of this Gaussian over b is, with b̂ = 1ᵀΣ⁻¹y / 1ᵀΣ⁻¹1 and r = y - b̂ 1,

        -(N-1)/2 log 2π - ½ log|Σ| - ½ log(1ᵀΣ⁻¹1) - ½ rᵀΣ⁻¹r.

    (P(y_i) of eq. (9) is a constant and is left out.) Weights are multiplicities: a row of weight s stands
    for s equal rows. Their mean has noise 1/(s zeta), and what is left of their density, the likelihood of
    s - 1 differences that are all zero, is (s-1)/2 log(zeta/2π) - ½ log s.
    """
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    s = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    K, y, s = K[np.ix_(s > 0, s > 0)], y[s > 0], s[s > 0]
    N = len(y)
    one = np.ones(N)
    sigma = K / mu + np.diag(1.0 / (zeta * s))
    sign, logdet = np.linalg.slogdet(sigma)
    if sign <= 0:
        return -np.inf
    sigma_inv_one = np.linalg.solve(sigma, one)
    mass = one @ sigma_inv_one
    b = sigma_inv_one @ y / mass
    r = y - b * one
    copies = np.sum(0.5 * (s - 1) * np.log(zeta / (2 * np.pi)) - 0.5 * np.log(s))
    return (
        -0.5 * (N - 1) * np.log(2 * np.pi)
        - 0.5 * logdet
        - 0.5 * np.log(mass)
        - 0.5 * r @ np.linalg.solve(sigma, r)
        + copies
    )


def energies(K, y, C):
    """E_W = ½|w|² and E_D = ½ Σ e_i² at the optimum of Van Gestel et al. 2002, eq. (2), from the fitted LS-SVM."""
    a, b = lssvm_solve(K, y, C)
    e = np.asarray(y, dtype=float) - lssvm_predict(K, a, b)
    return 0.5 * a @ np.asarray(K, dtype=float) @ a, 0.5 * np.sum(e**2)


def evidence_level2_cost(K, y, C):
    """Level-2 cost: Σ_{i=1}^{N-1} log(λ_i + 1/C) + (N-1) log(E_W + C E_D)."""
    N = len(y)
    E_W, E_D = energies(K, y, C)
    return sum(np.log(lam + 1.0 / C) for lam in centred_eigenvalues(K)) + (N - 1) * np.log(E_W + C * E_D)


def evidence_mu_zeta_given_C(K, y, C):
    """The best mu for a given C, mu = (N-1) / (2 (E_W + C E_D)), and zeta = mu C."""
    E_W, E_D = energies(K, y, C)
    mu = (len(y) - 1) / (2.0 * (E_W + C * E_D))
    return mu, mu * C


def evidence_mu_zeta_brute(K, y):
    """Level 2 of Van Gestel et al. 2002, §2.2 by brute force: (mu, zeta, log evidence) that maximise `log_evidence`.

    A grid of 25 × 25 over (log mu, log zeta), then Nelder-Mead from every local maximum of the grid. Where
    the evidence has no interior maximum (a flat or an unbounded direction, see test_naive) the result lies
    far out and means little. mu and zeta are good to about 1e-6 relative, the log evidence to 1e-10.
    """
    scale = np.log(np.mean(centred_eigenvalues(K)))
    log_mu = scale + np.log(10.0) * np.linspace(-5, 5, 25)
    log_zeta = np.log(10.0) * np.linspace(-4, 6, 25)

    def negative(p):
        return -log_evidence(K, y, np.exp(p[0]), np.exp(p[1]))

    grid = np.array([[negative((p, q)) for q in log_zeta] for p in log_mu])
    padded = np.pad(grid, 1, constant_values=np.inf)
    best = None
    for i in range(len(log_mu)):
        for j in range(len(log_zeta)):
            if grid[i, j] > padded[i : i + 3, j : j + 3].min():
                continue  # a neighbour is better
            options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 2000, "maxfev": 4000}
            found = minimize(negative, (log_mu[i], log_zeta[j]), method="Nelder-Mead", options=options)
            if best is None or found.fun < best.fun:
                best = found
    return float(np.exp(best.x[0])), float(np.exp(best.x[1])), float(-best.fun)


def gamma_eff(K, mu, zeta):
    """Effective number of parameters: 1 + Σ_i zeta λ_i / (mu + zeta λ_i)."""
    total = 1.0
    for lam in centred_eigenvalues(K):
        total += zeta * lam / (mu + zeta * lam)
    return total


def evidence_log_model(K, y, mu, zeta):
    """Level 3, log p(D | H) up to a constant that depends on N alone.

    ½ [N_eff log mu + (N-1) log zeta - log(γ_eff - 1) - log(N - γ_eff) - Σ_{i=1}^{N_eff} log(mu + zeta λ_i)],
    where the sum runs over the N_eff non-zero eigenvalues. It holds at the optimal (mu, zeta) only, because
    -(mu E_W + zeta E_D) is taken to be the constant -(N-1)/2; y enters through (mu, zeta) alone.
    """
    N = len(y)
    eigenvalues = centred_eigenvalues(K)
    nonzero = [lam for lam in eigenvalues if lam > 1e-12 * max(eigenvalues.max(), 1e-300)]
    effective = gamma_eff(K, mu, zeta)
    return 0.5 * (
        len(nonzero) * np.log(mu)
        + (N - 1) * np.log(zeta)
        - np.log(effective - 1.0)
        - np.log(N - effective)
        - sum(np.log(mu + zeta * lam) for lam in nonzero)
    )


# --------------------------------------------------------------------------------------------------
# LS-SVM: predictive variance
# --------------------------------------------------------------------------------------------------


def predictive_variance_primal(Phi, phi_new, mu, zeta, sample_weight=None):
    """σ_z² = gᵀH⁻¹g of Van Gestel et al. 2002, §2.2, in the primal, with g = [φ(x); 1] and explicit features.

    H is the Hessian of mu/2 |w|² + zeta/2 Σ s_i (y_i - w·φ_i - b)² with respect to [w; b]:
    the sum over i of zeta s_i [φ_i; 1][φ_i; 1]ᵀ, plus mu on the diagonal of w and nothing on that of b.
    phi_new is one feature vector (a float comes back) or a matrix of them (a vector comes back).
    """
    Phi, phi_new = np.asarray(Phi, dtype=float), np.asarray(phi_new, dtype=float)
    N, d = Phi.shape
    s = np.ones(N) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    H = np.diag([mu] * d + [0.0])
    for i in range(N):
        g = np.append(Phi[i], 1.0)
        H = H + zeta * s[i] * np.outer(g, g)
    variances = []
    for phi in np.atleast_2d(phi_new):
        g = np.append(phi, 1.0)
        variances.append(g @ np.linalg.solve(H, g))
    return float(variances[0]) if phi_new.ndim == 1 else np.array(variances)


def predictive_variance_printed(K, k_new, k_new_new, y, mu, zeta, sign=-1):
    """σ_z² by Van Gestel et al. 2002, eq. (12) term by term; `sign` is that of its fifth term (2/N) mu⁻¹ θᵀY.

    sign=+1 is the equation as printed, sign=-1 the corrected one. k_new holds K(x, x_i) for one
    new point (a float comes back) or one row per point, with k_new_new = K(x, x) to match.

    The eigenproblem (13), P Ω v = λ v with P = I - YYᵀ/N, is solved in its symmetric form P Ω P v = λ v.
    Where λ ≠ 0, v lies in the range of P, so P v = v and both say the same; and the v of the symmetric
    form are Ω-orthogonal also when eigenvalues repeat.
    """
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    N = len(y)
    omega = np.outer(y, y) * K
    P = np.eye(N) - np.outer(y, y) / N
    eigenvalues, vectors = np.linalg.eigh(P @ omega @ P)
    kept = [i for i in range(N) if eigenvalues[i] > 1e-12 * eigenvalues.max()]
    U_G = np.array([vectors[:, i] / np.sqrt(vectors[:, i] @ omega @ vectors[:, i]) for i in kept]).T
    D_G = np.diag(eigenvalues[kept])
    eye = np.eye(len(kept))
    H_D = U_G @ (np.linalg.inv(mu * eye + zeta * D_G) - eye / mu) @ U_G.T  # N×N (misprinted as N_eff×N_eff)

    variances = []
    for k, kxx in zip(np.atleast_2d(k_new), np.atleast_1d(k_new_new), strict=True):
        theta = y * k
        variances.append(
            theta @ H_D @ theta
            + kxx / mu
            + 1.0 / (N * zeta)
            - (2.0 / N) * theta @ H_D @ omega @ y
            + sign * (2.0 / N) / mu * theta @ y
            + y @ omega @ H_D @ omega @ y / N**2
            + y @ omega @ y / (mu * N**2)
        )
    return float(variances[0]) if np.ndim(k_new) == 1 else np.array(variances)


# --------------------------------------------------------------------------------------------------
# Codebooks
# --------------------------------------------------------------------------------------------------


def one_vs_one(K):
    """One column per pair i < j, in order (0,1), (0,2), ...: class i has -1, j has +1 (Van Gestel et al. 2002, §1)."""
    columns = []
    for i, j in itertools.combinations(range(K), 2):
        column = [0] * K
        column[i], column[j] = -1, 1
        columns.append(column)
    return np.array(columns).T


def one_vs_all(K):
    """Column k is +1 for class k and -1 for all others (Van Gestel et al. 2002, §1)."""
    return np.array([[1 if k == m else -1 for m in range(K)] for k in range(K)])


def exhaustive_columns(K):
    """All 2^(K-1) - 1 non-constant ±1 columns, +1 for class 0 (ECOC's candidates; Van Gestel et al. 2002, §5)."""
    columns = []
    for rest in itertools.product([1, -1], repeat=K - 1):
        if -1 in rest:
            columns.append([1, *rest])
    return np.array(columns).T


def codebook_distance(M):
    """K×K matrix of Σ_l (1 - M_il M_jl)/2; a don't care counts ½, also on the diagonal (Van Gestel et al. 2002, §5)."""
    M = np.asarray(M, dtype=float)
    K, L = M.shape
    D = np.zeros((K, K))
    for i in range(K):
        for j in range(K):
            for column in range(L):
                D[i, j] += (1.0 - M[i, column] * M[j, column]) / 2.0
    return D


# --------------------------------------------------------------------------------------------------
# Decoders that give labels
# --------------------------------------------------------------------------------------------------


def _best_then_margin(scores, M, z_row):
    """Class of the largest score; ties to the largest Σ_l M_kl z_l, then to the lowest class index."""
    tied = [k for k in range(len(scores)) if scores[k] == max(scores)]
    return max(tied, key=lambda k: (np.sum(M[k] * z_row), -k))


def hamming_decode(M, z):
    """Labels of least Hamming distance Σ_l (1 - M_kl sign(z_l))/2, a don't care counts ½ (Van Gestel et al. 2002, §5).

    Ties go to the largest Σ_l M_kl z_l, which for one-vs-all is the largest output, as in Van Gestel et al. 2002, §5.
    """
    M, z = np.asarray(M, dtype=float), np.asarray(z, dtype=float)
    labels = []
    for row in z:
        distances = [
            sum((1 - M[k, c] * np.sign(row[c])) / 2 for c in range(M.shape[1])) for k in range(len(M))
        ]
        labels.append(_best_then_margin([-d for d in distances], M, row))
    return np.array(labels)


def binary_loss(loss, margin):
    """Loss of one bit at margin m z: squared, hinge, logistic or exponential (Allwein et al. 2000)."""
    if loss == "squared":
        return (1.0 - margin) ** 2
    if loss == "hinge":
        return max(0.0, 1.0 - margin)
    if loss == "logistic":
        return np.logaddexp(0.0, -margin)
    if loss == "exponential":
        return np.exp(-margin)
    raise ValueError(f"unknown loss {loss!r}")


def loss_decode(M, z, loss):
    """Labels of least total loss, and the n×K totals; a don't care adds loss(0) (Allwein et al. 2000)."""
    M, z = np.asarray(M, dtype=float), np.asarray(z, dtype=float)
    totals = np.zeros((len(z), len(M)))
    for i in range(len(z)):
        for k in range(len(M)):
            for column in range(M.shape[1]):
                totals[i, k] += binary_loss(loss, M[k, column] * z[i, column])
    return totals.argmin(axis=1), totals


def votes_decode(M, z):
    """Max-wins for one-vs-one codebooks (Van Gestel et al. 2002, §1): one vote per column, half to each where z = 0.

    Ties go to the largest Σ_l M_kl z_l. It is `hamming_decode` in other words: distance = (L+K-1)/2 - votes.
    """
    M, z = np.asarray(M, dtype=float), np.asarray(z, dtype=float)
    labels = []
    for row in z:
        votes = [0.0] * len(M)
        for column in range(M.shape[1]):
            plus = int(np.flatnonzero(M[:, column] == 1)[0])
            minus = int(np.flatnonzero(M[:, column] == -1)[0])
            if row[column] > 0:
                votes[plus] += 1
            elif row[column] < 0:
                votes[minus] += 1
            else:
                votes[plus] += 0.5
                votes[minus] += 0.5
        labels.append(_best_then_margin(votes, M, row))
    return np.array(labels)


def dag_decode(M, z):
    """Decision DAG for one-vs-one codebooks (Platt et al. 2000): first against last, the loser leaves.

    Where the deciding margin is exactly 0 the first of the two stays.
    """
    M, z = np.asarray(M, dtype=float), np.asarray(z, dtype=float)
    labels = []
    for row in z:
        alive = list(range(len(M)))
        while len(alive) > 1:
            first, last = alive[0], alive[-1]
            column = next(c for c in range(M.shape[1]) if M[first, c] != 0 and M[last, c] != 0)
            if row[column] * M[last, column] > 0:
                alive.remove(first)
            else:
                alive.remove(last)
        labels.append(alive[0])
    return np.array(labels)


# --------------------------------------------------------------------------------------------------
# Bayesian decoders
# --------------------------------------------------------------------------------------------------


def bit_density(bit, z, variance):
    """P(x | y = bit) of Van Gestel et al. 2002, eq. (11): the density N(1 - bit z; 0, v) with v = 1/zeta + σ_z²."""
    return np.exp(-((1.0 - bit * z) ** 2) / (2.0 * variance)) / np.sqrt(2.0 * np.pi * variance)


def bayes_enumerate(M, z, variance, priors):
    """Posteriors n×K of Van Gestel et al. 2002, eq. (18), by products of densities; codebooks without don't cares."""
    M = np.asarray(M)
    if np.any(M == 0):
        raise ValueError("eq. (18) is for codebooks without don't cares")
    posteriors = np.zeros((len(z), len(M)))
    for i in range(len(z)):
        for m in range(len(M)):
            p = priors[m]
            for column in range(M.shape[1]):
                p = p * bit_density(M[m, column], z[i][column], variance[i][column])
            posteriors[i, m] = p
        posteriors[i] = posteriors[i] / posteriors[i].sum()
    return posteriors


def bayes_enumerate_log(M, z, variance, priors):
    """Log posteriors n×K by weighted squared errors, Van Gestel et al. 2002, eq. (19); safe where (18) underflows."""
    M = np.asarray(M)
    if np.any(M == 0):
        raise ValueError("eq. (19) is for codebooks without don't cares")
    log_posteriors = np.zeros((len(z), len(M)))
    for i in range(len(z)):
        for m in range(len(M)):
            error = -np.log(priors[m])
            for column in range(M.shape[1]):
                error += (1.0 - M[m, column] * z[i][column]) ** 2 / (2.0 * variance[i][column])
            log_posteriors[i, m] = -error
        log_posteriors[i] -= logsumexp(log_posteriors[i])
    return log_posteriors


def bayes_sequential(M, z, variance, priors, keep_mass=True):
    """Posteriors n×K bit by bit, Van Gestel et al. 2002, eqs. (17) and (20), in plain probability space.

    A class whose bit is a don't care keeps its probability. The others are multiplied by their density and
    divided by the sum of these products; with keep_mass=True they are then multiplied by the
    mass they had together before, so that all K sum to one. keep_mass=False is eq. (20) literally, not
    normalised afterwards. With don't cares the result depends on the order of the columns.
    """
    M = np.asarray(M)
    posteriors = np.zeros((len(z), len(M)))
    for i in range(len(z)):
        p = np.array(priors, dtype=float)
        for column in range(M.shape[1]):
            used = [m for m in range(len(M)) if M[m, column] != 0]
            mass = sum(p[m] for m in used)
            products = {m: bit_density(M[m, column], z[i][column], variance[i][column]) * p[m] for m in used}
            total = sum(products.values())
            for m in used:
                p[m] = products[m] / total * (mass if keep_mass else 1.0)
        posteriors[i] = p
    return posteriors


def bayes_joint(M, z, variance, priors):
    """Order-free Bayesian decoding with don't cares: P_m ∝ prior_m Π_{l: M_ml ≠ 0} p(z_l | M_ml) / Z_l.

    Z_l is the average density of bit l over the classes that use it, weighted by their priors, so a don't
    care counts as the neutral factor 1. Without don't cares this is Van Gestel et al. 2002, eq. (18).
    """
    M = np.asarray(M)
    posteriors = np.zeros((len(z), len(M)))
    for i in range(len(z)):
        p = np.array(priors, dtype=float)
        for column in range(M.shape[1]):
            used = [m for m in range(len(M)) if M[m, column] != 0]
            density = {m: bit_density(M[m, column], z[i][column], variance[i][column]) for m in used}
            Z = sum(density[m] * priors[m] for m in used) / sum(priors[m] for m in used)
            for m in used:
                p[m] = p[m] * density[m] / Z
        posteriors[i] = p / p.sum()
    return posteriors


# --------------------------------------------------------------------------------------------------
# Sigmoids, coupling and softmax
# --------------------------------------------------------------------------------------------------


def platt_sigmoid(f, positive, weights=None):
    """A and B of Bravo et al. 2010, eq. (4), by derivative-free search; the likelihood has Platt's smoothed targets."""
    f = np.asarray(f, dtype=float)
    weights = np.ones(len(f)) if weights is None else np.asarray(weights, dtype=float)
    above = sum(w for w, side in zip(weights, positive, strict=True) if side)
    below = sum(w for w, side in zip(weights, positive, strict=True) if not side)
    t = np.array([(above + 1) / (above + 2) if side else 1 / (below + 2) for side in positive])

    def loss(AB):
        u = AB[0] * f + AB[1]
        return np.sum(weights * (t * np.logaddexp(0, u) + (1 - t) * np.logaddexp(0, -u)))

    AB = np.array([0.0, np.log((below + 1) / (above + 1))])
    for _ in range(5):
        AB = minimize(
            loss, AB, method="Nelder-Mead", options={"xatol": 1e-12, "fatol": 1e-15, "maxiter": 5000}
        ).x
    return AB


def couple_pairs(R, method, q=None):
    """p of one row from its K×K matrix R of r_ik, by the definitions of Bravo et al. 2010 (with corrections)."""
    K = len(R)
    pairs = [(i, k) for i in range(K) for k in range(K) if i != k]
    if method == "pkpd":  # eq. (10), then normalised
        p = np.array([1 / (sum(1 / R[i, k] for k in range(K) if k != i) - (K - 2)) for i in range(K)])
        return p / p.sum()
    if method == "wlw1":  # eq. (7) with K - 1: walk the chain until it stands still
        Q = np.zeros((K, K))
        for i in range(K):
            for k in range(K):
                Q[i, k] = (R[i, k] if i != k else sum(R[i, s] for s in range(K) if s != i)) / (K - 1)
        for _ in range(40):
            Q = Q @ Q
            Q = Q / Q.sum(axis=0)
        return Q[:, 0]
    if method == "wlw2":  # eq. (8) with p ≥ 0; the sum as one more residual changes p by a factor only
        rows = np.zeros((len(pairs) + 1, K))
        for row, (i, k) in enumerate(pairs):
            rows[row, i], rows[row, k] = R[k, i], -R[i, k]
        rows[-1] = 1.0
        p, _ = nnls(rows, np.append(np.zeros(len(pairs)), 1.0))
        return p / p.sum()

    def distance(theta):  # eq. (9) with the factor r_ik
        total, slope = 0.0, np.zeros(K)
        for i, k in pairs:
            if i < k:
                d = theta[i] - theta[k]
                weight = 1.0 if q is None else q[i, k]
                total += weight * (R[i, k] * np.logaddexp(0, -d) + R[k, i] * np.logaddexp(0, d))
                change = weight * (1 / (1 + np.exp(-d)) - R[i, k])
                slope[i] += change
                slope[k] -= change
        return total, slope

    theta = np.zeros(K)
    for _ in range(3):
        theta = minimize(
            distance, theta, jac=True, method="BFGS", options={"gtol": 1e-11, "maxiter": 10000}
        ).x
    return np.exp(theta - logsumexp(theta))


def bradley_terry_distance(p, r, M, weights, prior):
    """Σ_l n_l KL(r_l ‖ ρ_l) − prior Σ_k log p_k up to a constant, for one row; the n_l are scaled to mean one."""
    total = -prior * np.sum(np.log(p / p.sum()))
    for column in range(M.shape[1]):
        above = sum(p[k] for k in range(len(M)) if M[k, column] == 1)
        below = sum(p[k] for k in range(len(M)) if M[k, column] == -1)
        rho = above / (above + below)
        share = weights[column] / np.mean(weights)
        total -= share * (r[column] * np.log(rho) + (1 - r[column]) * np.log(1 - rho))
    return total


def softmax_objective(parameters, X, T, weights, ridge, intercept_ridge=0.0, W=None, scale_ridge=0.0):
    """Weighted cross-entropy plus ½ Σ ridge B² + ½ intercept_ridge |b|² + ½ scale_ridge (s - 1)², row by row.

    ``parameters`` holds (B, b, s) in one vector; without an anchor W, s does not matter.
    """
    d, K = X.shape[1], T.shape[1]
    B, b = parameters[: d * K].reshape(d, K), parameters[d * K : d * K + K]
    total = 0.5 * np.sum(ridge * B**2) + 0.5 * intercept_ridge * np.sum(b**2)
    total += 0.5 * scale_ridge * (parameters[-1] - 1.0) ** 2
    for i in range(len(X)):
        z = X[i] @ B + b
        if W is not None:
            z = z + parameters[-1] * W[i]
        total -= weights[i] * np.sum(T[i] * (z - logsumexp(z)))
    return total


# --------------------------------------------------------------------------------------------------
# Decisions
# --------------------------------------------------------------------------------------------------


def conformal_set(log_p, y, new_log_p, coverage, score="lac", per_class=False):
    """Prediction set of one row by p-values (Vovk et al. 2005): a class is in it if it is not rejected.

    log_p, y: rows with labels that the model has not seen; new_log_p: one row. The p-value of class k is the share of
    rows, the new one counted, that are at least as strange as the new one would be with the label k; the class is
    rejected if that is at most 1 - coverage. `coverage` is a Fraction, so that nothing is rounded.
    """

    def strangeness(row, k):
        if score == "lac":
            return -row[k]
        return sum(sorted((np.exp(other) for other in row if other > row[k]), reverse=True))

    chosen = []
    for k in range(len(new_log_p)):
        rows = [i for i in range(len(y)) if not per_class or y[i] == k]
        new = strangeness(new_log_p, k)
        stranger = 1 + sum(strangeness(log_p[i], y[i]) >= new for i in rows)
        chosen.append(stranger > (1 - coverage) * (len(rows) + 1))
    return chosen


def least_expected_cost(p, costs):
    """Decision of one row: the expected cost of every decision, class by class; of equal ones the first."""
    best, least = None, np.inf
    for d in range(len(costs[0])):
        expected = 0.0
        for k in range(len(p)):
            expected += p[k] * costs[k][d]
        if expected < least:
            best, least = d, expected
    return best
