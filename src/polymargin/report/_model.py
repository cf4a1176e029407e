"""A fitted model as plain values: its parameters, relevance, codebook, the search, decision regions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

from polymargin.comparison.codings import class_positions
from polymargin.inspection import feature_relevance, selection_surface
from polymargin.inspection.html import SELECTIONS, choices
from polymargin.inspection.members import coding_of, kernel_members, member_name
from polymargin.inspection.tried import in_words, one_or_range, searches
from polymargin.plots import decision_regions
from polymargin.plots.regions import DecisionRegions

Array = NDArray[Any]
Section = dict[str, Any]

_SHOWN_MACHINES = 400
_SHOWN_POINTS = 800
_SHOWN_COLUMNS, _DRAWN_COLUMNS = 200, 20
#: A plane of principal components is drawn if this share of the rows lies on the class that is predicted for them.
_FAITHFUL = 0.8
_FINE, _COARSE, _MANY_ROWS = 84, 40, 1500


def model_parts(model: Pipeline, X: Any, y: Any, feature_names: list[str]) -> Section:
    """Return the parts of a summary that a fitted pipeline gives.

    Parameters
    ----------
    model : Pipeline
        Fitted; its last step is one of the package's classifiers.
    X : DataFrame or array of shape (n, d)
        What it was fitted on.
    y : array-like of shape (n,)
        The labels.
    feature_names : list of str
        The columns of X.
    """
    estimator = model[-1]
    return {
        "estimator": type(estimator).__name__,
        "choices": [{"name": name, "value": value} for name, value in choices(estimator)],
        "members": _members(estimator),
        "tried": _tried(estimator),
        "relevance": _relevance(model, feature_names),
        "codebook": _codebook(estimator),
        "surface": _surface(estimator),
        "regions": _regions(model, X, y, feature_names),
    }


def _members(estimator: Any) -> list[Section] | None:
    """Return the members of a pool, least log-loss first."""
    if not hasattr(estimator, "members_"):
        return None
    rows = [
        {
            "name": member_name(member),
            "loss": float(loss),
            "weight": float(weight),
        }
        for member, loss, weight in zip(
            estimator.members_, estimator.member_losses_, estimator.weights_, strict=True
        )
    ]
    return sorted(rows, key=lambda row: row["loss"])


def _tried(estimator: Any) -> Section | None:
    """Return the kernels and values of C that were compared, by the members of a pool too."""
    found = searches(estimator)
    if not found:
        return None
    return {
        "loss_name": found[0].loss_name,
        "proposed_by": SELECTIONS[getattr(kernel_members(estimator)[0], "selection", None)],
        "n_rows": found[0].n_rows if found[0].sampled else None,
        "of_members": hasattr(estimator, "members_"),
        "with_metric": _with_metric(estimator),
        "rows": [
            {
                **row,
                "member": search.model,
                "C": in_words(row["C"]),
                "gamma": in_words(row["gamma"]),
                "least_C": float(np.min(row["C"])),
                "least_gamma": None if row["gamma"] is None else float(np.min(row["gamma"])),
            }
            for search in found
            for row in search.rows
        ],
    }


def _with_metric(estimator: Any) -> list[Section]:
    """Return kernel, C and gamma of the machines with a learned metric, which was learned after the search."""
    kept = [
        member
        for member in kernel_members(estimator)
        if (found := getattr(member, "metric_results_", None)) is not None and not found["chosen"][0]
    ]
    return [
        {
            "name": member_name(member),
            "C": in_words(one_or_range(member.C_)),
            "gamma": in_words(one_or_range(member.gamma_)) if member.kernel_.tunable else None,
        }
        for member in kept
    ]


def _relevance(model: Pipeline, feature_names: list[str]) -> Section | None:
    """Return the columns that the model depends on, most relevant first; None if it has no relevances."""
    try:
        found = feature_relevance(model, feature_names)
    except AttributeError:
        return None
    except ValueError:  # a step does not tell what becomes of these columns
        found = feature_relevance(model)
    table = found.to_dict()
    return {
        "columns": len(found.names),
        "drawn": min(len(found.names), _DRAWN_COLUMNS),
        "drawn_share": sum(table["relevance"][:_DRAWN_COLUMNS]),
        "rows": [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)][
            :_SHOWN_COLUMNS
        ],
        "negligible": len(found.negligible),
        "spread_known": found.std is not None,
    }


def _codebook(estimator: Any) -> Section | None:
    """Return the different codebooks of an estimator or of a pool's members; None where there are no dichotomies."""
    members = [member for member in kernel_members(estimator) if hasattr(member, "codebook_")]
    if not members:  # kernel logistic regression has no dichotomies
        return None
    views: list[Section] = []
    for member in members:
        matrix = np.asarray(member.codebook_.matrix)
        view = {
            "name": str(coding_of(member)),
            "machines": int(matrix.shape[1]),
            "matrix": matrix[:, :_SHOWN_MACHINES].tolist(),
        }
        if view not in views:
            views.append(view)
    return {"views": views}


def _surface(estimator: Any) -> Section:
    """Return the criterion over C and gamma, or why there is none; of a pool that of its heaviest kernel member."""
    of = None
    if hasattr(estimator, "members_"):
        weights = {
            id(member): weight for member, weight in zip(estimator.members_, estimator.weights_, strict=True)
        }
        members = kernel_members(estimator)
        if not members:
            return {"missing": "no member of this pool selects C and gamma by itself"}
        estimator = max(members, key=lambda member: weights[id(member)])
        of = member_name(estimator)
    try:
        found = selection_surface(estimator)
    except ValueError as error:
        return {"missing": str(error)}
    return {
        "of": of,
        "criterion": found.criterion,
        "label": found.label,
        "greater_is_better": found.greater_is_better,
        "C": found.C.tolist(),
        "gamma": found.gamma.tolist(),
        "values": [[float(v) if np.isfinite(v) else None for v in row] for row in found.values],
        "chosen_C": found.chosen_C.tolist(),
        "chosen_gamma": found.chosen_gamma.tolist(),
        "shrinkage": found.shrinkage,
    }


def _regions(model: Pipeline, X: Any, y: Any, feature_names: list[str]) -> Section:
    """Return the most probable class and its probability on a grid, or why there is none."""
    resolution = _FINE if len(y) <= _MANY_ROWS else _COARSE
    numeric = _two_numbers(X)
    try:
        if numeric:
            found = decision_regions(model, X, y, resolution=resolution)
        else:
            prepared = model[:-1].transform(X) if len(model) > 1 else X
            found = decision_regions(model[-1], prepared, y, resolution=resolution)
    except ValueError as error:
        return {"missing": str(error)}
    assert found.labels is not None
    agreement = None if numeric else _agreement(model, X, found)
    if agreement is not None and agreement < _FAITHFUL:
        return {
            "missing": (
                f"on the plane of the first two principal components only {agreement:.0%} of the rows lie on the "
                "colour of their own prediction, so that a picture would mislead"
            )
        }
    shown = np.arange(len(found.points))
    if shown.size > _SHOWN_POINTS:
        shown = np.sort(np.random.default_rng(0).choice(shown, _SHOWN_POINTS, replace=False))
    return {
        "plane": "features" if numeric else "components",
        "agreement": agreement,
        "axis_names": feature_names[:2] if numeric else list(found.axis_names),
        "x": found.x.tolist(),
        "y": found.y.tolist(),
        "label": found.proba.argmax(axis=2).tolist(),
        "probability": np.round(found.proba.max(axis=2), 4).tolist(),
        "rows": len(found.points),
        "points": found.points[shown].tolist(),
        "point_rows": shown.tolist(),
        "point_classes": found.labels[shown].tolist(),
    }


def _agreement(model: Pipeline, X: Any, found: DecisionRegions) -> float:
    """Return the share of rows whose prediction is the class of the plane where they are drawn."""
    rows = np.arange(len(found.points))
    if rows.size > _SHOWN_POINTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, _SHOWN_POINTS, replace=False))
    predicted = class_positions(model.predict(_safe_indexing(X, rows)), found.classes)
    across, up = (
        np.abs(grid[np.newaxis, :] - found.points[rows, axis, np.newaxis]).argmin(axis=1)
        for axis, grid in enumerate((found.x, found.y))
    )
    return float(np.mean(found.proba.argmax(axis=2)[up, across] == predicted))


def _two_numbers(X: Any) -> bool:
    """Tell whether X has two features, both numbers and without gaps."""
    if X.shape[1] != 2:
        return False
    try:
        return bool(np.isfinite(np.asarray(X, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return False
