"""A bank whose machines are expansions in support vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin.kernels import Kernel
from polymargin.machines._hinge import HingeRows, lazy_gram, lazy_kernel
from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows
from polymargin.solvers.smo_expansion import KernelExpansion

Array = NDArray[Any]


@dataclass(frozen=True)
class SameGamma:
    """The machines that share their kernel's parameter, as one expansion in the bank's support vectors."""

    gamma: float
    columns: Array
    expansion: KernelExpansion


@dataclass(frozen=True)
class ExpansionBank:
    """Fitted machines f_l(x) = Σ βᵢ K(x, xᵢ) + b, evaluated together on the union of their support vectors.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    support : ndarray of int, shape (S,)
        The union of the machines' support vectors, as training rows, ascending. One of several copies of a row
        stands for all of them.
    vectors : array or sparse matrix of shape (S, d), or None
        The support vectors; None for a precomputed kernel.
    intercept, norms, C, gamma : ndarray of shape (L,)
        The bias, the norm of the weights ‖w‖ = √(βᵀKβ), the regularisation and the kernel's parameter of every
        machine.
    """

    kernel: Kernel
    support: Array
    vectors: Any
    intercept: Array
    norms: Array
    C: Array
    gamma: Array
    _groups: list[SameGamma]
    _n_threads: int

    @property
    def dual_coef(self) -> Array:
        """β, the coefficients of the support vectors in every machine, shape (L, S)."""
        coef = np.zeros((self.intercept.size, self.support.size))
        for group in self._groups:
            coef[np.ix_(group.columns, group.expansion.support)] = group.expansion.coefficients.T
        return coef

    def margins(self, X: Any) -> Array:
        """Return the decision values f of every machine for new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (m, d)
            New rows; for a precomputed kernel their kernel values with all n training rows, shape (m, n).

        Returns
        -------
        margins : ndarray of shape (m, L)
            Positive on the side of the classes with codeword bit +1.
        """
        margins = np.tile(self.intercept, (X.shape[0], 1))
        if not self.support.size:
            return margins
        if self.vectors is not None and lazy_kernel(self.kernel, X, self.vectors):
            scaled = self.kernel.scaled(X)
            for group in self._groups:
                gram = lazy_gram(self.kernel, self.vectors, group.gamma, np.float64)
                margins[:, group.columns] = group.expansion.decision_values(gram, scaled, self._n_threads)
            return margins
        for rows, base in self._base_blocks(X):
            for group in self._groups:
                values = self.kernel.apply(base, group.gamma)
                margins[rows, group.columns] = group.expansion.evaluate(values)
        return margins

    def outputs(self, X: Any, *, variances: bool = False) -> Outputs:
        """Return the outputs for new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (m, d)
            New rows, see `margins`.
        variances : bool, default=False
            Must be False: support vector machines have no predictive variances.

        Returns
        -------
        outputs : Outputs
            Margins and norms, with provenance "new".

        Raises
        ------
        ValueError
            If variances are requested.
        """
        if variances:
            raise ValueError(
                "support vector machines have no variances: choose a decoding that needs none, such as "
                '"hamming" or "loss", or use LSSVMClassifier'
            )
        return Outputs(self.margins(X), "new", norms=self.norms)

    def _base_blocks(self, X: Any) -> Iterator[tuple[slice, Array]]:
        """Yield the base matrix of new rows against the support vectors, block by block."""
        size = _memory.block_rows(8.0 * 4 * max(self.support.size, 1))
        for start in range(0, X.shape[0], size):
            rows = slice(start, min(start + size, X.shape[0]))
            if self.vectors is None:
                yield rows, X[rows][:, self.support]
            else:
                yield rows, self.kernel.base(X[rows], self.vectors)


@dataclass(frozen=True)
class Assembly:
    """Support vectors of several expansions together, and the expansions in their numbering."""

    support: Array
    vectors: Any
    groups: list[SameGamma]


def assemble(
    rows: HingeRows, data: TrainingRows, parts: Sequence[tuple[float, Array, KernelExpansion]]
) -> Assembly:
    """Number the support vectors of all parts together, as training rows in ascending order."""
    found = [rows.first[expansion.support] for _, _, expansion in parts]
    support = np.unique(np.concatenate(found))
    groups = [
        SameGamma(gamma, columns, replace(expansion, support=np.searchsorted(support, places)))
        for (gamma, columns, expansion), places in zip(parts, found, strict=True)
    ]
    return Assembly(support, None if data.kernel.precomputed else data.X[support], groups)
