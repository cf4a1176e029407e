"""The classes of rows on a cluster: labels, counts and weights, and the first rows of a sample, in one reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from polymargin.cluster.blocks import Blocks, computed, priorities, reduced

Array = NDArray[Any]


@dataclass(frozen=True)
class LabelSummary:
    """What is known of the labels of some rows.

    Attributes
    ----------
    labels : ndarray of shape (K,)
        The labels, ascending.
    given : ndarray of int, shape (K,)
        The number of rows with every label.
    counts : ndarray of int, shape (K,)
        The number of those that have a positive weight.
    weights : ndarray of shape (K,)
        Their total weight.
    first : list of ndarray of int
        The numbers of the rows of every label that are sampled first, in this order.
    """

    labels: Array
    given: Array
    counts: Array
    weights: Array
    first: list[Array]


@dataclass(frozen=True)
class _Summary:
    """Makes summaries of blocks, and one of two; the seed orders the rows, of which so many of every class are kept."""

    seed: int
    least_rows: int

    def of_block(self, X: None, y: Any, weights: Any, start: int) -> LabelSummary:
        """Return the summary of a block."""
        y = np.asarray(y)
        missing = pd.isna(y)
        if missing.any():
            raise ValueError(
                f"the label of row {start + int(missing.argmax())} is missing: leave such rows out"
            )
        try:
            labels, index, given = np.unique(y, return_inverse=True, return_counts=True)
        except TypeError as error:
            raise ValueError(
                f"y mixes labels of different types, which cannot be sorted ({error}): make them all of one type"
            ) from error
        own = np.ones(y.size) if weights is None else np.asarray(weights, dtype=np.float64)
        if not (np.isfinite(own) & (own >= 0.0)).all():
            raise ValueError("sample_weight must be finite and not negative")
        counts = np.bincount(index[own > 0.0], minlength=labels.size)
        first = [
            self._first(start + np.flatnonzero((index == number) & (own > 0.0)))
            for number in range(labels.size)
        ]
        return LabelSummary(labels, given, counts, np.bincount(index, own, minlength=labels.size), first)

    def of_both(self, one: LabelSummary, other: LabelSummary) -> LabelSummary:
        """Return the summary of the rows of two."""
        labels, place = np.unique(np.concatenate([one.labels, other.labels]), return_inverse=True)
        firsts: list[Array] = []
        for number in range(labels.size):
            known = [
                ([*one.first, *other.first])[each].astype(np.intp) for each in np.flatnonzero(place == number)
            ]
            firsts.append(self._first(np.concatenate(known)))
        given, counts, weights = (
            np.bincount(place, np.concatenate([mine, theirs]), minlength=labels.size)
            for mine, theirs in (
                (one.given, other.given),
                (one.counts, other.counts),
                (one.weights, other.weights),
            )
        )
        return LabelSummary(labels, given.astype(np.intp), counts.astype(np.intp), weights, firsts)

    def _first(self, numbers: Array) -> Array:
        """Return the rows of the lowest priorities, which are sampled first."""
        order = np.lexsort([numbers, priorities(numbers, self.seed)])
        return numbers[order[: self.least_rows]]


def summarise_labels(blocks: Blocks, seed: int, least_rows: int) -> LabelSummary:
    """Return the classes of all rows.

    Parameters
    ----------
    blocks : Blocks
        The rows.
    seed : int
        Orders the rows.
    least_rows : int
        How many rows of every class are named.

    Returns
    -------
    LabelSummary
    """
    summary = _Summary(seed, least_rows)
    return computed(reduced(blocks.map(summary.of_block, rows=False), summary.of_both))[0]
