"""Datasets and generators of the five papers.

`load` returns a dataset by name, from a folder of the user (``$POLYMARGIN_DATA``), from scikit-learn, from a
generator or from OpenML; `load_for` returns it as one of the papers prepared it. The package does not contain
the data.

The artificial problems are functions as in scikit-learn, ``make_waveform(n, random_state=0)``, and objects,
``generators()["waveform"]``, which also compute the true class probabilities of any point.

>>> from polymargin.datasets import generators, load
>>> load("wine")
Dataset('wine': 178 rows, 13 features, 3 classes)
>>> X, y = generators()["twonorm"].sample(5, random_state=0)
>>> generators()["twonorm"].posterior(X).sum(axis=1)
array([1., 1., 1., 1., 1.])
"""

from polymargin._dataset import Dataset, DatasetNotFound, Split
from polymargin._preparation import training_imputer, value_indicators
from polymargin.datasets._load import data_files, load, names
from polymargin.datasets._prepare import (
    drop_constant_columns,
    drop_incomplete_rows,
    load_for,
    one_hot,
    paper_names,
    preprocessor,
)
from polymargin.datasets._tables import read_csv
from polymargin.datasets.generators import (
    Generator,
    generators,
    make_led7,
    make_r1,
    make_r2,
    make_r3,
    make_r4,
    make_twonorm,
    make_waveform,
)

__all__ = [
    "Dataset",
    "DatasetNotFound",
    "Generator",
    "Split",
    "data_files",
    "drop_constant_columns",
    "drop_incomplete_rows",
    "generators",
    "load",
    "load_for",
    "make_led7",
    "make_r1",
    "make_r2",
    "make_r3",
    "make_r4",
    "make_twonorm",
    "make_waveform",
    "names",
    "one_hot",
    "paper_names",
    "preprocessor",
    "read_csv",
    "training_imputer",
    "value_indicators",
]
