"""The papers' figures and experiments, and the command that runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_reproduction import Toy
from typer.testing import CliRunner

import polymargin.cli.reproduce as command
from polymargin import papers
from polymargin.cli import app
from polymargin.papers.vangestel2002 import TABLES, _coding_table
from polymargin.reproduction import Key, ReproductionError, random_split, run_experiment, standardise

runner = CliRunner()

# --- Van Gestel et al. (2002): sums over rows and columns come from another parse of the text than the csv's.

DATASETS = "bal der gla iri led nth ssd veh win zoo".split()
CODINGS = "one-vs-one one-vs-all minimal ecoc".split()
ROW_SUMS = {  # per dataset, of the eight means and of the eight standard deviations
    ("2", "linear"): """705.8/20.1 770.9/11.8 448.6/45.3 663.0/33.8 533.5/26.4
                        708.5/34.4 763.1/22.1 601.3/15.2 785.1/13.1 726.1/41.1""",
    ("2", "rbf"): """727.9/17.6 777.1/7.2 471.0/53.9 759.4/24.5 569.5/21.8
                     769.6/15.2 763.8/23.6 640.9/21.0 784.0/14.0 735.7/33.2""",
    ("3", "linear"): """727.4/16.6 767.6/10.3 432.2/52.2 621.8/36.7 511.7/37.2
                        735.4/24.8 783.2/24.2 599.1/23.9 775.7/18.4 713.3/48.9""",
    ("3", "rbf"): """748.2/15.3 768.0/10.5 503.0/52.7 725.0/36.2 564.6/28.2
                     759.3/19.5 787.8/23.5 650.6/19.2 778.1/17.2 720.5/39.4""",
}
COLUMN_SUMS = {}


def figures_of(table):
    return {figure.key: figure for figure in TABLES[table]().paper_figures()}
