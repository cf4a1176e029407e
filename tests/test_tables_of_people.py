"""Files as people have them: each is read as a person would read it, or refused with what to do."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polymargin import tables
from polymargin.tables import Dialect, _files
from polymargin.tables._identifiers import _MOST_HELD, Numbering

ROWS = 60


def days(*dates):
    return (np.array(dates, dtype="datetime64[s]") - np.datetime64(0, "s")).astype(float) / 86_400


def written(folder, columns, delimiter=",", encoding="utf-8", header=True, name="t.csv"):
    """Write columns of texts, repeated to sixty rows, and a label that no column is called after."""
    columns = {key: np.resize(np.array(values, dtype=object), ROWS) for key, values in columns.items()}
    columns["label"] = np.array(["no", "yes"], dtype=object)[np.arange(ROWS) // 7 % 2]
    quote = [
        [f'"{cell}"' if delimiter in cell else cell for cell in row]
        for row in zip(*columns.values(), strict=True)
    ]
    lines = [delimiter.join(columns)] * header + [delimiter.join(row) for row in quote]
    path = folder / name
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


def read(path, dialect=None, **options):
    scan = tables.scan_table(tables.open_table(path, dialect), options.pop("target", None))
    return tables.choose_features(tables.read_examples(scan), **options)


# A column: how it is written, and what it says.
NUMBERS = {
    "plain": (["1", "2.5", "-3e2"], [1, 2.5, -300]),
    "a stray dash": (["1", "-", "3"], [1, np.nan, 3]),
    "a question mark": (["1", "?", "3"], [1, np.nan, 3]),
    "n/a": (["1", "n/a", "3"], [1, np.nan, 3]),
    "unknown": (["1", "unknown", "3"], [1, np.nan, 3]),
    "a spreadsheet's error": (["1", "#DIV/0!", "3"], [1, np.nan, 3]),
    "English thousands": (["1,234", "12,345.5", "7"], [1234, 12345.5, 7]),
    "French thousands": (["1 234,5", "12\u202f345", "7"], [1234.5, 12345, 7]),
    "Swiss thousands": (["1'234.5", "12’345", "7"], [1234.5, 12345, 7]),
    "German thousands": (["1.234,5", "12.345", "7,25"], [1234.5, 12345, 7.25]),
    "a decimal comma": (["1,5", "-2,25", ",5"], [1.5, -2.25, 0.5]),
    "dollars": (["$1,234.50", "-$3", "$ 7"], [1234.5, -3, 7]),
    "euros": (["1.234,50 €", "-3\u00a0€", "€ 7,5"], [1234.5, -3, 7.5]),
    "a code of a currency": (["EUR 5", "12.5 USD", "CHF 1'000"], [5, 12.5, 1000]),
    "per cent": (["12%", "3.5 %", "-1%"], [12, 3.5, -1]),
    "a typographic minus": (["−3", "4", "5"], [-3, 4, 5]),
    "truth": (["true", "FALSE", "True"], [1, 0, 1]),
}  # fmt: skip
DATES = {
    "ISO": (["2024-01-31", "2023-12-24", ""], [*days("2024-01-31", "2023-12-24"), np.nan]),
    "ISO with a time": (["2024-01-31T06:00:00Z", "2024-01-31 18:00"], days("2024-01-31T06:00", "2024-01-31T18:00")),
    "a time zone": (["2024-01-31T06:00:00+02:00", "2024-02-01"], days("2024-01-31T04:00", "2024-02-01")),
    "German": (["31.01.2024", "1.2.2024", "-"], [*days("2024-01-31", "2024-02-01"), np.nan]),
    "British": (["31/01/2024", "01/02/2024"], days("2024-01-31", "2024-02-01")),
    "American": (["01/31/2024", "02/01/2024"], days("2024-01-31", "2024-02-01")),
    "American with a time": (["01/31/2024 3:30 PM", "02/01/2024 9:00 AM"], days("2024-01-31T15:30", "2024-02-01T09")),
    "in words": (["31 January 2024", "1 February 2024"], days("2024-01-31", "2024-02-01")),
    "month first": (["Jan 31, 2024", "Feb 1, 2024"], days("2024-01-31", "2024-02-01")),
    "a spreadsheet's": (["31-Jan-24", "1-Feb-24"], days("2024-01-31", "2024-02-01")),
    "a mail's": (["Wed, 31 Jan 2024", "Thu, 1 Feb 2024"], days("2024-01-31", "2024-02-01")),
}  # fmt: skip


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("cells", NUMBERS, ids=str)
def test_columns_of_numbers(tmp_path, delimiter, cells, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK_BYTES", 256)  # several batches
    texts, values = NUMBERS[cells]
    found = read(written(tmp_path, {"x": texts, "other": ["1", "2"]}, delimiter))
    assert found.kinds == {"x": "number", "other": "number"}
    assert_array_equal(found.frame["x"], np.resize(np.array(values, dtype=float), ROWS))


@pytest.mark.parametrize("cells", DATES, ids=str)
def test_columns_of_dates(tmp_path, cells, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK_BYTES", 256)
    texts, values = DATES[cells]
    found = read(written(tmp_path, {"x": texts, "other": ["1", "2"]}))
    assert found.kinds["x"] == ("time" if np.nanmax(np.mod(values, 1)) > 0 else "date")
    assert_allclose(found.frame["x"], np.resize(np.array(values), ROWS))
    assert any("day, season and weekday are learned from: 'x'" in note for note in found.notes)


@pytest.mark.parametrize(
    "texts",
    [["1_000", "2"], ["0x10", "1"], ["12abc", "3"], ["--1", "2"], ["1,5", "1.5,5"], ["1,2,3", "1"], ["12.5", "1,5"],
     ["10:30", "11:00"], ["2024-02-30", "2024-01-01"], ["31/01/2024", "01/31/2024"], ["red", "2024-01-31"]],
    ids=" ".join,
)  # fmt: skip
def test_columns_of_texts(tmp_path, texts):
    found = read(written(tmp_path, {"x": texts}, ";"))
    assert found.kinds == {"x": "text"}
    assert found.frame["x"].tolist() == np.resize(texts, ROWS).tolist()


def test_what_one_column_tells_of_all(tmp_path):
    """1.234 is a thousand and something only where decimal marks are commas."""
    point = read(written(tmp_path, {"x": ["1.234", "2.345"], "y": ["1.5", "2.5"]}))
    comma = read(written(tmp_path, {"x": ["1.234", "2.345"], "y": ["1,5", "2,5"]}, ";"))
    assert point.frame["x"].tolist()[:2] == [1.234, 2.345]
    assert comma.frame["x"].tolist()[:2] == [1234, 2345]
    told = read(written(tmp_path, {"x": ["1.234", "2.345"]}), Dialect(decimal=","))
    assert told.frame["x"].tolist()[:2] == [1234, 2345]


def test_dates_that_can_be_read_in_two_ways_are_said_so(tmp_path):
    found = read(written(tmp_path, {"x": ["01/02/2024", "03/04/2024"]}))
    assert_allclose(found.frame["x"][:2], days("2024-02-01", "2024-04-03"))
    assert "column 'x': every date can be read in two ways, and is read as day/month/year" in found.notes


def test_a_late_text_among_numbers_and_dates_makes_texts_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK_BYTES", 64)
    numbers, dates = (
        ["1", "2"] * 29 + ["1", "none at all"],
        ["2024-01-31", "2024-02-01"] * 29 + ["2024-01-31", "soon"],
    )
    late = read(written(tmp_path, {"n": ["", *numbers[1:]], "d": ["", *dates[1:]]}))
    assert late.kinds == {"n": "text", "d": "text"}
    assert late.frame["d"].tolist()[-1] == "soon"


@pytest.mark.parametrize("mark", [",", "."])
def test_the_text_that_is_to_be_corrected_is_no_number(tmp_path, mark):
    """With either decimal mark, not the first number that is written with the other."""
    cells = [f"{i % 50}{mark}5" for i in range(ROWS)]
    cells[40] = "k.A."
    path = written(tmp_path, {"size": cells, "age": ["1", "2", "3"]}, delimiter=";")
    notes = read(path, max_categories=20).notes
    assert any(
        "correct 'k.A.' in row 42 or count it as missing (--missing 'k.A.')" in note for note in notes
    ), notes


def test_words_for_missing_numbers_can_be_added(tmp_path):
    path = written(tmp_path, {"x": [*map(str, range(0, 90, 3)), "too few"], "z": ["1", "2"]})
    found = read(path, max_categories=20)
    assert "left out: it has more than 20 different texts" in found.notes[0]
    assert "correct 'too few' in row 32 or count it as missing (--missing 'too few')" in found.notes[0]
    found = read(path, Dialect(missing=("Too few",)))
    assert found.kinds["x"] == "number"
    assert np.isnan(found.frame["x"][30])


# Delimiters, encodings, headers


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " ", "^"])
def test_delimiters_that_are_given(tmp_path, delimiter):
    path = written(tmp_path, {"a b" if delimiter != " " else "ab": ["1", "2"], "c": ["u", "v"]}, delimiter)
    assert len(read(path, Dialect(delimiter=delimiter)).frame.columns) == 2
    assert Dialect(delimiter="tab").delimiter == "\t"


def test_a_header_with_two_separators(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("city, country;size;label\n" + "Bonn, DE;1,5;a\nRome;2,5;b\n" * 30)
    found = read(path)
    assert list(found.frame) == ["city, country", "size"]
    assert found.frame["size"].tolist()[:2] == [1.5, 2.5]


def test_a_spreadsheet_that_names_its_separator(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("sep=;\n a ; label \n" + "1;u\n2;v\n" * 30)
    assert read(path).frame["a"].tolist()[:2] == [1.0, 2.0]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("encoding", "noted"),
    [("utf-8", False), ("utf-8-sig", False), ("utf-16", False), ("cp1252", True), ("latin-1", True)],
)
def test_encodings_that_are_found(tmp_path, encoding, noted, compressed, monkeypatch):
    monkeypatch.setattr(_files, "_BLOCK_BYTES", 128)
    path = written(tmp_path, {"größe": ["1", "2"], "Ort": ["Köln", "Zürich", "Orléans"]}, encoding=encoding)
    if compressed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    found = read(path)
    assert list(found.frame) == ["größe", "Ort"]
    assert found.frame["Ort"].tolist()[:3] == ["Köln", "Zürich", "Orléans"]
    assert any("not in UTF-8" in note for note in found.notes) == noted


def test_encodings_that_are_given(tmp_path):
    path = written(tmp_path, {"город": ["Москва", "Киев"]}, encoding="cp1251")
    assert read(path, Dialect(encoding="cp1251")).frame["город"].tolist()[:2] == ["Москва", "Киев"]
    with pytest.raises(ValueError, match=r"not written in UTF-8|not a CSV file in UTF-8"):
        read(path, Dialect(encoding="utf-8"))
    path.write_bytes("a,label\n1,u\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match="name its --encoding"):
        read(path)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"delimiter": "ab"}, "single character"),
        ({"decimal": ";"}, r"must be \. or ,"),
        ({"encoding": "klingon"}, "no encoding"),
    ],
)
def test_dialects_that_there_are_not(wrong, words):
    with pytest.raises(ValueError, match=words):
        Dialect(**wrong)


HEADLESS = {
    "measurements": {"a": ["5.1", "4.9"], "b": ["3.5", "3.6"]},
    "codes": {"a": ["p", "e", "x"], "b": ["s", "y", "p"]},
    "counts": {"a": ["7", "3"], "b": ["1", "0"], "c": ["1", "5"]},
}


@pytest.mark.parametrize("which", HEADLESS)
def test_files_without_a_header_are_refused_with_the_remedy(tmp_path, which):
    path = written(tmp_path, HEADLESS[which], header=False)
    with pytest.raises(ValueError, match=r"no header row.*pass --no-header.*pass --header"):
        tables.open_table(path)
    found = read(path, Dialect(header=False))
    names = [f"x{place}" for place in range(1, len(HEADLESS[which]) + 1)]
    assert list(found.frame) == names
    assert found.target == f"x{len(names) + 1}"
    assert len(found.frame) == ROWS
    assert found.extras["row"][0] == 1
    if which == "measurements":
        assert read(path, Dialect(header=True)).frame.shape == (ROWS - 1, 2)


def test_names_that_are_numbers(tmp_path):
    """Pixels, years and wavelengths name columns, too."""
    for names in (["0", "1", "2"], ["1990", "2000"], ["1100.5", "1102.5", "1104.5"]):
        columns = {name: ["1.5", "2", "0.25"] for name in names}
        assert list(read(written(tmp_path, columns)).frame) == names


def test_a_column_called_like_a_value_of_it(tmp_path):
    columns = {"other": ["other", "mine"], "size": ["1", "2"], "weight": ["3", "4"]}
    assert list(read(written(tmp_path, columns)).frame) == ["other", "size", "weight"]


# Identifiers


def identified(values, name="a"):
    frame = pd.DataFrame({name: values, "x": np.arange(len(values)) % 5})
    found = tables.choose_features(
        tables.examples_of(
            tables.Examples("t", frame, np.arange(len(values)) % 2, tuple(frame), "here").as_arrays()
        )
    )
    return found.left_out.get(name)


def test_whole_numbers_that_differ_in_every_row():
    random = np.random.default_rng(0)
    in_order = "it has a different whole number in every row, in order, like an identifier"
    assert identified(np.arange(20)) == identified(np.arange(1000, 1600)) == in_order
    shuffled = "it has a different whole number in every row like an identifier"
    assert identified(random.permutation(600)) == shuffled
    assert identified(random.choice(6000, 600, replace=False)) == shuffled
    # With gaps, as where rows were removed; a missing one does not matter.
    holes = random.permutation(600).astype(float)
    holes[3] = np.nan
    assert identified(holes) == shuffled


def test_numbers_that_are_none_of_an_identifier():
    random = np.random.default_rng(0)
    assert identified(np.arange(19)) is None  # too few rows
    assert identified(random.integers(0, 600, 600)) is None
    assert identified(random.permutation(600) + 0.5) is None
    # So few of so many numbers may well be all different.
    prices = random.choice(10**7, 600, replace=False)
    assert identified(prices) is None
    assert identified(prices, "customer_id") == identified(prices, "customerId")
    assert "called like an identifier" in identified(prices, "Id")
    assert identified(prices, "width") is None


def test_by_chance_hardly_any_column_looks_like_an_identifier():
    """Random numbers that happen to differ in all rows are suspected in one of a thousand cases."""
    random = np.random.default_rng(1)
    suspected = 0
    for size in (500, 1000, 2000, 5000, 10_000):
        for _ in range(200):
            numbering = Numbering("a")
            numbering.add(random.integers(0, size, 100).astype(float))
            suspected += numbering.suspicion() is not None
    assert suspected <= 3


def test_long_columns_are_compared_in_part(tmp_path):
    """Of a million rows not all numbers are held, and still a few equal ones among them are found."""
    numbering = Numbering("a")
    random = np.random.default_rng(0)
    number = random.permutation(400_000).astype(float)
    for part in np.split(number, 40):
        numbering.add(part)
    assert numbering.suspicion() is not None
    assert numbering._held.size <= _MOST_HELD
    copied = Numbering("a")
    copies = random.choice(np.arange(200_000), 400_000).astype(float)
    for part in np.split(copies, 40):
        copied.add(part)
    assert copied.suspicion() is None


def test_identifiers_are_left_out_unless_they_are_to_be_used(tmp_path):
    path = written(
        tmp_path, {"id": [*map(str, np.random.default_rng(0).permutation(ROWS))], "x": ["1", "2", "3"]}
    )
    found = read(path)
    assert list(found.frame) == ["x"]
    assert found.left_out["id"].startswith("it has a different whole number in every row")
    assert "--use id learns from it all the same" in found.notes[0]
    assert list(read(path, use=["id"]).frame) == ["id", "x"]
    with pytest.raises(ValueError, match="'label' that is to be used is the target"):
        read(path, use=["label"])


# The same for tables larger than memory


def test_a_table_larger_than_memory_is_read_in_the_same_way(tmp_path):
    columns = {f"{name}, {len(name)}": cells for name, (cells, _) in (NUMBERS | DATES).items()}
    columns |= {
        "id": [*map(str, range(7, ROWS + 7))],
        "same": ["1"],
        "colour": ["red", "blue", ""],
        "y": ["1,5", "2,5"],
    }
    path = written(tmp_path, columns, "|", encoding="utf-8")
    scan = tables.scan_table(tables.open_table(path))
    examples = tables.choose_features(tables.read_examples(scan), max_categories=5)
    rows = []
    stored = tables.store_table(scan, rows.append, max_categories=5, max_rows=29)
    rows = np.concatenate(rows)
    assert stored.left_out == examples.left_out
    assert {"id", "same"} <= set(stored.left_out)
    assert stored.notes == list(examples.notes)
    prepared = tables.preparation_of(examples).fit(examples.frame)
    features = prepared.transform(examples.frame)
    assert_allclose(stored.features(rows[:, :-3]), features, atol=1e-9)
    assert stored.n_features == features.shape[1]
    assert_array_equal(stored.preparation().transform(examples.frame), stored.features(rows[:, :-3]))
    assert stored.preparation().get_feature_names_out().tolist() == prepared.get_feature_names_out().tolist()
    assert tables.StoredTable.from_json(stored.to_json()).preparation().readings == prepared.readings
