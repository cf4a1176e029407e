"""Hamming decoding: the codeword nearest to the signs of the outputs."""

from __future__ import annotations

import numpy as np

from polymargin.decoders._base import Array, Decoder, tie_break
from polymargin.outputs import Outputs


class Hamming(Decoder):
    """The class whose codeword differs from the signs of the outputs in the fewest bits.

    A don't care counts one half (Van Gestel et al. 2002, §5). Among equally near codewords the one wins that
    agrees best with the outputs themselves, Σ_l M_kl z_l: for one-vs-all that is the largest output.
    """

    def scores(self, outputs: Outputs) -> Array:
        """Return minus the Hamming distances, ties broken, shape (n, K)."""
        codewords = self.codebook_.matrix.T.astype(np.float64)
        nearness = 0.5 * (np.sign(outputs.margins) @ codewords - self.codebook_.n_columns)
        # Distances move in halves (a don't care, or an output of exactly zero, counts one half).
        return nearness + tie_break(self.codebook_, outputs.margins, 0.25)
