"""The first stage of Tables IV to VI: every kernel, density and C on the ten folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymargin.papers.gonen2008.densities import HARD, posteriors
from polymargin.papers.gonen2008.machines import Limits, Trained, predict, train_path
from polymargin.papers.gonen2008.rows import FOLDS, Split, evaluation_split, load_rows
from polymargin.reproduction import Experiment, Figure, Key, Layout, ReproductionError, Row

__all__ = ["Grid", "Judged", "Validation", "judge"]


@dataclass(frozen=True)
class Grid:
    """The parameters that are tried, and the tolerance and limits of the solvers.

    Attributes
    ----------
    machine : {"binary", "single", "one-vs-all"}
    densities : tuple of str
        ``"hard"``, the canonical SVM, comes first.
    costs : tuple of float
        C, ascending.
    tol : float
    limits : Limits
    """

    machine: str
    densities: tuple[str, ...]
    costs: tuple[float, ...]
    tol: float
    limits: Limits

    @classmethod
    def of(cls, protocol: Mapping[str, Any]) -> Grid:
        """Read it from a protocol."""
        return cls(
            protocol["machine"],
            (HARD, *protocol["densities"]),
            tuple(10.0**exponent for exponent in sorted(protocol["log10_C"])),
            float(protocol["tol"]),
            Limits(**protocol["max_steps"]),
        )


@dataclass(frozen=True)
class Judged:
    """For each C: new rows classified correctly, training rows that are support vectors, capped solves."""

    correct: tuple[int, ...]
    support: tuple[int, ...]
    capped: tuple[int, ...]


def judge(split: Split, kernel: str, grid: Grid) -> dict[str, Judged]:
    """Train all densities and C with one kernel on one split, and test them on its new rows.

    One Gram matrix serves them all; densities that give the same labels are trained once.
    """
    gram, gram_new = split.gram(kernel)
    labels = {density: posteriors(split, density) for density in grid.densities}
    paths: dict[str, list[Trained]] = {}
    for density, P in labels.items():
        same = next((other for other in paths if np.array_equal(labels[other], P)), None)
        paths[density] = (
            paths[same]
            if same is not None
            else train_path(grid.machine, gram, P, split.z, grid.costs, grid.tol, grid.limits)
        )
    distinct = list({id(machines): machines for path in paths.values() for machines in path}.values())
    classes = dict(zip(map(id, distinct), predict(gram_new, distinct), strict=True))
    correct = {key: int((found == split.z_new).sum()) for key, found in classes.items()}
    return {
        density: Judged(
            tuple(correct[id(machines)] for machines in path),
            tuple(machines.support.size for machines in path),
            tuple(machines.n_capped for machines in path),
        )
        for density, path in paths.items()
    }


class Validation(Experiment):
    """Correct classifications and support vectors of every configuration; a job is one kernel on one fold.

    A row holds all C of one density: ``correct`` and ``support`` are counts in the order of the protocol's C. Its
    ``value`` is the best of the accuracies in %, for the reader; it is not used.

    Parameters
    ----------
    name : str
        Tables that differ in machine or protocol keep their own.
    protocol : mapping
        A table's.
    """

    title = "Gönen et al. (2008): validation accuracy of every configuration in %"
    layout = Layout(rows=("dataset", "kernel"), columns=("density",))

    def __init__(self, name: str, protocol: Mapping[str, Any]) -> None:
        super().__init__(protocol)
        self.name = name  # type: ignore[misc]
        self.grid = Grid.of(protocol)

    def jobs(self) -> list[Key]:
        """Return dataset × fold × kernel."""
        return [
            Key.of(dataset=dataset, fold=fold, kernel=kernel)
            for dataset in self.protocol["datasets"]
            for fold in FOLDS
            for kernel in self.protocol["kernels"]
        ]

    def cells(self, job: Key) -> list[Key]:
        """Return a job's densities."""
        return [job.extended(density=density) for density in self.grid.densities]

    def run(self, job: Key) -> list[Row]:
        """Train and test."""
        check_size(job["dataset"], self.protocol["datasets"][job["dataset"]])
        split = evaluation_split(job["dataset"], int(job["fold"]), self.protocol["seed"])
        judged = judge(split, job["kernel"], self.grid)
        return [
            {
                **cell.asdict(),
                "value": 100.0 * max(judged[cell["density"]].correct) / split.z_new.size,
                "correct": _packed(judged[cell["density"]].correct),
                "support": _packed(judged[cell["density"]].support),
                "capped": _packed(judged[cell["density"]].capped),
                "n_train": split.z.size,
                "n_new": split.z_new.size,
                "seed": self.protocol["seed"],
            }
            for cell in self.cells(job)
        ]

    def paper_figures(self) -> list[Figure]:
        """Return none: the paper prints the best alone."""
        return []

    def cost(self, job: Key) -> float:
        """Solving takes time with the square of the rows and with the classes."""
        size = self.protocol["datasets"][job["dataset"]]
        return float((100 + size["n"] / 3) ** 2 * size["n_classes"])


def check_size(dataset: str, size: Mapping[str, int]) -> None:
    """Refuse data that are not those of the protocol."""
    X, z = load_rows(dataset)
    found = {"n": z.size, "n_classes": int(z.max()) + 1, "n_features": X.shape[1]}
    for name, wanted in size.items():
        if found[name] != wanted:
            raise ReproductionError(f"{dataset} has {name} = {found[name]} instead of {wanted}")


def _packed(counts: Sequence[int]) -> str:
    return " ".join(map(str, counts))
