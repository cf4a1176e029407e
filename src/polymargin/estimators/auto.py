"""AutoKernelClassifier: a pool of a few least-squares machines, and nothing to choose."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from polymargin._html import ChoicesMixin
from polymargin._progress import Count, shown
from polymargin._threads import FEW_ROWS, blas_threads_for, threads
from polymargin._workers import in_processes
from polymargin.decoders import ProbabilisticDecoder
from polymargin.decoders._base import prior_shift, reweighted
from polymargin.estimators._choice import decoder_rows
from polymargin.estimators._flow import resolve_priors
from polymargin.estimators._pool import pool_weights, pooled
from polymargin.estimators._soft_labels import are_soft
from polymargin.estimators.lssvm import LSSVMClassifier
from polymargin.kernels import FunctionKernel, Polynomial
from polymargin.machines import TrainingRows

Array = NDArray[Any]


class AutoKernelClassifier(ChoicesMixin, ClassifierMixin, BaseEstimator):
    """Class probabilities without a decision to make: a few kernels and codings, pooled on honest outputs.

    Every member is an `LSSVMClassifier` that tunes and calibrates itself. What the members say of rows that neither
    their machines nor their decoders have learned from decides how much each counts: the pool is the normalised
    Π p_m^u_m with the weights u of least log-loss. It costs as much as its members, and is better than the best of
    them more often than not.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    members : sequence of LSSVMClassifier or None, default=None
        The members, which are cloned. Their decoding must be probabilistic and learned. None: one-vs-one machines with
        the kernels "blend" and ``Polynomial(2, centred=True)``, and one-vs-all machines with the latter; the last two
        are one where there are two classes.
    priors : None, "uniform", "empirical", array of shape (K,) or dict, default=None
        The class frequencies to expect in use; a dict names the classes. None, the same as "empirical": as in training.
    classes : array-like of shape (K,) or None, default=None
        The names of the columns where `fit` is given soft labels; None for 0, …, K−1.
    n_jobs : int or None, default=None
        How many processes share the members, this one included; where there are more jobs than members, or many rows,
        threads share kernels and groups of rows. The result is the same. The processes start when they are first
        needed, are not waited for, and stay for the next fit, up to five minutes: it is the second fit that is
        faster. With joblib's backend "threading" there are only threads.
    verbose : int, default=0
        Whether ``fit`` shows its progress.
    random_state : int, RandomState instance or None, default=None
        Handed to the members; unless it is a number, those that need one are given a number drawn from it.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    members_ : list of LSSVMClassifier
        The fitted members.
    weights_ : ndarray of shape (M,)
        How much each counts. They need not sum to one: members that err independently are surer together than each
        alone.
    prior_shift_ : ndarray of shape (K,)
        log(priors / training priors), which is added to the log-probabilities; zero unless priors are given.
    loo_log_proba_ : ndarray of shape (n_support, K)
        The pool's log-probabilities of the training rows (those of positive weight), each held out by machines and
        decoders.
    loo_log_loss_ : float
        The pool's log-loss on the training rows, each held out by machines and decoders. (The weights, a handful of
        numbers, have seen them all.)
    n_features_in_, feature_names_in_
        As in scikit-learn.

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
    """

    def __init__(
        self,
        members: Sequence[LSSVMClassifier] | None = None,
        *,
        priors: Any = None,
        classes: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.members = members
        self.priors = priors
        self.classes = classes
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> AutoKernelClassifier:
        """Fit the members and weigh them.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,), or of shape (n_samples, K)
            Class labels, or soft labels: the probabilities of the classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights: weight two counts like the row twice, weight zero like no row.

        Returns
        -------
        self : AutoKernelClassifier
            The fitted estimator.
        """
        self.__dict__.pop("weights_", None)
        n_classes = _n_classes(y)
        members = self._resolved_members(n_classes)
        with shown(self.verbose) as progress:
            count = Count(progress, "members", "members")
            count.expect(len(members))
            honest = self._fit_members(members, _Fit(X, y, sample_weight), n_classes, count)
        first = members[0]
        rows = decoder_rows(first.bank_.data, first.bank_)
        assert rows.weights is not None
        class_weights = np.bincount(rows.class_index, rows.weights, minlength=first.classes_.size)
        priors = resolve_priors(self.priors, class_weights, first.classes_)
        self.prior_shift_ = prior_shift(priors, rows.class_index, class_weights.size, rows.weights)
        self.classes_, self.n_features_in_ = first.classes_, first.n_features_in_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_
        self.members_ = members
        with blas_threads_for(0):
            weights = pool_weights(honest, rows.class_index, rows.weights)
            log_p = pooled(honest, weights)
        own = log_p[np.arange(rows.class_index.size), rows.class_index]
        self.loo_log_loss_ = -float(rows.weights @ own / rows.weights.sum())
        soft_labels = first.bank_.data.soft_labels
        if soft_labels is not None:  # a row stands once for every class that it may belong to
            log_p = log_p[np.unique(np.nonzero(soft_labels)[0], return_index=True)[1]]
        self.loo_log_proba_ = log_p
        self.weights_ = weights
        return self

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithms of the class probabilities, shape (n_samples, K)."""
        check_is_fitted(self)
        validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        log_p = pooled([member.predict_log_proba(X) for member in self.members_], self.weights_)
        return reweighted(log_p, self.prior_shift_)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the class probabilities, shape (n_samples, K), in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class of every row, shape (n_samples,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-probabilities, shape (n_samples, K); for two classes their difference, shape (n_samples,)."""
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if self.classes_.size == 2 else log_p

    def _fit_members(
        self, members: list[LSSVMClassifier], fit: _Fit, n_classes: int, count: Count
    ) -> list[Array]:
        """Fit the members; return what they say of the training rows honestly."""
        n_rows = np.asarray(fit.y).shape[0]
        pair = 2 * n_rows / max(n_classes, 2)  # the rows of two classes
        # The rows of a precomputed kernel are others, if there are weights of zero.
        alike = len({member._kernel.precomputed for member in members}) == 1
        if n_rows > FEW_ROWS or not alike:
            # One-vs-all machines of many rows are left to the threads of BLAS, which others would be in the way of.
            with threads(self.n_jobs, pair):
                told = []
                for member in members:
                    told.append(fit(member))
                    count.advance()
        else:
            # Each takes up to 0.3 GiB, and looks whether there is as much without knowing of the others, as threads
            # do; if a process finds too little, or is killed for it, its member is fitted here.
            told = in_processes(fit, members, self.n_jobs, n_rows=pair, done=count.advance)
        for member, fitted in zip(members, told, strict=True):
            fitted.hand_over(member)
        if alike:
            for member in members[1:]:
                _share_rows(members[0], member)
        return [fitted.log_proba for fitted in told]

    def _resolved_members(self, n_classes: int) -> list[LSSVMClassifier]:
        """Return fresh members."""
        if self.members is None:
            quadratic = Polynomial(2, centred=True)
            members = [LSSVMClassifier(kernel="blend"), LSSVMClassifier(kernel=quadratic)]
            if n_classes > 2:  # else one-vs-all is one-vs-one
                members.append(LSSVMClassifier(kernel=quadratic, coding="one-vs-all"))
        else:
            members = [clone(member) for member in self.members]
        if not members:
            raise ValueError("members must hold at least one LSSVMClassifier")
        for member in members:
            if not isinstance(member, LSSVMClassifier):
                raise TypeError(f"members must be LSSVMClassifier objects, not {member!r}")
            decoder = member._resolved_decoder()
            learned = isinstance(decoder, ProbabilisticDecoder) and decoder.probabilistic and decoder.learns
            if not learned or decoder.needs_variances:
                raise ValueError(
                    f"a pool needs members whose decoding is learned and gives probabilities, such as "
                    f'"coupled-softmax", "softmax" or "coupling"; not {member.decoding!r}'
                )
            random_state = self.random_state
            if (
                isinstance(member.coding, str)
                and member.coding == "ecoc"
                and not isinstance(random_state, Integral)
            ):
                # Members that are fitted at once must not draw from one stream.
                random_state = check_random_state(random_state).randint(np.iinfo(np.int32).max)
            member.set_params(priors=None, classes=self.classes, random_state=random_state)
        return members

    def __sklearn_is_fitted__(self) -> bool:
        """Say that a fit came to its end."""
        return hasattr(self, "weights_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _n_classes(y: Any) -> int:
    """Return the number of classes in labels or soft labels."""
    return np.asarray(y).shape[1] if are_soft(y) else np.unique(column_or_1d(y)).size


@dataclass(frozen=True)
class _Fit:
    """Fits members to the same rows, here or in another process."""

    X: Any
    y: Any
    sample_weight: Any

    def __call__(self, member: LSSVMClassifier) -> _Fitted:
        """Fit a member."""
        member.fit(self.X, self.y, self.sample_weight)
        return _Fitted(member, member._honest()[1])


@dataclass(frozen=True)
class _Fitted:
    """A fitted member and its honest log-probabilities; between processes it travels without the training rows."""

    member: LSSVMClassifier
    log_proba: Array

    def __getstate__(self) -> dict[str, Any]:
        member, bank = copy(self.member), self.member.bank_
        kernel_only = TrainingRows(bank.kernel, None, np.empty(0), np.empty(0))
        member.bank_ = replace(bank, data=kernel_only)
        return {"member": member, "log_proba": self.log_proba}

    def hand_over(self, member: LSSVMClassifier) -> None:
        """Let a member, which this one is or was a copy of, have what was learned; its parameters are its own."""
        given = member.get_params(deep=False)
        for name, value in vars(self.member).items():
            if name not in given:
                setattr(member, name, value)


def _share_rows(first: LSSVMClassifier, member: LSSVMClassifier) -> None:
    """Let a member have the very rows of the first, to which it was fitted."""
    # A function that has been to another process is a copy, which could not be pickled by its name.
    kernel = member._kernel if isinstance(member.kernel_, FunctionKernel) else member.kernel_
    member.bank_ = replace(member.bank_, data=first.bank_.data.with_kernel(kernel))
    member.support_ = member._trained_rows = first.support_
