"""Exact machines of many rows that are trained and evaluated on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Progress, Step
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder
from polymargin.estimators._choice import Choice, Plan
from polymargin.estimators._scaled import choose_on_sample
from polymargin.scale.plan import ScalePlan
from polymargin.scale.sources import RowSource

Array = NDArray[Any]

#: How often C and gamma, which a sample has proposed, are tried with all rows on the device.
_EVALUATIONS = 8


def choose_on_device(
    source: RowSource,
    codebook: Codebook,
    decoder: Decoder,
    plan: Plan,
    scale: ScalePlan,
    progress: Progress | None,
    n_jobs: int | None,
) -> Choice:
    """Choose kernel and parameters on a sample, refine them with all rows on a device, and train the machines there.

    Parameters
    ----------
    source : RowSource
        The training rows, in memory.
    codebook : Codebook
        The dichotomies.
    decoder : Decoder
        The decoder, not fitted.
    plan : Plan
        The parameters of the estimator.
    scale : ScalePlan
        The device, and the number of rows of the sample.
    progress : callable or None
        Called with every step.
    n_jobs : int or None
        The number of kernels that are tried in parallel.

    Returns
    -------
    Choice

    Raises
    ------
    polymargin.device.OutOfDeviceMemory
        If the kernel matrix does not fit onto the device.
    """
    from polymargin.device import fit_device_bank, refine_parameters, resolve_device

    device = resolve_device(scale.device)
    sample = source.sample(scale.sample_rows)
    choice, pilot = choose_on_sample(sample, codebook, decoder, plan, progress, n_jobs)
    everything = source.sample(int(source.class_counts.sum())).rows
    rows = replace(everything, kernel=pilot.bank.kernel)
    C, gamma = pilot.bank.C, pilot.bank.gamma
    if sample.numbers.size < rows.class_index.size and plan.C is None and plan.gamma is None:
        if progress is not None:
            progress(Step(f"refining C and gamma on {device.device}"))
        found = refine_parameters(
            rows, codebook, C * pilot.smaller, gamma, device, max_evaluations=_EVALUATIONS
        )
        C, gamma = found.C / pilot.smaller, found.gamma
    if progress is not None:
        progress(Step(f"machines on {device.device}"))
    bank = fit_device_bank(rows, codebook, C, gamma, device)
    if sample.numbers.size == rows.class_index.size:
        bank = replace(bank, nested=choice.bank.nested)
    learned = choice.metric is not None and choice.metric.chosen is not None
    if learned and sample.numbers.size < rows.class_index.size:
        seen = np.zeros(rows.class_index.size, dtype=bool)
        seen[sample.numbers] = True
        bank = replace(bank, leak=seen)
    return replace(choice, bank=bank)


def device_margins(bank: Any, X: Any, device: str) -> Array:
    """Return the margins of new rows, computed on a device.

    Parameters
    ----------
    bank : LSSVMBank
        The machines.
    X : array or sparse matrix of shape (n, d)
        Rows.
    device : str
        The name of the device.

    Returns
    -------
    ndarray of shape (n, L)
    """
    from polymargin.device import DeviceMargins

    return DeviceMargins(bank, device).margins(X)


def free_memory(device: str) -> float:
    """Return the free bytes of a device.

    Parameters
    ----------
    device : str
        Its name.

    Returns
    -------
    float
    """
    from polymargin.device import resolve_device

    return resolve_device(device).free_memory()
