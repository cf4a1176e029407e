"""Probabilities with classes, and bins as lists of rows, which tests of metrics share."""

import math
from fractions import Fraction

import numpy as np


def problem(seed, n=60, n_classes=3, decimals=None):
    """Probabilities (rounded so that ties occur, if asked) and classes that know something of them."""
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.ones(n_classes), n)
    if decimals is not None:
        p = np.round(p, decimals)
        p[:, -1] = np.round(1.0 - p[:, :-1].sum(axis=1), decimals)
        p = np.abs(p)
        p /= p.sum(axis=1, keepdims=True)
    index = np.array([generator.choice(n_classes, p=0.7 * row + 0.3 / n_classes) for row in p])
    return index, p, generator.integers(0, 4, n)


def naive_bins(values, weights, n_bins):
    """Lists of rows: each distinct value goes to the bin in which the middle of its weight lies."""
    total, below, bins = sum(weights), 0, {}
    for value in sorted(set(values)):
        rows = [i for i, v in enumerate(values) if v == value]
        mass = sum(weights[i] for i in rows)
        middle = Fraction(2 * below + mass, 2 * total)
        below += mass
        number = len(bins) if n_bins is None else min(math.floor(middle * n_bins), n_bins - 1)
        bins.setdefault(number, []).extend(rows)
    return [bins[number] for number in sorted(bins)]


def counting(index, p, weights):
    keep = weights > 0
    return index[keep], p[keep], [int(w) for w in weights[keep]]
