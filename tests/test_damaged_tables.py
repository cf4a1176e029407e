"""Tables that are damaged or hostile: every row is read, or an error says what is wrong and where."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import polymargin
from polymargin import LSSVMClassifier, tables
from polymargin.cli import app
from polymargin.tables import _files

ROWS = 90


def rows_of(path, dialect=None, columns=("a", "b")):
    """Return all rows as lists of texts."""
    batches = tables.open_table(path, dialect).batches(list(columns))
    return [list(row.values()) for batch in batches for row in batch.cells.to_pylist()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model of the columns a and b, and the table it comes from."""
    folder = tmp_path_factory.mktemp("damaged")
    X = np.random.default_rng(0).normal(size=(ROWS, 2)).round(3)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = LSSVMClassifier(kernel="linear").fit(frame, X[:, 0] > 0)
    polymargin.save(model, folder / "m.skops")
    frame.assign(note="text", kind=X[:, 0] > 0).to_csv(folder / "t.csv", index=False)
    return folder


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


# Quotes


def test_an_open_quote_is_an_error_that_names_the_line(folder, tmp_path):
    lines = (folder / "t.csv").read_text().splitlines(keepends=True)
    lines[4] = lines[4].replace("text", '"text')
    path, out = tmp_path / "t.csv", tmp_path / "o.csv"
    path.write_text("".join(lines))
    for command in (["predict", folder / "m.skops", path, "-o", out], ["fit", path, "-o", out]):
        result = run(*command)
        assert result.exit_code == 1
        assert "t.csv, line 5: a quote is opened and never closed" in result.stderr
        assert not out.exists()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("records", "words"),
    [
        (["a,b", "1,x", '2,"y', "3,z"], "line 3: a quote is opened and never closed"),
        (["a,b", '1,"x', "2,y", '3,"z"'], "line 2: a quote is opened here, and the next one"),
        (["a,b", '1,"two', 'lines"', '2,"x"y'], "line 4: a quote is opened here"),
        (['a,"b', "c", "1,x"], "line 1: the header cannot be read"),
    ],
)
@pytest.mark.parametrize("block_bytes", [16, 2**20])
def test_quotes_that_lose_rows_are_refused(tmp_path, monkeypatch, records, words, newline, block_bytes):
    monkeypatch.setattr(_files, "_BLOCK_BYTES", block_bytes)
    path = tmp_path / "t.csv"
    path.write_bytes(newline.join(records).encode())
    with pytest.raises(ValueError, match=words):
        rows_of(path)


@given(
    rows=st.lists(st.lists(st.text('ab,;" \n\r', max_size=5), min_size=2, max_size=2), max_size=12),
    newline=st.sampled_from(["\n", "\r\n"]),
    damage=st.none() | st.tuples(st.integers(0, 200), st.sampled_from(['"', ""])),
    block_bytes=st.sampled_from([24, 64, 2**20]),
)
@settings(max_examples=150, deadline=None)
def test_records_are_those_of_the_csv_module(tmp_path_factory, rows, newline, damage, block_bytes):
    """What Python's strict reader reads we read too, or say that a row is too long; what it refuses is refused."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows(rows)
    body = stream.getvalue()
    if damage is not None and body:
        place = damage[0] % len(body)
        body = body[:place] + damage[1] + body[place + 1 :]
    text = f"a,b{newline}{body}"
    path = tmp_path_factory.mktemp("quotes") / "t.csv"
    path.write_bytes(text.encode())
    try:
        expected = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row][1:]
    except csv.Error:
        expected = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_files, "_BLOCK_BYTES", block_bytes)
        found, refusal = None, ""
        try:
            found = rows_of(path, tables.Dialect(header=True))
        except ValueError as error:
            refusal = str(error)
    if refusal:
        ragged = expected is not None and any(len(row) != 2 for row in expected)
        assert expected is None or ragged or "a row of more than" in refusal
        return
    # Blanks after a closing quote are read as a part of the text, which Python's strict reader refuses.
    assert found == expected or (expected is None and '" ' in text)


def test_quotes_inside_a_field_and_blanks_after_one_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n5" pipe,x\n"y" ,"z" \n1,""\n')
    assert rows_of(path) == [['5" pipe', "x"], ["y ", "z "], ["1", ""]]


# Compression


@pytest.mark.parametrize("place", [12, 400, -6])
def test_a_damaged_gzip_file_is_an_error_in_words(folder, tmp_path, place):
    data = bytearray(gzip.compress((folder / "t.csv").read_bytes(), mtime=0))
    data[place] ^= 0xFF
    path = tmp_path / "t.csv.gz"
    path.write_bytes(data)
    for command in (["fit", path], ["compare", path], ["predict", folder / "m.skops", path]):
        result = run(*command)
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert "t.csv.gz" in result.stderr
        assert result.stderr.count("polymargin:") == 1


def test_a_damaged_dataset_by_name_is_an_error_in_words(tmp_path, monkeypatch):
    data = bytearray(gzip.compress(b"a,b,class\n" + b"1.5,2.5,x\n" * 500, mtime=0))
    data[20] ^= 0xFF
    (tmp_path / "wine.csv.gz").write_bytes(data)
    monkeypatch.setenv("POLYMARGIN_DATA", str(tmp_path))
    result = run("compare", "wine")
    assert result.exit_code == 1
    assert "wine.csv.gz is a damaged gzip file" in result.stderr


@pytest.mark.parametrize("beginning", [b"", b"a,b\n"])
def test_a_file_without_lines_is_not_unpacked_whole(tmp_path, beginning):
    path = tmp_path / "t.csv.gz"
    n_bytes = 200 * 2**20
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(beginning)
        for _ in range(n_bytes >> 20):
            stream.write(b"1" * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"of more than \d+ MiB"):
            rows_of(path)
        assert tracemalloc.get_traced_memory()[1] < n_bytes / 2
    finally:
        tracemalloc.stop()


# Parquet


def test_parquet_pages_are_checked_where_they_have_a_checksum(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"a": np.arange(1000.0), "b": ["x", "y"] * 500})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    place = data.find(np.float64(500.0).tobytes())
    data[place + 6] ^= 1  # another number, which is as good as the first without a checksum
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"t\.parquet is a damaged Parquet file"):
        rows_of(path)


def test_our_parquet_files_have_checksums(tmp_path):
    path = tmp_path / "o.parquet"
    with tables.writing(path, "parquet") as write:
        write(pa.RecordBatch.from_pydict({"a": np.arange(1000.0), "b": ["x"] * 1000}))
    data = path.read_bytes()
    damaged = 0
    for place in range(4, len(data) - 2000, 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(ValueError, match="damaged Parquet file"):
            rows_of(path)
        damaged += 1
    assert damaged > 20


# Wide tables


def test_the_number_of_batches_does_not_grow_with_the_number_of_columns(tmp_path):
    """Every batch costs time for every column, so that more of both would be quadratic time."""
    n_batches = []
    for n_columns in (2000, 20_000):
        path = tmp_path / "t.csv"
        with path.open("w") as stream:
            stream.write(",".join(f"c{j}" for j in range(n_columns)) + "\n")
            stream.write((",".join(["-1.2345"] * n_columns) + "\n") * 30)
        table = tables.open_table(path)
        n_batches.append(len(list(table.batches([table.columns[0], table.columns[-1]]))))
    assert n_batches[1] <= n_batches[0] + 1


class Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other):
        Name.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_columns_are_looked_up_not_searched_for(tmp_path):
    n_columns = 3000
    path = tmp_path / "t.csv"
    names = [f"c{j}" for j in range(n_columns)]
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * n_columns) + "\n")
    table = tables.open_table(path)
    Name.comparisons = 0
    assert len(list(table.batches([Name(name) for name in names]))) == 1
    assert Name.comparisons < 20 * n_columns
