"""``polymargin export``: a model file as an ONNX file, which runs without Python."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polymargin.cli._console import USAGE, check_outputs, fail, note, reported, results

if TYPE_CHECKING:  # importing onnx at run time would make every command slow to start
    from onnx import ModelProto

    from polymargin.onnx import Agreement

__all__ = ["command"]

#: A model that differs by more from its original is not written.
_DIFFERENT = 1e-5
#: The largest number of inputs that are listed.
_LISTED = 20


def command(
    model: Annotated[Path, typer.Argument(help="The model file that `polymargin fit` has written.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The ONNX file; named after the model unless given."),
    ] = None,
    float64: Annotated[
        bool, typer.Option("--float64", help="Take and give float64 rather than float32.")
    ] = False,
    zipmap: Annotated[
        bool,
        typer.Option(
            "--zipmap/--no-zipmap", help="Give dictionaries from labels to probabilities, not an array."
        ),
    ] = False,
    opset: Annotated[
        int | None, typer.Option("--opset", help="The operator set of the file, 13 or newer.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a model as an ONNX file, after a check on random rows that both give the same predictions.

    The file has one input for all columns or, for a model that [bold]polymargin fit[/bold] has learned from a table,
    one of shape (rows, 1) for every column, under the column's name. A missing number is NaN, a missing text the
    empty text.

    Example: [bold]polymargin export flowers.skops -o flowers.onnx[/bold]
    """
    output = output or model.with_suffix(".onnx")
    if output.suffix != ".onnx":
        fail(f"{output} does not end in .onnx; name the file to write {output.stem}.onnx", USAGE)
    check_outputs([output], [model])
    with reported():
        document = _export(model, output, float64=float64, zipmap=zipmap, opset=opset)
        if as_json:
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        else:
            _print(document)


def _export(path: Path, output: Path, **parameters: Any) -> dict[str, Any]:
    """Convert, check and write a model; return a summary as plain JSON."""
    import polymargin
    from polymargin._output import write_atomically
    from polymargin.onnx import to_onnx

    fitted = polymargin.load(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of skl2onnx, about which the user can do nothing
            converted = to_onnx(fitted, **parameters)
    except RuntimeError as error:  # what skl2onnx raises where it cannot convert a step
        fail(f"{path} cannot be converted: {str(error).strip().splitlines()[0]}")
    agreement = _checked(fitted, converted)
    data = converted.SerializeToString()
    write_atomically(output, data)
    return {
        "model": str(path),
        "file": str(output),
        "bytes": len(data),
        "opset": next(entry.version for entry in converted.opset_import if entry.domain == ""),
        "inputs": [_tensor(given) for given in converted.graph.input],
        "outputs": [_tensor(given) for given in converted.graph.output],
        "classes": fitted.classes_.tolist(),
        "check": None if agreement is None else asdict(agreement),
    }


def _checked(fitted: Any, converted: ModelProto) -> Agreement | None:
    """Return how well the two agree, None if that cannot be found out here; fail if they do not."""
    from polymargin.onnx import check

    try:
        agreement = check(fitted, converted)
    except ImportError as error:
        note(f"the file is not checked ({error}): install polymargin with its onnx and tables extras")
        return None
    if agreement.largest_difference > _DIFFERENT:
        fail(f"the converted model differs by {agreement.largest_difference:.1e}; nothing was written")
    return agreement


def _tensor(given: Any) -> dict[str, Any]:
    """Return name, type and shape of an input or output."""
    from onnx import TensorProto

    if not given.type.HasField("tensor_type"):
        return {"name": given.name, "type": "dictionaries"}
    tensor = given.type.tensor_type
    shape = [dimension.dim_value or None for dimension in tensor.shape.dim]
    return {"name": given.name, "type": TensorProto.DataType.Name(tensor.elem_type).lower(), "shape": shape}


def _print(document: dict[str, Any]) -> None:
    console = results()
    console.print(
        f"{document['file']}: {document['bytes'] / 1e6:.3g} MB, opset {document['opset']}", markup=False
    )
    for kind in ("inputs", "outputs"):
        tensors = document[kind]
        console.print(f"{kind}:")
        for tensor in tensors[:_LISTED]:
            shape = " × ".join("rows" if size is None else str(size) for size in tensor.get("shape", ()))
            console.print(f"  {tensor['name']!r}  {tensor['type']}  {shape}".rstrip(), markup=False)
        if len(tensors) > _LISTED:
            console.print(f"  and {len(tensors) - _LISTED} more (--json lists them all)")
    checked = document["check"]
    if checked is not None:
        console.print(
            f"checked on {checked['n_rows']} random rows: largest difference {checked['largest_difference']:.1e}, "
            f"{checked['equal_labels']:.0%} of the labels equal"
        )
