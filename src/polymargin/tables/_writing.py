"""Write a table batch by batch, so that the file is there completely or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet

from polymargin._output import replacing

#: The formats a table can be written in: comma-separated values, Parquet, and one JSON object per line.
Format = Literal["csv", "parquet", "json"]

Write = Callable[[pa.RecordBatch], None]
#: Names of files that people would take for something else than what is in them.
_NOT_WRITTEN = (
    *(
        ".xlsx",
        ".xls",
        ".xlsm",
        ".xlsb",
        ".ods",
        ".json",
        ".tsv",
        ".html",
        ".xml",
        ".zip",
        ".bz2",
        ".xz",
        ".zst",
    ),
    *(
        ".feather",
        ".arrow",
        ".ipc",
        ".orc",
        ".avro",
        ".pkl",
        ".sqlite",
        ".db",
        ".sav",
        ".dta",
        ".skops",
        ".onnx",
    ),
)


def format_of(path: Path | None) -> Format:
    """Return the format that a file's name implies.

    Parameters
    ----------
    path : Path or None
        The file; None is stdout.

    Returns
    -------
    {"csv", "parquet", "json"}

    Raises
    ------
    ValueError
        If it is the name of another kind of file.

    Examples
    --------
    >>> format_of(Path("a.parquet")), format_of(Path("a.jsonl.gz")), format_of(Path("a.csv.gz")), format_of(None)
    ('parquet', 'json', 'csv', 'csv')
    """
    endings = [] if path is None else [ending.lower() for ending in path.suffixes]
    if ".parquet" in endings or ".pq" in endings:
        return "parquet"
    other = next((ending for ending in endings[-1:] if ending in _NOT_WRITTEN), None)
    if other is not None:
        raise ValueError(f"{other} files are not written: name a .csv, .csv.gz, .jsonl or .parquet file")
    return "json" if ".jsonl" in endings or ".ndjson" in endings else "csv"


@contextmanager
def writing(path: Path | None, as_: Format, *, escape_formulas: bool = False) -> Iterator[Write]:
    """Open a file for writing in batches; it is renamed into place when all is written.

    If writing is interrupted, an older file of this name stays as it was, and no other file is left. Devices and pipes
    are written to directly. Parquet files have a checksum for every page.

    Parameters
    ----------
    path : Path or None
        The file; None is stdout.
    as_ : Format
        Its format.
    escape_formulas : bool, default=False
        Whether texts that a spreadsheet program would take for a formula get an apostrophe before them; see
        `without_formula`. For CSV only.

    Yields
    ------
    write : callable (RecordBatch) -> None
        Writes a batch.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "out.csv"
    >>> with writing(file, "csv") as write:
    ...     write(pa.RecordBatch.from_pydict({"id": [1, 2], "p(a)": [0.25, 0.5]}))
    >>> file.read_text()
    'id,p(a)\\n1,0.25\\n2,0.5\\n'
    """
    if escape_formulas and as_ != "csv":
        raise ValueError(f"formulas are escaped in CSV only, not in {as_}; leave --escape-formulas out")
    if path is None:
        if as_ == "parquet":
            raise ValueError("Parquet is not for stdout; name a file")
        yield _lines(sys.stdout, as_, escape_formulas)
        sys.stdout.flush()
        return
    with replacing(path) as file, ExitStack() as opened:
        if as_ == "parquet":
            yield opened.enter_context(_Parquet(file)).write
        else:
            stream = opened.enter_context(_text(file, compressed=path.suffix == ".gz"))
            yield _lines(stream, as_, escape_formulas)


#: What spreadsheet programs take for the beginning of a formula, or skip before one.
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def without_formula(value: Any) -> Any:
    """Return a text that no spreadsheet program takes for a formula: one that looks like it gets an apostrophe.

    Texts that begin with ``=``, ``+``, ``-``, ``@`` (their full-width forms too) or a control character such as tab
    look like formulas, unless they are numbers. What is no text is returned as it is.

    Examples
    --------
    >>> [without_formula(value) for value in ("=1+1", "-x", "-1.5", "a=b", -1.5)]
    ["'=1+1", "'-x", '-1.5', 'a=b', -1.5]
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


@contextmanager
def _text(file: BinaryIO, *, compressed: bool) -> Iterator[TextIO]:
    """Give a text file on top of a binary one, which stays open."""
    with ExitStack() as opened:
        binary: Any = file
        if compressed:
            binary = opened.enter_context(
                gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, filename="")
            )
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        try:
            yield stream
        finally:
            stream.detach()


def _lines(stream: TextIO, as_: Format, escape_formulas: bool) -> Write:
    writer = csv.writer(stream, lineterminator="\n")
    headed = False

    def cells(values: Sequence[Any]) -> Sequence[Any]:
        return [without_formula(value) for value in values] if escape_formulas else values

    def write_csv(batch: pa.RecordBatch) -> None:
        nonlocal headed
        if not headed:
            writer.writerow(cells(batch.schema.names))
            headed = True
        writer.writerows(zip(*(cells(column.to_pylist()) for column in batch.columns), strict=True))

    def write_json(batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            line = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str)
            stream.write(line + "\n")

    return write_json if as_ == "json" else write_csv


class _Parquet:
    """A Parquet file that gets its columns from the first batch."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._file, batch.schema, write_page_checksum=True)
        self._writer.write_batch(batch)

    def __enter__(self) -> _Parquet:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()
