"""Argmax decoding: the largest output of one-vs-all machines."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder
from polymargin.outputs import Outputs


class Argmax(Decoder):
    """The class whose own machine has the largest output; needs a machine for every class."""

    def check(self, codebook: Codebook) -> None:
        """Refuse a codebook in which some class has no machine of its own."""
        alone = (codebook.matrix == 1) & ((codebook.matrix == 1).sum(axis=0) == 1)
        if codebook.n_classes > 2 and not (alone.sum(axis=1) == 1).all():
            raise ValueError('argmax needs one machine for every class: choose coding="one-vs-all"')

    def scores(self, outputs: Outputs) -> Array:
        """Return every class's own output, shape (n, K)."""
        if self.codebook_.n_classes == 2:
            return outputs.margins @ self.codebook_.matrix.T.astype(np.float64)
        own = (self.codebook_.matrix == 1).argmax(axis=1)
        return outputs.margins[:, own]
