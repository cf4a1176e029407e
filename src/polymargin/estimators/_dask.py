"""Dask collections as arguments of estimators: fits go to the cluster, predictions are lazy."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from polymargin.cluster import is_dask
from polymargin.estimators._soft_labels import check_named_classes
from polymargin.estimators._validation import class_factors
from polymargin.scale.settings import DEFAULT

Method = Callable[[Any, Any], Any]


def lazy_on_dask(method: Method) -> Method:
    """Make a method that predicts return a lazy Dask array where it is given a Dask collection.

    Parameters
    ----------
    method : callable (self, X) -> ndarray
        The method.

    Returns
    -------
    callable
    """

    @wraps(method)
    def either(self: Any, X: Any) -> Any:
        if not is_dask(X):
            return method(self, X)
        _require_dask()
        from polymargin.cluster.prediction import predict_lazily

        return predict_lazily(self, X, method.__name__)

    return either


class GatherMixin:
    """What estimators have that may leave a part of themselves on a cluster."""

    def gather_leaves(self) -> Any:
        """Bring the leaves of a model that was fitted on a Dask cluster into memory.

        The model can be pickled and saved then, and predicts without the cluster, which may be closed. Others are left
        as they are.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        try:
            from polymargin.cluster.prediction import gather
        except ModuleNotFoundError:  # without Dask nothing can be on a cluster
            return self
        gather(self)
        return self


def fit_on_cluster(estimator: Any, X: Any, y: Any, sample_weight: Any, groups: Any) -> Any:
    """Fit an estimator to Dask collections.

    Rows stay where they are, but for samples. Only if exact machines are asked for, or if there are so few rows that
    ``scale="auto"`` would take exact machines in any coding, they are brought to the client and fitted there.

    Parameters
    ----------
    estimator : estimator
        The estimator.
    X : dask.array.Array or dask.dataframe.DataFrame
        The rows.
    y : dask.array.Array, dask.dataframe.Series or DataFrame of one column
        The labels.
    sample_weight : dask.array.Array, dask.dataframe.Series or None
        The weights of the rows.
    groups : None
        Not supported.

    Returns
    -------
    estimator
        The fitted estimator.
    """
    if groups is not None:
        raise ValueError(
            "groups cannot be fitted on Dask collections, whose rows are left out one by one: leave them out, or use "
            "X.compute() if the rows fit into memory"
        )
    if getattr(estimator, "device", None) not in (None, "cpu"):
        raise ValueError(
            f"device={estimator.device!r} is for rows in memory: machines of a cluster are trained by its workers, use "
            "device=None"
        )
    if getattr(estimator, "kernel", None) == "precomputed":
        raise ValueError(
            "a precomputed kernel matrix cannot be fitted on a cluster: give the rows and a kernel"
        )
    _require_dask()
    from polymargin.cluster.dask_rows import DaskRows

    settings = DEFAULT if estimator.scaling is None else estimator.scaling
    random_state = 0 if estimator.random_state is None else estimator.random_state
    if not isinstance(random_state, Integral):
        random_state = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    # An interrupted fit must not leave an estimator that passes for fitted, by what an earlier fit has set.
    for name in ("decoder_", "weights_", "feature_names_in_", "_divided", "_worker_memory"):
        estimator.__dict__.pop(name, None)
    source = DaskRows.of(
        X,
        y,
        sample_weight,
        class_factors=lambda labels, counts: class_factors(estimator.class_weight, labels, counts),
        seed=int(random_state),
        # What the tree is grown on: all other samples are smaller.
        drawn_rows=max(2 * settings.decoder_rows, settings.sample_rows),
    )
    check_classification_targets(source.classes)
    if estimator.classes is not None:
        check_named_classes(estimator.classes, source.classes)
    few = float(source.n_rows) ** 3 <= settings.exact_operations
    if estimator.scale == "exact" or (estimator.scale == "auto" and few):
        estimator.fit(*source.whole())
    else:
        estimator._fit_source(source, source.classes)
    if hasattr(X, "columns"):
        validate_data(estimator, X._meta, skip_check_array=True)  # the names of the columns
    return estimator


def _require_dask() -> None:
    """Raise ImportError that names the extra, unless all that the cluster needs is there."""
    try:
        import dask.array
        import dask.dataframe  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Dask collections need dask with its arrays and dataframes: install polymargin with its dask extra"
        ) from error
