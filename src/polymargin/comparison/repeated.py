"""Machines × codings × decoders on repeated splits, as an experiment that may be killed and resumed.

`RepeatedComparison` is an `Experiment` like those of the papers: one job is one machine on one split, and its rows hold
what every coding with every decoder said of the test rows.
"""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline

from polymargin._peers import fit_method, log_proba_of
from polymargin.codebooks import default_coding, resolve_codebook
from polymargin.comparison.codings import Prediction, class_positions, predicted
from polymargin.datasets import Dataset, preprocessor
from polymargin.decoders import Decoder, Loss, resolve_decoder
from polymargin.decoders._base import can_read
from polymargin.estimators import AutoKernelClassifier, LSSVMClassifier, SVMClassifier, fit_together
from polymargin.metrics import accuracy
from polymargin.reproduction import Experiment, Figure, Key, Layout, Row, protocol_hash

__all__ = [
    "CODINGS",
    "DECODINGS",
    "MACHINES",
    "OWN",
    "PEERS",
    "Method",
    "RepeatedComparison",
    "affordable_codings",
    "unpacked",
]

Array = NDArray[Any]

#: Machines by the names of their estimators.
OWN = {
    "auto": "AutoKernelClassifier",
    "ls-svm": "LSSVMClassifier",
    "svm": "SVMClassifier",
    "posterior-svm": "PosteriorSVMClassifier",
}
#: Classifiers of scikit-learn, by their names in `polymargin._peers.METHODS`.
PEERS = {
    "svc": "SVC, tuned and calibrated",
    "logistic": "logistic regression",
    "random-forest": "random forest",
    "baseline": "class frequencies (baseline)",
}
MACHINES = (*OWN, *PEERS)
CODINGS = ("one-vs-one", "one-vs-all", "minimal", "ecoc")
DECODINGS = ("coupled-softmax", "softmax", "coupling", "bayes", "hamming", "loss")

#: The kernel that is the default of each machine.
AUTO = "auto"
#: What stands for the coding and the decoding of a pool, which has several.
_POOL = "pool"
#: What stands for those of a classifier that has neither.
_NONE = ""
_POSTERIOR_CODINGS = ("single", "one-vs-all")
_POSTERIOR_C = (0.1, 1.0, 10.0, 100.0)
_POSTERIOR_GAMMA_FACTORS = (0.25, 1.0, 4.0)
_POSTERIOR_FOLDS = 3
#: Parts of the package that do not change what is computed.
_SHOWS_ONLY = ("cli", "papers", "plots", "report", "reproduction")


#: The coding and decoding that an estimator has unless told otherwise; None: the coding depends on the classes.
_DEFAULTS: dict[str, tuple[str | None, str]] = {
    "ls-svm": (None, "coupled-softmax"),
    "svm": (None, "coupled-softmax"),
    "posterior-svm": ("single", "softmax"),
}


class Method(NamedTuple):
    """What competes: a machine with a coding and a decoding."""

    machine: str
    coding: str
    decoding: str

    @property
    def model(self) -> str:
        """The name of the classifier."""
        return OWN.get(self.machine) or PEERS[self.machine]

    @property
    def is_coded(self) -> bool:
        """Whether this is a machine with one coding and one decoding."""
        return self.machine in _DEFAULTS

    def __str__(self) -> str:
        return (
            self.model if self.coding in (_POOL, _NONE) else f"{self.model}, {self.coding}, {self.decoding}"
        )


class RepeatedComparison(Experiment):
    """A comparison on repeated stratified splits of a dataset.

    The splits are drawn one after the other, so that more repeats, or another machine, only add jobs to those that are
    finished. Whatever else is changed is another comparison, with another `digest`.

    Parameters
    ----------
    dataset : Dataset
        What is learned.
    machines : sequence of str
        Some of `MACHINES`: estimators of this package, and classifiers of scikit-learn beside them.
    codings, decodings : sequence of str
        What is compared; a decoder that cannot read a coding, or needs more than a machine gives, is left out for it.
        Two classes have one dichotomy, so that only the first coding takes part.
    kernel : str
        The kernel of all machines but "auto", which has its own. "auto": the default of each, so that least squares
        chooses its kernel.
    repeats : int
        The number of splits.
    test_size : float
        The share of the rows that is tested on.
    seed : int
        Of the splits, folds and codes.

    Examples
    --------
    >>> from polymargin.datasets import load
    >>> comparison = RepeatedComparison(load("iris"), ["ls-svm"], ["minimal"], ["bayes"], repeats=2)
    >>> job, _ = comparison.jobs()
    >>> (row,) = comparison.run(job)
    >>> row["coding"], row["decoding"], row["value"] > 0.9
    ('minimal', 'bayes', True)
    """

    name = "compare"
    title = "Codings and decoders compared on repeated splits"
    layout = Layout(rows=("machine", "coding", "decoding"), columns=())
    journal_only = ("labels", "log_proba")

    def __init__(
        self,
        dataset: Dataset,
        machines: Sequence[str] = ("ls-svm",),
        codings: Sequence[str] = CODINGS,
        decodings: Sequence[str] = DECODINGS,
        *,
        kernel: str = AUTO,
        repeats: int = 10,
        test_size: float = 1 / 3,
        seed: int = 0,
    ) -> None:
        super().__init__(
            {
                "data": data_digest(dataset),
                "codings": list(codings),
                "decodings": list(decodings),
                "kernel": kernel,
                "test_size": test_size,
                "seed": seed,
                "code": code_digest(),
            }
        )
        self.dataset = dataset
        self.machines, self.codings, self.decodings = list(machines), list(codings), list(decodings)
        self.kernel, self.repeats, self.test_size, self.seed = kernel, repeats, test_size, seed
        self.classes = dataset.classes
        self.class_index = class_positions(dataset.y, self.classes)
        self.split(1)  # what cannot be split is refused now

    @property
    def replicates(self) -> int:
        """The number of splits."""
        return self.repeats

    @property
    def digest(self) -> str:
        """A fingerprint of the data and of everything else that determines the numbers."""
        return protocol_hash(self.protocol)

    def jobs(self) -> list[Key]:
        """Return one job for every machine and split, the splits counted from 1."""
        return [
            Key.of(machine=machine, split=number)
            for number in range(1, self.repeats + 1)
            for machine in self.machines
        ]

    def cells(self, job: Key) -> list[Key]:
        """Return one cell for every coding and decoding that the machine can have."""
        return [
            job.extended(coding=method.coding, decoding=method.decoding)
            for method in self.methods
            if method.machine == job["machine"]
        ]

    @cached_property
    def methods(self) -> list[Method]:
        """All that competes."""
        return [
            Method(machine, coding, decoding)
            for machine in self.machines
            for coding, decoding in self._pairs(machine)
        ]

    def _pairs(self, machine: str) -> list[tuple[str, str]]:
        if machine == "auto":
            return [(_POOL, _POOL)]
        if machine in PEERS:
            return [(_NONE, _NONE)]
        # The single machine has an output for every class, as one-vs-all has.
        books = (
            {
                name: resolve_codebook("one-vs-all", self.classes.size, self.seed)
                for name in _POSTERIOR_CODINGS
            }
            if machine == "posterior-svm"
            else {name: resolve_codebook(name, self.classes.size, self.seed) for name in self.codings}
        )
        decoders = {name: decoder_for(machine, name) for name in self.decodings}
        if self.classes.size == 2 and machine != "posterior-svm":
            books = dict([next(iter(books.items()))])  # of two classes there is one dichotomy
        return [
            (coding, decoding)
            for coding, book in books.items()
            for decoding, decoder in decoders.items()
            if can_read(decoder, book) and (machine == "ls-svm" or not decoder.needs_variances)
        ]

    def is_default(self, method: Method) -> bool:
        """Return whether a method is a classifier as it is without a choice of coding and decoding.

        Parameters
        ----------
        method : Method
            What competes.

        Returns
        -------
        bool
        """
        coding, decoding = _DEFAULTS.get(method.machine, method[1:])
        if coding is None:
            coding = default_coding(self.classes.size)
        return (coding, decoding) == method[1:]

    def split(self, number: int) -> tuple[Array, Array]:
        """Return the training and test rows of a split, counted from 1."""
        splitter = StratifiedShuffleSplit(number, test_size=self.test_size, random_state=self.seed)
        return next(islice(splitter.split(self.class_index, self.class_index), number - 1, None))

    def run(self, job: Key) -> list[Row]:
        """Train on a split and return what every method predicts for its test rows."""
        number = int(job["split"])
        train, test = self.split(number)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
            encoder = preprocessor(self.dataset.take(train)).fit(self.dataset.X[train])
            X_train, X_test = (encoder.transform(self.dataset.X[part]) for part in (train, test))
        predictions = self._predictions(
            job["machine"], X_train, self.class_index[train], X_test, self.seed + number - 1
        )
        return [
            {
                **job.asdict(),
                "coding": prediction.coding,
                "decoding": prediction.decoding,
                "value": accuracy(self.class_index[test], prediction.labels),
                "labels": _packed(prediction.labels, "<i4"),
                "log_proba": None if prediction.log_proba is None else _packed(prediction.log_proba, "<f4"),
            }
            for prediction in predictions
        ]

    def _predictions(
        self, machine: str, X_train: Array, y_train: Array, X_test: Array, seed: int
    ) -> list[Prediction]:
        if machine in PEERS:
            log_proba = log_proba_of(fit_method(PEERS[machine], X_train, y_train, seed), X_test)
            return [Prediction(_NONE, _NONE, log_proba.argmax(axis=1), log_proba)]
        models = self._models(machine, self._pairs(machine), X_train, y_train, seed)
        with _copies_reported_once():
            if machine in ("ls-svm", "svm"):
                fit_together(list(models.values()), X_train, y_train)
            else:
                for model in models.values():
                    model.fit(X_train, y_train)
        return [predicted(model, coding, decoding, X_test) for (coding, decoding), model in models.items()]

    def _models(
        self, machine: str, pairs: Sequence[tuple[str, str]], X: Array, y: Array, seed: int
    ) -> dict[tuple[str, str], Any]:
        """Return the estimators that have these codings and decodings, not fitted."""
        if machine == "auto":
            return {pair: AutoKernelClassifier(random_state=seed) for pair in pairs}
        if machine == "posterior-svm":
            kernel = _default_rbf(self.kernel)
            tuned = cache(partial(_tuned_posterior, X, y, kernel=kernel, seed=seed))
            models = {pair: clone(tuned(pair[0])) for pair in pairs}
        elif machine == "svm":
            options: dict[str, Any] = {"kernel": _default_rbf(self.kernel), "random_state": seed}
            models = {pair: SVMClassifier(C=None, gamma=None, coding=pair[0], **options) for pair in pairs}
        else:
            options = {"kernel": None if self.kernel == AUTO else self.kernel, "random_state": seed}
            if self.kernel == "poly":
                options["degree"] = 3
            models = {pair: LSSVMClassifier(coding=pair[0], **options) for pair in pairs}
        for (_, decoding), model in models.items():
            model.set_params(decoding=decoder_for(machine, decoding))
        return models

    def model(self, method: Method) -> Pipeline:
        """Return a method of ours trained on all rows, with the preparation of the features before it."""
        encoder = preprocessor(self.dataset).fit(self.dataset.X)
        X = encoder.transform(self.dataset.X)
        pair = (method.coding, method.decoding)
        (model,) = self._models(method.machine, [pair], X, self.dataset.y, self.seed).values()
        with _copies_reported_once():
            model.fit(X, self.dataset.y)
        return make_pipeline(encoder, model)

    def paper_figures(self) -> list[Figure]:
        """Return nothing: no paper has this table."""
        return []


def affordable_codings(n_classes: int) -> list[str]:
    """Return the names of the codings that so many classes can afford.

    Parameters
    ----------
    n_classes : int
        The number of classes.

    Examples
    --------
    >>> affordable_codings(120)
    ['one-vs-all', 'minimal', 'ecoc']
    """
    return [name for name in CODINGS if name != "one-vs-one" or default_coding(n_classes) == name]


@cache
def code_digest() -> str:
    """Return a fingerprint of the code that computes: results of other versions are not taken for those of this."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] not in _SHOWS_ONLY:
            digest.update(file.relative_to(package).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def data_digest(dataset: Dataset) -> str:
    """Return a fingerprint of a dataset's values, labels and column names."""
    digest = hashlib.sha256(repr((dataset.feature_names, dataset.nominal, dataset.X.shape)).encode())
    digest.update(repr(dataset.y.tolist()).encode())
    whole = repr(dataset.X.tolist()).encode() if dataset.X.dtype == object else dataset.X.tobytes()
    digest.update(whole)
    return digest.hexdigest()[:16]


def decoder_for(machine: str, decoding: str) -> Decoder:
    """Return a decoder by name; "loss" decoding takes the loss that the machine was trained with."""
    if decoding == "loss":
        return Loss("squared" if machine == "ls-svm" else "hinge")
    return resolve_decoder(decoding)


def _tuned_posterior(X: Array, y: Array, machine: str, *, kernel: str, seed: int) -> Any:
    """Return a posterior SVM, not fitted, whose C and gamma have the best accuracy in folds, on a small grid."""
    from polymargin import PosteriorSVMClassifier

    model = PosteriorSVMClassifier(kernel=kernel, machine=machine, decoding="argmax", random_state=seed)
    grid: dict[str, Any] = {"C": list(_POSTERIOR_C)}
    if kernel != "linear":
        scale = 1.0 / max(X.shape[1] * X.var(), np.finfo(float).tiny)
        grid["gamma"] = [scale * factor for factor in _POSTERIOR_GAMMA_FACTORS]
    folds = StratifiedKFold(_POSTERIOR_FOLDS, shuffle=True, random_state=seed)
    return model.set_params(**GridSearchCV(model, grid, cv=folds, refit=False).fit(X, y).best_params_)


@contextmanager
def _copies_reported_once() -> Iterator[None]:
    """Leave out the warning of copies of rows: the caller is told once, for all rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\d+ of \d+ rows are copies", UserWarning)
        yield


def _default_rbf(kernel: str) -> str:
    """Return the kernel of support vector machines, whose default is "rbf"."""
    return "rbf" if kernel == AUTO else kernel


def _packed(values: Array, dtype: str) -> str:
    """Write an array into a string, so that a journal of many splits stays small."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode()


def unpacked(text: str, dtype: str) -> Array:
    """Read an array that a row holds."""
    return np.frombuffer(base64.b64decode(text), dtype=dtype)
