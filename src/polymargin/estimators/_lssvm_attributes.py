"""The fitted attributes of `LSSVMClassifier`: what was tried, and what the machines have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from polymargin.decoders import Decoder
from polymargin.estimators._choice import Choice
from polymargin.estimators._linear import linear_coef
from polymargin.estimators._metric import Expansion, relevance, spread
from polymargin.estimators._soft_labels import one_of_each_row
from polymargin.kernels import Scaled
from polymargin.machines import LSSVMBank
from polymargin.scale.bank import ScaledBank

Array = NDArray[Any]


class AttributesMixin:
    """The fitted attributes of `LSSVMClassifier`, most of which are read from its machines when asked for."""

    bank_: LSSVMBank | ScaledBank
    classes_: Array
    decoder_: Decoder
    _weight_unit: float
    _cross_log_proba: Array | None

    def _keep_choice(self, choice: Choice) -> None:
        """Set the attributes that tell what was tried."""
        # C in the unit of the weights that were given, as `C_` is.
        self.search_results_ = choice.table(self._weight_unit)
        least: dict[str, float] = {}
        for each in choice.candidates:
            least[each.kernel.name] = min(each.loss, least.get(each.kernel.name, np.inf))
        self.kernel_losses_ = least if len(least) > 1 else None
        self.shrinkage_ = 1.0 if choice.chosen is None else choice.chosen.smaller
        self.metric_results_ = None if choice.metric is None else choice.metric.table
        self.feature_relevance_folds_ = None if choice.metric is None else choice.metric.fold_relevances
        self.n_support_ = np.bincount(self.bank_.data.class_index, minlength=self.bank_.codebook.n_classes)

    @property
    def loo_log_proba_(self) -> Array:
        """Cross-fitted log-probabilities of the training rows, shape (n_support, K)."""
        check_is_fitted(self)
        log_p = self._cross_log_proba
        if log_p is None:
            raise AttributeError(
                f"{type(self.decoder_).__name__} decoding learns no probabilities from honest outputs"
            )
        return one_of_each_row(self.bank_.data, log_p)

    @property
    def loo_log_loss_(self) -> float:
        """The log-loss of `loo_log_proba_`, weighted as the rows are."""
        log_p, data = self.loo_log_proba_, self.bank_.data
        labels = (
            np.eye(self.classes_.size)[data.class_index] if data.soft_labels is None else data.soft_labels
        )
        leak = self.bank_.leak
        weights = data.weights if leak is None else data.weights * data.shares_without(leak)
        return -float(weights @ (labels * log_p).sum(axis=1) / weights.sum())

    @property
    def metric_(self) -> Array | None:
        """The widths of the columns, shape (n_features,); None if they are not scaled."""
        check_is_fitted(self)
        kernel = self.bank_.kernel
        return kernel.widths if isinstance(kernel, Scaled) else None

    @property
    def _has_relevance(self) -> bool:
        """Whether there are relevances; they need not be computed to know."""
        return hasattr(self, "bank_") and bool(self.bank_.kernel.parts)

    @property
    def feature_relevance_(self) -> Array:
        """How much the machines depend on every column, as shares that sum to one, shape (n_features,)."""
        check_is_fitted(self)
        if not self._has_relevance:
            raise AttributeError(
                "the formula of this kernel is not known: only kernels with a name have relevances"
            )
        return relevance(Expansion.of(self._exact_bank))

    @property
    def feature_relevance_std_(self) -> Array | None:
        """The standard deviation of the relevance over folds, shape (n_features,); None if it was not measured."""
        check_is_fitted(self)
        return spread(self.feature_relevance_folds_)

    @property
    def _exact_bank(self) -> LSSVMBank:
        """The exact machines: of all rows, or of the sample by which parameters were chosen."""
        return self.bank_.pilot if isinstance(self.bank_, ScaledBank) else self.bank_

    def _bank_of_all(self, name: str) -> LSSVMBank:
        """Return the exact machines of all rows; raise AttributeError for leaves and landmarks."""
        if isinstance(self.bank_, ScaledBank):
            raise AttributeError(
                f"{name} is known for exact machines only; those of leaves and landmarks are bank_.leaves and "
                "bank_.landmarks"
            )
        return self.bank_

    @property
    def C_(self) -> Array:
        """The regularisation of every machine, shape (L,)."""
        return self._exact_bank.C / self._weight_unit

    @property
    def gamma_(self) -> Array:
        """The kernel parameter of every machine, shape (L,)."""
        return self._exact_bank.gamma

    @property
    def mu_(self) -> Array:
        """The inverse prior variance of the weights of every machine, shape (L,)."""
        return self._exact_bank.mu

    @property
    def zeta_(self) -> Array:
        """The inverse noise variance of every machine, shape (L,)."""
        return self._exact_bank.zeta

    @property
    def log_evidence_(self) -> Array:
        """The level-three log-evidence of every machine, shape (L,)."""
        return self._exact_bank.log_evidence

    @property
    def dual_coef_(self) -> Array:
        """The kernel coefficients of every machine, shape (L, n_support)."""
        return self._bank_of_all("dual_coef_").dual_coef

    @property
    def coef_(self) -> Any:
        """The weights of the columns in every machine, shape (L, n_features); for linear kernels only."""
        bank = self._bank_of_all("coef_")
        return linear_coef(bank.kernel, bank.dual_coef, bank.data.X)

    @property
    def intercept_(self) -> Array:
        """The bias of every machine, shape (L,)."""
        return self._bank_of_all("intercept_").intercept

    @property
    def loo_margins_(self) -> Array:
        """The leave-one-out margins of the training rows, shape (n_support, L)."""
        return self.bank_.loo_margins
