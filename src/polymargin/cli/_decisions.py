"""The columns of ``polymargin predict`` that are decisions: sets of classes, and decisions under costs or a reject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymargin.cli._console import note

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DecisionColumns"]

Array = NDArray[Any]


class DecisionColumns:
    """What `predict` decides of rows by their log-probabilities.

    Parameters
    ----------
    model : classifier or Pipeline
        Fitted.
    coverage : float or None
        The coverage of prediction sets; None for none.
    per_class : bool
        Whether it is that of every class.
    costs : Path or None
        A CSV file: in its first column the true classes, then a column for every decision.
    reject : float or None
        Rows whose largest probability is less have no decision.
    as_text : bool
        Whether sets are texts, as in CSV; else lists.
    """

    def __init__(
        self,
        model: Any,
        *,
        coverage: float | None,
        per_class: bool,
        costs: Path | None,
        reject: float | None,
        as_text: bool,
    ) -> None:
        from polymargin.decisions.costs import check_reject

        if per_class and coverage is None:
            raise ValueError("--per-class is about prediction sets: give --coverage, too")
        if (coverage, costs, reject) != (None, None, None) and not hasattr(model, "predict_log_proba"):
            raise ValueError(
                "--coverage, --costs and --reject need probabilities, and the decoding of this model gives none"
            )
        if costs is not None and reject is not None:
            raise ValueError(
                "--reject is for decisions without costs: leave it out, and give the file of --costs a further column, "
                "such as 'ask', with the cost of not deciding in every line"
            )
        self._texts = np.array([str(name) for name in model.classes_.tolist()])
        self._reject, self._as_text = check_reject(reject, None, costs, self._texts), as_text
        self._costs = None if costs is None else self._read_costs(costs)
        self._thresholds = None if coverage is None else _thresholds(model, coverage, per_class)
        self.names = [
            *(["decision"] if costs is not None or reject is not None else []),
            *(["set"] if coverage is not None else []),
        ]

    def sets(self, log_proba: Array | None) -> Array | None:
        """Return the prediction sets of rows, shape (n, K); None if they were not asked for."""
        from polymargin.decisions import prediction_sets

        if self._thresholds is None:
            return None
        assert log_proba is not None
        return prediction_sets(log_proba, self._thresholds)

    def scores(self, log_proba: Array | None, truth: Array) -> dict[str, float]:
        """Return sums over rows with known classes, by which decisions are judged.

        With costs the costs of the decisions, and of the most probable classes where these can be decided for; with a
        reject the rows that have an answer, and those of them whose answer is right.

        Parameters
        ----------
        log_proba : ndarray of shape (n, K) or None
            Log-probabilities.
        truth : ndarray of int, shape (n,)
            The true classes.
        """
        from polymargin.decisions import least_cost

        if log_proba is None or (self._costs is None and self._reject is None):
            return {}
        proba, best = np.exp(log_proba), log_proba.argmax(axis=1)
        if self._costs is None:
            given = proba.max(axis=1) >= self._reject
            return {"answered": float(given.sum()), "right": float((best == truth)[given].sum())}
        values = self._costs.values
        found = {"cost": float(values[truth, least_cost(proba, self._costs)].sum())}
        column = {k: place for place, k in enumerate(self._costs.class_of.tolist()) if k >= 0}
        if len(column) == proba.shape[1]:
            of_best = np.array([column[k] for k in range(proba.shape[1])])[best]
            found["cost_of_labels"] = float(values[truth, of_best].sum())
        return found

    def columns(self, log_proba: Array | None, sets: Array | None) -> Iterator[Any]:
        """Yield the columns, in the order of their names."""
        import pyarrow as pa

        from polymargin.decisions import decided_labels

        if "decision" in self.names:
            assert log_proba is not None
            decided = decided_labels(np.exp(log_proba), self._texts, costs=self._costs, reject=self._reject)
            yield pa.array(decided.tolist(), pa.string())
        if sets is not None:
            assert log_proba is not None
            order = np.argsort(-log_proba, axis=1, kind="stable")
            members = [
                self._texts[row[chosen[row]]].tolist() for row, chosen in zip(order, sets, strict=True)
            ]
            yield pa.array([joined(each) for each in members] if self._as_text else members)

    def _read_costs(self, path: Path) -> Any:
        import pandas as pd

        from polymargin.decisions import CostMatrix
        from polymargin.tables import Dialect, open_table

        if not path.is_file():
            raise ValueError(f"no file {path}")
        file = open_table(path, Dialect(header=True))  # separator and characters as in any other table
        first, *decided = file.columns
        table = pd.concat([batch.cells.to_pandas() for batch in file.batches(file.columns, 10_000)])
        costs = _numbers(table[decided]).set_axis(table[first].map(str))
        return CostMatrix.of(costs, self._texts)


def _numbers(costs: pd.DataFrame) -> pd.DataFrame:
    """Return texts as numbers, with the decimal mark in which all can be read."""
    import pandas as pd
    import pyarrow as pa

    from polymargin.tables._cells import NotRead, numbers

    wrong = []
    for decimal in (".", ","):
        read: dict[str, Array] = {}
        try:
            for name in costs:
                read[name] = numbers(pa.array(costs[name].map(str)), decimal)
        except NotRead as error:
            wrong.append(
                (len(read), error.place, f"{error.text!r} in the column {name!r} of costs is no number")
            )
        else:
            return pd.DataFrame(read)
    raise ValueError(max(wrong)[-1])  # with the mark that lets more be read


def joined(names: list[str]) -> str:
    """Return a set as a text.

    >>> joined(["setosa", "versicolor"]), joined(["a|b", "c"]), joined([])
    ('setosa|versicolor', 'a\\\\|b|c', '')
    """
    return "|".join(name.replace("\\", "\\\\").replace("|", "\\|") for name in names)


def _in_shell(message: str) -> str:
    """Return a message about parameters with the options of `polymargin fit` in their place.

    >>> _in_shell('it keeps none; choose decoding="coupled-softmax"')
    'it keeps none; fit the model with --decoding coupled-softmax'
    """
    message = re.sub(r'\b(?:choose|set) decoding="([\w-]+)"', r"fit the model with --decoding \1", message)
    return re.sub(r'\bdecoding="([\w-]+)"', r"--decoding \1", message)


def _thresholds(model: Any, coverage: float, per_class: bool) -> Array:
    """Return the largest score of every class that is in a set; say which classes are in all of them."""
    from polymargin.decisions.conformal import rows_needed
    from polymargin.decisions.pipelines import last_step

    classifier = last_step(model)
    try:
        found = classifier.calibration_rows_.thresholds(coverage, per_class=per_class)
    except AttributeError as error:
        raise ValueError(f"--coverage: {_in_shell(str(error))}") from error
    always = classifier.classes_[np.isinf(found)].tolist()
    if always:
        of = " of a class" if per_class else ""
        names = ", ".join(map(str, always))
        note(
            f"in all sets: {names}; a coverage of {coverage:g} needs {rows_needed(coverage)} training rows{of}"
        )
    return found
