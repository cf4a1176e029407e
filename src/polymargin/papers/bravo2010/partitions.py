"""The twenty partitions of Section 4: every method trained on 300 rows and scored on 500 others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import Codebook, one_vs_all, one_vs_one
from polymargin.datasets import Dataset, load_for
from polymargin.decoders import CoupledSoftmax, Coupling, ProbabilisticDecoder, Softmax
from polymargin.kernels import resolve_kernel
from polymargin.machines import TrainingRows
from polymargin.metrics import (
    brier_score,
    calibration_error,
    class_loss,
    divergence_from_truth,
    log_loss,
)
from polymargin.papers.bravo2010.kurtosis import error_kurtosis
from polymargin.papers.bravo2010.plain_coupling import PlainCoupling
from polymargin.reproduction import (
    Experiment,
    Figure,
    Key,
    Layout,
    Listing,
    ReproductionError,
    Row,
    Summary,
    derive_seed,
    load_protocol,
    random_split,
)

if TYPE_CHECKING:  # importing it at run time would load numba with the command
    from polymargin.machines.svm import SVMBank

__all__ = ["COUPLINGS", "METRICS", "Partition", "Partitions", "by_method", "kernel_gamma", "scaled"]

Array = NDArray[Any]

_PACKAGE = "polymargin.papers.bravo2010"

COUPLINGS = ("ht", "wlw1", "wlw2", "pkpd")
#: Scores and what to call them; "kl" is for datasets whose true posterior is known.
METRICS = {
    "kurtosis": '"kurtosis" of the errors, eq. (16)',
    "class_loss": "class loss in %",
    "log_loss": "log-loss",
    "brier": "Brier score",
    "calibration_error": "expected calibration error, top label",
    "kl": "Kullback–Leibler divergence from the exact posterior",
}
_DECIMALS = {"kurtosis": 4, "class_loss": 2}


@dataclass(frozen=True)
class Partition:
    """One split: features in the units of the protocol, classes as indices, and the seed of what else is random."""

    X_train: Array
    train_index: Array
    X_test: Array
    test_index: Array
    #: The exact posterior of the test rows, where the dataset comes from a generator.
    truth: Array | None
    seed: int


class Partitions(Experiment):
    """All methods and scores on every partition; Tables III and IV show parts of it.

    A job is one partition of one dataset: its one-vs-one and one-vs-all machines are trained once and read by every
    decoder.

    Parameters
    ----------
    protocol : mapping, optional
        Another protocol than ``protocol.toml``'s, e.g. for a quick trial.
    """

    name = "bravo2010-scores"
    title = (
        "Bravo et al. (2010), Section 4: all methods, all scores, mean ± standard deviation; lower is better"
    )
    layout = Layout(rows=("dataset",), columns=("method",), panels=("metric",))
    better = "lower"
    compared = False

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(load_protocol(_PACKAGE) if protocol is None else protocol)

    def jobs(self) -> list[Key]:
        """Return dataset × run."""
        return [
            Key.of(dataset=dataset, run=run)
            for dataset in self.protocol["datasets"]
            for run in range(1, self.replicates + 1)
        ]

    def cells(self, job: Key) -> list[Key]:
        """Return metric × method."""
        return [
            job.extended(metric=metric, method=method)
            for metric in METRICS
            for method in self._methods(job["dataset"])
            if metric != "kl" or job["dataset"] in self.protocol["truth"]
        ]

    def _methods(self, dataset: str) -> list[str]:
        """Return the methods of a dataset: not all have an exact posterior, or a network chosen on the test rows."""
        only = {
            "truth": self.protocol["truth"],
            "mcp_best_on_test": self.protocol["best_on_test"]["datasets"],
        }
        return [
            method for method in self.protocol["methods"] if method not in only or dataset in only[method]
        ]

    def run(self, job: Key) -> list[Row]:
        """Split, train, decode, score."""
        part = self.partition(job)
        scores = {
            method: self.scores(part, log_proba)
            for method, log_proba in self.log_proba(part, job["dataset"]).items()
        }
        return [
            {**cell.asdict(), "value": scores[cell["method"]][cell["metric"]], "seed": part.seed}
            for cell in self.cells(job)
        ]

    def partition(self, job: Key) -> Partition:
        """Return the rows of a job."""
        data, plan = _load_once(job["dataset"]), self.protocol["datasets"][job["dataset"]]
        if data.X.shape != (plan["n"], plan["n_features"]):
            raise ReproductionError(
                f"{job['dataset']} is {data.X.shape[0]} × {data.X.shape[1]} instead of "
                f"{plan['n']} × {plan['n_features']}: is it the right file?"
            )
        seed = derive_seed(self.protocol["seed"], job["dataset"], int(job["run"]))
        train, test = random_split(data.y, self.protocol["n_train"], self.protocol["n_test"], seed)
        _, index = np.unique(data.y, return_inverse=True)
        X = scaled(data.X, plan["scaling"])
        truth = None
        if job["dataset"] in self.protocol["truth"]:
            from polymargin.datasets import generators

            truth = generators()[job["dataset"]].posterior(data.X[test])
        return Partition(X[train], index[train], X[test], index[test], truth, seed)

    def log_proba(self, part: Partition, dataset: str) -> dict[str, Array]:
        """Return every method's log-probabilities of the test rows, each of shape (n_test, K)."""
        plan = self.protocol["datasets"][dataset]
        wanted = self._methods(dataset)
        found: dict[str, Array] = {}
        for book, decoders in (
            (one_vs_one(plan["n_classes"]), _pairwise_decoders(self.protocol["least_gain"])),
            (one_vs_all(plan["n_classes"]), _one_vs_all_decoders(plan, part.seed)),
        ):
            if not any(method in wanted for method in decoders):
                continue
            bank = self._machines(part, book, plan)
            outputs = bank.outputs(part.X_test, variances=False)
            known = {honest: bank.training_outputs(honest=honest) for honest in (False, True)}
            for method, decoder in decoders.items():
                if method in wanted:
                    decoder.fit(book, known[not decoder.in_sample], part.train_index)
                    found[method] = decoder.log_proba(outputs)
            if book.is_one_vs_all and "mcp_best_on_test" in wanted:
                networks = (
                    _network(hidden, epochs, part.seed).fit(book, known[False], part.train_index)
                    for epochs in _span(self.protocol["best_on_test"]["epochs"])
                    for hidden in _span(self.protocol["best_on_test"]["hidden"])
                )
                found["mcp_best_on_test"] = min(
                    (network.log_proba(outputs) for network in networks),
                    key=lambda log_proba: class_loss(part.test_index, np.exp(log_proba)),
                )
        if "lssvm" in wanted:
            from polymargin import LSSVMClassifier

            model = LSSVMClassifier().fit(part.X_train, part.train_index)
            found["lssvm"] = model.predict_log_proba(part.X_test)
        if "truth" in wanted:
            assert part.truth is not None
            found["truth"] = np.log(part.truth)
        return found

    def _machines(self, part: Partition, book: Codebook, plan: Mapping[str, Any]) -> SVMBank:
        from polymargin.machines.svm import fit_svm_bank

        rows = TrainingRows(
            resolve_kernel("rbf", 3, 1.0), part.X_train, part.train_index, np.ones(part.train_index.size)
        )
        return fit_svm_bank(
            rows,
            book,
            C=plan["C"],
            gamma=kernel_gamma(
                plan["sigma"], self.protocol["kernel"]["one_vs_all" if book.is_one_vs_all else "one_vs_one"]
            ),
            cv=self.protocol["inner_folds"],
            random_state=part.seed,
        )

    def scores(self, part: Partition, log_proba: Array) -> dict[str, float]:
        """Return the metrics of a method, the class loss in percent as the paper prints it."""
        index, proba = part.test_index, np.exp(log_proba)
        found = {
            "kurtosis": error_kurtosis(index, proba),
            "class_loss": 100.0 * class_loss(index, proba),
            "log_loss": log_loss(index, log_proba),
            "brier": brier_score(index, proba),
            "calibration_error": calibration_error(index, proba, n_bins=self.protocol["calibration_bins"]),
        }
        if part.truth is not None:
            found["kl"] = divergence_from_truth(part.truth, log_proba).kl
        return found

    def paper_figures(self) -> list[Figure]:
        """Return nothing: the tables have their own."""
        return []

    def listings(self, rows: Sequence[Row]) -> list[Listing]:
        """Return one listing per metric: methods down, datasets across."""
        found = []
        for metric, title in METRICS.items():
            values = by_method([row for row in rows if row["metric"] == metric])
            datasets = [d for d in self.protocol["datasets"] if any(d == known for known, _ in values)]
            lines = tuple(
                (
                    method,
                    *(_mean_and_deviation(values.get((dataset, method)), metric) for dataset in datasets),
                )
                for method in self.protocol["methods"]
            )
            if datasets:
                found.append(Listing(title, ("method", *datasets), lines))
        return found

    def cost(self, job: Key) -> float:
        """The one-vs-one machines grow with the square of the classes."""
        return float(1.0 + (self.protocol["datasets"][job["dataset"]]["n_classes"] / 10.0) ** 2)


def _pairwise_decoders(least_gain: float) -> dict[str, ProbabilisticDecoder]:
    """Return the decoders of one-vs-one outputs by method."""
    decoders: dict[str, ProbabilisticDecoder] = {}
    for method in COUPLINGS:
        decoders[method] = PlainCoupling(method, in_sample=True, least_gain=least_gain)
        decoders[f"{method}_ml"] = PlainCoupling(method, in_sample=True)
        decoders[f"{method}_platt"] = Coupling(method, in_sample=True)
    return decoders | {"wlw2_honest": Coupling("wlw2"), "coupled_softmax": CoupledSoftmax()}


def _one_vs_all_decoders(plan: Mapping[str, Any], seed: int) -> dict[str, ProbabilisticDecoder]:
    """Return the decoders of one-vs-all outputs by method."""
    return {
        "mcp_svm_ann": _network(plan["hidden"], plan["epochs"], seed),
        "mcp_honest": _network(plan["hidden"], plan["epochs"], seed, in_sample=False),
        "softmax_honest": Softmax(random_state=seed),
    }


def _network(hidden: int, epochs: int, seed: int, *, in_sample: bool = True) -> Softmax:
    """Return the paper's network."""
    return Softmax(
        hidden=hidden, epochs=epochs, ridge=0.0, smoothing=0.0, in_sample=in_sample, random_state=seed
    )


def _span(ends: Sequence[int]) -> range:
    """Return the whole numbers from the first to the last, both included."""
    return range(ends[0], ends[1] + 1)


def scaled(X: Array, how: str) -> Array:
    """Return the features in the units of a reading, by the whole file; a constant column becomes 0 in all but "none".

    Examples
    --------
    >>> scaled(np.array([[1.0, 7.0], [3.0, 7.0]]), "symmetric").tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    X = np.asarray(X, dtype=np.float64)
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    varies = span > 0.0
    unit = (X - low) / np.where(varies, span, 1.0)
    readings = {
        "none": X,
        "unit": unit,
        "symmetric": np.where(varies, 2.0 * unit - 1.0, 0.0),
        "standard": (X - X.mean(axis=0)) * varies / np.where(varies, X.std(axis=0), 1.0),
    }
    if how not in readings:
        raise ReproductionError(f"no scaling {how!r}; choose one of {', '.join(readings)}")
    return readings[how]


def kernel_gamma(sigma: float, reading: str) -> float:
    """Return the coefficient of |x − z|² in the kernel for a reading of the paper's σ.

    Examples
    --------
    >>> [kernel_gamma(4.0, reading) for reading in ("2 sigma^2", "sigma^2", "2 sigma", "sigma", "gamma")]
    [0.03125, 0.0625, 0.125, 0.25, 4.0]
    """
    readings = {
        "2 sigma^2": 1.0 / (2.0 * sigma**2),
        "sigma^2": 1.0 / sigma**2,
        "2 sigma": 1.0 / (2.0 * sigma),
        "sigma": 1.0 / sigma,
        "gamma": sigma,
    }
    if reading not in readings:
        raise ReproductionError(f"no reading {reading!r} of sigma; choose one of {', '.join(readings)}")
    return readings[reading]


def by_method(rows: Sequence[Row]) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return the values of one metric by dataset and method, in the order of the runs."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        found.setdefault((row["dataset"], row["method"]), []).append((int(row["run"]), float(row["value"])))
    return {key: np.array([value for _, value in sorted(runs)]) for key, runs in found.items()}


def _mean_and_deviation(values: NDArray[np.float64] | None, metric: str) -> str:
    """Write mean ± standard deviation, or nothing where there are no values."""
    if values is None:
        return ""
    decimals = _DECIMALS.get(metric, 3)
    summary = Summary.of(values.tolist())
    deviation = "" if math.isnan(summary.sd) else f" ± {summary.sd:.{decimals}f}"
    return f"{summary.mean:.{decimals}f}{deviation}"


@lru_cache(maxsize=4)
def _load_once(dataset: str) -> Dataset:
    """Load a dataset as the paper has it, once per process."""
    return load_for("bravo2010", dataset)
