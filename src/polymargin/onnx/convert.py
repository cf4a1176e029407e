"""From a fitted model to an ONNX model in one call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper
from skl2onnx import convert_sklearn
from skl2onnx.algebra.type_helper import guess_initial_types
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from polymargin._preparation import of_columns
from polymargin._version import __version__
from polymargin.onnx.estimators import OLDEST_OPSET, register
from polymargin.onnx.preparation import CONVERTERS, SHAPES

__all__ = ["initial_types", "to_onnx"]

#: What a protobuf file can hold.
_LARGEST = 2**31 - 1


def to_onnx(
    model: Any,
    X: Any = None,
    *,
    float64: bool = False,
    zipmap: bool = False,
    opset: int | None = None,
    options: dict[Any, Any] | None = None,
    name: str | None = None,
) -> ModelProto:
    """Return a fitted estimator or pipeline as an ONNX model.

    All arithmetic in it is in double precision, whatever its inputs are, that of a scaler in the pipeline included.

    Parameters
    ----------
    model : estimator
        A fitted estimator of polymargin, or a pipeline that ends in one.
    X : array-like, DataFrame, list of (str, type) or None, default=None
        Some rows, or the names and types of the inputs as skl2onnx has them. Of rows, the names and number of columns
        are taken, and whether they hold texts; the dtype of numbers is that of `float64`, not that of X. A list is
        taken as it is. None: one input ``X``, or one for every
        column if the model starts with a `ColumnTransformer` or a preparation of tables, which takes dates as days
        since 1970-01-01. (A column called like an output gets another name.)
    float64 : bool, default=False
        Whether numbers go in and come out as float64 rather than float32.
    zipmap : bool, default=False
        Whether the second output is a list of dictionaries from labels to (float32) probabilities, rather than an array
        whose columns are in the order of ``classes_``.
    opset : int or None, default=None
        The operator set, 13 or newer. None: the newest that skl2onnx has been tested with.
    options : dict or None, default=None
        Further options for the converters, as `skl2onnx.to_onnx` takes them.
    name : str or None, default=None
        The name of the graph.

    Returns
    -------
    onnx.ModelProto
        Its outputs are ``label`` and ``probabilities`` (``output_label`` and ``output_probability`` with ``zipmap``).
        Where the decoding gives no probabilities, these are the scores of the classes. The labels, as JSON, are in its
        metadata under "classes".

    Notes
    -----
    Inputs of float32 are rounded before the model sees them. To compare the graph with the model, give both the rounded
    rows, to the model in float64: ``model.predict_proba(X32.astype(float))`` agrees to about 3e-8. With
    ``model.predict_proba(X32)`` the differences can be larger, as a scaler in the pipeline computes in float32.

    Examples
    --------
    >>> import numpy as np, onnxruntime
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.onnx import to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf")).fit(X, y)
    >>> session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    >>> label, probabilities = session.run(None, {"X": X[:1].astype(np.float32)})
    >>> bool(np.abs(probabilities - model.predict_proba(X[:1].astype(np.float32))).max() < 1e-5)
    True
    """
    register()
    check_is_fitted(model)
    if opset is not None and opset < OLDEST_OPSET:
        raise ValueError(f"opset must be {OLDEST_OPSET} or newer, not {opset}")
    types = initial_types(model, X, float64=float64)
    merged = dict(options or {})
    merged[id(_last(model))] = {"zipmap": zipmap, **merged.get(id(_last(model)), {})}
    converted = convert_sklearn(
        _of_known_steps(model),
        name=name or type(_last(model)).__name__,
        initial_types=[(name, _doubled(kind)) for name, kind in types],
        target_opset=opset,
        options=merged,
        custom_conversion_functions=CONVERTERS,
        custom_shape_calculators=SHAPES,
    )
    _set_inputs(converted, types)
    if not any(isinstance(kind, DoubleTensorType) for _, kind in types):
        _narrow_probabilities(converted)
    _describe(converted, model)
    if converted.ByteSize() > _LARGEST:
        raise ValueError(
            f"the model takes {converted.ByteSize() / 1e9:.1f} GB, and an ONNX file holds 2 GB: fit fewer rows, choose "
            "SVMClassifier, which keeps support vectors only, or a decoding without variances"
        )
    return converted


def initial_types(model: Any, X: Any = None, *, float64: bool = False) -> list[tuple[str, Any]]:
    """Return the names and types of a model's inputs.

    Parameters
    ----------
    model : estimator
        A fitted estimator or pipeline.
    X : array-like, DataFrame, list of (str, type) or None, default=None
        See `to_onnx`; None to take them from the model.
    float64 : bool, default=False
        Whether numbers are float64 rather than float32.

    Returns
    -------
    list of (str, type)
        With the types of skl2onnx.

    Examples
    --------
    >>> from polymargin import KNNPosterior
    >>> initial_types(KNNPosterior(1).fit([[0.0, 1.0], [1.0, 1.0]], [0, 1]))
    [('X', FloatTensorType(shape=[None, 2]))]
    """
    number = DoubleTensorType if float64 else FloatTensorType
    if isinstance(X, list) and X and isinstance(X[0], tuple):
        return X
    if X is not None:
        guessed = guess_initial_types(X if hasattr(X, "columns") else np.asarray(X))
        return [
            (str(name), kind if isinstance(kind, StringTensorType) else number(kind.shape))
            for name, kind in guessed
        ]
    first = first_step(model)
    if not isinstance(first, ColumnTransformer):
        return [("X", number([None, model.n_features_in_]))]
    texts, used = (
        set(_text_columns(first)),
        {column for _, columns in column_parts(first) for column in columns},
    )
    # Columns that are known by their numbers are counted among all.
    all_used = any(not isinstance(column, str) for column in used)
    names = getattr(first, "feature_names_in_", [f"x{j}" for j in range(first.n_features_in_)])
    return [
        (str(name), (StringTensorType if {j, name} & texts else number)([None, 1]))
        for j, name in enumerate(names)
        if all_used or name in used
    ]


def _text_columns(transformer: ColumnTransformer) -> Iterator[Any]:
    """Yield the columns, by name or number, whose categories or replacements for missing values are texts."""
    for part, columns in column_parts(transformer):
        for step in part if isinstance(part, Pipeline) else [part]:
            values = getattr(step, "categories_", None)
            if values is None:
                values = [[value] for value in getattr(step, "statistics_", ())]
            for column, known in zip(columns, values, strict=False):
                if any(isinstance(value, str) for value in known):
                    yield column


def column_parts(transformer: ColumnTransformer) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the fitted parts of a transformer of columns that drop nothing, and the columns of each one by one."""
    for _, part, columns in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        if isinstance(columns, str | int):
            yield part, [columns]
        elif isinstance(columns, slice) or (len(columns) and isinstance(columns[0], bool | np.bool_)):
            yield part, np.arange(transformer.n_features_in_)[columns].tolist()
        else:
            yield part, list(columns)


def first_step(model: Any) -> Any:
    """Return what a pipeline starts with."""
    while isinstance(model, Pipeline):
        model = model.steps[0][1]
    return of_columns(model)


def _of_known_steps(model: Any) -> Any:
    """Return a pipeline whose steps skl2onnx knows."""
    if not isinstance(model, Pipeline):
        return model
    return Pipeline([(name, _of_known_steps(of_columns(step))) for name, step in model.steps])


def _last(model: Any) -> Any:
    while isinstance(model, Pipeline):
        model = model.steps[-1][1]
    return model


def _doubled(kind: Any) -> Any:
    return DoubleTensorType(kind.shape) if isinstance(kind, FloatTensorType) else kind


def _set_inputs(model: ModelProto, types: Sequence[tuple[str, Any]]) -> None:
    """Give inputs the names of the columns, whatever characters these have, and turn float32 into doubles first."""
    casts = []
    taken = {output.name for output in model.graph.output}
    for given, (column, kind) in zip(model.graph.input, types, strict=True):
        name = given.name if column in taken else column
        narrow = isinstance(kind, FloatTensorType)
        inner = f"{given.name}_float64" if narrow else name
        _rename(model, given.name, inner)
        given.name = name
        if narrow:
            given.type.tensor_type.elem_type = TensorProto.FLOAT
            casts.append(helper.make_node("Cast", [name], [inner], f"widen_{inner}", to=TensorProto.DOUBLE))
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*casts, *nodes])


def _narrow_probabilities(model: ModelProto) -> None:
    """Have probabilities come out as float32."""
    for output in list(model.graph.output)[1:]:
        if output.type.tensor_type.elem_type == TensorProto.DOUBLE:
            inner = f"{output.name}_float64"
            _rename(model, output.name, inner)
            model.graph.node.append(
                helper.make_node("Cast", [inner], [output.name], f"narrow_{inner}", to=TensorProto.FLOAT)
            )
            output.type.tensor_type.elem_type = TensorProto.FLOAT


def _rename(model: ModelProto, old: str, new: str) -> None:
    """Rename a tensor in all nodes."""
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]


def _describe(model: ModelProto, fitted: Any) -> None:
    """Write down who made the model, and the classes in the order of the probabilities."""
    model.producer_name, model.producer_version = "polymargin", __version__
    entry = model.metadata_props.add()
    entry.key, entry.value = "classes", json.dumps(fitted.classes_.tolist(), ensure_ascii=False)
