"""The density estimators, in a graph: all distances, and who is near."""

from __future__ import annotations

import numpy as np

from polymargin.densities import KNNPosterior, WindowPosterior
from polymargin.densities._neighbours import TIE, Sample
from polymargin.onnx._graph import Value
from polymargin.onnx.kernels import dense, squared_distances

__all__ = ["knn", "window"]


def knn(model: KNNPosterior, x: Value) -> Value:
    """Return the class shares among the k nearest rows, of which equally distant ones share the last places."""
    sample = model._sample
    k, totals = model._available(sample), sample.totals
    distance = _distances(sample, x)
    # However the weights fall, so many rows have weight k.
    enough = int(np.searchsorted(np.cumsum(np.sort(totals)), k * (1.0 - 1e-12))) + 1
    enough = min(enough, totals.size)
    nearest, index = x.graph.ops(
        "TopK", distance, np.array([enough]), n_outputs=2, axis=1, largest=0, sorted=1
    )
    reached = x.graph.op("CumSum", x.graph.value(totals).take(index, axis=0), np.array(1))
    last = (reached >= k * (1.0 - 1e-12)).choose(nearest, np.inf).min(keepdims=True)
    slack = last * TIE + sample.resolution  # as in `nearest_counts`
    inside = distance < last - slack
    near = (distance <= last + slack).as_double()
    full = inside.as_double()
    tied = near - full
    among = tied @ totals[:, np.newaxis]
    left = k - full @ totals[:, np.newaxis]
    share = (left / among.at_least(np.finfo(np.float64).tiny)).at_least(0.0).at_most(1.0)
    return (full + tied * share) @ sample.counts / k


def window(model: WindowPosterior, x: Value) -> Value:
    """Return the class shares within the radius, and the class frequencies where nobody is."""
    sample = model._sample
    inside = (_distances(sample, x) <= model.radius_ * (1.0 + TIE)).as_double()
    counts = inside @ sample.counts
    total = counts.sum(keepdims=True)
    return (total > 0.0).choose(counts / total.at_least(np.finfo(np.float64).tiny), sample.frequencies)


def _distances(sample: Sample, x: Value) -> Value:
    centred = x if sample.centre is None else x - sample.centre
    return x.graph.op("Sqrt", squared_distances(centred, dense(sample.rows)))
