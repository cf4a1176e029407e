"""Tables in files: CSV or Parquet in, typed columns and a prepared scikit-learn pipeline out.

    file ──► open_table ──► scan_table ──► read_examples ──► choose_features ──► preparation
    CSV,     columns,       what columns    a frame, its      what a kernel       standardise,
    Parquet  batches        hold            labels            can use             indicators

A file is read in batches and may be larger than memory. `scan_table` looks at every row before any column gets its
type, so that a type never changes half-way; `read_examples` then takes all rows, or a sample in which every class is
present. `TableReader` gives a fitted model the columns it was fitted on, batch by batch. Frames in memory go the same
way, without a file (`prepare_frame`).

Needs pandas and pyarrow: install polymargin with its tables extra.
"""

try:
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"tables in files need pandas and pyarrow, and {error.name} is not installed: "
        "install polymargin with its tables extra"
    ) from error

from polymargin.tables._cells import Kind
from polymargin.tables._dialect import Dialect
from polymargin.tables._examples import Examples, examples_of, read_examples, sampled
from polymargin.tables._features import choose_features
from polymargin.tables._files import Batch, Table, open_table, table_files
from polymargin.tables._labels import class_indices, label_texts, typed_labels
from polymargin.tables._looks import Columns
from polymargin.tables._prepare import prepare
from polymargin.tables._reader import TableReader
from polymargin.tables._scan import Scan, scan_table
from polymargin.tables._stored import StoredTable
from polymargin.tables._storing import store_table
from polymargin.tables._table_preparation import TablePreparation, preparation, preparation_of, prepare_frame
from polymargin.tables._writing import Format, format_of, writing

__all__ = [
    "Batch",
    "Columns",
    "Dialect",
    "Examples",
    "Format",
    "Kind",
    "Scan",
    "StoredTable",
    "Table",
    "TablePreparation",
    "TableReader",
    "choose_features",
    "class_indices",
    "examples_of",
    "format_of",
    "label_texts",
    "open_table",
    "preparation",
    "preparation_of",
    "prepare",
    "prepare_frame",
    "read_examples",
    "sampled",
    "scan_table",
    "store_table",
    "table_files",
    "typed_labels",
    "writing",
]
