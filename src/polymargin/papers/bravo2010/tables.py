"""Tables III and IV: each shows one score of `Partitions`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.bravo2010.partitions import COUPLINGS, Partitions, by_method
from polymargin.reproduction import (
    Experiment,
    Figure,
    Key,
    Layout,
    Listing,
    Row,
    Summary,
    load_protocol,
    read_figures,
    standard_errors_apart,
)

__all__ = ["Table3", "Table4"]

_PACKAGE = "polymargin.papers.bravo2010"
_PAPER_METHODS = (*COUPLINGS, "mcp_svm_ann")


class _PaperTable(Experiment):
    """A table of the paper: one metric, five methods, and some of ours beside them."""

    metric: ClassVar[str]
    figures: ClassVar[str]
    layout = Layout(rows=("dataset",), columns=("method",))
    better = "lower"

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(load_protocol(_PACKAGE) if protocol is None else protocol)
        self._partitions = Partitions(self.protocol)

    def requires(self) -> Sequence[Experiment]:
        """Return the partitions, which are computed once for all tables."""
        return (self._partitions,)

    def needs(self, job: Key, other: Key) -> bool:
        """Return whether the other job is the same partition."""
        return job == other

    def jobs(self) -> list[Key]:
        """Return dataset × run."""
        return self._partitions.jobs()

    def cells(self, job: Key) -> list[Key]:
        """Return the paper's methods, and those that the protocol sets beside them."""
        methods = (*_PAPER_METHODS, *self.protocol["beside"])
        return [
            cell
            for cell in self._partitions.cells(job)
            if cell["metric"] == self.metric and cell["method"] in methods
        ]

    def run(self, job: Key) -> list[Row]:
        """Pick the job's rows."""
        rows = {
            Key.of(**{name: row[name] for name in ("dataset", "run", "metric", "method")}): row
            for row in self.given[self._partitions.name]
            if (row["dataset"], str(row["run"])) == (job["dataset"], job["run"])
        }
        return [
            {name: value for name, value in rows[cell].items() if name != "job_seconds"}
            for cell in self.cells(job)
        ]

    def paper_figures(self) -> list[Figure]:
        """Return the figures of the protocol's datasets."""
        figures = read_figures(_PACKAGE, self.figures)
        return [figure for figure in figures if figure.key["dataset"] in self.protocol["datasets"]]

    def listings(self, rows: Sequence[Row]) -> list[Listing]:
        """Return how far the levels are apart, and whether the methods come in the paper's order."""
        values = by_method(rows)
        figures = {(f.key["dataset"], f.key["method"]): f for f in self.paper_figures()}
        datasets = [
            d
            for d in self.protocol["datasets"]
            if all(len(values.get((d, m), ())) > 1 for m in _PAPER_METHODS)
        ]
        if not datasets:
            return []
        return [
            Listing(
                "Ours − paper's in combined standard errors, if the paper's partitions vary as ours do",
                ("dataset", *_PAPER_METHODS),
                tuple(
                    (d, *(_signed(_apart(values[d, m], figures[d, m].mean)) for m in _PAPER_METHODS))
                    for d in datasets
                ),
            ),
            Listing(
                "Order of the ten pairs of methods: a difference of ours counts from two standard errors (paired)",
                ("dataset", "paper's best", "ours", "same order", "open", "other order"),
                tuple(self._order(d, values, figures) for d in datasets),
            ),
        ]

    def _order(
        self,
        dataset: str,
        values: Mapping[tuple[str, str], NDArray[np.float64]],
        figures: Mapping[tuple[str, str], Figure],
    ) -> tuple[str, ...]:
        same = other = 0
        for place, first in enumerate(_PAPER_METHODS):
            for second in _PAPER_METHODS[place + 1 :]:
                paper = figures[dataset, first].mean - figures[dataset, second].mean
                sign = math.copysign(1.0, paper) * _paired(values[dataset, first] - values[dataset, second])
                same += paper != 0.0 and sign > 2.0
                other += paper != 0.0 and sign < -2.0
        pairs = len(_PAPER_METHODS) * (len(_PAPER_METHODS) - 1) // 2
        best = min(_PAPER_METHODS, key=lambda method: figures[dataset, method].mean)
        ours = min(_PAPER_METHODS, key=lambda method: float(values[dataset, method].mean()))
        return dataset, best, ours, str(same), str(pairs - same - other), str(other)


class Table3(_PaperTable):
    """The "kurtosis" of the errors, eq. (16); the paper takes lower for better, see `error_kurtosis`."""

    name = "bravo2010-table3"
    title = 'Bravo et al. (2010), Table III: "kurtosis" of the errors, eq. (16)'
    metric = "kurtosis"
    figures = "table3.csv"


class Table4(_PaperTable):
    """Class loss, in percent."""

    name = "bravo2010-table4"
    title = "Bravo et al. (2010), Table IV: class loss in %"
    metric = "class_loss"
    figures = "table4.csv"


def _apart(values: NDArray[np.float64], paper: float) -> float:
    """Return the difference in combined standard errors, the paper's deviation taken as equal to ours."""
    ours = Summary.of(values.tolist())
    return standard_errors_apart(ours, Summary(paper, ours.sd, ours.n))


def _signed(number: float) -> str:
    """Write a number with its sign."""
    return f"{number:+z.1f}".replace("-", "−")


def _paired(differences: NDArray[np.float64]) -> float:
    """Return the mean of paired differences in its standard errors."""
    error = float(differences.std(ddof=1)) / math.sqrt(differences.size)
    mean = float(differences.mean())
    if error > 0.0:
        return mean / error
    return 0.0 if mean == 0.0 else math.copysign(math.inf, mean)
