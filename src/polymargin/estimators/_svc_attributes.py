"""The fitted attributes of `SVMClassifier` that have the names, the signs and the containers of those of ``SVC``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from polymargin.codebooks import Codebook
from polymargin.estimators._svc_parameters import svc_signs

if TYPE_CHECKING:  # importing it at run time would load numba with the package
    from polymargin.machines.svm import SVMBank

Array = NDArray[Any]


class SVCAttributesMixin:
    """Attributes of the machines as ``SVC`` has them; those of ``bank_``, and `margins`, have the codebook's signs."""

    bank_: SVMBank
    codebook_: Codebook

    @property
    def dual_coef_(self) -> Any:
        """The kernel coefficients of every machine, shape (L, n_support); sparse if the support vectors are."""
        check_is_fitted(self)
        coef = self.bank_.dual_coef * svc_signs(self.codebook_)[:, None] + 0.0  # no zeros with a sign
        return type(self.bank_.vectors)(coef) if sparse.issparse(self.bank_.vectors) else coef

    @property
    def intercept_(self) -> Array:
        """The bias of every machine, shape (L,)."""
        check_is_fitted(self)
        return self.bank_.intercept * svc_signs(self.codebook_) + 0.0

    @property
    def fit_status_(self) -> int:
        """0 if all machines are solved to the tolerance, else 1."""
        check_is_fitted(self)
        return int(any(status.name != "CONVERGED" for status in self.bank_.status))
