"""Between datasets, which are arrays, and the tables of `polymargin.tables`, which are frames of pandas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polymargin.datasets._dataset import Dataset

if TYPE_CHECKING:  # which needs pandas and pyarrow
    from polymargin.tables import Examples


def read_csv(path: str | Path, target: str | None = None) -> Dataset:
    """Read a CSV file with a header row, or a Parquet file; a column is numeric if all its values are, else nominal.

    Fields of a CSV file are separated by commas, semicolons or tabs, as the header shows. Needs pandas and pyarrow:
    install polymargin with its tables extra.

    Parameters
    ----------
    path : str or Path
        The file, perhaps compressed (``.gz``).
    target : str or None
        The name of the column with the labels; the last column unless given.

    Returns
    -------
    Dataset
        Missing values (an empty field, ``NA``, ``?`` and the like) are NaN, or None in nominal columns. Rows
        without a label are left out, and counted.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "fruit.csv"
    >>> _ = file.write_text("weight,colour,fruit\\n150,green,apple\\n120,,orange\\n,red,apple\\n")
    >>> data = read_csv(file)
    >>> data, data.nominal, data.y.tolist()
    (Dataset('fruit': 3 rows, 2 features, 2 classes), ('colour',), ['apple', 'orange', 'apple'])
    """
    from polymargin import tables  # which needs pandas and pyarrow

    scan = tables.scan_table(tables.open_table(path), target)
    examples = tables.read_examples(scan)
    nominal = tuple(name for name in examples.frame if scan.kinds[name] == "text")
    return Dataset(
        name=examples.name,
        X=examples.frame.to_numpy(dtype=object if nominal else np.float64),
        y=examples.labels,
        feature_names=tuple(examples.frame),
        source=f"file {Path(path).name}",
        nominal=nominal,
        extras={"row": examples.row_numbers + examples.first_row},
        unlabelled=sum(scan.unlabelled.values()),
    )


def examples_of(dataset: Dataset) -> Examples:
    """Return a dataset as examples, with a column of a pandas frame for every feature.

    Parameters
    ----------
    dataset : Dataset
        The rows.

    Returns
    -------
    Examples

    Examples
    --------
    >>> from polymargin.datasets import load
    >>> examples_of(load("wine")).frame.shape
    (178, 13)
    """
    from polymargin import tables

    return tables.from_arrays(dataset.name, dataset.X, dataset.y, dataset.feature_names, dataset.nominal)
