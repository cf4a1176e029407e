"""What Tables IV, V and VI share: the configurations chosen by validation, trained again and tested."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.gonen2008.choice import Configuration, choose
from polymargin.papers.gonen2008.densities import posteriors, posteriors_of_new
from polymargin.papers.gonen2008.listings import (
    capped_listing,
    choice_listing,
    outcome_listing,
    protocol_listing,
)
from polymargin.papers.gonen2008.machines import predict, train_path
from polymargin.papers.gonen2008.rows import FOLDS, TEST, Split, evaluation_split
from polymargin.papers.gonen2008.validation import Grid, Validation, check_size
from polymargin.reproduction import Experiment, Figure, Key, Layout, Listing, Row, load_protocol, read_figures
from polymargin.reproduction.experiment import Better

__all__ = ["RealTable", "pack", "table_protocol"]

_PACKAGE = "polymargin.papers.gonen2008"

#: What the table has columns for, in its order.
_COLUMNS = (
    ("svm", "validation", "accuracy"),
    ("svm", "validation", "support"),
    ("svm", "test", "accuracy"),
    ("svm", "test", "support"),
    ("ppsvm", "validation", "accuracy"),
    ("ppsvm", "validation", "support"),
    ("ppsvm", "test", "accuracy"),
    ("ppsvm", "test", "support"),
    ("density", "validation", "accuracy"),
    ("density", "test", "accuracy"),
)


def table_protocol(table: str, fast: bool) -> dict[str, Any]:
    """Return the protocol of a table, coarser if fast."""
    protocol = load_protocol(_PACKAGE, table)
    coarser = protocol.pop("fast")
    return protocol | coarser if fast else protocol


class RealTable(Experiment):
    """Accuracies and shares of support vectors (%) of the canonical and the posterior probability SVM.

    The validation figures are those that the configuration was chosen by. A job is one dataset: its two chosen
    configurations are trained again, on the two thirds for the test and, to take the time, on every fold from the
    start. Rows of accuracy hold the configuration, the seconds, and for the test which rows were right (packed).

    Parameters
    ----------
    protocol : mapping, optional
        Another protocol than ``protocol.toml``'s, e.g. for a quick trial.
    """

    table: ClassVar[str]
    fast: ClassVar[bool] = False
    layout = Layout(rows=("dataset",), columns=("method", "phase", "metric"))
    better: ClassVar[Mapping[str, Better]] = {"accuracy": "higher", "support": "lower"}

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(table_protocol(self.table, self.fast) if protocol is None else protocol)
        self.grid = Grid.of(self.protocol)

    def requires(self) -> list[Experiment]:
        """Return the validation of every configuration."""
        return [Validation(f"{self.name}-validation", self.protocol)]

    def jobs(self) -> list[Key]:
        """Return the datasets."""
        return [Key.of(dataset=dataset) for dataset in self.protocol["datasets"]]

    def cells(self, job: Key) -> list[Key]:
        """Return a dataset's columns; those of the validation once for each fold."""
        return [
            job.extended(method=method, phase=phase, metric=metric, fold=fold)
            for method, phase, metric in _COLUMNS
            for fold in (FOLDS if phase == "validation" else (TEST,))
        ]

    def run(self, job: Key) -> list[Row]:
        """Choose, train the chosen again, test."""
        dataset, seed = job["dataset"], self.protocol["seed"]
        check_size(dataset, self.protocol["datasets"][dataset])
        given = [row for row in self.given[f"{self.name}-validation"] if row["dataset"] == dataset]
        chosen = {
            method: choose(given, self.grid.costs, self.protocol["kernels"], soft=method == "ppsvm")
            for method in ("svm", "ppsvm")
        }
        self._warm_up()
        found: dict[tuple[str, str, int], Row] = {}
        for fold in (*FOLDS, TEST):
            split = evaluation_split(dataset, fold, seed)
            for method, choice in chosen.items():
                accuracy, support = self._measure(split, choice)
                if fold != TEST:  # the figures that it was chosen by
                    accuracy["value"] = float(choice.accuracies[fold - 1])
                    support["value"] = float(choice.support[fold - 1])
                    del accuracy["right"]
                found[method, "accuracy", fold] = accuracy
                found[method, "support", fold] = support
            found["density", "accuracy", fold] = _measure_density(
                split, chosen["ppsvm"].density, fold == TEST
            )
        return [
            {**cell.asdict(), **found[cell["method"], cell["metric"], int(cell["fold"])], "seed": seed}
            for cell in self.cells(job)
        ]

    def _warm_up(self) -> None:
        """Have both solvers compiled before time is taken."""
        z = np.arange(4) % 2
        for limits in (self.grid.limits, self.grid.limits._replace(smo=0.0)):
            train_path(self.grid.machine, np.eye(4), np.eye(2)[z], z, [1.0], self.grid.tol, limits)

    def _measure(self, split: Split, choice: Configuration) -> tuple[Row, Row]:
        """Train a configuration from the start; return the rows of its accuracy and its support vectors."""
        grid = self.grid
        P = posteriors(split, choice.density)
        gram, _ = split.gram(choice.kernel)
        start = time.perf_counter()
        (trained,) = train_path(grid.machine, gram, P, split.z, [choice.C], grid.tol, grid.limits)
        train_seconds = time.perf_counter() - start
        start = time.perf_counter()
        support = trained.support
        (classes,) = predict(split.kernel_rows(choice.kernel, support), [trained.at(support)])
        predict_seconds = time.perf_counter() - start
        right = classes == split.z_new
        accuracy = {
            "value": 100.0 * float(right.mean()),
            "kernel": choice.kernel,
            "density": choice.density,
            "C": choice.C,
            "capped": trained.n_capped,
            "train_seconds": round(train_seconds, 5),
            "predict_seconds": round(predict_seconds, 5),
            "right": pack(right),
        }
        return accuracy, {"value": 100.0 * support.size / split.z.size}

    def paper_figures(self) -> list[Figure]:
        """Return the 100 figures of the table.

        A test accuracy comes from one random third, and so does ours: it is given the standard deviation of the
        difference of two such accuracies by chance, as ours, a single number, has none.
        """
        return [self._with_chance(figure) for figure in read_figures(_PACKAGE, f"table{self.table}.csv")]

    def _with_chance(self, figure: Figure) -> Figure:
        size = self.protocol["datasets"].get(figure.key["dataset"])
        if size is None or (figure.key["phase"], figure.key["metric"]) != ("test", "accuracy"):
            return figure
        p = figure.mean / 100.0
        return replace(figure, sd=100.0 * math.sqrt(2.0 * p * (1.0 - p) / (size["n"] / 3)), n=1)

    def listings(self, rows: Sequence[Row]) -> list[Listing]:
        """Return what was chosen, the tests, and the protocol where it is not the paper's."""
        return [
            choice_listing(self.table, rows),
            outcome_listing(self.table, rows),
            *capped_listing(rows),
            *protocol_listing(self.protocol),
        ]

    def cost(self, job: Key) -> float:
        """Solving takes time with the square of the rows and with the classes."""
        size = self.protocol["datasets"][job["dataset"]]
        return float((100 + size["n"] / 3) ** 2 * size["n_classes"])


def _measure_density(split: Split, density: str, test: bool) -> Row:
    """Return the accuracy of the density estimator as a classifier."""
    right = posteriors_of_new(split, density).argmax(axis=1) == split.z_new
    row: Row = {"value": 100.0 * float(right.mean()), "density": density}
    return row | {"right": pack(right)} if test else row


def pack(right: NDArray[np.bool_]) -> str:
    """Write which rows were right as their number and hexadecimal digits; `listings.unpack` reads it."""
    return f"{right.size}:{np.packbits(right).tobytes().hex()}"
