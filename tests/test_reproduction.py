"""The engine on a toy experiment: kill, resume, compare."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from threadpoolctl import threadpool_info

from polymargin.datasets import DatasetNotFound
from polymargin.reproduction import (
    DataMissing,
    Experiment,
    FolderBusy,
    JournalDamaged,
    Key,
    Layout,
    ProtocolChanged,
    ReproductionError,
    RunInterrupted,
    Summary,
    WorkerDied,
    compare_with_paper,
    derive_seed,
    load_results,
    parse_figures,
    read_results,
    run_experiment,
    standard_errors_apart,
)
from polymargin.reproduction.journal import Journal, read_journal


class Toy(Experiment):
    """Two datasets × replicates; each job yields two methods. The protocol says which jobs go wrong."""

    name = "toy"
    title = "Toy table"
    layout = Layout(rows=("dataset",), columns=("method",))

    def __init__(self, protocol=None):
        super().__init__({"seed": 1, "replicates": 4} | (protocol or {}))

    def jobs(self):
        return [Key.of(dataset=d, replicate=r) for d in ("b", "a") for r in range(self.replicates)]

    def cells(self, job):
        return [job.extended(method=method) for method in ("plain", "fancy")]

    def run(self, job):
        if str(job) in self.protocol.get("fail", []):
            raise ValueError(f"job {job} is meant to fail")
        if "TOY_PIDS" in os.environ:
            Path(os.environ["TOY_PIDS"], str(os.getpid())).touch()
        time.sleep(float(os.environ.get("TOY_DELAY", "0")))
        seed = derive_seed(self.protocol["seed"], job["dataset"], int(job["replicate"]))
        # a solve whose last bits depend on the number of BLAS threads, if that were not fixed
        matrix = np.random.default_rng(seed).normal(size=(120, 120))
        values = np.linalg.solve(matrix @ matrix.T + np.eye(120), np.ones(120))
        return [{**cell.asdict(), "value": values[i], "seed": seed} for i, cell in enumerate(self.cells(job))]

    def cost(self, job):
        return 2.0 if job["dataset"] == "a" else 1.0

    def paper_figures(self):
        return parse_figures(
            ["dataset,method,mean,sd"]
            + [f"{d},{m},{v},0.1" for d, v in (("b", "0.0"), ("a", "9.9")) for m in ("plain", "fancy")]
        )


def cells_of(path):
    """The csv without its seconds."""
    with open(path, newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [{name: value for name, value in row.items() if name != "job_seconds"} for row in rows]


def journal_jobs(path):
    return path.read_bytes().count(b'"kind": "job"') if path.exists() else 0


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Doubled(Toy):
    """A second stage: twice what the toy has found in all replicates of a dataset."""

    name = "doubled"

    def requires(self):
        return [Toy(self.protocol)]

    def jobs(self):
        return [Key.of(dataset=dataset) for dataset in ("b", "a")]

    def run(self, job):
        found = {}
        for row in self.given["toy"]:
            if row["dataset"] == job["dataset"]:
                found.setdefault(row["method"], []).append(row["value"])
        return [{**cell.asdict(), "value": 2.0 * sum(found[cell["method"]])} for cell in self.cells(job)]


# --- running -----------------------------------------------------------------------------------------------


def test_results_are_the_same_whatever_the_number_of_workers(tmp_path):
    one = run_experiment(Toy(), tmp_path / "one", n_jobs=1)
    two = run_experiment(Toy(), tmp_path / "two", n_jobs=2)
    assert one.done == two.done == one.total == 8
    assert cells_of(one.csv_path) == cells_of(two.csv_path)
    assert [row["dataset"] for row in one.rows] == ["b"] * 8 + ["a"] * 8, "the table's order, not the run's"
    assert list(one.rows[0]) == ["dataset", "replicate", "method", "value", "seed", "job_seconds"]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_results_are_the_same_whatever_the_backend(tmp_path, backend):
    one = run_experiment(Toy(), tmp_path / "one")
    with parallel_config(backend=backend, n_jobs=2):
        two = run_experiment(Toy(), tmp_path / "two")
    assert cells_of(one.csv_path) == cells_of(two.csv_path)


def test_results_are_the_same_on_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        parallel_config(backend="dask"),
    ):
        two = run_experiment(Toy(), tmp_path / "two")
    one = run_experiment(Toy(), tmp_path / "one")
    assert cells_of(one.csv_path) == cells_of(two.csv_path)


class Meeting(Toy):
    """Jobs that wait for each other, so that none finishes unless two run at once."""

    meeting = threading.Barrier(2)

    def run(self, job):
        self.meeting.wait(20)
        return super().run(job)


def test_the_backend_that_joblib_is_told_to_use_runs_the_jobs(tmp_path):
    with parallel_config(backend="threading", n_jobs=2):
        assert run_experiment(Meeting(), tmp_path).done == 8


def test_csv_reads_back_to_the_bit(tmp_path):
    report = run_experiment(Toy(), tmp_path)
    with report.csv_path.open(newline="") as stream:
        assert [row["value"] for row in read_results(stream)] == [row["value"] for row in report.rows]


def test_provenance_is_written_beside_the_csv(tmp_path):
    report = run_experiment(Toy(), tmp_path)
    provenance = tomllib.loads(report.csv_path.with_suffix(".toml").read_text())
    assert provenance["jobs_done"] == provenance["jobs"] == 8
    assert {"python", "polymargin", "numpy", "scipy", "scikit-learn"} <= provenance["sessions"][0][
        "versions"
    ].keys()
    assert provenance["sessions"][0]["cores"] >= 1
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def test_a_second_run_computes_nothing(tmp_path):
    first = run_experiment(Toy(), tmp_path)
    journal = first.journal_path.read_bytes()
    second = run_experiment(Toy(), tmp_path)
    assert (second.resumed, second.done) == (8, 8)
    assert second.rows == first.rows
    assert first.journal_path.read_bytes() == journal


def test_a_part_first_then_the_whole(tmp_path):
    part = run_experiment(Toy(), tmp_path, only=lambda job: job["dataset"] == "a")
    assert part.total == 4
    assert {row["dataset"] for row in part.rows} == {"a"}
    whole = run_experiment(Toy(), tmp_path)
    assert (whole.resumed, whole.done) == (4, 8)
    assert len(cells_of(whole.csv_path)) == 16
    assert load_results(Toy(), tmp_path).rows == whole.rows


def test_progress_counts_up_and_time_left_goes_to_zero(tmp_path):
    seen = []
    run_experiment(Toy(), tmp_path, progress=seen.append)
    assert [now.done for now in seen] == list(range(9))
    assert seen[0].remaining is None
    assert seen[-1].remaining == 0
    # the costly jobs of "a" come first, so that few costs are left at the end
    assert [now.job["dataset"] for now in seen[1:]] == ["a"] * 4 + ["b"] * 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_killed_midway_and_resumed(tmp_path, n_jobs):
    results, pids = tmp_path / "results", tmp_path / "pids"
    pids.mkdir()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_reproduction import Toy, run_experiment\n"
        f"run_experiment(Toy({{'replicates': 200}}), sys.argv[2], n_jobs={n_jobs})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(results)],
        env=os.environ | {"TOY_DELAY": "0.1", "TOY_PIDS": str(pids)},
    )
    journal = results / "toy.jsonl"
    try:
        wait_until(lambda: journal_jobs(journal) >= 5 and len(list(pids.iterdir())) == n_jobs)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    workers = [int(path.name) for path in pids.iterdir()]
    wait_until(lambda: not any(alive(pid) for pid in workers), 10)

    saved = journal_jobs(journal)
    assert 5 <= saved < 400
    resumed = run_experiment(Toy({"replicates": 200}), results)
    assert (resumed.resumed, resumed.done) == (saved, 400)
    fresh = run_experiment(Toy({"replicates": 200}), tmp_path / "fresh")
    assert cells_of(resumed.csv_path) == cells_of(fresh.csv_path)


def test_cut_anywhere_the_journal_resumes(tmp_path):
    report = run_experiment(Toy({"replicates": 2}), tmp_path / "whole")
    raw = report.journal_path.read_bytes()
    path = tmp_path / "cut.jsonl"
    line_ends = {i + shift for i, byte in enumerate(raw) if byte == ord("\n") for shift in (0, 1, 2)}
    for cut in sorted(line_ends | set(range(0, len(raw), 23))):
        path.write_bytes(raw[:cut])
        with Journal(path, "toy", Toy({"replicates": 2}).protocol, {}) as journal:
            assert len(journal.content.jobs) == raw[:cut].count(b"\n", raw.find(b'{"kind": "job"'))
            assert journal.content.damaged == 0
            journal.append_job(Key.of(dataset="x"), 0.0, [])
        again = read_journal(path.read_bytes())
        assert again.damaged == 0
        assert Key.of(dataset="x") in again.jobs


def test_torn_line_is_computed_again(tmp_path):
    first = run_experiment(Toy(), tmp_path)
    first.journal_path.write_bytes(first.journal_path.read_bytes()[:-30])
    second = run_experiment(Toy(), tmp_path)
    assert (second.resumed, second.done) == (7, 8)
    assert [row["value"] for row in second.rows] == [row["value"] for row in first.rows]


def test_unreadable_line_in_the_middle_is_left_out_with_a_warning(tmp_path):
    first = run_experiment(Toy(), tmp_path)
    lines = first.journal_path.read_bytes().splitlines(keepends=True)
    lines[4] = b"\0\0\0 not json\n"
    first.journal_path.write_bytes(b"".join(lines))
    second = run_experiment(Toy(), tmp_path)
    assert (second.resumed, second.done) == (7, 8)
    assert "1 unreadable" in second.warnings[0]


def test_journal_without_its_header_is_refused(tmp_path):
    first = run_experiment(Toy(), tmp_path)
    raw = first.journal_path.read_bytes()
    first.journal_path.write_bytes(raw.split(b"\n", 1)[1])
    with pytest.raises(JournalDamaged, match="--restart"):
        run_experiment(Toy(), tmp_path)


def test_changed_protocol_is_refused_and_restart_keeps_the_old_journal(tmp_path):
    old = run_experiment(Toy(), tmp_path)
    journal = old.journal_path.read_bytes()
    changed = Toy({"seed": 2, "extra": {"depth": 1}})
    for attempt in (run_experiment, load_results):
        with pytest.raises(ProtocolChanged, match=r"changed: extra\.depth, seed\).*--restart"):
            attempt(changed, tmp_path)
    assert old.journal_path.read_bytes() == journal
    new = run_experiment(changed, tmp_path, restart=True)
    assert (new.resumed, new.done) == (0, 8)
    assert [row["seed"] for row in new.rows] != [row["seed"] for row in old.rows]
    (kept,) = tmp_path.glob("*.old.jsonl")
    assert kept.read_bytes() == journal


def test_changed_versions_are_told(tmp_path):
    first = run_experiment(Toy(), tmp_path)
    text = first.journal_path.read_text().replace(np.__version__, "0.0.1")
    first.journal_path.write_text(text)
    second = run_experiment(Toy(), tmp_path)
    assert f"numpy 0.0.1 → {np.__version__}" in second.warnings[0]


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks")
def test_two_runs_in_one_folder_are_refused(tmp_path):
    toy = Toy()
    with (
        Journal(tmp_path / "toy.jsonl", toy.name, toy.protocol, {}),
        pytest.raises(FolderBusy, match="another run"),
    ):
        run_experiment(toy, tmp_path)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_failing_jobs_do_not_stop_the_others_and_are_tried_again(tmp_path, n_jobs):
    failing = Toy({"fail": ["b/1", "a/3"]})
    report = run_experiment(failing, tmp_path, n_jobs=n_jobs)
    assert (report.done, report.total) == (6, 8)
    assert {str(failure.job) for failure in report.failures} == {"b/1", "a/3"}
    assert report.failures[0].error.startswith("ValueError: job")
    assert "Traceback" in report.failures[0].traceback
    assert len(cells_of(report.csv_path)) == 12
    again = run_experiment(failing, tmp_path, n_jobs=n_jobs)
    assert (again.resumed, len(again.failures)) == (6, 2)


class Missing(Toy):
    """Dataset a is not here."""

    def run(self, job):
        if job["dataset"] == "a":
            raise DatasetNotFound(
                "No data for 'a' here. Set POLYMARGIN_DATA to a folder that holds a.csv.gz."
            )
        return super().run(job)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_missing_data_stop_the_run_once(tmp_path, n_jobs):
    with pytest.raises(DataMissing, match=r"a/\d needs data .* Set POLYMARGIN_DATA to .* --dataset NAME"):
        run_experiment(Missing(), tmp_path, n_jobs=n_jobs)
    # The jobs of a, the longer ones, are started first: none of b's is waited for.
    assert journal_jobs(tmp_path / "toy.jsonl") < 4
    report = run_experiment(Missing(), tmp_path, n_jobs=n_jobs, only=lambda job: job["dataset"] == "b")
    assert (report.done, report.failures) == (4, [])


class Dying(Toy):
    """A job that kills its process when five others are on disk."""

    def run(self, job):
        if str(job) == "b/1":
            wait_until(lambda: journal_jobs(Path(self.protocol["journal"])) >= 5)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(job)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_worker_that_dies_ends_the_run_and_what_is_done_is_kept(tmp_path):
    dying = Dying({"journal": str(tmp_path / "toy.jsonl")})
    message = "killed.* memory .* of 8 jobs are done and saved; .* fewer jobs at once"
    with pytest.raises(WorkerDied, match=message) as caught:
        run_experiment(dying, tmp_path, n_jobs=2)
    saved = journal_jobs(tmp_path / "toy.jsonl")
    assert 5 <= saved == caught.value.done < 8
    assert len(cells_of(tmp_path / "toy.csv")) == 2 * saved
    again = run_experiment(dying, tmp_path, n_jobs=2, only=lambda job: str(job) != "b/1")
    assert (again.resumed, again.done) == (saved, 7)


class Forgetful(Toy):
    def run(self, job):
        return super().run(job)[:1]


class Unknown(Toy):
    def run(self, job):
        return [row | {"value": math.nan} for row in super().run(job)]


@pytest.mark.parametrize(
    ("kind", "message"), [(Forgetful, "rows are not its cells"), (Unknown, "value of .* is nan")]
)
def test_rows_are_checked(tmp_path, kind, message):
    report = run_experiment(kind(), tmp_path)
    assert len(report.failures) == 8
    assert re.search(message, report.failures[0].error)


def test_interrupt_saves_and_says_how_to_go_on(tmp_path):
    def interrupt(now):
        if now.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="3 of 8 jobs are done and saved; the same command resumes"):
        run_experiment(Toy(), tmp_path, progress=interrupt)
    assert len(cells_of(tmp_path / "toy.csv")) == 6
    assert run_experiment(Toy(), tmp_path).resumed == 3


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_second_stage_runs_the_first_as_far_as_it_needs_it(tmp_path, n_jobs):
    toy = run_experiment(Toy(), tmp_path / "toy")
    seen = []
    part = run_experiment(
        Doubled(),
        tmp_path / "both",
        n_jobs=n_jobs,
        only=lambda job: job["dataset"] == "a",
        progress=seen.append,
    )
    assert journal_jobs(tmp_path / "both" / "toy.jsonl") == 4, "the other dataset is not needed"
    expected = sum(row["value"] for row in toy.rows if (row["dataset"], row["method"]) == ("a", "fancy"))
    assert part.rows[1]["value"] == pytest.approx(2.0 * expected)
    assert list(dict.fromkeys(now.experiment for now in seen)) == ["toy", "doubled"]
    whole = run_experiment(Doubled(), tmp_path / "both", n_jobs=n_jobs)
    assert (whole.resumed, whole.done, whole.total) == (1, 2, 2)
    assert journal_jobs(tmp_path / "both" / "toy.jsonl") == 8
    again = run_experiment(Doubled(), tmp_path / "both")
    assert (again.resumed, again.rows) == (2, whole.rows)
    assert run_experiment(Doubled(), tmp_path / "both", restart=True).resumed == 0
    assert len(list((tmp_path / "both").glob("toy*.jsonl"))) == 2, "the old first stage is kept too"


def test_a_second_stage_waits_for_a_first_that_failed(tmp_path):
    report = run_experiment(Doubled({"fail": ["b/2"]}), tmp_path)
    assert (report.done, report.total) == (1, 2)
    assert [str(failure.job) for failure in report.failures] == ["b/2"]
    assert {row["dataset"] for row in report.rows} == {"a"}


def test_a_first_stage_of_another_protocol_is_refused(tmp_path):
    run_experiment(Doubled(), tmp_path)
    with pytest.raises(ProtocolChanged):
        run_experiment(Doubled({"seed": 2}), tmp_path)


def test_what_cannot_travel_to_workers_is_said(tmp_path):
    toy = Toy()
    toy.lock = threading.Lock()
    with pytest.raises(
        ReproductionError, match=r"sent to worker processes \(.*lock.*\); run it with n_jobs=1"
    ):
        run_experiment(toy, tmp_path, n_jobs=2)
    assert run_experiment(toy, tmp_path, n_jobs=1).done == 8


def test_a_job_has_the_threads_that_it_was_given(tmp_path):
    for n_jobs in (1, 2):
        report = run_experiment(Threads(), tmp_path / str(n_jobs), n_jobs=n_jobs)
        assert [row["value"] for row in report.rows] == [1.0] * 16


class Threads(Toy):
    """The number of threads that BLAS and OpenMP have in a job."""

    def run(self, job):
        most = max(library["num_threads"] for library in threadpool_info())
        return [{**cell.asdict(), "value": float(most), "seed": 0} for cell in self.cells(job)]


# --- comparing ---------------------------------------------------------------------------------------------


def test_standard_errors_by_hand():
    # 90 − 95 over sqrt(3²/10 + 4²/10) = −5 / sqrt(2.5)
    assert standard_errors_apart(Summary(90, 3, 10), Summary(95, 4, 10)) == pytest.approx(-3.16227766)
    assert standard_errors_apart(Summary(96, 0, 10), Summary(95, 2, 16)) == pytest.approx(2.0)
    # an unknown deviation counts as exact; two unknown ones leave nothing to measure with
    assert standard_errors_apart(Summary(96, 2, 16), Summary(95, math.nan, 10)) == pytest.approx(2.0)
    assert math.isnan(standard_errors_apart(Summary(96, math.nan, 1), Summary(95, math.nan, 1)))


@pytest.mark.parametrize(
    ("ours", "expected"), [(95.0, 0.0), (95.04, 0.0), (95.05, 0.0), (95.06, math.inf), (94.9, -math.inf)]
)
def test_two_zero_deviations(ours, expected):
    assert standard_errors_apart(Summary(ours, 0, 10), Summary(95.0, 0, 10), resolution=0.05) == expected


def rows_of(**values):
    return [
        {"dataset": name, "run": i, "value": value, "seed": 0}
        for name, runs in values.items()
        for i, value in enumerate(runs)
    ]


def test_comparison_by_hand():
    figures = parse_figures(
        ["dataset,mean,sd", "win,98.0,1.0", "iri,97.0,2.0", "zoo,90.0,3.0", "led,70.0,1.0", "ssd,95.0,0.0"]
    )
    rows = rows_of(win=[96, 98, 97, 97], iri=[90, 92, 91, 91], zoo=[99, 99, 98, 100], ssd=[95, 95])
    comparison = compare_with_paper(rows, figures, replicates=4)
    by_name = {cell.key["dataset"]: cell for cell in comparison.cells}
    sd = math.sqrt(2 / 3)  # of 96, 98, 97, 97
    assert by_name["win"].ours == Summary(97, pytest.approx(sd), 4)
    assert by_name["win"].standard_errors == pytest.approx(-1 / math.sqrt((sd**2 + 1) / 4))
    assert by_name["iri"].standard_errors == pytest.approx(-6 / math.sqrt((sd**2 + 4) / 4))
    assert {name: cell.verdict for name, cell in by_name.items()} == {
        "win": "same",
        "iri": "worse",
        "zoo": "better",
        "led": "missing",
        "ssd": "same",
    }
    assert (comparison.n_compared, comparison.n_not_worse) == (4, 3)
    assert [cell.key["dataset"] for cell in comparison.exceptions] == ["iri"]
    json.loads(json.dumps(comparison.as_json(), allow_nan=False))


def test_lower_is_better_and_by_metric():
    figures = parse_figures(
        ["dataset,metric,mean,sd", "win,accuracy,90.0,1.0", "win,support vectors,50.0,1.0"]
    )
    rows = [
        {"dataset": "win", "metric": metric, "value": value}
        for metric, values in (("accuracy", (60, 61)), ("support vectors", (20, 21)))
        for value in values
    ]
    better = {"accuracy": "higher", "support vectors": "lower"}
    comparison = compare_with_paper(rows, figures, replicates=10, better=lambda key: better[key["metric"]])
    assert [cell.verdict for cell in comparison.cells] == ["worse", "better"]
    assert [
        cell.verdict for cell in compare_with_paper(rows, figures, replicates=10, better="lower").cells
    ] == [
        "better",
        "better",
    ]


def test_without_figures_the_fields_name_the_cells():
    rows = [
        {"dataset": d, "method": "m", "replicate": r, "value": v}
        for d, r, v in (("a", 1, 1.0), ("a", 2, 3.0), ("b", 1, 5.0))
    ]
    comparison = compare_with_paper(rows, [], replicates=2, fields=("dataset", "method"))
    assert [(str(cell.key), cell.ours.mean, cell.verdict) for cell in comparison.cells] == [
        ("a/m", 2.0, "unprinted"),
        ("b/m", 5.0, "unprinted"),
    ]


def test_cells_that_the_paper_does_not_have_are_shown_but_not_counted():
    figures = parse_figures(["column,mean,sd", "a,10.0,1.0"], "text")
    rows = [{"column": name, "value": value} for name in ("a", "b") for value in (10.0, 11.0)]
    comparison = compare_with_paper(rows, figures, replicates=2)
    assert [(cell.key["column"], cell.verdict) for cell in comparison.cells] == [
        ("a", "same"),
        ("b", "unprinted"),
    ]
    assert (comparison.n_compared, comparison.n_not_worse) == (1, 1)
    assert comparison.as_json()["cells"][1]["paper"] is None


def test_an_interrupt_that_a_job_swallows_still_interrupts():
    """As when it arrives while a compiler runs, which makes an error of its own of it."""
    from polymargin.reproduction.jobs import compute_all

    class Swallowing:
        started = 0

        def run(self, job):
            self.started += 1
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                raise ValueError("no compiled object yet") from None

    experiment, before = Swallowing(), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(compute_all(experiment, [Key.of(run=1), Key.of(run=2)], 1, 1))
    assert experiment.started == 1
    assert signal.getsignal(signal.SIGINT) is before
