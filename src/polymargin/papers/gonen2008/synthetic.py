"""The synthetic problems: draws, machines chosen on validation rows, and what is measured on test rows."""

from __future__ import annotations

import tomllib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from polymargin.datasets import Generator, generators
from polymargin.papers.gonen2008.densities import HARD, posteriors
from polymargin.papers.gonen2008.machines import BINARY, Limits, Trained, train_path
from polymargin.papers.gonen2008.rows import Split
from polymargin.reproduction import Experiment, Figure, Key, ReproductionError, Row, derive_seed

__all__ = [
    "Draw",
    "Judged",
    "Synthetic",
    "TunedMachine",
    "candidates",
    "choose",
    "class_probabilities",
    "judge",
    "labels_of",
    "load_synthetic_protocol",
    "outputs",
    "train",
]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def load_synthetic_protocol(table: str) -> dict[str, Any]:
    """Read ``protocol_synthetic.toml``: the common entries with those of one table laid over them."""
    text = files("polymargin.papers.gonen2008").joinpath("protocol_synthetic.toml").read_text("utf-8")
    protocol = tomllib.loads(text)
    tables = protocol.pop("tables")
    return {**protocol, **tables[table]}


@dataclass(frozen=True)
class Draw:
    """One draw of a problem: rows for tuning, rows for testing, and the true posterior of the latter.

    Attributes
    ----------
    tuning : Split
        Training and validation rows.
    final : Split
        What the chosen machine is trained on, and the test rows.
    posterior : ndarray of shape (n_test, K)
        The true posterior of the test rows.
    """

    tuning: Split
    final: Split
    posterior: Array

    @classmethod
    def of(cls, generator: Generator, protocol: Mapping[str, Any], seed: int) -> Draw:
        """Draw the rows of a protocol; labels are moved to another class at its rate, but for the test rows."""
        n_train, n_rest = protocol["n_train"], protocol["n_train"] + protocol["n_validation"]
        X, true = generator.sample(n_rest + protocol["n_test"], random_state=seed)
        n_classes, z = generator.classes.size, true.astype(np.intp)
        noise = np.random.default_rng(seed)
        moved = np.flatnonzero(noise.random(n_rest) < protocol["label_noise"])
        z[moved] = (z[moved] + noise.integers(1, n_classes, moved.size)) % n_classes
        if np.unique(z[:n_train]).size < n_classes:
            raise ReproductionError(f"a class of {generator.name} has no training row; draw more")
        rest = n_rest if protocol["retrain"] else n_train
        return cls(
            Split(X[:n_train], z[:n_train], X[n_train:n_rest], z[n_train:n_rest], n_classes),
            Split(X[:rest], z[:rest], X[n_rest:], z[n_rest:], n_classes),
            generator.posterior(X[n_rest:]),
        )


@dataclass(frozen=True)
class TunedMachine:
    """A machine's kernel, density and C, and its accuracy and support vectors in tuning."""

    kernel: str
    density: str
    cost: float
    accuracy: float
    n_support: int


def outputs(trained: Trained, gram_new: Array) -> Array:
    """Return f(x) of new rows, shape (n_new, 1) for a two-class machine, else (n_new, K)."""
    return gram_new @ trained.coefficients + trained.biases


def labels_of(values: Array) -> Index:
    """Return the class of each row of outputs: the sign of one column, or the largest of several."""
    return (values[:, 0] > 0.0).astype(np.intp) if values.shape[1] == 1 else values.argmax(axis=1)


def class_probabilities(values: Array) -> Array:
    """Return the softmax of Section IV-C, shape (n_new, K).

    A two-class machine counts as the single machine that it equals with hard labels, f and −f.
    """
    if values.shape[1] == 1:
        positive = expit(2.0 * values)
        return np.hstack([1.0 - positive, positive])
    return np.asarray(softmax(values, axis=1), dtype=np.float64)


def train(
    machine: str, gram: Array, P: Array, z: Index, costs: Sequence[float], protocol: Mapping[str, Any]
) -> list[Trained]:
    """Train for ascending costs C with a protocol's tolerance and limits, see `train_path`."""
    return train_path(machine, gram, P, z, costs, protocol["tol"], Limits(**protocol["limits"]))


def candidates(
    split: Split,
    machine: str,
    kernels: Iterable[str],
    densities: Iterable[str],
    protocol: Mapping[str, Any],
) -> Iterator[TunedMachine]:
    """Yield every kernel × density × C with its accuracy on the split's new rows, C ascending and innermost."""
    densities = list(densities)
    for kernel in kernels:
        gram, gram_new = split.gram(kernel)
        for density in densities:
            path = train(machine, gram, posteriors(split, density), split.z, protocol["costs"], protocol)
            for cost, trained in zip(protocol["costs"], path, strict=True):
                right = labels_of(outputs(trained, gram_new)) == split.z_new
                yield TunedMachine(kernel, density, cost, float(right.mean()), trained.support.size)


def choose(found: Iterable[TunedMachine], ties: str) -> TunedMachine:
    """Return the most accurate; of equals the first or, for ``"sparsest"``, the one with the fewest supports."""
    if ties not in ("first", "sparsest"):
        raise ReproductionError(f"ties must be 'first' or 'sparsest', not {ties!r}")
    # max keeps the first of equals
    return max(found, key=lambda c: (c.accuracy, -c.n_support if ties == "sparsest" else 0))


@dataclass(frozen=True)
class Judged:
    """The final machine with the chosen parameters, and its predictions of the test rows.

    Attributes
    ----------
    choice : TunedMachine
    predicted : ndarray of int, shape (n_test,)
    probabilities : ndarray of shape (n_test, K)
        The softmax of its outputs.
    support : float
        Support vectors in percent of the training rows.
    """

    choice: TunedMachine
    predicted: Index
    probabilities: Array
    support: float


def judge(split: Split, machine: str, choice: TunedMachine, protocol: Mapping[str, Any]) -> Judged:
    """Train a chosen machine on a split's training rows and apply it to the new ones."""
    gram, gram_new = split.gram(choice.kernel)
    P = posteriors(split, choice.density)
    trained = train(machine, gram, P, split.z, [choice.cost], protocol)[0]
    values = outputs(trained, gram_new)
    support = 100.0 * trained.support.size / split.z.size
    return Judged(choice, labels_of(values), class_probabilities(values), support)


class Synthetic(Experiment):
    """What the tables on R1 to R4 share: a job is one draw of one problem with one family of kernels.

    The canonical SVM and the posterior probability SVM with either family of densities use the same rows. All
    three kernel families use the same draw.

    Parameters
    ----------
    protocol : mapping, optional
        Another protocol than ``protocol_synthetic.toml``'s, e.g. for a quick trial.
    """

    table: ClassVar[str]

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(load_synthetic_protocol(self.table) if protocol is None else protocol)

    def jobs(self) -> list[Key]:
        """Return problem × kernel family × draw."""
        return [
            Key.of(dataset=dataset, kernel=kernel, draw=draw)
            for dataset in self.protocol["datasets"]
            for kernel in self.protocol["kernels"]
            for draw in range(1, self.protocol["draws"] + 1)
        ]

    @property
    @abstractmethod
    def columns(self) -> list[dict[str, str]]:
        """What a job yields, as the fields that its cells have beside the job's."""

    @abstractmethod
    def measure(self, draw: Draw, judged: Mapping[str, Judged]) -> list[float]:
        """Return the value of each column; machines are "canonical" and by family of densities."""

    def cells(self, job: Key) -> list[Key]:
        """Return a job's columns."""
        return [job.extended(**fields) for fields in self.columns]

    def run(self, job: Key) -> list[Row]:
        """Draw, tune, train, measure."""
        seed = derive_seed(self.protocol["seed"], job["dataset"], int(job["draw"]))
        draw = Draw.of(generators()[job["dataset"]], self.protocol, seed)
        values = self.measure(draw, self.judged(job, draw))
        return [
            {**cell.asdict(), "value": value, "seed": seed}
            for cell, value in zip(self.cells(job), values, strict=True)
        ]

    def judged(self, job: Key, draw: Draw) -> dict[str, Judged]:
        """Choose and train the canonical machine and one for each family of densities."""
        machine = self.protocol["datasets"][job["dataset"]]
        kernels = self.protocol["kernels"][job["kernel"]]
        families: dict[str, Sequence[str]] = {"canonical": [HARD], **self.protocol["densities"]}
        found = {}
        for family, densities in families.items():
            tried = candidates(draw.tuning, machine, kernels, densities, self.protocol)
            choice = choose(tried, self.protocol["ties"])
            found[family] = judge(draw.final, machine, choice, self.protocol)
        return found

    def paper_figures(self) -> list[Figure]:
        """Return none: only Table II itself is printed."""
        return []

    def cost(self, job: Key) -> float:
        """Polynomials are the hardest, and two-class machines are quick."""
        slow = {"linear": 1.0, "poly": 20.0, "rbf": 10.0}.get(job["kernel"], 10.0)
        return slow * (1.0 if self.protocol["datasets"][job["dataset"]] == BINARY else 3.0)
