"""Which kernel: several are tried, and judged by what the decoder makes of their honest outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from polymargin._threads import blas_threads_for
from polymargin._workers import in_processes
from polymargin.codebooks import Codebook
from polymargin.decoders import CoupledSoftmax, Decoder, ProbabilisticDecoder
from polymargin.decoders._cross_fit import cross_fitted
from polymargin.decoders._folds import deal_rows
from polymargin.decoders.coupled_softmax import ROUGH, default_ridge
from polymargin.estimators._soft_labels import DecoderRows
from polymargin.kernels import RBF, Blend, Kernel, Polynomial, resolve_kernel
from polymargin.machines import LSSVMBank, TrainingRows
from polymargin.selection.leave_one_out import Start

Array = NDArray[Any]

#: Kernels are compared on at most this many different rows.
LARGEST = 1000
#: The folds in which a decoder is fitted to compare what it makes of two kernels.
_FOLDS = 5


def candidates(kernel: Any, degree: Any, coef0: float, *, fixed: bool) -> list[Kernel]:
    """Return the kernels to choose from, which is one where the parameters name it.

    Where there is no choice, because ``fixed`` parameters mean something else to every kernel, None stands for "rbf",
    and for degree 3.
    """
    if kernel is None:
        if fixed:
            return [RBF()]
        return [Blend(), Polynomial(2 if degree is None else degree, coef0, centred=True)]
    if kernel == "poly" and degree is None and not fixed:
        return [Polynomial(number, coef0) for number in (2, 3, 4)]
    return [resolve_kernel(kernel, 3 if degree is None else degree, coef0)]


@dataclass(frozen=True)
class KernelChoice:
    """What came of comparing kernels.

    Attributes
    ----------
    data : TrainingRows
        All rows, with the best kernel.
    losses : dict of str to float
        The loss of every kernel: the log-loss of the decoder on honest outputs, or the mean squared leave-one-out error
        where the decoder gives no probabilities.
    starts : dict of int to Start
        What the search for the parameters of the best kernel has found, see `fit_lssvm_bank`.
    """

    data: TrainingRows
    losses: dict[str, float]
    starts: dict[int, Start]


@dataclass(frozen=True)
class _Judge:
    """Trains machines with a kernel on some rows and says how good they are, here or in another process."""

    rows: TrainingRows
    codebook: Codebook
    decoder: Decoder
    train: Callable[[TrainingRows, dict[int, Start]], LSSVMBank]

    def __call__(self, kernel: Kernel) -> _Judged:
        starts: dict[int, Start] = {}
        with blas_threads_for(self.rows.class_index.size):
            bank = self.train(self.rows.with_kernel(kernel), starts)
            return _Judged(starts, _loss(self.rows, bank, self.codebook, self.decoder), bank.data)


@dataclass(frozen=True)
class _Judged:
    """A kernel's loss, what the search for its parameters found, and the rows, with what was computed of them."""

    starts: dict[int, Start]
    loss: float
    rows: TrainingRows | None

    def __getstate__(self) -> dict[str, Any]:
        return {
            "starts": self.starts,
            "loss": self.loss,
            "rows": None,
        }  # between processes they do not travel


def choose_kernel(
    data: TrainingRows,
    kernels: Sequence[Kernel],
    codebook: Codebook,
    decoder: Decoder,
    train: Callable[[TrainingRows, dict[int, Start]], LSSVMBank],
    n_jobs: int | None = None,
) -> KernelChoice:
    """Train machines with each of the kernels, on a sample of the rows if there are many, and compare them."""
    part = sample(data)
    fitted = [kernel.fitted(data.X, data.weights) for kernel in kernels]
    judge = _Judge(part, codebook, decoder, train)
    results = in_processes(judge, fitted, n_jobs)
    best = min(range(len(fitted)), key=lambda number: results[number].loss)
    for number, result in enumerate(results):
        if number != best and result.rows is not None:
            result.rows.release()
    losses = {kernel.name: result.loss for kernel, result in zip(fitted, results, strict=True)}
    # Where the sample is all rows, what was computed of them is not computed again.
    known = results[best].rows if part is data else None
    rows = data.with_kernel(fitted[best]) if known is None else known
    return KernelChoice(rows, losses, results[best].starts)


def sample(data: TrainingRows, size: int = LARGEST) -> TrainingRows:
    """Return at most about so many different rows, every class in its share, whatever the order of the rows."""
    rows = data.distinct
    if rows.first.size <= size or data.kernel.precomputed:
        return data
    places = np.linspace(0, rows.first.size - 1, size).round().astype(int)
    # They stand class by class: one row at least of each class, or three where it has them.
    class_index = data.class_index[rows.first]
    for index in np.unique(class_index):
        members = np.flatnonzero(class_index == index)
        places = np.union1d(places, members[np.linspace(0, members.size - 1, 3).round().astype(int)])
    if data.soft_labels is not None:  # nor may a class be lost that no row favours
        likeliest = np.argsort(-data.soft_labels[rows.first], axis=0, kind="stable")[:3]
        places = np.union1d(places, likeliest)
    kept = rows.first[places]
    weights = np.bincount(rows.inverse, data.weights)[places]
    soft = None if data.soft_labels is None else data.soft_labels[kept]
    return replace(
        data, X=data.X[kept], class_index=data.class_index[kept], weights=weights, soft_labels=soft
    )


def _loss(data: TrainingRows, bank: LSSVMBank, codebook: Codebook, decoder: Decoder) -> float:
    """Return the decoder's log-loss on honest outputs, or the machines' squared error if it has none."""
    learned = isinstance(decoder, ProbabilisticDecoder) and decoder.probabilistic and decoder.learns
    if not learned or decoder.needs_variances:
        return _squared_error(data, bank, codebook)
    assert isinstance(decoder, ProbabilisticDecoder)
    rows = decoder_rows(data, bank)
    if isinstance(decoder, CoupledSoftmax) and decoder.ridge is None:
        decoder = CoupledSoftmax(default_ridge(codebook), decoder.smoothing, decoder.in_sample, ROUGH)
    fitted = clone(decoder).fit(codebook, rows.outputs, rows.class_index, sample_weight=rows.weights)
    assert rows.outputs is not None
    assert rows.weights is not None
    log_p = fitted.log_proba(rows.outputs)
    # The decoder has learned from these rows; but so have those of all kernels, and they have the same freedom.
    losses = -log_p[np.arange(rows.class_index.size), rows.class_index]
    return float(rows.weights @ losses / rows.weights.sum())


def decoder_rows(data: TrainingRows, bank: LSSVMBank) -> DecoderRows:
    """Return the honest outputs that a decoder learns from."""
    rows = DecoderRows(bank.training_outputs(honest=True), data.class_index, data.weights)
    return rows if data.soft_labels is None else rows.divided(data.soft_labels)


def honest_log_proba(
    data: TrainingRows, bank: LSSVMBank, codebook: Codebook, decoder: ProbabilisticDecoder
) -> tuple[DecoderRows, Array]:
    """Return the rows a decoder learns from, and what it says of them having learned from the others, shape (n, K)."""
    rows = decoder_rows(data, bank)
    assert rows.outputs is not None
    folds = deal_rows(rows.outputs.margins, rows.class_index, _FOLDS)
    return rows, cross_fitted(decoder, codebook, rows.outputs, rows.class_index, folds, rows.weights)


def _squared_error(data: TrainingRows, bank: LSSVMBank, codebook: Codebook) -> float:
    """Return the mean squared leave-one-out error of the machines on the rows they know."""
    targets = codebook.targets(data.class_index)
    squares = np.where(targets == 0, 0.0, np.square(targets - bank.loo_margins))
    return float((data.weights @ squares).sum() / (data.weights @ (targets != 0)).sum())
