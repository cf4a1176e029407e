"""Decoders: from the outputs of the machines to scores, labels and probabilities.

Each decoder is one class in one file; `polymargin.decoders.Decoder` is the interface.
"""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from polymargin.decoders._base import Decoder, ProbabilisticDecoder
from polymargin.decoders.argmax import Argmax
from polymargin.decoders.bayes import Bayes
from polymargin.decoders.coupled_softmax import CoupledSoftmax
from polymargin.decoders.coupling import Coupling
from polymargin.decoders.dag import Dag
from polymargin.decoders.hamming import Hamming
from polymargin.decoders.loss import Loss
from polymargin.decoders.mixture import Mixture
from polymargin.decoders.plain_softmax import PlainSoftmax
from polymargin.decoders.softmax import Softmax
from polymargin.decoders.stack import Stack
from polymargin.decoders.votes import Votes

__all__ = [
    "DECODERS",
    "Argmax",
    "Bayes",
    "CoupledSoftmax",
    "Coupling",
    "Dag",
    "Decoder",
    "Hamming",
    "Loss",
    "Mixture",
    "PlainSoftmax",
    "ProbabilisticDecoder",
    "Softmax",
    "Stack",
    "Votes",
    "resolve_decoder",
]

#: The decoders by the name that estimators accept as ``decoding``.
DECODERS: dict[str, type[Decoder]] = {
    "hamming": Hamming,
    "loss": Loss,
    "bayes": Bayes,
    "argmax": Argmax,
    "mixture": Mixture,
    "softmax": Softmax,
    "coupling": Coupling,
    "coupled-softmax": CoupledSoftmax,
    "plain-softmax": PlainSoftmax,
    "votes": Votes,
    "dag": Dag,
}


def resolve_decoder(decoding: Any, loss: str = "squared") -> Decoder:
    """Return a fresh, unfitted decoder for an estimator's ``decoding`` parameter.

    Parameters
    ----------
    decoding : str or Decoder
        A name in `DECODERS`, or a decoder, of which a clone is returned.
    loss : str, default="squared"
        The loss of the decoder with the name "loss": that of the machines.

    Returns
    -------
    Decoder

    Examples
    --------
    >>> resolve_decoder("loss")
    Loss()
    """
    if isinstance(decoding, Decoder):
        return clone(decoding)
    if isinstance(decoding, str) and decoding == "loss":
        return Loss(loss)
    if isinstance(decoding, str) and decoding in DECODERS:
        return DECODERS[decoding]()
    if isinstance(decoding, type) and issubclass(decoding, Decoder):
        name = decoding.__name__
        raise ValueError(f"decoding is the class {name}; give an object of it, such as {name}()")
    raise ValueError(
        f"unknown decoding {decoding!r}; choose one of {', '.join(DECODERS)}, or give a decoder such as Loss()"
    )
