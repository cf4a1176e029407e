"""Kernel values of new rows against training rows, in a graph: a base matrix and a map, as in `polymargin.kernels`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from polymargin.kernels import Kernel, Scaled
from polymargin.kernels.ranks import Ranks
from polymargin.onnx._graph import Array, Value

__all__ = [
    "Base",
    "apply",
    "base",
    "base_diagonal",
    "cityblock",
    "dense",
    "features",
    "parts",
    "scaled",
    "squared_distances",
    "take",
]

#: What a kernel is a map of, between new rows and training rows: matrices of shape (n, m), two of them for a blend.
Base = tuple[Value, ...]
_NAMES = "linear, poly, rbf, laplacian, exponential or blend"


def base(kernel: Kernel, x: Value, rows: Any) -> Base:
    """Return the base matrices between new rows and training rows; each is computed once in a graph.

    Training rows that are values of the graph are rows as the kernel compares them.
    """
    x, rows = scaled(kernel, x), rows if isinstance(rows, Value) else kernel.scaled(dense(rows))
    return tuple(_part(kind, kernel.centre, x, rows) for kind in parts(kernel))


def scaled(kernel: Kernel, x: Value) -> Value:
    """Return new rows as the kernel compares them; once in a graph."""
    if not isinstance(kernel, Scaled):
        return x
    memo, columns, widths = x.graph.memo, kernel.columns, kernel.widths
    if columns is not None:
        key: Hashable = ("ranks", x.name, columns.places.tobytes(), columns.ranks.tobytes())
        if key not in memo:
            memo[key] = _ranked(columns, x)
        x = memo[key]
    if widths is not None:
        key = ("scaled", x.name, widths.tobytes())
        if key not in memo:
            memo[key] = x * widths
        x = memo[key]
    return x


def _ranked(columns: Ranks, x: Value) -> Value:
    """Return the ranks of the entries of new rows."""
    places, ranks = columns.places.T, columns.ranks.T
    lengths = np.diff(places)
    slopes = np.divide(np.diff(ranks), lengths, out=np.zeros_like(lengths), where=lengths > 0.0)

    def ranked(row: Value) -> Value:
        climbed = (row.with_axis(1) - places[:, :-1]).at_least(0.0).at_most(lengths)
        return (climbed * slopes).sum(axis=1) + ranks[:, 0]

    return x.graph.each_row(x, len(places), ranked)


def _part(kind: str, centre: Array | None, x: Value, rows: Array | Value) -> Value:
    of_centre = None if centre is None else centre.tobytes()
    of_rows = rows.name if isinstance(rows, Value) else (rows.shape, rows.tobytes())
    key = ("base", kind, of_centre, x.name, of_rows)
    memo = x.graph.memo
    if key not in memo:
        memo[key] = _new_part(kind, centre, x, rows)
    return memo[key]


def parts(kernel: Kernel) -> tuple[str, ...]:
    """Return which base matrices a kernel has, or refuse it."""
    if kernel.parts:
        return kernel.parts
    if kernel.precomputed:
        raise ValueError(
            "a model with a precomputed kernel cannot be exported: it has no training rows to compare new rows with"
        )
    if kernel.untrusted:
        raise ValueError(
            f"a model whose kernel is a Python function cannot be exported; choose a kernel by name: {_NAMES}"
        )
    raise ValueError(f"no ONNX form of the kernel {kernel!r} is known; choose {_NAMES}")


def _new_part(kind: str, centre: Array | None, x: Value, rows: Any) -> Value:
    match kind:
        case "products":
            return x @ rows.T if centre is None else (x - centre) @ (rows - centre).T
        case "squared distances":
            # As in Python: a shift changes no distance, but saves the digits that a common mean would cost.
            mean = rows.mean(axis=0)
            moved, fixed = x - mean, rows - mean
            products = moved @ (-2.0 * fixed.T)
            norms = (fixed * fixed).sum(axis=1)
            return (products + moved.square().sum(keepdims=True) + norms).at_least(0.0)
        case "distances":
            # Without cancellation: the square root would magnify it.
            return squared_distances(x, rows).sqrt()
        case _:
            return cityblock(x, rows)


def features(kernel: Kernel, x: Value, d: int, unit: float | Value) -> Value:
    """Return the features of new rows of d columns, shape (n, D), as `Kernel.features` does; once in a graph."""
    x, terms = scaled(kernel, x), kernel.feature_terms(d)
    if terms is None:
        return x
    centre = None if kernel.centre is None else kernel.centre.tobytes()
    key = ("features", x.name, repr(kernel), centre, unit)
    memo = x.graph.memo
    if key not in memo:
        rows = (x if kernel.centre is None else x - kernel.centre) / unit
        parts = []
        for variables, scales in terms:
            part = rows.take(variables[0])
            for others in variables[1:]:
                part = part * rows.take(others)
            parts.append(part * scales)
        memo[key] = parts[0].beside(*parts[1:])
    return memo[key]


def take(base: Base, places: Array) -> Base:
    """Return the base matrices of some of the training rows."""
    return tuple(part.take(places) for part in base)


def base_diagonal(kernel: Kernel, x: Value) -> Base:
    """Return the base of every new row with itself, of shape (n, 1)."""
    x, kinds = scaled(kernel, x), parts(kernel)
    if kinds != ("products",):
        return (x.take(np.array([0])) * 0.0,) * len(kinds)
    return ((x if kernel.centre is None else x - kernel.centre).square().sum(keepdims=True),)


def apply(kernel: Kernel, base: Base, gamma: Any) -> Value:
    """Return the kernel values of a base, for a gamma that is a number or a value of the graph."""
    parameter: Any = gamma if isinstance(gamma, Value) else float(gamma)
    return kernel.formula(base, parameter, Value.exp)


def cityblock(x: Value, rows: Array | Value) -> Value:
    """Return Σ_j |x_j − z_j|, shape (n, m); no more memory than the training rows is used at a time."""
    return x.graph.each_row(x, _length(rows), lambda row: (row - rows).absolute().sum(axis=1))


def squared_distances(x: Value, rows: Array | Value) -> Value:
    """Return Σ_j (x_j − z_j)², shape (n, m), without cancellation, so that equal distances are seen to be equal."""
    return x.graph.each_row(x, _length(rows), lambda row: (row - rows).square().sum(axis=1))


def _length(rows: Array | Value) -> int | None:
    return None if isinstance(rows, Value) else len(rows)


def dense(rows: Any) -> Array:
    """Return rows as a dense array of doubles."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
