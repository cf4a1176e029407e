"""How far probabilities are from a posterior that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polymargin.metrics._checks import check_classes, check_proba, indices, row_weights
from polymargin.metrics.scores import log_loss

__all__ = ["Divergence", "divergence_from_truth"]


@dataclass(frozen=True)
class Divergence:
    """How far probabilities are from the true posterior.

    Attributes
    ----------
    kl : float
        Mean Kullback–Leibler divergence from the truth in nats: the log-loss lost to it on average.
    absolute : float
        Mean absolute difference between estimate and truth over rows and classes.
    excess_log_loss : float or None
        On the labels at hand, the log-loss minus that of the truth, whose expectation is `kl`; None without labels.
    """

    kl: float
    absolute: float
    excess_log_loss: float | None


def divergence_from_truth(
    true_posterior: ArrayLike,
    log_proba: ArrayLike,
    class_index: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> Divergence:
    """Measure estimated probabilities against a known posterior, as the `datasets` generators have it.

    Parameters
    ----------
    true_posterior : array-like of shape (n, K)
        Rows sum to one.
    log_proba : array-like of shape (n, K)
        Logarithms of the estimates. −inf where the truth is not zero makes the divergence infinite.
    class_index : array-like of int, shape (n,), optional
        Labels drawn from the truth, for the excess log-loss.
    sample_weight : array-like of shape (n,) or None
        Row weights.

    Returns
    -------
    Divergence

    Examples
    --------
    >>> found = divergence_from_truth([[0.5, 0.5], [0.9, 0.1]], np.log([[0.5, 0.5], [0.8, 0.2]]))
    >>> found.kl, found.absolute
    (0.0183..., 0.05)
    """
    P = np.asarray(true_posterior, dtype=np.float64)
    logs = np.asarray(log_proba, dtype=np.float64)
    if P.ndim != 2 or P.size == 0 or P.shape != logs.shape:
        raise ValueError(f"truth and estimates must have one shape (n, K), not {P.shape} and {logs.shape}")
    check_proba(P, "true_posterior")
    with np.errstate(over="ignore"):  # what is too large for a probability is refused
        Q = np.exp(logs)
    check_proba(Q, "exp(log_proba)")
    weights = row_weights(sample_weight, len(P))
    shares = weights / weights.sum()
    log_P = np.log(P, out=np.zeros_like(P), where=P > 0.0)
    lost = np.multiply(P, log_P - logs, out=np.zeros_like(P), where=P > 0.0)
    excess = None
    if class_index is not None:
        index = indices(class_index)
        check_classes(index, P)
        impossible = P[np.arange(index.size), index] == 0.0
        if impossible[weights > 0.0].any():
            row = int(np.flatnonzero(impossible & (weights > 0.0))[0])
            raise ValueError(
                f"row {row} has a label that true_posterior says is impossible: are the columns in order?"
            )
        excess = log_loss(index, logs, sample_weight=weights) - log_loss(index, log_P, sample_weight=weights)
    return Divergence(
        kl=max(float(shares @ lost.sum(axis=1)), 0.0),
        absolute=float(shares @ np.abs(P - Q).mean(axis=1)),
        excess_log_loss=excess,
    )
