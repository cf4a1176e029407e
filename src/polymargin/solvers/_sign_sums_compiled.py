"""Sums of signs in a compiled loop: two to six times as fast, once numba is imported and the loop is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin.solvers._compile import compiled

#: The rows of an inner loop over signs, which stay in the cache.
_CHUNK = 512


@compiled(nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def subtract_sign_sums(gradients: Any, phi: Any, Z: Any, X: Any, a: Any, steepness: Any) -> None:
    """Do what `_sign_sums.subtract_sign_sums` does, with the same parameters.

    Rows run fastest: every inner loop is a contiguous, vectorised one, and all machines share the signs.
    """
    n = phi.shape[1]
    shares, signs = np.empty((a.shape[0], _CHUNK)), np.empty(_CHUNK)
    for m in range(Z.shape[0]):
        for start in range(0, n, _CHUNK):
            size = min(_CHUNK, n - start)
            factors = phi[m, start : start + size]
            for p in range(a.shape[0]):
                share, own = shares[p], a[p, start : start + size]
                for i in range(size):
                    share[i] = factors[i] * own[i]
            for j in range(X.shape[0]):
                x, z, steep = X[j, start : start + size], Z[m, j], steepness[j]
                for i in range(size):
                    u = (z - x[i]) * steep
                    u = u if u < 1.0 else 1.0
                    signs[i] = u if u > -1.0 else -1.0
                for p in range(a.shape[0]):
                    share, total = shares[p], 0.0
                    for i in range(size):
                        total += share[i] * signs[i]
                    gradients[p, m, j] -= total
