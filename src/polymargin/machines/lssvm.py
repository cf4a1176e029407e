"""The bank of least-squares support vector machines.

For every column l of the codebook a machine z_l(x) = Σ aᵢ K(x, xᵢ) + b minimises ½|w|² + (C/2) Σ sᵢ(yᵢ − z(xᵢ))²
over the rows whose class takes part (Van Gestel et al. 2002, eqs. (2)–(6)). Columns that use the same rows and
the same kernel share one factorisation, which also gives their exact leave-one-out margins and variances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.outputs import Outputs
from polymargin.selection import evidence
from polymargin.solvers.centring import Centring, centre
from polymargin.solvers.ridge import SPECTRAL_FROM, Factor, NotPositiveDefinite, cholesky, spectral

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainingRows:
    """What the machines are trained on.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    X : array or sparse matrix of shape (n, d)
        The rows; the Gram matrix itself for a precomputed kernel.
    class_index : ndarray of int, shape (n,)
        The class of every row.
    weights : ndarray of shape (n,)
        Positive row weights: a row of weight two counts like two rows.
    """

    kernel: Kernel
    X: Any
    class_index: Array
    weights: Array


class _Group:
    """The rows that some columns of the codebook share, and the Gram matrix among them."""

    def __init__(self, data: TrainingRows, rows: Array, columns: Array, targets: Array):
        self.data, self.rows, self.columns = data, rows, columns
        self.targets = targets[np.ix_(rows, columns)].astype(np.float64)
        self.weights = data.weights[rows]

    @cached_property
    def base(self) -> Array:
        base = self.data.kernel.base_among(self.data.X, self.rows).astype(np.float64, copy=False)
        _check_base(base, self.data.kernel)
        return base

    def release(self) -> None:
        """Forget the base matrix."""
        self.__dict__.pop("base", None)

    def centred(self, gamma: float) -> tuple[Centring, Array]:
        """Return the centring and the centred matrix A for one gamma."""
        return centre(self.data.kernel.apply(self.base, gamma), self.weights)

    def level_two(self, gamma: float) -> evidence.LevelTwo:
        """Return the evidence of one gamma for the group's columns."""
        centring, A = self.centred(gamma)
        level = evidence.LevelTwo.of(A, centring, self.targets)
        _check_spectrum(level.form.eigenvalues)
        return level


@dataclass(frozen=True)
class Block:
    """Machines that share rows, kernel and factorisation.

    Attributes
    ----------
    rows, columns : ndarray of int
        The training rows and the columns of the codebook.
    gamma : float
        The kernel's parameter.
    centring : Centring
        How kernel values are centred.
    factor : Factor
        The factorisation of the centred matrix.
    """

    rows: Array
    columns: Array
    gamma: float
    centring: Centring
    factor: Factor


@dataclass(frozen=True)
class LSSVMBank:
    """Fitted least-squares machines, one per column of the codebook.

    Attributes
    ----------
    data : TrainingRows
        The training rows, all of which are support vectors.
    dual_coef : ndarray of shape (L, n)
        a; zero where the dichotomy does not use the row.
    intercept, C, gamma, mu, zeta, log_evidence : ndarray of shape (L,)
        The bias, the regularisation ζ/μ, the kernel's parameter, the hyperparameters of the weights and of the
        noise, and the level-three log-evidence, of every machine.
    loo_margins : ndarray of shape (n, L)
        What each machine would say of each row had it been trained without that row.
    blocks : list of Block or None
        The factorisations, kept if variances will be wanted.
    """

    data: TrainingRows
    dual_coef: Array
    intercept: Array
    C: Array
    gamma: Array
    mu: Array
    zeta: Array
    log_evidence: Array
    loo_margins: Array
    blocks: list[Block] | None

    def margins(self, X: Any) -> Array:
        """Return z of every machine for new rows, shape (m, L)."""
        margins = np.empty((X.shape[0], self.intercept.size))
        for rows, base in self._base_blocks(X):
            margins[rows] = self._margins_from_base(base)
        return margins

    def outputs(self, X: Any, *, variances: bool) -> Outputs:
        """Return the outputs for new rows, with their variances if asked for."""
        if not variances:
            return Outputs(self.margins(X), "new", noise=1.0 / self.zeta)
        margins = np.empty((X.shape[0], self.intercept.size))
        spread = np.empty_like(margins)
        blocks = self.blocks if self.blocks is not None else list(self._refactored())
        for rows, base in self._base_blocks(X):
            margins[rows] = self._margins_from_base(base)
            diagonal = self._base_diagonal(X[rows])
            for block in blocks:
                spread[rows, block.columns] = self._variances_from_base(block, base, diagonal)
        return Outputs(margins, "new", spread, 1.0 / self.zeta)

    @property
    def loo_outputs(self) -> Outputs:
        """The leave-one-out outputs of the training rows."""
        return Outputs(self.loo_margins, "leave_one_out", noise=1.0 / self.zeta)

    def _base_blocks(self, X: Any) -> Iterator[tuple[slice, Array]]:
        size = _memory.block_rows(8.0 * 4 * self.data.X.shape[0])
        for start in range(0, X.shape[0], size):
            rows = slice(start, min(start + size, X.shape[0]))
            yield rows, self.data.kernel.base(X[rows], self.data.X)

    def _margins_from_base(self, base: Array) -> Array:
        margins = np.empty((base.shape[0], self.intercept.size))
        for gamma in np.unique(self.gamma):
            columns = np.flatnonzero(self.gamma == gamma)
            used = self.dual_coef[columns].any(axis=0)
            part = base if used.all() else base[:, used]
            values = self.data.kernel.apply(part, gamma)
            margins[:, columns] = values @ self.dual_coef[np.ix_(columns, used)].T
        return margins + self.intercept

    def _base_diagonal(self, X: Any) -> Array:
        """Return the base of new rows with themselves; for a precomputed kernel it must be the same for all."""
        kernel = self.data.kernel
        if X.shape[1] != self.data.X.shape[1] or not kernel.precomputed:
            return kernel.base_diagonal(X)
        known = kernel.base_diagonal(self.data.X)
        if not np.allclose(known, known[0]):
            raise ValueError(
                "variances need K(x, x) of the new rows, which a precomputed kernel does not give unless it is "
                "the same for all rows; give the kernel as a function, or choose a decoding without variances, "
                'such as "loss"'
            )
        return np.full(X.shape[0], known[0])

    def _variances_from_base(self, block: Block, base: Array, diagonal: Array) -> Array:
        """Return σ_z² of the block's machines, eq. (12) in centred form (its printed sign is wrong)."""
        kernel = self.data.kernel
        K_new = kernel.apply(base[:, block.rows].astype(np.float64, copy=False), block.gamma)
        own = block.centring.diagonal(kernel.apply(diagonal, block.gamma), K_new)
        explained = block.factor.quadratic(block.centring.cross(K_new))
        mu, zeta = self.mu[block.columns], self.zeta[block.columns]
        unexplained = np.maximum(own[:, np.newaxis] - explained, 0.0)
        return 1.0 / (block.centring.total * zeta) + unexplained / mu

    def _refactored(self) -> Iterator[Block]:
        """Yield the factorisations again, for a bank that did not keep them."""
        used = self.dual_coef != 0.0
        patterns: dict[bytes, list[int]] = {}
        for column in range(used.shape[0]):
            patterns.setdefault(used[column].tobytes(), []).append(column)
        for columns in patterns.values():
            rows = np.flatnonzero(used[columns[0]])
            targets = np.zeros((used.shape[1], used.shape[0]))
            group = _Group(self.data, rows, np.array(columns), targets)
            yield from _factorise(group, self.gamma[columns], 1.0 / self.C[columns])


def fit_lssvm_bank(
    data: TrainingRows,
    codebook: Codebook,
    *,
    C: float | None,
    gamma: float | None,
    shared: bool = False,
    keep_factors: bool = True,
) -> LSSVMBank:
    """Train the machines of every column of the codebook.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    C, gamma : float or None
        The regularisation and the kernel's parameter; None has them inferred by the evidence, for every column
        on its own or, with ``shared``, the same for all.
    shared : bool
        Whether inferred parameters are the same for all columns.
    keep_factors : bool
        Whether the factorisations are kept for variances.
    """
    targets = codebook.targets(data.class_index)
    groups = [
        _Group(data, np.flatnonzero(group.classes[data.class_index]), group.columns, targets)
        for group in codebook.row_groups
    ]
    sizes = [group.rows.size for group in groups]
    kept = sum(8.0 * size**2 for size in sizes) if keep_factors else 0.0
    _memory.require(
        48.0 * max(sizes) ** 2 + kept,
        f"the kernel matrix of {max(sizes)} rows with its factorisations",
        'fit fewer rows, or choose coding="one-vs-one", whose machines see two classes at a time',
    )
    n = data.class_index.size
    bank = LSSVMBank(
        data=data,
        dual_coef=np.zeros((codebook.n_columns, n)),
        intercept=np.empty(codebook.n_columns),
        C=np.empty(codebook.n_columns),
        gamma=np.empty(codebook.n_columns),
        mu=np.empty(codebook.n_columns),
        zeta=np.empty(codebook.n_columns),
        log_evidence=np.empty(codebook.n_columns),
        loo_margins=np.full((n, codebook.n_columns), np.nan),
        blocks=[] if keep_factors else None,
    )
    for batch in [groups] if shared else [[group] for group in groups]:
        _set_parameters(bank, batch, C, gamma, shared)
        for group in batch:
            for block in _factorise(group, bank.gamma[group.columns], 1.0 / bank.C[group.columns]):
                _solve(bank, block, targets)
                if bank.blocks is not None:
                    bank.blocks.append(block)
            group.release()
    # A row that a dichotomy does not use is new to it.
    if not codebook.is_dense:
        np.copyto(bank.loo_margins, bank.margins(data.X), where=targets == 0)
    return bank


def _set_parameters(
    bank: LSSVMBank, groups: list[_Group], C: float | None, gamma: float | None, shared: bool
) -> None:
    """Fill in C and gamma of the groups' columns, inferring what is None."""
    kernel = bank.data.kernel
    if not kernel.tunable:
        gamma = 1.0
    for group in groups:
        bank.C[group.columns] = np.nan if C is None else C
        bank.gamma[group.columns] = np.nan if gamma is None else gamma
    if C is not None and gamma is not None:
        return
    unit = kernel.unit_gamma(bank.data.X, bank.data.weights)
    everything = [(number, np.arange(group.columns.size)) for number, group in enumerate(groups)]
    pools: list[evidence.Pool] = [everything]
    if not shared:
        pools = [[(number, columns[[i]])] for number, columns in everything for i in range(columns.size)]
    choices = evidence.choose(
        lambda number, value: groups[number].level_two(value),
        pools,
        gammas=gamma if gamma is not None else lambda point: unit * 2.0 ** (point / 2),
        ridge=None if C is None else 1.0 / C,
    )
    for pool, choice in zip(pools, choices, strict=True):
        for number, columns in pool:
            bank.C[groups[number].columns[columns]] = 1.0 / choice.ridge
            bank.gamma[groups[number].columns[columns]] = choice.gamma


def _factorise(group: _Group, gammas: Array, ridges: Array) -> Iterator[Block]:
    """Yield the group's columns in blocks that share a factorisation."""
    for gamma in np.unique(gammas):
        same_gamma = np.flatnonzero(gammas == gamma)
        centring, A = group.centred(gamma)
        different = np.unique(ridges[same_gamma])
        if different.size >= SPECTRAL_FROM:
            factor = spectral(A, ridges[same_gamma])
            yield Block(group.rows, group.columns[same_gamma], gamma, centring, factor)
            continue
        for ridge in different:
            same = same_gamma[ridges[same_gamma] == ridge]
            yield Block(group.rows, group.columns[same], gamma, centring, cholesky(A, ridge, same.size))


def _solve(bank: LSSVMBank, block: Block, targets: Array) -> None:
    """Fill in the block's machines: coefficients, bias, evidence and leave-one-out margins."""
    centring, rows, columns = block.centring, block.rows, block.columns
    ridges = 1.0 / bank.C[columns]
    Y = targets[np.ix_(rows, columns)].astype(np.float64)
    centred, means = centring.targets(Y)
    solution = block.factor.solve(centred)
    roots = centring.roots[:, np.newaxis]
    coef = roots * solution
    bank.dual_coef[np.ix_(columns, rows)] = coef.T
    bank.intercept[columns] = means - centring.row_means @ coef

    # Leave-one-out residuals are aᵢ / Pᵢᵢ, P the inverse without the bias direction (Shim et al. 2008, §4).
    lifted = centring.lift + ridges
    inverse = block.factor.inverse_diagonal() - np.square(centring.bias_direction)[:, np.newaxis] / lifted
    bank.loo_margins[np.ix_(rows, columns)] = Y - solution / (roots * inverse)

    fit = np.einsum("nl,nl->l", centred, solution)
    repeated = centring.total - rows.size
    logs = block.factor.log_determinants() - np.log(lifted) + repeated * np.log(ridges)
    bank.mu[columns] = (centring.total - 1.0) / fit
    bank.zeta[columns] = bank.mu[columns] / ridges
    bank.log_evidence[columns] = evidence.log_evidence(
        centring.total, ridges, fit, logs, inverse.sum(axis=0) + repeated / ridges
    )


def _check_base(base: Array, kernel: Kernel) -> None:
    """Refuse a matrix that is no Gram matrix."""
    if not np.isfinite(base).all():
        raise ValueError(
            "the kernel matrix holds infinite or undefined values; scale the features, for example with StandardScaler"
        )
    if kernel.untrusted and not np.allclose(base, base.T, rtol=1e-6, atol=1e-8 * np.abs(base).max()):
        raise ValueError("the kernel matrix is not symmetric, so it is not a kernel's")


def _check_spectrum(eigenvalues: Array) -> None:
    """Refuse a Gram matrix with clearly negative eigenvalues."""
    if eigenvalues[0] < -1e-7 * eigenvalues[-1]:
        raise NotPositiveDefinite(
            f"the kernel matrix is not positive semi-definite: its eigenvalues reach from {eigenvalues[0]:.3g} "
            f"to {eigenvalues[-1]:.3g}; use a positive definite kernel"
        )
