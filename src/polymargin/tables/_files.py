"""Files of rows, read in batches: CSV (perhaps compressed), Parquet, and folders of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from polymargin.tables._dialect import Dialect
from polymargin.tables._records import read_header, read_records

__all__ = ["Batch", "Table", "open_table", "table_files"]

_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
#: So much of a CSV file is read at a time, and no row may be longer; so much more for every so many columns.
_BLOCK_BYTES, _COLUMNS_PER_BLOCK, _LARGEST_BLOCK = 2**20, 1000, 2**28
_ROWS = 20_000
#: The files of a folder that are read.
_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
#: What Arrow raises for files that are damaged, or that it cannot read.
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError)


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes
    ----------
    start : int
        How many rows come before them.
    cells : RecordBatch
        The columns asked for, in that order.
    share : float
        How much of the file has been read by now, between 0 and 1.
    """

    start: int
    cells: pa.RecordBatch
    share: float


class Table(ABC):
    """A file of rows with named columns.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str
        The names of the columns, as they stand in the file. A name may occur twice; to read it is an error.
    dialect : Dialect or None
        How texts are written, as far as the user has said so.

    See Also
    --------
    open_table : Opens a file.
    """

    #: Whether the rows are in memory, where no options of the command line help.
    in_memory: ClassVar[bool] = False

    def __init__(self, path: Path, columns: Sequence[str], dialect: Dialect | None = None) -> None:
        self.path, self.columns = path, tuple(columns)
        #: How texts are written, as far as the user has said so.
        self.dialect = dialect or Dialect()
        #: What messages call the first row: a header is row 1.
        self.first_row = 1
        #: What the user should know of how the file is read.
        self.notes: tuple[str, ...] = ()
        self._places = {name: place for place, name in enumerate(self.columns)}

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return Path(self.path.name.removesuffix(".gz")).stem

    def row(self, number: int) -> str:
        """Return how messages refer to a row.

        Parameters
        ----------
        number : int
            The number of rows before it.

        Returns
        -------
        str
        """
        return f"row {number + self.first_row}"

    def check(self, columns: Sequence[str]) -> None:
        """Raise ValueError if a column is missing or occurs twice.

        Parameters
        ----------
        columns : sequence of str
            The columns.

        Raises
        ------
        ValueError
            If a column is missing or occurs twice; the message names it.
        """
        missing = [name for name in columns if name not in self._places]
        if missing:
            known = f"its columns are {_listed(self.columns)}" if self.columns else "it has no columns at all"
            raise ValueError(f"{self.path.name} has no column {_listed(missing)}; {known}")
        if len(self._places) < len(self.columns):
            counts = Counter(self.columns)
            for name in columns:
                if counts[name] > 1:
                    raise ValueError(
                        f"{self.path.name} has more than one column {name!r}; rename all but one"
                    )

    def batches(self, columns: Sequence[str], max_rows: int = _ROWS) -> Iterator[Batch]:
        """Yield the rows of some columns in batches.

        Parameters
        ----------
        columns : sequence of str
            The columns to read.
        max_rows : int
            The most rows of a batch.

        Yields
        ------
        Batch
            In the order of the file.
        """
        self.check(columns)
        start = 0
        for cells, share in self._batches(columns, max_rows):
            for first in range(0, cells.num_rows, max_rows):
                part = cells.slice(first, max_rows)
                yield Batch(start, part, share)
                start += part.num_rows

    @abstractmethod
    def _batches(self, columns: Sequence[str], max_rows: int) -> Iterator[tuple[pa.RecordBatch, float]]:
        """Yield columns that exist, with the share of the file that has been read."""


def open_table(path: str | Path, dialect: Dialect | None = None) -> Table:
    """Return a CSV or Parquet file, or a folder of such files, as a table; its first bytes tell which a file is.

    Parameters
    ----------
    path : str or Path
        A CSV file, perhaps compressed by gzip; or a Parquet file; or a folder of them, whose files have the same
        columns and are read in the order of their names.
    dialect : Dialect or None
        How CSV files are written, as far as that is known; the rest is found out.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        If the file is neither, or empty, or seems to have no header; the message says what to do.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "fruit.csv"
    >>> _ = file.write_text("weight;colour\\n150;green\\n120;red\\n")
    >>> table = open_table(file)
    >>> table.columns
    ('weight', 'colour')
    >>> [batch.cells.to_pylist() for batch in table.batches(["colour"])]
    [[{'colour': 'green'}, {'colour': 'red'}]]
    """
    path, dialect = Path(path), dialect or Dialect()
    if path.is_dir():
        return _FolderTable(path, dialect)
    with path.open("rb") as stream:
        beginning = stream.read(4)
    if beginning == _PARQUET:
        return _ParquetTable(path, dialect)
    if beginning == _ZIP:
        raise ValueError(f"{path.name} is a zip archive or a spreadsheet; save it as CSV or Parquet")
    return _CsvTable(path, dialect, compressed=beginning.startswith(_GZIP))


def table_files(path: str | Path) -> list[Path]:
    """Return the files that a table is read from: the file itself, or those of a folder.

    Parameters
    ----------
    path : str or Path
        A file or a folder.

    Returns
    -------
    list of Path
        In the order in which they are read. Of a folder: files that end in .csv, .tsv, .parquet or .pq, the first two
        perhaps in .gz besides, but for those that begin with a point or an underscore.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.iterdir()
        if file.name.lower().endswith(_ENDINGS) and not file.name.startswith((".", "_")) and file.is_file()
    )


class _CsvTable(Table):
    def __init__(self, path: Path, dialect: Dialect, *, compressed: bool) -> None:
        self._compressed = compressed
        self._header = read_header(path, dialect, compressed=compressed)
        names = [name or f"Unnamed: {place}" for place, name in enumerate(self._header.names)]
        super().__init__(path, names, dialect)
        self.first_row = 1 + self._header.has_names
        if dialect.encoding is None and self._header.encoding in ("cp1252", "latin-1"):
            self.notes = (
                f"{path.name} is not in UTF-8 and read as {self._header.encoding} (--encoding names another)",
            )

    def _batches(self, columns: Sequence[str], max_rows: int) -> Iterator[tuple[pa.RecordBatch, float]]:
        places = [str(self._places[name]) for name in columns]
        invalid: list[Any] = []

        def note(row: Any) -> str:
            invalid.append(row)
            return "error"

        # Names are numbers here: those in the file may come twice. A text stays a text until all are seen.
        names = [str(place) for place in range(len(self.columns))]
        parse = pa.csv.ParseOptions(
            delimiter=self._header.separator, newlines_in_values=True, invalid_row_handler=note
        )
        convert = pa.csv.ConvertOptions(
            column_types={place: pa.string() for place in places}, include_columns=places
        )
        n_rows = 0
        for block, share in read_records(
            self.path, self._header, self._block_bytes(), compressed=self._compressed
        ):
            # Threads would not know the number of a bad row.
            read = pa.csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False)
            try:
                cells = pa.csv.read_csv(pa.py_buffer(block), read, parse, convert)
            except (pa.ArrowInvalid, OSError) as error:
                raise ValueError(self._what_is_wrong(str(error), invalid, n_rows)) from None
            n_rows += cells.num_rows
            for part in cells.rename_columns(list(columns)).to_batches():
                yield part, share

    def _block_bytes(self) -> int:
        """Return how much to read at a time: more of wide tables, as every batch costs time for every column."""
        return min(_LARGEST_BLOCK, _BLOCK_BYTES * (1 + len(self.columns) // _COLUMNS_PER_BLOCK))

    def _what_is_wrong(self, message: str, invalid: list[Any], rows_before: int) -> str:
        before = rows_before + self.first_row - 1
        if invalid:
            row = invalid[0]
            return (
                f"{self.path.name}, row {before + row.number}: {row.actual_columns} fields where the "
                f"{'header' if self._header.has_names else 'first row'} has {row.expected_columns}"
            )
        if "UTF8" in message:
            row = re.search(r"Row #(\d+)", message)
            where = f", row {before + int(row.group(1))}" if row else ""
            return f"{self.path.name}{where} is not in UTF-8; name its --encoding, such as cp1252"
        return f"{self.path.name} is not a CSV file: {message.splitlines()[0]}"


class _ParquetTable(Table):
    def __init__(self, path: Path, dialect: Dialect) -> None:
        try:
            with pa.parquet.ParquetFile(path) as file:
                columns = file.schema_arrow.names
        except _ARROW_ERRORS as error:
            raise ValueError(_bad_parquet(path, error)) from None
        super().__init__(path, columns, dialect)

    def _batches(self, columns: Sequence[str], max_rows: int) -> Iterator[tuple[pa.RecordBatch, float]]:
        with pa.parquet.ParquetFile(self.path, page_checksum_verification=True) as file:
            total, done = max(1, file.metadata.num_rows), 0
            try:
                for cells in file.iter_batches(max_rows, columns=list(columns)):
                    done += cells.num_rows
                    yield _without_views(cells.select(list(columns))), done / total
            except _ARROW_ERRORS as error:
                raise ValueError(_bad_parquet(self.path, error)) from None


class _FolderTable(Table):
    """The rows of all files of a folder, one file after the other."""

    def __init__(self, path: Path, dialect: Dialect) -> None:
        files = table_files(path)
        if not files:
            raise ValueError(
                f"the folder {path} holds no files that end in {', '.join(_ENDINGS)}; name one that does"
            )
        self._tables = [open_table(file, dialect) for file in files]
        self._starts: dict[int, int] = {}
        first = self._tables[0]
        super().__init__(path, first.columns, dialect)
        self.first_row = first.first_row
        self.notes = tuple(note for table in self._tables for note in table.notes)
        for table in self._tables[1:]:
            if sorted(table.columns) != sorted(first.columns):
                other = sorted(set(table.columns) ^ set(first.columns))
                raise ValueError(
                    f"the files of {path} must have the same columns, but {first.path.name} and {table.path.name} "
                    f"differ in {_listed(other) if other else 'how often a name occurs'}"
                )

    def row(self, number: int) -> str:
        """Return how messages refer to a row: by its file, and its number there."""
        place = max((place for place, start in self._starts.items() if start <= number), default=0)
        table = self._tables[place]
        return f"{table.path.name}, {table.row(number - self._starts.get(place, 0))}"

    def _batches(self, columns: Sequence[str], max_rows: int) -> Iterator[tuple[pa.RecordBatch, float]]:
        sizes = [table.path.stat().st_size for table in self._tables]
        total, before, n_rows = max(1, sum(sizes)), 0, 0
        for place, (table, size) in enumerate(zip(self._tables, sizes, strict=True)):
            self._starts[place] = n_rows
            for cells, share in table._batches(columns, max_rows):
                n_rows += cells.num_rows
                yield cells, (before + share * size) / total
            before += size


def _without_views(cells: pa.RecordBatch) -> pa.RecordBatch:
    """Return string views as strings: they mean the same, and much of Arrow cannot compute with views."""
    fields = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in cells.schema
    ]
    return cells if fields == list(cells.schema) else cells.cast(pa.schema(fields))


def _bad_parquet(path: Path, error: Exception) -> str:
    return f"{path.name} is a damaged Parquet file: {str(error).splitlines()[0]}"


def _listed(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
