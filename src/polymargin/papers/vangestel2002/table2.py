"""Table II: LS-SVMs with linear and RBF kernels, Hamming and Bayesian decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.vangestel2002._coding_table import CodingTable

__all__ = ["Table2", "Table2PerBit"]


class Table2(CodingTable):
    """Test accuracies of LS-SVMs whose machines share C and σ within a coding, as `LSSVMClassifier` does."""

    name = "vangestel2002-table2"
    title = "Van Gestel et al. (2002), Table II: LS-SVMs, test accuracy in %"
    table = "2"

    def fit_and_score(
        self,
        X_train: NDArray[np.float64],
        y_train: NDArray[Any],
        X_test: NDArray[np.float64],
        y_test: NDArray[Any],
        *,
        kernel: str,
        codings: Sequence[str],
        decodings: Sequence[str],
        classes: Sequence[Any],
        seed: int,
    ) -> dict[tuple[str, str], float]:
        """Fit the machines of every coding once, decode with every decoder; see `CodingTable`."""
        from polymargin.comparison import compare_codings
        from polymargin.decoders import Bayes

        # The paper's noise variance is the machine's own.
        decoders = {"bayes": Bayes(update=self.protocol["dont_cares"], noise="model")}

        scores = compare_codings(
            X_train,
            y_train,
            X_test,
            y_test,
            codings=codings,
            decodings={decoding: decoders.get(decoding, decoding) for decoding in decodings},
            kernel=kernel,
            shared_parameters=self.protocol["parameters"] == "shared",
            classes=classes,
            random_state=seed,
        )
        return {(score.coding, score.decoding): 100.0 * score.accuracy for score in scores}


class Table2PerBit(Table2):
    """The same with C and σ inferred for every bit on its own, as the paper does."""

    name = "vangestel2002-table2-per-bit"
    title = "Van Gestel et al. (2002), Table II, parameters per bit: LS-SVMs, test accuracy in %"
    table = "2-per-bit"
