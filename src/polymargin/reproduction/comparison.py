"""Ours beside the paper's, cell by cell, in combined standard errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from polymargin.reproduction.experiment import Better, Row
from polymargin.reproduction.figures import Figure
from polymargin.reproduction.keys import Key

__all__ = ["CellComparison", "Comparison", "Summary", "compare_with_paper", "standard_errors_apart"]

Verdict = Literal["better", "same", "worse", "missing", "unprinted"]


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of n runs.

    Attributes
    ----------
    mean : float
        The mean.
    sd : float
        The sample standard deviation; NaN where it is unknown.
    n : int
        The number of runs.
    """

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise values; a single one has no standard deviation.

        Parameters
        ----------
        values : sequence of float
            The results of the runs.

        Returns
        -------
        Summary
        """
        sd = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(statistics.fmean(values), sd, len(values))

    @property
    def variance_of_mean(self) -> float:
        """The squared standard error; NaN where the standard deviation is unknown."""
        return self.sd**2 / self.n

    def text(self, decimals: int) -> str:
        """Return the mean and, in brackets, the standard deviation where it is known.

        Parameters
        ----------
        decimals : int
            Digits after the point.

        Returns
        -------
        str

        Examples
        --------
        >>> Summary(90.04, 3.2, 10).text(1)
        '90.0 (3.2)'
        """
        mean = f"{self.mean:.{decimals}f}"
        return mean if math.isnan(self.sd) else f"{mean} ({self.sd:.{decimals}f})"

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; an unknown standard deviation is null.

        Returns
        -------
        dict
            Values that `json.dumps` accepts.
        """
        return {"mean": self.mean, "sd": _finite(self.sd), "n": self.n}


@dataclass(frozen=True)
class CellComparison:
    """One cell of the table.

    Attributes
    ----------
    key : Key
    paper : Summary or None
        None where the paper prints nothing.
    ours : Summary or None
        None where nothing is computed yet.
    standard_errors : float
        (ours − paper) in combined standard errors: its sign is that of the difference, not of the merit.
        ±inf where neither side varies and they differ; NaN where no standard deviation is known.
    verdict : {"better", "same", "worse", "missing", "unprinted"}
        Beyond the threshold in the good or the bad direction, or not; or ours or the paper's is not there.
    decimals : int
        How many the paper prints.
    """

    key: Key
    paper: Summary | None
    ours: Summary | None
    standard_errors: float
    verdict: Verdict
    decimals: int

    @property
    def difference(self) -> float:
        """Ours − paper's; NaN where one of them is missing."""
        return self.ours.mean - self.paper.mean if self.ours and self.paper else math.nan

    @property
    def apart(self) -> str:
        """The difference in standard errors as text; the plain difference where no standard deviation is known."""
        if self.ours is None or self.paper is None:
            return ""
        if math.isnan(self.standard_errors):
            return f"{self.difference:+.{self.decimals}f} (no sd)"
        if math.isinf(self.standard_errors):
            return "+∞" if self.standard_errors > 0 else "−∞"
        return f"{round(self.standard_errors, 1) + 0.0:+.1f}".replace("-", "−")  # + 0.0: no negative zero

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; infinite and unknown numbers are null, and the verdict tells them apart.

        Returns
        -------
        dict
            Values that `json.dumps` accepts.
        """
        return {
            **self.key.asdict(),
            "ours": self.ours.as_json() if self.ours else None,
            "paper": self.paper.as_json() if self.paper else None,
            "difference": _finite(self.difference),
            "standard_errors": _finite(self.standard_errors),
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Comparison:
    """A whole table compared.

    Attributes
    ----------
    cells : tuple of CellComparison
        In the order of the figures.
    threshold : float
        How many combined standard errors count as a difference.
    """

    cells: tuple[CellComparison, ...]
    threshold: float

    @property
    def summary(self) -> str:
        """How many cells are not worse than the paper's, in one sentence."""
        if self.n_compared == 0:
            return "No cell is computed yet."
        share = 100 * self.n_not_worse / self.n_compared
        return (
            f"{self.n_not_worse} of {self.n_compared} cells ({share:.1f} %) are not worse than the paper by more than "
            f"{self.threshold:g} combined standard errors; {self.count('better')} are better by more."
        )

    def count(self, verdict: Verdict) -> int:
        """Return the number of cells with a verdict.

        Parameters
        ----------
        verdict : {"better", "same", "worse", "missing", "unprinted"}
            The verdict.

        Returns
        -------
        int
        """
        return sum(cell.verdict == verdict for cell in self.cells)

    @property
    def n_compared(self) -> int:
        """The number of cells that both we and the paper have."""
        return len(self.cells) - self.count("missing") - self.count("unprinted")

    @property
    def n_not_worse(self) -> int:
        """The number of cells not worse than the paper's by more than the threshold."""
        return self.n_compared - self.count("worse")

    @property
    def exceptions(self) -> list[CellComparison]:
        """The cells that are worse, the worst first."""
        worse = [cell for cell in self.cells if cell.verdict == "worse"]
        return sorted(worse, key=lambda cell: -abs(_or_inf(cell.standard_errors)))

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values.

        Returns
        -------
        dict
            Values that `json.dumps` accepts.
        """
        return {
            "summary": {
                "cells": len(self.cells),
                "compared": self.n_compared,
                "not_worse": self.n_not_worse,
                "share_not_worse": self.n_not_worse / self.n_compared if self.n_compared else None,
                "better": self.count("better"),
                "worse": self.count("worse"),
                "missing": self.count("missing"),
                "threshold": self.threshold,
            },
            "cells": [cell.as_json() for cell in self.cells],
        }


def standard_errors_apart(ours: Summary, paper: Summary, resolution: float = 0.0) -> float:
    """Return (ours − paper) / sqrt(sd_o²/n_o + sd_p²/n_p).

    A side whose standard deviation is unknown (a table without, or a single run) is taken as exact, which is
    the strict reading. If neither is known the result is NaN. If both sides have zero deviation the result is
    0 when the means agree to the `resolution` of the printed figure, and ±inf when they do not.

    Parameters
    ----------
    ours, paper : Summary
        The two sides.
    resolution : float
        Half a unit of the last printed digit.

    Returns
    -------
    float

    Examples
    --------
    >>> standard_errors_apart(Summary(90.0, 3.0, 10), Summary(95.0, 4.0, 10))
    -3.16...
    """
    known = [side.variance_of_mean for side in (ours, paper) if not math.isnan(side.sd)]
    difference = ours.mean - paper.mean
    if not known:
        return math.nan
    error = math.sqrt(sum(known))
    if error > 0:
        return difference / error
    return 0.0 if _agree(difference, resolution) else math.copysign(math.inf, difference)


def compare_with_paper(
    rows: Iterable[Row],
    figures: Sequence[Figure],
    *,
    replicates: int,
    better: Better | Callable[[Key], Better] = "higher",
    threshold: float = 2.0,
    fields: Sequence[str] = (),
) -> Comparison:
    """Compare computed rows with the paper's figures.

    Parameters
    ----------
    rows : iterable of dict
        Computed cells: the fields of the figures' keys, ``value``, and more. Rows that agree in those fields
        (the randomisations) are averaged.
    figures : sequence of Figure
        All with the same fields.
    replicates : int
        Runs behind a figure that does not say so itself.
    better : {"higher", "lower"} or callable
        Which direction is good; a callable is asked for each cell.
    threshold : float
        In combined standard errors.
    fields : sequence of str
        What names a cell where there are no figures to tell.

    Returns
    -------
    Comparison
        One cell per figure, then those that the paper does not have. Where no standard deviation is known on
        either side, any difference beyond the printed figure's resolution decides the verdict.
    """
    fields = list(figures[0].key) if figures else fields
    values: dict[Key, list[float]] = {}
    for row in rows:
        values.setdefault(Key.from_mapping(row).only(fields), []).append(float(row["value"]))
    cells = []
    for figure in figures:
        paper = Summary(figure.mean, figure.sd, figure.n or replicates)
        direction = better if isinstance(better, str) else better(figure.key)
        if figure.key not in values:
            cells.append(CellComparison(figure.key, paper, None, math.nan, "missing", figure.decimals))
            continue
        ours = Summary.of(values[figure.key])
        apart = standard_errors_apart(ours, paper, figure.resolution)
        verdict = _verdict(apart, ours.mean - paper.mean, figure.resolution, direction, threshold)
        cells.append(CellComparison(figure.key, paper, ours, apart, verdict, figure.decimals))
    printed = {figure.key for figure in figures}
    decimals = max((figure.decimals for figure in figures), default=1)
    for key, computed in values.items():
        if key not in printed:
            cells.append(CellComparison(key, None, Summary.of(computed), math.nan, "unprinted", decimals))
    return Comparison(tuple(cells), threshold)


def _verdict(
    apart: float, difference: float, resolution: float, direction: Better, threshold: float
) -> Verdict:
    sign = 1 if direction == "higher" else -1
    if math.isnan(apart):
        apart = 0.0 if _agree(difference, resolution) else math.copysign(math.inf, difference)
    gain = sign * apart
    if gain > threshold:
        return "better"
    return "worse" if gain < -threshold else "same"


def _agree(difference: float, resolution: float) -> bool:
    return abs(difference) <= resolution * (1 + 1e-9) + 1e-12


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _or_inf(value: float) -> float:
    return math.inf if math.isnan(value) else value
