"""Write a table batch by batch, so that the file is there completely or not at all."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet

#: The formats a table can be written in: comma-separated values, Parquet, and one JSON object per line.
Format = Literal["csv", "parquet", "json"]

Write = Callable[[pa.RecordBatch], None]


def format_of(path: Path | None) -> Format:
    """Return the format that a file's name asks for; None is stdout.

    >>> format_of(Path("a.parquet")), format_of(Path("a.jsonl.gz")), format_of(Path("a.csv.gz")), format_of(None)
    ('parquet', 'json', 'csv', 'csv')
    """
    endings = [] if path is None else [ending.lower() for ending in path.suffixes]
    if ".parquet" in endings or ".pq" in endings:
        return "parquet"
    return "json" if ".jsonl" in endings or ".ndjson" in endings else "csv"


@contextmanager
def writing(path: Path | None, as_: Format) -> Iterator[Write]:
    """Give a function that writes batches to a file (None: stdout), which has its name only when all is written.

    Whatever interrupts the writing leaves an older file of this name as it was, and nothing else.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "out.csv"
    >>> with writing(file, "csv") as write:
    ...     write(pa.RecordBatch.from_pydict({"id": [1, 2], "p(a)": [0.25, 0.5]}))
    >>> file.read_text()
    'id,p(a)\\n1,0.25\\n2,0.5\\n'
    """
    if path is None:
        if as_ == "parquet":
            raise ValueError("Parquet is not for stdout; name a file")
        yield _lines(sys.stdout, as_)
        sys.stdout.flush()
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if as_ == "parquet":
            with _Parquet(temporary) as parquet:
                yield parquet.write
        else:
            with _open_text(temporary, compressed=path.suffix == ".gz") as stream:
                yield _lines(stream, as_)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _open_text(path: Path, *, compressed: bool) -> TextIO:
    if compressed:
        return gzip.open(path, "wt", compresslevel=6, encoding="utf-8", newline="")
    return path.open("w", encoding="utf-8", newline="")


def _lines(stream: TextIO, as_: Format) -> Write:
    writer = csv.writer(stream, lineterminator="\n")
    headed = False

    def write_csv(batch: pa.RecordBatch) -> None:
        nonlocal headed
        if not headed:
            writer.writerow(batch.schema.names)
            headed = True
        writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def write_json(batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            line = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str)
            stream.write(line + "\n")

    return write_json if as_ == "json" else write_csv


class _Parquet:
    """A Parquet file that gets its columns from the first batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._path, batch.schema)
        self._writer.write_batch(batch)

    def __enter__(self) -> _Parquet:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()
