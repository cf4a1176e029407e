"""The bank of least-squares support vector machines.

For every column l of the codebook a machine z_l(x) = Σ aᵢ K(x, xᵢ) + b minimises ½|w|² + (C/2) Σ sᵢ(yᵢ − z(xᵢ))²
over the rows whose class takes part (Van Gestel et al. 2002, eqs. (2)–(6)). Columns that use the same rows and
the same kernel share one factorisation, which also gives their variances. `lssvm_training` trains the machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin import _memory
from polymargin._threads import in_threads, n_threads
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.kernels._features import FeatureExpansion
from polymargin.machines._gram import GroupGram, dichotomy_groups
from polymargin.machines._workspace import Workspace
from polymargin.outputs import Nested, Outputs
from polymargin.rows import TrainingRows
from polymargin.solvers.centring import Centring
from polymargin.solvers.ridge import SPECTRAL_FROM, Factor, WholeFactor, cholesky, spectral
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]


@dataclass(frozen=True)
class FactorisedBlock:
    """Machines that share rows, kernel and factorisation.

    Attributes
    ----------
    rows, columns : ndarray of int
        The training rows and the columns of the codebook.
    gamma : float
        The kernel's parameter.
    centring : Centring
        The centring of the kernel matrix.
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
    codebook : Codebook
        The dichotomies.
    dual_coef : ndarray of shape (L, n)
        a; zero where the dichotomy does not use the row.
    intercept, norms, C, gamma, mu, zeta, log_evidence : ndarray of shape (L,)
        The bias, the norm of the weights, the regularisation ζ/μ, the kernel's parameter, the hyperparameters of
        the weights and of the noise, and the level-three log-evidence, of every machine.
    loo_margins : ndarray of shape (n, L)
        The exact leave-one-out margins: of each row, by machines trained without it, or without its group.
    blocks : list of FactorisedBlock or None
        The factorisations, if they are kept for variances.
    expansion : FeatureExpansion or None
        The machines as linear functions of the kernel's explicit feature map, where they were solved in it.
    nested : Nested or None
        The outputs of machines trained without a fold of the rows, if requested.
    leak : ndarray of bool, shape (n,), or None
        The rows that a metric was learned from, if not all: their leave-one-out margins are too good.
    rounding_error : float
        The expected relative rounding error of the margins of the worst machine.

    See Also
    --------
    fit_lssvm_bank : Trains the machines.
    SVMBank : Support vector machines with the hinge loss.

    References
    ----------
    .. [1] T. Van Gestel, J. A. K. Suykens, G. Lanckriet, A. Lambrechts, B. De Moor and J. Vandewalle, "Multiclass
           LS-SVMs: Moderated Outputs and Coding-Decoding Schemes", Neural Processing Letters 15, 2002.
    """

    data: TrainingRows
    codebook: Codebook
    dual_coef: Array
    intercept: Array
    norms: Array
    C: Array
    gamma: Array
    mu: Array
    zeta: Array
    log_evidence: Array
    loo_margins: Array
    blocks: list[FactorisedBlock] | None
    expansion: FeatureExpansion | None = None
    nested: Nested | None = None
    leak: Array | None = None
    rounding_error: float = 0.0

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.data.kernel

    @cached_property
    def honest_margins(self) -> Array:
        """`loo_margins` with the leave-one-out shift of the target mean removed, shape (n, L).

        See `polymargin.outputs.Outputs.exact`.
        """
        margins = self.loo_margins.copy()
        for group in dichotomy_groups(self.data, self.codebook):
            margins[np.ix_(group.rows, group.columns)] += group.shift(np.ones(group.rows.size, dtype=bool))
        return margins

    @cached_property
    def _base_to_rows(self) -> Callable[[Any], Array]:
        """Function that computes the kernel's base matrix between new rows and the training rows."""
        return self.kernel.to_rows(self.data.X)

    @cached_property
    def _terms(self) -> list[tuple[float, Array, Array | None, Array]]:
        """For every gamma: its machines, the rows they use (None: all), and their coefficients."""
        terms: list[tuple[float, Array, Array | None, Array]] = []
        for gamma in np.unique(self.gamma):
            columns = np.flatnonzero(self.gamma == gamma)
            used: Array = np.asarray(self.dual_coef[columns].any(axis=0))
            whole = columns.size == self.gamma.size and bool(used.all())
            coef = self.dual_coef if whole else self.dual_coef[np.ix_(columns, used)]
            terms.append((float(gamma), columns, None if used.all() else used, coef))
        return terms

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are not pickled.
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def margins(self, X: Any) -> Array:
        """Return the decision values z of every machine for new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (m, d)
            New rows; for a precomputed kernel their kernel values with the training rows, shape (m, n).

        Returns
        -------
        margins : ndarray of shape (m, L)
            Positive on the side of the classes with codeword bit +1.
        """
        margins = np.empty((X.shape[0], self.intercept.size))
        expansion = self.expansion
        if expansion is None:
            n_values = self.data.X.shape[0]
            to_rows, _ = self._base_to_rows, self._terms  # computed once, by this thread

            def add(rows: slice) -> None:
                margins[rows] = self._margins_from_base(to_rows(X[rows]))
        else:
            n_values = expansion.weights.shape[0]

            def add(rows: slice) -> None:
                new = X[rows].toarray() if sparse.issparse(X) else X[rows]
                margins[rows] = expansion.at(self.kernel.features(new, expansion.unit))

        in_threads(add, list(_memory.row_blocks(X.shape[0], n_values)))
        return margins

    def training_margins(self, workspace: Workspace | None = None) -> Array:
        """Return the decision values z of every machine for the training rows.

        Parameters
        ----------
        workspace : Workspace or None
            The cache of the training rows, if there is one.

        Returns
        -------
        margins : ndarray of shape (n, L)
            The in-sample margins.
        """
        if workspace is None:
            return self.margins(self.data.X)
        if self.expansion is not None:
            return self.expansion.at(workspace.features)
        return self.kernel_sums(self.dual_coef, self.gamma, workspace) + self.intercept

    def kernel_sums(self, coef: Array, gammas: Array, workspace: Workspace) -> Array:
        """Return Σᵢ aᵢ K(x, xᵢ) of the training rows x for several sets of coefficients, shape (n, M).

        Parameters
        ----------
        coef : ndarray of shape (M, n)
            The coefficients a.
        gammas : ndarray of shape (M,)
            The kernel parameter of each.
        workspace : Workspace
            The cache of the training rows.

        Returns
        -------
        sums : ndarray of shape (n, M)
            The kernel expansions at the training rows, without bias.
        """
        if self.expansion is not None:
            features = workspace.features
            return features.values @ features.weights(coef.T, gammas)
        n = self.data.X.shape[0]
        sums = np.empty((n, len(coef)))
        different = np.unique(gammas)
        terms = [(float(gamma), np.flatnonzero(gammas == gamma)) for gamma in different]
        K = workspace.gram(float(different[0])) if different.size == 1 else None
        base = workspace.base
        base_of = self._base_to_rows if base is None else np.asarray

        def add(rows: slice) -> None:
            if K is not None:
                np.matmul(K[rows], coef.T, out=sums[rows])
                return
            part = base_of((self.data.X if base is None else base)[rows])
            for gamma, columns in terms:
                sums[rows, columns] = self.kernel.apply(part, gamma) @ coef[columns].T

        in_threads(add, list(_memory.row_blocks(n, n)))
        return sums

    def outputs(self, X: Any, *, variances: bool) -> Outputs:
        """Return the outputs for new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (m, d)
            New rows, see `margins`.
        variances : bool
            Whether the variances σ_z² of the margins are computed as well.

        Returns
        -------
        outputs : Outputs
            Margins, noise, norms and, if requested, variances, with provenance "new".
        """
        if not variances:
            return Outputs(self.margins(X), "new", None, 1.0 / self.zeta, self.norms)
        by_kernel = self.expansion is None
        margins = np.empty((X.shape[0], self.intercept.size)) if by_kernel else self.margins(X)
        spread = np.empty_like(margins)
        blocks = self.blocks if self.blocks is not None else list(self._refactored())
        if np.isnan(self.mu).any():
            raise ValueError("variances need sample weights that sum to two or more in every dichotomy")
        for rows, base in self._base_blocks(X):
            if by_kernel:
                margins[rows] = self._margins_from_base(base)
            diagonal = self._base_diagonal(X[rows])
            for block in blocks:
                spread[rows, block.columns] = self._variances_from_base(block, base, diagonal)
        return Outputs(margins, "new", spread, 1.0 / self.zeta, self.norms)

    def training_outputs(self, *, honest: bool, workspace: Workspace | None = None) -> Outputs:
        """Return the outputs of the training rows.

        Parameters
        ----------
        honest : bool
            True for out-of-sample outputs (leave-one-out), False for in-sample ones.
        workspace : Workspace or None
            The cache of the training rows, if there is one.

        Returns
        -------
        outputs : Outputs
            With provenance "leave_one_out" or "in_sample".
        """
        if not honest:
            return Outputs(self.training_margins(workspace), "in_sample", None, 1.0 / self.zeta, self.norms)
        return Outputs(
            self.honest_margins,
            "leave_one_out",
            noise=1.0 / self.zeta,
            norms=self.norms,
            exact=self.loo_margins,
            dealt=self.data.deal,
            nested=self.nested,
        )

    def _base_blocks(self, X: Any) -> Iterator[tuple[slice, Array]]:
        for rows in _memory.row_blocks(X.shape[0], self.data.X.shape[0]):
            yield rows, self._base_to_rows(X[rows])

    def _margins_from_base(self, base: Array) -> Array:
        margins = np.empty((base.shape[0], self.intercept.size))
        for gamma, columns, used, coef in self._terms:
            values = self.data.kernel.apply(base if used is None else base[:, used], gamma)
            margins[:, columns] = values @ coef.T
        return margins + self.intercept

    def _base_diagonal(self, X: Any) -> Array:
        """Return the diagonal of the base matrix among new rows, which a precomputed kernel must have constant."""
        if not self.data.kernel.precomputed:
            return self.data.kernel.base_diagonal(X)
        return np.full(X.shape[0], constant_diagonal(self.data))

    def _variances_from_base(self, block: FactorisedBlock, base: Array, diagonal: Array) -> Array:
        """Return σ_z² of the block's machines, eq. (12) in centred form (its printed sign is wrong)."""
        kernel = self.data.kernel
        K_new = kernel.apply(base[:, block.rows], block.gamma).astype(np.float64, copy=False)
        own = block.centring.diagonal(kernel.apply(diagonal, block.gamma), K_new)
        explained = cast(WholeFactor, block.factor).quadratic(block.centring.cross(K_new))
        mu, zeta = self.mu[block.columns], self.zeta[block.columns]
        unexplained = np.maximum(own[:, np.newaxis] - explained, 0.0)
        return 1.0 / (block.centring.total * zeta) + unexplained / mu

    def _refactored(self) -> Iterator[FactorisedBlock]:
        """Recompute the factorisations, for a bank that did not keep them."""
        workspace = Workspace(self.data)
        for group in dichotomy_groups(self.data, self.codebook):
            gram = GroupGram(group, workspace)
            yield from factorised(gram, self.gamma[group.columns], 1.0 / self.C[group.columns], whole=True)


def constant_diagonal(data: TrainingRows) -> float:
    """Return the constant K(x, x) of a precomputed kernel; raise ValueError if it varies."""
    known = data.kernel.base_diagonal(data.X)
    if not np.allclose(known, known[0]):
        raise ValueError(
            "variances need K(x, x) of the new rows, which a precomputed kernel does not give unless it is the same "
            "for all rows; give the kernel as a function, or choose a decoding without variances, such as "
            '"loss"'
        )
    return float(known[0])


def factorised(
    group: GroupGram, gammas: Array, ridges: Array, *, whole: bool, gram: Array | None = None
) -> Iterator[FactorisedBlock]:
    """Yield the group's columns in blocks that share a factorisation; `whole`: never one in feature space."""
    for gamma in sorted(set(gammas.tolist())):
        same_gamma = np.flatnonzero(gammas == gamma)
        different = sorted(set(ridges[same_gamma].tolist()))
        same = {ridge: same_gamma[ridges[same_gamma] == ridge] for ridge in different}
        if group.by_features and not whole:
            thin = _thin_blocks(group, group.thin(), gamma, same)
            if thin is not None:
                yield from thin
                continue
            n_rows = group.rows.size
            _memory.require(
                (32.0 + 8.0 * group.kernel.base_numbers) * float(n_rows) ** 2 * n_threads(),
                f"the kernel matrix of {n_rows} rows, among them some that are very far from the others,",
                "scale the features, for example with StandardScaler, look for outliers, or give a smaller C",
            )
        centring, A = group.centred(gamma, gram)
        if len(different) >= SPECTRAL_FROM:
            factor = spectral(A, ridges[same_gamma])
            yield FactorisedBlock(group.rows, group.columns[same_gamma], gamma, centring, factor)
            continue
        for ridge, places in same.items():
            columns = group.columns[places]
            yield FactorisedBlock(group.rows, columns, gamma, centring, cholesky(A, ridge, columns.size))


def _thin_blocks(
    group: GroupGram, thin: ThinMatrix, gamma: float, same: dict[float, Array]
) -> list[FactorisedBlock] | None:
    """Return a block for every ridge, factorised in feature space; None if rounding errors are too large."""
    factors = [thin.factor(gamma, ridge, places.size) for ridge, places in same.items()]
    if any(factor is None for factor in factors):
        return None
    centring = thin.centring(gamma)
    return [
        FactorisedBlock(group.rows, group.columns[places], gamma, centring, factor)
        for places, factor in zip(same.values(), factors, strict=True)
        if factor is not None
    ]
