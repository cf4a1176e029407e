"""The blocks of Dask collections: rows with their numbers, labels and weights, checked where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import NDArray
from scipy import sparse

from polymargin._warnings import warn
from polymargin.cluster.workers import count_workers, worker_memory, worker_threads
from polymargin.kernels import Linear
from polymargin.rows import TrainingRows

Array = NDArray[Any]

#: Samples, landmarks and the tree go to the workers with the graph, which Dask would warn of: scattered, they would be
#: lost with the worker that holds them.
_GRAPH_BYTES = "1GiB"
#: The share of a worker's memory that a block should take at most. On its way to the leaves a block is there some five
#: times, as it was given, as a table with the rows that two leaves share, and as what the shuffle sends; and a worker
#: has two on their way.
_BLOCK_SHARE = 1.0 / 32.0
#: The bytes that the client asks for at a time, and the least number of tasks for every thread of the workers: fewer
#: would have threads wait for each other.
_SENT_BYTES, _TASKS_OF_THREAD = 2.0**25, 4


@dataclass(frozen=True)
class Blocks:
    """Rows of a Dask collection, block by block.

    Attributes
    ----------
    X, y : list of Delayed
        The rows and the labels of every block.
    weights : list of Delayed or None
        The weights of their rows.
    starts : ndarray of int, shape (B,)
        The number of the first row of every block.
    n_rows, n_columns : int
        The size of the data.
    dtype : dtype
        float32 where that has all digits of the rows, float64 otherwise.
    """

    X: list[Delayed]
    y: list[Delayed]
    weights: list[Delayed] | None
    starts: Array
    n_rows: int
    n_columns: int
    dtype: Any

    @classmethod
    def of(cls, X: Any, y: Any, sample_weight: Any = None) -> Blocks:
        """Return the blocks of collections; chunk sizes that are not known are computed.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame
            The rows.
        y : dask.array.Array, dask.dataframe.Series or DataFrame of one column
            The labels.
        sample_weight : dask.array.Array, dask.dataframe.Series or None
            The weights.

        Returns
        -------
        Blocks
        """
        rows = _known(X, "X")
        if rows.ndim != 2:
            raise ValueError(f"X must have two dimensions, rows and columns, not {rows.ndim}")
        # A row must not be divided.
        rows = rows.rechunk({1: -1})
        n, d = (int(size) for size in rows.shape)
        if n < 2 or d < 1:
            raise ValueError(f"X has the shape {rows.shape}: at least two rows and one column are needed")
        beside = [_beside(y, rows, "y")]
        if sample_weight is not None:
            beside.append(_beside(sample_weight, rows, "sample_weight"))
        starts = np.concatenate([[0], np.cumsum(rows.chunks[0])])
        used = np.flatnonzero(np.diff(starts))
        parts = [array.to_delayed().ravel()[used].tolist() for array in (rows, *beside)]
        _warn_of_large_blocks(rows)
        dtype = np.dtype(np.float32 if np.can_cast(rows.dtype, np.float32) else np.float64)
        return cls(parts[0], parts[1], parts[2] if len(parts) > 2 else None, starts[used], n, d, dtype)

    def map(self, function: Callable[..., Any], *arguments: Any, rows: bool = True) -> list[Delayed]:
        """Return a task for every block: a function of its rows, labels, weights and first number.

        Parameters
        ----------
        function : callable (X, y, weights, start, *arguments)
            What to compute; weights are None where there are none, and X is None without rows.
        *arguments : object
            Further arguments; Delayed for those that are shared by all.
        rows : bool
            Whether the function needs the rows themselves.

        Returns
        -------
        list of Delayed
        """
        task = delayed(function, pure=False, traverse=False)
        weights: Sequence[Any] = [None] * len(self.y) if self.weights is None else self.weights
        return [
            task(self.X[block] if rows else None, self.y[block], weights[block], int(start), *arguments)
            for block, start in enumerate(self.starts)
        ]


@dataclass(frozen=True)
class BlockReader:
    """What makes checked training rows of a block.

    Attributes
    ----------
    classes : ndarray of shape (K,)
        The class labels, ascending.
    factors : ndarray of shape (K,)
        What the weights of the rows of every class are multiplied by.
    """

    classes: Array
    factors: Array

    def __call__(self, X: Any, y: Any, weights: Any, start: int) -> tuple[Array, TrainingRows]:
        """Return the rows of a block that count.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : array-like of shape (n,)
            Labels.
        weights : array-like of shape (n,) or None
            Weights.
        start : int
            The number of the first row.

        Returns
        -------
        numbers : ndarray of int, shape (m,)
            The numbers of the rows of positive weight among all.
        rows : TrainingRows
            These rows, with a kernel that means nothing.
        """
        X = checked_rows(X, start)
        class_index = np.searchsorted(self.classes, np.asarray(y))
        own = self.factors[class_index]
        if weights is not None:
            own = own * np.asarray(weights, dtype=np.float64)
        used = np.flatnonzero(own)
        if used.size < own.size:
            X, class_index, own = X[used], class_index[used], own[used]
        return used + start, TrainingRows(Linear(), X, class_index, own)


def check_columns(frame: Any) -> None:
    """Raise ValueError if a dataframe has columns that are not numbers.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        The rows. Columns of objects may hold numbers: what they hold is seen where they are.
    """
    others = {
        str(name): str(dtype)
        for name, dtype in frame._meta.dtypes.items()
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_object_dtype(dtype))
    }
    if others:
        named = ", ".join(f"{name!r} ({dtype})" for name, dtype in others.items())
        raise ValueError(
            f"columns of X do not hold numbers: {named}. Leave them out, or encode them first, as "
            "dask.dataframe.get_dummies does for columns that are .categorize()d"
        )


def checked_rows(X: Any, start: int) -> Array:
    """Return the rows of a block as numbers.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows.
    start : int
        The number of the first row, for errors.

    Returns
    -------
    ndarray of shape (n, d)
    """
    if sparse.issparse(X):
        raise TypeError(
            "the blocks of X are sparse matrices, which the cluster does not divide: make them dense, as by "
            "X.map_blocks(lambda block: block.toarray()), or fit a SciPy matrix without Dask"
        )
    if np.iscomplexobj(X):
        raise ValueError(
            "X holds complex numbers, which kernels do not compare: give real and imaginary parts as columns"
        )
    try:
        found = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X must hold numbers; among those from row {start} on: {error}. Encode other columns first"
        ) from error
    bad = ~np.isfinite(found).all(axis=1)
    if bad.any():
        raise ValueError(
            f"row {start + int(bad.argmax())} of X holds NaN, infinity or a missing value: fill in or leave out such "
            "rows"
        )
    return found


def priorities(numbers: Array, seed: int) -> Array:
    """Return a uniform random number in [0, 1) for every row number: the same one in whatever block the row is.

    Parameters
    ----------
    numbers : ndarray of int, shape (n,)
        Row numbers.
    seed : int
        Chooses the random numbers.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> bool(priorities(np.arange(3), 0)[1] == priorities(np.array([1]), 0)[0])
    True
    """
    # A counter-based generator: the n-th output of SplitMix64 (Steele, Lea and Flood 2014), twice, as neighbouring
    # seeds must not give the same sequence shifted.
    z = numbers.astype(np.uint64)
    for key in (seed, seed >> 32):
        z = (z + np.uint64((key + 1) * 0xD1342543DE82EF95 % 2**64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def reduced(parts: Sequence[Delayed], combine: Callable[[Any, Any], Any]) -> Delayed:
    """Return what a function of two makes of all parts, by a tree in their order, whoever computes them.

    Parameters
    ----------
    parts : sequence of Delayed
        The parts, at least one.
    combine : callable (part, part) -> part
        An associative function, which must not change its arguments.

    Returns
    -------
    Delayed
    """
    task = delayed(combine, pure=False, traverse=False)
    parts = list(parts)
    while len(parts) > 1:
        pairs = [task(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def constant(value: Any) -> Delayed:
    """Return a value that many tasks share, as a task of its own.

    Parameters
    ----------
    value : object
        The value.

    Returns
    -------
    Delayed
    """
    return delayed(value, pure=False, traverse=False)


def computed(*tasks: Any) -> tuple[Any, ...]:
    """Return what the tasks give, computed by the current client, or by threads where there is none.

    Parameters
    ----------
    *tasks : Delayed
        The tasks.

    Returns
    -------
    tuple
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": _GRAPH_BYTES}):
        return dask.compute(*tasks)


def computed_in_turn(tasks: Sequence[Delayed], n_bytes: float) -> Iterator[Any]:
    """Yield what the tasks give, in their order, but some of them at a time: on its way data are there several times.

    Parameters
    ----------
    tasks : sequence of Delayed
        The tasks.
    n_bytes : float
        What all of them give.

    Yields
    ------
    object
        What a task gives.
    """
    some = max(_TASKS_OF_THREAD * count_workers() * worker_threads(), int(_SENT_BYTES * len(tasks) / n_bytes))
    for start in range(0, len(tasks), some):
        yield from computed(*tasks[start : start + some])


def persisted(tasks: Sequence[Delayed]) -> list[Delayed]:
    """Return tasks whose results stay where they are computed, which begins now.

    Parameters
    ----------
    tasks : sequence of Delayed
        The tasks.

    Returns
    -------
    list of Delayed
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": _GRAPH_BYTES}):
        return list(dask.persist(*tasks))


def _known(given: Any, name: str) -> Any:
    """Return a collection as an array with chunk sizes that are known."""
    if hasattr(given, "to_dask_array"):
        if name == "X":
            check_columns(given)
        return given.to_dask_array(lengths=True)
    if not isinstance(given, da.Array):
        raise TypeError(
            f"{name} must be a Dask array or dataframe where X is one, not {type(given).__name__}: "
            f"dask.array.from_array({name}, chunks=...) makes one"
        )
    if any(np.isnan(size) for sizes in given.chunks for size in sizes):
        # Sizes are computed in place: those of the caller's array stay as they are.
        return da.Array(given.dask, given.name, given.chunks, meta=given).compute_chunk_sizes()
    return given


def _warn_of_large_blocks(rows: Any) -> None:
    """Warn of blocks that are large beside a worker's memory.

    They are not divided here: Dask makes all blocks before it divides them, and has them all in memory then.
    """
    largest = int(_BLOCK_SHARE * worker_memory() / (8.0 * rows.shape[1]))
    if max(rows.chunks[0]) > 1.5 * largest:
        warn(
            f"X has blocks of {max(rows.chunks[0])} rows, which may take more memory than a worker has: make smaller "
            f"ones where the rows are read, of some {max(largest, 1)} rows"
        )


def _beside(given: Any, rows: Any, name: str) -> Any:
    """Return one value for every row, in the blocks of the rows."""
    array = _known(given, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        more = ": soft labels cannot be fitted on Dask collections, give labels" if name == "y" else ""
        raise ValueError(f"{name} must have one value for every row, not the shape {array.shape}{more}")
    if array.shape[0] != rows.shape[0]:
        raise ValueError(f"X has {rows.shape[0]} rows, and {name} has {array.shape[0]}")
    return array if array.chunks[0] == rows.chunks[0] else array.rechunk((rows.chunks[0],))
