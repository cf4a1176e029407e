"""A first look at all rows of a table: what its columns hold, and how many rows every class has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from polymargin.tables._cells import Kind
from polymargin.tables._files import Table
from polymargin.tables._labels import check_labels, check_target, label_texts, too_many
from polymargin.tables._looks import ColumnLook, Columns, look_at

#: Callback with the number of rows read so far and the share of the file, between 0 and 1.
ReadProgress = Callable[[int, float], None]


@dataclass(frozen=True)
class Scan:
    """What a look at all rows has found.

    Attributes
    ----------
    table : Table
        The file.
    target : str
        The column with the labels.
    n_rows : int
        The rows of the file.
    columns : Columns
        What every other column holds that was not to be dropped.
    label_counts : dict of str to int
        The rows of every label, as it is written.
    unlabelled : dict of str to int
        How many rows have no label, by what stands there instead.
    """

    table: Table
    target: str
    n_rows: int
    columns: Columns
    label_counts: dict[str, int]
    unlabelled: dict[str, int]

    @property
    def kinds(self) -> dict[str, Kind]:
        """What every column holds."""
        return self.columns.kinds

    @property
    def n_labelled(self) -> int:
        """How many rows have a label."""
        return sum(self.label_counts.values())


def scan_table(
    table: Table, target: str | None = None, drop: Iterable[str] = (), progress: ReadProgress | None = None
) -> Scan:
    """Look at all rows of a table, in batches.

    Parameters
    ----------
    table : Table
        The file.
    target : str or None
        The column with the labels; the last that is not dropped unless given.
    drop : iterable of str
        Columns not to be looked at.
    progress : callable or None
        Called with the number of rows read so far, and the share of the file.

    Returns
    -------
    Scan

    Raises
    ------
    ValueError
        If a column is missing or named twice, or the target holds no labels to learn from.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from polymargin.tables import open_table
    >>> file = Path(tempfile.mkdtemp()) / "fruit.csv"
    >>> _ = file.write_text("weight,colour,fruit\\n150,green,apple\\n120,,orange\\n,red,apple\\n9,red,\\n")
    >>> scan = scan_table(open_table(file))
    >>> scan.columns.kinds, scan.label_counts, scan.unlabelled
    ({'weight': 'number', 'colour': 'text'}, {'apple': 2, 'orange': 1}, {'': 1})
    """
    target, names = _columns(table, target, tuple(drop))
    looks: dict[str, ColumnLook] = {}
    labels: Counter[str] = Counter()
    unlabelled: Counter[str] = Counter()
    n_rows = 0
    for batch in table.batches([*names, target]):
        if not looks:
            looks = new_looks(table, batch.cells.select(names))
            check_target(target, batch.cells.column(target).type)
        for name in names:
            looks[name].add(batch.start, batch.cells.column(name))
        _count_labels(batch.cells.column(target), labels, unlabelled)
        n_rows += batch.cells.num_rows
        if too_many(len(labels)):
            break
        if progress is not None:
            progress(n_rows, batch.share)
    if n_rows == 0:
        raise ValueError(f"{table.path.name} needs a header row and data")
    check_labels(target, labels)
    return Scan(table, target, n_rows, look_at(looks, table.dialect.missing), dict(labels), dict(unlabelled))


def new_looks(table: Table, cells: pa.RecordBatch) -> dict[str, ColumnLook]:
    """Return an empty look at every column of these cells."""
    decimals, missing = table.dialect.decimals, table.dialect.missing_numbers
    return {field.name: ColumnLook(field.name, field.type, decimals, missing) for field in cells.schema}


def _columns(table: Table, target: str | None, drop: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the target and the other columns, which all exist once."""
    known, dropped = set(table.columns), set(drop)
    unknown = [name for name in drop if name not in known]
    if unknown:
        table.check(unknown)
    names = [name for name in table.columns if name not in dropped]
    if target is None:
        if not names:
            raise ValueError(f"all columns of {table.path.name} are dropped")
        target = names[-1]
    table.check([target, *names])
    if target in drop:
        raise ValueError(f"the target {target!r} is dropped; name another column by --target")
    names.remove(target)
    return target, names


def _count_labels(cells: pa.Array, labels: Counter[str], unlabelled: Counter[str]) -> None:
    names = label_texts(cells)
    labels.update({pair["values"]: pair["counts"] for pair in names.drop_null().value_counts().to_pylist()})
    if names.null_count:
        written = cells.filter(names.is_null()).cast(pa.string()).fill_null("").value_counts().to_pylist()
        for pair in written:
            unlabelled[pair["values"].strip()] += pair["counts"]
