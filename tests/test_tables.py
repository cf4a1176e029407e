"""Reading tables in files, typing their columns, and preparing them for a kernel."""

from __future__ import annotations

import csv
import datetime
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polymargin import datasets, tables
from polymargin.tables import _files


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def examples_of(path, target=None, **options):
    drop = options.pop("drop", ())
    return tables.read_examples(tables.scan_table(tables.open_table(path), target, drop), **options)


@pytest.fixture
def small_blocks(monkeypatch):
    """Have a batch end after every few rows."""
    monkeypatch.setattr(_files, "_BLOCK_BYTES", 64)


# Files that are read right


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_separators_quotes_and_newlines_in_fields(tmp_path, separator, newline, small_blocks):
    rows = [
        ["a", "b; c,d", "y"],
        ["1", 'say "hi"', "u"],
        ["2", "two\nlines", "v"],
        ["3", "", "u"],
        ["4", " x ", "v"],
    ]
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream, delimiter=separator, lineterminator=newline).writerows(rows)
    data = examples_of(path)
    assert list(data.frame) == ["a", "b; c,d"]
    assert data.frame["b; c,d"].tolist() == ['say "hi"', "two\nlines", None, "x"]
    assert data.labels.tolist() == ["u", "v", "u", "v"]


def test_byte_order_mark_and_compression(tmp_path):
    path = written(tmp_path, gzip.compress("\ufeffa,y\n1,u\n2,v\n".encode()), "t.csv.gz")
    data = examples_of(path)
    assert data.name == "t"
    assert data.frame["a"].tolist() == [1.0, 2.0]


def test_names_are_data(tmp_path):
    path = written(tmp_path, "<script>alert(1)</script>,,__class__,y\n1,2,3,<b>\n4,5,6,=cmd()\n")
    data = examples_of(path)
    assert list(data.frame) == ["<script>alert(1)</script>", "Unnamed: 1", "__class__"]
    assert data.labels.tolist() == ["<b>", "=cmd()"]


def test_a_column_that_is_numeric_first_and_text_later_is_text_from_the_start(tmp_path, small_blocks):
    values = [f"{i:03d}" for i in range(200)] + ["K12"]
    path = written(tmp_path, "a,y\n" + "".join(f"{value},{i % 2}\n" for i, value in enumerate(values)))
    assert len(list(tables.open_table(path).batches(["a"]))) > 5
    scan = tables.scan_table(tables.open_table(path))
    assert scan.kinds == {"a": "text"}
    assert scan.columns.first_texts == {"a": (200, "K12")}
    assert tables.read_examples(scan).frame["a"].tolist() == values  # 000, not 0


def test_numbers_in_all_their_forms(tmp_path):
    cells = [
        "1",
        "-2.5",
        "+3",
        " 4 ",
        "1e3",
        "",
        "NA",
        "n/a",
        "NaN",
        "null",
        "None",
        "?",
        "true",
        "False",
        "1e400",
        "-inf",
    ]
    cells += ["123456789012345678901234567890"]
    path = written(tmp_path, "a,b,y\n" + "".join(f"{cell},1,{i % 2}\n" for i, cell in enumerate(cells)))
    data = examples_of(path)
    missing = [np.nan] * 7
    expected = [1, -2.5, 3, 4, 1000, *missing, 1, 0, np.nan, np.nan, 123456789012345678901234567890.0]
    assert_array_equal(data.frame["a"].to_numpy(), expected)
    assert data.notes == ("column 'a': 2 infinite numbers count as missing",)


@pytest.mark.parametrize("text", ["1_000", "0x10", "1,5,5", "10 00", "12abc", "--1"])
def test_what_is_no_number(tmp_path, text):
    path = written(tmp_path, f'a,y\n1,u\n"{text}",v\n')
    assert tables.scan_table(tables.open_table(path)).kinds == {"a": "text"}


def test_parquet_types(tmp_path):
    # Older versions cannot write string views.
    view = pa.string_view() if int(pa.__version__.split(".")[0]) >= 21 else pa.string()
    table = pa.table(
        {
            "whole": pa.array([1, 2, None, 4]),
            "flag": pa.array([True, False, None, True]),
            "decimal": pa.array(["1.5", "2.5", "3.5", None], pa.string()).cast(pa.decimal128(5, 2)),
            "colour": pa.array(["red", "blue", "red", None]).dictionary_encode(),
            "code": pa.array([7, 8, 7, 8]).dictionary_encode(),
            "when": pa.array([datetime.datetime(2020, 1, day) for day in (1, 2, 3, 4)]),
            "list": pa.array([[1], [2], [], None]),
            "empty": pa.nulls(4),
            "view": pa.array(["a", "b", "a", "b"], view),
            "label": pa.array([0.0, 1.0, np.nan, None]),
        }
    )
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    scan = tables.scan_table(tables.open_table(path))
    assert scan.kinds["when"] == "date"
    assert scan.kinds["list"] == "other"
    assert scan.unlabelled == {"nan": 1, "": 1}
    data = tables.read_examples(scan)
    assert data.labels.tolist() == [0, 1]  # whole numbers, although stored as floating-point numbers
    assert data.labels.dtype == np.int64
    assert data.frame.columns.tolist() == [
        "whole",
        "flag",
        "decimal",
        "colour",
        "code",
        "when",
        "empty",
        "view",
    ]
    assert data.frame.iloc[1].tolist()[:6] == [2.0, 0.0, 2.5, "blue", 8.0, 18263.0]
    assert "2 of 4 rows have no label in 'label' and are left out" in data.notes[0]


def test_csv_and_parquet_give_the_same(tmp_path):
    frame = pd.DataFrame(
        {"x": [0.1, 0.2, np.nan], "c": ["a", None, "b"], "f": [True, False, True], "y": ["u", "v", "u"]}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    one, other = examples_of(tmp_path / "t.csv"), examples_of(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(one.frame, other.frame)
    assert one.labels.tolist() == other.labels.tolist()


# Files that are refused


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "needs a header row and data"),
        ("\n\n", "needs a header row and data"),
        ("a,b\n", "needs a header row and data"),
        ("a,y\n1,u\n2\n", "row 3: 1 fields where the header has 2"),
        ("a,y\n1,u\n\n2,v,w\n", "row 3: 3 fields where the header has 2"),
        ("a,a,y\n1,2,u\n3,4,v\n", "more than one column 'a'"),
        ("y\nu\nv\n", "no column to learn from"),
        (b"PK\x03\x04rest", "spreadsheet"),
        (b"PAR1 no", "damaged Parquet"),
        (gzip.compress(b"a,y\n1,u\n" * 1000, mtime=0)[:-20], "damaged gzip file"),
        ("a,y\n1,\n2,NA\n", "no row has a label"),
        ("a,y\n1,u\n2,u\n", "only one class, 'u'"),
        ('a,y\n"open,2\n3,4\n', "line 2: a quote is opened and never closed"),
    ],
)
def test_refused(tmp_path, content, words):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=words):
        tables.choose_features(examples_of(path))


def test_a_row_longer_than_a_block_is_named_as_such(tmp_path, small_blocks):
    path = written(tmp_path, 'a,y\n1,u\n"' + "x" * 1000 + "\n2,v\n")
    with pytest.raises(ValueError, match="is a quote left open"):
        tables.scan_table(tables.open_table(path))


def test_a_name_that_comes_twice_may_be_dropped(tmp_path):
    path = written(tmp_path, "a,a,b,y\n1,2,3,u\n3,4,5,v\n")
    assert list(examples_of(path, drop=["a"]).frame) == ["b"]


def test_labels_that_are_none(tmp_path):
    rows = 60
    random = np.random.default_rng(0)
    columns = {
        "regression": random.normal(size=rows).round(6),
        "date": [f"2024-01-{1 + i % 28:02d}" for i in range(rows)],
        "name": [f"person {i}" for i in range(rows)],
        "number": np.arange(rows),
        "x": random.normal(size=rows),
    }
    path = tmp_path / "t.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    for target, words in [
        ("regression", "continuous number"),
        ("date", "holds dates"),
        ("name", "more like numbers or names"),
        ("number", "more like numbers or names"),
    ]:
        with pytest.raises(ValueError, match=words):
            tables.scan_table(tables.open_table(path), target)
    pq.write_table(pa.table({"x": [1.0], "when": [datetime.date(2020, 1, 1)]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="holds dates"):
        tables.scan_table(tables.open_table(tmp_path / "t.parquet"))


def test_kinds_of_labels():
    assert tables.typed_labels(["0.5", "1.0"]) == {"0.5": "0.5", "1.0": "1.0"}
    huge = str(2**70)
    assert tables.typed_labels([huge, "1"]) == {huge: huge, "1": "1"}
    assert tables.typed_labels(["+1", "-1.0"]) == {"+1": 1, "-1.0": -1}
    assert_array_equal(
        tables.class_indices(["1", "1.0", "0.5", "nan", None], np.array(["0.5", "1"])), [1, 1, 0, -1, -1]
    )


def test_none_is_a_label_but_a_missing_value(tmp_path):
    data = examples_of(written(tmp_path, "a,y\nnone,none\nx,mild\ny,NA\n"))
    assert data.labels.tolist() == ["none", "mild"]
    assert data.frame["a"].tolist() == [None, "x"]


# Weights and samples


@pytest.mark.parametrize(("cell", "words"), [("-1", "row 3"), ("", "row 3"), ("heavy", "texts, not numbers")])
def test_bad_weights(tmp_path, cell, words):
    path = written(tmp_path, f"a,w,y\n1,1,u\n2,{cell},v\n")
    with pytest.raises(ValueError, match=words):
        examples_of(path, weight="w")


def test_sample_has_every_class_and_all_rows_equal_chances(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK_BYTES", 4096)  # three batches
    labels = ["often"] * 900 + ["seldom"] * 93 + ["rare"] * 7
    order = np.random.default_rng(0).permutation(1000)
    text = "a,y\n" + "".join(f"{i},{labels[i]}\n" for i in order)
    scan = tables.scan_table(tables.open_table(written(tmp_path, text)))
    taken = np.zeros(1000)
    for seed in range(40):
        data = tables.read_examples(scan, sample=100, seed=seed)
        rows = data.frame["a"].to_numpy().astype(int)
        assert len(set(rows.tolist())) == 100
        assert [labels[i] for i in rows] == data.labels.tolist()
        assert_array_equal(order[data.row_numbers], rows)
        taken[rows] += 1
    assert taken[993:].sum() == 40 * 5  # five of the rare, although their share is less than one
    assert taken[900:993].sum() == 40 * 9
    # 900 rows drawn 86 at a time: the counts are binomial but for drawing without replacement
    share = 86 / 900
    assert_allclose(taken[:900].std(), np.sqrt(40 * share * (1 - share)), rtol=0.15)
    assert "these classes are more frequent than in the file: 'rare'" in data.notes[1]
    with pytest.raises(ValueError, match="too small for 3 classes"):
        tables.read_examples(scan, sample=5)


def test_the_same_seed_gives_the_same_sample(tmp_path):
    path = written(tmp_path, "a,y\n" + "".join(f"{i * i},{i % 3}\n" for i in range(300)))
    one, same, other = (examples_of(path, sample=30, seed=seed).row_numbers for seed in (1, 1, 2))
    assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_rows_and_columns_are_taken_from_frames_as_from_arrays(tmp_path):
    text = "a,b,w,g,y\n" + "".join(
        f"{i or ''},{'uv'[i % 2] if i else ''},{i},g{i // 2},{i % 3}\n" for i in range(12)
    )
    path = written(tmp_path, text)
    frame, arrays = examples_of(path, weight="w", group="g"), datasets.read_csv(path).select(["a", "b"])
    assert repr(frame) == "Examples('t': 12 rows, 2 features, 3 classes)"
    assert (frame.nominal, frame.source) == (arrays.nominal, arrays.source) == (("b",), "file t.csv")
    assert_array_equal(frame.missing, arrays.missing)
    assert frame.has_missing
    taken, other = frame.take([7, 3, 0], "three rows"), arrays.take([7, 3, 0], "three rows")
    assert taken.source == other.source == "file t.csv; three rows"
    assert_array_equal(taken.frame.isna(), other.missing)
    assert_array_equal(taken.frame.fillna(-1), np.where(other.missing, -1, other.X))
    assert_array_equal(taken.extras["row"], other.extras["row"])
    assert (taken.row_numbers.tolist(), taken.weights.tolist()) == ([7, 3, 0], [7, 3, 0])
    assert taken.groups.tolist() == ["g3", "g1", "g0"]
    numbers = taken.select(["a"])
    assert (numbers.feature_names, numbers.nominal, numbers.frame.shape) == (("a",), (), (3, 1))
    assert_array_equal(numbers.frame, other.select(["a"]).X)


def test_the_rows_of_a_dataset_keep_their_numbers(tmp_path):
    """A column that counts the rows of a file is found where rows without a label are left out, too."""
    path = written(
        tmp_path, "id,a,y\n" + "".join(f"{i},{i % 7},{'' if i == 5 else i % 2}\n" for i in range(30))
    )
    read, converted = (
        tables.choose_features(t) for t in (examples_of(path), tables.examples_of(datasets.read_csv(path)))
    )
    assert read.feature_names == converted.feature_names == ("a",)
    assert read.notes[-1] == converted.notes[-1]
    assert "different whole number in every row, in order, like an identifier" in read.left_out["id"]


# Columns


def test_the_note_on_decimal_commas_names_columns_that_have_them(tmp_path):
    path = tmp_path / "t.csv"
    prices = [f"{i}.{i % 9}17,5{i % 10}" for i in range(1, 41)]
    rows = [f"{i % 60};{i % 30} %;{prices[i]};{'ab'[i % 2]}\n" for i in range(40)]
    path.write_text("age;discount;price;y\n" + "".join(rows))
    chosen = tables.choose_features(tables.read_examples(tables.scan_table(tables.open_table(path))))
    assert "decimal mark: a comma in 'price' (--decimal)" in chosen.notes
    assert chosen.columns.commas == ("price",)
    assert chosen.frame["price"][0] == 1117.51


def test_columns_that_teach_nothing_are_left_out(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "": np.arange(1, 201),
            "id": [f"case {i}" for i in range(200)],
            "town": [f"town {i % 150}" for i in range(200)],
            "same": "x",
            "nothing": np.nan,
            "income": ["12,345"] * 100 + ["9,876"] * 100,
            "height": ["1,75"] * 100 + ["1,80"] * 100,
            "age": [*map(str, random.normal(size=199)), "grown up"],
            "x": random.normal(size=200),
            "y": np.arange(200) % 2,
        }
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    scan = tables.scan_table(tables.open_table(path))
    chosen = tables.choose_features(tables.read_examples(scan))
    assert list(chosen.frame) == ["income", "height", "x"]
    assert chosen.frame["income"].tolist()[0] == 12345.0
    assert chosen.frame["height"].tolist()[0] == 1.75
    notes = "\n".join(chosen.notes)
    for words in (
        "'Unnamed: 0' is left out: it has a different whole number in every row, in order, like an identifier",
        "'id' is left out: it has a different text in every row",
        "'town' is left out: it has more than 100 different texts (--max-categories)",
        "'same' is left out: it is constant",
        "'nothing' is left out: it is empty",
        "decimal mark: a comma in 'height'",
    ):
        assert words in notes
    age = tables.choose_features(tables.read_examples(scan, sample=150)).notes
    assert any("'age' is left out" in line for line in age)
    assert "town" in tables.choose_features(tables.read_examples(scan), max_categories=150).frame


def test_numbers_that_rise_from_row_to_row_are_noted(tmp_path):
    number = np.delete(
        np.arange(100, 300), np.arange(0, 200, 5)
    )  # with gaps: the other rows are in another file
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": number,
            "year": number // 2,
            "time": number + 0.5,
            "shuffled": random.permutation(number),
            "seldom": number**3,
            "holes": np.where(number == 101, np.nan, number),
            "y": np.arange(number.size) % 2,
        }
    )
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    for sample in (None, 60):
        scan = tables.scan_table(tables.open_table(path))
        chosen = tables.choose_features(tables.read_examples(scan, sample=sample))
        assert list(chosen.frame) == ["year", "time", "seldom"]
        assert list(chosen.left_out) == ["number", "shuffled", "holes"]
        (rising,) = (note for note in chosen.notes if "rises from row to row" in note)
        assert rising.startswith("column 'seldom' rises")
        assert "--drop seldom" in rising
    few = frame[:19]
    few.to_csv(path, index=False)
    scan = tables.scan_table(tables.open_table(path))
    assert tables.choose_features(tables.read_examples(scan)).notes == ()


def test_too_many_texts_names_the_one_among_numbers(tmp_path):
    values = [*(f"{i / 7:.3f}" for i in range(150)), "too old"] * 2
    path = written(tmp_path, "age,x,y\n" + "".join(f"{v},{i * i},{i % 2}\n" for i, v in enumerate(values)))
    scan = tables.scan_table(tables.open_table(path))
    notes = tables.choose_features(tables.read_examples(scan)).notes
    assert any("correct 'too old' in row 152" in line for line in notes)


def test_preparation_against_arithmetic():
    frame = pd.DataFrame(
        {
            "x": [1.0, np.nan, 4.0, 7.0],
            "c": np.array(["b", None, "a", "b"], dtype=object),
            "z": [True, False, True, True],
        }
    )
    found = tables.preparation(frame).fit(frame).transform(frame.assign(extra=1))
    x = np.array([1.0, 4.0, 4.0, 7.0])
    z = np.array([1.0, 0.0, 1.0, 1.0])
    missing = [0.0, 1.0, 0.0, 0.0]
    expected = np.column_stack(
        [
            (x - x.mean()) / x.std(),
            (z - z.mean()) / z.std(),
            missing,
            [0.0, 0.0, 1.0, 0.0],
            [1.0, 0.0, 0.0, 1.0],
        ]
    )
    assert_allclose(found, expected, atol=1e-12)
    new = frame.assign(c=np.array(["c", np.nan, None, "a"], dtype=object))
    assert_array_equal(
        tables.preparation(frame).fit(frame).transform(new)[:, 3:], [[0, 0], [0, 0], [0, 0], [1, 0]]
    )


# Writing


def interrupted(path, batch):
    with tables.writing(path, tables.format_of(path)) as write:
        write(batch)
        raise KeyboardInterrupt


def test_an_interrupted_file_is_not_there(tmp_path):
    batch = pa.RecordBatch.from_pydict({"a": [1]})
    old = written(tmp_path, "old", "o.csv")
    for name in ("o.csv", "o.parquet", "o.csv.gz", "o.jsonl"):
        path = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            interrupted(path, batch)
    assert [path.name for path in tmp_path.iterdir()] == ["o.csv"]
    assert old.read_text() == "old"


def test_formats_hold_the_same(tmp_path):
    batch = pa.RecordBatch.from_pydict({"a,\n<b>": ["x", 'q"', None], "p": [0.1, 1 / 3, 1.0]})
    for name in ("o.csv", "o.csv.gz", "o.parquet", "o.jsonl"):
        path = tmp_path / name
        with tables.writing(path, tables.format_of(path)) as write:
            write(batch.slice(0, 2))
            write(batch.slice(2))
    frames = [
        pd.read_csv(tmp_path / "o.csv"),
        pd.read_csv(tmp_path / "o.csv.gz"),
        pd.read_parquet(tmp_path / "o.parquet"),
        pd.read_json(tmp_path / "o.jsonl", lines=True, precise_float=True),
    ]
    for frame in frames:
        assert list(frame) == ["a,\n<b>", "p"]
        assert frame["p"].tolist() == [0.1, 1 / 3, 1.0]
        assert frame.iloc[:2, 0].tolist() == ["x", 'q"']
        assert frame.iloc[:, 0].isna().tolist() == [False, False, True]
