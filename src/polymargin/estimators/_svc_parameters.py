"""The parameters that `SVMClassifier` takes from ``SVC``, and what they mean here."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Progress
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder, Hamming, Votes
from polymargin.decoders.votes import count_votes
from polymargin.estimators._hinge import HingeClassifier
from polymargin.estimators._validation import check_positive
from polymargin.folds import check_folds
from polymargin.kernels import Kernel, Sigmoid
from polymargin.machines import TrainingRows
from polymargin.machines._workspace import SharedWork
from polymargin.outputs import Outputs

if TYPE_CHECKING:  # importing it at run time would load numba with the package
    from polymargin.machines.svm import SolverOptions

Array = NDArray[Any]

#: The default of ``cv``, of which fewer rows just have fewer folds.
_DEFAULT_FOLDS = 5


class SVCParametersMixin(HingeClassifier):
    """``probability``, ``decision_function_shape``, ``break_ties``, ``shrinking``, ``cache_size`` and "sigmoid"."""

    _without_probabilities: ClassVar[str] = "probability=False"

    probability: Any
    decision_function_shape: str
    break_ties: bool
    shrinking: bool
    cache_size: float | None

    @property
    def _wants_probabilities(self) -> bool:
        # "deprecated" is the default of SVC from scikit-learn 1.9 on, and stands for False.
        return bool(self.probability) and self.probability != "deprecated"

    @property
    def _decoding(self) -> Any:
        """The decoding; by default votes, or learned probabilities if these are asked for."""
        if self.decoding is not None:
            return self.decoding
        return "coupled-softmax" if self._wants_probabilities else "hamming"

    @property
    def _decoding_in_words(self) -> str:
        return "probability=False" if self.decoding is None else f"decoding={self.decoding!r}"

    @property
    def _advice(self) -> str:
        if self.decoding is None:
            return "set probability=True"
        if self._wants_probabilities:
            return 'leave decoding out, or choose one that does, such as "coupled-softmax"'
        return 'set decoding="coupled-softmax", or leave decoding out and set probability=True'

    @property
    def _kernels(self) -> list[Kernel]:
        """The kernel, which need not be positive definite."""
        if isinstance(self.kernel, str) and self.kernel == "sigmoid":
            return [self._with_metric(Sigmoid(self.coef0))]
        return super()._kernels

    def _solver_options(self) -> SolverOptions:
        options = super()._solver_options()
        if self.cache_size is None:
            return options
        check_positive("cache_size", self.cache_size, "of megabytes, or None for what memory allows")
        return replace(options, cache_size=float(self.cache_size))

    def _fit_machines(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None = None,
    ) -> None:
        self._check_parameters(codebook, decoder)
        check_folds(self.cv)
        n = data.class_index.size
        if isinstance(self.cv, Integral) and int(self.cv) > max(n, _DEFAULT_FOLDS):
            raise ValueError(
                f"cv={self.cv} folds need as many rows, and there are {n}: give a smaller number"
            )
        super()._fit_machines(data, codebook, decoder, shared, progress)

    def _check_parameters(self, codebook: Codebook, decoder: Decoder) -> None:
        """Raise ValueError for values that are unknown, and for those that contradict others."""
        for name, accepted in (
            ("probability", (True, False, "deprecated")),
            ("break_ties", (True, False)),
            ("shrinking", (True, False)),
            ("decision_function_shape", ("ovr", "ovo")),
        ):
            value = getattr(self, name)
            if not isinstance(value, str | bool | np.bool_) or value not in accepted:
                choices = " or ".join(repr(each) for each in accepted if each != "deprecated")
                raise ValueError(f"{name} must be {choices}, not {value!r}")
        # As in SVC, whether or not the kernel has these parameters.
        for name, value, least, what in (
            ("degree", self.degree, 0.0, "a number of at least 0"),
            ("coef0", self.coef0, -np.inf, "a finite number"),
            ("verbose", self.verbose, 0.0, "True, False or a number of at least 0"),
        ):
            number = isinstance(value, Real | np.bool_) and (name == "verbose" or not isinstance(value, bool))
            if not number or not np.isfinite(value) or value < least:
                raise ValueError(f"{name} must be {what}, not {value!r}")
        if self._wants_probabilities and not decoder.probabilistic:
            raise ValueError(
                f"probability=True, but decoding={self.decoding!r} gives no probabilities; {self._advice}"
            )
        if self.decision_function_shape == "ovo" and not codebook.is_pairwise:
            raise ValueError(
                'decision_function_shape="ovo" needs a machine for every pair of classes: choose coding="one-vs-one", '
                'or decision_function_shape="ovr" and take the outputs of the machines from margins(X)'
            )

    @property
    def counts_votes(self) -> bool:
        """Whether labels are those of pairwise votes, which may be equal."""
        voting = isinstance(self.decoder_, Hamming | Votes)
        return voting and self.classes_.size > 2 and self.codebook_.is_pairwise

    def _label_scores(self, outputs: Outputs) -> Array:
        """Return scores of which the largest gives the label, shape (n, K); of equal ones, the first."""
        if not self.counts_votes:
            return super()._label_scores(outputs)
        scores = votes_and_margins if self.break_ties else count_votes
        return scores(self.codebook_, outputs.margins)

    def _ranking_scores(self, outputs: Outputs) -> Array:
        """Return the decision function of ``decision_function_shape``."""
        if self.decision_function_shape == "ovo":
            margins = outputs.margins * svc_signs(self.codebook_)
            return margins[:, 0] if self.classes_.size == 2 else margins
        if self.counts_votes:
            return votes_and_margins(self.codebook_, outputs.margins)
        return super()._ranking_scores(outputs)


def svc_signs(codebook: Codebook) -> Array:
    """Return 1 for machines that are positive on the side on which those of ``SVC`` are, and -1 for others, shape (L,).

    The machine of two classes is positive for the second, that of a pair among more classes for the first. Codebooks
    that are not one-vs-one have no such side, and keep theirs.

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> svc_signs(one_vs_one(2)), svc_signs(one_vs_one(3))
    (array([1]), array([-1, -1, -1]))
    """
    matrix = codebook.matrix.astype(int)
    if not codebook.is_pairwise:
        return np.ones(codebook.n_columns, dtype=int)
    if codebook.n_classes == 2:
        return matrix[1]
    first = np.abs(matrix).argmax(axis=0)
    return matrix[first, np.arange(codebook.n_columns)]


def votes_and_margins(codebook: Codebook, margins: Array) -> Array:
    """Return the decision function of ``SVC`` with "ovr": votes, and less than a third of one for the margins, (n, K).

    The margins of a class add up to s, and count s / (3 (|s| + 1)).

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_one
    >>> votes_and_margins(one_vs_one(3), np.array([[-1.0, -2.0, 0.5]]))
    array([[ 2.25, -0.2 ,  0.8 ]])
    """
    total = margins @ codebook.matrix.T.astype(np.float64)
    return count_votes(codebook, margins) + total / (3.0 * (np.abs(total) + 1.0))
