"""How `SVMClassifier` chooses C and gamma and trains its machines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polymargin._progress import Progress
from polymargin.codebooks import Codebook, Train
from polymargin.decoders import Decoder, Hamming
from polymargin.estimators._growth import SINGLE, WarmColumns
from polymargin.estimators._svc_parameters import SVCParametersMixin
from polymargin.estimators._validation import check_positive, class_factors, resolve_priors
from polymargin.machines import TrainingRows
from polymargin.machines._workspace import SharedWork, cache_key

if TYPE_CHECKING:  # importing them at run time would load numba with the package
    from polymargin.machines.svm import SolverOptions, SVMBank
    from polymargin.selection.surface import CrossValidation

Array = NDArray[Any]

#: Sparse rows with no more values than this, zeros included, are trained as dense rows, in 32 MiB.
_FEW_VALUES = 2**22


class SVMTrainingMixin(SVCParametersMixin):
    """Cross-validated C and gamma, machines with boxes by class and row, a decoder with the weights of the machines."""

    class_weight_in_box = True

    selection: str | None
    shared_parameters: bool
    class_weight: Any

    selection_: CrossValidation | None
    #: The container of sparse rows that are trained as dense ones: "array", "matrix" or None.
    _sparse: str | None

    def _training_rows(self, X: Any, y: Any, sample_weight: Any, groups: Any = None) -> TrainingRows:
        self._sparse = None
        named = isinstance(self.kernel, str) and self.kernel != "precomputed"
        if named and sparse.issparse(X) and np.prod(X.shape) <= _FEW_VALUES:
            # The same machines as from dense rows; their support vectors become sparse again.
            self._sparse = "array" if isinstance(X, sparse.sparray) else "matrix"
            X = X.toarray()
        rows = super()._training_rows(X, y, sample_weight, groups)
        self.shape_fit_ = (np.asarray(y).shape[0], self.n_features_in_)
        return rows

    def _trained(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None,
    ) -> SVMBank:
        self.class_weight_ = self._class_weights(data)
        bank, self.selection_ = self._train(
            data,
            codebook,
            decoder,
            self._box_weights(data),
            self._folds_of_rows(),
            shared=shared,
            progress=progress,
        )
        return bank

    def _column_trainer(self, machine: Any, data: TrainingRows, progress: Progress | None) -> Train:
        from polymargin.folds import fold_numbers, training_folds

        def train(rows: TrainingRows, box_weights: Array, cv: Any, start: Array) -> SVMBank:
            return machine._train(
                rows,
                SINGLE,
                Hamming(),
                box_weights,
                cv,
                start,
                shared=SharedWork(keep=False),
                progress=progress,
            )[0]

        folds = training_folds(data, self._folds_of_rows(), self.random_state)
        return WarmColumns(train, data, self._box_weights(data), fold_numbers(folds))

    def _fit_decoder(
        self,
        decoder: Decoder,
        data: TrainingRows,
        shared: SharedWork,
        progress: Progress | None,
        priors: Array | None = None,
    ) -> Decoder:
        # With the weights of the machines, or what is learned here would undo class_weight.
        weighted = replace(data, weights=self._box_weights(data))
        if decoder.learns_probabilities and decoder.uses_priors:
            weighted, priors = self._weights_as_priors(weighted)
        fitted = super()._fit_decoder(decoder, weighted, shared, progress, priors)
        if self._kept_calibration is not None:
            kept = replace(self._kept_calibration, weights=self._coverage_weights(data))
            self._kept_calibration = kept
        if self._sparse is not None and self.bank_.vectors is not None:
            container = sparse.csr_array if self._sparse == "array" else sparse.csr_matrix
            self.bank_ = replace(self.bank_, vectors=container(self.bank_.vectors))
        return fitted

    def _coverage_weights(self, data: TrainingRows) -> Array:
        """Return the weights by which rows stand for new ones: ``class_weight`` says nothing of these, priors do."""
        totals = data.class_weights(self.classes_.size)
        priors = resolve_priors(self.priors, totals, self.classes_)
        return data.weights if priors is None else data.weights * (priors / totals)[data.class_index]

    def _weights_as_priors(self, data: TrainingRows) -> tuple[TrainingRows, Array]:
        """Return the rows with a mean weight of one in every class, and the class probabilities that weights ask for.

        A posterior under other class probabilities is known from one under the frequencies of the rows. To fit it with
        the weights themselves would leave few effective rows, if one class weighs many times as much as another.
        """
        totals = data.class_weights(self.classes_.size)
        counts = np.bincount(data.class_index, minlength=self.classes_.size)
        priors = resolve_priors(self.priors, totals, self.classes_)
        balanced = replace(data, weights=data.weights * (counts / totals)[data.class_index])
        return balanced, totals / totals.sum() if priors is None else priors

    def _train(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        box_weights: Array,
        cv: Any,
        start: Array | None = None,
        *,
        shared: SharedWork,
        progress: Progress | None = None,
    ) -> tuple[SVMBank, CrossValidation | None]:
        """Return trained machines, and how C and gamma were selected, if they were; nothing is stored."""
        from polymargin.machines.svm import fit_svm_bank

        options = self._solver_options()
        # A decoder that learns is not fitted in the folds: accuracies are then those of Hamming decoding.
        judge = repr(Hamming() if decoder.learns else decoder)
        C, gamma, selection = shared.once(
            cache_key("parameters", codebook.matrix, judge),
            lambda: self._parameters(data, codebook, decoder, box_weights, cv, options, progress),
        )
        bank = shared.once(
            cache_key("bank", codebook.matrix, C, gamma),
            lambda: fit_svm_bank(
                data,
                codebook,
                C=C,
                gamma=gamma,
                box_weights=box_weights,
                options=options,
                cv=cv,
                random_state=self.random_state,
                start=start,
                progress=progress,
            ),
        )
        return bank, selection

    def _parameters(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        box_weights: Array,
        cv: Any,
        options: SolverOptions,
        progress: Progress | None,
    ) -> tuple[Any, Any, CrossValidation | None]:
        """Return C and gamma, one for all machines or one for each, and how they were selected where they are None."""
        if self.C is not None:
            check_positive("C", self.C, "or None to have it selected")
        gamma = self._gamma_of(data)
        if self.selection not in ("cv", None):
            raise ValueError(f'unknown selection {self.selection!r}; choose "cv" or None')
        if self.C is not None and gamma is not None:
            return self.C, gamma, None
        if self.selection is None:
            raise ValueError(
                'selection=None leaves nothing to choose C and gamma: give both, or use selection="cv"'
            )
        from polymargin.folds import training_folds
        from polymargin.machines.cross_validation import cross_validate, default_C, default_gamma

        selection = cross_validate(
            data,
            codebook,
            C=default_C() if self.C is None else np.array([self.C]),
            gamma=default_gamma(data) if gamma is None else np.array([gamma]),
            folds=training_folds(data, cv, self.random_state),
            decoder=decoder if self.shared_parameters else None,
            box_weights=box_weights,
            options=options,
            progress=progress,
        )
        return selection.best_C, selection.best_gamma, selection

    def _class_weights(self, data: TrainingRows) -> Array:
        """Return the factor of C for every class; "balanced" counts rows, as in ``SVC``, whatever their weights."""
        counts = np.bincount(data.class_index, minlength=self.classes_.size)
        return class_factors(self.class_weight, self.classes_, counts)

    def _box_weights(self, data: TrainingRows) -> Array:
        """Return the box of every row in multiples of C."""
        return data.weights * self._class_weights(data)[data.class_index]
