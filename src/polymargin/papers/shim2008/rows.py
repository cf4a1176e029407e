"""The rows of a run: a training set, scaled, and test sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.datasets import Dataset, load_for
from polymargin.reproduction import ReproductionError, derive_seed, random_split, standardise

__all__ = ["METHODS", "TESTED_ON", "Rows", "bandwidths", "draw_rows", "draw_test_sets"]

METHODS = ("LSSVM", "KLogistic")
#: The 100 test sets, drawn from all rows; and the rows that were not trained on.
TESTED_ON = ("all rows", "held out")

Array = NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """All rows of a dataset, scaled by its training rows.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    train, held_out : ndarray of int
        The training rows and the others.
    seed : int
        What the training rows were drawn with.
    """

    X: Array
    y: Array
    train: Array
    held_out: Array
    seed: int


def draw_rows(protocol: Mapping[str, Any], dataset: str, run: int) -> Rows:
    """Return the rows of a run."""
    data, plan = _load_once(dataset), protocol["datasets"][dataset]
    if len(data.y) != plan["n_train"] + plan["n_test"]:
        expected = plan["n_train"] + plan["n_test"]
        raise ReproductionError(f"{dataset} has {len(data.y)} rows instead of {expected}")
    seed = derive_seed(protocol["seed"], dataset, run)
    train, held_out = random_split(data.y, plan["n_train"], plan["n_test"], seed)
    return Rows(_scaled(data.X, train, protocol["scaling"][dataset]), data.y, train, held_out, seed)


def draw_test_sets(protocol: Mapping[str, Any], dataset: str, seed: int) -> Array:
    """Return the rows of the test sets of a run, shape (test sets, n_test): each drawn from all rows, none twice."""
    plan = protocol["datasets"][dataset]
    generator = np.random.default_rng([seed, 1])
    n = plan["n_train"] + plan["n_test"]
    return np.stack([generator.permutation(n)[: plan["n_test"]] for _ in range(protocol["test_sets"])])


def bandwidths(protocol: Mapping[str, Any]) -> Array:
    """Return the values of σ² that are tried."""
    grid = protocol["sigma2"]
    steps = round((grid["last"] - grid["first"]) / grid["step"])
    return grid["first"] + grid["step"] * np.arange(steps + 1)


def _scaled(X: Array, train: Array, scaling: str) -> Array:
    match scaling:
        case "none":
            return np.asarray(X, dtype=np.float64)
        case "range":
            low, high = X[train].min(axis=0), X[train].max(axis=0)
            return np.asarray((X - low) / np.where(high > low, high - low, 1.0))
        case "standardise":
            return standardise(X[train], X)[1]
    raise ReproductionError(f"unknown scaling {scaling!r}")


@lru_cache(maxsize=4)
def _load_once(dataset: str) -> Dataset:
    """Load a dataset as the paper has it, once per process."""
    return load_for("shim2008", dataset)
