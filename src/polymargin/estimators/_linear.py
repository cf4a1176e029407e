"""The weights of the columns, for machines with a linear kernel."""

from __future__ import annotations

from typing import Any

from scipy import sparse

from polymargin.kernels import Kernel, Linear, Scaled


def linear_coef(kernel: Kernel, dual_coef: Any, rows: Any) -> Any:
    """Return the weights w of machines f(x) = w·x + b, in the units of the columns, read-only.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the machines.
    dual_coef : ndarray or sparse matrix of shape (L, n)
        The coefficients of the rows.
    rows : ndarray or sparse matrix of shape (n, d)
        The rows of the kernel expansions.

    Returns
    -------
    coef : ndarray or sparse matrix of shape (L, d)
        Sparse if both arguments are.

    Raises
    ------
    AttributeError
        If the machines are not linear in the columns.
    """
    inside = kernel.kernel if isinstance(kernel, Scaled) else kernel
    if not isinstance(inside, Linear):
        raise AttributeError(
            f'coef_ is only available with kernel="linear": machines with the {inside.name} kernel have no weights of '
            "the columns"
        )
    if isinstance(kernel, Scaled) and kernel.columns is not None:
        raise AttributeError(
            'coef_ is not available with columns="ranks": the machines are linear in the ranks only'
        )
    coef = dual_coef @ kernel.scaled(rows)
    if isinstance(kernel, Scaled) and kernel.widths is not None:
        coef = coef.multiply(kernel.widths).tocsr() if sparse.issparse(coef) else coef * kernel.widths
    # A change would have no effect on the machines.
    (coef.data if sparse.issparse(coef) else coef).flags.writeable = False
    return coef
