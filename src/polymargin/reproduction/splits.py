"""What the papers do to data before they fit: randomise, split, standardise."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin.reproduction.errors import ReproductionError

__all__ = ["derive_seed", "random_split", "standardise"]

_MAX_DRAWS = 10_000


def derive_seed(seed: int, *parts: str | int) -> int:
    """Return a seed for a part of an experiment, the same on every machine and in any order of computation.

    Parameters
    ----------
    seed : int
        The seed of the experiment.
    *parts : str or int
        What identifies the part.

    Returns
    -------
    int

    Examples
    --------
    >>> derive_seed(2002, "win", 3) == derive_seed(2002, "win", 3) != derive_seed(2002, "win", 4)
    True
    """
    entropy = [seed, *(part if isinstance(part, int) else zlib.crc32(part.encode()) for part in parts)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def random_split(
    y: ArrayLike, n_train: int, n_test: int, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Permute the rows and cut: the first `n_train` train, the next `n_test` test.

    Not stratified. A split whose training rows lack a class that the data have cannot train the dichotomies
    of that class; such a permutation is thrown away and the next one of the same generator is taken, so the
    split is still a function of the seed alone.

    Parameters
    ----------
    y : array-like of shape (n,)
    n_train, n_test : int
    seed : int

    Returns
    -------
    train, test : ndarray of shape (n_train,) and (n_test,)
        Row numbers.
    """
    labels = np.asarray(y)
    if n_train + n_test > len(labels):
        raise ReproductionError(f"{n_train} + {n_test} rows are asked for, but the data have {len(labels)}")
    classes, codes = np.unique(labels, return_inverse=True)
    if n_train < len(classes):
        raise ReproductionError(f"{n_train} training rows cannot hold all {len(classes)} classes")
    generator = np.random.default_rng(seed)
    for _ in range(_MAX_DRAWS):
        order = generator.permutation(len(labels))
        train, test = order[:n_train], order[n_train : n_train + n_test]
        if len(np.unique(codes[train])) == len(classes):
            return train, test
    raise ReproductionError(
        f"no split in {_MAX_DRAWS} has all {len(classes)} classes among its training rows"
    )


def standardise(X_train: ArrayLike, X_test: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the columns zero mean and unit variance, by the training rows alone.

    Missing values (NaN) take the training mean, which is 0 afterwards; a column that is constant or wholly
    missing among the training rows becomes 0 there and is only centred among the test rows.

    Parameters
    ----------
    X_train, X_test : array-like of shape (n_train, d) and (n_test, d)

    Returns
    -------
    X_train, X_test : ndarray of the same shapes
    """
    train, test = np.array(X_train, dtype=float), np.array(X_test, dtype=float)
    known = ~np.isnan(train)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, train, 0.0).sum(axis=0) / count
    filled = np.where(known, train, mean)
    centred = filled - mean
    deviation = np.sqrt((centred**2).mean(axis=0))
    # a constant column's deviation is rounding, of the size of its mean's last digits
    scale = np.where(deviation > 1e-12 * np.maximum(np.abs(mean), 1.0), deviation, 1.0)
    return centred / scale, (np.where(np.isnan(test), mean, test) - mean) / scale
