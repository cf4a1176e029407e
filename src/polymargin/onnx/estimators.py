"""The estimators as skl2onnx wants them: a parser, a shape and a converter for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto
from skl2onnx import convert_sklearn, update_registered_converter
from skl2onnx._parse import _parse_sklearn, _parse_sklearn_classifier
from skl2onnx.common.data_types import (
    DictionaryType,
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,
    SequenceType,
    StringTensorType,
)
from skl2onnx.common.utils_classifier import get_label_classes
from sklearn.pipeline import Pipeline

from polymargin.densities import KNNPosterior, WindowPosterior
from polymargin.estimators import (
    AutoKernelClassifier,
    KernelLogisticClassifier,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    SVMClassifier,
)
from polymargin.estimators._flow import DichotomyClassifier
from polymargin.inspection.members import kernel_members, member_name
from polymargin.onnx import densities
from polymargin.onnx._graph import Array, Graph, Value
from polymargin.onnx.decoders import decoder_scores, log_pool, reweighted
from polymargin.onnx.machines import expansion, machine_outputs
from polymargin.onnx.scale import check_size, scaled_outputs
from polymargin.scale.bank import ScaledBank

__all__ = ["OLDEST_OPSET", "register"]

#: Older operator sets lack what the graphs use.
OLDEST_OPSET = 13
_OPTIONS = {
    "zipmap": [True, False, "columns"],
    "nocl": [True, False],
    "output_class_labels": [False, True],
    "raw_scores": [True, False],
}


def dichotomies(model: DichotomyClassifier, x: Value) -> tuple[Value, Value]:
    """Return what gives the label (probabilities, or scores where there are none), and the decision function."""
    decoder, bank = model.decoder_, model.bank_
    outputs_of = scaled_outputs if isinstance(bank, ScaledBank) else machine_outputs
    outputs = outputs_of(x, bank, variances=decoder.needs_variances)
    if not decoder.probabilistic and getattr(model, "decision_function_shape", "ovr") == "ovo":
        raise ValueError(
            'an exported model gives a score for every class, not the margins of decision_function_shape="ovo": call '
            'set_params(decision_function_shape="ovr") first, which needs no other fit'
        )
    if isinstance(model, SVMClassifier) and model.counts_votes:
        return _votes(model, outputs.margins)
    scores = decoder_scores(decoder, outputs)
    if decoder.probabilistic:
        return scores.exp(), scores
    if model.codebook_.matrix.shape == (2, 1) and not decoder.learns:
        # The one machine decides; half on either side, so that the difference is its margin.
        return scores, outputs.margins @ (0.5 * model.codebook_.matrix.T.astype(np.float64))
    return scores, scores


def _votes(model: SVMClassifier, margins: Value) -> tuple[Value, Value]:
    """Return the scores of pairwise votes, with or without what breaks ties, and the decision function of "ovr"."""
    codewords = model.codebook_.matrix.T.astype(np.float64)
    counted = 0.5 * (margins.sign() @ codewords + (model.classes_.size - 1.0))
    total = margins @ codewords
    scores = counted + total / (3.0 * (total.absolute() + 1.0))
    return (scores if model.break_ties else counted), scores


def pool(model: AutoKernelClassifier, x: Value) -> tuple[Value, Value]:
    """Return the probabilities of a pool of classifiers and their logarithms."""
    members = [
        dichotomies(member, x)[1] if isinstance(member, LSSVMClassifier) else _foreign(member, model, x)
        for member in model.members_
    ]
    log_p = reweighted(log_pool(members, model.weights_, model.log_prior_), model.prior_shift_)
    return log_p.exp(), log_p


def _reason(error: BaseException) -> str:
    """Return the first line of what an error began with: skl2onnx itself prints whole trees."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(" .") if lines else type(error).__name__


def _foreign(member: Any, model: AutoKernelClassifier, x: Value) -> Value:
    """Return the log-probabilities of a member that skl2onnx converts."""
    graph, options = x.graph, {"zipmap": False}
    last = member
    while isinstance(last, Pipeline):
        last = last.steps[-1][1]
    for part in (member, last):
        graph.scope.add_options(id(part), options)
        graph.container.add_options(id(part), options)
    types = [("X", DoubleTensorType([None, model.n_features_in_]))]
    try:
        # By itself first: within another model, skl2onnx does not say which part it cannot convert.
        convert_sklearn(member, initial_types=types, target_opset=graph.opset, options={id(last): options})
    except Exception as error:  # of any type: skl2onnx has many
        raise ValueError(
            f"skl2onnx cannot convert {member_name(member)}, a member of the pool ({_reason(error)}): export a pool "
            "without this member, or keep this one by pickle"
        ) from error
    rows = graph.scope.declare_local_variable("rows", types[0][1])
    graph.container.add_node("Identity", x.name, rows.full_name)
    rows.init_status(is_fed=True)
    found = _parse_sklearn(graph.scope, member, [rows], custom_parsers=None)[1]
    p = graph.op("Cast", Value(graph, found.full_name), to=TensorProto.DOUBLE)
    p, prior = p / p.sum(axis=1, keepdims=True), model._prior
    return ((p * prior.n_rows + prior.shares) * (1.0 / (prior.n_rows + 1.0))).log()


def kernel_logistic(model: KernelLogisticClassifier, x: Value) -> tuple[Value, Value]:
    """Return the probabilities of kernel logistic regression and the logits."""
    gamma = np.full(model.classes_.size, model.gamma_)
    logits = expansion(x, model.kernel_, model._rows, gamma, model.dual_coef_, model.intercept_)
    return logits.log_softmax().exp(), logits


def knn(model: KNNPosterior, x: Value) -> tuple[Value, Value]:
    """Return the shares of the classes among the nearest rows."""
    shares = densities.knn(model, x)
    return shares, shares


def window(model: WindowPosterior, x: Value) -> tuple[Value, Value]:
    """Return the shares of the classes within a window."""
    shares = densities.window(model, x)
    return shares, shares


#: The converter of every estimator: its labels and probabilities, or scores, for new rows.
CONVERTERS: dict[type, Callable[[Any, Value], tuple[Value, Value]]] = {
    LSSVMClassifier: dichotomies,
    SVMClassifier: dichotomies,
    PosteriorSVMClassifier: dichotomies,
    AutoKernelClassifier: pool,
    KernelLogisticClassifier: kernel_logistic,
    KNNPosterior: knn,
    WindowPosterior: window,
}


def register() -> None:
    """Tell skl2onnx how to convert every estimator of polymargin; it is done when `polymargin.onnx` is imported."""
    for estimator in CONVERTERS:
        update_registered_converter(
            estimator,
            f"Polymargin{estimator.__name__}",
            _shapes,
            _convert,
            parser=_parse,
            options=_OPTIONS,
        )


def _parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs as for any classifier; dictionaries hold float32, the only kind that ZipMap makes."""
    outputs = _parse_sklearn_classifier(scope, model, inputs, custom_parsers)
    if isinstance(outputs[-1].type, SequenceType):
        label = outputs[-1].type.element_type.key_type
        outputs[-1].type = SequenceType(DictionaryType(label, FloatTensorType()))
    return outputs


def _shapes(operator: Any) -> None:
    """Set the types of label and probabilities."""
    model = operator.raw_operator
    n = operator.inputs[0].get_first_dimension()
    classes = _labels(get_label_classes(operator.scope_inst, model))
    kinds = {"U": StringTensorType, "i": Int64TensorType, "f": DoubleTensorType}
    operator.outputs[0].type = kinds[classes.dtype.kind]([n])
    zipped = operator.scope_inst.get_options(model, {"zipmap": True})["zipmap"] is True
    double = isinstance(operator.inputs[0].type, DoubleTensorType) and not zipped
    operator.outputs[1].type = (DoubleTensorType if double else FloatTensorType)([n, len(model.classes_)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a fitted estimator."""
    if container.target_opset < OLDEST_OPSET:
        raise ValueError(f"the models of polymargin need opset {OLDEST_OPSET} or newer")
    model = operator.raw_operator
    check_size([getattr(member, "bank_", None) for member in kernel_members(model)])
    graph = Graph(scope, container)
    x = graph.rows(operator.inputs[0].full_name)
    deciding, scores = CONVERTERS[type(model)](model, x)
    label, probabilities = operator.outputs
    classes = _labels(get_label_classes(scope, model))
    container.add_node(
        "Gather", [graph.constant(classes).name, deciding.argmax().name], label.full_name, axis=0
    )
    raw = container.get_options(model, {"raw_scores": False})["raw_scores"]
    shown = scores if raw or not hasattr(model, "predict_proba") else deciding
    double = isinstance(probabilities.type, DoubleTensorType)
    container.add_node(
        "Cast",
        shown.name,
        probabilities.full_name,
        to=TensorProto.DOUBLE if double else TensorProto.FLOAT,
    )


def _labels(classes: Array) -> Array:
    """Return labels as ONNX has them: strings, integers (also for booleans and whole numbers), or doubles."""
    values = list(np.asarray(classes).tolist())
    if all(isinstance(value, str) for value in values):
        return np.array(values)
    if all(isinstance(value, bool | int | float) for value in values):
        numbers = np.array(values, dtype=np.float64)
        whole = all(float(value).is_integer() for value in values)
        return np.array([int(value) for value in values]) if whole else numbers
    raise ValueError(
        "labels must be all strings or all numbers to be exported; not " + ", ".join(map(repr, values[:3]))
    )
