"""Predictions of Dask collections: lazy arrays, block by block.

A model in memory goes to the workers. Of one whose leaves are on the cluster, the rows of a block go to the workers
that hold the leaves they belong to; what these say comes together with the rest of the model, which is small.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from polymargin.cluster.blocks import check_columns, checked_rows, constant
from polymargin.cluster.remote_leaves import (
    Holder,
    KnownMargins,
    RemoteLeafBank,
    added_margins,
    rows_at_once,
)

Array = NDArray[Any]


def predict_lazily(model: Any, X: Any, method: str) -> da.Array:
    """Return a prediction of a Dask array or dataframe.

    Parameters
    ----------
    model : estimator
        The fitted model.
    X : dask.array.Array or dask.dataframe.DataFrame
        The rows.
    method : str
        The method that predicts: "predict", "predict_log_proba" and so on.

    Returns
    -------
    dask.array.Array
        A lazy array with the chunks of the rows; those of a dataframe have unknown sizes. Of a model whose leaves are
        on the cluster, some neighbouring chunks are computed together, if their sizes are known: to load the leaves
        takes as long for few rows as for many.
    """
    check_is_fitted(model)
    names = None
    if hasattr(X, "to_dask_array"):
        validate_data(model, X._meta, reset=False, skip_check_array=True)
        check_columns(X)
        names = [str(name) for name in X.columns] if hasattr(model, "feature_names_in_") else None
        rows = X.to_dask_array()
    else:
        if not isinstance(X, da.Array) or X.ndim != 2:
            raise ValueError("X must be a Dask dataframe or a Dask array of two dimensions, rows and columns")
        rows = X.rechunk({1: -1})
        validate_data(model, np.empty((0, X.shape[1])), reset=False, skip_check_array=True)
    banks = [holder.bank_.leaves for holder in _holders(model)]
    nothing = KnownMargins(np.empty((0, 0)))
    light = constant(_light(_with_leaves(model, RemoteLeafBank, [nothing] * len(banks))))
    held = [(constant(router), found) for router, found in (bank.held() for bank in banks)]
    result = _example(model, method)
    chunks = [
        (block, size)
        for block, size in zip(rows.to_delayed().ravel(), rows.chunks[0], strict=True)
        if size != 0
    ]
    blocks = []
    task = delayed(_predicted, pure=False, traverse=False)
    for batch in _batches(chunks, rows_at_once(rows.shape[1])):
        margins = [_margins_of_blocks([block for block, _ in batch], *leaves) for leaves in held]
        for number, (block, size) in enumerate(batch):
            predicted = task(light, block, method, names, [of_bank[number] for of_bank in margins])
            blocks.append(da.from_delayed(predicted, (size, *result.shape[1:]), meta=result))
    return da.concatenate(blocks, allow_unknown_chunksizes=True) if blocks else da.from_array(result)


def gather(model: Any) -> None:
    """Bring the leaves of a model into memory, in place.

    Parameters
    ----------
    model : estimator
        The fitted model.
    """
    for holder in _holders(model):
        holder.bank_ = replace(holder.bank_, leaves=holder.bank_.leaves.gathered())


def _holders(model: Any, kind: type = RemoteLeafBank) -> list[Any]:
    """Return the model, or those of its members, whose leaves are of a kind: those on the cluster."""
    return [
        each
        for each in [model, *getattr(model, "members_", [])]
        if isinstance(getattr(getattr(each, "bank_", None), "leaves", None), kind)
    ]


def _with_leaves(model: Any, kind: type, leaves: list[Any]) -> Any:
    """Return the model with other leaves in place of those of a kind; the model itself is not changed."""
    new = {}
    for holder, own in zip(_holders(model, kind), leaves, strict=True):
        new[id(holder)] = copy(holder)
        new[id(holder)].bank_ = replace(holder.bank_, leaves=own)
    changed = new.get(id(model), model)
    if hasattr(model, "members_"):
        changed = copy(changed)
        changed.members_ = [new.get(id(member), member) for member in model.members_]
    return changed


def _light(model: Any) -> Any:
    """Return the copy of a model whose leaves are on the cluster without the samples that prediction does not need."""
    holders = _holders(model, KnownMargins)
    for holder in holders:
        bank, pilot = holder.bank_, holder.bank_.pilot
        no_rows = replace(pilot.data, X=pilot.data.X[:0], dealt=None)
        none = np.empty((0, 0))
        pilot = replace(pilot, data=no_rows, dual_coef=none, loo_margins=none, expansion=None)
        holder.bank_ = replace(bank, data=no_rows, pilot=pilot, loo_margins=none, honest_margins=none)
        holder._cross_log_proba = None
    if holders and hasattr(model, "members_"):
        model.loo_log_proba_ = model._data = None
    return model


def _example(model: Any, method: str) -> Array:
    """Return what a method returns for no rows."""
    K = model.classes_.size
    if method == "predict":
        return model.classes_[:0]
    if method == "decision_function" and K == 2:
        return np.empty(0)
    if method == "margins":
        return np.empty((0, model.codebook_.n_columns * getattr(model.bank_, "n_parts", 1)))
    return np.empty((0, K))


def _batches(chunks: list[tuple[Delayed, float]], largest: int) -> list[list[tuple[Delayed, float]]]:
    """Return blocks with their sizes in batches of at most so many rows; one by one where sizes are not known."""
    found: list[list[tuple[Delayed, float]]] = []
    total = np.inf
    for block, size in chunks:
        total += size
        if not total <= largest:
            found.append([])
            total = size
        found[-1].append((block, size))
    return found


def _margins_of_blocks(blocks: list[Delayed], router: Delayed, held: list[Holder]) -> list[Delayed]:
    """Return the margins of some blocks by leaves on the cluster, which are loaded once for all of them."""
    task = delayed(_routed, pure=False, traverse=False)
    routed = [task(router, block) for block in blocks]
    parts = [
        part
        for number, holder in enumerate(held)
        for part in holder.margins([each[number] for each in routed])
    ]
    added = delayed(added_margins, pure=False)(parts)
    return [added[number] for number in range(len(blocks))]


def _routed(router: Any, block: Any) -> Any:
    """Return the rows of a block for every holder of leaves."""
    return router(checked_rows(block, 0))


def _predicted(model: Any, block: Any, method: str, names: list[str] | None, margins: list[Array]) -> Array:
    """Return the prediction of a block by a model, of whose leaves the margins are known."""
    if margins:
        model = _with_leaves(model, KnownMargins, [KnownMargins(known) for known in margins])
    X = checked_rows(block, 0)
    if len(X) == 0:  # a partition of a dataframe may be empty
        return _example(model, method)
    return getattr(model, method)(X if names is None else pd.DataFrame(X, columns=names))
