"""Summaries: everything that a page shows, as plain lists, numbers and strings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from polymargin._version import __version__
from polymargin.comparison.codings import class_positions
from polymargin.comparison.standings import classifiers, shown_in_detail
from polymargin.report._model import model_parts
from polymargin.report._predictions import Predictions, prediction_parts
from polymargin.report._sentences import with_sentences
from polymargin.report._sets import set_part

if TYPE_CHECKING:
    import pandas as pd

    from polymargin.comparison.repeated import RepeatedComparison
    from polymargin.comparison.standings import Standing

__all__ = ["compare_summary", "fit_summary"]

Array = NDArray[Any]

#: Of a row that is listed so many features are shown.
_SHOWN_FEATURES = 4


def fit_summary(
    model: Pipeline,
    X: pd.DataFrame,
    y: ArrayLike,
    *,
    title: str,
    log_proba: Array,
    classes: Array,
    notes: Sequence[str] = (),
    row_numbers: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    cells: ArrayLike | None = None,
) -> dict[str, Any]:
    """Summarise a fitted model.

    Parameters
    ----------
    model : Pipeline
        Fitted; its last step is one of the package's classifiers.
    X : DataFrame of shape (n, d)
        What it was fitted on.
    y : array-like of shape (n,)
        The labels.
    title : str
        What the page is called.
    log_proba : ndarray of shape (n, K)
        Out-of-sample log-probabilities: those of a row come from a model that was not fitted on it.
    classes : ndarray of shape (K,)
        What the columns of `log_proba` stand for.
    notes : sequence of str
        What the reader should know of how the model was made.
    row_numbers : array-like of int, shape (n,), or None
        The numbers that messages call the rows by; 1, …, n unless given.
    sample_weight : array-like of shape (n,), or None
        How much the rows count in the scores.
    cells : array-like of int, shape (n,), or None
        If `log_proba` leaves one row out at a time: the same number for rows that are equal in X, see
        `polymargin.metrics.leave_halves_out`.

    Returns
    -------
    dict
        Plain values, which `json.dumps` takes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf")).fit(X, y)
    >>> summary = fit_summary(
    ...     model, X, y, title="iris", log_proba=model[-1].loo_log_proba_, classes=model.classes_
    ... )
    >>> summary["kind"], summary["scores"]["rows"], summary["scores"]["accuracy"] > 0.9
    ('fit', 150, True)
    """
    order, labels = np.asarray(classes), np.asarray(y)
    feature_names = [str(name) for name in getattr(X, "columns", range(1, X.shape[1] + 1))]
    numbers = np.arange(1, len(labels) + 1) if row_numbers is None else np.asarray(row_numbers)
    predictions = Predictions(
        class_index=class_positions(labels, order),
        labels=np.exp(log_proba).argmax(axis=1),
        log_proba=np.asarray(log_proba),
        row=numbers,
        classes=[str(name) for name in order.tolist()],
        weights=None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64),
        cells=None if cells is None else np.asarray(cells),
    )
    summary = {
        "kind": "fit",
        **_heading(title, notes, predictions, feature_names),
        **prediction_parts(predictions),
        "sets": None if predictions.log_proba is None else set_part(predictions),
        "model": model_parts(model, X, labels, feature_names),
        "ranking": None,
        "classifiers": [],
        "rows_of_file": row_numbers is not None,
    }
    dates = _date_columns(model)
    return with_sentences(_with_features(_numbered(summary, numbers), X, feature_names, numbers, dates))


def compare_summary(
    comparison: RepeatedComparison, ranking: Sequence[Standing], *, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Summarise a comparison: the ranking, the predictions of the best model, and that model fitted to all rows.

    The model is the best of this package's classifiers; if only one was compared, its best coding and decoding. Every
    test of a row counts, so that a row that was tested in several splits is counted as often; only the lists of single
    rows take a row once.

    Parameters
    ----------
    comparison : RepeatedComparison
        What was run.
    ranking : sequence of Standing
        The best first, see `polymargin.comparison.standings.standings`.
    notes : sequence of str
        What else the reader should know.

    Returns
    -------
    dict
        Plain values, which `json.dumps` takes.

    Examples
    --------
    >>> from polymargin.comparison.repeated import RepeatedComparison
    >>> from polymargin.comparison.standings import standings
    >>> from polymargin.datasets import load
    >>> comparison = RepeatedComparison(load("iris"), ["ls-svm"], ["minimal"], ["bayes"], repeats=2)
    >>> rows = [row for job in comparison.jobs() for row in comparison.run(job)]
    >>> summary = compare_summary(comparison, standings(comparison, rows))
    >>> summary["kind"], summary["scores"]["predictions"]
    ('compare', 100)
    """
    dataset, best = comparison.dataset, shown_in_detail(ranking)
    numbers = np.asarray(dataset.extras.get("row", np.arange(1, len(dataset.y) + 1)))
    tests = best.tests
    predictions = Predictions(
        tests.class_index,
        tests.labels,
        tests.log_proba,
        numbers[tests.row],
        [str(name) for name in comparison.classes.tolist()],
    )
    feature_names = [str(name) for name in dataset.feature_names]
    left_out = (
        [f"Rows without a label, which were left out: {dataset.unlabelled}."] if dataset.unlabelled else []
    )
    summary = {
        "kind": "compare",
        **_heading(dataset.name, [*left_out, *notes], predictions, feature_names),
        "splits": comparison.repeats,
        "test_size": comparison.test_size,
        "kernel": comparison.kernel,
        "best": str(best.method),
        "rows_of_file": "row" in dataset.extras,
        "ranking": [{"name": str(standing.method), **standing.as_json()} for standing in ranking],
        "classifiers": [
            {"name": str(standing.method), **standing.as_json()} for standing in classifiers(ranking)
        ],
        **prediction_parts(predictions),
        "sets": None if predictions.log_proba is None else set_part(predictions),
        "model": model_parts(comparison.model(best.method), dataset.X, dataset.y, feature_names),
    }
    summary["data"]["rows"] = len(dataset.y)
    numbered, dates = _numbered(summary, numbers), set(dataset.dates)
    return with_sentences(_with_features(numbered, dataset.X, feature_names, numbers, dates))


def _heading(
    title: str, notes: Sequence[str], predictions: Predictions, feature_names: list[str]
) -> dict[str, Any]:
    return {
        "title": title,
        "notes": [str(note) for note in notes],
        "classes": predictions.classes,
        "data": {
            "rows": int(predictions.rows[0].size),
            "features": len(feature_names),
            "feature_names": feature_names,
        },
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _with_features(
    summary: dict[str, Any], X: Any, feature_names: list[str], numbers: Array, dates: Collection[str]
) -> dict[str, Any]:
    """Add the most relevant features of the rows that are listed, as texts; columns of days are dates."""
    relevance = summary["model"]["relevance"]
    order = [row["name"] for row in relevance["rows"]] if relevance else []
    chosen = [name for name in order if name in feature_names] or feature_names
    places = [feature_names.index(name) for name in chosen[:_SHOWN_FEATURES]]
    place_of = {int(number): i for i, number in enumerate(numbers)}
    values = X.to_numpy(dtype=object) if hasattr(X, "to_numpy") else np.asarray(X, dtype=object)
    for row in (*(summary["uncertain"] or ()), *(summary["wrong"] or ())):
        cells = values[place_of[row["row"]]]
        row["features"] = [
            {"name": feature_names[j], "value": _cell(cells[j], feature_names[j] in dates)} for j in places
        ]
    summary["features_left_out"] = len(feature_names) - len(places)
    return summary


def _date_columns(model: Pipeline) -> set[str]:
    """Return the columns of days since 1970 in what a pipeline takes, where its first step tells."""
    kinds = getattr(model[0], "columns", None)
    return (
        {name for name, kind in kinds.items() if kind in ("date", "time")}
        if isinstance(kinds, dict)
        else set()
    )


def _cell(value: Any, is_date: bool = False) -> str:
    """Write a value of the data; what is missing is a question mark.

    >>> _cell(0.30000000000000004), _cell(None), _cell("red"), _cell(19394.0, True), _cell(19394.5, True)
    ('0.3', '?', 'red', '2023-02-06', '2023-02-06 12:00')
    """
    if value is None or value != value:
        return "?"
    if is_date and isinstance(value, int | float | np.number):
        minutes = np.datetime64(round(float(value) * 24 * 60), "m").astype(object)
        return f"{minutes:%Y-%m-%d}" if float(value).is_integer() else f"{minutes:%Y-%m-%d %H:%M}"
    return f"{value:.6g}" if isinstance(value, int | float | np.number) else str(value)


def _numbered(summary: dict[str, Any], numbers: Array) -> dict[str, Any]:
    """Add the numbers of their rows to the points of the plane."""
    regions = summary["model"]["regions"]
    if "point_rows" in regions:
        regions["point_rows"] = [int(numbers[row]) for row in regions["point_rows"]]
    return summary
