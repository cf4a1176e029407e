"""The windows estimator of posterior probabilities (Gönen, Tanuğur and Alpaydın 2008, eq. 14)."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin._warnings import warn
from polymargin.densities._base import Array, DensityClassifier
from polymargin.densities._neighbours import (
    TIE,
    Sample,
    mean_of_nearest,
    nearest_distances,
    window_counts,
)

#: The default radius in multiples of r0.
MULTIPLE = 2.0


class WindowPosterior(DensityClassifier):
    """Class probabilities as the shares of the classes among the training rows at most ``radius`` away.

    Scale the features first, for example with ``StandardScaler``: distances are Euclidean. A window around a new row
    that holds no training row says nothing, and the row gets the class frequencies of the training rows. A training row
    is in its own window.

    Parameters
    ----------
    radius : float or None, default=None
        The radius r of the windows. None is twice r0, the mean distance of the training rows to their nearest
        neighbours. (The paper tries one, two and four times r0. Of one to four times, twice had the best mean log-loss
        on fourteen datasets; in the plane four times is better, in many dimensions one to one and a half.)

    Attributes
    ----------
    radius_ : float
        The radius in use.
    r0_ : float
        The mean distance of the training rows to their nearest neighbours, `mean_nearest_distance`.
    classes_ : ndarray of shape (K,)
        The class labels.
    class_prior_ : ndarray of shape (K,)
        The share of every class in the training rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    KNNPosterior : Class probabilities by the nearest neighbours.
    PosteriorSVMClassifier : Hinge loss with soft labels, for noisy labels.

    References
    ----------
    .. [1] Tao, Q., Wu, G., Wang, F. and Wang, J. (2005). Posterior Probability Support Vector Machines for Unbalanced
       Data. IEEE Transactions on Neural Networks 16, 1561-1573.
    .. [2] Gönen, M., Tanuğur, A. G. and Alpaydın, E. (2008). Multiclass Posterior Probability Support Vector Machines.
       IEEE Transactions on Neural Networks 19.

    Examples
    --------
    >>> from polymargin import WindowPosterior
    >>> X, y = [[0.0], [1.0], [1.5], [4.0], [5.0]], ["a", "a", "b", "b", "b"]
    >>> model = WindowPosterior(radius=1.0).fit(X, y)
    >>> model.predict_proba([[0.6], [9.0]]).round(2)
    array([[0.67, 0.33],
           [0.4 , 0.6 ]])
    >>> model.training_proba().round(2)
    array([[1. , 0. ],
           [0.67, 0.33],
           [0.5 , 0.5 ],
           [0. , 1. ],
           [0. , 1. ]])
    """

    def __init__(self, radius: float | None = None):
        self.radius = radius

    def _fit_neighbourhood(self, sample: Sample) -> None:
        radius = self.radius
        if radius is not None:
            number = isinstance(radius, int | float | np.integer | np.floating) and not isinstance(
                radius, bool
            )
            if not number or not np.isfinite(radius) or radius <= 0:
                raise ValueError(
                    f"radius must be a positive number, or None for {MULTIPLE:g} times the mean distance of the rows "
                    f"to their nearest neighbours; not {radius!r}"
                )
        gaps = nearest_distances(sample)
        self.r0_ = mean_of_nearest(sample.totals, gaps) if sample.totals.sum() > 1.0 else 0.0
        self.radius_ = MULTIPLE * self.r0_ if radius is None else float(radius)
        lonely = (gaps > self.radius_ * (1.0 + TIE)).all()
        if lonely and (np.count_nonzero(sample.counts, axis=1) == 1).all():
            warn(
                f"no window of radius {self.radius_:.3g} around a training row holds another row, so the soft labels "
                f"are the hard ones; raise radius (the nearest two rows are {gaps.min():.3g} apart)",
                UserWarning,
            )

    def _new_posteriors(self, sample: Sample, queries: Any) -> Array:
        counts = window_counts(sample, queries, self.radius_)
        totals = counts.sum(axis=1, keepdims=True)
        shares = np.tile(sample.frequencies, (queries.shape[0], 1))
        return np.divide(counts, totals, out=shares, where=totals > 0.0)

    def _training_posteriors(self, sample: Sample, class_index: Array) -> Array:
        counts = window_counts(sample, sample.rows, self._radius(sample))
        return (counts / counts.sum(axis=1, keepdims=True))[sample.place]

    def _radius(self, sample: Sample) -> float:
        """Return the radius for this training set."""
        if self.radius is not None:
            return float(self.radius)
        return MULTIPLE * mean_of_nearest(sample.totals, nearest_distances(sample))
