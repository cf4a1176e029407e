"""An experiment: one table of one paper, as jobs that can be computed one by one."""

from __future__ import annotations

import hashlib
import json
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar, Literal

from polymargin.reproduction.figures import Figure
from polymargin.reproduction.keys import Key

__all__ = ["Better", "Experiment", "Layout", "Listing", "Row", "load_protocol", "protocol_hash"]

Row = dict[str, Any]
"""One computed cell: the fields of its key, ``value``, and whatever else is worth keeping (``seed``)."""

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Layout:
    """How the paper prints its table; the names are fields of the figures' keys.

    Attributes
    ----------
    rows, columns, panels : tuple of str
        What runs down, what runs across (outermost first), and what separates the parts of the table.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    panels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A small table of text to print beside the comparison: what was chosen, what the paper's tests say.

    Attributes
    ----------
    title : str
    columns : tuple of str
        The headings.
    rows : tuple of tuple of str
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values.

        Returns
        -------
        dict
            Values that `json.dumps` accepts.
        """
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}


class Experiment(ABC):
    """One table of one paper.

    A *cell* is one number that is computed (dataset, kernel, coding, decoding, randomisation); a *job* is the
    unit of computation, which yields several cells at once because they share work (dataset, kernel,
    randomisation). Both are named by a `Key`. Subclasses say which jobs and cells there are, compute a job,
    and give the paper's figures; `run_experiment` does the rest.

    Instances travel to worker processes, so they must be picklable, and `run` must be a pure function of its
    job and of the rows `given`: no other state, no randomness but from a seed derived from the protocol and the
    job. An experiment in stages (choose, then train the chosen) `requires` another, whose finished rows it is given.

    Parameters
    ----------
    protocol : mapping
        Everything that determines the numbers, from the paper's ``protocol.toml``. Results computed under
        different protocols are never mixed.

    Attributes
    ----------
    name : str
        Names the result files, e.g. ``"vangestel2002-table2"``.
    title : str
        One line for people.
    layout : Layout
    better : {"higher", "lower"} or mapping
        Which direction is good; a mapping from the value of the key's ``metric`` where a table has several.
    replicates : int
        Over how many runs the paper's means and standard deviations are.
    compared : bool
        Whether ours and the paper's are compared cell by cell; if not, the listings say all.
    journal_only : tuple of str
        Fields of the rows that are too long for the csv.
    given : dict of str to list of Row
        The finished rows of the experiments that this one requires, by their names; set by the runner.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    layout: ClassVar[Layout]
    better: ClassVar[Better | Mapping[str, Better]] = "higher"
    compared: ClassVar[bool] = True
    journal_only: ClassVar[tuple[str, ...]] = ()

    def __init__(self, protocol: Mapping[str, Any]) -> None:
        self.protocol: dict[str, Any] = dict(protocol)
        self.given: dict[str, list[Row]] = {}

    @property
    def replicates(self) -> int:
        """Runs behind each of the paper's means, by default the protocol's ``replicates``."""
        return int(self.protocol["replicates"])

    @abstractmethod
    def jobs(self) -> Sequence[Key]:
        """Return all jobs, in the order of the table."""

    @abstractmethod
    def cells(self, job: Key) -> Sequence[Key]:
        """Return the cells that a job yields, in the order of the table.

        Parameters
        ----------
        job : Key
            The job.

        Returns
        -------
        sequence of Key
        """

    @abstractmethod
    def run(self, job: Key) -> Sequence[Row]:
        """Compute one job: one row for each of its cells.

        Parameters
        ----------
        job : Key
            The job.

        Returns
        -------
        sequence of Row
        """

    @abstractmethod
    def paper_figures(self) -> list[Figure]:
        """Return the paper's figures; their keys are the cells' keys without the replicate."""

    def requires(self) -> Sequence[Experiment]:
        """Return the experiments whose rows the jobs of this one need; they are run, or resumed, first.

        Returns
        -------
        sequence of Experiment
        """
        return ()

    def needs(self, job: Key, other: Key) -> bool:
        """Return whether a job needs the rows of a job of a required experiment; by default those of its dataset.

        Parameters
        ----------
        job : Key
            A job of this experiment.
        other : Key
            A job of a required experiment.

        Returns
        -------
        bool
        """
        return job["dataset"] == other["dataset"]

    def listings(self, rows: Sequence[Row]) -> list[Listing]:
        """Return further tables to print beside the comparison.

        Parameters
        ----------
        rows : sequence of Row
            The finished rows.

        Returns
        -------
        list of Listing
        """
        return []

    def cost(self, job: Key) -> float:
        """Return roughly how long a job takes, in any unit: long jobs start first, and time left is estimated by it.

        Parameters
        ----------
        job : Key
            The job.

        Returns
        -------
        float
        """
        return 1.0

    def direction(self, cell: Key) -> Better:
        """Return which direction is good for a cell.

        Parameters
        ----------
        cell : Key
            The cell.

        Returns
        -------
        {"higher", "lower"}
        """
        if isinstance(self.better, str):
            return self.better
        return self.better[cell["metric"]]


def load_protocol(package: str, table: str | None = None) -> dict[str, Any]:
    """Read ``protocol.toml`` of a paper's package.

    Parameters
    ----------
    package : str
        E.g. ``"polymargin.papers.vangestel2002"``.
    table : str, optional
        The entries of ``[tables.<table>]`` are laid over the common ones and the other tables are left out,
        so that a change to one table does not invalidate the results of another.

    Returns
    -------
    dict
    """
    protocol = tomllib.loads(files(package).joinpath("protocol.toml").read_text(encoding="utf-8"))
    tables = protocol.pop("tables", {})
    if table is not None:
        protocol |= tables[table]
    return protocol


def protocol_hash(protocol: Mapping[str, Any]) -> str:
    """Return a short fingerprint of a protocol, which does not depend on the order of its entries.

    Parameters
    ----------
    protocol : mapping
        The protocol.

    Returns
    -------
    str
    """
    canonical = json.dumps(protocol, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
