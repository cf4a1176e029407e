"""What Tables II and III share: the splits of Table I, every coding with two decoders, two kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from polymargin.datasets import Dataset, load_for
from polymargin.decoders import Decoder
from polymargin.papers._codings import Machines, compare_codings
from polymargin.reproduction import (
    Experiment,
    Figure,
    Key,
    Layout,
    ReproductionError,
    Row,
    derive_seed,
    load_protocol,
    random_split,
    read_figures,
    standardise,
)

__all__ = ["CodingTable", "load_once"]

_PACKAGE = "polymargin.papers.vangestel2002"


class CodingTable(Experiment):
    """Test accuracies (%) of all codings and decodings.

    A job is one randomisation of one dataset with one kernel. The split depends on the dataset and the
    randomisation alone, so kernels, codings, decoders and both tables are compared on the same rows.

    Parameters
    ----------
    protocol : mapping, optional
        Another protocol than ``protocol.toml``'s, e.g. for a quick trial.
    """

    table: ClassVar[str]
    layout = Layout(rows=("dataset",), columns=("decoding", "coding"), panels=("kernel",))

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(load_protocol(_PACKAGE, self.table) if protocol is None else protocol)

    def jobs(self) -> list[Key]:
        """Return dataset × kernel × randomisation."""
        return [
            Key.of(dataset=dataset, kernel=kernel, randomisation=randomisation)
            for dataset in self.protocol["datasets"]
            for kernel in self.protocol["kernels"]
            for randomisation in range(1, self.replicates + 1)
        ]

    def cells(self, job: Key) -> list[Key]:
        """Return a job's coding × decoding."""
        return [
            job.extended(coding=coding, decoding=decoding)
            for coding in self.protocol["codings"]
            for decoding in self.protocol["decodings"]
        ]

    def run(self, job: Key) -> list[Row]:
        """Split, standardise, fit, score."""
        size = self.protocol["datasets"][job["dataset"]]
        data = load_once(job["dataset"])
        X, y = np.asarray(data.X, dtype=float), data.y
        wanted = size.get("n_available", size["n_train"] + size["n_test"])
        if len(y) != wanted:
            raise ReproductionError(f"{job['dataset']} has {len(y)} rows instead of {wanted}")
        seed = derive_seed(self.protocol["seed"], job["dataset"], int(job["randomisation"]))
        train, test = random_split(y, size["n_train"], size["n_test"], seed)
        X_train, X_test = standardise(X[train], X[test])
        scores = compare_codings(
            X_train,
            y[train],
            X_test,
            y[test],
            codings=self.protocol["codings"],
            decodings={name: self.decoders().get(name, name) for name in self.protocol["decodings"]},
            kernel=job["kernel"],
            machines=self.machines(job["kernel"], seed),
            shared_parameters=self.protocol["parameters"] == "shared",
            classes=self.protocol["class_order"].get(job["dataset"], np.unique(y)),
            random_state=seed,
        )
        accuracies = {(score.coding, score.decoding): 100.0 * score.accuracy for score in scores}
        return [
            {**cell.asdict(), "value": accuracies[cell["coding"], cell["decoding"]], "seed": seed}
            for cell in self.cells(job)
        ]

    @abstractmethod
    def decoders(self) -> dict[str, Decoder]:
        """Return the decoders whose names mean something particular in this table."""

    @abstractmethod
    def machines(self, kernel: str, seed: int) -> Machines:
        """Return how the machines of this table are trained."""

    def paper_figures(self) -> list[Figure]:
        """Return the 160 figures of the table."""
        return read_figures(_PACKAGE, f"table{self.table[0]}.csv")

    def cost(self, job: Key) -> float:
        """Factorisations grow with the cube of the rows."""
        return 50.0**3 + float(self.protocol["datasets"][job["dataset"]]["n_train"]) ** 3


@lru_cache(maxsize=16)
def load_once(dataset: str) -> Dataset:
    """Load a dataset as the paper has it, once per process."""
    return load_for("vangestel2002", dataset)
