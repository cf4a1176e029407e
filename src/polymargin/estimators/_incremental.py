"""Further rows for a model of landmarks, and the merging of two: their statistics are added up, and solved again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from polymargin.decoders import ProbabilisticDecoder, resolve_decoder
from polymargin.estimators._available import available_if
from polymargin.estimators._scaled import DecoderJudge
from polymargin.estimators._validation import settings_of
from polymargin.machines._workspace import SharedWork
from polymargin.rows import TrainingRows
from polymargin.scale.bank import ScaledBank
from polymargin.scale.feature_maps import ExplicitMap, LandmarkMap
from polymargin.scale.landmark_bank import LandmarkBank, features_of, fit_landmark_bank
from polymargin.scale.landmark_search import Searched, fit_searched, search_feature_map
from polymargin.scale.sources import BlockStatistics
from polymargin.scale.statistics import ClassStatistics
from polymargin.selection.settings import DEFAULT, SearchSettings

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


def _grows(estimator: Any) -> bool:
    """Return True if rows can be added to the model; else raise the AttributeError that `available_if` shows."""
    if estimator.scale != "landmarks":
        raise AttributeError(
            f'only models of landmarks take further rows: scale="landmarks", not {estimator.scale!r}'
        )
    return True


class GrowingMixin:
    """What `LSSVMClassifier` has for models of landmarks: further rows, and merging."""

    # Parameters and fitted attributes of the estimator.
    scale: str
    C: float | None
    class_weight: Any
    decoding: Any
    random_state: Any
    search: SearchSettings | None
    selection: str | None
    classes_: Array
    support_: Array
    n_support_: Array
    bank_: Any
    codebook_: Any
    decoder_: Any
    n_rows_: int
    _loss: ClassVar[str]
    _priorities: Array
    _scaling: Any
    _weight_unit: float
    kernel_: Any
    fit: Any
    _fit_decoder: Any

    @available_if(_grows)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Add rows to a model of landmarks (``scale="landmarks"``).

        The first call is a `fit`: kernel, gamma and landmarks are chosen from its rows, which must have all classes.
        Later calls add the statistics of their rows, and solve the machines and fit the decoder again: the result is
        that of all rows together, in any order, but for the sample from which the decoder learns if there are more rows
        than its size.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Further training rows, each of which counts as an observation of its own.
        y : array-like of shape (n_samples,)
            Their class labels.
        classes : array-like of shape (K,) or None
            All classes; not needed, since the first call must have rows of each. Given, it is checked.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights.

        Returns
        -------
        self : LSSVMClassifier
            The fitted estimator.

        Examples
        --------
        >>> from polymargin import LSSVMClassifier
        >>> from polymargin.datasets import make_waveform
        >>> X, y = make_waveform(600, random_state=0)
        >>> model = LSSVMClassifier(scale="landmarks", n_landmarks=50).partial_fit(X[:300], y[:300])
        >>> model.partial_fit(X[300:], y[300:]).n_rows_
        600
        """
        n = len(y)  # type: ignore[arg-type]
        first = not hasattr(self, "decoder_")
        if classes is not None:
            named, known = (
                np.unique(np.asarray(classes)),
                np.unique(np.asarray(y)) if first else self.classes_,
            )
            if first and not np.isin(named, known).all():
                missing = named[~np.isin(named, known)].tolist()
                raise ValueError(
                    f"the first call of partial_fit must have rows of every class of classes={named.tolist()}, and has "
                    f"none of {missing}: gather more rows for the first call; classes cannot stand for them"
                )
            if not np.array_equal(named, known):
                raise ValueError(
                    f"classes={named.tolist()} is not the same as the labels of the first call of partial_fit, "
                    f"{known.tolist()}: leave classes out, or fit again to rows of all classes"
                )
        if first:
            self.fit(X, y, sample_weight, np.arange(n))
            return self
        landmarks_of(self.bank_)
        checked, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=False)
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise ValueError(
                f"class {np.asarray(y)[unknown].tolist()[0]!r} was not among the rows of the first call"
            )
        if self.class_weight is not None:
            raise ValueError("partial_fit takes no class_weight: multiply sample_weight by it instead")
        weights = _check_sample_weight(sample_weight, checked, dtype=np.float64, ensure_non_negative=True)
        kept = np.flatnonzero(weights)
        rows = TrainingRows(
            self.kernel_,
            checked[kept],
            np.searchsorted(self.classes_, np.asarray(y)[kept]),
            weights[kept] / self._weight_unit,
        )
        assert isinstance(self.bank_, ScaledBank)
        seed = self.bank_.data.deal.seed
        priorities = np.random.default_rng([seed, self.n_rows_]).random(kept.size)
        support = self.n_rows_ + kept
        return self._add(rows, statistics_of(self.bank_, rows), priorities, support, weights.size)

    @available_if(_grows)
    def merge(self, other: Any) -> Any:
        """Add the rows of another model of the same landmarks (``scale="landmarks"``) to this one.

        Both must have the same feature map: give both the same ``n_landmarks`` (an array of rows), ``gamma``, and a
        kernel that learns nothing from its rows, such as "rbf". No row is looked at again but the decoders' samples.

        Parameters
        ----------
        other : LSSVMClassifier
            The other model, which is not changed.

        Returns
        -------
        self : LSSVMClassifier
            The model of all rows of both.
        """
        if other is self:
            raise ValueError(
                "a model cannot be merged with itself, which would count all of its rows twice: merge models of "
                "different rows"
            )
        check_is_fitted(self)
        check_is_fitted(other)
        (mine, _), (theirs, statistics) = landmarks_of(self.bank_), landmarks_of(other.bank_)
        if not np.array_equal(self.classes_, other.classes_) or self.codebook_ != other.codebook_:
            raise ValueError("models that are merged must have the same classes and the same codebook")
        if not same_map(mine.features, theirs.features) or self._weight_unit != other._weight_unit:
            raise ValueError(
                "models that are merged must have the same feature map: give both the same landmarks "
                '(n_landmarks=rows), the same gamma, and a kernel that learns nothing from its rows, such as "rbf"'
            )
        assert isinstance(other.bank_, ScaledBank)
        rows = replace(other.bank_.data, kernel=self.kernel_)
        support = self.n_rows_ + other.support_
        return self._add(rows, statistics, other._priorities, support, other.n_rows_)

    def _add(
        self,
        rows: TrainingRows,
        statistics: ClassStatistics,
        priorities: Array,
        support: Array,
        n_rows: int,
    ) -> Any:
        """Add statistics of further rows, some of which join the decoder's sample: those of least priority."""
        bank = self.bank_
        assert isinstance(bank, ScaledBank)
        decoder = resolve_decoder(self.decoding, self._loss)
        judge = None
        if decoder.learns_probabilities and not decoder.in_sample and self.selection == "loo":
            assert isinstance(decoder, ProbabilisticDecoder)
            judge = DecoderJudge(decoder)
        known = landmarks_of(bank)[1]
        together = np.concatenate([self._priorities, priorities])
        kept = np.sort(np.argsort(together, kind="stable")[: self._scaling.decoder_rows])
        data = joined_rows(bank.data, rows, kept, self.random_state)
        settings = settings_of("search", self.search, DEFAULT)
        C = None if self.C is None else self.C * self._weight_unit
        arguments = C, judge, settings.significance
        self.__dict__.pop("decoder_", None)
        self.bank_ = solved_again(bank, known + statistics, data, *arguments)
        self._priorities = together[kept]
        self.support_ = np.concatenate([self.support_, support])[kept]
        self.n_support_ = np.bincount(data.class_index, minlength=self.classes_.size)
        self.n_rows_ += n_rows
        self.decoder_ = self._fit_decoder(decoder, data, SharedWork(keep=False), None)
        return self
