"""A much smaller C: the one of least squared error need not be the one whose outputs decode best.

Squared errors punish outputs that are too small, which a decoder that learns their scale does not mind. Where noise
prevails, machines that are regularised far more give smoother outputs, and better probabilities. So, after C has been
selected, one much smaller value is tried, and taken if the decoder's cross-fitted log-loss is lower.
"""

from __future__ import annotations

import numpy as np
from scipy.special import entr
from sklearn.base import clone

from polymargin.decoders import CoupledSoftmax, Decoder
from polymargin.estimators._kernel_choice import decoder_rows, sample
from polymargin.estimators._soft_labels import DecoderRows
from polymargin.machines import LSSVMBank, TrainingRows, fit_lssvm_bank

#: C is divided by this.
FACTOR = 256.0
#: It is tried where the log-loss is above this share of the classes' entropy, or every class has this many rows. When C
#: is small, a row's absence moves the outputs of small classes so much that leave-one-out outputs betray the labels.
_OVERLAP, _MANY_ROWS = 0.2, 100.0
#: Of more rows than this, a sample is asked first.
_ASKED = 2000


def worth_shrinking(decoder: Decoder, data: TrainingRows) -> bool:
    """Tell whether a smaller C is worth a try: the decoder can compare, and its verdict can be trusted."""
    if not isinstance(decoder, CoupledSoftmax) or decoder.cross_log_proba_ is None or decoder.in_sample:
        return False
    weights = data.class_weights(decoder.codebook_.n_classes)
    shares = weights / weights.sum()
    overlap = cross_loss(decoder, data) > _OVERLAP * float(entr(shares).sum())
    return overlap or bool(weights.min() >= _MANY_ROWS)


def promising(bank: LSSVMBank, decoder: Decoder) -> bool:
    """Tell whether a smaller C decodes better on a sample of the rows; that it may, where there are few."""
    part = sample(bank.data, _ASKED)
    if part is bank.data:
        return True
    losses = []
    for C in (bank.C, bank.C / FACTOR):
        machines = fit_lssvm_bank(part, bank.codebook, C=C, gamma=bank.gamma, keep_factors=False)
        rows = decoder_rows(part, machines)
        fitted = clone(decoder).fit(bank.codebook, rows.outputs, rows.class_index, sample_weight=rows.weights)
        losses.append(cross_loss(fitted, part))
    return losses[1] < losses[0]


def cross_loss(decoder: Decoder, data: TrainingRows) -> float:
    """Return the log-loss of what the decoder says of each half of the rows having learned from the other."""
    assert isinstance(decoder, CoupledSoftmax)
    assert decoder.cross_log_proba_ is not None
    log_p = decoder.cross_log_proba_
    rows = DecoderRows(None, data.class_index, data.weights)
    if data.soft_labels is not None:
        rows = rows.divided(data.soft_labels)
    assert rows.weights is not None
    return -float(
        rows.weights @ log_p[np.arange(rows.class_index.size), rows.class_index] / rows.weights.sum()
    )


def shrunk(bank: LSSVMBank) -> LSSVMBank:
    """Return the same machines with a smaller C."""
    return fit_lssvm_bank(bank.data, bank.codebook, C=bank.C / FACTOR, gamma=bank.gamma, keep_factors=False)
