"""Further rows for a model of landmarks, and the merging of two: their statistics are added up, and solved again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin.estimators._scaled import DecoderJudge
from polymargin.rows import TrainingRows
from polymargin.scale.bank import ScaledBank
from polymargin.scale.feature_maps import ExplicitMap, LandmarkMap
from polymargin.scale.fitting import BlockStatistics
from polymargin.scale.landmark_bank import LandmarkBank, features_of, fit_landmark_bank
from polymargin.scale.landmark_search import Searched, fit_searched, search_feature_map
from polymargin.scale.statistics import ClassStatistics

Array = NDArray[Any]


def landmarks_of(bank: Any) -> tuple[LandmarkBank, ClassStatistics]:
    """Return the landmark machines of a bank and their statistics; raise ValueError if it has none to add to.

    Parameters
    ----------
    bank : ScaledBank or LSSVMBank
        The machines of a fitted estimator.

    Returns
    -------
    landmarks : LandmarkBank
    statistics : ClassStatistics
    """
    landmarks = bank.landmarks if isinstance(bank, ScaledBank) else None
    if landmarks is None or landmarks.statistics is None or bank.leaves is not None:
        raise ValueError(
            'only models of landmarks can take further rows or be merged: fit with scale="landmarks"'
        )
    return landmarks, landmarks.statistics


def statistics_of(bank: ScaledBank, rows: TrainingRows) -> ClassStatistics:
    """Return the statistics of further rows in the feature space of a bank.

    Parameters
    ----------
    bank : ScaledBank
        The machines.
    rows : TrainingRows
        The rows.

    Returns
    -------
    ClassStatistics
    """
    landmarks, statistics = landmarks_of(bank)
    of_block = BlockStatistics(landmarks.features, bank.codebook.n_classes, statistics.together)
    return of_block.in_blocks(rows)


def same_map(one: LandmarkMap | ExplicitMap, other: LandmarkMap | ExplicitMap) -> bool:
    """Return whether two feature maps are the same, so that their statistics can be added.

    Parameters
    ----------
    one, other : LandmarkMap or ExplicitMap
        The maps.

    Returns
    -------
    bool
    """
    if type(one) is not type(other) or one.n_features != other.n_features or one.gamma != other.gamma:
        return False
    if not np.array_equal(one.centre, other.centre):
        return False
    if isinstance(one, LandmarkMap) and isinstance(other, LandmarkMap):
        # Equal whitening of equal landmarks: the kernels agree, whatever they have learned from their rows.
        return _equal(one.landmarks, other.landmarks) and np.array_equal(one.whitening, other.whitening)
    assert isinstance(one, ExplicitMap)
    assert isinstance(other, ExplicitMap)
    own, others = one.kernel.centre, other.kernel.centre
    same_centre = own is others or (own is not None and others is not None and np.array_equal(own, others))
    return one.unit == other.unit and np.array_equal(one.scales, other.scales) and same_centre


def _equal(one: Any, other: Any) -> bool:
    if sparse.issparse(one) or sparse.issparse(other):
        return one.shape == other.shape and abs(sparse.csr_array(one) - sparse.csr_array(other)).nnz == 0
    return np.array_equal(one, other)


def joined_rows(one: TrainingRows, other: TrainingRows, kept: Array, random_state: Any) -> TrainingRows:
    """Return some of the rows of two sets, one after the other, dealt anew.

    Parameters
    ----------
    one, other : TrainingRows
        The rows.
    kept : ndarray of int
        Which of them.
    random_state : int, RandomState instance or None
        Deals the rows.

    Returns
    -------
    TrainingRows
    """
    X: Any
    if sparse.issparse(one.X) or sparse.issparse(other.X):
        X = sparse.vstack([one.X, other.X]).tocsr()
    else:
        X = np.concatenate([one.X, other.X])
    soft = None
    if one.soft_labels is not None and other.soft_labels is not None:
        soft = np.concatenate([one.soft_labels, other.soft_labels])[kept]
    return TrainingRows(
        one.kernel,
        X[kept],
        np.concatenate([one.class_index, other.class_index])[kept],
        np.concatenate([one.weights, other.weights])[kept],
        soft,
    ).shuffled(random_state)


def solved_again(
    bank: ScaledBank,
    statistics: ClassStatistics,
    rows: TrainingRows,
    C: float | None,
    judge: DecoderJudge | None,
    significance: float,
) -> ScaledBank:
    """Return the machines of other statistics in the same feature space.

    Parameters
    ----------
    bank : ScaledBank
        The machines so far.
    statistics : ClassStatistics
        The statistics of all rows.
    rows : TrainingRows
        The decoder's sample of them.
    C : float or None
        The regularisation, if it is given.
    judge : DecoderJudge or None
        The decoder by which C is chosen.
    significance : float
        How many standard errors another C must gain.

    Returns
    -------
    ScaledBank
    """
    landmarks, _ = landmarks_of(bank)
    features = landmarks.features
    if C is not None:
        phi = features_of(features, rows.X)
        found = fit_landmark_bank(statistics, features, bank.codebook, C, rows, phi, keep_statistics=True)
    else:
        searched = Searched(features, 1.0)
        if judge is not None:
            # As in the fit to all rows at once, so that it does not matter in which parts they came.
            searched = search_feature_map(
                lambda _: features,
                lambda features, some: statistics_of(bank, some),
                features.gamma,
                rows,
                bank.codebook,
                judge,
                significance=significance,
                fixed_gamma=True,
            )
        found = fit_searched(
            searched,
            statistics,
            bank.codebook,
            rows,
            judge,
            significance=significance,
            keep_statistics=True,
        )
    return replace(
        bank, data=rows, landmarks=found[0], loo_margins=found[1], honest_margins=found[2], leak=None
    )
