"""Detection of copied rows, as opposed to independent observations that happen to be equal.

In a table of nominal columns equal rows are independent observations, and to hold all of them out would leave a cell
without data. In a table with copied rows they are one observation, and leave-one-out leaks if the copy stays in. Two
things distinguish them:

- *Labels.* Independent observations at one point disagree as often as the classes overlap there; copies never do.
- *Coincidences.* Where the columns make equal rows likely, rows that differ in a single nominal value (one column, or
  two indicator columns) are common as well; next to a copy there is nothing.

Near-copies, the same row with a little noise, are found by their distances: to a near-copy it is many times less than
to the next row, where the distances of independent rows to their first and second neighbours are much alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from polymargin._warnings import warn
from polymargin.rows import content_rank

Array = NDArray[Any]

#: A near-copy is closer by this factor than the row after it. Of rows spread over D dimensions the ratio of two
#: successive neighbours' distances exceeds t with probability t^-D: 0.1 % at t = 30 in two dimensions, and at a
#: thousand, the threshold used there, in one.
_GAP, _GAP_IN_A_LINE = 30.0, 1000.0
#: The number of neighbours considered: a row may have as many copies, less one.
_NEIGHBOURS = 10
#: The number of rows, evenly spaced, by which it is decided whether there are near-copies at all.
_QUERIES = 500
#: Equal rows are copies if their labels disagree less often than this multiple of the rate expected by chance.
_DISAGREEMENT = 0.05
#: The least share and the least number of copies for which there is a warning and the fit is changed.
_SHARE, _LEAST_COPIES = 0.02, 5
#: The largest number of equal rows whose neighbours are counted.
_SAMPLED = 300


def find_copies(X: Any, class_index: Array) -> Array | None:
    """Return the observation that every row is a copy of, shape (n,), with a warning; None if there are no copies.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        The rows.
    class_index : ndarray of int, shape (n,)
        Their classes.

    Returns
    -------
    groups : ndarray of int, shape (n,), or None
    """
    n = class_index.size
    content = content_rank(X)
    n_different = int(content.max()) + 1
    if n_different == 1:
        return None
    many = n - n_different >= _SHARE * n
    exact = many and _agree(content, class_index) and not _coincidences_are_likely(X, content, class_index)
    groups = content
    near = None
    if (exact or not many) and not sparse.issparse(X):
        first = np.unique(content, return_index=True)[1]
        near = _near_copies(X[first], class_index[first])
        groups = content if near is None else near[content]
    copies = n - int(groups.max()) - 1
    if copies < max(_SHARE * n, _LEAST_COPIES) or not (exact or near is not None):
        return None
    kind = "are copies" if near is None else "are copies, or nearly copies,"
    warn(
        f"{copies} of {n} rows {kind} of other rows with the same label, and the columns do not make that likely by "
        "chance. They are treated as one observation each, so that leave-one-out does not leave a copy in. If they are "
        "independent observations, pass groups=np.arange(n_samples) to fit; if you know which rows belong together "
        "(copies, patients, sessions), pass that as groups.",
        UserWarning,
    )
    return groups


def _agree(groups: Array, class_index: Array) -> bool:
    """Return whether the labels within groups agree far more often than by chance."""
    n_classes = int(class_index.max()) + 1
    sizes = np.bincount(groups)
    counts = np.zeros((sizes.size, n_classes))
    np.add.at(counts, (groups, class_index), 1.0)
    pairs = float((sizes * (sizes - 1.0)).sum())
    agreeing = float((counts * (counts - 1.0)).sum())
    shares = np.bincount(class_index) / class_index.size
    chance = 1.0 - float(np.square(shares).sum())
    return pairs > 0.0 and pairs - agreeing <= _DISAGREEMENT * chance * pairs


def _coincidences_are_likely(X: Any, content: Array, class_index: Array) -> bool:
    """Return whether rows that differ in a single value are as common as equal rows.

    With one or two columns all rows are neighbours in this sense. There the number of equal pairs is compared with the
    one expected of rows spread uniformly over the grid of values, and, with two columns, with the one expected if the
    columns were independent within every class.
    """
    _, first, sizes = np.unique(content, return_index=True, return_counts=True)
    rows = X[first].toarray() if sparse.issparse(X) else X[first]
    equal_pairs = float((sizes * (sizes - 1.0)).sum())
    if rows.shape[1] <= 2:
        # The number of cells of a grid with the least spacing of the values; very large for continuous values.
        n_cells = 1.0
        for column in rows.T:
            values = np.unique(column)
            if values.size > 1:
                n_cells *= 1.0 + float(values[-1] - values[0]) / float(np.diff(values).min())
        expected = float(content.size) ** 2 / n_cells
        if rows.shape[1] == 2:
            columns = np.stack([np.unique(column, return_inverse=True)[1] for column in rows.T])[:, content]
            expected = max(expected, _independent_pairs(columns, class_index))
        return expected >= equal_pairs / 3.0
    repeated = np.flatnonzero(sizes > 1)
    chosen = repeated[np.linspace(0, repeated.size - 1, min(repeated.size, _SAMPLED)).round().astype(int)]
    chosen = np.unique(chosen)
    # Another value of a nominal column changes two of its indicator columns.
    indicator = np.array([np.unique(column).size == 2 for column in rows.T])
    own = others = 0.0
    for place in chosen:
        differ = rows != rows[place]
        differing = differ.sum(axis=1)
        beside = (differing == 1) | ((differing == 2) & ~differ[:, ~indicator].any(axis=1))
        own += float(sizes[place] * (sizes[place] - 1.0))
        others += float(sizes[place] * sizes[beside].sum())
    return others >= own


def _independent_pairs(columns: Array, class_index: Array) -> float:
    """Return the expected number of equal ordered pairs if the columns (d, n) were independent in every class."""
    expected = 0.0
    for k in np.unique(class_index):
        values = columns[:, class_index == k]
        n = values.shape[1]
        shares = [float((c * (c - 1.0)).sum()) / max(n * (n - 1.0), 1.0) for c in map(np.bincount, values)]
        expected += n * (n - 1.0) * float(np.prod(shares))
    return expected


def _near_copies(X: Array, class_index: Array) -> Array | None:
    """Return the group of every row, shape (n,); None if there are no near-copies."""
    n = class_index.size
    if n < 3 * _NEIGHBOURS:
        return None
    from sklearn.neighbors import NearestNeighbors  # slow to import

    X = X / (float(np.abs(X).max()) or 1.0)  # the squares of large values would overflow
    neighbours = NearestNeighbors(n_neighbors=_NEIGHBOURS + 1).fit(X)
    some = np.unique(np.linspace(0, n - 1, min(n, _QUERIES)).round().astype(int))
    gap = _GAP if (np.ptp(X, axis=0) > 0.0).sum() > 1 else _GAP_IN_A_LINE
    if (_before_gap(neighbours.kneighbors(X[some])[0], gap) > 0).mean() < _SHARE:
        return None
    distances, indices = neighbours.kneighbors(X)
    before = _before_gap(distances, gap)
    rows, places = np.nonzero(np.arange(1, _NEIGHBOURS + 1) <= before[:, np.newaxis])
    # The graph routines of SciPy 1.11 take 32-bit indices alone.
    ends = rows.astype(np.int32), indices[rows, places + 1].astype(np.int32)
    links = sparse.coo_array((np.ones(rows.size), ends), shape=(n, n))
    groups = connected_components(links, directed=False)[1]
    return groups if _agree(groups, class_index) else None


def _before_gap(distances: Array, gap: float) -> Array:
    """Return the number of neighbours of every row before a gap in its distances, shape (n,); zero without a gap.

    The first distance is that of the row to itself.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported elsewhere
        ratios = distances[:, 2:] / np.maximum(distances[:, 1:-1], 1e-300)
    place = ratios.argmax(axis=1)
    gaps = np.take_along_axis(ratios, place[:, np.newaxis], axis=1)[:, 0] > gap
    return np.where(gaps, place + 1, 0)
