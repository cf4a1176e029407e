"""Tables larger than memory: rows in files, routed to leaves on disk, in a fit that can be killed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import polymargin
from polymargin import AutoKernelClassifier, LSSVMClassifier, tables
from polymargin.cli import _streaming, app
from polymargin.cli._streaming import Task, begun, fit_stream, is_large, parse_memory, settings_for
from polymargin.datasets.generators import generators
from polymargin.kernels import Linear
from polymargin.persistence import describe
from polymargin.rows import TrainingRows
from polymargin.scale import ScaleSettings
from polymargin.scale.row_file import RowFile, RowWriter, draw, priorities
from polymargin.scale.sources import MemoryRows, Sample
from polymargin.scale.streaming import FileRows
from polymargin.scale.work_folder import WorkFolder, digest_of

SETTINGS = ScaleSettings(exact_operations=0.0, leaf_rows=300, sample_rows=800, decoder_rows=1500)
AGREE = 1e-8
WAVEFORM = generators()["waveform"]


def classifier(**options):
    return LSSVMClassifier(
        **{"scaling": SETTINGS, "n_landmarks": 100, "kernel": "rbf", "random_state": 0} | options
    )


def task(data, folder, **options):
    given = {
        "target": None,
        "drop": (),
        "use": (),
        "weight": None,
        "max_categories": 100,
        "seed": 0,
        "memory": None,
    }
    given |= {"classifier": classifier()} | options
    return Task(str(data), Path(folder) / "a.model", None, **given)


def new_frame(n_rows=300):
    return pd.DataFrame(WAVEFORM.sample(n_rows, random_state=5)[0], columns=[f"x{i}" for i in range(21)])


@pytest.fixture(scope="module")
def frame():
    X, y = WAVEFORM.sample(3000, random_state=0)
    frame = pd.DataFrame(X.round(3), columns=[f"x{i}" for i in range(21)])
    frame["wave"] = np.array(["low", "middle", "high"])[y]
    return frame


@pytest.fixture(scope="module")
def csv(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "waves.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def streamed(csv, tmp_path_factory):
    """A model of the CSV file, and its folder."""
    return fit_stream(task(csv, tmp_path_factory.mktemp("streamed")), n_jobs=1)


@pytest.fixture(scope="module")
def expected(streamed):
    return streamed.pipeline.predict_log_proba(new_frame())


# ---- the same model, however the rows come ----


@pytest.mark.parametrize("form", ["gzip", "parquet", "folder of csv", "folder of parquet"])
def test_files_agree(form, frame, csv, expected, tmp_path):
    data = tmp_path / "data"
    if form == "gzip":
        data = tmp_path / "waves.csv.gz"
        data.write_bytes(gzip.compress(csv.read_bytes()))
    elif form == "parquet":
        data = tmp_path / "waves.parquet"
        frame.to_parquet(data, row_group_size=700)
    else:
        data.mkdir()
        (data / "_SUCCESS").touch()
        for number, start in enumerate(range(0, len(frame), 1300)):
            part = frame[start : start + 1300]
            if form == "folder of csv":
                part.to_csv(data / f"part-{number}.csv", index=False)
            else:  # columns are found by their names
                part[part.columns[:: 1 if number == 0 else -1]].to_parquet(data / f"part-{number}.parquet")
    found = fit_stream(task(data, tmp_path, target="wave"))
    np.testing.assert_allclose(found.pipeline.predict_log_proba(new_frame()), expected, atol=AGREE)
    assert found.n_rows == 3000


@pytest.mark.parametrize("block_rows", [100, 1000])
def test_blocks_agree(block_rows, csv, expected, tmp_path):
    found = fit_stream(task(csv, tmp_path), block_rows=block_rows)
    np.testing.assert_allclose(found.pipeline.predict_log_proba(new_frame()), expected, atol=AGREE)


@dataclass(frozen=True)
class SampledAlike(MemoryRows):
    """Rows in memory, whose samples are those of rows in a file."""

    source: FileRows | None = None

    def sample(self, n_rows):
        numbers = self.source.sample(n_rows).numbers
        return Sample(numbers, self.rows.take(numbers).shuffled(0))


def test_rows_in_memory_agree(streamed, frame, expected):
    prepare = streamed.pipeline[0]
    stored = tables.StoredTable.from_json(streamed.folder.json("stored.json"))
    file = RowFile(streamed.folder.file("rows.bin"), stored.n_rows, 24)
    source = FileRows(file, np.array(stored.class_counts), stored.features, streamed.folder)
    X, classes = prepare.transform(frame), np.unique(frame["wave"])
    index = np.searchsorted(classes, frame["wave"])
    rows = TrainingRows(Linear(), X, index, np.ones(len(frame))).shuffled(0)
    found = classifier()._fit_source(SampledAlike(rows, 3, source=source), classes)
    np.testing.assert_allclose(found.predict_log_proba(prepare.transform(new_frame())), expected, atol=AGREE)


def test_threads_agree(csv, expected, tmp_path):
    found = fit_stream(task(csv, tmp_path), n_jobs=3)
    np.testing.assert_allclose(found.pipeline.predict_log_proba(new_frame()), expected, atol=AGREE)


def test_good_probabilities(expected):
    truth = WAVEFORM.posterior(new_frame().to_numpy())[:, [2, 0, 1]]  # high, low, middle
    assert (truth * (np.log(truth) - expected)).sum(axis=1).mean() < 0.05


# ---- killed and resumed ----

SCRIPT = """
import sys, numpy as np
from test_streaming import classifier, fit_stream, new_frame, task
found = fit_stream(task(sys.argv[1], sys.argv[2]))
np.save(sys.argv[3], found.pipeline.predict_log_proba(new_frame()))
"""


def run_fit(*arguments):
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def leaves_in(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("leaf-*.npz")}


def test_killed_and_resumed(csv, expected, tmp_path):
    first = run_fit(csv, tmp_path, tmp_path / "never.npy")
    try:
        while len(leaves_in(tmp_path)) < 2 and first.poll() is None:
            time.sleep(0.002)
    finally:
        first.send_signal(signal.SIGKILL)
    first.wait()
    finished = leaves_in(tmp_path)
    assert first.returncode == -signal.SIGKILL
    rows = (tmp_path / "a.model.work" / "rows.bin").stat().st_mtime_ns
    second = run_fit(csv, tmp_path, tmp_path / "found.npy")
    assert "going on with the fit" in second.communicate()[1]
    assert second.returncode == 0
    after = leaves_in(tmp_path)
    assert 2 <= len(finished) < len(after)
    assert finished.items() <= after.items()  # not one was trained, nor any row read, once more
    assert (tmp_path / "a.model.work" / "rows.bin").stat().st_mtime_ns == rows
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected, atol=AGREE)


def test_all_parts_are_reused(csv, streamed, expected, monkeypatch):
    def fail(*arguments):
        raise AssertionError("computed once more")

    monkeypatch.setattr("polymargin.scale.streaming.FittedLeaf.of", fail)
    monkeypatch.setattr("polymargin.estimators._scaled.choose", fail)
    monkeypatch.setattr(RowFile, "read", fail)
    streamed.folder.close()
    again = task(csv, streamed.folder.path.parent)
    assert begun(again)
    found = fit_stream(again)
    found.folder.close()
    assert (found.pipeline.predict_log_proba(new_frame()) == expected).all()


def test_parts_of_a_pool_are_reused(csv, tmp_path, monkeypatch):
    members = [
        "poly",
        classifier(metric="learned"),
        classifier(kernel="laplacian", columns="ranks", coding="one-vs-all"),
    ]
    pool = AutoKernelClassifier(members, scaling=SETTINGS, n_landmarks=50)
    given = task(csv, tmp_path, classifier=pool)
    first = fit_stream(given, n_jobs=1)
    first.folder.close()

    def fail(*arguments):
        raise AssertionError("computed once more")

    monkeypatch.setattr("polymargin.scale.streaming.FittedLeaf.of", fail)
    monkeypatch.setattr("polymargin.estimators._scaled.choose", fail)
    monkeypatch.setattr(RowFile, "read", fail)
    second = fit_stream(given, n_jobs=1)
    new = new_frame()
    assert (first.pipeline.predict_log_proba(new) == second.pipeline.predict_log_proba(new)).all()
    assert len({id(member.bank_.data.X) for member in second.pipeline[-1].members_}) == 1


def test_leaves_of_another_tree_are_trained_again(csv, tmp_path):
    first = fit_stream(task(csv, tmp_path))
    place = next(first.folder.path.glob("leaves-*"))
    kept = first.folder.arrays(f"{place.name}/tree.npz")
    before = leaves_in(tmp_path)
    first.folder.close()
    fit_stream(task(csv, tmp_path)).folder.close()
    assert leaves_in(tmp_path) == before
    # Rounding is no reason to train them again, more is.
    for change, same in ((1e-13, True), (1e-3, False)):
        first.folder.keep_arrays(f"{place.name}/tree.npz", kept | {"low": kept["low"] + change})
        fit_stream(task(csv, tmp_path)).folder.close()
        assert (leaves_in(tmp_path) == before) == same


def test_statistics_go_on_where_they_stood(csv, streamed, tmp_path, monkeypatch):
    monkeypatch.setattr("polymargin.scale.streaming._SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    kept, stopped = [], 3

    class Stop(Exception):
        pass

    original = WorkFolder.keep_arrays

    def keep(folder, name, arrays):
        original(folder, name, arrays)
        if name.startswith("statistics"):
            kept.append(int(arrays["n_rows"]))
            if len(kept) == stopped:
                raise Stop

    monkeypatch.setattr(WorkFolder, "keep_arrays", keep)
    given = task(csv, tmp_path, classifier=classifier(scale="landmarks"))
    with pytest.raises(Stop):
        fit_stream(given, n_jobs=1, block_rows=500)
    found = fit_stream(given, n_jobs=1, block_rows=500)
    assert kept == [500, 1000, 1500, 2000, 2500, 3000]
    other = task(csv, tmp_path / "whole", classifier=classifier(scale="landmarks"))
    whole = fit_stream(other, n_jobs=1, block_rows=500)
    new = new_frame()
    assert (found.pipeline.predict_log_proba(new) == whole.pipeline.predict_log_proba(new)).all()


# ---- the folder ----


def test_another_task_starts_anew(tmp_path):
    with WorkFolder(tmp_path / "work", {"seed": 0}) as folder:
        assert not folder.resumed
        folder.keep_arrays("leaves/a.npz", {"a": np.arange(3)})
    with WorkFolder(tmp_path / "work", {"seed": 0}) as folder:
        assert folder.resumed
        assert folder.arrays("leaves/a.npz")["a"].tolist() == [0, 1, 2]
    with WorkFolder(tmp_path / "work", {"seed": 1}) as folder:
        assert not folder.resumed
        assert folder.arrays("leaves/a.npz") is None
        folder.remove()
    assert not (tmp_path / "work").exists()


def test_a_folder_of_others_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("not to be lost")
    with pytest.raises(ValueError, match="--work"):
        WorkFolder(tmp_path, {})
    assert (tmp_path / "thesis.txt").exists()


def test_one_fit_at_a_time(tmp_path):
    with WorkFolder(tmp_path / "work", {}), pytest.raises(ValueError, match="another fit works"):
        WorkFolder(tmp_path / "work", {})


def test_changed_files_are_another_task(csv, tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_bytes(csv.read_bytes())
    given = task(copy, tmp_path)
    WorkFolder(given.folder, given.description()).close()
    assert begun(given)
    assert not begun(task(copy, tmp_path, seed=1))
    with copy.open("a") as file:
        file.write(csv.read_text().splitlines()[-1] + "\n")
    assert not begun(given)


def test_digests_tell_parts_apart():
    assert digest_of(SETTINGS, np.zeros(2)) == digest_of(SETTINGS, np.zeros(2))
    assert digest_of(SETTINGS) != digest_of(ScaleSettings())
    assert digest_of([1, [2]]) != digest_of([1, 2])
    assert digest_of(np.zeros(2)) != digest_of(np.zeros((1, 2)))


# ---- samples ----


def test_samples_are_nested_and_have_every_class(tmp_path):
    index = np.random.default_rng(0).choice(3, 5000, p=[0.7, 0.295, 0.005])
    rows = np.column_stack([np.arange(5000.0), index, np.ones(5000), np.arange(5000)])
    with RowWriter(tmp_path / "rows") as writer:
        for start in range(0, 5000, 777):
            writer.write(rows[start : start + 777])
    file, counts = RowFile(tmp_path / "rows", 5000, 4), np.bincount(index)
    assert file.complete
    small, large = (draw(file, counts, n, 20, seed=1) for n in (200, 900))
    assert set(small) < set(large)
    assert (np.bincount(index[small]) >= [140, 59, 20]).all()
    assert small.size < 230
    assert (np.diff(large) > 0).all()
    assert (file.take(large) == rows[large]).all()
    assert (file.read(10, 30) == rows[10:30]).all()
    assert set(draw(file, counts, 200, 20, seed=2)) != set(small)
    # The rows of a class with the smallest priorities.
    of_first = np.flatnonzero(index == 0)
    p = priorities(1, 0, 5000)[of_first]
    assert set(of_first[np.argsort(p)[:140]]) <= set(small)


def test_samples_do_not_depend_on_how_classes_are_read(tmp_path, monkeypatch):
    rows = np.column_stack([np.arange(1000) % 2, np.ones(1000), np.arange(1000)])
    with RowWriter(tmp_path / "rows") as writer:
        writer.write(rows)
    file = RowFile(tmp_path / "rows", 1000, 3)
    whole = draw(file, np.array([500, 500]), 100, 20, 0)
    monkeypatch.setattr("polymargin.scale.row_file._CLASSES_AT_ONCE", 64)
    assert (draw(file, np.array([500, 500]), 100, 20, 0) == whole).all()


# ---- tables ----


def stored_rows(path, **options):
    rows = []
    stored = tables.store_table(tables.scan_table(tables.open_table(path)), rows.append, **options)
    return stored, np.concatenate(rows)


@pytest.fixture
def mixed(tmp_path):
    random = np.random.default_rng(3)
    n = 20_000
    frame = pd.DataFrame(
        {
            "row": np.arange(n),
            "size": random.normal(5.0, 2.0, n).round(3).astype(object),
            "same": 1,
            "colour": random.choice(["red", "green", "blue", ""], n),
            "name": [f"n{i}" for i in range(n)],
            "many": random.integers(0, 500, n).astype(str) + "x",
            "late": np.where(np.arange(n) < n - 3, "0", "a"),
            "class": np.where(np.arange(n) < n - 30, random.choice(["a", "b"], n), "rare"),
        }
    )
    frame.loc[::7, "size"] = "NA"
    frame.loc[::1000, "class"] = ""
    path = tmp_path / "mixed.csv"
    frame.to_csv(path, index=False)
    return path


def test_preparation_is_that_of_a_table_in_memory(mixed):
    stored, rows = stored_rows(mixed)
    scan = tables.scan_table(tables.open_table(mixed))
    examples = tables.choose_features(tables.read_examples(scan))
    in_memory = tables.preparation(examples.frame).fit(examples.frame)
    assert [column.name for column in stored.columns if column.left_out is None] == list(examples.frame)
    np.testing.assert_allclose(stored.features(rows[:, :-3]), in_memory.transform(examples.frame), atol=1e-12)
    # What the model makes of the columns, bit for bit.
    assert (stored.features(rows[:, :-3]) == stored.preparation().transform(examples.frame)).all()
    assert stored.classes == ["a", "b", "rare"]
    assert stored.class_counts[2] == 30
    assert stored.n_rows == 19_980 == examples.labels.size
    again = tables.StoredTable.from_json(json.loads(json.dumps(stored.to_json())))
    assert again == stored
    sample = again.examples(rows[5000:5100])
    pd.testing.assert_frame_equal(
        sample.frame, examples.frame[5000:5100].reset_index(drop=True), check_dtype=False
    )
    assert (sample.row_numbers == examples.row_numbers[5000:5100]).all()
    assert (sample.labels == examples.labels[5000:5100]).all()
    for text in (
        "'row' is left out: it has a different whole number in every row, in order, like an identifier",
        "'same' is left out: it is constant",
        "have no label",
    ):
        assert any(text in note for note in stored.notes), text
        assert any(text in note for note in examples.notes), text
    assert any("'name' is left out: it has more than 100 different texts" in note for note in stored.notes)


def test_what_is_learned_does_not_depend_on_batches(mixed):
    stored, rows = stored_rows(mixed)
    others, same = stored_rows(mixed, max_rows=333)
    assert others == stored
    np.testing.assert_array_equal(same, rows)


def test_weights(tmp_path):
    path = tmp_path / "weighted.csv"
    lines = [f"{i % 7},{i % 3},{'ab'[i % 2]}" for i in range(60)]
    path.write_text("\n".join(["x,w,class", *lines]) + "\n")
    stored, rows = stored_rows(path, weight="w")
    assert [column.name for column in stored.columns] == ["x"]
    assert stored.n_rows == 40
    assert stored.mean_weight == 1.5
    assert set(rows[:, -2]) == {1.0, 2.0}
    path.write_text("x,w,class\n" + "".join(f"{i},{i % 2},{'ab'[i % 2]}\n" for i in range(60)))
    with pytest.raises(ValueError, match="class 'a' have the weight zero; remove them"):
        stored_rows(path, weight="w")
    path.write_text("x,w,class\n1,-1,a\n2,1,b\n")
    with pytest.raises(ValueError, match="row 2 has no weight in the column 'w', or a negative one"):
        stored_rows(path, weight="w")
    with pytest.raises(ValueError, match="no column 'v' for the weights"):
        stored_rows(path, weight="v")


def test_bad_rows_are_named(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.csv").write_text("x,class\n1,a\n2,b\n")
    (folder / "b.csv").write_text("x,class\n1,a\n2,b,c\n")
    with pytest.raises(ValueError, match=r"b\.csv, row 3: 3 fields where the header has 2"):
        stored_rows(folder)
    (folder / "b.csv").write_text("z,class\n1,a\n")
    with pytest.raises(ValueError, match=r"same columns, but a\.csv and b\.csv differ in 'x', 'z'"):
        stored_rows(folder)
    (folder / "b.csv").write_text("x,class,w\n1,a,1\n2,b,-3\n")
    (folder / "a.csv").write_text("x,class,w\n1,a,1\n2,b,1\n")
    scan = tables.scan_table(tables.open_table(folder), "class")
    with pytest.raises(ValueError, match=r"b\.csv, row 3 has no weight"):
        tables.store_table(scan, lambda rows: None, weight="w")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no files that end in"):
        tables.open_table(tmp_path / "empty")


def test_nothing_to_learn_from(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,class\n1,a\n1,b\n")
    with pytest.raises(ValueError, match="no column to learn from: column 'x' is left out: it is constant"):
        stored_rows(path)


# ---- memory ----


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("500MB", 5e8), ("2GB", 2e9), ("1.5GiB", 1.5 * 2**30), ("2 g", 2e9), ("300000000", 3e8), ("1tb", 1e12)],
)
def test_amounts_of_memory(text, n_bytes):
    assert parse_memory(text) == n_bytes


@pytest.mark.parametrize("text", ["much", "2XB", "-1GB", "", "GB", "nan", "1e9"])
def test_no_amounts_of_memory(text):
    with pytest.raises(ValueError, match="write for example 500MB, 2GB"):
        parse_memory(text)


def test_too_little_memory():
    with pytest.raises(ValueError, match="at least 100MB"):
        parse_memory("1MB")


def test_sizes_follow_memory():
    small, large = settings_for(1e9, 1, 1), settings_for(1e12, 1, 1)
    assert (large.leaf_rows, large.sample_rows, large.decoder_rows) == (None, 4000, 20_000)
    assert small.sample_rows < 4000
    assert small.decoder_rows < 20_000
    assert small.memory == 5e8
    tiny = settings_for(1e8, 2, 1)
    assert tiny.leaf_rows >= 200
    assert tiny.sample_rows >= 500


def test_fits_in_memory_keep_the_bound(csv, tmp_path):
    bounded = task(csv, tmp_path, memory=5e8, classifier=classifier(scaling=None)).limited().scaling
    assert bounded.memory == 5e8
    assert bounded.exact_operations == ScaleSettings().exact_operations
    assert bounded.decoder_rows < ScaleSettings().decoder_rows
    assert bounded.leaf_rows < 1500
    assert task(csv, tmp_path, classifier=classifier(scaling=None)).limited().scaling is None


def test_an_interrupted_fit_says_how_to_go_on(csv, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_streaming, "_streamed", interrupted)
    found = run("fit", csv, "--model", "ls-svm", "--stream", "-o", tmp_path / "a.model")
    assert found.exit_code == 130
    said = " ".join(found.stderr.split())
    assert f"interrupted: the same command goes on with the parts in {tmp_path / 'a.model.work'}" in said


def test_large_tables_stream(csv, tmp_path):
    scan = tables.scan_table(tables.open_table(csv))
    assert not is_large(scan, task(csv, tmp_path), "auto")
    assert is_large(scan, task(csv, tmp_path, memory=1e6), "auto")
    assert not is_large(scan, task(csv, tmp_path, memory=1e6), "svm")


MEASURED = """
import resource, sys
import numpy as np
from test_streaming import ScaleSettings, classifier, fit_stream, task
import polymargin.report, pandas, pyarrow.parquet, sklearn.pipeline
settings = ScaleSettings(exact_operations=0.0, leaf_rows=200, sample_rows=500, decoder_rows=1000, memory=1.2e7)
given = task(sys.argv[1], sys.argv[2], memory=1e8, classifier=classifier(scaling=settings))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = fit_stream(given)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(before / 1024, after / 1024, found.pipeline[-1].plan_.leaf_share)
"""


def test_memory_is_bounded(tmp_path):
    """A table of 50 MB, of which a fit in memory would take 300 MB, is fitted in 100 MB."""
    X, y = WAVEFORM.sample(300_000, random_state=1)
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    pd.DataFrame(columns | {"class": y}).to_parquet(tmp_path / "large.parquet", row_group_size=20_000)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "large.parquet"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    before, after, share = map(float, done.stdout.split()[-3:])
    assert 0.0 < share < 0.5
    assert after - before < 100.0


# ---- the command ----


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(csv, tmp_path_factory):
    """The model file of a fit that streams, its report and what the command said."""
    folder = tmp_path_factory.mktemp("model")
    folder_of_parts = folder / "scratch"
    found = run(
        *("fit", csv, "--model", "ls-svm", "--kernel", "rbf", "--stream", "--memory", "300MB", "--json"),
        *("-o", folder / "waves.model", "--report", folder / "waves.html", "--work", folder_of_parts),
    )
    assert found.exit_code == 0, found.output
    assert not (folder_of_parts / "waves.model.work").exists()
    return folder / "waves.model", folder / "waves.html", json.loads(found.stdout)


def test_many_classes_are_noted_once(csv, tmp_path, monkeypatch):
    monkeypatch.setattr("polymargin.codebooks.default._MOST_CLASSES", 2)
    options = ("--model", "ls-svm", "--kernel", "rbf", "--stream", "--memory", "300MB", "--json")
    found = run("fit", csv, *options, "-o", tmp_path / "waves.model")
    said = "3 classes: one-vs-all coding, 3 machines; one-vs-one would have 3 (--coding one-vs-one)"
    assert [line for line in found.stderr.splitlines() if "one-vs-all" in line] == [f"note: {said}"]
    document = json.loads(found.stdout)
    assert said in document["notes"]
    assert document["chosen"]["coding"] == "one-vs-all"


def test_the_command(model, csv, tmp_path):
    file, page, document = model
    assert document["n_rows"] == 3000
    assert document["classes"] == ["high", "low", "middle"]
    assert "a sample of" in document["quality"]["method"]
    assert document["quality"]["log_loss"] < 0.5
    assert page.stat().st_size > 10_000
    assert describe(file)["summary"]["n_rows"] == 3000
    loaded = polymargin.load(file)
    polymargin.save(loaded, tmp_path / "again.model")
    again = polymargin.load(tmp_path / "again.model")
    assert (again.predict_log_proba(new_frame()) == loaded.predict_log_proba(new_frame())).all()
    found = run("predict", file, csv, "--score", "-o", tmp_path / "out.parquet")
    assert found.exit_code == 0, found.output
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 3000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stream", "--groups", "x0"], "--sample 100000"),
        (["--stream", "--model", "svm"], "needs all rows in memory; choose --model auto or ls-svm"),
        (["--stream", "--sample", "100"], "leave out --stream"),
        (["--memory", "lots"], "write for example 500MB"),
    ],
)
def test_refusals(options, message, csv, tmp_path):
    found = run("fit", csv, "-o", tmp_path / "a.model", "--model", "ls-svm", *options)
    assert found.exit_code != 0
    assert message in " ".join(found.output.split())


def test_datasets_by_name_do_not_stream(tmp_path):
    found = run("fit", "wine", "--stream", "-o", tmp_path / "a.model")
    assert found.exit_code != 0
    assert "is for files and folders" in found.output


def test_a_small_folder_is_read_into_memory(frame, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(3):
        frame[100 * number : 100 * number + 100].to_csv(folder / f"{number}.csv", index=False)
    found = run("fit", folder, "--model", "ls-svm", "-k", "rbf", "-o", tmp_path / "a.model", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["n_rows"] == 300
    assert run("predict", tmp_path / "a.model", folder, "-o", tmp_path / "out.csv").exit_code == 0


def test_a_bad_table_leaves_no_half_model(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x,class\n" + "1,a\n2,b\n" * 50 + "3\n")
    found = run("fit", path, "--stream", "-o", tmp_path / "a.model")
    assert found.exit_code != 0
    assert "1 fields where the header has 2" in found.output
    assert not (tmp_path / "a.model").exists()
