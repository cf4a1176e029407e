"""Small problems that several test files share."""

import numpy as np


def blobs(n=36, K=3, d=3, seed=0, spread=1.0, shift=1.6):
    """K overlapping classes of unequal size in d dimensions: rows X and class indices y, in random order."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(K), rng.choice(K, size=n - K, p=np.arange(2, K + 2) / np.arange(2, K + 2).sum())]
    centres = shift * rng.normal(size=(K, d))
    return centres[y] + spread * rng.normal(size=(n, d)), y
