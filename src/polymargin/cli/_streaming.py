"""``polymargin fit`` for tables larger than memory: two passes over the table, then a fit that streams."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polymargin import _memory
from polymargin.cli._console import note
from polymargin.cli._data import scan_file
from polymargin.cli._fitted import honest_of
from polymargin.cli._models import note_on_many_classes
from polymargin.cli._progress import logged, show_rows
from polymargin.cli._quality import Honest

if TYPE_CHECKING:  # importing pandas at run time would make every command slow to start
    from polymargin.scale import ScaleSettings
    from polymargin.scale.streaming import FileRows
    from polymargin.scale.work_folder import WorkFolder
    from polymargin.tables import Dialect, Examples, Scan, StoredTable

__all__ = ["STREAMING", "Streamed", "Task", "begun", "fit_stream", "is_large", "parse_memory"]

#: The models that need not have all rows in memory, with the number of their members that have leaves.
STREAMING: Mapping[str, int] = {"auto": 2, "ls-svm": 1}
_UNITS = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "t": 1e12,
    "ki": 2.0**10,
    "mi": 2.0**20,
    "gi": 2.0**30,
    "ti": 2.0**40,
}
_MEMORY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)
#: The least bound: below, the matrices of a sample that is large enough to choose a kernel do not fit.
_LEAST_MEMORY = 1e8
#: A table in memory takes so many times its numbers: as it is read, prepared, copied for the fit and sampled.
_COPIES = 6.0
#: The file that says how the rows are stored, and the rows.
_STORED, _ROWS, _SETTINGS = "stored.json", "rows.bin", "settings.json"


def parse_memory(text: str) -> float:
    """Return a number of bytes from a text such as 500MB or 1.5 GiB.

    >>> parse_memory("500MB"), parse_memory("2g"), parse_memory("1 GiB")
    (500000000.0, 2000000000.0, 1073741824.0)
    """
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise ValueError(f"--memory {text!r} is no amount of memory; write for example 500MB, 2GB or 1.5GiB")
    n_bytes = float(found[1]) * _UNITS[(found[2] or "").lower()]
    if n_bytes < _LEAST_MEMORY:
        raise ValueError(f"--memory {text} is too little to learn from; give at least 100MB")
    return n_bytes


@dataclass(frozen=True)
class Task:
    """A table to learn from, and how.

    Attributes
    ----------
    data : str
        The file or folder.
    output : Path
        The model file.
    work : Path or None
        Where the parts of the fit are to be kept; None: beside the model file.
    target, drop, use, weight
        Columns of the table.
    max_categories : int
        The most different values of a column of texts.
    seed : int
        Of the samples.
    memory : float or None
        The bytes that the fit may take; None: what is free.
    classifier : estimator
        The classifier, not fitted.
    dialect : Dialect or None
        How the files are written, as far as that is known.
    """

    data: str
    output: Path
    work: Path | None
    target: str | None
    drop: tuple[str, ...]
    use: tuple[str, ...]
    weight: str | None
    max_categories: int
    seed: int
    memory: float | None
    classifier: Any
    dialect: Dialect | None = None

    @property
    def bound(self) -> float:
        """The bytes that the fit may take."""
        return _memory.available() if self.memory is None else self.memory

    @property
    def folder(self) -> Path:
        """The folder for the parts of the fit."""
        parent = self.output.parent if self.work is None else self.work
        return parent / f"{self.output.name}.work"

    def description(self) -> dict[str, Any]:
        """Return all that the parts of the fit depend on, as plain JSON."""
        from polymargin.persistence._summary import library_versions
        from polymargin.tables import table_files

        files = [(str(file), file.stat()) for file in table_files(self.data)]
        return {
            "files": [[name, found.st_size, found.st_mtime_ns] for name, found in files],
            "columns": [self.target, list(self.drop), list(self.use), self.weight, self.max_categories],
            "dialect": None if self.dialect is None else asdict(self.dialect),
            "classifier": repr(self.classifier),
            "seed": self.seed,
            "memory": self.memory,
            "versions": library_versions(),
        }

    def limited(self) -> Any:
        """Return the classifier for rows in memory: with sizes for the bound on its memory, if there is one."""
        if self.memory is not None and hasattr(self.classifier, "scaling"):
            from joblib import effective_n_jobs

            from polymargin.scale import ScaleSettings

            sizes = settings_for(self.memory, 1, effective_n_jobs(self.classifier.n_jobs))
            exact = ScaleSettings().exact_operations  # which memory bounds, too
            self.classifier.set_params(scaling=replace(sizes, exact_operations=exact, memory=self.memory))
        return self.classifier


@dataclass(frozen=True)
class Streamed:
    """A model of a table larger than memory.

    Attributes
    ----------
    pipeline : Pipeline
        The model.
    examples : Examples
        The sample of the rows that the decoder learned from.
    honest : Honest
        Their out-of-sample predictions.
    n_rows : int
        The number of all rows.
    folder : WorkFolder
        The parts of the fit, to be removed when the model is saved.
    """

    pipeline: Any
    examples: Examples
    honest: Honest
    n_rows: int
    folder: WorkFolder


def begun(task: Task) -> bool:
    """Tell whether a fit of this very task was begun, and not finished."""
    try:
        kept = json.loads((task.folder / "task.json").read_bytes())
    except (OSError, ValueError):
        return False
    return kept == json.loads(json.dumps(task.description()))


def is_large(scan: Scan, task: Task, model: str) -> bool:
    """Tell whether a table is too large for a fit in memory, by a model that can do without."""
    if model not in STREAMING:
        return False
    # Of a column of texts there may be as many features as it has different ones; ten are not few.
    features = {"number": 1, "date": 5, "time": 7, "text": 10}
    width = sum(features.get(kind, 0) for kind in scan.kinds.values())
    return 8.0 * _COPIES * scan.n_labelled * width > task.bound


def settings_for(bound: float, n_members: int, n_jobs: int) -> ScaleSettings:
    """Return the sizes of samples and leaves for which a fit takes no more memory than this.

    Parameters
    ----------
    bound : float
        The bytes.
    n_members : int
        The number of members with leaves.
    n_jobs : int
        How many leaves are trained at the same time.
    """
    from polymargin.scale import ScaleSettings
    from polymargin.scale.plan import LEAF_BYTES

    usual = ScaleSettings()

    def within(most: int, least: int, rows: float) -> int:
        return int(max(least, min(most, rows)))

    largest = np.sqrt(bound / (2.0 * LEAF_BYTES * n_jobs))
    return ScaleSettings(
        exact_operations=0.0,  # rows that are not in memory have no exact machines
        # The search holds six matrices of the sample, those of two kernels at the same time.
        sample_rows=within(usual.sample_rows, 500, np.sqrt(bound / (2.0 * 48.0 * min(n_jobs, 2)))),
        # A leaf takes at most a half of the memory for all that are trained at the same time.
        leaf_rows=None if largest >= 1500.0 else int(max(largest, 200.0)),
        # Five matrices of the features of these rows, a thousand landmarks.
        decoder_rows=within(usual.decoder_rows, 2000, bound / (3.0 * 5.0 * 8.0 * 1000.0)),
        # To save a model takes four times its size, and half of this is what its leaves may hold.
        memory=bound / (2.0 * n_members),
    )


def fit_stream(task: Task, scan: Scan | None = None, n_jobs: int | None = None, **options: Any) -> Streamed:
    """Fit a model to a table larger than memory.

    Parameters
    ----------
    task : Task
        The table, and how to learn from it.
    scan : Scan or None
        What a look at all rows has found, if there was one.
    n_jobs : int or None
        How many leaves are trained at the same time; None: as many as there are cores, if memory allows.
    **options : object
        For `FileRows`: the size of blocks.
    """
    from polymargin.scale.work_folder import WorkFolder

    folder = WorkFolder(task.folder, task.description())
    try:
        if folder.resumed:
            note(f"going on with the fit whose parts are in {folder.path}")
        return _streamed(task, folder, scan, _n_jobs(task.bound) if n_jobs is None else n_jobs, options)
    except KeyboardInterrupt:
        folder.close()
        raise KeyboardInterrupt(
            f"interrupted: the same command goes on with the parts in {folder.path}"
        ) from None
    except BaseException:
        folder.close()
        raise


def _streamed(
    task: Task, folder: WorkFolder, scan: Scan | None, n_jobs: int, options: Mapping[str, Any]
) -> Streamed:
    """Return the model, whose parts are kept in an open folder."""
    from sklearn.base import clone
    from sklearn.pipeline import Pipeline

    stored = _stored(task, folder, scan)
    many = note_on_many_classes(task.classifier, len(stored.classes))
    noted = () if many is None else (many,)
    for line in (*stored.notes, *noted):
        note(line)
    settings = _settings(task, folder, n_jobs)
    source = _source(task, folder, stored, options)
    classifier = _fitted(clone(task.classifier).set_params(scaling=settings), source, stored, n_jobs)
    pipeline = Pipeline([("prepare", stored.preparation()), ("classifier", classifier)])
    examples = stored.examples(source.raw(classifier.support_))
    examples = replace(examples, notes=(*examples.notes, *noted))
    honest = honest_of(pipeline, examples, task.seed)
    if honest.method.startswith("leave-one-out"):
        honest = replace(honest, rows=np.searchsorted(classifier.support_, honest.rows))
    method = f"{honest.method}, a sample of {honest.rows.size} rows"
    return Streamed(pipeline, examples, replace(honest, method=method), stored.n_rows, folder)


def _n_jobs(bound: float) -> int:
    """Return how many leaves are trained at the same time: no more than memory allows."""
    from joblib import cpu_count

    return int(max(1, min(cpu_count(), bound // 5e8)))


def _settings(task: Task, folder: WorkFolder, n_jobs: int) -> ScaleSettings:
    """Return the sizes of samples and leaves; those of the killed fit, if there was one."""
    from polymargin.scale import ScaleSettings

    given = task.classifier.scaling
    if given is not None:
        return given
    kept = folder.json(_SETTINGS)
    if kept is not None:
        return ScaleSettings(**kept)
    name = "auto" if hasattr(task.classifier, "members") else "ls-svm"
    settings = settings_for(min(task.bound, 1e12), STREAMING[name], n_jobs)
    folder.keep_json(_SETTINGS, asdict(settings))
    return settings


def _stored(task: Task, folder: WorkFolder, scan: Scan | None) -> StoredTable:
    """Return what is known of the table, whose rows are in the folder now, if they were not before."""
    from polymargin.scale.row_file import RowWriter
    from polymargin.tables import StoredTable, store_table

    document = folder.json(_STORED)
    if document is not None:
        return StoredTable.from_json(document)
    scan = scan_file(task.data, task.target, task.drop, task.dialect) if scan is None else scan
    max_rows = int(min(20_000, max(100, task.bound / (100.0 * 8.0 * max(1, len(scan.kinds))))))
    with (
        RowWriter(folder.file(_ROWS)) as writer,
        show_rows(f"reading {scan.table.path.name}") as progress,
    ):
        stored = store_table(
            scan,
            writer.write,
            weight=task.weight,
            max_categories=task.max_categories,
            use=task.use,
            max_rows=max_rows,
            progress=progress,
        )
    folder.keep_json(_STORED, stored.to_json())
    return stored


def _source(task: Task, folder: WorkFolder, stored: StoredTable, options: Mapping[str, Any]) -> FileRows:
    """Return the rows."""
    from polymargin.scale.row_file import EXTRA, RowFile
    from polymargin.scale.streaming import FileRows

    file = RowFile(folder.file(_ROWS), stored.n_rows, len(stored.columns) + EXTRA)
    if not file.complete:
        raise ValueError(f"{file.path} is damaged; remove the folder {folder.path} and start again")
    return FileRows(
        file,
        np.array(stored.class_counts),
        stored.features,
        folder,
        seed=task.seed,
        mean_weight=stored.mean_weight,
        memory=min(task.bound, 32.0 * _memory.BLOCK_BYTES),
        **options,
    )


def _fitted(classifier: Any, source: FileRows, stored: StoredTable, n_jobs: int) -> Any:
    """Return the classifier, fitted to the rows."""
    from joblib import parallel_config

    with logged(), parallel_config(backend="threading", n_jobs=n_jobs):
        classifier.set_params(verbose=1)._fit_source(source, np.array(stored.classes))
    return classifier.set_params(verbose=0)
