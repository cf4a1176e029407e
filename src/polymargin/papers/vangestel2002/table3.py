"""Table III: SVMs with linear and RBF kernels, Hamming and loss-function decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.papers.vangestel2002._coding_table import CodingTable

__all__ = ["Table3"]


class Table3(CodingTable):
    """Test accuracies of SVMs; see `CodingTable`."""

    name = "vangestel2002-table3"
    title = "Van Gestel et al. (2002), Table III: SVMs, test accuracy in %"
    table = "3"

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
        from polymargin.comparison import Hinge, compare_codings
        from polymargin.decoders import Loss

        decoders = {"loss": Loss("hinge")}
        grid = self.protocol["grids"][kernel]
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
            machines=Hinge(
                cv=self.protocol["folds"],
                C=[2.0**exponent for exponent in grid["log2_C"]],
                gamma_factors=[2.0**exponent for exponent in grid.get("log2_gamma", [0.0])],
                max_extensions=0,
                random_state=seed,
            ),
            random_state=seed,
        )
        return {(score.coding, score.decoding): 100.0 * score.accuracy for score in scores}
