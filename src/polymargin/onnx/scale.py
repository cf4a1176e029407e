"""Leaves and landmarks in a graph.

Leaves are in a loop over those to which the tree sends any rows; each is asked about these rows only. So a row costs
what its leaves cost, as in Python, and the number of nodes does not depend on the number of leaves: onnxruntime takes
minutes to open a graph in which 500 leaves have nodes of their own, and opens the loop at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from polymargin.kernels import Kernel, Scaled
from polymargin.machines import LSSVMBank
from polymargin.onnx import kernels
from polymargin.onnx._graph import Array, Value
from polymargin.onnx.machines import GraphOutputs, in_order
from polymargin.scale.bank import ScaledBank
from polymargin.scale.feature_maps import ExplicitMap, LandmarkMap
from polymargin.scale.landmark_bank import LandmarkBank
from polymargin.scale.leaves import Leaf, LeafBank
from polymargin.scale.tree import Tree

__all__ = ["check_size", "scaled_outputs"]

#: The largest number of bytes of all leaves of a model, half of what protobuf can hold: landmarks, members of other
#: kinds and decoders need room, and skl2onnx takes six times as much memory while it converts. With 50 columns and 20
#: dichotomies these are about a million training rows.
_LARGEST = 1e9


def check_size(banks: Sequence[Any]) -> None:
    """Raise ValueError if the leaves of these banks, all in one graph, cannot be written or make it too large."""
    leaves: list[Any] = []
    for bank in banks:
        if isinstance(bank, ScaledBank) and bank.leaves is not None:
            leaves += bank.leaves.leaves
    if not all(isinstance(leaf, Leaf) for leaf in leaves):
        raise ValueError(
            "the leaves of this model are on the Dask cluster: call model.gather_leaves() before it is exported"
        )
    size = sum(_bytes(leaf.bank) for leaf in leaves if leaf.bank is not None)
    if size > _LARGEST:
        raise ValueError(
            f"the {len(leaves)} leaves of this model take {size / 1e6:,.0f} MB, and an ONNX file can have "
            f'{_LARGEST / 1e6:,.0f} MB of them: fit the model with scale="landmarks", whose size does not depend on '
            "the number of rows, or to fewer rows"
        )


def _bytes(bank: LSSVMBank) -> int:
    """Return the size of the constants of machines."""
    if bank.expansion is not None:
        return bank.expansion.weights.nbytes
    return bank.dual_coef.nbytes + 8 * int(np.prod(bank.data.X.shape))


def scaled_outputs(x: Value, bank: ScaledBank, *, variances: bool) -> GraphOutputs:
    """Return the outputs of leaves, landmarks or both for new rows, which are doubles of shape (n, d)."""
    found, d = [], bank.data.X.shape[1]
    if bank.leaves is not None:
        found.append(_leaf_margins(x, bank.leaves, d))
    landmarks = bank.landmarks
    if landmarks is None:
        return GraphOutputs(found[0], None, None, None)
    phi = _features(x, landmarks.features, d)
    found.append(phi @ landmarks.weights + landmarks.intercept)
    if bank.leaves is not None:
        return GraphOutputs(found[0].beside(found[1]), None, None, None)
    spread = _variances(x, phi, landmarks) if variances else None
    return GraphOutputs(found[0], spread, 1.0 / landmarks.zeta, landmarks.norms)


def _features(x: Value, features: LandmarkMap | ExplicitMap, d: int) -> Value:
    """Return the features of new rows of d columns about their centre, shape (n, D)."""
    kernel = features.kernel
    if isinstance(features, ExplicitMap):
        return kernels.features(kernel, x, d, features.unit) * features.scales - features.centre
    K = kernels.apply(kernel, kernels.base(kernel, x, features.landmarks), features.gamma)
    return K @ features.whitening - features.centre


def _variances(x: Value, phi: Value, bank: LandmarkBank) -> Value:
    """Return σ_z² of every machine, shape (n, L), as `LandmarkBank.outputs` does."""
    features = bank.features
    parts, columns = [], []
    for factor in bank.factors():
        inverse, _ = lapack.dtrtri(factor.lower, lower=1)
        own = ((phi - factor.mean) @ np.tril(inverse).T).square().sum(keepdims=True)
        parts.append((own + 1.0 / factor.total) / bank.zeta[factor.columns])
        columns.append(factor.columns)
    spread = in_order(parts, columns)
    if isinstance(features, ExplicitMap):
        return spread
    explained = (phi + features.centre).square().sum(keepdims=True)
    own = kernels.apply(features.kernel, kernels.base_diagonal(features.kernel, x), features.gamma)
    return spread + (own - explained).at_least(0.0) / bank.mu


def _leaf_margins(x: Value, bank: LeafBank, d: int) -> Value:
    """Return the means of the leaves' margins by the weights of the routing, shape (n, L)."""
    z = kernels.scaled(bank.kernel, x)
    weights = _routed(z, bank.tree)
    margins = weights @ np.array([leaf.constants for leaf in bank.leaves])
    for expanded in (False, True):
        numbers = [
            number
            for number, leaf in enumerate(bank.leaves)
            if leaf.bank is not None and (leaf.bank.expansion is not None) == expanded
        ]
        if numbers:
            group = _Leaves.of(bank.kernel, [bank.leaves[number] for number in numbers], d)
            margins = group.added(margins, z, weights.take(np.array(numbers)))
    return margins


def _routed(z: Value, tree: Tree) -> Value:
    """Return the weight of every leaf for rows as the kernel compares them: the product along its path, (n, leaves)."""
    if tree.n_leaves == 1:
        return z.take(np.array([0])) * 0.0 + 1.0
    t = (z if tree.sketch is None else z @ tree.sketch) @ tree.directions.T
    u = ((t - tree.low) / (tree.high - tree.low)).at_least(0.0).at_most(1.0)
    right = u * u * (3.0 - 2.0 * u)
    factors = (1.0 - right).beside(right, right * 0.0 + 1.0)
    first, *others = _paths(tree).T
    weights = factors.take(first)
    for turns in others:
        weights = weights * factors.take(turns)
    return weights


def _paths(tree: Tree) -> Array:
    """Return the turns on the way to every leaf, shape (leaves, depth).

    With c cuts, i is the left side of cut i, c + i its right side, and 2c, which is none, fills paths that end early.
    """
    n_cuts = len(tree.children)
    found: list[list[int]] = [[] for _ in range(tree.n_leaves)]
    stack: list[tuple[int, list[int]]] = [(0, [])]
    while stack:
        number, path = stack.pop()
        if number < 0:
            found[-1 - number] = path
            continue
        left, right = tree.children[number]
        stack += [(int(left), [*path, number]), (int(right), [*path, n_cuts + number])]
    depth = max(map(len, found))
    return np.array([path + [2 * n_cuts] * (depth - len(path)) for path in found])


class _Joined:
    """Arrays of several leaves, joined along the first axis.

    Parameters
    ----------
    arrays : sequence of ndarray
        The arrays.
    """

    def __init__(self, arrays: Sequence[Array]):
        self.values = np.concatenate(arrays)
        self.bounds = np.cumsum([0, *map(len, arrays)])

    def of(self, leaf: Value) -> Value:
        """Return the array of a leaf, whose number has the shape (1,)."""
        graph = leaf.graph
        start, end = (
            graph.value(places).take(leaf, axis=0) for places in (self.bounds[:-1], self.bounds[1:])
        )
        return graph.value(self.values).part(start, end)


@dataclass(frozen=True)
class _Leaves:
    """Leaves with machines, all of them sums over training rows, or all of them sums of features.

    Attributes
    ----------
    kernel : Kernel
        The kernel, for rows as it compares them.
    d : int
        The number of columns of the rows.
    rows : _Joined or None
        The training rows as the kernel compares them; None for features.
    parameters : ndarray of shape (g,)
        The gamma of every leaf, or the unit of its features.
    coef, offsets : _Joined
        What kernel values or features are multiplied by, machine by machine, and what is added.
    places : ndarray of int, shape (g, L)
        The machine of every column of the codebook; the number of machines where there is none.
    n_machines : ndarray of int, shape (g,)
        The number of machines of every leaf.
    """

    kernel: Kernel
    d: int
    rows: _Joined | None
    parameters: Array
    coef: _Joined
    offsets: _Joined
    places: Array
    n_machines: Array

    @classmethod
    def of(cls, kernel: Kernel, leaves: Sequence[Leaf], d: int) -> _Leaves:
        """Join leaves, all of one kind, for rows of d columns."""
        rows, parameters, coef, offsets, places = [], [], [], [], []
        for leaf in leaves:
            bank = leaf.bank
            assert bank is not None
            found = bank.expansion
            if found is None:
                rows.append(kernel.scaled(kernels.dense(bank.data.X)))
                parameters.append(bank.gamma[0])  # which all machines of a leaf share
                coef.append(bank.dual_coef.ravel())
                offsets.append(bank.intercept)
            else:
                parameters.append(found.unit)
                coef.append(found.weights.T.ravel())
                offsets.append(found.constant)
            places.append(np.full(leaf.constants.size, leaf.columns.size))
            places[-1][leaf.columns] = np.arange(leaf.columns.size)
        return cls(
            kernel.kernel if isinstance(kernel, Scaled) else kernel,
            d,
            _Joined(rows) if rows else None,
            np.array(parameters),
            _Joined(coef),
            _Joined(offsets),
            np.array(places),
            np.array([leaf.columns.size for leaf in leaves]),
        )

    def added(self, margins: Value, z: Value, weights: Value) -> Value:
        """Return margins and what these leaves, whose weights have the shape (n, g), add to them."""
        graph = margins.graph
        visited = graph.op("NonZero", weights.sum(axis=0) > 0.0).without_axis(0)

        def add(step: Value, margins: Value) -> list[Value]:
            inside = step.graph
            leaf = inside.borrowed(visited).take(step.reshaped(1), axis=0)
            weight = inside.borrowed(weights).take(leaf)
            rows = inside.op("NonZero", (weight > 0.0).without_axis(1)).without_axis(0)
            weight = weight.take(rows, axis=0)
            own = self._margins(leaf, inside.borrowed(z).take(rows, axis=0)) * weight
            columns = inside.value(self.places).take(leaf, axis=0).without_axis(0)
            # What columns without a machine say, the same for all rows, has been added before.
            own = own.beside(weight * 0.0).take(columns)
            return [inside.op("ScatterND", margins, rows.with_axis(1), margins.take(rows, axis=0) + own)]

        return graph.loop(graph.op("Size", visited), [margins], add)[0]

    def _margins(self, leaf: Value, z: Value) -> Value:
        """Return what the machines of a leaf say of rows as the kernel compares them."""
        graph, kernel = leaf.graph, self.kernel
        parameter = graph.value(self.parameters).take(leaf, axis=0)
        if self.rows is None:
            values = kernels.features(kernel, z, self.d, parameter)
        else:
            values = kernels.apply(kernel, kernels.base(kernel, z, self.rows.of(leaf)), parameter)
        shape = graph.value(self.n_machines).take(leaf, axis=0).beside(np.array([-1]), axis=0)
        coef = graph.op("Reshape", self.coef.of(leaf), shape)
        return values @ coef.T + self.offsets.of(leaf)
