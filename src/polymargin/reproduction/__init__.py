"""The reproduction engine: a paper's table as an experiment that can be killed, resumed and compared.

An `Experiment` names its jobs and cells, computes one job at a time and knows the paper's figures.
`run_experiment` computes what is missing, by joblib, with every finished job on disk at once.
`compare_with_paper` sets our means beside the paper's, in combined standard errors.

    from polymargin.papers.vangestel2002 import TABLES
    experiment = TABLES["2"]()
    report = run_experiment(experiment, "results", n_jobs=2)
    comparison = compare_with_paper(report.rows, experiment.paper_figures(), replicates=experiment.replicates)
    comparison.n_not_worse, comparison.n_compared
"""

from polymargin.reproduction.comparison import (
    CellComparison,
    Comparison,
    Summary,
    compare_with_paper,
    standard_errors_apart,
)
from polymargin.reproduction.errors import (
    DataMissing,
    FolderBusy,
    JournalDamaged,
    ProtocolChanged,
    ReproductionError,
    RunInterrupted,
    WorkerDied,
)
from polymargin.reproduction.experiment import Experiment, Layout, Listing, Row, load_protocol, protocol_hash
from polymargin.reproduction.figures import Figure, parse_figures, read_figures
from polymargin.reproduction.keys import Key
from polymargin.reproduction.runner import (
    Failure,
    RunProgress,
    RunReport,
    load_results,
    read_results,
    run_experiment,
)
from polymargin.reproduction.splits import derive_seed, random_split, standardise

__all__ = [
    "CellComparison",
    "Comparison",
    "DataMissing",
    "Experiment",
    "Failure",
    "Figure",
    "FolderBusy",
    "JournalDamaged",
    "Key",
    "Layout",
    "Listing",
    "ProtocolChanged",
    "ReproductionError",
    "Row",
    "RunInterrupted",
    "RunProgress",
    "RunReport",
    "Summary",
    "WorkerDied",
    "compare_with_paper",
    "derive_seed",
    "load_protocol",
    "load_results",
    "parse_figures",
    "protocol_hash",
    "random_split",
    "read_figures",
    "read_results",
    "run_experiment",
    "standard_errors_apart",
    "standardise",
]
