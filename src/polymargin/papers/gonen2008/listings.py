"""What is printed beside the tables: the configurations chosen, and the paper's tests."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.metrics import (
    five_by_two_f_test,
    mcnemar_test,
    sign_test,
    verdict,
    wilcoxon_test,
    wins_ties_losses,
)
from polymargin.metrics.significance import Better, TestResult, WinsTiesLosses
from polymargin.papers.gonen2008.rows import FOLDS, TEST
from polymargin.reproduction import Listing, Row

__all__ = [
    "Outcome",
    "Results",
    "capped_listing",
    "choice_listing",
    "outcome_listing",
    "protocol_listing",
    "run_test",
    "unpack",
]

_PACKAGE = "polymargin.papers.gonen2008"
_TITLES = {
    "f-test": "5×2 cv paired F test",
    "mcnemar": "McNemar's test",
    "direct": "direct comparison",
    "wilcoxon": "Wilcoxon's signed rank test",
}
_COLUMNS = (
    "validation accuracy",
    "validation support",
    "test accuracy",
    "test support",
    "density validation",
    "density test",
)
_FULL_GRID = 13


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test over datasets: wins, ties and losses, or W, T or L; starred if wins or losses prevail."""

    text: str
    starred: bool = False

    def __str__(self) -> str:
        return self.text + ("*" if self.starred else "")


class Results:
    """The finished rows of a table, by dataset, method, phase and metric.

    Parameters
    ----------
    rows : iterable of dict
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[tuple[str, str, str, str, int], Row] = {
            (row["dataset"], row["method"], row["phase"], row["metric"], int(row["fold"])): row
            for row in rows
        }
        self.datasets = list(dict.fromkeys(key[0] for key in self._rows))

    def row(self, dataset: str, method: str) -> Row:
        """Return the row of the test accuracy, which holds the configuration."""
        return self._rows[dataset, method, "test", "accuracy", TEST]

    def folds(self, dataset: str, method: str, metric: str, field: str = "value") -> NDArray[np.float64]:
        """Return a field of the ten folds, shape (5, 2)."""
        rows = [self._rows[dataset, method, "validation", metric, fold] for fold in FOLDS]
        return np.array([float(row[field]) for row in rows]).reshape(5, 2)

    def test(self, dataset: str, method: str, metric: str, field: str = "value") -> float:
        """Return a field of the test."""
        return float(self._rows[dataset, method, "test", metric, TEST][field])

    def right(self, dataset: str, method: str) -> NDArray[np.bool_]:
        """Return which test rows were right."""
        return unpack(self.row(dataset, method)["right"])


def unpack(text: str) -> NDArray[np.bool_]:
    """Read which rows were right: their number and hexadecimal digits.

    >>> unpack("3:a0").tolist()
    [True, False, True]
    """
    size, _, digits = text.partition(":")
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(digits), dtype=np.uint8))
    return bits[: int(size)].astype(bool)


def run_test(test: str, ours: Sequence[Any], others: Sequence[Any], better: Better) -> Outcome:
    """Compare over datasets.

    Parameters
    ----------
    test : {"f-test", "mcnemar", "direct", "wilcoxon"}
    ours, others : sequences
        One entry per dataset: (5, 2) arrays for the F test, which rows were right for McNemar's, else numbers.
    better : {"higher", "lower"}
    """
    if test == "wilcoxon":
        difference = float(np.median(np.subtract(ours, others))) or float(np.mean(np.subtract(ours, others)))
        return Outcome(verdict(wilcoxon_test(ours, others), difference, better=better))
    tests: dict[str, Callable[[Any, Any], TestResult] | None] = {
        "f-test": five_by_two_f_test,
        "mcnemar": mcnemar_test,
        "direct": None,
    }
    counts: WinsTiesLosses = wins_ties_losses(ours, others, better=better, test=tests[test])
    return Outcome(counts.text, sign_test(counts.wins, counts.losses).significant())


def choice_listing(table: str, rows: Sequence[Row]) -> Listing:
    """Return the kernels, densities and C chosen, ours beside the paper's (which does not print its C)."""
    results = Results(rows)
    paper = {
        (entry["dataset"], entry["method"]): entry
        for entry in _read("choices.csv")
        if entry["table"] == table
    }
    lines = []
    for dataset in results.datasets:
        line = [dataset]
        for method in ("svm", "ppsvm"):
            row, theirs = results.row(dataset, method), paper.get((dataset, method), {})
            if method == "ppsvm":
                line.append(f"{_density(row['density'])} / {_density(theirs.get('density', ''))}")
            line += [
                f"{_kernel(row['kernel'])} / {_kernel(theirs.get('kernel', ''))}",
                f"{float(row['C']):g}",
            ]
        lines.append(tuple(line))
    return Listing(
        "Chosen, ours / paper's (L linear, P polynomial, R RBF)",
        ("dataset", "SVM kernel", "C", "density", "PPSVM kernel", "C"),
        tuple(lines),
    )


def outcome_listing(table: str, rows: Sequence[Row]) -> Listing:
    """Return the tests under the table, PPSVM against the canonical SVM and against the density, ours / paper's."""
    paper = {
        (entry["test"], entry["column"]): entry["outcome"]
        for entry in _read("tests.csv")
        if entry["table"] == table
    }
    results = Results(rows)
    known = {column for _, column in paper}
    columns = [column for column in _COLUMNS if column in known]
    lines = []
    for test, title in _TITLES.items():
        line = [title]
        for column in columns:
            theirs = paper.get((test, column))
            line.append("" if theirs is None else f"{_outcome(results, test, column)} / {theirs}")
        lines.append(tuple(line))
    return Listing(
        "PPSVM's wins-ties-losses, ours / paper's (* significant by the sign test, 5 %)",
        ("test", *columns),
        tuple(lines),
    )


def _outcome(results: Results, test: str, column: str) -> Outcome:
    """Return our outcome of a test in one of the six columns."""
    if not results.datasets:
        return Outcome("—")
    first, second = column.split(" ")
    other, phase, metric = ("density", second, "accuracy") if first == "density" else ("svm", first, second)
    values: list[list[Any]] = [[], []]
    for dataset in results.datasets:
        for method, found in zip(("ppsvm", other), values, strict=True):
            if test == "mcnemar":
                found.append(results.right(dataset, method))
            elif phase == "test":
                found.append(results.test(dataset, method, metric))
            else:
                folds = results.folds(dataset, method, metric)
                found.append(folds if test == "f-test" else float(folds.mean()))
    return run_test(test, values[0], values[1], better="lower" if metric == "support" else "higher")


def capped_listing(rows: Sequence[Row]) -> list[Listing]:
    """Return the chosen machines whose solves the limit on steps has stopped, if there are any."""
    lines = [
        (row["dataset"], row["method"], "two thirds" if int(row["fold"]) == TEST else f"fold {row['fold']}")
        for row in rows
        if row["metric"] == "accuracy" and int(row.get("capped") or 0) > 0
    ]
    columns = ("dataset", "method", "trained on")
    return [Listing("Stopped by the limit on steps", columns, tuple(lines))] if lines else []


def protocol_listing(protocol: Mapping[str, Any]) -> list[Listing]:
    """Return what is tried instead of the paper's grid, if it is not that."""
    exponents = protocol["log10_C"]
    if len(exponents) == _FULL_GRID:
        return []
    tried = ", ".join(f"10^{exponent}" for exponent in exponents)
    line = (f"C: {tried}", "C: all 13 powers from 10^-6 to 10^6")
    return [Listing("Fast: a coarser grid than the paper's", ("here", "paper"), (line,))]


def _kernel(kernel: str) -> str:
    """Write a kernel as the paper does: R(4r0).

    >>> _kernel("R4"), _kernel("R1"), _kernel("P3"), _kernel("L")
    ('R(4r0)', 'R(r0)', 'P(3)', 'L')
    """
    family, number = kernel[:1], kernel[1:]
    if family == "R":
        return f"R({'' if number == '1' else number}r0)"
    return f"{family}({number})" if number else family or "—"


def _density(density: str) -> str:
    """Write a density as the paper does.

    >>> _density("knn5"), _density("win2")
    ('k-NN(5)', 'Win.(2r0)')
    """
    kind, number = density[:3], density[3:]
    if kind == "win":
        return f"Win.({'' if number == '1' else number}r0)"
    return f"k-NN({number})" if kind == "knn" else density or "—"


def _read(filename: str) -> list[dict[str, str]]:
    text = files(_PACKAGE).joinpath(filename).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
