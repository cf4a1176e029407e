"""What a model file says about its model, to be read without loading it."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from polymargin._version import __version__
from polymargin.persistence._errors import ModelFileError

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "skops")


def library_versions() -> dict[str, str]:
    """Return the versions of everything that a model file depends on."""
    versions = {"polymargin": __version__, "python": platform.python_version()}
    return versions | {name: importlib.metadata.version(name) for name in _LIBRARIES}


def training_summary(model: Any) -> dict[str, Any]:
    """Return what a fitted model is and what it was trained on, as plain JSON.

    Examples
    --------
    >>> from polymargin import KNNPosterior
    >>> training_summary(KNNPosterior(1).fit([[0.0], [1.0]], ["a", "b"]))
    {'model': 'KNNPosterior', 'estimator': 'KNNPosterior(n_neighbors=1)', 'classes': ['a', 'b'], 'n_features': 1,
     'n_rows': 2}
    """
    last = model
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    facts = {
        "model": _name(model),
        "estimator": repr(last),
        "classes": _labels(getattr(last, "classes_", None)),
        "n_features": getattr(model, "n_features_in_", None),
        "feature_names": getattr(model, "feature_names_in_", None),
        "n_rows": _n_rows(last),
        **_machines(last),
        "members": _members(last),
        "loo_log_loss": getattr(last, "loo_log_loss_", None),
    }
    return {name: plain(value, name) for name, value in facts.items() if value is not None}


def plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it, or refuse it by name.

    Examples
    --------
    >>> plain({"rows": np.int64(3), "shares": np.array([0.5, 0.5])}, "summary")
    {'rows': 3, 'shares': [0.5, 0.5]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    raise ModelFileError(
        f"{where} is of the type {type(value).__name__}: give numbers, texts, and lists and dictionaries of them"
    )


def _name(model: Any) -> str:
    """Return the class of a model, with those of its steps."""
    steps = [_name(step) for _, step in getattr(model, "steps", ()) if hasattr(step, "fit")]
    return type(model).__name__ + (f"({', '.join(steps)})" if steps else "")


def _labels(classes: Any) -> list[Any] | None:
    """Return the class labels, as texts where JSON has no such thing."""
    if classes is None:
        return None
    values = np.asarray(classes).tolist()
    return [value if isinstance(value, str | bool | int | float) else repr(value) for value in values]


def _n_rows(estimator: Any) -> int | None:
    """Return the number of training rows that count, where an estimator tells."""
    for each in (estimator, *estimator.__dict__.get("members_", ())):
        plan = getattr(each, "plan_", None)
        if plan is not None and plan.scale != "exact":  # the others are a sample
            return int(plan.n_rows)
    for name in ("_trained_rows", "loo_log_proba_"):
        rows = estimator.__dict__.get(name)
        if rows is not None:
            return len(rows)
    kept = estimator.__dict__.get("_kept")
    return None if kept is None else int(kept.sum())


def _machines(estimator: Any) -> dict[str, Any]:
    """Return the kernel and its parameters, where an estimator has them, and how its machines are read."""
    kernel = getattr(estimator, "kernel_", None)
    codebook = getattr(estimator, "codebook_", None)
    return {
        "kernel": getattr(kernel, "name", None),
        "C": _one_or_all(getattr(estimator, "C_", None)),
        "gamma": _one_or_all(getattr(estimator, "gamma_", None)),
        "n_machines": getattr(codebook, "n_columns", None),
        "decoder": repr(estimator.decoder_) if hasattr(estimator, "decoder_") else None,
    }


def _members(estimator: Any) -> list[dict[str, Any]] | None:
    """Return the same of the members of a pool, with their weights."""
    members = getattr(estimator, "members_", None)
    if members is None:
        return None
    return [
        {"model": _name(member), **_machines(member), "weight": weight}
        for member, weight in zip(members, estimator.weights_, strict=True)
    ]


def _one_or_all(values: Any) -> Any:
    """Return the value that all machines share, or the values of all machines."""
    if values is None:
        return None
    different = np.unique(values)
    return float(different[0]) if different.size == 1 else np.asarray(values)
