"""Stacking in a graph: the second classifier is converted by its own converter."""

from __future__ import annotations

from typing import Any

import numpy as np
from skl2onnx._parse import _parse_sklearn
from skl2onnx.common.data_types import DoubleTensorType
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.pipeline import Pipeline

from polymargin.decoders import Stack
from polymargin.onnx._graph import Value
from polymargin.onnx.machines import GraphOutputs

__all__ = ["stack"]


def stack(decoder: Stack, outputs: GraphOutputs) -> Value:
    """Return the log-probabilities of the second classifier, or its decision function, shape (n, K)."""
    estimator = decoder.estimator_
    features = outputs.over_norms() if decoder.scale == "norm" else outputs.margins
    known = np.asarray(estimator.classes_)
    if decoder.probabilistic:
        values = _probabilities(estimator, features, decoder.codebook_.n_columns)
        return _all_classes(values, known, decoder, 0.0).at_least(np.finfo(np.float64).tiny).log()
    values = _decisions(estimator, features)
    return _all_classes(values, known, decoder, values.min(keepdims=True) - 1.0)


def _probabilities(estimator: Any, features: Value, n_features: int) -> Value:
    graph = features.graph
    last = estimator
    while isinstance(last, Pipeline):
        last = last.steps[-1][1]
    graph.scope.add_options(id(last), {"zipmap": False})
    # skl2onnx converts what is declared here when this converter is done.
    given = graph.scope.declare_local_variable("outputs", DoubleTensorType([None, n_features]))
    graph.container.add_node("Identity", features.name, given.full_name)
    given.init_status(is_fed=True)
    *_, probabilities = _parse_sklearn(graph.scope, estimator, [given])
    return Value(graph, probabilities.full_name).as_double()


def _decisions(estimator: Any, features: Value) -> Value:
    """Return one value for each class the classifier knows."""
    if not isinstance(estimator, LinearClassifierMixin):
        raise ValueError(
            f"a Stack of {type(estimator).__name__}, which gives no probabilities, cannot be exported: stack a linear "
            "classifier, or one with predict_proba"
        )
    values = features @ np.atleast_2d(estimator.coef_).T + np.atleast_1d(estimator.intercept_)
    return values @ np.array([[-0.5, 0.5]]) if len(estimator.classes_) == 2 else values


def _all_classes(values: Value, known: Any, decoder: Stack, missing: Any) -> Value:
    """Return the columns of the classes the classifier knows among those of all classes."""
    n_classes = decoder.codebook_.n_classes
    if known.size == n_classes:
        return values
    place = np.eye(n_classes)[known]
    return values @ place + (1.0 - place.sum(axis=0)) * values.graph.value(missing)
