"""The k-nearest-neighbour estimator of posterior probabilities (Gönen, Tanuğur and Alpaydın 2008, eq. 15)."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin.densities._base import Array, DensityClassifier
from polymargin.densities._neighbours import Sample, nearest_counts


class KNNPosterior(DensityClassifier):
    """Class probabilities k_j/k: the shares of the classes among the k nearest training rows.

    Scale the features first, for example with ``StandardScaler``: distances are Euclidean. Where rows at the same
    distance do not all find a place among the k, they share the places that are left, so that the order of the training
    rows does not matter.

    Parameters
    ----------
    n_neighbors : int, default=5
        k. A training row is its own first neighbour (`training_proba`).

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    class_prior_ : ndarray of shape (K,)
        The share of every class in the training rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    WindowPosterior : Class probabilities by the rows in a window.
    PosteriorSVMClassifier : Hinge loss with soft labels, for noisy labels.

    References
    ----------
    .. [1] Gönen, M., Tanuğur, A. G. and Alpaydın, E. (2008). Multiclass Posterior Probability Support Vector Machines.
       IEEE Transactions on Neural Networks 19.

    Examples
    --------
    >>> from polymargin import KNNPosterior
    >>> X, y = [[0.0], [1.0], [1.5], [4.0], [5.0]], ["a", "a", "b", "b", "b"]
    >>> model = KNNPosterior(n_neighbors=3).fit(X, y)
    >>> model.predict_proba([[4.9]])
    array([[0., 1.]])
    >>> model.training_proba().round(2)
    array([[0.67, 0.33],
           [0.67, 0.33],
           [0.67, 0.33],
           [0.  , 1.  ],
           [0.  , 1.  ]])
    """

    def __init__(self, n_neighbors: int = 5):
        self.n_neighbors = n_neighbors

    def _fit_neighbourhood(self, sample: Sample) -> None:
        k = self.n_neighbors
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise ValueError(f"n_neighbors must be a positive whole number, not {k!r}")
        rows, total = sample.place.size, float(sample.totals.sum())
        if k > total >= rows:
            raise ValueError(
                f"n_neighbors={k} is more than the {total:g} training rows (n_samples={rows}): lower n_neighbors"
            )
        if k > total:
            raise ValueError(
                f"n_neighbors={k} is more than {total:g}, the sum of the sample weights. A weight is a number of "
                "copies of its row: scale the weights such that an ordinary row has weight one, or lower n_neighbors"
            )

    def _new_posteriors(self, sample: Sample, queries: Any) -> Array:
        k = self._available(sample)
        return nearest_counts(sample, queries, k) / k

    def _training_posteriors(self, sample: Sample, class_index: Array) -> Array:
        # Copies of a row in the same class have the same neighbours.
        n_classes = sample.counts.shape[1]
        pairs, inverse = np.unique(sample.place * n_classes + class_index, return_inverse=True)
        own = (pairs // n_classes, pairs % n_classes)
        k = self._available(sample)
        return (nearest_counts(sample, sample.rows[own[0]], k, own) / k)[inverse]

    def _available(self, sample: Sample) -> float:
        """Return k, or the weight of all rows where that is less."""
        return min(float(self.n_neighbors), float(sample.totals.sum()))
