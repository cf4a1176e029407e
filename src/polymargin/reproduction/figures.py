"""The paper's own figures, typed from its text into a csv."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from polymargin.reproduction.errors import ReproductionError
from polymargin.reproduction.keys import Key

__all__ = ["Figure", "parse_figures", "read_figures"]

_VALUES = ("mean", "sd", "n")


@dataclass(frozen=True)
class Figure:
    """One printed cell of a table.

    Attributes
    ----------
    key : Key
        Which cell: the csv's columns other than ``mean``, ``sd`` and ``n``.
    mean : float
    sd : float
        The printed standard deviation; NaN where the paper prints none.
    n : int or None
        Over how many runs, where the csv says so; the experiment's `replicates` otherwise.
    decimals : int
        Digits printed after the point: the paper's mean is only known to half a unit of the last one.
    """

    key: Key
    mean: float
    sd: float = math.nan
    n: int | None = None
    decimals: int = 1

    @property
    def resolution(self) -> float:
        """Half a unit of the last printed digit."""
        return 0.5 * 10.0**-self.decimals


def parse_figures(lines: Iterable[str], source: str = "figures") -> list[Figure]:
    """Parse a csv of figures.

    Parameters
    ----------
    lines : iterable of str
        A header and one line per cell. ``mean`` is required, ``sd`` and ``n`` may be absent or empty,
        every other column is part of the cell's key.
    source : str
        What to call the csv in an error message.

    Returns
    -------
    list of Figure
        In the order of the csv, keys unique.
    """
    figures: list[Figure] = []
    seen: set[Key] = set()
    for number, row in enumerate(csv.DictReader(lines), start=2):
        try:
            text = row["mean"]
            key = Key.from_mapping({name: value for name, value in row.items() if name not in _VALUES})
            figure = Figure(
                key,
                mean=float(text),
                sd=float(row.get("sd") or math.nan),
                n=int(row["n"]) if row.get("n") else None,
                decimals=len(text.partition(".")[2]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ReproductionError(f"{source}, line {number}: cannot read {row} ({error})") from error
        if key in seen:
            raise ReproductionError(f"{source}, line {number}: {key} is there twice")
        seen.add(key)
        figures.append(figure)
    return figures


def read_figures(package: str, filename: str) -> list[Figure]:
    """Read the figures of a csv file in a package.

    Parameters
    ----------
    package : str
        The package, e.g. ``"polymargin.papers.vangestel2002"``.
    filename : str
        The file in it, e.g. ``"table2.csv"``.

    Returns
    -------
    list of Figure

    See Also
    --------
    parse_figures : The format of the file.
    """
    text = files(package).joinpath(filename).read_text(encoding="utf-8")
    return parse_figures(text.splitlines(), source=f"{package}/{filename}")
