"""Datasets from the user's own files."""

from __future__ import annotations

from pathlib import Path

from polymargin._dataset import Dataset


def read_csv(path: str | Path, target: str | None = None) -> Dataset:
    """Read a CSV file with a header row, or a Parquet file; a column is numeric if all its values are, else nominal.

    How a CSV file is written is found out, as `polymargin fit` does: what separates its fields, decimal marks, dates
    (which become days since 1970-01-01) and so on. Needs pandas and pyarrow: install polymargin with its tables extra.

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

    return tables.read_examples(tables.scan_table(tables.open_table(path), target)).as_arrays()
