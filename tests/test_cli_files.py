"""Files that commands write: none replaces an input, a device, a pipe or a link."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading

import pandas as pd
import pytest
from typer.testing import CliRunner

import polymargin
from polymargin import _output
from polymargin.cli import app

MODEL = ["-m", "ls-svm", "-k", "linear"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYMARGIN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("a,b,kind\n" + "".join(f"{i * i % 17},{i % 7},{'xy'[i % 2]}\n" for i in range(40)))
    return path


@pytest.fixture
def model(tmp_path, data):
    path = tmp_path / "m.onnx"  # the ending says nothing about what is inside
    assert run("fit", data, *MODEL, "-o", path).exit_code == 0
    return path


def made(path, kind):
    """Return a special file: a pipe, or a device node of our own that is full, or takes everything."""
    try:
        if kind == "pipe":
            os.mkfifo(path)
        else:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, {"null": 3, "full": 7}[kind]))
            with path.open("wb"):
                pass
    except (AttributeError, OSError) as error:
        pytest.skip(f"cannot make a {kind} here: {error}")
    return path


class Reader(threading.Thread):
    """Reads a pipe until it is closed."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self._path = path
        self.start()

    def run(self):
        self.data = self._path.read_bytes()

    def result(self):
        self.join(30)
        return self.data


# No command replaces what it reads


def other_names(path, folder):
    """Return other names of a file: another way to it, a symbolic and a hard link."""
    (folder / "sub").mkdir()
    (folder / "symbolic.onnx").symlink_to(path)
    os.link(path, folder / "hard.onnx")
    return [path, folder / "sub" / ".." / path.name, folder / "symbolic.onnx", folder / "hard.onnx"]


def test_compare_and_fit_do_not_replace_their_table(tmp_path, data):
    text = data.read_text()
    for name in other_names(data, tmp_path):
        for command in (["compare", data, "--report", name], ["fit", data, "-o", name]):
            result = run(*command)
            assert result.exit_code == 2
            assert "the command reads it; give another name" in result.stderr
    assert data.read_text() == text


def test_export_and_predict_do_not_replace_their_model(tmp_path, data, model):
    before = model.read_bytes()
    for name in other_names(model, tmp_path):
        for command in (["export", model, "-o", name], ["predict", model, data, "-o", name]):
            result = run(*command)
            assert result.exit_code == 2
            assert "the command reads it; give another name" in result.stderr
    result = run("export", model)  # its output would be called as the model
    assert result.exit_code == 2
    assert "the command reads it" in result.stderr
    assert model.read_bytes() == before


def test_fit_does_not_replace_a_table_that_is_called_as_its_model(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data.rename(tmp_path / "data.skops")
    text = (tmp_path / "data.skops").read_text()
    result = run("fit", "data.skops", *MODEL)
    assert result.exit_code == 2
    assert "cannot write data.skops: the command reads it; give another name" in result.stderr
    assert (tmp_path / "data.skops").read_text() == text


def test_a_dataset_by_name_is_not_replaced_either(tmp_path, monkeypatch):
    (tmp_path / "wine.csv.gz").write_bytes(b"the data")
    monkeypatch.setenv("POLYMARGIN_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for command in (["fit", "wine", "-o", "wine.csv.gz"], ["compare", "wine", "--report", "wine.csv.gz"]):
        result = run(*command)
        assert result.exit_code == 2
        assert "the command reads it" in result.stderr
    assert (tmp_path / "wine.csv.gz").read_bytes() == b"the data"


def test_two_outputs_that_are_one_file(tmp_path, data):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    result = run("fit", data, "-o", tmp_path / "new", "--report", tmp_path / "link")
    assert result.exit_code == 2
    assert "it is written already, by another option" in result.stderr


# Devices, pipes and links stay


def test_devices_stay_devices(tmp_path, data, model):
    null = made(tmp_path / "null", "null")
    for command in (
        ["fit", data, *MODEL, "-o", null, "--report", null],
        ["predict", model, data, "-o", null],
        ["compare", data, "-r", 1, "-c", "one-vs-all", "-k", "linear", "--report", null],
    ):
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        assert null.is_char_device()
    assert not list(tmp_path.glob(".*"))


def test_a_full_device_is_an_error(tmp_path, data, model):
    full = made(tmp_path / "full", "full")
    for command in (
        ["predict", model, data, "-o", full],
        ["fit", data, *MODEL, "-o", full],
        ["fit", data, *MODEL, "-o", tmp_path / "new", "--report", full],
    ):
        result = run(*command)
        assert result.exit_code == 1
        assert f"{full}: No space left on device" in result.stderr
        assert full.is_char_device()


@pytest.mark.parametrize(
    "command", [["predict", "{model}", "{data}"], ["fit", "{data}", *MODEL, "-o", "{new}"]]
)
def test_a_full_stdout_is_an_error(tmp_path, data, model, command):
    names = {"model": model, "data": data, "new": tmp_path / "new"}
    arguments = [part.format(**names) for part in command]
    program = "from polymargin.cli import app; app()"
    with made(tmp_path / "full", "full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode != 0
    assert b"polymargin: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "jsonl"])
def test_a_pipe_is_written_to(tmp_path, data, model, ending):
    pipe = made(tmp_path / f"pipe.{ending}", "pipe")
    reader = Reader(pipe)
    result = run("predict", model, data, "-o", pipe)
    assert result.exit_code == 0, result.stderr
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    copy = tmp_path / f"copy.{ending}"
    copy.write_bytes(reader.result())
    read = {"parquet": pd.read_parquet, "jsonl": lambda path: pd.read_json(path, lines=True)}
    assert len(read.get(ending, pd.read_csv)(copy)) == 40


def test_a_model_through_a_pipe(tmp_path, data, model):
    pipe = made(tmp_path / "pipe", "pipe")
    reader = Reader(pipe)
    assert run("fit", data, *MODEL, "-o", pipe).exit_code == 0
    (tmp_path / "copy").write_bytes(reader.result())
    assert polymargin.load(tmp_path / "copy").classes_.tolist() == ["x", "y"]


def test_a_link_stays_a_link(tmp_path, data, model):
    for command, name in (
        (["predict", model, data, "-o"], "o.csv"),
        (["fit", data, *MODEL, "-o", tmp_path / "new", "--report"], "r.html"),
    ):
        (tmp_path / "there").mkdir(exist_ok=True)
        link, target = tmp_path / name, tmp_path / "there" / name
        link.symlink_to(target)
        for _ in range(2):  # a link to nothing, and to a file
            assert run(*command, link).exit_code == 0
            assert link.is_symlink()
            assert target.stat().st_size > 100


def test_the_file_behind_stdout_is_written_to(tmp_path, data, model):
    """``-o /dev/stdout >> log`` adds to the log rather than replacing it."""
    log = tmp_path / "log"
    log.write_text("old\n")
    program = "from polymargin.cli import app; app()"
    command = [
        sys.executable,
        "-c",
        program,
        "predict",
        model,
        data,
        "-o",
        log,
        "--score",
        "--json",
        "-t",
        "kind",
    ]
    with log.open("ab") as stream:
        subprocess.run(command, stdout=stream, stderr=subprocess.DEVNULL, check=True)
    lines = log.read_text().splitlines()
    assert lines[0] == "old"
    assert len(lines) == 1 + 40 + 1
    assert "accuracy" in json.loads(lines[-1])


def test_what_cannot_be_written(tmp_path, data):
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        result = run("fit", data, *MODEL, "-o", tmp_path / "socket")
    assert result.exit_code == 2
    assert "is a socket; give the name of a file" in result.stderr
    with pytest.raises(OSError, match="is a socket"):
        _output.write_atomically(tmp_path / "socket", b"")
    result = run("fit", data, *MODEL, "-o", tmp_path)
    assert result.exit_code == 2
    assert "is a folder; give the name of a file" in result.stderr


# Formulas


def test_formulas_are_escaped_on_demand(tmp_path):
    labels = ["=1+1", "-x", "@a", "+1 2", "-1.5", "plain"]
    text = "".join(f"{i},{i % 6},{labels[i % 6]},\"=cmd|'/c calc'!A1\"\n" for i in range(60))
    data, model = tmp_path / "t.csv", tmp_path / "m.skops"
    data.write_text("a,b,kind,=name\n" + text)
    assert run("fit", data, "-t", "kind", "--drop", "=name", *MODEL, "-o", model).exit_code == 0
    options = [model, data, "--keep", "kind", "--keep", "=name"]
    plain = pd.read_csv(_written(tmp_path, options), dtype=str)
    escaped = pd.read_csv(_written(tmp_path, [*options, "--escape-formulas"]), dtype=str)
    assert plain.loc[:5, "kind"].tolist() == labels
    assert escaped.loc[:5, "kind"].tolist() == ["'=1+1", "'-x", "'@a", "'+1 2", "-1.5", "plain"]
    assert list(escaped)[:2] == ["kind", "'=name"]
    assert set(escaped["'=name"]) == {"'=cmd|'/c calc'!A1"}
    assert escaped["prediction"].str.removeprefix("'").tolist() == plain["prediction"].tolist()
    assert not escaped["prediction"].str.match(r"[=@+]|-\D").any()
    pd.testing.assert_frame_equal(escaped.filter(like="p("), plain.filter(like="p("))
    result = run("predict", *options, "--escape-formulas", "--json")
    assert result.exit_code == 1
    assert "leave --escape-formulas out" in result.stderr


def _written(folder, options):
    out = folder / "o.csv"
    result = run("predict", *options, "-o", out)
    assert result.exit_code == 0, result.stderr
    return out
