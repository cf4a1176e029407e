"""Examples for a command, from a file or a dataset by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polymargin.cli._progress import show_rows

if TYPE_CHECKING:  # importing pandas at run time would make every command slow to start
    from polymargin.tables import Dialect, Examples, Scan

__all__ = ["files_read", "load_examples", "name_of", "names_file", "scan_file"]

_ENDINGS = (".csv", ".gz", ".tsv", ".txt", ".parquet", ".pq")


def names_file(data: str) -> bool:
    """Tell whether a file, even if it is not there, or a folder is meant rather than a dataset by name.

    >>> names_file("my.csv"), names_file("wine")
    (True, False)
    """
    path = Path(data)
    return path.is_file() or path.suffix in _ENDINGS or _is_folder(path)


def _is_folder(path: Path) -> bool:
    """Tell whether a folder is meant; one that is called like a dataset needs a slash, as in ./wine."""
    from polymargin import datasets

    return path.is_dir() and (str(path) not in datasets.names())


def name_of(data: str) -> str:
    """Return what a file, or a dataset by name, is called without folder and endings.

    >>> name_of("folder/my.csv.gz"), name_of("wine")
    ('my', 'wine')
    """
    name = Path(data).resolve().name if Path(data).is_dir() else Path(data).name
    return Path(name.removesuffix(".gz")).stem if names_file(data) else name


def files_read(data: str) -> list[Path]:
    """Return the files that are read for `data`: the file itself, or those of the dataset in the data folder."""
    from polymargin.datasets import data_files

    if not names_file(data):
        return data_files(data)
    if not Path(data).is_dir():
        return [Path(data)]
    from polymargin.tables import table_files

    return table_files(data)


def scan_file(data: str, target: str | None, drop: Sequence[str], dialect: Dialect | None = None) -> Scan:
    """Look at all rows of a file or folder, with a bar."""
    from polymargin import tables

    table = tables.open_table(data, dialect)
    with show_rows(f"looking at {table.path.name}") as progress:
        return tables.scan_table(table, target, drop, progress)


def load_examples(
    data: str,
    target: str | None = None,
    *,
    drop: Sequence[str] = (),
    use: Sequence[str] = (),
    weight: str | None = None,
    group: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    max_categories: int = 100,
    dialect: Dialect | None = None,
    check_rows: Callable[[int], None] = lambda n_rows: None,
    scan: Scan | None = None,
) -> Examples:
    """Return the rows of a file, or of a dataset by name, with the columns that a kernel can use.

    Parameters
    ----------
    data : str
        A file, or the name of a dataset.
    target, drop, weight, group
        Columns of the file.
    use : sequence of str
        The columns that may look like identifiers.
    sample, seed
        How many rows to draw, and how.
    max_categories : int
        The most different texts of a column.
    dialect : Dialect or None
        How the file is written, as far as that is known.
    check_rows : callable
        Called with the number of rows before they are read; may raise an error.
    scan : Scan or None
        What a look at all rows of the file has found, if there was one.
    """
    from polymargin import datasets, tables

    if not names_file(data):
        if target is not None or drop or weight is not None or group is not None:
            raise ValueError(
                "--target, --drop, --weight and --groups name columns of a file; datasets by name have their own"
            )
        if dialect not in (None, tables.Dialect()):
            raise ValueError("--delimiter, --decimal, --encoding, --header and --missing are for files")
        examples = tables.sampled(tables.examples_of(datasets.load(data)), sample, seed)
        check_rows(examples.labels.size)
        return tables.choose_features(examples, use=use)
    scan = scan_file(data, target, drop, dialect) if scan is None else scan
    check_rows(scan.n_labelled if sample is None else min(sample, scan.n_labelled))
    with show_rows(f"reading {scan.table.path.name}") as progress:
        examples = tables.read_examples(
            scan, weight=weight, group=group, sample=sample, seed=seed, progress=progress
        )
    return tables.choose_features(
        examples, max_categories=max_categories, use=use, without=[name for name in (weight, group) if name]
    )
