"""Codebooks: how a problem of K classes is divided into L dichotomies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polymargin.codebooks._base import Codebook, ColumnGroup
from polymargin.codebooks.adaptive import Adaptive, Train, adaptive_coding, grow_codebook
from polymargin.codebooks.default import default_coding
from polymargin.codebooks.ecoc import ecoc
from polymargin.codebooks.join import CodebookPart, join
from polymargin.codebooks.standard import minimal, one_vs_all, one_vs_one

__all__ = [
    "CODINGS",
    "Adaptive",
    "Codebook",
    "CodebookPart",
    "ColumnGroup",
    "Train",
    "adaptive_coding",
    "default_coding",
    "ecoc",
    "grow_codebook",
    "join",
    "minimal",
    "one_vs_all",
    "one_vs_one",
    "resolve_codebook",
]

#: The codings that have a name: functions of the number of classes and the random state.
CODINGS: dict[str, Callable[[int, Any], Codebook]] = {
    "one-vs-one": lambda n_classes, random_state: one_vs_one(n_classes),
    "one-vs-all": lambda n_classes, random_state: one_vs_all(n_classes),
    "minimal": lambda n_classes, random_state: minimal(n_classes),
    "ecoc": ecoc,
}


def resolve_codebook(coding: Any, n_classes: int, random_state: Any = None) -> Codebook:
    """Return the codebook for an estimator's ``coding`` parameter.

    Parameters
    ----------
    coding : str, Codebook or array-like of shape (n_classes, n_columns)
        A name in `CODINGS`, or the codebook itself.
    n_classes : int
        The number of classes.
    random_state : int, RandomState instance or None
        Used by codings that search at random.

    Returns
    -------
    codebook : Codebook
        One row per class.

    Raises
    ------
    ValueError
        If no coding has this name, the codebook is for another number of classes, or the coding is adaptive, which
        needs training rows.

    See Also
    --------
    grow_codebook : The codebook of an adaptive coding.

    Examples
    --------
    >>> resolve_codebook("one-vs-all", 4).n_columns
    4
    """
    if adaptive_coding(coding) is not None:
        raise ValueError("adaptive coding is grown on training rows: use an estimator, or grow_codebook")
    if isinstance(coding, str):
        if coding not in CODINGS:
            raise ValueError(
                f"unknown coding {coding!r}; choose one of {', '.join(CODINGS)}, adaptive, or give a codebook"
            )
        return CODINGS[coding](n_classes, random_state)
    book = coding if isinstance(coding, Codebook) else Codebook(coding)
    if book.n_classes != n_classes:
        raise ValueError(f"the codebook has {book.n_classes} rows (codewords) but y has {n_classes} classes")
    return book
