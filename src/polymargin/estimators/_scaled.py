"""Many rows: kernel, metric and parameters are chosen on a sample, machines are those of leaves and landmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from polymargin._progress import Progress
from polymargin._threads import blas_threads_for, threads
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder, ProbabilisticDecoder
from polymargin.decoders._base import can_read
from polymargin.estimators._candidates import Plan
from polymargin.estimators._choice import Choice, choose
from polymargin.estimators._soft_labels import decoder_rows
from polymargin.machines._workspace import SharedWork
from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows
from polymargin.scale._places import ON_CPU, Place, place_for
from polymargin.scale.bank import ScaledBank
from polymargin.scale.fitting import Pilot, fit_scaled_bank
from polymargin.scale.plan import ScalePlan
from polymargin.scale.settings import ScaleSettings
from polymargin.scale.sources import RowSource, Sample

Array = NDArray[Any]


@dataclass(frozen=True)
class ScaledChoice:
    """The machines of many rows, and how their kernel and parameters were chosen.

    Attributes
    ----------
    bank : ScaledBank
        The machines.
    choice : Choice
        What was tried on a sample.
    sample : ndarray of int
        The rows whose honest outputs are known, from which the decoder learns.
    plan : ScalePlan
        How the fit was divided.
    """

    bank: ScaledBank
    choice: Choice
    sample: Array
    plan: ScalePlan


def choose_on_sample(
    sample: Sample,
    codebook: Codebook,
    decoder: Decoder,
    plan: Plan,
    progress: Progress | None,
    n_jobs: int | None,
    remembered: Callable[..., Choice] | None = None,
    place: Place = ON_CPU,
) -> tuple[Choice, Pilot]:
    """Choose kernel, metric, C and gamma by exact machines of a sample.

    Parameters
    ----------
    sample : Sample
        The rows.
    codebook : Codebook
        The dichotomies.
    decoder : Decoder
        The decoder, not fitted, by whose log-loss candidates are compared.
    plan : Plan
        The parameters of the estimator.
    progress : callable or None
        Called with every step.
    n_jobs : int or None
        The number of kernels that are tried in parallel.
    remembered : callable or None
        Returns the outcome of an earlier search for the same, or else calls the one it is given: of a fit that was
        killed.
    place : Place
        Where machines are trained.

    Returns
    -------
    choice : Choice
    pilot : Pilot
    """
    n_rows = sample.numbers.size
    # What is chosen for many rows is compared on the whole sample.
    plan = replace(plan, settings=replace(plan.settings, decided_rows=n_rows))

    def search() -> Choice:
        with threads(n_jobs, n_rows), blas_threads_for(n_rows):
            return choose(
                sample.rows, codebook, decoder, plan, SharedWork(keep=False), progress, n_jobs, place
            )

    choice = search() if remembered is None else remembered(search, sample.numbers, codebook, decoder, plan)
    smaller = 1.0 if choice.chosen is None else choice.chosen.smaller
    criterion = {
        "selection": plan.selection,
        "settings": plan.settings,
        "noise_floor": plan.noise_floor,
    }
    bank = replace(choice.bank, nested=None, blocks=None)
    judge = None
    if decoder.learns_probabilities and not decoder.in_sample:
        assert isinstance(decoder, ProbabilisticDecoder)
        judge = DecoderJudge(decoder)
    return choice, Pilot(bank, smaller, plan.C, plan.gamma, criterion, sample.numbers, judge)


@dataclass(frozen=True)
class DecoderJudge:
    """Judges honest outputs by a decoder that is cross-fitted to them.

    Attributes
    ----------
    decoder : ProbabilisticDecoder
        The decoder, not fitted.
    """

    decoder: ProbabilisticDecoder

    def __call__(self, codebook: Codebook, rows: TrainingRows, honest: Array) -> tuple[Array, Array]:
        """Return the log-loss of every row, and the weights of the rows.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies.
        rows : TrainingRows
            The rows.
        honest : ndarray of shape (n, L)
            Their out-of-sample margins.

        Returns
        -------
        losses, weights : ndarray of shape (n,)
        """
        decoded = decoder_rows(rows, Outputs(honest, "leave_one_out", dealt=rows.deal))
        assert decoded.outputs is not None
        with blas_threads_for(0):
            log_p = clone(self.decoder).cross_fit(
                codebook, decoded.outputs, decoded.class_index, sample_weight=decoded.weights
            )
        return -log_p[np.arange(decoded.class_index.size), decoded.class_index], decoded.weights

    def can_read(self, codebook: Codebook) -> bool:
        """Return whether the decoder can read outputs of a codebook.

        Parameters
        ----------
        codebook : Codebook
            The dichotomies.

        Returns
        -------
        bool
        """
        return can_read(self.decoder, codebook)


def fit_many_rows(
    source: RowSource,
    codebook: Codebook,
    decoder: Decoder,
    plan: Plan,
    scale: ScalePlan,
    settings: ScaleSettings,
    *,
    landmarks: Any = None,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> ScaledChoice:
    """Choose kernel and parameters on a sample, and fit leaves and landmarks.

    Parameters
    ----------
    source : RowSource
        The training rows.
    codebook : Codebook
        The dichotomies.
    decoder : Decoder
        The decoder of one kind of machines, not fitted.
    plan : Plan
        The parameters of the estimator.
    scale : ScalePlan
        How the fit is divided.
    settings : ScaleSettings
        The sizes of its parts.
    landmarks : array, sparse matrix or None
        The landmarks, if they are given.
    progress : callable or None
        Called with every step.
    n_jobs : int or None
        How many leaves are trained at once.

    Returns
    -------
    ScaledChoice
    """
    sample = source.sample(scale.sample_rows)
    remembered = getattr(source, "remembered", None)
    # The search on the sample is that of the CPU, not one that is cut short for a device.
    place, plan = place_for(plan.device), replace(plan, device=None)
    choice, pilot = choose_on_sample(sample, codebook, decoder, plan, progress, n_jobs, remembered, place)
    learned = choice.metric is not None and choice.metric.chosen is not None
    with threads(n_jobs, min(scale.leaf_rows, default=scale.sample_rows)):
        bank, decoded, divided = fit_scaled_bank(
            source,
            codebook,
            pilot,
            scale,
            settings,
            landmarks=landmarks,
            keep_statistics=scale.scale == "landmarks",
            seen=sample.numbers if learned else None,
            place=place,
            progress=progress,
        )
    return ScaledChoice(bank, choice, decoded.numbers, divided)
