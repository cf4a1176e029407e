"""The bank of least-squares support vector machines.

For every column l of the codebook a machine z_l(x) = Σ aᵢ K(x, xᵢ) + b minimises ½|w|² + (C/2) Σ sᵢ(yᵢ − z(xᵢ))²
over the rows whose class takes part (Van Gestel et al. 2002, eqs. (2)–(6)). Columns that use the same rows and
the same kernel share one factorisation, which also gives their exact leave-one-out margins and variances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin import _memory
from polymargin._progress import Count, Progress
from polymargin._threads import in_threads
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.kernels._features import Expansion, Features
from polymargin.machines._folds_out import FoldsOut
from polymargin.machines._gram import RowGroupGram
from polymargin.machines._parameters import Selection, select_parameters
from polymargin.machines._plan import features_to_use, require_matrix, require_memory
from polymargin.machines._rows import TrainingRows
from polymargin.outputs import Nested, Outputs, Provenance
from polymargin.selection import evidence
from polymargin.selection.settings import DEFAULT, SearchSettings
from polymargin.solvers.centring import Centring
from polymargin.solvers.ridge import (
    SPECTRAL_FROM,
    Factor,
    WholeFactor,
    cholesky,
    left_out_errors,
    spectral,
    unbiased_diagonal,
)
from polymargin.solvers.thin import ThinMatrix

Array = NDArray[Any]


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
    codebook : Codebook
        The dichotomies.
    dual_coef : ndarray of shape (L, n)
        a; zero where the dichotomy does not use the row.
    intercept, norms, C, gamma, mu, zeta, log_evidence : ndarray of shape (L,)
        The bias, the norm of the weights, the regularisation ζ/μ, the kernel's parameter, the hyperparameters of
        the weights and of the noise, and the level-three log-evidence, of every machine.
    loo_margins : ndarray of shape (n, L)
        What each machine would say of each row had it been trained without that row.
    blocks : list of Block or None
        The factorisations, kept if variances will be wanted.
    expansion : Expansion or None
        The machines in terms of the kernel's features, where they were solved by these.
    nested : Nested or None
        The outputs of machines trained without a fold of the rows, where they were asked for.
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
    blocks: list[Block] | None
    expansion: Expansion | None = None
    nested: Nested | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.data.kernel

    @cached_property
    def honest_margins(self) -> Array:
        """`loo_margins` without what a missing row does to the mean of the targets, shape (n, L).

        See `polymargin.outputs.Outputs.exact`.
        """
        margins = self.loo_margins.copy()
        for group in row_groups(self.data, self.codebook)[1]:
            margins[np.ix_(group.rows, group.columns)] += group.shift(np.ones(group.rows.size, dtype=bool))
        return margins

    @cached_property
    def _base_to_rows(self) -> Callable[[Any], Array]:
        """What computes the kernel's base matrix between new rows and the training rows."""
        return self.kernel.to_rows(self.data.X)

    @cached_property
    def _terms(self) -> list[tuple[float, Array, Array | None, Array]]:
        """Of every gamma: its machines, the rows they use (None: all), and their coefficients."""
        terms: list[tuple[float, Array, Array | None, Array]] = []
        for gamma in np.unique(self.gamma):
            columns = np.flatnonzero(self.gamma == gamma)
            used: Array = np.asarray(self.dual_coef[columns].any(axis=0))
            whole = columns.size == self.gamma.size and bool(used.all())
            coef = self.dual_coef if whole else self.dual_coef[np.ix_(columns, used)]
            terms.append((float(gamma), columns, None if used.all() else used, coef))
        return terms

    def __getstate__(self) -> dict[str, Any]:
        # What is kept for the next rows is computed anew where the machines come to.
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def margins(self, X: Any) -> Array:
        """Return z of every machine for new rows, shape (m, L)."""
        margins = np.empty((X.shape[0], self.intercept.size))
        if self.expansion is None:
            for rows, base in self._base_blocks(X):
                margins[rows] = self._margins_from_base(base)
            return margins
        for rows in _blocks(X.shape[0], self.expansion.weights.shape[0]):
            new = X[rows].toarray() if sparse.issparse(X) else X[rows]
            margins[rows] = self.expansion.at(self.kernel.features(new, self.expansion.unit))
        return margins

    def training_margins(self) -> Array:
        """Return z of every machine for the rows they were trained on, shape (n, L)."""
        if self.expansion is not None:
            known = self.data.features
            return self.margins(self.data.X) if known is None else self.expansion.at(known)
        if np.unique(self.gamma).size == 1:
            K = self.data.shared_gram(float(self.gamma[0]))
            if K is not None:
                return K @ self.dual_coef.T + self.intercept
        base = self.data.whole_base
        if base is None:
            return self.margins(self.data.X)
        n = base.shape[0]
        return np.vstack([self._margins_from_base(base[rows]) for rows in _blocks(n, n)])

    def kernel_sums(self, coef: Array, gammas: Array) -> Array:
        """Return Σᵢ aᵢ K(x, xᵢ) of the training rows x for several sets of coefficients, shape (n, M).

        Parameters
        ----------
        coef : ndarray of shape (M, n)
            The coefficients a.
        gammas : ndarray of shape (M,)
            The kernel parameter of each.
        """
        if self.data.features is not None:
            features = self.data.features
            return features.values @ features.weights(coef.T, gammas)
        base = self.data.whole_base
        n = self.data.X.shape[0]
        sums = np.empty((n, len(coef)))
        for gamma in np.unique(gammas):
            columns = np.flatnonzero(gammas == gamma)
            K = self.data.shared_gram(float(gamma))
            if K is not None:
                sums[:, columns] = K @ coef[columns].T
                continue
            for rows in _blocks(n, n):
                part = self.kernel.base(self.data.X[rows], self.data.X) if base is None else base[rows]
                sums[np.ix_(np.arange(n)[rows], columns)] = self.kernel.apply(part, gamma) @ coef[columns].T
        return sums

    def outputs(self, X: Any, *, variances: bool) -> Outputs:
        """Return the outputs for new rows, with their variances if asked for."""
        if not variances:
            return self._outputs(self.margins(X), "new")
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
        return self._outputs(margins, "new", spread)

    def training_outputs(self, *, honest: bool) -> Outputs:
        """Return the outputs of the training rows: leave-one-out, or what the machines say of what they know."""
        if honest:
            outputs = self._outputs(self.honest_margins, "leave_one_out")
            return replace(outputs, exact=self.loo_margins, dealt=self.data.deal, nested=self.nested)
        return self._outputs(self.training_margins(), "in_sample")

    def _outputs(self, margins: Array, provenance: Provenance, variances: Array | None = None) -> Outputs:
        return Outputs(margins, provenance, variances, 1.0 / self.zeta, self.norms)

    def _base_blocks(self, X: Any) -> Iterator[tuple[slice, Array]]:
        for rows in _blocks(X.shape[0], self.data.X.shape[0]):
            yield rows, self._base_to_rows(X[rows])

    def _margins_from_base(self, base: Array) -> Array:
        margins = np.empty((base.shape[0], self.intercept.size))
        for gamma, columns, used, coef in self._terms:
            values = self.data.kernel.apply(base if used is None else base[:, used], gamma)
            margins[:, columns] = values @ coef.T
        return margins + self.intercept

    def _base_diagonal(self, X: Any) -> Array:
        """Return the base of new rows with themselves, which for a precomputed kernel is the same for all."""
        if not self.data.kernel.precomputed:
            return self.data.kernel.base_diagonal(X)
        return np.full(X.shape[0], _constant_diagonal(self.data))

    def _variances_from_base(self, block: Block, base: Array, diagonal: Array) -> Array:
        """Return σ_z² of the block's machines, eq. (12) in centred form (its printed sign is wrong)."""
        kernel = self.data.kernel
        K_new = kernel.apply(base[:, block.rows], block.gamma).astype(np.float64, copy=False)
        own = block.centring.diagonal(kernel.apply(diagonal, block.gamma), K_new)
        explained = cast(WholeFactor, block.factor).quadratic(block.centring.cross(K_new))
        mu, zeta = self.mu[block.columns], self.zeta[block.columns]
        unexplained = np.maximum(own[:, np.newaxis] - explained, 0.0)
        return 1.0 / (block.centring.total * zeta) + unexplained / mu

    def _refactored(self) -> Iterator[Block]:
        """Yield the factorisations again, for a bank that did not keep them."""
        for group in row_groups(self.data, self.codebook)[1]:
            yield from _factorise(group, self.gamma[group.columns], 1.0 / self.C[group.columns], whole=True)


def _blocks(n_rows: int, n_values: int) -> Iterator[slice]:
    """Yield as many rows at a time as make a block, with some matrices of so many values per row."""
    size = _memory.block_rows(8.0 * 4 * n_values)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def select(
    data: TrainingRows,
    codebook: Codebook,
    *,
    C: float | None,
    gamma: float | None,
    selection: Selection,
    pools: Sequence[Array] | None,
    settings: SearchSettings,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Return C and gamma of every column as `fit_lssvm_bank` selects them, shape (L,) each, without training."""
    groups = row_groups(data, codebook, selection)[1]
    data.use_features(features_to_use(data, groups) is not None)
    pools = _one_by_one(codebook) if pools is None else pools
    found = select_parameters(data, groups, C, gamma, selection, pools, settings, progress)
    data.release()
    return found


def _one_by_one(codebook: Codebook) -> list[Array]:
    """Return pools in which every column is alone."""
    return [np.array([column]) for column in range(codebook.n_columns)]


def fit_lssvm_bank(
    data: TrainingRows,
    codebook: Codebook,
    *,
    C: float | Array | None,
    gamma: float | Array | None,
    selection: Selection = "evidence",
    pools: Sequence[Array] | None = None,
    settings: SearchSettings = DEFAULT,
    keep_factors: bool = True,
    n_folds: int = 0,
    progress: Progress | None = None,
) -> LSSVMBank:
    """Train the machines of every column of the codebook.

    Parameters
    ----------
    data : TrainingRows
        The training rows.
    codebook : Codebook
        The dichotomies.
    C, gamma : float, ndarray of shape (L,), or None
        The regularisation and the kernel's parameter, for all columns or for each; None has them selected.
    selection : {"evidence", "loo", "gcv"}
        How: by the evidence, by leave-one-out errors or by generalised cross-validation.
    pools : sequence of ndarray of int, or None
        The columns that share inferred parameters; every column belongs to one pool. None: each has its own.
    settings : SearchSettings
        Width and budget of a selection by leave-one-out errors.
    keep_factors : bool
        Whether the factorisations are kept for variances.
    n_folds : int
        In how many folds nested outputs are wanted, see `polymargin.outputs.Nested`; zero for none.
    progress : callable or None
        Is told every step, see `polymargin._progress`.
    """
    targets, groups = row_groups(data, codebook, selection)
    inferred = C is None or (gamma is None and data.kernel.tunable)
    if (inferred and selection == "evidence") or keep_factors:
        _check_weights(groups)
    pools = _one_by_one(codebook) if pools is None else pools
    by_evidence = inferred and selection == "evidence"
    n_features = None if keep_factors or by_evidence else features_to_use(data, groups)
    require_memory(data, groups, keep_factors, n_features)
    data.use_features(n_features is not None)
    _memory.keep_freed()
    if inferred:
        data.prepare()
    Cs, gammas = select_parameters(data, groups, C, gamma, selection, pools, settings, progress)
    n = data.class_index.size
    bank = LSSVMBank(
        data=data,
        codebook=codebook,
        dual_coef=np.zeros((codebook.n_columns, n)),
        intercept=np.empty(codebook.n_columns),
        norms=np.empty(codebook.n_columns),
        C=Cs,
        gamma=gammas,
        mu=np.empty(codebook.n_columns),
        zeta=np.empty(codebook.n_columns),
        log_evidence=np.empty(codebook.n_columns),
        loo_margins=np.full((n, codebook.n_columns), np.nan),
        blocks=[] if keep_factors else None,
    )
    machines = Count(progress, "machines")
    machines.expect(codebook.n_columns)

    without = FoldsOut.of(data, codebook.n_columns, n_folds) if n_folds else None

    def solved(group: RowGroupGram) -> list[Block]:
        blocks = []
        ridges = 1.0 / bank.C[group.columns]
        for block in _factorise(group, bank.gamma[group.columns], ridges, whole=keep_factors):
            _solve(bank, block, targets, group, without)
            machines.advance(block.columns.size)
            if keep_factors:
                blocks.append(block)
        group.release()
        return blocks

    if not data.kernel.untrusted and np.unique(bank.gamma).size == 1:
        data.share_gram(float(bank.gamma[0]))
    of_groups = in_threads(solved, groups)
    if bank.blocks is not None:
        bank.blocks.extend(block for blocks in of_groups for block in blocks)
    if keep_factors and data.kernel.precomputed:
        _constant_diagonal(data)
    if data.features is not None:
        bank = replace(bank, expansion=_expansion(bank, data.features, groups))
    if without is not None:
        bank = replace(bank, nested=without.outputs(groups, bank))
    # A row that a dichotomy does not use is new to it.
    unused = np.isnan(bank.loo_margins)
    if unused.any():
        np.copyto(bank.loo_margins, bank.training_margins(), where=unused)
    return bank


def _expansion(bank: LSSVMBank, features: Features, groups: list[RowGroupGram]) -> Expansion:
    """Return the machines in terms of features: at the mean of its rows each says the mean of its targets."""
    weights = np.empty((features.orders.size, bank.intercept.size))
    constant = np.empty(bank.intercept.size)
    for group in groups:
        # The coefficients add up to zero. About their rows' mean, what rounding leaves of that does not count.
        shares = group.weights / group.total
        own = features.of(group.rows)
        mean = shares @ own.values
        own.values[...] -= mean
        coef = bank.dual_coef[np.ix_(group.columns, group.rows)].T
        found = own.weights(coef, bank.gamma[group.columns])
        weights[:, group.columns] = found
        constant[group.columns] = shares @ group.targets - mean @ found
    return Expansion(weights, constant, features.unit)


def row_groups(
    data: TrainingRows, codebook: Codebook, selection: Selection = "evidence"
) -> tuple[Array, list[RowGroupGram]]:
    """Return the targets of all columns, shape (n, L), and the groups of rows that columns share.

    A row with a soft label takes part in a dichotomy with the probability of its classes for a weight; its target is
    the mean of the classes' sides. That is the machine of K rows in its place, one of each class, weighted by the
    probabilities.
    """
    if data.soft_labels is None:
        targets = codebook.targets(data.class_index)
        # Generalised cross-validation of one-vs-all machines counts the column of a row's own class.
        own = targets > 0 if selection == "gcv" and codebook.is_one_vs_all else None
        return targets, [
            RowGroupGram(
                data,
                np.flatnonzero(group.classes[data.class_index]),
                group.columns,
                targets,
                counted=own,
            )
            for group in codebook.row_groups
        ]
    targets = data.soft_labels @ codebook.matrix.astype(np.float64)
    own = None
    if selection == "gcv" and codebook.is_one_vs_all:
        own = data.soft_labels @ (codebook.matrix > 0).astype(np.float64)
    groups = []
    for group in codebook.row_groups:
        share = data.soft_labels @ group.classes
        rows = np.flatnonzero(share > 0.0)
        targets[np.ix_(rows, group.columns)] /= share[rows, np.newaxis]
        groups.append(
            RowGroupGram(data, rows, group.columns, targets, weights=data.weights * share, counted=own)
        )
    return targets, groups


def _constant_diagonal(data: TrainingRows) -> float:
    """Return the K(x, x) that all rows of a precomputed kernel share, or refuse: new rows do not tell theirs."""
    known = data.kernel.base_diagonal(data.X)
    if not np.allclose(known, known[0]):
        raise ValueError(
            "variances need K(x, x) of the new rows, which a precomputed kernel does not give unless it is the same "
            "for all rows; give the kernel as a function, or choose a decoding without variances, such as "
            '"loss"'
        )
    return float(known[0])


def _check_weights(groups: list[RowGroupGram]) -> None:
    """Refuse weights that stand for less than two rows, from which no hyperparameter can be inferred."""
    total = min(float(group.weights.sum()) for group in groups)
    if total < 2.0 - 1e-9:
        raise ValueError(
            f"the sample weights of the rows of a dichotomy sum to {total:.3g}, but the evidence and the variances "
            "need at least 2: a weight is a number of rows; scale the weights, for example to a mean of one"
        )


def _factorise(group: RowGroupGram, gammas: Array, ridges: Array, *, whole: bool) -> Iterator[Block]:
    """Yield the group's columns in blocks that share a factorisation, one of the whole matrix if that is wanted."""
    for gamma in sorted(set(gammas.tolist())):
        same_gamma = np.flatnonzero(gammas == gamma)
        different = sorted(set(ridges[same_gamma].tolist()))
        same = {ridge: same_gamma[ridges[same_gamma] == ridge] for ridge in different}
        if group.thin is not None and not whole:
            thin = _thin_blocks(group, group.thin, gamma, same)
            if thin is not None:
                yield from thin
                continue
            require_matrix(group)
        centring, A = group.centred(gamma)
        if len(different) >= SPECTRAL_FROM:
            factor = spectral(A, ridges[same_gamma])
            yield Block(group.rows, group.columns[same_gamma], gamma, centring, factor)
            continue
        for ridge, places in same.items():
            columns = group.columns[places]
            yield Block(group.rows, columns, gamma, centring, cholesky(A, ridge, columns.size))


def _thin_blocks(
    group: RowGroupGram, thin: ThinMatrix, gamma: float, same: dict[float, Array]
) -> list[Block] | None:
    """Return the blocks of every ridge's columns, by the features of the rows; None if rounding forbids it."""
    factors = [thin.factor(gamma, ridge, places.size) for ridge, places in same.items()]
    if any(factor is None for factor in factors):
        return None
    centring = thin.centring(gamma)
    return [
        Block(group.rows, group.columns[places], gamma, centring, factor)
        for places, factor in zip(same.values(), factors, strict=True)
        if factor is not None
    ]


def _solve(
    bank: LSSVMBank, block: Block, targets: Array, group: RowGroupGram, without: FoldsOut | None
) -> None:
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

    # The leave-one-out residual is the residual over one minus the leverage (Shim et al. 2008, §4). The inverse
    # without the bias direction gives both: residual ε ã/√s, leverage 1 − ε Pᵢᵢ. The whole row is left out, whatever
    # it weighs, and with it the other rows of its group.
    lifted = centring.lift + ridges
    P = None if without is None else without.add(group, block, solution, ridges)
    if P is None:
        inverse = unbiased_diagonal(block.factor, centring, ridges)
    else:
        inverse = np.repeat(np.diagonal(P)[:, np.newaxis], columns.size, axis=1)
    errors = left_out_errors(block.factor, solution, centring, ridges, group.left_out, inverse)
    bank.loo_margins[np.ix_(rows, columns)] = Y - errors / roots

    fit = np.einsum("nl,nl->l", centred, solution)
    squared_norms = fit - ridges * np.einsum("nl,nl->l", solution, solution)
    bank.norms[columns] = np.sqrt(np.maximum(squared_norms, 0.0))
    if centring.total <= 1.0:
        # Less than two rows' worth of weight: there is a machine, but nothing to infer its hyperparameters from.
        bank.mu[columns] = bank.zeta[columns] = bank.log_evidence[columns] = np.nan
        return
    repeated = centring.total - rows.size
    logs = block.factor.log_determinants() - np.log(lifted) + repeated * np.log(ridges)
    bank.mu[columns] = (centring.total - 1.0) / fit
    bank.zeta[columns] = bank.mu[columns] / ridges
    bank.log_evidence[columns] = evidence.log_evidence(
        centring.total, ridges, fit, logs, inverse.sum(axis=0) + repeated / ridges
    )
