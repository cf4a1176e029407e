"""Comparison of an ONNX model with the original model on random rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator
from sklearn.pipeline import Pipeline

from polymargin._preparation import DateFeatures
from polymargin.densities._base import DensityClassifier
from polymargin.estimators.kernel_logistic import KernelLogisticClassifier
from polymargin.inspection.members import training_rows
from polymargin.onnx._graph import Array
from polymargin.onnx.convert import column_parts, first_step, initial_types
from polymargin.onnx.kernels import dense

__all__ = ["Agreement", "check"]


@dataclass(frozen=True)
class Agreement:
    """How far an ONNX model agrees with the model it was made from.

    Attributes
    ----------
    n_rows : int
        The rows that were compared.
    largest_difference : float
        The largest difference of probabilities, or of scores relative to the largest, where there are no probabilities.
    equal_labels : float
        The share of rows with the same label.
    """

    n_rows: int
    largest_difference: float
    equal_labels: float


def check(model: Any, onnx_model: ModelProto, n_rows: int = 50, random_state: int = 0) -> Agreement:
    """Compare an ONNX model, run by onnxruntime, with its original on random rows.

    The rows have mean and spread of the training rows, as far as the model, or a scaler before it, has stored them.

    Parameters
    ----------
    model : estimator
        The original.
    onnx_model : ModelProto
        The ONNX model, see `to_onnx`.
    n_rows : int
        The number of rows.
    random_state : int
        Seeds the rows.

    Returns
    -------
    Agreement

    See Also
    --------
    to_onnx : The conversion.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import KNNPosterior
    >>> from polymargin.onnx import check, to_onnx
    >>> model = KNNPosterior().fit(*load_iris(return_X_y=True))
    >>> check(model, to_onnx(model, float64=True)).equal_labels
    1.0
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    columns = _random_columns(model, inputs, n_rows, np.random.default_rng(random_state))
    feeds = {given.name: values for given, values in zip(inputs, columns.values(), strict=True)}
    labels, values = session.run(None, feeds)[:2]
    rows = _rows(model, columns)
    scale = 1.0
    if hasattr(model, "predict_proba"):
        expected = model.predict_proba(rows)
    else:
        expected = model.decision_function(rows)
        scale = float(np.abs(expected).max()) or 1.0
    if isinstance(values, list):  # dictionaries
        values = np.array([[row[label] for label in model.classes_.tolist()] for row in values])
    if expected.ndim == 1:
        values = values[:, 1] - values[:, 0]
    return Agreement(
        n_rows, float(np.abs(values - expected).max()) / scale, float(np.mean(labels == model.predict(rows)))
    )


def _random_columns(model: Any, inputs: list[Any], n_rows: int, random: Any) -> dict[str, Array]:
    """Return random values for every input, by the name of the column, in the order of the inputs."""
    first = first_step(model)
    if not isinstance(first, ColumnTransformer):
        (given,) = inputs
        mean, scale = _spread(model, given.shape[1])
        rows = mean + scale * random.normal(size=(n_rows, given.shape[1]))
        return {"X": rows.astype(_dtype(given))}
    texts: dict[Any, Any] = {}
    spreads: dict[Any, Any] = {}
    for part, columns in column_parts(first):
        for step in part if isinstance(part, Pipeline) else [part]:
            texts |= dict(zip(columns, getattr(step, "categories_", ()), strict=False))
        if isinstance(part, MissingIndicator):  # which knows nothing of the numbers
            continue
        spreads |= dict(zip(columns, np.transpose(_spread(part, len(columns))), strict=True))
    found = {}
    for place, ((name, _), given) in enumerate(zip(initial_types(model), inputs, strict=True)):
        key = name if name in spreads else place
        if given.type == "tensor(string)":
            values = random.choice(np.array([*texts.get(key, ()), "?"]), size=n_rows)
        elif key in texts:
            values = random.choice(np.asarray(texts[key], dtype=np.float64), size=n_rows)
        else:
            mean, scale = spreads.get(key, (0.0, 1.0))
            values = mean + scale * random.normal(size=n_rows)
        found[name] = values.astype(_dtype(given))[:, np.newaxis]
    return found


def _spread(model: Any, n_columns: int) -> tuple[Array, Array]:
    """Return middle and spread of the columns that a model was fitted on, if anything in it knows them."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    for step in steps:
        for names in (("mean_", "scale_"), ("center_", "scale_"), ("data_min_", "data_range_")):
            middle, spread = (np.asarray(getattr(step, name, None)) for name in names)
            if isinstance(steps[0], DateFeatures) and middle.ndim == 1:  # of several, the first is the day
                width = len(middle) // n_columns
                middle, spread = middle[::width], spread[::width]
            if middle.shape == spread.shape == (n_columns,):
                return (middle + 0.5 * spread, 0.3 * spread) if names[0] == "data_min_" else (middle, spread)
    rows = _training_rows(steps[0])
    if rows is not None:
        return rows.mean(axis=0), rows.std(axis=0)
    return np.zeros(n_columns), np.ones(n_columns)


def _training_rows(model: Any) -> Array | None:
    """Return the rows that one of our models keeps, None if it keeps none."""
    if isinstance(model, DensityClassifier):
        sample = model._sample
        return dense(sample.rows) + (0.0 if sample.centre is None else sample.centre)
    data = training_rows(model)
    rows = getattr(getattr(model, "bank_", None), "vectors", None) if data is None else data.X
    if isinstance(model, KernelLogisticClassifier):
        rows = model._rows
    return None if rows is None else dense(rows)


def _dtype(given: Any) -> Any:
    return {"tensor(string)": object, "tensor(float)": np.float32}.get(given.type, np.float64)


def _rows(model: Any, columns: dict[str, Array]) -> Any:
    """Return the values as the original model takes them."""
    wide = [values if values.dtype == object else values.astype(np.float64) for values in columns.values()]
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return np.hstack(wide)
    import pandas as pd

    if list(columns) == ["X"] and len(names) == wide[0].shape[1]:
        return pd.DataFrame(wide[0], columns=names)
    frame = pd.DataFrame({name: values[:, 0] for name, values in zip(columns, wide, strict=True)})
    return frame.reindex(columns=names)
