"""The score of eq. (16), by which the paper compares probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["error_kurtosis"]


def error_kurtosis(class_index: ArrayLike, proba: ArrayLike) -> float:
    """Return the "kurtosis" of the errors e = 1 − p(true class), as Bravo et al. (2010) print it in eq. (16).

    ((Σe/N) / sqrt(Σe²/(N−1)))⁴, 0 where all e are 0. It is not a kurtosis, which has fourth powers of the e, nor does
    it say how near to zero the errors are: their scale cancels, so that errors of 0.001 on all rows score almost 1,
    the worst. It is smallest where few rows carry all the error, so hard labels score less than the true posterior,
    and overconfident methods score best. Use it to read that paper, not to compare methods.

    Examples
    --------
    >>> error_kurtosis([0, 0], [[0.9, 0.1], [0.7, 0.3]])
    0.16
    >>> error_kurtosis([0, 0], [[0.99, 0.01], [0.97, 0.03]])  # ten times smaller errors
    0.16
    """
    index, p = np.asarray(class_index), np.asarray(proba, dtype=np.float64)
    errors = 1.0 - p[np.arange(index.size), index]
    squares = float(np.square(errors).sum())
    if errors.size < 2:
        raise ValueError("eq. (16) needs at least two rows")
    return float(errors.mean() ** 4 / (squares / (errors.size - 1)) ** 2) if squares > 0.0 else 0.0
