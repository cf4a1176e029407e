"""Arrays of an ONNX graph that are written down like NumPy arrays.

A `Value` is a tensor that the graph will compute. ``x @ weights + bias`` adds two nodes; NumPy arrays on either side
become constants of the model, equal ones once. Unless something else is said, everything is a double, because large
terms of opposite signs meet in distances and in kernel expansions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]

__all__ = ["Graph", "Value"]

#: Reductions that take their axes as an input from this operator set on; before they were an attribute.
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMax": 18, "ReduceMin": 18, "ReduceMean": 18, "ReduceLogSumExp": 18}
#: A value that was multiplied with a number.
_SCALED = "scaled"


class Graph:
    """The graph of a model that scikit-learn's converter is building, or the body of a loop in it.

    Parameters
    ----------
    scope, container
        What a converter of skl2onnx is given.
    outer : Graph or None
        The graph around the body of a loop.

    Attributes
    ----------
    memo : dict
        What has been computed already and may be wanted again.
    """

    def __init__(self, scope: Any, container: Any, outer: Graph | None = None):
        self.scope, self.container = scope, container
        self.outer = outer
        self.memo: dict[Hashable, Value] = {}
        self.opset: int = container.target_opset
        self._nodes: list[NodeProto] = []

    def rows(self, name: str) -> Value:
        """Return a tensor of the model by its name, as doubles; somebody else may have scaled it."""
        return Value(self, self.op("Cast", Value(self, name), to=TensorProto.DOUBLE).name, _SCALED)

    def op(self, kind: str, *inputs: Any, domain: str = "", **attributes: Any) -> Value:
        """Add a node with one output."""
        return self.ops(kind, *inputs, n_outputs=1, domain=domain, **attributes)[0]

    def ops(
        self, kind: str, *inputs: Any, n_outputs: int, domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Add a node with several outputs."""
        names = [self.value(given).name for given in inputs]
        outputs = [self._unique(kind) for _ in range(n_outputs)]
        name = self.scope.get_unique_operator_name(kind)
        if self.outer is None:
            self.container.add_node(kind, names, outputs, op_domain=domain, name=name, **attributes)
        else:
            self._nodes.append(helper.make_node(kind, names, outputs, name=name, domain=domain, **attributes))
        return [Value(self, output, kind) for output in outputs]

    def value(self, given: Any) -> Value:
        """Return a value as it is, and numbers as a constant."""
        if isinstance(given, Value):
            return given
        return self.constant(np.asarray(float(given) if isinstance(given, int) else given))

    def constant(self, array: Array) -> Value:
        """Return a constant of the model: strings, integers and booleans as they are, other numbers as doubles."""
        if self.outer is not None:  # a loop sees the constants around it
            return Value(self, self.outer.constant(array).name)
        if array.dtype.kind not in "OUSib":
            array = array.astype(np.float64, copy=False)
        array = np.asarray(array, order="C")
        key = (
            array.dtype.str,
            array.shape,
            tuple(array.ravel()) if array.dtype.hasobject else sha256(array.data).digest(),
        )
        if key not in self.memo:
            tensor = numpy_helper.from_array(array.astype(object) if array.dtype.kind in "US" else array)
            name = self._unique("constant")
            if tensor.data_type == TensorProto.STRING:
                self.container.add_initializer(
                    name, TensorProto.STRING, array.shape, [str(text).encode() for text in array.ravel()]
                )
            else:
                self.container.add_initializer(name, tensor.data_type, array.shape, tensor)
            self.memo[key] = Value(self, name)
        return self.memo[key]

    def borrowed(self, value: Value) -> Value:
        """Return a value of the graph around this one, for use in the body of a loop, see `loop`."""
        return Value(self, value.name)

    def reduce(self, kind: str, value: Value, axis: int, keepdims: bool) -> Value:
        """Add a reduction along an axis."""
        if self.opset >= _AXES_AS_INPUT[kind]:
            return self.op(kind, value, np.array([axis]), keepdims=int(keepdims))
        return self.op(kind, value, axes=[axis], keepdims=int(keepdims))

    def loop(
        self,
        limit: int | Value,
        states: Sequence[Any],
        body: Callable[..., Sequence[Value]],
        *,
        until: Callable[..., Value] | None = None,
    ) -> list[Value]:
        """Return what becomes of the states, which are doubles, when ``body`` has been applied to them ``limit`` times.

        Parameters
        ----------
        limit : int or Value
            The number of rounds, at most.
        states : sequence of Value
            What the loop starts with. Its body sees constants, these, and what they or the limit are computed from, if
            it is `borrowed`; nothing else of the graph, as skl2onnx sorts nodes without a look into bodies.
        body : callable
            Is given the number of the round and the states; returns the states after it.
        until : callable or None
            Is given the states after a round; returns whether that was the last.
        """
        inside = Graph(self.scope, self.container, outer=self)
        step, going, *before = (
            Value(inside, self._unique(name)) for name in ("round", "going", *("state" for _ in states))
        )
        after = [inside.op("Identity", state) for state in body(step, *before)]
        more = inside.op("Identity", going) if until is None else inside.op("Not", until(*after))
        proto = inside._proto(
            [
                (step, TensorProto.INT64),
                (going, TensorProto.BOOL),
                *((s, TensorProto.DOUBLE) for s in before),
            ],
            [(more, TensorProto.BOOL), *((s, TensorProto.DOUBLE) for s in after)],
        )
        rounds = limit if isinstance(limit, Value) else np.array(limit)
        return self.ops("Loop", rounds, np.array(True), *states, n_outputs=len(before), body=proto)

    def each_row(self, rows: Value, length: int | None, body: Callable[[Value], Value]) -> Value:
        """Return what ``body`` makes of every row and of constants, a vector of this length; shape (n, length).

        The length is None where it is not known before.
        """
        inside = Graph(self.scope, self.container, outer=self)
        row = Value(inside, self._unique("row"))
        result = inside.op("Identity", body(row))
        proto = inside._proto([(row, TensorProto.DOUBLE)], [(result, TensorProto.DOUBLE)], [length])
        return self.op("Scan", rows, body=proto, num_scan_inputs=1)

    def _proto(
        self,
        inputs: list[tuple[Value, int]],
        outputs: list[tuple[Value, int]],
        shape: list[int | None] | None = None,
    ) -> GraphProto:
        """Return the nodes as the body of a loop; doubles that come out have this shape, all else are scalars."""
        # skl2onnx does not look into bodies, and would declare an older operator set if it could do with one.
        self.container.node_domain_version_pair_sets.add(("", self.opset))

        def infos(values: list[tuple[Value, int]], shape: list[int | None] | None) -> list[Any]:
            return [
                helper.make_tensor_value_info(value.name, kind, shape if kind == TensorProto.DOUBLE else [])
                for value, kind in values
            ]

        return helper.make_graph(
            self._nodes, self._unique("body"), infos(inputs, None), infos(outputs, shape)
        )

    def _unique(self, name: str) -> str:
        return self.scope.get_unique_variable_name(name)


class Value:
    """A tensor that the graph computes; what it offers means what it means for NumPy arrays."""

    __array_ufunc__ = None  # arrays leave the arithmetic to us

    def __init__(self, graph: Graph, name: str, kind: str = ""):
        self.graph, self.name = graph, name
        self._kind = kind  # of the node

    def __add__(self, other: Any) -> Value:
        if not isinstance(other, Value) and np.size(other) == 1 and not np.any(other):
            return self
        return self.graph.op("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.graph.op("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self._scaled("Mul", other)

    def __rmul__(self, other: Any) -> Value:
        return self._scaled("Mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._scaled("Div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.graph.op("Div", other, self)

    def __matmul__(self, other: Any) -> Value:
        left, right = (
            given._apart() if isinstance(given, Value) and given._kind == _SCALED else given
            for given in (self, other)
        )
        return self.graph.op("MatMul", left, right)

    def _scaled(self, kind: str, other: Any) -> Value:
        """Multiply or divide; see that onnxruntime does not take a number for the nearest float32."""
        if isinstance(other, Value) or np.size(other) != 1 or _is_power_of_two(other):
            return self.graph.op(kind, self, other)
        number = float(np.ravel(other)[0])
        if np.float32(number) == 1.0:  # which would be left out
            return self + self * ((number if kind == "Mul" else 1.0 / number) - 1.0)
        result = self.graph.op(kind, self._apart() if self._kind == "MatMul" else self, other)
        result._kind = _SCALED
        return result

    def _apart(self) -> Value:
        """Return the same through a node that onnxruntime does not fuse with its neighbours.

        Of a matrix product and a product with a number it makes one operation, in which the number is a float32.
        """
        return self.graph.op("Max", self, -np.inf)

    def __pow__(self, power: float) -> Value:
        return self.graph.op("Pow", self, float(power))

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def __gt__(self, other: Any) -> Value:
        return self.graph.op("Greater", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.graph.op("Less", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.graph.op("GreaterOrEqual", self, other)

    def __le__(self, other: Any) -> Value:
        return self.graph.op("LessOrEqual", self, other)

    def equals(self, other: Any) -> Value:
        """Return where two values are equal."""
        return self.graph.op("Equal", self, other)

    def choose(self, there: Any, elsewhere: Any) -> Value:
        """Return the one where this is true and the other where it is not."""
        return self.graph.op("Where", self, there, elsewhere)

    def as_double(self) -> Value:
        """Return numbers or truth values as doubles."""
        return self.graph.op("Cast", self, to=TensorProto.DOUBLE)

    def as_index(self) -> Value:
        """Return whole numbers as integers."""
        return self.graph.op("Cast", self, to=TensorProto.INT64)

    def exp(self) -> Value:
        """Return exponentials."""
        return self.graph.op("Exp", self)

    def log(self) -> Value:
        """Return natural logarithms."""
        return self.graph.op("Log", self)

    def absolute(self) -> Value:
        """Return absolute values."""
        return self.graph.op("Abs", self)

    def sign(self) -> Value:
        """Return −1, 0 or +1."""
        return self.graph.op("Sign", self)

    def square(self) -> Value:
        """Return squares."""
        return self * self

    def sqrt(self) -> Value:
        """Return square roots."""
        return self.graph.op("Sqrt", self)

    def sigmoid(self) -> Value:
        """Return 1/(1 + exp(−x)), to full precision on either side."""
        shrunk = self.graph.op("Exp", -self.absolute())
        return (self >= 0.0).choose(1.0, shrunk) / (1.0 + shrunk)

    def at_least(self, other: Any) -> Value:
        """Return the larger of two values, element by element."""
        return self.graph.op("Max", self, other)

    def at_most(self, other: Any) -> Value:
        """Return the smaller of two values, element by element."""
        return self.graph.op("Min", self, other)

    def sum(self, axis: int = 1, *, keepdims: bool = False) -> Value:
        """Return sums along an axis."""
        return self.graph.reduce("ReduceSum", self, axis, keepdims)

    def mean(self, axis: int = 1, *, keepdims: bool = False) -> Value:
        """Return means along an axis."""
        return self.graph.reduce("ReduceMean", self, axis, keepdims)

    def max(self, axis: int = 1, *, keepdims: bool = False) -> Value:
        """Return maxima along an axis."""
        return self.graph.reduce("ReduceMax", self, axis, keepdims)

    def min(self, axis: int = 1, *, keepdims: bool = False) -> Value:
        """Return minima along an axis."""
        return self.graph.reduce("ReduceMin", self, axis, keepdims)

    def log_sum_exp(self, axis: int = 1) -> Value:
        """Return the logarithms of sums of exponentials along an axis, which stays."""
        return self.graph.reduce("ReduceLogSumExp", self, axis, True)

    def log_softmax(self) -> Value:
        """Return the log-softmax of every row."""
        return self.graph.op("LogSoftmax", self, axis=1)

    def argmax(self) -> Value:
        """Return the place of the largest value of every row, the first of equal ones."""
        return self.graph.op("ArgMax", self, axis=1, keepdims=0)

    def take(self, places: Any, axis: int = 1) -> Value:
        """Return what is at these places along an axis."""
        return self.graph.op("Gather", self, places, axis=axis)

    def transposed(self, *axes: int) -> Value:
        """Return the value with its axes in another order."""
        return self.graph.op("Transpose", self, perm=list(axes))

    @property
    def T(self) -> Value:
        """The transpose of a matrix."""
        return self.transposed(1, 0)

    def part(self, start: Value, end: Value) -> Value:
        """Return what is between two places along the first axis, which are integers of shape (1,)."""
        return self.graph.op("Slice", self, start, end)

    def with_axis(self, *axes: int) -> Value:
        """Return the value with new axes of length one."""
        return self.graph.op("Unsqueeze", self, np.array(axes))

    def without_axis(self, axis: int) -> Value:
        """Return the value without an axis of length one."""
        return self.graph.op("Squeeze", self, np.array([axis]))

    def reshaped(self, *shape: int) -> Value:
        """Return the value in another shape; zero keeps a length, −1 takes what is left."""
        return self.graph.op("Reshape", self, np.array(shape))

    def beside(self, *others: Any, axis: int = 1) -> Value:
        """Return values joined along an axis."""
        return self.graph.op("Concat", self, *others, axis=axis) if others else self


def _is_power_of_two(number: Any) -> bool:
    """Return whether a number and its inverse are the same in float32."""
    return abs(float(np.frexp(np.ravel(number)[0])[0])) in (0.0, 0.5)
