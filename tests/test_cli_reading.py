"""Commands on files as people have them: the options that say how a file is written, stdin, what is left out."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from polymargin.cli import app

QUICK = ["-m", "ls-svm", "-k", "linear", "-c", "one-vs-all", "-d", "argmax"]


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYMARGIN_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def export():
    """What a spreadsheet program of a German office writes."""
    random = np.random.default_rng(0)
    n = 60
    kind = np.arange(n) % 2
    size = random.normal(kind * 2.0, 1.0).round(2)
    rows = ["Kunden-ID;Größe;Umsatz;Rabatt;Datum;Bemerkung;Art"]
    for i, number in enumerate(random.permutation(n)):
        parts = (
            4000 + number,
            f"{size[i]:.2f}".replace(".", ",") if i % 9 else "-",
            f"1.{100 + i},50 €",
            f"{i % 4} %",
            f"{1 + i % 28:02d}.{1 + i % 12:02d}.2024",
            f"Bemerkung {i}",
            ["Süßes", "Salziges"][kind[i]],
        )
        rows.append(";".join(map(str, parts)))
    return ("\r\n".join(rows) + "\r\n").encode("cp1252")


def test_a_spreadsheet_of_an_office(export, tmp_path):
    path, model = tmp_path / "export.csv", tmp_path / "m.model"
    path.write_bytes(export)
    done = run("fit", path, *QUICK, "-o", model, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["columns"] == {"Größe": "number", "Umsatz": "number", "Rabatt": "number", "Datum": "date"}
    assert list(found["left_out"]) == ["Kunden-ID", "Bemerkung"]
    assert found["left_out"]["Kunden-ID"].startswith("it has a different whole number in every row")
    assert found["classes"] == ["Salziges", "Süßes"]
    assert any("read as cp1252" in note for note in found["notes"])
    # The same rows from stdin, in another order of the columns and as an American would write them.
    german = {"sep": ";", "encoding": "cp1252", "decimal": ",", "thousands": ".", "na_values": "-"}
    frame = pd.read_csv(io.BytesIO(export), dtype={"Datum": str}, **german)
    frame["Datum"] = [f"{text[6:]}-{text[3:5]}-{text[:2]}" for text in frame["Datum"]]
    frame["Umsatz"] = [f"${1100.5 + i:,.2f}" for i in range(len(frame))]
    american = frame[frame.columns[::-1]].to_csv(index=False)
    ours = run("predict", model, path, "--keep", "Kunden-ID")
    assert ours.exit_code == 0, ours.output
    assert "pass --decimal ." in run("predict", model, "-", stdin=american).output
    others = run("predict", model, "-", "--decimal", ".", "--keep", "Kunden-ID", stdin=american)
    assert others.exit_code == 0, others.output
    assert others.stdout == ours.stdout


def test_what_is_left_out_is_printed(export, tmp_path):
    path = tmp_path / "export.csv"
    path.write_bytes(export)
    done = run("fit", path, *QUICK, "-o", tmp_path / "m.model", "--drop", "Bemerkung")
    assert "4 columns (1 of dates)" in done.stdout
    assert "not learned from:\n  'Kunden-ID': it has a different whole number in every row" in done.stdout
    used = run("fit", path, *QUICK, "-o", tmp_path / "m.model", "--drop", "Bemerkung", "--use", "Kunden-ID")
    assert "5 columns (1 of dates)" in used.stdout
    assert "not learned from" not in used.stdout


def test_a_file_without_a_header(tmp_path):
    path, model = tmp_path / "t.data", tmp_path / "m.model"
    path.write_text("".join(f"{i * i % 17}|{i % 7 / 2}|{'xy'[i % 2]}\n" for i in range(40)))
    refused = run("fit", "-", *QUICK, "-o", model, stdin=path.read_text())
    assert refused.exit_code == 1
    assert "pass --no-header" in refused.output
    done = run("fit", "-", *QUICK, "-o", model, "--no-header", "--json", stdin=path.read_text())
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["columns"] == {"x1": "number", "x2": "number"}
    again = run(
        "predict", model, "-", "--no-header", "--score", "-o", tmp_path / "o.csv", stdin=path.read_text()
    )
    assert "40 rows: accuracy" in again.stdout
    assert run("fit", "-", *QUICK, stdin="").exit_code == 2


def test_words_for_missing_values_are_kept_with_the_model(tmp_path):
    path, model = tmp_path / "t.csv", tmp_path / "m.model"
    path.write_text(
        "a,b,y\n" + "".join(f"{i * i % 17 if i % 5 else 'n/m'},{i % 7},{'uv'[i % 2]}\n" for i in range(40))
    )
    done = run("fit", path, *QUICK, "-o", model, "--missing", "n/m", "--json")
    assert json.loads(done.stdout)["columns"] == {"a": "number", "b": "number"}
    assert run("predict", model, path, "-o", tmp_path / "o.csv").exit_code == 0
    path.write_text("a,b\nno idea,1\n")
    assert "pass --missing 'no idea'" in run("predict", model, path).output


@pytest.mark.parametrize("ending", [".xlsx", ".json", ".tsv", ".feather"])
def test_formats_that_are_not_written(export, tmp_path, ending):
    path, model = tmp_path / "export.csv", tmp_path / "m.model"
    path.write_bytes(export)
    assert run("fit", path, *QUICK, "-o", model).exit_code == 0
    done = run("predict", model, path, "-o", tmp_path / f"o{ending}")
    assert done.exit_code == 1
    assert f"{ending} files are not written: name a .csv, .csv.gz, .jsonl or .parquet file" in done.output
    assert not (tmp_path / f"o{ending}").exists()


def test_compare_and_bench_read_in_the_same_way(export, tmp_path):
    path = tmp_path / "export.csv"
    path.write_bytes(export)
    options = [
        "-c",
        "one-vs-all",
        "-d",
        "argmax",
        "-k",
        "linear",
        "-r",
        "1",
        "--drop",
        "Rabatt",
        "--sample",
        "40",
    ]
    done = run("compare", path, *options, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["rows"] == 40
    assert found["features"] == 3
    assert any("'Kunden-ID' is left out" in note for note in found["notes"])
    done = run("bench", path, "-m", "logistic regression", "-s", "1", "--json")
    assert done.exit_code == 0, done.output
    assert list(json.loads(done.stdout)["left_out"]) == ["Kunden-ID", "Bemerkung"]
    for command in ("compare", "bench", "fit"):
        assert "no encoding 'klingon'" in run(command, path, "--encoding", "klingon").output
        assert "are for files" in run(command, "wine", "--decimal", ",").output


def test_a_table_that_streams_is_read_in_the_same_way(export, tmp_path):
    path, model = tmp_path / "export.csv", tmp_path / "m.model"
    path.write_bytes(export)
    done = run("fit", path, "-m", "ls-svm", "-k", "rbf", "-o", model, "--stream", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["columns"] == {"Größe": "number", "Umsatz": "number", "Rabatt": "number", "Datum": "date"}
    assert list(found["left_out"]) == ["Kunden-ID", "Bemerkung"]
    assert run("predict", model, path).exit_code == 0
