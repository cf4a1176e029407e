"""AutoKernelClassifier: a pool of least-squares classifiers with different kernels and codings, and any others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from polymargin._progress import Count, shown
from polymargin._threads import FEW_ROWS, blas_threads_for, count_jobs
from polymargin._warnings import Warned, collected, warn_once
from polymargin.cluster import is_dask
from polymargin.codebooks import adaptive_coding, resolve_codebook
from polymargin.decoders import resolve_decoder
from polymargin.decoders._base import FOLDS, prior_shift, reweighted
from polymargin.decoders.pooled import cross_pooled
from polymargin.estimators._arrays import device_name, same_kind_of_array, to_numpy
from polymargin.estimators._base import ProbabilisticMixin
from polymargin.estimators._dask import GatherMixin, fit_on_cluster, lazy_on_dask
from polymargin.estimators._decisions import DecisionsMixin
from polymargin.estimators._flow import in_own_threads
from polymargin.estimators._members import (
    Prior,
    fit_by_folds,
    resolve_member,
    seed,
    smoothed_log_proba,
    takes_gram,
)
from polymargin.estimators._metric import spread
from polymargin.estimators._soft_labels import (
    DecoderRows,
    SoftScoreMixin,
    column_names,
    decoder_rows,
    decoder_shares,
    one_of_each_row,
)
from polymargin.estimators._validation import check_rows, resolve_priors
from polymargin.estimators.lssvm import LSSVMClassifier
from polymargin.inspection.html import ChoicesMixin
from polymargin.kernels import FunctionKernel, Linear, Precomputed
from polymargin.machines import TrainingRows
from polymargin.scale.plan import ScalePlan
from polymargin.scale.settings import ScaleSettings
from polymargin.scale.sources import RowSource
from polymargin.solvers.pooling import pool_weights, pooled

Array = NDArray[Any]


class AutoKernelClassifier(
    GatherMixin,
    ProbabilisticMixin,
    DecisionsMixin,
    ChoicesMixin,
    SoftScoreMixin,
    ClassifierMixin,
    BaseEstimator,
):
    """Log-linear pool of classifiers with different kernels and codings, with no parameters to tune.

    Each member is an `LSSVMClassifier`, which tunes and calibrates itself, or any other classifier with probabilities.
    The pool is the normalised π Π (p_m/π)^u_m, with the class frequencies π and weights u ≥ 0 that minimise the
    log-loss on the members' out-of-sample probabilities. It costs as much as its members together, and is better than
    the best of them more often than not.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    members : list of classifiers and names, or None, default=None
        The members, which are cloned. An `LSSVMClassifier` needs a probabilistic decoding that is learned; its
        out-of-sample probabilities are the leave-one-out ones, and its ``class_weight``, ``priors``, ``classes`` and
        ``random_state`` are set to those of the pool. A name ("blend", "poly", "laplacian", "exponential", "rbf",
        "linear") stands for ``LSSVMClassifier(kernel=name)``, where "poly" has degree 2 and centred rows; "default"
        stands for the three default members. Any other classifier with ``predict_proba``, or a pipeline, is fitted in
        five-fold cross-validation for its out-of-sample probabilities, and then on all rows. It is given the rows as an
        array, weights and groups if its ``fit`` accepts them (if it does not accept weights, passing weights is an
        error), and the random state if it has none of its own. Its probabilities are smoothed away from zero, by one
        additional row divided in proportion to the class frequencies. None: one-vs-one machines with "blend" and
        "poly" (one-vs-all machines if there are more than 64 classes), and one-vs-all machines with "laplacian" on the
        ranks of the columns.
    metric : "learned" or None, default="learned"
        Whether the default members with "blend" and "laplacian" learn a metric, that is weights of the columns, see
        `LSSVMClassifier`. None is about three times as fast.
    scale : {"auto", "exact", "leaves", "landmarks", "both"}, default="auto"
        The method for many rows, see `LSSVMClassifier`: either all members are exact, or none. It applies to members
        that do not set it themselves.
    n_landmarks : int or None, default=None
        The number of landmarks of these members; None to choose it.
    scaling : ScaleSettings or None, default=None
        The sizes of leaves and samples of these members (`polymargin.scale.ScaleSettings`); None for the defaults.
    device : {"cpu", "cuda", "cuda:<number>"} or None, default=None
        The device on which the machines of these members are trained and evaluated, see `LSSVMClassifier`.
    class_weight : dict, "balanced" or None, default=None
        Factors that multiply the weights of the rows of each class; "balanced": inversely proportional to the class
        frequencies. The probabilities are those for the class proportions of the weighted rows.
    priors : None, "uniform", "empirical", array of shape (K,) or dict, default=None
        The class frequencies to expect in use; a dict maps class labels to frequencies. None, the same as "empirical":
        as in training.
    classes : array-like of shape (K,) or None, default=None
        The class labels of the columns of y if `fit` is given soft labels; None for the names of a DataFrame's columns,
        else 0, …, K−1. With labels in y, None, or the labels that y has.
    n_jobs : int or None, default=None
        The number of members fitted in parallel with joblib, whose backend is set with ``joblib.parallel_config``. The
        result does not depend on it. With many rows, members are fitted one after the other, and each uses as many
        threads, or processes, see `LSSVMClassifier`. Predictions use threads, too.
    verbose : int, default=0
        Whether ``fit`` shows its progress.
    random_state : int, RandomState instance or None, default=None
        Seeds the folds and samples of all members; None is the same as 0.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    members_ : list of classifiers
        The fitted members.
    support_ : ndarray of int, shape (n_support,)
        Indices of the training rows that are used: those of positive weight; of exact duplicates in one group, only the
        first.
    weights_ : ndarray of shape (M,)
        The weights of the members. They need not sum to one: if the errors of the members are independent, the pool is
        more confident than each member alone.
    member_losses_ : ndarray of shape (M,)
        The held-out log-loss of every member.
    plan_ : ScalePlan
        How the fit of the first `LSSVMClassifier` member was divided, and why; that of others is their own ``plan_``.
    log_prior_ : ndarray of shape (K,)
        The logarithms of the class frequencies, which the pool predicts where the members are uninformative.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors), which is added to the log-probabilities; zero unless priors are given.
    loo_log_proba_ : ndarray of shape (n_support, K)
        The pool's log-probabilities of the training rows `support_`, each held out from the machines, the decoders and
        the weights of the members.
    loo_log_loss_ : float
        The log-loss of `loo_log_proba_`, with the weights of the rows.
    feature_relevance_ : ndarray of shape (n_features,)
        How much the members depend on every column: the weighted mean of their ``feature_relevance_``, over the members
        that have one; sums to one. A sensitivity, not a causal effect.
    feature_relevance_folds_, feature_relevance_std_ : ndarray of shape (n_folds, n_features) and (n_features,), or None
        The same mean in every fold, over the members that were to learn a metric, and its standard deviation; None if
        there is no such member.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    LSSVMClassifier : Least-squares dichotomies, tuned and calibrated by leave-one-out outputs.
    KernelLogisticClassifier : All classes at once, by the cross-entropy, without dichotomies.
    PosteriorSVMClassifier : Hinge loss with soft labels, for noisy labels.

    Notes
    -----
    The pool is log-linear: ``p(k | x) ∝ prior(k) Π_m (p_m(k | x) / prior(k))^weight_m``, with non-negative weights that
    are fitted to held-out probabilities of the training rows. Unlike the mean of the members' probabilities, it can be
    more confident than each of them, if their errors are independent.

    References
    ----------
    .. [1] Suykens, J. A. K. and Vandewalle, J. (1999). Least Squares Support Vector Machine Classifiers. Neural
       Processing Letters 9, 293-300.
    .. [2] Genest, C. and Zidek, J. V. (1986). Combining Probability Distributions: A Critique and an Annotated
       Bibliography. Statistical Science 1, 114-135 (logarithmic pools).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import AutoKernelClassifier
    >>> X_train, X_test, y_train, y_test = train_test_split(*load_wine(return_X_y=True), random_state=0)
    >>> model = make_pipeline(StandardScaler(), AutoKernelClassifier()).fit(X_train, y_train)
    >>> model.score(X_test, y_test)
    1.0
    >>> model.predict_proba(X_test[:1]).round(2)
    array([[1., 0., 0.]])

    With boosted trees as an additional member:

    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> pool = AutoKernelClassifier(["default", HistGradientBoostingClassifier()])
    >>> make_pipeline(StandardScaler(), pool).fit(X_train, y_train).score(X_test, y_test)
    1.0
    """

    #: The GPU on which the training rows were, if they were on one.
    _rows_on: str | None = None

    def __init__(
        self,
        members: Sequence[Any] | None = None,
        *,
        metric: str | None = "learned",
        scale: str = "auto",
        n_landmarks: int | None = None,
        scaling: ScaleSettings | None = None,
        device: str | None = None,
        class_weight: Any = None,
        priors: Any = None,
        classes: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.members = members
        self.metric = metric
        self.scale = scale
        self.n_landmarks = n_landmarks
        self.scaling = scaling
        self.device = device
        self.class_weight = class_weight
        self.priors = priors
        self.classes = classes
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> AutoKernelClassifier:
        """Fit the members and their weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), or of shape (n_samples, K)
            Class labels, or, where all members are `LSSVMClassifier` objects, soft labels: the probabilities of the
            classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights, which multiply the losses of the rows; a row of weight zero is ignored.
        groups : array-like of shape (n_samples,), default=None
            The group of every row, such as the patient or the session it comes from, or the row it is a copy of. Rows
            of one group count as one observation: they are left out together. None: every row is its own group, except
            likely duplicates, which are grouped, with a warning.

        Returns
        -------
        self : AutoKernelClassifier
            The fitted estimator.
        """
        if is_dask(X):
            return fit_on_cluster(self, X, y, sample_weight, groups)
        self._rows_on = device_name(X)
        X, y, sample_weight, groups = map(to_numpy, (X, y, sample_weight, groups))
        self.__dict__.pop("weights_", None)
        members, random_state = self._resolved_members()
        precomputed = {takes_gram(member) for member in members}
        if len(precomputed) > 1:
            raise ValueError(
                "either all members or none must have a precomputed kernel: X is one or the other"
            )
        with collected() as warned:
            checked = check_rows(
                self,
                X,
                y,
                sample_weight,
                groups,
                precomputed=precomputed.pop(),
                class_weight=self.class_weight,
                # Kernel members make a copy, which is shared.
                copy=not any(isinstance(member, LSSVMClassifier) for member in members),
            )
        # The rows are validated, class weights are multiplied into the weights, and copies are merged.
        groups = np.arange(checked.support.size) if checked.groups is None else checked.groups
        labels = np.asarray(y)[checked.support]
        if checked.soft_labels is None:
            labels = labels.ravel()
        else:  # an array has no names of columns
            for member in members:
                if isinstance(member, LSSVMClassifier):
                    member.set_params(classes=column_names(y, self.classes))
        data = TrainingRows(
            Precomputed() if takes_gram(members[0]) else Linear(),
            checked.X,
            checked.class_index,
            checked.weights,
            checked.soft_labels,
            checked.groups,
        ).shuffled(random_state)
        foreign = [member for member in members if not isinstance(member, LSSVMClassifier)]
        if foreign and checked.soft_labels is not None:
            raise ValueError(
                f"soft labels are for pools of LSSVMClassifier members only: {foreign[0]!r} takes labels"
            )
        counts = np.bincount(checked.class_index, minlength=checked.classes.size)
        _plan_together(members, counts, checked.X.shape[1])
        weighted = sample_weight is not None or self.class_weight is not None
        rows = _MemberRows(data, labels, groups, weighted and np.ptp(checked.weights) > 0.0)
        with shown(self.verbose) as progress:
            count = Count(progress, "members", "members")
            count.expect(len(members))
            members, honest = self._fit_members(members, rows, count, warned)
        # Of many rows the kernel members know the out-of-sample probabilities of a sample, the same for all.
        sample = next(
            (
                member.support_
                for member in members
                if isinstance(member, LSSVMClassifier) and member.plan_.scale != "exact"
            ),
            None,
        )
        support = checked.support if sample is None else checked.support[sample]
        if sample is not None:
            data = data.take(sample)
        for number, member in enumerate(members):
            if isinstance(member, LSSVMClassifier):
                member.support_ = member._trained_rows = support
                member.n_features_in_ = self.n_features_in_
                data = member.bank_.data  # which all of them share
            elif sample is not None:
                honest[number] = honest[number][sample]
        return self._weigh(members, honest, data, checked.classes, support)

    def _fit_source(self, source: RowSource, classes: Array) -> AutoKernelClassifier:
        """Fit to rows that are not in memory: in files, or on a cluster. They are never fitted exactly.

        Parameters
        ----------
        source : RowSource
            The rows.
        classes : ndarray of shape (K,)
            The class labels, ascending.
        """
        self.__dict__.pop("weights_", None)
        members, _ = self._resolved_members()
        foreign = [member for member in members if not isinstance(member, LSSVMClassifier)]
        if foreign:
            raise ValueError(
                f"rows that are not in memory can be fitted by LSSVMClassifier members only, not by {foreign[0]!r}"
            )
        with shown(self.verbose) as progress:
            count = Count(progress, "members", "members")
            count.expect(len(members))
            for member in members:
                member.set_params(n_jobs=self.n_jobs)._fit_source(source, classes, progress)
                count.advance()
        self.n_features_in_ = members[0].n_features_in_
        honest = [member._honest()[1] for member in members]
        return self._weigh(members, honest, members[0].bank_.data, classes, members[0].support_)

    def _weigh(
        self, members: list[Any], honest: list[Array], data: TrainingRows, classes: Array, support: Array
    ) -> AutoKernelClassifier:
        """Set the weights of fitted members, by their out-of-sample log-probabilities of the rows of `data`."""
        decoded = _without_leaks(decoder_rows(data, None), members, data)
        self.classes_, self.support_, self._data = classes, support, data
        class_weights = np.bincount(decoded.class_index, decoded.weights, minlength=classes.size)
        priors = resolve_priors(self.priors, class_weights, classes)
        self.prior_shift_ = prior_shift(priors, decoded.class_index, class_weights.size, decoded.weights)
        self.members_ = members
        self.log_prior_ = np.log((class_weights + 0.5) / (class_weights + 0.5).sum())
        own = np.arange(decoded.class_index.size), decoded.class_index
        share = decoded.weights / decoded.weights.sum()
        self.member_losses_ = np.array([-float(share @ log_q[own]) for log_q in honest])
        with blas_threads_for(0):
            weights = pool_weights(honest, decoded.class_index, decoded.weights, self.log_prior_)
            numbers = data.deal.fold_numbers(FOLDS)
            if data.soft_labels is not None:
                numbers = numbers[np.nonzero(data.soft_labels)[0]]
            log_p = cross_pooled(honest, decoded.class_index, decoded.weights, class_weights.size, numbers)
        self.loo_log_loss_ = -float(share @ log_p[own])
        self.loo_log_proba_ = one_of_each_row(data, log_p)
        self.weights_ = weights
        return self

    @same_kind_of_array
    @lazy_on_dask
    @in_own_threads
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithms of the class probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for members with a precomputed kernel.

        Returns
        -------
        ndarray of shape (n_samples, K)
            The log-probabilities, in the order of ``classes_``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        log_p = pooled(
            [self._log_proba(member, X) for member in self.members_], self.weights_, self.log_prior_
        )
        return reweighted(log_p, self.prior_shift_)

    def _log_proba(self, member: Any, X: Any) -> Array:
        """Return the log-probabilities of new rows, which are validated, by a member, shape (n, K)."""
        if isinstance(member, LSSVMClassifier):
            return member.predict_log_proba(X)
        X = X[:, self.support_] if self._data.kernel.precomputed else X
        return smoothed_log_proba(member, X, self.classes_, self._prior)

    @property
    def _prior(self) -> Prior:
        """The class frequencies, and the number of rows."""
        return Prior(np.exp(self.log_prior_), float(self._data.effective_weights.sum()))

    def _fit_members(
        self, members: list[Any], rows: _MemberRows, count: Count, warned: list[Warned]
    ) -> tuple[list[Any], list[Array]]:
        """Return the fitted members, and the out-of-sample log-probabilities of the training rows by each.

        What any of them warns of, or was warned of before, is told once.
        """
        n_rows = np.shape(rows.labels)[0]
        # With many rows memory may suffice for one member at a time only, whose groups of rows have the threads then.
        n_jobs = 1 if n_rows > FEW_ROWS else min(count_jobs(self.n_jobs), len(members))
        # Not every backend can return one result after the other.
        fits = Parallel(n_jobs=n_jobs, return_as="generator" if n_jobs == 1 else "list")(
            delayed(_fitted)(member, rows, self.n_jobs if n_jobs == 1 else None) for member in members
        )
        fitted, honest = [], []
        for member, log_proba, more in fits:
            fitted.append(member)
            honest.append(log_proba)
            warned += more
            count.advance()
        warn_once(warned)
        kernel_members = [
            pair for pair in zip(fitted, members, strict=True) if isinstance(pair[0], LSSVMClassifier)
        ]
        for member, given in kernel_members:
            _share_rows(kernel_members[0][0], member, given)
        return fitted, honest

    def _resolved_members(self) -> tuple[list[Any], int]:
        """Return fresh members, and the random state of all."""
        if self.metric is not None and not (isinstance(self.metric, str) and self.metric == "learned"):
            raise ValueError(
                f'metric must be "learned" or None, not {self.metric!r}: widths are for members, such as '
                "LSSVMClassifier(metric=widths)"
            )
        if isinstance(self.members, (str, dict)) or hasattr(self.members, "fit"):
            raise TypeError(f"members must be a list: members=[{self.members!r}]")
        given = ["default"] if self.members is None else list(self.members)
        # Smooth, polynomial and rough; pairs of classes, and all of them at once. On 39 development sets, in geometric
        # means of the log-loss: a Laplacian member 0.97 of what a third one with "blend" has, on ranks 0.984 of the one
        # on the columns themselves; metrics of "blend" and of ranks 0.968 of none, with a third for "poly" no lower on
        # the mean (0.3684 for 0.3682). Clipped columns, numbers of few values as names, and ranks for a second member
        # do not help.
        default = [
            LSSVMClassifier(kernel="blend", metric=self.metric),
            "poly",
            LSSVMClassifier(kernel="laplacian", coding="one-vs-all", columns="ranks", metric=self.metric),
        ]
        given = [
            each
            for member in given
            for each in (default if isinstance(member, str) and member == "default" else [member])
        ]
        members = [resolve_member(member) for member in given]
        if not members:
            raise ValueError("members must hold at least one classifier")
        random_state = 0 if self.random_state is None else self.random_state
        if not isinstance(random_state, Integral):
            # All members have the same folds, and those that are fitted in parallel must not share a random stream.
            random_state = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        for member in members:
            if isinstance(member, LSSVMClassifier):
                member.set_params(
                    priors=None, classes=self.classes, class_weight=None, random_state=random_state
                )
                if member.n_landmarks is None and (member.scale != "exact" or self.scale == "exact"):
                    member.set_params(n_landmarks=self.n_landmarks)
                if member.scale == "auto":
                    member.set_params(scale=self.scale)
                if member.scaling is None:
                    member.set_params(scaling=self.scaling)
                if member.device is None:
                    member.set_params(device=self._rows_on if self.device is None else self.device)
            else:
                seed(member, int(random_state))
        return members, int(random_state)

    @property
    def _has_relevance(self) -> bool:
        """Whether any member has relevances; these need not be computed to know."""
        return hasattr(self, "weights_") and any(_has_relevance(member) for member in self.members_)

    def _mean_relevance(self, name: str) -> Array | None:
        """Return the mean of the members' relevances, or of those in folds, by weights; None if no member has any."""
        check_is_fitted(self)
        if not self._has_relevance:
            raise AttributeError(
                "no member of the pool has relevances: only LSSVMClassifier members whose kernel has a name have them"
            )
        found = [
            (u, getattr(member, name))
            for u, member in zip(self.weights_, self.members_, strict=True)
            if u > 0.0 and _has_relevance(member)
        ]
        if not found and name == "feature_relevance_":  # the pool's answer does not depend on these members
            return np.zeros(self.n_features_in_)
        found = [(u, value) for u, value in found if value is not None]
        if len({np.shape(value) for _, value in found}) != 1:
            return None
        mean = np.tensordot([u for u, _ in found], [value for _, value in found], axes=1)
        totals = mean.sum(axis=-1, keepdims=True)
        return np.divide(mean, totals, out=np.zeros_like(mean), where=totals > 0.0)

    @property
    def plan_(self) -> ScalePlan:
        """The plan of the first member that is an `LSSVMClassifier`."""
        check_is_fitted(self)
        for member in self.members_:
            if isinstance(member, LSSVMClassifier):
                return member.plan_
        raise AttributeError("no member of the pool has a plan: only LSSVMClassifier members have one")

    @property
    def feature_relevance_(self) -> Array:
        """The mean of the members' relevances by their weights, shape (n_features,)."""
        mean = self._mean_relevance("feature_relevance_")
        assert mean is not None
        return mean

    @property
    def feature_relevance_folds_(self) -> Array | None:
        """The same in every fold, for the members that have tried to learn a metric, shape (n_folds, n_features)."""
        return self._mean_relevance("feature_relevance_folds_")

    @property
    def feature_relevance_std_(self) -> Array | None:
        """The standard deviation of the relevance over folds, shape (n_features,); None if it is not known."""
        return spread(self.feature_relevance_folds_)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit was completed."""
        return hasattr(self, "weights_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = self.members if isinstance(self.members, list | tuple) else ()
        known = [get_tags(member) for member in given if hasattr(member, "__sklearn_tags__")]
        tags.input_tags.sparse = all(each.input_tags.sparse for each in known)
        return tags


def _plan_together(members: list[Any], class_counts: Array, n_features: int) -> None:
    """Let all kernel members be exact, or none: only then do they know probabilities of the same rows."""
    own = [member for member in members if isinstance(member, LSSVMClassifier)]
    plans = []
    for member in own:
        coding = member._chosen_coding(class_counts.size)
        if adaptive_coding(coding) is not None:
            coding = "one-vs-all"
        codebook = resolve_codebook(coding, class_counts.size, member.random_state)
        decoder = resolve_decoder(member.decoding)
        plans.append(member._scale_plan(class_counts, n_features, codebook, decoder))
    if len({plan.scale == "exact" for plan in plans}) == 2:
        for member in own:
            if member.scale == "exact":
                raise ValueError(
                    'either all kernel members of a pool or none can have scale="exact": give scale= to the pool'
                )
            member._divided = True


@dataclass(frozen=True)
class _MemberRows:
    """The training data of the members: rows, labels (or soft labels), groups, and whether weights were given."""

    data: TrainingRows
    labels: Any
    groups: Any
    weighted: bool


def _without_leaks(decoded: DecoderRows, members: list[Any], data: TrainingRows) -> DecoderRows:
    """Return the rows without weights for those that a member has learned a metric from, if not from all."""
    banks = [each.bank_ for each in members if isinstance(each, LSSVMClassifier)]
    leaks = [bank.leak for bank in banks if bank.leak is not None]
    if not leaks:
        return decoded
    shares = decoder_shares(data, np.logical_or.reduce(leaks))
    return replace(decoded, weights=decoded.weights * shares)


def _has_relevance(member: Any) -> bool:
    """Return whether a fitted member has relevances, without computing them."""
    return getattr(member, "_has_relevance", False)


def _fitted(member: Any, rows: _MemberRows, n_jobs: int | None) -> tuple[Any, Array, list[Warned]]:
    """Fit a member, here or in another process; return it, its out-of-sample log-probabilities and what it warned of.

    Unless a kernel member has its own number of jobs, it may use `n_jobs`.
    """
    if not isinstance(member, LSSVMClassifier):
        with collected() as warned:
            fitted, log_proba = fit_by_folds(
                member, rows.data, rows.labels, rows.groups, weighted=rows.weighted
            )
        return fitted, log_proba, warned
    own = member.n_jobs
    member.n_jobs = n_jobs if own is None else own
    try:
        with collected() as warned:
            member.fit(rows.data.X, rows.labels, rows.data.weights, rows.groups)
            log_proba = member._honest()[1]
    finally:
        member.n_jobs = own
    return member, log_proba, warned


def _share_rows(first: LSSVMClassifier, member: LSSVMClassifier, given: LSSVMClassifier) -> None:
    """Let a member have the very rows of the first, to which it was fitted, and the kernel function it was given."""
    kernel = member.kernel_
    if isinstance(kernel, FunctionKernel):
        # A function that has been to another process is a copy, which could not be pickled by its name.
        kernel, member.kernel = given._kernels[0], given.kernel
    if member is not first or kernel is not member.kernel_:
        member.bank_ = replace(member.bank_, data=replace(first.bank_.data, kernel=kernel))
