"""The decoders in a graph: one function for each, which returns what the decoder's `scores` returns, shape (n, K).

A decoder that is not here gets a function of its own in `CONVERTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from polymargin.codebooks import Codebook
from polymargin.decoders import (
    Argmax,
    Bayes,
    CoupledSoftmax,
    Coupling,
    Dag,
    Decoder,
    Hamming,
    Loss,
    Mixture,
    PlainSoftmax,
    Softmax,
    Stack,
    Votes,
)
from polymargin.decoders.argmax import one_vs_rest
from polymargin.decoders.coupled_softmax import SMALLEST_OUTPUT
from polymargin.decoders.coupling import SMALLEST_PROBABILITY
from polymargin.decoders.loss import LOSSES
from polymargin.decoders.pooled import Pooled
from polymargin.onnx._graph import Array, Value
from polymargin.onnx.coupling import bradley_terry, couple
from polymargin.onnx.machines import GraphOutputs
from polymargin.onnx.stack import stack

__all__ = ["CONVERTERS", "decoder_scores", "log_pool", "reweighted"]


def decoder_scores(decoder: Decoder, outputs: GraphOutputs) -> Value:
    """Return the scores of a fitted decoder, shape (n, K): log-probabilities if it is probabilistic."""
    for kind in type(decoder).__mro__:
        if kind in CONVERTERS:
            return CONVERTERS[kind](decoder, outputs)
    raise ValueError(
        f"no ONNX form of the decoder {type(decoder).__name__} is known: add a function to "
        "polymargin.onnx.decoders.CONVERTERS, or choose another decoding"
    )


def coupled_softmax(decoder: CoupledSoftmax, outputs: GraphOutputs) -> Value:
    """Return the softmax of s·W + [z, z²] E + b."""
    least, largest = decoder.range_
    outputs = replace(outputs, margins=outputs.margins.at_least(least).at_most(largest))
    scaled = outputs.margins / decoder.spread_
    features = scaled.beside(scaled.square()) if decoder.squares else scaled
    logits = features @ decoder.fit_.coef + decoder.fit_.intercept
    if decoder.fit_.scale is not None:
        logits = logits + decoder.fit_.scale * _first_guess(decoder, outputs)
    log_p = contaminated(logits.log_softmax(), decoder.log_prior_, decoder.contamination_)
    return reweighted(log_p, decoder.prior_shift_)


def contaminated(log_p: Value, log_prior: Array, share: float) -> Value:
    """Return log((1 − ε) p + ε π), see `polymargin.solvers.tempering.contaminated`."""
    if share <= 0.0:
        return log_p
    return (log_p.exp() * (1.0 - share) + share * np.exp(log_prior)).log()


def _first_guess(decoder: CoupledSoftmax, outputs: GraphOutputs) -> Value:
    if decoder.coupling_ is not None:
        return coupling(decoder.coupling_, outputs)
    signs = decoder.codebook_.matrix.T.clip(min=0 if decoder.codebook_.n_columns > 1 else -1)
    heard = (outputs.margins.absolute() > SMALLEST_OUTPUT).choose(outputs.margins, 0.0)
    return heard / decoder.spread_ @ signs.astype(np.float64)


def coupling(decoder: Coupling, outputs: GraphOutputs) -> Value:
    """Return coupled sigmoids."""
    sigmoids, codebook = decoder.sigmoids_, decoder.codebook_
    r = (outputs.margins * sigmoids.slope + sigmoids.intercept).sigmoid()
    if decoder.method_ == "bradley-terry":
        p = bradley_terry(r, codebook.matrix, decoder.column_weights_)
    else:
        columns, forward = codebook.pairs
        ordered = r.take(columns)
        ordered = r.graph.value(forward).choose(ordered, 1.0 - ordered)
        p = couple(ordered, decoder.method_, decoder.column_weights_[columns], codebook.n_classes)
    p = p.at_least(SMALLEST_PROBABILITY)
    return reweighted((p / p.sum(keepdims=True)).log(), decoder.prior_shift_)


def softmax(decoder: Softmax, outputs: GraphOutputs) -> Value:
    """Return the softmax of a linear map; a hidden layer is multiplied out."""
    logits = outputs.margins @ decoder.beta_.T + decoder.intercept_
    return reweighted(logits.log_softmax(), decoder.prior_shift_)


def plain_softmax(decoder: PlainSoftmax, outputs: GraphOutputs) -> Value:
    """Return the softmax of the classes' own outputs."""
    matrix = decoder.codebook_.matrix
    if decoder.codebook_.n_classes == 2:
        logits = outputs.margins @ _codewords(decoder.codebook_)
    else:
        logits = outputs.margins.take((matrix == 1).argmax(axis=1))
    return reweighted(logits.log_softmax(), decoder.shift_)


def bayes(decoder: Bayes, outputs: GraphOutputs) -> Value:
    """Return the posteriors of Bayes' rule, all columns at once or one after the other."""
    noise = outputs.noise if decoder.noise_ is None else decoder.noise_
    assert outputs.variances is not None
    assert noise is not None
    z, variances = outputs.margins, outputs.variances + noise
    above, below = (z - z.absolute()) / variances, (-z - z.absolute()) / variances
    update = _bayes_sequential if decoder.update == "sequential" else _bayes_joint
    log_p = update(decoder, above, below)
    log_p = (log_p - log_p.max(keepdims=True)).log_softmax()
    return log_p.at_least(np.log(np.finfo(np.float64).tiny))


def _bayes_joint(decoder: Bayes, above: Value, below: Value) -> Value:
    matrix, log_priors = decoder.codebook_.matrix, decoder.log_priors_[:, np.newaxis]
    # Of the classes that a column knows, all on one side have the same density.
    plus, minus, known = (
        logsumexp(np.where(side, log_priors, -np.inf), axis=0)
        for side in (matrix > 0, matrix < 0, matrix != 0)
    )
    up, down = above + plus, below + minus
    top = up.at_least(down)
    evidence = top + ((up - top).exp() + (down - top).exp()).log()
    known = known - evidence
    return (
        decoder.log_priors_
        + (above + known) @ (matrix.T > 0).astype(np.float64)
        + (below + known) @ (matrix.T < 0).astype(np.float64)
    )


def _bayes_sequential(decoder: Bayes, above: Value, below: Value) -> Value:
    log_p = above.take(np.array([0])) * 0.0 + decoder.log_priors_
    for column, bits in enumerate(decoder.codebook_.matrix.T):
        one = np.array([column])
        known = np.flatnonzero(bits)
        density = above.graph.value(bits[known] > 0).choose(above.take(one), below.take(one))
        before = log_p.take(known)
        change = density + before.log_sum_exp() - (before + density).log_sum_exp()
        log_p = log_p + change @ np.eye(bits.size)[known]
    return log_p


def hamming(decoder: Hamming, outputs: GraphOutputs) -> Value:
    """Return minus the Hamming distances, ties broken."""
    codebook = decoder.codebook_
    nearness = 0.5 * (outputs.margins.sign() @ _codewords(codebook) - float(codebook.n_columns))
    return nearness + _tie_break(codebook, outputs.margins)


def votes(decoder: Votes, outputs: GraphOutputs) -> Value:
    """Return the number of duels won, ties broken."""
    codebook = decoder.codebook_
    balance = outputs.margins.sign() @ _codewords(codebook)
    return 0.5 * (balance + (codebook.n_classes - 1.0)) + _tie_break(codebook, outputs.margins)


def _tie_break(codebook: Codebook, margins: Value) -> Value:
    agreement = margins @ _codewords(codebook)
    largest = agreement.absolute().max(keepdims=True)
    return (largest > 0.0).choose(0.99 * 0.25 * (agreement / largest), 0.0)


def loss(decoder: Loss, outputs: GraphOutputs) -> Value:
    """Return minus the total losses."""
    of_margin = _LOSSES[decoder.loss]
    matrix, z = decoder.codebook_.matrix, outputs.margins
    at_zero = float(LOSSES[decoder.loss](np.zeros(1))[0])
    total = of_margin(z) @ (matrix.T == 1).astype(np.float64) + of_margin(-z) @ (matrix.T == -1).astype(
        np.float64
    )
    return -(total + at_zero * (matrix == 0).sum(axis=1))


_LOSSES: dict[str, Callable[[Value], Value]] = {
    "squared": lambda m: (1.0 - m).square(),
    "hinge": lambda m: (1.0 - m).at_least(0.0),
    "logistic": lambda m: (-m).at_least(0.0) + (1.0 + (-m.absolute()).exp()).log(),
    "exponential": lambda m: (-m).at_most(700.0).exp(),
}


def argmax(decoder: Argmax, outputs: GraphOutputs) -> Value:
    """Return every class's own output, scaled."""
    margins = outputs.margins
    if decoder.scale == "norm":
        margins = outputs.over_norms()
    elif decoder.scale_ is not None:
        margins = margins * decoder.scale_
    if decoder.codebook_.n_classes == 2:
        return margins @ _codewords(decoder.codebook_)
    return margins.take(one_vs_rest(decoder.codebook_).argmax(axis=1))


def mixture(decoder: Mixture, outputs: GraphOutputs) -> Value:
    """Return M g."""
    return outputs.margins @ decoder.matrix_.T


def dag(decoder: Dag, outputs: GraphOutputs) -> Value:
    """Return the round in which each class left."""
    matrix, n_classes = decoder.codebook_.matrix, decoder.codebook_.n_classes
    plus, minus = (matrix == 1).argmax(axis=0), (matrix == -1).argmax(axis=0)
    duels = np.zeros((matrix.shape[1], n_classes, n_classes))
    columns = np.arange(matrix.shape[1])
    duels[columns, plus, minus], duels[columns, minus, plus] = 1.0, -1.0
    graph = outputs.margins.graph
    of_pair = outputs.margins @ duels.reshape(columns.size, -1)
    classes = np.arange(n_classes, dtype=np.float64)

    first = outputs.margins.take(np.array([0])) * 0.0
    last = first + (n_classes - 1.0)
    scores = first + np.zeros(n_classes)
    for turn in range(n_classes - 1):
        duel = graph.op("GatherElements", of_pair, (first * float(n_classes) + last).as_index(), axis=1)
        won = duel >= 0.0
        scores = scores + float(turn) * won.choose(last, first).equals(classes).as_double()
        last = last - won.as_double()
        first = won.choose(first, first + 1.0)
    return scores + (n_classes - 1.0) * first.equals(classes).as_double()


def pooled(decoder: Pooled, outputs: GraphOutputs) -> Value:
    """Return the pool of what the decoder of every kind of machines says of its columns."""
    columns = np.split(np.arange(decoder.n_parts * decoder.codebook_.n_columns), decoder.n_parts)
    parts = [
        decoder_scores(each, GraphOutputs(outputs.margins.take(places), None, None, None))
        for each, places in zip(decoder.decoders_, columns, strict=True)
    ]
    return reweighted(log_pool(parts, decoder.weights_, decoder.log_prior_), decoder.prior_shift_)


def log_pool(log_probas: Sequence[Value], weights: Array, log_prior: Array) -> Value:
    """Return the log-linear pool of several log-probabilities, see `polymargin.solvers.pooling.pooled`."""
    logits = log_probas[0] * float(weights[0])
    for log_p, weight in zip(log_probas[1:], weights[1:], strict=True):
        logits = logits + log_p * float(weight)
    return (logits + (1.0 - float(weights.sum())) * log_prior).log_softmax()


def _codewords(codebook: Codebook) -> Array:
    """Return the codewords as the columns of a matrix, shape (L, K)."""
    return codebook.matrix.T.astype(np.float64)


def reweighted(log_p: Value, shift: Array) -> Value:
    """Return log-posteriors under other priors."""
    return (log_p + shift).log_softmax() if shift.any() else log_p


#: A function for every kind of decoder.
CONVERTERS: dict[type[Decoder], Callable[[Any, GraphOutputs], Value]] = {
    Argmax: argmax,
    Bayes: bayes,
    CoupledSoftmax: coupled_softmax,
    Coupling: coupling,
    Dag: dag,
    Hamming: hamming,
    Loss: loss,
    Mixture: mixture,
    PlainSoftmax: plain_softmax,
    Pooled: pooled,
    Softmax: softmax,
    Stack: stack,
    Votes: votes,
}
