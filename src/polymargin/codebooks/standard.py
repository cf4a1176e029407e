"""The codings that need no search: one-vs-one, one-vs-all and minimal."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from polymargin.codebooks._base import Codebook


def one_vs_one(n_classes: int) -> Codebook:
    """Return the codebook with a column for every pair (i, j), i < j: i gets -1, j gets +1, others 0.

    The order of the pairs and the side that is positive are those of scikit-learn's OneVsOneClassifier.

    Parameters
    ----------
    n_classes : int
        The number of classes, K.

    Returns
    -------
    codebook : Codebook
        With K(K - 1)/2 columns.

    Examples
    --------
    >>> one_vs_one(3).matrix
    array([[-1, -1,  0],
           [ 1,  0, -1],
           [ 0,  1,  1]], dtype=int8)
    """
    pairs = list(combinations(range(n_classes), 2))
    matrix = np.zeros((n_classes, len(pairs)), dtype=np.int8)
    for column, (i, j) in enumerate(pairs):
        matrix[i, column] = -1
        matrix[j, column] = 1
    return Codebook(matrix)


def one_vs_all(n_classes: int) -> Codebook:
    """Return the codebook with a column for every class: +1 for it, -1 for the rest.

    With two classes both columns would be the same dichotomy, so there is one.

    Parameters
    ----------
    n_classes : int
        The number of classes, K.

    Returns
    -------
    codebook : Codebook
        With K columns.

    Examples
    --------
    >>> one_vs_all(3).matrix
    array([[ 1, -1, -1],
           [-1,  1, -1],
           [-1, -1,  1]], dtype=int8)
    """
    if n_classes == 2:
        return one_vs_one(2)
    return Codebook(2 * np.eye(n_classes, dtype=np.int8) - 1)


def minimal(n_classes: int) -> Codebook:
    """Return the minimal output coding: class k is written with the ⌈log₂ K⌉ binary digits of k.

    Parameters
    ----------
    n_classes : int
        The number of classes, K.

    Returns
    -------
    codebook : Codebook
        With ⌈log₂ K⌉ columns.

    Examples
    --------
    >>> minimal(3).matrix
    array([[-1, -1],
           [-1,  1],
           [ 1, -1]], dtype=int8)
    """
    n_bits = max(1, (n_classes - 1).bit_length())
    digits = (np.arange(n_classes)[:, np.newaxis] >> np.arange(n_bits)[::-1]) & 1
    return Codebook(2 * digits - 1)
