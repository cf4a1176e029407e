"""Table VII: the single machine of Table V against the one-vs-all machines of Table VI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from polymargin.papers.gonen2008._real_table import RealTable
from polymargin.papers.gonen2008.listings import Outcome, Results, run_test
from polymargin.papers.gonen2008.table5 import Table5, Table5Fast
from polymargin.papers.gonen2008.table6 import Table6, Table6Fast
from polymargin.reproduction import Experiment, Figure, Key, Layout, Listing, Row, read_figures

__all__ = ["Table7", "Table7Fast"]

_PACKAGE = "polymargin.papers.gonen2008"
_OUTCOMES = ("win", "tie", "loss")
_TITLES = {
    "f-test": "5×2 cv F",
    "mcnemar": "McNemar",
    "direct": "direct",
    "wilcoxon": "Wilcoxon",
}


class Table7(Experiment):
    """On how many datasets one-vs-all wins, ties and loses, in accuracy, support vectors and seconds.

    Its one job takes Tables V and VI and compares them; running it runs, or resumes, both.

    Parameters
    ----------
    protocol : mapping, optional
        With the protocols of Tables V and VI as ``"5"`` and ``"6"``.
    """

    name = "gonen2008-table7"
    title = "Gönen et al. (2008), Table VII: one-vs-all against the single machine, wins-ties-losses of one-vs-all"
    layout = Layout(rows=("test", "outcome"), columns=("method", "phase", "metric"))
    compared = False
    sources: ClassVar[tuple[type[RealTable], type[RealTable]]] = (Table5, Table6)

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        single, one_vs_all = self.sources
        if protocol is None:
            protocol = {"5": single().protocol, "6": one_vs_all().protocol}
        self._tables = single(protocol["5"]), one_vs_all(protocol["6"])
        super().__init__({**protocol, "replicates": 1})

    def requires(self) -> Sequence[Experiment]:
        """Return Tables V and VI."""
        return self._tables

    def needs(self, job: Key, other: Key) -> bool:
        """Return True: the one job needs all of both."""
        return True

    def jobs(self) -> list[Key]:
        """Return the one job."""
        return [Key.of(dataset="all")]

    def cells(self, job: Key) -> list[Key]:
        """Return the counts that the paper prints; for Wilcoxon's test one of the three is 1."""
        return [Key(job.pairs + figure.key.pairs) for figure in self.paper_figures()]

    def run(self, job: Key) -> list[Row]:
        """Compare the two tables, column by column."""
        single, one_vs_all = (Results(self.given[table.name]) for table in self._tables)
        found: dict[Key, Outcome] = {}
        rows = []
        for cell in self.cells(job):
            column = cell.only(["method", "phase", "metric", "test"])
            if column not in found:
                found[column] = _outcome(single, one_vs_all, column)
            rows.append({**cell.asdict(), "value": _count(found[column], cell["outcome"])})
        return rows

    def paper_figures(self) -> list[Figure]:
        """Return the counts of the table."""
        return read_figures(_PACKAGE, "table7.csv")

    def listings(self, rows: Sequence[Row]) -> list[Listing]:
        """Return the table, ours / paper's."""
        fields = ("method", "phase", "metric", "test", "outcome")
        ours = {tuple(row[field] for field in fields): int(row["value"]) for row in rows}
        paper = {
            tuple(figure.key[field] for field in fields): int(figure.mean) for figure in self.paper_figures()
        }
        lines = []
        for column in dict.fromkeys(key[:3] for key in paper):
            cells = [
                f"{_text(ours, column, test)} / {_text(paper, column, test)}"
                if (*column, test, "win") in paper
                else ""
                for test in _TITLES
            ]
            lines.append((" ".join(column), *cells))
        return [
            Listing(
                "One-vs-all's wins-ties-losses, ours / paper's; train and predict are seconds",
                ("", *_TITLES.values()),
                tuple(lines),
            )
        ]


class Table7Fast(Table7):
    """The same of the tables with a coarser grid of C."""

    name = "gonen2008-table7-fast"
    title = (
        "Gönen et al. (2008), Table VII, fast (coarser grid of C): one-vs-all against the single machine, "
        "wins-ties-losses of one-vs-all"
    )
    sources = (Table5Fast, Table6Fast)


def _outcome(single: Results, one_vs_all: Results, column: Key) -> Outcome:
    """Return the outcome of a test in one column."""
    method, phase, test = column["method"], column["phase"], column["test"]
    metric = {"train": "accuracy", "predict": "accuracy"}.get(column["metric"], column["metric"])
    field = {"train": "train_seconds", "predict": "predict_seconds"}.get(column["metric"], "value")
    values: list[list[Any]] = [[], []]
    for dataset in single.datasets:
        for results, found in zip((one_vs_all, single), values, strict=True):
            if test == "mcnemar":
                found.append(results.right(dataset, method))
            elif phase == "test":
                found.append(results.test(dataset, method, metric, field))
            else:
                folds = results.folds(dataset, method, metric, field)
                found.append(folds if test == "f-test" else float(folds.mean()))
    return run_test(
        test, values[0], values[1], better="higher" if column["metric"] == "accuracy" else "lower"
    )


def _count(outcome: Outcome, which: str) -> int:
    if outcome.text in ("W", "T", "L"):
        return int(outcome.text == which[0].upper())
    return int(outcome.text.split("-")[_OUTCOMES.index(which)])


def _text(counts: Mapping[tuple[str, ...], int], column: tuple[str, ...], test: str) -> str:
    """Write three counts as wins-ties-losses, or for Wilcoxon's test as the one letter."""
    found = [counts.get((*column, test, outcome)) for outcome in _OUTCOMES]
    if None in found:
        return "—"
    if test == "wilcoxon":
        return "WTL"[found.index(1)]
    return "-".join(map(str, found))
