"""What every bank of machines is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from polymargin.kernels import Kernel

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainingRows:
    """What the machines are trained on.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    X : array or sparse matrix of shape (n, d)
        The rows; the Gram matrix itself for a precomputed kernel.
    class_index : ndarray of int, shape (n,)
        The class of every row.
    weights : ndarray of shape (n,)
        Positive row weights: a row of weight two counts like two rows.
    """

    kernel: Kernel
    X: Any
    class_index: Array
    weights: Array
