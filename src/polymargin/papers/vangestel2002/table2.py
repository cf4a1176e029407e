"""Table II: LS-SVMs with linear and RBF kernels, Hamming and Bayesian decoding."""

from __future__ import annotations

from polymargin.decoders import Bayes, Decoder
from polymargin.papers._codings import Machines, least_squares
from polymargin.papers.vangestel2002._coding_table import CodingTable

__all__ = ["Table2", "Table2PerBit"]


class Table2(CodingTable):
    """Test accuracies of LS-SVMs whose machines share C and σ within a coding, as `LSSVMClassifier` does."""

    name = "vangestel2002-table2"
    title = "Van Gestel et al. (2002), Table II: LS-SVMs, test accuracy in %"
    table = "2"

    def decoders(self) -> dict[str, Decoder]:
        """Return Bayesian decoding with the machines' own noise variances, as in the paper."""
        return {"bayes": Bayes(update=self.protocol["dont_cares"], noise="model")}

    def machines(self, kernel: str, seed: int) -> Machines:
        """Return least-squares machines in the evidence framework."""
        return least_squares


class Table2PerBit(Table2):
    """The same with C and σ inferred for every bit on its own, as the paper does."""

    name = "vangestel2002-table2-per-bit"
    title = "Van Gestel et al. (2002), Table II, parameters per bit: LS-SVMs, test accuracy in %"
    table = "2-per-bit"
