"""Table III: SVMs with linear and RBF kernels, Hamming and loss-function decoding."""

from __future__ import annotations

from polymargin.decoders import Decoder, Loss
from polymargin.papers._codings import Hinge, Machines
from polymargin.papers.vangestel2002._coding_table import CodingTable

__all__ = ["Table3"]


class Table3(CodingTable):
    """Test accuracies of SVMs; see `CodingTable`."""

    name = "vangestel2002-table3"
    title = "Van Gestel et al. (2002), Table III: SVMs, test accuracy in %"
    table = "3"

    def decoders(self) -> dict[str, Decoder]:
        """Return decoding by the loss that the machines are trained with."""
        return {"loss": Loss("hinge")}

    def machines(self, kernel: str, seed: int) -> Machines:
        """Return SVMs that choose C and σ by cross-validation on the protocol's grid."""
        grid = self.protocol["grids"][kernel]
        return Hinge(
            cv=self.protocol["folds"],
            C=[2.0**exponent for exponent in grid["log2_C"]],
            gamma_factors=[2.0**exponent for exponent in grid.get("log2_gamma", [0.0])],
            max_extensions=0,
            random_state=seed,
        )
