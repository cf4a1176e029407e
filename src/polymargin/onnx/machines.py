"""The outputs of the machines, in a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from polymargin.decoders.argmax import positive_ratio
from polymargin.machines.lssvm import FactorisedBlock, LSSVMBank
from polymargin.onnx import kernels
from polymargin.onnx._graph import Array, Value
from polymargin.solvers.ridge import CholeskyFactor, SpectralFactor

__all__ = ["GraphOutputs", "expansion", "in_order", "machine_outputs"]


@dataclass(frozen=True)
class GraphOutputs:
    """`polymargin.outputs.Outputs` of new rows in a graph; what does not depend on the rows is an array."""

    margins: Value
    variances: Value | None
    noise: Array | None
    norms: Array | None

    def over_norms(self) -> Value:
        """Return the margins over the norms of the machines' weights, as `polymargin.decoders.argmax.over_norms`."""
        assert self.norms is not None  # else the decoder could not be fitted
        return self.margins * positive_ratio(np.ones_like(self.norms), self.norms)


def machine_outputs(x: Value, bank: Any, *, variances: bool) -> GraphOutputs:
    """Return the outputs of a bank for new rows, which are doubles of shape (n, d)."""
    least_squares = isinstance(bank, LSSVMBank)
    rows = bank.data.X if least_squares else bank.vectors
    if least_squares and bank.expansion is not None:
        found = bank.expansion
        margins = kernels.features(bank.kernel, x, rows.shape[1], found.unit) @ found.weights + found.constant
    else:
        margins = expansion(x, bank.kernel, rows, bank.gamma, bank.dual_coef, bank.intercept)
    if not least_squares:
        return GraphOutputs(margins, None, None, bank.norms)
    spread = _variances(x, bank) if variances else None
    return GraphOutputs(margins, spread, 1.0 / bank.zeta, bank.norms)


def expansion(x: Value, kernel: Any, rows: Any, gamma: Array, coef: Array, intercept: Array) -> Value:
    """Return Σᵢ aᵢ K(x, xᵢ) + b of every machine, shape (n, L); machines of equal gamma together."""
    if not coef.any():
        return x.take(np.array([0])) * 0.0 + intercept
    parts, columns = [], []
    for value in np.unique(gamma):
        same = np.flatnonzero(gamma == value)
        used = coef[same].any(axis=0)
        base = kernels.base(kernel, x, rows)
        if not used.all():
            base = kernels.take(base, np.flatnonzero(used))
        parts.append(kernels.apply(kernel, base, value) @ coef[np.ix_(same, used)].T)
        columns.append(same)
    return in_order(parts, columns) + intercept


def _variances(x: Value, bank: LSSVMBank) -> Value:
    """Return σ_z² of every machine, shape (n, L), as `LSSVMBank.outputs` does."""
    kernel = bank.kernel
    base = kernels.base(kernel, x, bank.data.X)
    diagonal = kernels.base_diagonal(kernel, x)
    blocks: Iterable[FactorisedBlock] = bank.blocks if bank.blocks is not None else bank._refactored()
    parts, columns = [], []
    for block in blocks:
        centring = block.centring
        K = kernels.apply(kernel, kernels.take(base, block.rows), block.gamma)
        mean = K @ (centring.weights / centring.total)[:, np.newaxis]
        own = kernels.apply(kernel, diagonal, block.gamma) - 2.0 * mean + centring.grand_mean
        centred = (K - mean - (centring.row_means - centring.grand_mean)) * centring.roots
        directions, inverses = _square_root(block)
        unexplained = (own - (centred @ directions).square() @ inverses).at_least(0.0)
        mu, zeta = bank.mu[block.columns], bank.zeta[block.columns]
        parts.append(1.0 / (centring.total * zeta) + unexplained / mu)
        columns.append(block.columns)
    return in_order(parts, columns)


def _square_root(block: FactorisedBlock) -> tuple[Array, Array]:
    """Return V and W with which vᵀ(A + ε_l I)⁻¹v = Σ_i (vᵀV)ᵢ² W_il."""
    match block.factor:
        case CholeskyFactor(lower=lower, n_columns=n_columns):
            inverse, _ = lapack.dtrtri(lower, lower=1)
            return np.tril(inverse).T, np.ones((len(lower), n_columns))
        case SpectralFactor(eigenvalues=eigenvalues, vectors=vectors, ridges=ridges):
            return vectors, 1.0 / (eigenvalues[:, np.newaxis] + ridges)
    raise ValueError(f"no ONNX form of {type(block.factor).__name__} is known")


def in_order(parts: list[Value], columns: list[Array]) -> Value:
    """Return the parts side by side, their columns where they belong."""
    joined = parts[0].beside(*parts[1:])
    place = np.argsort(np.concatenate(columns))
    return joined if (place == np.arange(place.size)).all() else joined.take(place)
