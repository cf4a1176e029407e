"""The table of Section 5: one-vs-all SVMs with polynomial kernels, decoded with and without normalisation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from polymargin.codebooks import Codebook
from polymargin.datasets import Dataset, load_for
from polymargin.decoders import Argmax, Decoder, Mixture, Stack
from polymargin.machines import TrainingRows
from polymargin.papers._codings import compare_codings
from polymargin.reproduction import (
    Experiment,
    Figure,
    Key,
    Layout,
    ReproductionError,
    Row,
    derive_seed,
    load_protocol,
    read_figures,
    standardise,
)

if TYPE_CHECKING:  # importing it at run time would load numba with the command
    from polymargin.machines.svm import SVMBank

__all__ = ["Split", "Table1"]

_PACKAGE = "polymargin.papers.mayoraz1998"


@dataclass(frozen=True)
class Split:
    """The rows of one run, standardised, and the seed of whatever else is random in it."""

    X_train: NDArray[np.float64]
    y_train: NDArray[Any]
    X_test: NDArray[np.float64]
    y_test: NDArray[Any]
    classes: NDArray[Any]
    seed: int


class Table1(Experiment):
    """Test errors (%) of one-vs-all SVMs without normalisation, with π_w, with π_* and with a mixture matrix M.

    A job is one run of one dataset with one degree; its machines are trained once and decoded in every way. Both
    degrees use the same splits.

    Parameters
    ----------
    protocol : mapping, optional
        Another protocol than ``protocol.toml``'s, e.g. for a quick trial.
    """

    name = "mayoraz1998-table1"
    title = "Mayoraz and Alpaydın (1998), Section 5: one-vs-all SVMs, test error in %"
    table: ClassVar[str] = "1"
    layout = Layout(rows=("dataset", "degree"), columns=("decoding",))
    better = "lower"

    def __init__(self, protocol: Mapping[str, Any] | None = None) -> None:
        super().__init__(load_protocol(_PACKAGE, self.table) if protocol is None else protocol)

    def jobs(self) -> list[Key]:
        """Return dataset × degree × run."""
        return [
            Key.of(dataset=dataset, degree=degree, run=run)
            for dataset in self.protocol["datasets"]
            for degree in self.protocol["degrees"]
            for run in range(1, self.replicates + 1)
        ]

    def cells(self, job: Key) -> list[Key]:
        """Return a job's decodings."""
        return [job.extended(decoding=decoding) for decoding in self.protocol["decodings"]]

    def run(self, job: Key) -> list[Row]:
        """Split, standardise, train, decode."""
        split = self.split(job)
        errors = self.errors(split, int(job["degree"]), self.decoders(job))
        return [
            {**cell.asdict(), "value": errors[cell["decoding"]], "seed": split.seed}
            for cell in self.cells(job)
        ]

    def split(self, job: Key) -> Split:
        """Return the rows of a run: fold after fold of repetition after repetition."""
        data, plan = _load_once(job["dataset"]), self.protocol["datasets"][job["dataset"]]
        if len(data.y) != plan["n"]:
            raise ReproductionError(f"{job['dataset']} has {len(data.y)} rows instead of {plan['n']}")
        repetition, fold = divmod(int(job["run"]) - 1, plan["folds"])
        seed = derive_seed(self.protocol["seed"], job["dataset"], repetition)
        classes, index = np.unique(data.y, return_inverse=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            splits = list(
                StratifiedKFold(plan["folds"], shuffle=True, random_state=seed).split(data.X, index)
            )
        train, test = splits[fold]
        X_train, X_test = standardise(data.X[train], data.X[test])
        return Split(X_train, data.y[train], X_test, data.y[test], classes, seed)

    def decoders(self, job: Key) -> dict[str, Decoder]:
        """Return the decoders of one-vs-all outputs by their column of the table."""
        from sklearn.linear_model import LogisticRegression

        return {
            "none": Argmax(),
            "pi_w": Argmax("norm"),
            "pi_star": Argmax("least-squares", in_sample=True),
            "M": Mixture(in_sample=True),
            "pi_mu": Argmax("mean", in_sample=True),
            "pi_mu_honest": Argmax("mean"),
            "pi_star_honest": Argmax("least-squares"),
            "M_honest": Mixture(),
            "softmax": Stack(LogisticRegression(max_iter=10_000)),
        }

    def errors(self, split: Split, degree: int, decoders: Mapping[str, Decoder]) -> dict[str, float]:
        """Return the test error in percent of every decoding of the table."""
        wanted = self.protocol["decodings"]
        compare = partial(
            compare_codings,
            split.X_train,
            split.y_train,
            split.X_test,
            split.y_test,
            kernel="poly",
            degree=degree,
            coef0=self.protocol["coef0"],
            classes=split.classes,
            machines=partial(self._machines, split.seed),
        )
        scores = compare(
            codings=["one-vs-all"],
            decodings={name: decoder for name, decoder in decoders.items() if name in wanted},
        )
        if "one_vs_one" in wanted:
            scores += compare(codings=["one-vs-one"], decodings={"one_vs_one": "hamming"})
        errors = {score.decoding: 100.0 * (1.0 - score.accuracy) for score in scores}
        if "adaptive_svm" in wanted:
            errors["adaptive_svm"] = self._adaptive_error(split, degree)
        return errors

    def _machines(
        self, seed: int, rows: TrainingRows, codebook: Codebook, *, pools: Any, variances: bool
    ) -> SVMBank:
        """Train the machines of a codebook with the protocol's parameters, see `Machines`."""
        from polymargin.machines.svm import fit_svm_bank

        return fit_svm_bank(
            rows,
            codebook,
            C=self.protocol["C"],
            gamma=self.protocol["gamma"],
            cv=self.protocol["inner_folds"],
            random_state=seed,
        )

    def _adaptive_error(self, split: Split, degree: int) -> float:
        """Return the test error in percent of Section 6: an adaptive codebook, SVMs stacked on its SVMs."""
        from polymargin import SVMClassifier

        model = SVMClassifier(
            C=self.protocol["C"],
            kernel="poly",
            gamma=self.protocol["gamma"],
            degree=degree,
            coef0=self.protocol["coef0"],
            coding="adaptive",
            decoding=Stack(),
            cv=self.protocol["inner_folds"],
            random_state=split.seed,
        )
        model.fit(split.X_train, split.y_train)
        return 100.0 * (1.0 - float(model.score(split.X_test, split.y_test)))

    def paper_figures(self) -> list[Figure]:
        """Return the figures of the table's datasets."""
        figures = read_figures(_PACKAGE, "table1.csv")
        return [figure for figure in figures if figure.key["dataset"] in self.protocol["datasets"]]

    def cost(self, job: Key) -> float:
        """Glass is the hardest to separate; otherwise time grows with rows and classes."""
        plan = self.protocol["datasets"][job["dataset"]]
        return 5.0 if job["dataset"] == "glass" else plan["n"] * plan["n_classes"] / 5e3


@lru_cache(maxsize=4)
def _load_once(dataset: str) -> Dataset:
    """Load a dataset as the paper has it, once per process."""
    return load_for("mayoraz1998", dataset)
