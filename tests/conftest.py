"""Small problems that several test files share, and one BLAS thread for all of them."""

import numpy as np
import scipy.linalg  # noqa: F401  (brings a BLAS of its own, which must be there to be limited)
from threadpoolctl import threadpool_limits

# Many threads for small matrices, in several test processes at once, make the tests slower by a factor.
threadpool_limits(1)


def blobs(n=36, K=3, d=3, seed=0, spread=1.0, shift=1.6):
    """K overlapping classes of unequal size in d dimensions: rows X and class indices y, in random order."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(K), rng.choice(K, size=n - K, p=np.arange(2, K + 2) / np.arange(2, K + 2).sum())]
    centres = shift * rng.normal(size=(K, d))
    return centres[y] + spread * rng.normal(size=(n, d)), y
