"""Kernel values of new rows against training rows, in a graph: a base matrix and a map, as in `polymargin.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin.kernels import RBF, FunctionKernel, Kernel, Laplacian, Linear, Polynomial, Precomputed
from polymargin.onnx._graph import Array, Value

__all__ = ["apply", "base", "base_diagonal", "cityblock", "dense", "squared_distances"]


def base(kernel: Kernel, x: Value, rows: Any) -> Value:
    """Return the base matrix between new rows and training rows, shape (n, m), which is computed once in a graph."""
    rows = dense(rows)
    centre = getattr(kernel, "centre", None)
    key = (
        "base",
        _base_kind(kernel),
        None if centre is None else centre.tobytes(),
        x.name,
        rows.shape,
        rows.tobytes(),
    )
    memo = x.graph.memo
    if key not in memo:
        memo[key] = _new_base(kernel, x, rows)
    return memo[key]


def _base_kind(kernel: Kernel) -> str:
    """Return which base a kernel has, or refuse it."""
    match kernel:
        case Linear() | Polynomial():
            return "products"
        case RBF():
            return "squared distances"
        case Laplacian():
            return "city-block distances"
        case Precomputed():
            raise ValueError(
                "a model with a precomputed kernel cannot be exported: it has no training rows to compare new rows with"
            )
        case FunctionKernel():
            raise ValueError(
                "a model whose kernel is a Python function cannot be exported; choose a kernel by name: linear, poly, "
                "rbf or laplacian"
            )
    raise ValueError(f"no ONNX form of the kernel {kernel!r} is known; choose linear, poly, rbf or laplacian")


def _new_base(kernel: Kernel, x: Value, rows: Array) -> Value:
    match _base_kind(kernel):
        case "products":
            centre = getattr(kernel, "centre", None)
            return x @ rows.T if centre is None else (x - centre) @ (rows - centre).T
        case "squared distances":
            # As in Python: a shift changes no distance, but saves the digits that a common mean would cost.
            centre = rows.mean(axis=0)
            moved, fixed = x - centre, rows - centre
            products = moved @ (-2.0 * fixed.T)
            norms = np.einsum("ij,ij->i", fixed, fixed)
            return (products + moved.square().sum(keepdims=True) + norms).at_least(0.0)
        case _:
            return cityblock(x, rows)


def base_diagonal(kernel: Kernel, x: Value) -> Value:
    """Return the base of every new row with itself, shape (n, 1)."""
    if _base_kind(kernel) != "products":
        return x.take(np.array([0])) * 0.0
    centre = getattr(kernel, "centre", None)
    return (x if centre is None else x - centre).square().sum(keepdims=True)


def apply(kernel: Kernel, base: Value, gamma: float) -> Value:
    """Return the kernel values of a base matrix."""
    match kernel:
        case Linear():
            return base
        case Polynomial():
            return (float(gamma) * base + float(kernel.coef0)) ** kernel.degree
    return (-float(gamma) * base).exp()


def cityblock(x: Value, rows: Array) -> Value:
    """Return Σ_j |x_j − z_j|, shape (n, m); no more memory than the training rows is used at a time."""
    return x.graph.each_row(x, len(rows), lambda row: (row - rows).absolute().sum(axis=1))


def squared_distances(x: Value, rows: Array) -> Value:
    """Return Σ_j (x_j − z_j)², shape (n, m), without cancellation, so that equal distances are seen to be equal."""
    return x.graph.each_row(x, len(rows), lambda row: (row - rows).square().sum(axis=1))


def dense(rows: Any) -> Array:
    """Return rows as a dense array of doubles."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
