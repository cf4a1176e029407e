"""Run an experiment: resume what is finished, compute what is missing, write the csv."""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polymargin._dataset import DatasetNotFound
from polymargin.reproduction.errors import DataMissing, ReproductionError, RunInterrupted, WorkerDied
from polymargin.reproduction.experiment import Experiment, Row
from polymargin.reproduction.jobs import Outcome, compute_all
from polymargin.reproduction.journal import Journal, JournalContent, check_protocol, read_journal
from polymargin.reproduction.keys import Key
from polymargin.reproduction.provenance import describe_session, to_toml

__all__ = ["Failure", "RunProgress", "RunReport", "load_results", "read_results", "run_experiment"]


@dataclass(frozen=True)
class RunProgress:
    """Where a run stands; handed to the `progress` callback at the start and after each job.

    Attributes
    ----------
    done, total, failed : int
        Jobs finished (those of earlier runs included), asked for, and failed in this run.
    elapsed : float
        Seconds since this run began.
    remaining : float or None
        Estimated seconds left; None while nothing is known.
    job : Key or None
        The job that has just finished.
    experiment : str
        Whose jobs these are: an experiment that requires others runs theirs first.
    """

    done: int
    total: int
    failed: int = 0
    elapsed: float = 0.0
    remaining: float | None = None
    job: Key | None = None
    experiment: str = ""


@dataclass(frozen=True)
class Failure:
    """A job that failed.

    Attributes
    ----------
    job : Key
        The job.
    error : str
        The error in one line.
    traceback : str
        The full traceback.
    """

    job: Key
    error: str
    traceback: str


@dataclass
class RunReport:
    """What a run has given.

    Attributes
    ----------
    rows : list of dict
        The finished cells that were asked for, in the order of the table: the fields of the cell, ``value``,
        what the job added (``seed``), and ``job_seconds``, the time of the whole job the cell is part of.
    done, total, resumed : int
        Jobs finished, asked for, and found finished already.
    failures : list of Failure
    warnings : list of str
    csv_path, journal_path : Path
    """

    rows: list[Row]
    done: int
    total: int
    resumed: int
    csv_path: Path
    journal_path: Path
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_experiment(
    experiment: Experiment,
    results_dir: str | Path,
    *,
    n_jobs: int | None = None,
    threads: int = 1,
    only: Callable[[Key], bool] | None = None,
    restart: bool = False,
    progress: Callable[[RunProgress], None] | None = None,
) -> RunReport:
    """Run the jobs of an experiment that are not finished yet.

    Every finished job is on disk before the next is counted, so the run may be killed at any moment; calling
    this again with the same folder resumes it. The csv is the same whatever `n_jobs` (but for the seconds).
    The experiments that this one requires are run first, as far as its missing jobs need them, in the same folder.

    Parameters
    ----------
    experiment : Experiment
    results_dir : path
        Receives ``<name>.jsonl`` (the journal), and at the end ``<name>.csv`` and ``<name>.toml``
        (where the results come from).
    n_jobs : int, optional
        How many jobs run at once: −1 for one per core, 1 for this process alone. They run in worker processes, or
        by what `joblib.parallel_config` says (threads, Dask); None leaves their number to it as well.
    threads : int
        BLAS threads per job. One keeps the results the same to the last bit whatever the machine's cores.
    only : callable, optional
        Which jobs to run and report; the csv holds all finished ones all the same.
    restart : bool
        Compute everything anew; the old journal is kept under another name.
    progress : callable, optional
        Called with a `RunProgress`.

    Returns
    -------
    RunReport

    Raises
    ------
    ProtocolChanged, FolderBusy, ReproductionError
        See their messages; nothing was lost.
    DataMissing
        When a job finds no data; the others would fail one after the other.
    WorkerDied, RunInterrupted
        When a worker process is killed, or on Ctrl-C, after the csv of what is finished was written.
    """
    folder = Path(results_dir)
    paths = _paths(experiment, folder)
    session = describe_session()
    asked = [job for job in experiment.jobs() if only is None or only(job)]
    first = None
    if experiment.requires():
        finished = set() if restart else _finished(experiment, paths["journal"])
        needing = [job for job in asked if job not in finished]
        first = _run_required(
            experiment, needing, folder, n_jobs=n_jobs, threads=threads, restart=restart, progress=progress
        )
    with Journal(paths["journal"], experiment.name, experiment.protocol, session, restart=restart) as journal:
        content = journal.content
        report = RunReport([], 0, len(asked), 0, paths["csv"], paths["journal"])
        report.resumed = sum(job in content.jobs for job in asked)
        report.warnings = _warnings(content, session)
        missing = [job for job in asked if job not in content.jobs]
        if first is not None:
            report.warnings += first.warnings
            missing = [
                job for job in missing if not any(experiment.needs(job, f.job) for f in first.failures)
            ]
        missing.sort(key=experiment.cost, reverse=True)  # stable: equal costs keep the table's order
        meter = _Meter(experiment, missing, report, progress)
        try:
            with closing(compute_all(experiment, missing, n_jobs, threads)) as outcomes:
                for outcome in outcomes:
                    _record(journal, report, outcome)
                    kind, _, advice = outcome.error.partition(": ")
                    if kind == DatasetNotFound.__name__:
                        raise DataMissing(str(outcome.job), advice)
                    meter.advance(outcome.job)
        except KeyboardInterrupt as interrupt:
            done = sum(job in content.jobs for job in asked)
            raise RunInterrupted(done, len(asked)) from interrupt
        except BrokenProcessPool as error:
            done = sum(job in content.jobs for job in asked)
            raise WorkerDied(done, len(asked)) from error
        finally:
            _write_outputs(experiment, content, paths)
    report.failures += first.failures if first is not None else []
    report.done = sum(job in content.jobs for job in asked)
    report.rows = _rows(content, asked)
    return report


def _finished(experiment: Experiment, journal: Path) -> set[Key]:
    """Return the jobs that need nothing any more."""
    content = read_journal(journal.read_bytes()) if journal.exists() else JournalContent()
    if content.header is not None:
        check_protocol(journal, content.header, experiment.protocol)
    return set(content.jobs)


@dataclass
class _Required:
    """What went wrong in the experiments that another one requires."""

    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _run_required(experiment: Experiment, jobs: Sequence[Key], folder: Path, **options: Any) -> _Required:
    """Run what jobs need of the required experiments, and give it to the experiment."""
    outcome = _Required()
    for required in experiment.requires():

        def needed(other: Key) -> bool:
            return any(experiment.needs(job, other) for job in jobs)

        report = run_experiment(required, folder, only=needed, **options)
        experiment.given[required.name] = report.rows
        outcome.failures += report.failures
        outcome.warnings += report.warnings
    return outcome


def load_results(
    experiment: Experiment, results_dir: str | Path, *, only: Callable[[Key], bool] | None = None
) -> RunReport:
    """Read the finished rows of a results folder, without computing or writing anything.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    results_dir : str or Path
        The results folder.
    only : callable (Key) -> bool, or None
        Which jobs to read; None for all.

    Returns
    -------
    RunReport

    See Also
    --------
    run_experiment : Computes the jobs that are not finished.
    """
    paths = _paths(experiment, Path(results_dir))
    asked = [job for job in experiment.jobs() if only is None or only(job)]
    content = read_journal(paths["journal"].read_bytes()) if paths["journal"].exists() else JournalContent()
    if content.header is not None:
        check_protocol(paths["journal"], content.header, experiment.protocol)
    done = sum(job in content.jobs for job in asked)
    rows = _rows(content, asked)
    return RunReport(rows, done, len(asked), done, paths["csv"], paths["journal"])


def read_results(lines: Iterable[str]) -> list[Row]:
    """Read the rows of a results csv; ``value`` becomes a number, other fields stay text.

    Parameters
    ----------
    lines : iterable of str
        The lines of the csv.

    Returns
    -------
    list of Row
    """
    return [row | {"value": float(row["value"])} for row in csv.DictReader(lines)]


class _Meter:
    """Counts jobs and estimates the time left from the costs of those done in this run."""

    def __init__(
        self,
        experiment: Experiment,
        missing: Sequence[Key],
        report: RunReport,
        progress: Callable[[RunProgress], None] | None,
    ) -> None:
        self._cost = {job: experiment.cost(job) for job in missing}
        self._left = sum(self._cost.values())
        self._spent = 0.0
        self._count = 0
        self._report = report
        self._progress = progress
        self._name = experiment.name
        self._start = time.perf_counter()
        self._tell(None)

    def advance(self, job: Key) -> None:
        """Count a job, finished or failed."""
        self._count += 1
        self._spent += self._cost[job]
        self._left -= self._cost[job]
        self._tell(job)

    def _tell(self, job: Key | None) -> None:
        if self._progress is None:
            return
        elapsed = time.perf_counter() - self._start
        remaining = elapsed * max(self._left, 0.0) / self._spent if self._spent else None
        failed = len(self._report.failures)
        done = self._report.resumed + self._count - failed
        self._progress(RunProgress(done, self._report.total, failed, elapsed, remaining, job, self._name))


def _paths(experiment: Experiment, folder: Path) -> dict[str, Path]:
    return {
        kind: folder / f"{experiment.name}{suffix}"
        for kind, suffix in (("journal", ".jsonl"), ("csv", ".csv"), ("provenance", ".toml"))
    }


def _record(journal: Journal, report: RunReport, outcome: Outcome) -> None:
    if outcome.error:
        journal.append_failure(outcome.job, outcome.error, outcome.traceback)
        report.failures.append(Failure(outcome.job, outcome.error, outcome.traceback))
    else:
        journal.append_job(outcome.job, outcome.seconds, list(outcome.rows))


def _warnings(content: JournalContent, session: Mapping[str, Any]) -> list[str]:
    warnings = []
    if content.damaged:
        warnings.append(
            f"{content.damaged} unreadable lines of the journal were left out; their jobs run again"
        )
    before: dict[str, str] = content.sessions[-1].get("versions", {}) if content.sessions else {}
    changed = [
        f"{package} {before[package]} → {now}"
        for package, now in session["versions"].items()
        if before.get(package, now) != now
    ]
    if changed:
        warnings.append(f"versions changed since the earlier results: {', '.join(changed)}")
    return warnings


def _rows(content: JournalContent, jobs: Iterable[Key]) -> list[Row]:
    """Return the finished rows of jobs in the order of the table."""
    rows = []
    for job in jobs:
        if job in content.jobs:
            seconds, cells = content.jobs[job]
            rows += [row | {"job_seconds": seconds} for row in cells]
    return rows


def _write_outputs(experiment: Experiment, content: JournalContent, paths: Mapping[str, Path]) -> None:
    """Write the csv of everything finished, and where it comes from."""
    rows = _rows(content, experiment.jobs())
    if not rows:
        return
    last = ("value", "seed", "job_seconds")
    names = dict.fromkeys(name for row in rows for name in row if name not in experiment.journal_only)
    columns = [name for name in names if name not in last] + [name for name in last if name in names]
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _replace(paths["csv"], stream.getvalue())
    header = content.header or {}
    provenance = {
        "experiment": experiment.name,
        "protocol_hash": header.get("protocol_hash", ""),
        "jobs_done": sum(job in content.jobs for job in experiment.jobs()),
        "jobs": len(experiment.jobs()),
        "sessions": [
            {name: value for name, value in entry.items() if name != "kind"} for entry in content.sessions
        ],
    }
    _replace(paths["provenance"], to_toml(provenance))


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is either the old or the new one, whole, at any moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ReproductionError(f"cannot write {path}: {error.strerror or error}") from error
