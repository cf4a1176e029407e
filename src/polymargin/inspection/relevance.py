"""What a fitted model looks at: the relevance of the columns of its input, by name, with its spread over folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from polymargin._preparation import DateFeatures, of_columns

Array = NDArray[Any]

#: A column does not matter if its relevance is at most this part of an equal share, 1/d, also with so many standard
#: deviations over folds added. Relevances are mean squares: a tenth of an equal share is a change a third as large as
#: that by the average column. Machines fit noise, too, and a relevance is never below zero, so that to compare it with
#: its spread alone tells nothing. Of 20, 100 and 400 columns of noise beside the 21 of waveform (600 rows, a learned
#: metric) the rule finds 18, 71 and 227, and of the 21 at most 3, among the flat ends of the waves.
NEGLIGIBLE, DEVIATIONS = 0.1, 2.0


@dataclass(frozen=True)
class FeatureRelevance:
    """How much a fitted model depends on every column of its input: a sensitivity, not a cause.

    Attributes
    ----------
    names : tuple of str
        The columns, in the order of the input.
    relevance : ndarray of shape (d,)
        Their shares in the mean squared changes of the machines' outputs, which sum to one; all zero if no machine
        depends on any column.
    std : ndarray of shape (d,) or None
        The standard deviation of these over folds; None if it was not measured. Folds share rows, so that fresh samples
        would differ more.
    """

    names: tuple[str, ...]
    relevance: Array
    std: Array | None = None

    @property
    def order(self) -> Array:
        """The positions of the columns, most relevant first, shape (d,)."""
        return np.argsort(-self.relevance, kind="stable")

    @property
    def negligible(self) -> tuple[str, ...]:
        """The columns that hardly matter to the model: of at most a tenth of an equal share, whatever the fold.

        Two standard deviations over folds are added to their relevance first, where these were measured.
        """
        largest = self.relevance if self.std is None else self.relevance + DEVIATIONS * self.std
        few = largest <= NEGLIGIBLE / max(len(self.names), 1)
        return tuple(name for name, idle in zip(self.names, few.tolist(), strict=True) if idle)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns, most relevant first, as a table of plain values: "name", "relevance" and "std".

        Returns
        -------
        dict of str to list
            With one entry per column, as ``pandas.DataFrame`` takes it; "std" holds None where it was not measured.
        """
        order = self.order
        return {
            "name": [self.names[j] for j in order],
            "relevance": self.relevance[order].tolist(),
            "std": [None] * len(order) if self.std is None else self.std[order].tolist(),
        }


def feature_relevance(model: Any, feature_names: Sequence[str] | None = None) -> FeatureRelevance:
    """Return how much a fitted model depends on every column of its input.

    The relevance of a column is its share in the mean squared changes of the machines' outputs if another row's value
    is put into it; that of a pool is the mean over its members, by their weights. Of a Pipeline, columns that are made
    from one original column, such as the indicators of a `OneHotEncoder`, are joined: their shares are added up, in
    every fold, before the spread over folds is taken.

    It is a sensitivity of the fitted model, not a cause: of two columns that say the same, either may have it, or both
    a half, and to change a column in the world need not change the class.

    Parameters
    ----------
    model : LSSVMClassifier, AutoKernelClassifier or Pipeline
        Fitted; the last step of a Pipeline is one of the two. Of a search, such as ``GridSearchCV``, it is the
        ``best_estimator_``; of a ``TunedThresholdClassifierCV`` the ``estimator_``.
    feature_names : sequence of str or None
        The names of the columns of the model's input; None: those that it was fitted with, or "x0", "x1", ….

    Returns
    -------
    FeatureRelevance
        Columns that the steps of a Pipeline leave out are not in it. If a step does not tell which columns its own are
        made from (``get_feature_names_out``), the columns, and `feature_names`, are those of the classifier.

    Raises
    ------
    AttributeError
        If the model has no relevances, as with a kernel that is a function.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.inspection import feature_relevance
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> found = feature_relevance(make_pipeline(StandardScaler(), LSSVMClassifier()).fit(X, y))
    >>> found.to_dict()["name"]
    ['petal width (cm)', 'petal length (cm)', 'sepal width (cm)', 'sepal length (cm)']
    """
    steps, classifier = _flattened(model)
    check_is_fitted(classifier)
    if not hasattr(type(classifier), "feature_relevance_"):
        raise AttributeError(
            f"{type(classifier).__name__} has no relevances: LSSVMClassifier and AutoKernelClassifier have, "
            "also in pipelines and as the best_estimator_ of a search"
        )
    shares, folds = classifier.feature_relevance_, classifier.feature_relevance_folds_
    given = _columns_of(steps[0] if steps else classifier)
    try:
        columns = _traced_by(steps, given, count(len(given)))
    except _NotTold:
        given = columns = _columns_of(classifier)
    labels = {column.source: column.label for column in columns}
    if feature_names is not None:
        if len(feature_names) != len(given):
            raise ValueError(f"feature_names must name {len(given)} columns, not {len(feature_names)}")
        labels |= {j: str(name) for j, name in enumerate(feature_names)}
    sources, position = np.unique([column.source for column in columns], return_inverse=True)

    def joined(values: Array) -> Array:
        return np.bincount(position, values, minlength=sources.size)

    return FeatureRelevance(
        tuple(labels[source] for source in sources.tolist()),
        joined(shares),
        None if folds is None else np.std([joined(fold) for fold in folds], axis=0, ddof=1),
    )


def shortened(text: object, longest: int = 40) -> str:
    """Return text in one line; of long text the beginning and the end, since names of columns often differ there.

    Examples
    --------
    >>> shortened("calcium in the water, sample 12", 20)
    'calcium in t…mple 12'
    """
    line = " ".join(str(text).split())
    end = (longest - 1) * 2 // 5
    return line if len(line) <= longest else f"{line[: longest - 1 - end]}…{line[len(line) - end :]}"


@dataclass(frozen=True)
class _Column:
    """A column on its way through the steps of a pipeline.

    `name` is what scikit-learn calls it there. `source` numbers the column of the input that it is made from, or, if it
    is made from several, the column itself; `label` is what the source is called.
    """

    name: str
    source: int
    label: str


class _NotTold(Exception):
    """A step does not tell which columns its own are made from."""


def _flattened(model: Any) -> tuple[list[Any], Any]:
    """Return the steps before the classifier, without those that do nothing, and the classifier."""
    steps: list[Any] = []
    while True:
        if isinstance(model, Pipeline):
            steps += [of_columns(step) for _, step in model.steps[:-1] if not _passes(step)]
            model = model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):  # of a search
            model = model.best_estimator_
        elif hasattr(model, "estimator_"):  # whose threshold was chosen
            model = model.estimator_
        else:
            return steps, model


def _passes(step: Any) -> bool:
    """Return whether a step leaves its columns as they are."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def _columns_of(step: Any) -> list[_Column]:
    """Return the columns that a fitted step was given, none if it does not know."""
    names = getattr(step, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(getattr(step, "n_features_in_", 0))]
    return [_Column(str(name), j, str(name)) for j, name in enumerate(names)]


def _traced_by(steps: Iterable[Any], columns: list[_Column], fresh: Iterator[int]) -> list[_Column]:
    """Return the columns that steps make, one after the other; `fresh` numbers those that are made from several."""
    for step in steps:
        columns = _traced(step, columns, fresh)
    return columns


def _traced(step: Any, columns: list[_Column], fresh: Iterator[int]) -> list[_Column]:
    """Return the columns that a fitted step makes."""
    if _passes(step):
        return columns
    if isinstance(step, Pipeline):
        return _traced_by((part for _, part in step.steps), columns, fresh)
    try:
        names = [str(name) for name in step.get_feature_names_out([column.name for column in columns])]
    except (AttributeError, TypeError, ValueError) as error:
        raise _NotTold from error
    if isinstance(step, ColumnTransformer):
        made = _traced_parts(step, columns, fresh, len(names))
        # What parts make of several columns is called by its part, too.
        known = {column.source for column in columns}
        return [
            replace(one, name=name, label=one.label if one.source in known else name)
            for one, name in zip(made, names, strict=True)
        ]
    made_from: list[_Column | None]
    if isinstance(step, OneHotEncoder):
        made_from = np.repeat(np.array(columns, dtype=object), _indicators(step)).tolist()
    elif isinstance(step, DateFeatures):
        made_from = np.repeat(np.array(columns, dtype=object), len(names) // max(len(columns), 1)).tolist()
    elif isinstance(step, MissingIndicator):
        made_from = [columns[j] for j in step.features_]
    elif isinstance(step, OneToOneFeatureMixin):
        made_from = list(columns)
    else:
        by_name = {column.name: column for column in columns}
        made_from = [by_name.get(name) for name in names]
    if len(made_from) != len(names):
        raise _NotTold
    return [
        _Column(name, next(fresh), name) if one is None else replace(one, name=name)
        for name, one in zip(names, made_from, strict=True)
    ]


def _traced_parts(
    step: ColumnTransformer, columns: list[_Column], fresh: Iterator[int], n_made: int
) -> list[_Column]:
    """Return the columns that the parts of a fitted ColumnTransformer make."""
    made: list[Any] = [None] * n_made
    positions = {column.name: j for j, column in enumerate(columns)}
    for name, part, chosen in step.transformers_:
        places = range(n_made)[step.output_indices_[name]]
        if not len(places):
            continue
        chosen = [chosen] if isinstance(chosen, str | int) else chosen
        try:
            if not isinstance(chosen, slice) and all(isinstance(one, str) for one in chosen):
                chosen = [positions[one] for one in chosen]
            used = [columns[j] for j in np.arange(len(columns))[chosen]]
        except (KeyError, IndexError, TypeError) as error:  # a slice by names
            raise _NotTold from error
        found = _traced(part, used, fresh)
        if len(found) != len(places):
            raise _NotTold
        for place, column in zip(places, found, strict=True):
            made[place] = column
    return made


def _indicators(encoder: OneHotEncoder) -> list[int]:
    """Return the number of indicators of every column of a fitted encoder."""
    numbers = [len(values) for values in encoder.categories_]
    rare = getattr(encoder, "infrequent_categories_", None)
    if rare is not None:  # these share one
        numbers = [n if few is None else n - len(few) + 1 for n, few in zip(numbers, rare, strict=True)]
    dropped = encoder.drop_idx_
    if dropped is not None:
        numbers = [n - (one is not None) for n, one in zip(numbers, dropped, strict=True)]
    return numbers
