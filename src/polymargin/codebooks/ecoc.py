"""Error-correcting output codes by random search, as in Van Gestel et al. 2002, §5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from polymargin.codebooks._base import Codebook

Array = NDArray[Any]

#: Up to this many classes the possible columns are listed and drawn without replacement.
_ENUMERABLE_CLASSES = 10
#: Work allowed for the search, in multiply-adds: many classes get fewer tries rather than minutes.
_WORK = 2e11


def ecoc(n_classes: int, random_state: Any = None, *, n_tries: int = 10_000) -> Codebook:
    """Return the best of many random dense codebooks: the largest minimal Hamming distance wins.

    Parameters
    ----------
    n_classes : int
        The number of classes, K. At most 10 ⌈log₂ K⌉ columns are used, and never more than there are
        different ones: a column and its complement are the same dichotomy and count once.
    random_state : int, RandomState instance or None
        Source of the random codebooks.
    n_tries : int
        How many codebooks are tried.

    Returns
    -------
    codebook : Codebook
        Without zeros.

    Examples
    --------
    >>> book = ecoc(26, random_state=0)
    >>> book.n_columns, book.min_distance >= 14
    (50, True)
    """
    random = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    n_bits = max(1, (n_classes - 1).bit_length())
    n_different = 2 ** (n_classes - 1) - 1
    n_columns = min(10 * n_bits, n_different)
    if n_columns == n_different:
        return Codebook(_columns(np.arange(1, n_different + 1), n_classes))
    n_tries = int(max(100, min(n_tries, _WORK / (n_classes**2 * n_columns))))
    draw = _draw_listed if n_classes <= _ENUMERABLE_CLASSES else _draw_bits

    best, best_distance = None, -1.0
    chunk = max(1, min(n_tries, int(4e6 / (n_classes * max(n_columns, n_classes)))))
    for start in range(0, n_tries, chunk):
        books = draw(random, min(chunk, n_tries - start), n_classes, n_columns)
        distances = _min_distances(books)
        winner = int(distances.argmax())
        if distances[winner] > best_distance:
            best, best_distance = books[winner], distances[winner]
    assert best is not None
    return Codebook(best)


def _columns(numbers: Array, n_classes: int) -> Array:
    """Return columns as a (..., K, n) array: class 0 is always -1, class k holds binary digit k-1."""
    digits = (numbers[..., np.newaxis, :] >> np.arange(n_classes - 1)[:, np.newaxis]) & 1
    first = np.zeros((*digits.shape[:-2], 1, digits.shape[-1]), dtype=digits.dtype)
    return 2 * np.concatenate([first, digits], axis=-2) - 1


def _draw_listed(random: np.random.Generator, size: int, n_classes: int, n_columns: int) -> Array:
    """Draw codebooks of distinct columns from the list of all columns, shape (size, K, L)."""
    keys = random.random((size, 2 ** (n_classes - 1) - 1))
    numbers = np.argpartition(keys, n_columns - 1, axis=1)[:, :n_columns] + 1
    return _columns(numbers, n_classes).astype(np.float32)


def _draw_bits(random: np.random.Generator, size: int, n_classes: int, n_columns: int) -> Array:
    """Draw codebooks bit by bit, shape (size, K, L), redrawing those with a repeated or constant column."""
    books = np.empty((size, n_classes, n_columns), dtype=np.float32)
    # A random linear hash of a column; a collision only costs a redraw.
    key = random.random(n_classes - 1)
    todo = np.arange(size)
    while todo.size:
        bits = random.integers(0, 2, (todo.size, n_classes - 1, n_columns), dtype=np.int8)
        books[todo, 0] = -1
        books[todo, 1:] = 2 * bits - 1
        hashes = np.sort(np.einsum("k,skl->sl", key, bits), axis=1)
        bad = (np.diff(hashes, axis=1) == 0).any(axis=1) | (hashes[:, 0] == 0)
        todo = todo[bad]
    return books


def _min_distances(books: Array) -> Array:
    """Return the smallest Hamming distance between two codewords of every codebook, shape (size,)."""
    n_classes, n_columns = books.shape[1:]
    agreement = books @ books.transpose(0, 2, 1)
    agreement[:, np.arange(n_classes), np.arange(n_classes)] = -n_columns
    return 0.5 * (n_columns - agreement.max(axis=(1, 2)))
