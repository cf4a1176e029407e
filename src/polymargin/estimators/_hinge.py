"""Base class of the classifiers with the hinge loss, for labels and for soft labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from polymargin._progress import Progress
from polymargin._threads import count_jobs
from polymargin._warnings import warn
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder
from polymargin.estimators._decisions import calibration_rows
from polymargin.estimators._flow import DichotomyClassifier
from polymargin.estimators._linear import linear_coef
from polymargin.estimators._soft_labels import one_of_each_row
from polymargin.estimators._validation import check_positive
from polymargin.machines import TrainingRows
from polymargin.machines._workspace import SharedWork
from polymargin.outputs import Outputs

if TYPE_CHECKING:  # importing them for good would load numba with the package
    from polymargin.machines.svm import SolverOptions

Array = NDArray[Any]


class HingeClassifier(DichotomyClassifier):
    """Base class of the support vector machines: the solver's options, the folds, and what is kept of a bank."""

    _loss = "hinge"
    _keeps_cross_fits = False

    C: Any
    cv: Any
    tol: float
    max_iter: int
    n_jobs: int | None

    n_support_: Array

    @abstractmethod
    def _trained(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None,
    ) -> Any:
        """Return the trained bank of machines."""

    def _fit_machines(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None = None,
    ) -> None:
        if decoder.needs_variances:
            raise ValueError(
                f"{self._decoding_in_words} needs variances, which support vector machines do not have; choose "
                'one that needs none, such as "softmax" or "argmax", or use LSSVMClassifier'
            )
        self.bank_ = self._trained(data, codebook, decoder, shared, progress)
        self._warn_unless_converged()
        self.support_ = self._trained_rows[self.bank_.support]
        self.n_support_ = np.bincount(data.class_index[self.bank_.support], minlength=codebook.n_classes)

    def _gamma_of(self, data: TrainingRows) -> float | None:
        """Return the kernel's parameter as a number, or None if it is to be selected."""
        if not data.kernel.tunable:
            return 1.0
        # From the different rows, in their order: rounding would else tell copies of a row from its weight.
        rows = data.contents()
        return self._resolved_gamma(
            data.kernel.scaled(data.X[rows.first]), np.bincount(rows.inverse, data.weights)
        )

    def _solver_options(self) -> SolverOptions:
        from polymargin.machines.svm import SolverOptions

        check_positive("tol", self.tol, "for example 1e-3")
        if (
            not isinstance(self.max_iter, int | np.integer)
            or isinstance(self.max_iter, bool)
            or self.max_iter < -1
        ):
            raise ValueError(
                f"max_iter must be a number of steps, or -1 for the default limit; not {self.max_iter!r}"
            )
        return SolverOptions(float(self.tol), int(self.max_iter), count_jobs(self.n_jobs))

    def _folds_of_rows(self) -> Any:
        """Return ``cv``; given splits number the rows of X, of which those without weight are gone by now."""
        if not isinstance(self.cv, list | tuple):
            return self.cv
        place = {int(row): position for position, row in enumerate(self._trained_rows)}
        return [
            tuple(np.array([place[int(i)] for i in part if int(i) in place], dtype=np.intp) for part in split)
            for split in self.cv
        ]

    def _warn_unless_converged(self) -> None:
        """Warn of machines that are not solved to the tolerance, with what to do."""
        statuses: list[Any] = list(self.bank_.status)
        for status in sorted(set(statuses), key=lambda status: status.name):
            if status.name != "CONVERGED":
                stopped = statuses.count(status)
                warn(
                    f"{stopped} of {len(statuses)} machines {status.value} (tol={self.tol}, max_iter={self.max_iter})",
                    ConvergenceWarning,
                )

    def _training_outputs(
        self, *, honest: bool, shared: SharedWork, progress: Progress | None = None
    ) -> Outputs:
        bank = self.bank_
        # The identity of the bank is a valid key because `shared` keeps the bank alive.
        return shared.once(
            ("outputs", id(bank), honest), lambda: bank.training_outputs(honest=honest, progress=progress)
        )

    def _fit_decoder(
        self,
        decoder: Decoder,
        data: TrainingRows,
        shared: SharedWork,
        progress: Progress | None,
        priors: Array | None = None,
    ) -> Decoder:
        fitted = super()._fit_decoder(decoder, data, shared, progress, priors)
        self._kept_calibration = None
        log_proba = getattr(fitted, "cross_log_proba_", None)
        if log_proba is not None and not decoder.in_sample:
            log_proba = one_of_each_row(data, log_proba)
            self._kept_calibration = calibration_rows(self, data, log_proba, fitted.prior_shift_)
        # Rows that are not support vectors are only needed to fit the decoder.
        self.bank_ = self.bank_.without_training()
        return fitted

    def _outputs(self, X: Any, *, variances: bool) -> Outputs:
        return self.bank_.outputs(X, variances=variances)

    @property
    def C_(self) -> Array:
        """The regularisation of every machine, shape (L,)."""
        return self.bank_.C

    @property
    def gamma_(self) -> Array:
        """The kernel parameter of every machine, shape (L,)."""
        return self.bank_.gamma

    @property
    def dual_coef_(self) -> Array:
        """The kernel coefficients of every machine, shape (L, n_support)."""
        return self.bank_.dual_coef

    @property
    def coef_(self) -> Any:
        """The weights of the columns in every machine, shape (L, n_features); for linear kernels only."""
        check_is_fitted(self)
        return linear_coef(self.bank_.kernel, self.dual_coef_, self.bank_.vectors)

    @property
    def intercept_(self) -> Array:
        """The bias of every machine, shape (L,)."""
        return self.bank_.intercept

    @property
    def n_iter_(self) -> Array:
        """The steps the solver took for every machine."""
        return self.bank_.n_iter

    @property
    def support_vectors_(self) -> Any:
        """The support vectors, shape (n_support, d); empty for a precomputed kernel."""
        check_is_fitted(self)
        return np.empty((0, 0)) if self.bank_.vectors is None else self.bank_.vectors
