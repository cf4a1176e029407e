"""Loss-based decoding (Allwein, Schapire and Singer 2000)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder
from polymargin.outputs import Outputs

#: Losses of a margin m = y z.
LOSSES: dict[str, Callable[[Array], Array]] = {
    "squared": lambda m: np.square(1.0 - m),
    "hinge": lambda m: np.maximum(1.0 - m, 0.0),
    "logistic": lambda m: np.logaddexp(0.0, -m),
    "exponential": lambda m: np.exp(np.clip(-m, None, 700.0)),
}


class Loss(Decoder):
    """The class whose codeword has the smallest total loss; a don't care costs the loss at zero.

    Parameters
    ----------
    loss : {"squared", "hinge", "logistic", "exponential"}, default="squared"
        "squared" is the loss the least-squares machines are trained with, "hinge" that of the SVM.
    """

    def __init__(self, loss: str = "squared"):
        self.loss = loss

    def check(self, codebook: Codebook) -> None:
        """Refuse a loss that does not exist."""
        if self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; choose one of {', '.join(LOSSES)}")

    def scores(self, outputs: Outputs) -> Array:
        """Return minus the total losses, shape (n, K)."""
        loss, margins, matrix = LOSSES[self.loss], outputs.margins, self.codebook_.matrix
        total = loss(margins) @ (matrix.T == 1) + loss(-margins) @ (matrix.T == -1)
        at_zero = float(loss(np.zeros(1))[0])
        return -(total + at_zero * (matrix == 0).sum(axis=1))
