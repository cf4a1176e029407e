"""Table 5.1: misclassification rates of one-vs-all LS-SVM regression and of kernel logistic regression."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.shim2008.curves import leave_one_out_curves
from polymargin.papers.shim2008.rows import METHODS, TESTED_ON, Rows, bandwidths, draw_rows, draw_test_sets
from polymargin.reproduction import (
    Experiment,
    Figure,
    Key,
    Layout,
    Listing,
    Row,
    load_protocol,
    read_figures,
)

__all__ = ["PRINTED_SIGMA2", "Standardised", "Table51"]

_PACKAGE = "polymargin.papers.shim2008"

#: σ² by CV and by GCV, as Section 5 gives them.
PRINTED_SIGMA2 = {"iris": (2.6, 2.0), "wine": (1.1, 1.4), "glass": (2.0, 2.0)}


class Table51(Experiment):
    """Misclassification rates, with σ² chosen by GCV for LS-SVM, by leave-one-out log-loss for KLogistic.

    A job is one training set: both methods are trained on it and tested on 100 test sets drawn from all rows, whose
    mean is the value, and on the rows that were held out.

    Parameters
    ----------
    protocol : mapping, optional
        Another protocol than ``protocol.toml``'s, e.g. for a quick trial.
    """

    name = "shim2008-table5.1"
    title = "Shim, Bae and Hwang (2008), Table 5.1: misclassification rates"
    table: ClassVar[str] = "5.1"
    layout = Layout(rows=("dataset", "tested_on"), columns=("method",))
    better = "lower"

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(load_protocol(_PACKAGE, self.table) if protocol is None else protocol)

    def jobs(self) -> list[Key]:
        """Return dataset × training set."""
        return [
            Key.of(dataset=dataset, run=run)
            for dataset in self.protocol["datasets"]
            for run in range(1, self.replicates + 1)
        ]

    def cells(self, job: Key) -> list[Key]:
        """Return what is tested, on which rows."""
        return [
            job.extended(tested_on=tested_on, method=method) for tested_on in TESTED_ON for method in METHODS
        ]

    def run(self, job: Key) -> list[Row]:
        """Draw a training set, train both, test both."""
        rows = draw_rows(self.protocol, job["dataset"], int(job["run"]))
        tests = draw_test_sets(self.protocol, job["dataset"], rows.seed)
        results: list[Row] = []
        trained = {"LSSVM": self.lssvm(rows), "KLogistic": self.klogistic(rows)}
        for cell in self.cells(job):
            wrong, chosen = trained[cell["method"]]
            rates = wrong[tests].mean(axis=1)
            everywhere = cell["tested_on"] == "all rows"
            results.append(
                {
                    **cell.asdict(),
                    "value": float(rates.mean() if everywhere else wrong[rows.held_out].mean()),
                    "sd_of_test_sets": float(rates.std(ddof=1)) if everywhere else "",
                    **chosen,
                    "seed": rows.seed,
                }
            )
        return results

    def lssvm(self, rows: Rows) -> tuple[NDArray[np.bool_], Row]:
        """Return which rows one-vs-all LS-SVMs misclassify, shape (n,), and σ² by both criteria."""
        from polymargin import LSSVMClassifier

        X, y, C = rows.X[rows.train], rows.y[rows.train], self.protocol["C"]
        curves = leave_one_out_curves(X, y, gammas=1.0 / bandwidths(self.protocol), C=C)
        model = LSSVMClassifier(
            C,
            kernel="rbf",
            gamma=curves.best_gamma(self.protocol["criterion"]),
            coding="one-vs-all",
            decoding="argmax",
            selection=None,
        ).fit(X, y)
        chosen = {
            "sigma2_cv": round(1.0 / curves.best_gamma("cv"), 6),
            "sigma2_gcv": round(1.0 / curves.best_gamma("gcv"), 6),
        }
        return model.predict(rows.X) != rows.y, chosen

    def klogistic(self, rows: Rows) -> tuple[NDArray[np.bool_], Row]:
        """Return which rows kernel logistic regression misclassifies, shape (n,)."""
        from polymargin import KernelLogisticClassifier

        model = KernelLogisticClassifier(random_state=rows.seed).fit(rows.X[rows.train], rows.y[rows.train])
        return model.predict(rows.X) != rows.y, {"sigma2_cv": "", "sigma2_gcv": ""}

    def paper_figures(self) -> list[Figure]:
        """Return the figures of the table's datasets."""
        figures = read_figures(_PACKAGE, "table51.csv")
        return [figure for figure in figures if figure.key["dataset"] in self.protocol["datasets"]]

    def listings(self, rows: Sequence[Row]) -> list[Listing]:
        """Return the paper's training set among ours, and the chosen σ²."""
        found = [self._training_sets(rows), self._bandwidths(rows)]
        return [listing for listing in found if listing.rows]

    def _training_sets(self, rows: Sequence[Row]) -> Listing:
        lines = []
        for figure in self.paper_figures():
            fields = list(figure.key)
            mine = [row for row in rows if Key.from_mapping(row).only(fields) == figure.key]
            if len(mine) < 2:
                continue
            values = [float(row["value"]) for row in mine]
            mean, between = statistics.fmean(values), statistics.stdev(values)
            # The paper's is one training set, ours are many; the deviation between them is known from ours alone.
            apart = (mean - figure.mean) / (between * np.sqrt(1.0 + 1.0 / len(values)) or np.inf)
            within = np.sqrt(np.mean([float(row["sd_of_test_sets"]) ** 2 for row in mine]))
            lines.append(
                (
                    figure.key["dataset"],
                    figure.key["method"],
                    f"{mean:.4f} / {figure.mean:.4f}",
                    f"{between:.4f}",
                    f"{apart:+.1f}",
                    f"{100.0 * np.mean(np.array(values) <= figure.mean):.0f} %",
                    f"{within:.4f} / {figure.sd:.4f}",
                )
            )
        return Listing(
            "The paper's one training set among ours (ours / paper)",
            (
                "dataset",
                "method",
                "rate",
                "sd of training sets",
                "apart in those",
                "ours below",
                "sd of test sets",
            ),
            tuple(lines),
        )

    def _bandwidths(self, rows: Sequence[Row]) -> Listing:
        lines = []
        for dataset in self.protocol["datasets"]:
            mine = [
                row
                for row in rows
                if (row["dataset"], row["tested_on"], row["method"]) == (dataset, "all rows", "LSSVM")
            ]
            if not mine:
                continue
            cells = []
            for criterion, printed in zip(("cv", "gcv"), PRINTED_SIGMA2[dataset], strict=True):
                low, median, high = np.quantile(
                    [float(row[f"sigma2_{criterion}"]) for row in mine], [0.1, 0.5, 0.9]
                )
                cells.append(f"{median:.3g} ({low:.3g} to {high:.3g}) / {printed}")
            lines.append((dataset, self.protocol["scaling"][dataset], *cells))
        return Listing(
            "σ² chosen: median (80 % of the training sets) / paper",
            ("dataset", "scaling", "by CV", "by GCV"),
            tuple(lines),
        )

    def cost(self, job: Key) -> float:
        """Time grows with rows and classes."""
        return 2.0 if job["dataset"] == "glass" else 1.0


class Standardised(Table51):
    """The same with inputs of zero mean and unit variance."""

    name = "shim2008-table5.1-standardised"
    title = "Shim, Bae and Hwang (2008), Table 5.1, inputs standardised: misclassification rates"
    table = "5.1-standardised"
