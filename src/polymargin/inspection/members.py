"""The members of a pool: their names in tables and reports, and the rows that they were fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline


def member_name(member: Any) -> str:
    """Return a fitted member in a few words: kernel and coding, or its class; the steps of a pipeline.

    Parameters
    ----------
    member : classifier
        A fitted member of an `AutoKernelClassifier`.

    Returns
    -------
    str

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from polymargin import LSSVMClassifier
    >>> X, y = [[0.0], [1.0], [2.0]], [0, 1, 1]
    >>> member_name(LSSVMClassifier(C=1.0, kernel="linear").fit(X, y))
    'linear, one-vs-one'
    >>> member_name(make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(X, y))
    'StandardScaler, DecisionTreeClassifier'
    """
    if isinstance(member, Pipeline):
        return ", ".join(member_name(step) for _, step in member.steps if hasattr(step, "fit"))
    if not hasattr(member, "kernel_") or not hasattr(member.kernel_, "name"):
        return type(member).__name__
    coding = coding_name(member)
    return f"{member.kernel_.name}, {coding}" if coding else member.kernel_.name


def kernel_members(estimator: Any) -> list[Any]:
    """Return the members of a pool that have machines, bare `LSSVMClassifier` objects; else the estimator itself."""
    members = getattr(estimator, "members_", None)
    return [estimator] if members is None else [member for member in members if hasattr(member, "bank_")]


def training_rows(estimator: Any) -> Any:
    """Return the `TrainingRows` that a pool or an estimator with machines was fitted to; None if it keeps none."""
    data = getattr(estimator, "_data", None)
    if data is None:  # also pools from older files, whose members have them
        banks: list[Any] = [getattr(member, "bank_", None) for member in kernel_members(estimator)]
        data = next((bank.data for bank in banks if hasattr(bank, "data")), None)
    return data


def coding_name(estimator: Any) -> str:
    """Return the coding of a fitted estimator in a word; empty if it has none."""
    return in_a_word(coding_of(estimator))


def coding_of(estimator: Any) -> Any:
    """Return the coding of a fitted estimator, chosen or given; the empty string if it has none."""
    return getattr(estimator, "coding_", getattr(estimator, "machine", ""))


def in_a_word(value: Any) -> str:
    """Return a parameter in a few words: its text, the name of a function or of a class."""
    if isinstance(value, str):
        return value
    return getattr(
        value, "__name__", "matrix" if isinstance(value, list | np.ndarray) else type(value).__name__
    )
