"""A balanced tree of cuts whose regions overlap, and the soft routing of rows through it.

A cut compares the projection of a row on a direction with an interval: below it a row belongs to the left side, above
it to the right side, and inside to both, with weights that change smoothly from one to the other. So what is computed
of the regions is a continuous function of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Of more columns than this the tree sees random projections, so many: a cut is found by solving a system of this size.
_SKETCH = 256
#: The ridge of the regression that finds the direction of a cut, as a share of the mean variance of the columns.
_RIDGE = 1e-3
#: A cut must leave at least this share of the rows on either side.
_LEAST_SIDE = 0.1
#: Projections that differ by less than this part of their range are equal up to rounding.
_SAME = 1e-7


@dataclass(frozen=True)
class Tree:
    """A tree of cuts.

    Attributes
    ----------
    directions : ndarray of shape (c, p)
        The direction of every cut.
    low, high : ndarray of shape (c,)
        The interval of the projection in which a row belongs to both sides.
    children : ndarray of int, shape (c, 2)
        The left and the right side of every cut: the number of a cut, or −1 − the number of a leaf.
    sketch : ndarray of shape (d, p) or None
        The projection of the columns on random directions that comes first where there are many columns.

    Examples
    --------
    >>> X = np.arange(8.0)[:, np.newaxis]
    >>> tree = Tree.grow(X, X, leaf_rows=5, overlap=0.125)
    >>> [(rows.tolist(), weights.round(2).tolist()) for rows, weights in tree.route(X)]
    [([0, 1, 2, 3, 4], [1.0, 1.0, 1.0, 0.84, 0.16]), ([3, 4, 5, 6, 7], [0.16, 0.84, 1.0, 1.0, 1.0])]
    """

    directions: Array
    low: Array
    high: Array
    children: Array
    sketch: Array | None = None

    @classmethod
    def grow(
        cls,
        X: Any,
        targets: Array,
        *,
        leaf_rows: float,
        overlap: float,
        n_rows: int | None = None,
        seed: int = 0,
    ) -> Tree:
        """Cut rows until no region has too many.

        The direction of a cut is the one along which a linear regression of the targets explains most, the leading
        singular vector of its fitted values; where the targets are constant, that of the largest variance.

        Parameters
        ----------
        X : array or sparse matrix of shape (m, d)
            The rows as the kernel compares them, or a sample of them.
        targets : ndarray of shape (m, K)
            Class indicators or probabilities.
        leaf_rows : float
            The largest number of rows of a leaf.
        overlap : float
            The rows on either side of a cut that belong to both sides, as a share of two leaves (of the region, if
            that is smaller).
        n_rows : int or None
            The number of all rows, if X is a sample of them.
        seed : int
            For the random projections of many columns.

        Returns
        -------
        Tree
        """
        sketch = None
        if X.shape[1] > _SKETCH:
            sketch = np.random.default_rng(seed).normal(size=(X.shape[1], _SKETCH)) / np.sqrt(_SKETCH)
        Z = np.asarray(X.toarray() if hasattr(X, "toarray") else X) if sketch is None else X @ sketch
        share = 1.0 if n_rows is None else X.shape[0] / n_rows
        cuts: list[_Cut] = []
        children: list[list[int]] = []
        n_leaves = 0
        # Each entry: the rows of a region, and where its number is to be written.
        stack: list[tuple[Array, int, int]] = [(np.arange(Z.shape[0]), -1, 0)]
        while stack:
            rows, parent, side = stack.pop()
            cut = None
            if rows.size > leaf_rows * share:
                both = overlap * min(float(rows.size), 2.0 * leaf_rows * share)
                cut = _Cut.of(Z[rows], targets[rows], max(int(both), 1))
            number = len(cuts) if cut is not None else -1 - n_leaves
            if parent >= 0:
                children[parent][side] = number
            if cut is None:
                n_leaves += 1
                continue
            cuts.append(cut)
            children.append([0, 0])
            t = Z[rows] @ cut.direction
            # The left side comes first.
            stack.append((rows[t > cut.low], number, 1))
            stack.append((rows[t < cut.high], number, 0))
        return cls(
            np.array([cut.direction for cut in cuts]).reshape(len(cuts), Z.shape[1]),
            np.array([cut.low for cut in cuts]),
            np.array([cut.high for cut in cuts]),
            np.array(children, dtype=np.intp).reshape(len(cuts), 2),
            sketch,
        )

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.children) + 1

    def route(self, X: Any) -> list[tuple[Array, Array]]:
        """Return the rows of every leaf, and their weights, which sum to one for every row.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows as the kernel compares them.

        Returns
        -------
        list of (ndarray of int, ndarray)
            For every leaf: its rows, ascending, and their weights.
        """
        Z = (
            np.asarray(X.toarray() if hasattr(X, "toarray") else X)
            if self.sketch is None
            else X @ self.sketch
        )
        found: list[tuple[Array, Array]] = [(np.empty(0, dtype=np.intp), np.empty(0))] * self.n_leaves
        stack = [(0 if len(self.children) else -1, np.arange(Z.shape[0]), np.ones(Z.shape[0]))]
        while stack:
            number, rows, weights = stack.pop()
            if number < 0:
                found[-1 - number] = rows, weights
                continue
            t = Z[rows] @ self.directions[number]
            u = np.clip((t - self.low[number]) / (self.high[number] - self.low[number]), 0.0, 1.0)
            u = u * u * (3.0 - 2.0 * u)
            left, right = t < self.high[number], t > self.low[number]
            stack.append((self.children[number, 0], rows[left], weights[left] * (1.0 - u[left])))
            stack.append((self.children[number, 1], rows[right], weights[right] * u[right]))
        return found


@dataclass(frozen=True)
class _Cut:
    """A direction, and the interval of the projection that belongs to both sides."""

    direction: Array
    low: float
    high: float

    @classmethod
    def of(cls, X: Array, targets: Array, n_shared: int) -> _Cut | None:
        """Cut rows near the median, with so many rows of either side in the interval; None if all rows are equal."""
        mean = X.mean(axis=0)
        about = X - mean
        products = about.T @ about
        trace = float(np.trace(products))
        if not trace > 0.0:
            return None
        for direction in _directions(about, products, targets - targets.mean(axis=0), trace):
            # The sign of a singular vector is arbitrary; the first of its largest entries is positive.
            sizes = np.abs(direction)
            direction = direction * np.sign(direction[sizes > (1.0 - _SAME) * sizes.max()][0])
            cut = _interval(np.sort(X @ direction), n_shared)
            if cut is not None:
                return cls(direction, *cut)
        return None


def _directions(about: Array, products: Array, targets: Array, trace: float) -> Any:
    """Yield the directions to try: that of the regression, of the largest variance, and the columns."""
    d = products.shape[0]
    ridged = products + _RIDGE * trace / d * np.eye(d)
    coef = np.linalg.solve(ridged, about.T @ targets)
    # The right singular vectors of the fitted values, from their products.
    values, vectors = np.linalg.eigh(coef.T @ products @ coef)
    if values[-1] > 1e-12 * max(float(np.square(targets).sum()), 1e-300):
        direction = coef @ vectors[:, -1]
        yield direction / np.linalg.norm(direction)
    yield np.linalg.eigh(products)[1][:, -1]
    for column in np.argsort(-np.diagonal(products), kind="stable"):
        if products[column, column] > 1e-12 * trace:
            yield np.eye(d)[column]


def _interval(t: Array, n_shared: int) -> tuple[float, float] | None:
    """Return the interval around the cut next to the median; None if too many of the sorted values are equal.

    Its ends lie between values, so that rounding does not decide to which side a row belongs.
    """
    n = t.size
    same = max(_SAME * (t[-1] - t[0]), 1e-12 * max(abs(t[0]), abs(t[-1])))
    gaps = np.flatnonzero(np.diff(t) > same) + 1  # the first position after every gap
    inside = gaps[(gaps >= _LEAST_SIDE * n) & (gaps <= (1.0 - _LEAST_SIDE) * n)]
    if not inside.size:
        return None
    middle = inside[np.abs(inside - n / 2).argmin()]
    # The gap next to so many rows below the cut and above it, unless equal values make that twice as many or none.
    below = gaps[(gaps >= middle - 2 * n_shared) & (gaps <= middle - n_shared)]
    above = gaps[(gaps <= middle + 2 * n_shared) & (gaps >= middle + n_shared)]
    gap = t[middle] - t[middle - 1]
    low = t[middle - 1] + 0.25 * gap
    high = t[middle] - 0.25 * gap
    if below.size:
        low = 0.5 * (t[below[-1]] + t[below[-1] - 1])
    if above.size:
        high = 0.5 * (t[above[0]] + t[above[0] - 1])
    return float(low), float(high)
