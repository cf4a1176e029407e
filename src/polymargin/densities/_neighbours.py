"""A training set as its different rows with the weight of every class in each, and who is near whom.

Copies of a row are one row of more weight, so nothing here depends on the order of the rows or on whether a row is
repeated or weighted. The search is scikit-learn's, by trees or by BLAS as it sees fit; distances that decide
something are computed again without cancellation, because equal distances must be seen to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight, check_array

from polymargin import _memory
from polymargin.kernels._base import squared_norms
from polymargin.rows import content_rank

Array = NDArray[Any]

#: Distances that differ by less, relative to their size, are equal.
TIE = 1e-9
#: Distances that differ by less, relative to the root mean square distance of the rows from their centre, are equal.
_NOISE = 1e-7
#: What rounding may do to a squared distance that comes from inner products, relative to the squared norms.
_ROUNDING = 1e-11


@dataclass(frozen=True)
class Sample:
    """The different rows of a training set.

    Attributes
    ----------
    rows : array or sparse matrix of shape (m, d)
        The rows, dense ones centred.
    centre : ndarray of shape (d,) or None
        What was subtracted from them.
    counts : ndarray of shape (m, K)
        The weight of every class in every row.
    place : ndarray of int, shape (n,)
        Which of the m rows each training row is a copy of.
    """

    rows: Any
    centre: Array | None
    counts: Array
    place: Array

    @classmethod
    def of(cls, X: Any, class_index: Array, weights: Array, n_classes: int) -> Sample:
        """Make the sample from rows of positive weight."""
        _, first, place = np.unique(content_rank(X), return_index=True, return_inverse=True)
        cell = place * n_classes + class_index
        counts = np.bincount(cell, weights, minlength=first.size * n_classes).reshape(first.size, n_classes)
        if sparse.issparse(X):
            return cls(X.tocsr()[first], None, counts, place)
        rows = X[first]
        centre = rows.mean(axis=0)
        return cls(rows - centre, centre, counts, place)

    @property
    def n_rows(self) -> int:
        """The number of different rows, m."""
        return int(self.rows.shape[0])

    @property
    def totals(self) -> Array:
        """The weight of every row, shape (m,)."""
        return self.counts.sum(axis=1)

    @property
    def resolution(self) -> float:
        """The distance below which two rows differ by noise only; nominal columns with noise keep their ties."""
        totals = self.totals
        return _NOISE * float(np.sqrt(totals @ squared_norms(self.rows) / totals.sum()))

    @property
    def frequencies(self) -> Array:
        """The share of every class, shape (K,)."""
        return self.counts.sum(axis=0) / self.counts.sum()

    def centred(self, X: Any) -> Any:
        """Return new rows as the sample's own rows are held."""
        if self.centre is None:
            return X.tocsr() if sparse.issparse(X) else sparse.csr_matrix(X)
        return (X.toarray() if sparse.issparse(X) else X) - self.centre

    def search(self, n_neighbors: int = 5) -> Any:
        """Return scikit-learn's search over the rows."""
        from sklearn.neighbors import NearestNeighbors  # here, because it is slow to import

        return NearestNeighbors(n_neighbors=min(n_neighbors, self.n_rows)).fit(self.rows)


def distances(A: Any, B: Any) -> Array:
    """Return the distance of every row of A to the row of B beside it, shape (n,), without cancellation."""
    return np.sqrt(squared_norms(A - B))


def blocks(n: int, bytes_per_row: float) -> Iterator[slice]:
    """Yield slices of n rows that keep temporaries small."""
    size = _memory.block_rows(bytes_per_row)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def nearest(sample: Sample, search: Any, queries: Any, q: int) -> tuple[Array, Array]:
    """Return the distances, ascending, and the numbers of the q nearest rows, each of shape (b, q)."""
    if queries.shape[0] == 0:
        return np.empty((0, q)), np.empty((0, q), dtype=np.intp)
    index = search.kneighbors(queries, n_neighbors=q, return_distance=False)
    exact = np.empty(index.shape)
    for part in blocks(index.shape[0], 24.0 * q * queries.shape[1]):
        copies = np.repeat(np.arange(part.start, part.stop), q)
        exact[part] = distances(queries[copies], sample.rows[index[part].ravel()]).reshape(-1, q)
    order = np.argsort(exact, axis=1, kind="stable")
    return np.take_along_axis(exact, order, axis=1), np.take_along_axis(index, order, axis=1)


def nearest_counts(sample: Sample, queries: Any, k: float, own: tuple[Array, Array] | None = None) -> Array:
    """Return how the k rows nearest to every query fall to the classes, shape (b, K).

    Rows at the same distance, up to noise, where not all of them find a place among the k, share the places that are
    left in proportion to their weights.

    Parameters
    ----------
    sample : Sample
        The training set, of weight k or more.
    queries : array or sparse matrix of shape (b, d)
        Rows, centred.
    k : float
        The weight to be found.
    own : pair of ndarray of int, each of shape (b,), or None
        For queries that are training rows their number in the sample and their class: they come first.
    """
    counts = np.zeros((queries.shape[0], sample.counts.shape[1]))
    search = sample.search(int(k) + 2)
    totals, resolution = sample.totals, sample.resolution
    rest, q = np.arange(queries.shape[0]), min(int(k) + 2, sample.n_rows)
    while rest.size:
        unfinished = [rest[:0]]
        for part in blocks(rest.size, 48.0 * q):
            rows = rest[part]
            itself = None if own is None else (own[0][rows], own[1][rows])
            found, complete = _share(sample, search, totals, resolution, queries[rows], k, q, itself)
            counts[rows[complete]] = found[complete]
            unfinished.append(rows[~complete])
        rest, q = np.concatenate(unfinished), min(2 * q, sample.n_rows)
    return counts


def _share(
    sample: Sample,
    search: Any,
    totals: Array,
    resolution: float,
    queries: Any,
    k: float,
    q: int,
    own: tuple[Array, Array] | None,
) -> tuple[Array, Array]:
    """Return the counts from the q nearest different rows, and for which queries these were enough."""
    distance, index = nearest(sample, search, queries, q)
    weight = totals[index]
    need = np.full(index.shape[0], float(k))
    if own is not None:
        place, class_index = own
        itself = np.minimum(1.0, sample.counts[place, class_index])
        is_own = index == place[:, np.newaxis]
        weight = weight - is_own * itself[:, np.newaxis]
        need = need - itself
    need = np.maximum(need, 0.0)
    reached = np.cumsum(weight, axis=1) >= need[:, np.newaxis] - 1e-12 * k
    enough = reached[:, -1]
    last = np.take_along_axis(
        distance, np.where(enough, reached.argmax(axis=1), q - 1)[:, np.newaxis], axis=1
    )
    slack = TIE * last + resolution
    inside = distance < last - slack
    tied = ~inside & (distance <= last + slack)
    left = need - (weight * inside).sum(axis=1)
    among = (weight * tied).sum(axis=1)
    share = np.divide(left, among, out=np.zeros_like(left), where=among > 0.0)
    portion = inside + tied * np.clip(share, 0.0, 1.0)[:, np.newaxis]
    counts = (
        _matrix(portion.ravel(), index.ravel(), np.full(index.shape[0], q), sample.n_rows) @ sample.counts
    )
    if own is not None:
        there = np.arange(index.shape[0])
        counts[there, class_index] += itself * (1.0 - (portion * is_own).sum(axis=1))
    # All rows are enough, even if their weights, added up in another order, fall short of k by their rounding.
    complete = (enough & (distance[:, -1] > (last + slack)[:, 0])) | (q == sample.n_rows)
    return counts, complete


def window_counts(sample: Sample, queries: Any, radius: float) -> Array:
    """Return the weight of every class within the radius of every query, which is centred, shape (b, K)."""
    counts = np.zeros((queries.shape[0], sample.counts.shape[1]))
    search = sample.search()
    reach = radius * (1.0 + TIE)
    for part in blocks(queries.shape[0], 48.0 * sample.n_rows):
        some = queries[part]
        slack = _ROUNDING * (_largest_square(some) + _largest_square(sample.rows))
        found, index = search.radius_neighbors(some, radius=np.sqrt(reach**2 + slack))
        lengths = np.array([near.size for near in index])
        distance, place = np.concatenate(found), np.concatenate(index).astype(np.intp)
        query = np.repeat(np.arange(lengths.size), lengths)
        doubtful = np.flatnonzero(np.abs(distance**2 - reach**2) <= slack + 4.0 * TIE * reach**2)
        for block in blocks(doubtful.size, 24.0 * some.shape[1]):
            again = doubtful[block]
            distance[again] = distances(some[query[again]], sample.rows[place[again]])
        counts[part] = _matrix(distance <= reach, place, lengths, sample.n_rows) @ sample.counts
    return counts


def _matrix(values: Array, columns: Array, lengths: Array, width: int) -> Any:
    """Return the sparse matrix whose rows hold so many of the values each."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return sparse.csr_matrix((values.astype(np.float64), columns, starts), shape=(lengths.size, width))


def _largest_square(rows: Any) -> float:
    """Return the largest squared norm of the rows."""
    return float(squared_norms(rows).max(initial=0.0))


def nearest_distances(sample: Sample) -> Array:
    """Return the distance of every different row to the nearest other one, shape (m,)."""
    if sample.n_rows < 2:
        return np.full(sample.n_rows, np.inf)
    distance, index = nearest(sample, sample.search(2), sample.rows, 2)
    return np.where(index == np.arange(sample.n_rows)[:, np.newaxis], np.inf, distance).min(axis=1)


def mean_of_nearest(totals: Array, gaps: Array) -> float:
    """Return r0 from the weights of the different rows and their distances to each other."""
    alone = totals <= 1.0
    return float(totals[alone] @ gaps[alone] / totals.sum()) if alone.any() else 0.0


def mean_nearest_distance(X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return r0, the mean distance of the rows to their nearest neighbours (Gönen et al. 2008, §IV-A).

    It is the unit in which the paper measures windows and kernel widths: a width of s in its kernel
    exp(−‖x − z‖²/s²) is ``gamma=1/s**2``.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows, at least two. A copy of a row is its neighbour at distance zero.
    sample_weight : array-like of shape (n_samples,), default=None
        Row weights: weight two counts like the row twice. (A weight between one and two has a copy too.)

    Returns
    -------
    float

    Examples
    --------
    >>> from polymargin.densities import mean_nearest_distance
    >>> mean_nearest_distance([[0.0], [1.0], [3.0]])
    1.3333333333333333
    """
    rows = check_array(X, accept_sparse="csr", dtype=np.float64)
    weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weights)
    if weights.sum() <= 1.0:
        raise ValueError(
            "the nearest neighbour of a row is another row: give at least two, of positive weight"
        )
    sample = Sample.of(rows[kept], np.zeros(kept.size, dtype=np.intp), weights[kept], 1)
    return mean_of_nearest(sample.totals, nearest_distances(sample))
