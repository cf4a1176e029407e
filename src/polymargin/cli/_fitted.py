"""What is said, saved and reported of a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polymargin.cli._console import fail
from polymargin.cli._models import chosen
from polymargin.cli._progress import show_steps
from polymargin.cli._quality import Honest, by_folds, by_leave_one_out, scores

if TYPE_CHECKING:  # importing pandas for good would make every command slow to start
    from polymargin.tables import Examples

__all__ = ["document_of", "honest_of", "relevance_of", "save_model", "write_report"]


def honest_of(pipeline: Any, examples: Examples, seed: int) -> Honest:
    """Return the predictions of rows that a model has not seen: by leave-one-out, or in folds."""
    found = by_leave_one_out(pipeline[-1])
    if found is not None:
        return found
    with show_steps("measuring the quality in folds") as advance:
        return by_folds(pipeline, examples, seed, advance)


def document_of(
    model: str,
    pipeline: Any,
    examples: Examples,
    honest: Honest,
    output: Path,
    seconds: float,
    n_rows: int | None = None,
) -> dict[str, Any]:
    """Return all that is printed and saved with the model, as plain JSON; n_rows if the examples are a sample."""
    from polymargin.tables import TableReader

    class_index = np.searchsorted(pipeline.classes_, examples.labels)[honest.rows]
    weights = None if examples.weights is None else examples.weights[honest.rows]
    return {
        "data": examples.name,
        "target": examples.target,
        "n_rows": int(examples.labels.size) if n_rows is None else n_rows,
        "columns": TableReader(pipeline).kinds,
        "classes": pipeline.classes_.tolist(),
        "n_features": int(pipeline[-1].n_features_in_),
        **({} if examples.groups is None else {"n_groups": int(np.unique(examples.groups).size)}),
        "left_out": dict(examples.left_out),
        "notes": list(examples.notes),
        "model": model,
        "estimator": type(pipeline[-1]).__name__,
        "chosen": chosen(pipeline[-1]),
        "quality": {
            "method": honest.method,
            **scores(class_index, honest.predicted, honest.log_proba, weights, honest.cells),
        },
        "seconds": round(seconds, 3),
        "file": str(output),
    }


def relevance_of(pipeline: Any) -> dict[str, Any] | None:
    """Return how much the model depends on every column, as plain JSON; None if it does not tell."""
    from polymargin.inspection import feature_relevance

    try:
        found = feature_relevance(pipeline)
    except AttributeError:
        return None
    return {**found.to_dict(), "negligible": list(found.negligible)}


def save_model(pipeline: Any, output: Path, document: dict[str, Any]) -> None:
    """Save a model, with what was found as its summary."""
    import polymargin

    try:
        polymargin.save(pipeline, output, summary=document)
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror or error}")


def write_report(pipeline: Any, examples: Examples, honest: Honest, path: Path) -> Path:
    """Write the page about a model, and return its path."""
    from polymargin import report

    if honest.log_proba is None:
        raise ValueError("a report is about probabilities, and this decoding gives none; leave --report out")
    summary = report.fit_summary(
        pipeline,
        examples.frame.iloc[honest.rows].reset_index(drop=True),
        examples.labels[honest.rows],
        title=f"{examples.name}: {examples.target}",
        log_proba=honest.log_proba,
        classes=pipeline.classes_,
        notes=[*examples.notes, f"Probabilities of the training rows: {honest.method}."],
        row_numbers=examples.row_numbers[honest.rows] + examples.first_row,
        sample_weight=None if examples.weights is None else examples.weights[honest.rows],
        cells=honest.cells,
    )
    return report.write_page(summary, path)
