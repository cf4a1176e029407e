"""The transformers of columns that skl2onnx does not know, or not in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from skl2onnx.common.data_types import DoubleTensorType
from sklearn.impute import MissingIndicator, SimpleImputer

from polymargin._preparation import PERIODS, DateFeatures
from polymargin.onnx._graph import Graph, Value

__all__ = ["CONVERTERS", "SHAPES"]


def _imputer_shape(operator: Any) -> None:
    n = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type = DoubleTensorType([n, operator.raw_operator.statistics_.size])


def _convert_imputer(scope: Any, operator: Any, container: Any) -> None:
    """Convert a SimpleImputer of numbers: the operator that skl2onnx uses knows no doubles."""
    imputer = operator.raw_operator
    known_missing = isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)
    plain = known_missing and not imputer.add_indicator and imputer.statistics_.dtype.kind == "f"
    if not plain or np.isnan(imputer.statistics_).any():
        raise ValueError(
            "of the SimpleImputers only those can be exported that replace NaN among numbers, without an indicator"
        )
    graph, joined = _joined(scope, operator, container)
    missing = graph.op("IsNaN", joined)
    container.add_node(
        "Where",
        [missing.name, graph.constant(imputer.statistics_).name, joined.name],
        operator.outputs[0].full_name,
    )


def _indicator_shape(operator: Any) -> None:
    n = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type = DoubleTensorType([n, operator.raw_operator.features_.size])


def _convert_indicator(scope: Any, operator: Any, container: Any) -> None:
    """Convert a MissingIndicator: one where a number is missing, else zero."""
    indicator = operator.raw_operator
    if not (isinstance(indicator.missing_values, float) and np.isnan(indicator.missing_values)):
        raise ValueError(
            "of the MissingIndicators only those can be exported that look for NaN among numbers"
        )
    graph, joined = _joined(scope, operator, container)
    missing = graph.op("IsNaN", joined).as_double().take(indicator.features_)
    container.add_node("Identity", [missing.name], operator.outputs[0].full_name)


def _dates_shape(operator: Any) -> None:
    dates = operator.raw_operator
    n = operator.inputs[0].get_first_dimension()
    n_features = len(dates.get_feature_names_out())
    operator.outputs[0].type = DoubleTensorType([n, n_features])


def _convert_dates(scope: Any, operator: Any, container: Any) -> None:
    """Convert DateFeatures."""
    dates = operator.raw_operator
    graph, days = _joined(scope, operator, container)
    features = [days]
    for period in PERIODS[: 2 + dates.time_of_day]:
        whole = graph.op("Floor", days) if period == 7.0 else days
        angle = (whole - graph.op("Floor", whole / period) * period) * (2.0 * np.pi / period)
        features += [graph.op("Sin", angle), graph.op("Cos", angle)]
    # Feature by feature; they are wanted column by column.
    n, m = dates.n_features_in_, len(features)
    order = np.arange(n * m).reshape(m, n).T.ravel()
    made = features[0].beside(*features[1:]).take(order)
    container.add_node("Identity", [made.name], operator.outputs[0].full_name)


def _joined(scope: Any, operator: Any, container: Any) -> tuple[Graph, Value]:
    """Return the graph, and all inputs side by side as doubles."""
    graph = Graph(scope, container)
    given = [Value(graph, variable.full_name).as_double() for variable in operator.inputs]
    return graph, given[0].beside(*given[1:])


CONVERTERS = {
    SimpleImputer: _convert_imputer,
    MissingIndicator: _convert_indicator,
    DateFeatures: _convert_dates,
}
SHAPES = {SimpleImputer: _imputer_shape, MissingIndicator: _indicator_shape, DateFeatures: _dates_shape}
