"""Cross-fitting: what a decoder that learns says of rows it did not learn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import clone

from polymargin.codebooks import Codebook
from polymargin.decoders._base import Array, ProbabilisticDecoder
from polymargin.outputs import Outputs


def cross_fitted(
    decoder: ProbabilisticDecoder,
    codebook: Codebook,
    outputs: Outputs,
    class_index: Array,
    folds: Sequence[Array],
    sample_weight: Array | None = None,
) -> Array:
    """Return log-probabilities of honest outputs from decoders fitted on the other folds, shape (n, K).

    The machines are not trained again: their outputs are honest already. A fold without which a class would have no
    rows is decoded by a decoder that has seen it.
    """
    log_p = np.empty((class_index.size, codebook.n_classes))
    for fold in folds:
        kept = np.ones(class_index.size, dtype=bool)
        kept[fold] = False
        if np.unique(class_index[kept]).size < codebook.n_classes:
            kept[:] = True
        fitted = clone(decoder).fit(
            codebook,
            outputs.rows(kept),
            class_index[kept],
            sample_weight=None if sample_weight is None else sample_weight[kept],
        )
        assert isinstance(fitted, ProbabilisticDecoder)
        log_p[fold] = fitted.log_proba(outputs.rows(fold))
    return log_p
