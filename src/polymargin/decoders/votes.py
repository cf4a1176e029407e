"""Max-wins voting among one-vs-one machines."""

from __future__ import annotations

import numpy as np

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, Decoder, check_pairwise, tie_break
from polymargin.outputs import Outputs


class Votes(Decoder):
    """The class that wins most of its duels; ties go to the larger sum of outputs."""

    def check(self, codebook: Codebook) -> None:
        """Refuse a codebook that is not one-vs-one."""
        check_pairwise(codebook, "voting")

    def scores(self, outputs: Outputs) -> Array:
        """Return the number of duels won (a draw counts one half), ties broken, shape (n, K)."""
        balance = np.sign(outputs.margins) @ self.codebook_.matrix.T.astype(np.float64)
        votes = 0.5 * (balance + self.codebook_.n_classes - 1)
        return votes + tie_break(self.codebook_, outputs.margins, 0.25)
