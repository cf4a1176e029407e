"""The candidates of a fit's search, ``search_results_``, in plain values for notebooks and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin.inspection.members import coding_of, kernel_members


@dataclass(frozen=True)
class Tried:
    """The candidates of one search.

    Attributes
    ----------
    model : str
        Kernel and coding of the estimator.
    loss_name : str
        What the candidates were compared by.
    n_rows : int
        On how many of the training rows.
    sampled : bool
        Whether there are more training rows than these.
    rows : list of dict
        The candidates, least loss first: "kernel", "C" and "gamma" (a number, the least and the largest where machines
        differ, or None where the kernel has no gamma), "smaller_C" (how many times smaller C is than the one of the
        least leave-one-out errors), "loss" and "chosen".
    """

    model: str
    loss_name: str
    n_rows: int
    sampled: bool
    rows: list[dict[str, Any]]

    @property
    def chosen(self) -> dict[str, Any]:
        """The candidate that was chosen."""
        return next(row for row in self.rows if row["chosen"])

    @property
    def runner_up(self) -> dict[str, Any] | None:
        """The best candidate of another kernel; of another C where there is one kernel only; None without any."""
        chosen = self.chosen
        others = [row for row in self.rows if row is not chosen]
        of_other_kernels = [row for row in others if row["kernel"] != chosen["kernel"]]
        return next(iter(of_other_kernels or others), None)


def searches(estimator: Any) -> list[Tried]:
    """Return the searches of an estimator, or of every member of a pool.

    Parameters
    ----------
    estimator : LSSVMClassifier or AutoKernelClassifier
        The fitted estimator.

    Returns
    -------
    list of Tried
        Empty if no candidates were compared.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from polymargin import LSSVMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> (found,) = searches(LSSVMClassifier().fit(scale(X), y))
    >>> found.loss_name, found.n_rows, sorted({row["kernel"] for row in found.rows})
    ('cross-fitted log-loss', 178, ['blend', 'poly, degree 2'])
    """
    found = [_tried(member) for member in kernel_members(estimator)]
    return [tried for tried in found if tried is not None]


def _tried(estimator: Any) -> Tried | None:
    table = getattr(estimator, "search_results_", None)
    if table is None:
        return None
    columns = {name: table[name] for name in ("kernel", "C", "gamma", "smaller_C", "loss", "chosen")}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        row |= {name: float(row[name]) for name in ("smaller_C", "loss")}
        row["C"], row["chosen"] = one_or_range(row["C"]), bool(row["chosen"])
        row["gamma"] = one_or_range(row["gamma"]) if estimator.kernel_.tunable else None
    decoder, n_rows, coding = estimator.decoder_, int(table["n_rows"][0]), coding_of(estimator)
    by_log_loss = decoder.learns_probabilities and not decoder.in_sample
    return Tried(
        f"{estimator.kernel_.name}, {coding if isinstance(coding, str) else 'own coding'}",
        "cross-fitted log-loss" if by_log_loss else "mean squared leave-one-out error",
        n_rows,
        n_rows < len(estimator.support_),
        sorted(rows, key=lambda row: row["loss"]),
    )


def one_or_range(values: Any) -> float | list[float]:
    """Return the number that all machines share, or the least and the largest."""
    least, largest = float(np.min(values)), float(np.max(values))
    return least if least == largest else [least, largest]


def in_words(value: float | list[float] | None) -> str:
    """Return C or gamma of a candidate in a few characters.

    Examples
    --------
    >>> in_words(0.125), in_words([1.0, 2.5]), in_words(None)
    ('0.125', '1 to 2.5', '–')
    """
    if value is None:
        return "–"
    return " to ".join(f"{number:.4g}" for number in value) if isinstance(value, list) else f"{value:.4g}"
