"""SVMClassifier: support vector machines for the dichotomies of a codebook."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymargin._progress import Progress
from polymargin.codebooks import Codebook, Train
from polymargin.decoders import Decoder, Hamming
from polymargin.estimators._growth import SINGLE, WarmColumns
from polymargin.estimators._hinge import HingeClassifier
from polymargin.estimators._validation import check_positive, class_factors
from polymargin.machines import TrainingRows
from polymargin.machines._workspace import SharedWork, cache_key

if TYPE_CHECKING:  # importing them at run time would load numba with the package
    from polymargin.machines.svm import SolverOptions, SVMBank
    from polymargin.selection.surface import CrossValidation

Array = NDArray[Any]


class SVMClassifier(HingeClassifier):
    """Multiclass support vector machine with any output coding and decoding.

    The parameters are those of scikit-learn's ``SVC`` where they mean the same, and so are the labels of the default
    one-vs-one coding, up to ties between classes, which here go to the larger sum of margins. All dichotomies share
    one source of kernel values, and C and gamma can be selected inside ``fit``.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    C : float or None, default=1.0
        Regularisation, the larger the less. None: selected inside ``fit``.
    kernel : {"linear", "poly", "rbf", "laplacian", "exponential", "blend", "precomputed"} or callable, default="rbf"
        The kernel. A callable takes two arrays of rows and returns the matrix of kernel values.
    gamma : float, "scale", "auto" or None, default="scale"
        Coefficient of "rbf", "laplacian", "exponential", "blend" and "poly". "scale" is one over the number of
        features times the variance of X, weighted by the sample weights. None: selected inside ``fit``.
    degree : float, default=3
        Degree of "poly", (gamma x·z + coef0)^degree.
    coef0 : float, default=0.0
        Constant of "poly".
    coding : {"one-vs-one", "one-vs-all", "minimal", "ecoc", "adaptive"}, Codebook or array of shape (K, L), \
default="one-vs-one"
        How the classes are divided into dichotomies.
    decoding : str or Decoder, default="hamming"
        How the outputs of the machines become labels: "hamming" (with one-vs-one the votes of ``SVC``), "loss" (the
        hinge loss, with which the machines are trained), "argmax", "votes", "dag", or any decoder that needs no
        variances.
    selection : {"cv", None}, default="cv"
        How C and gamma are selected where they are None: by cross-validated accuracy on a grid that grows where the
        best point lies on its edge. None: both must be given.
    columns : "ranks" or None, default=None
        What of the columns the kernel compares: with "ranks" the ranks among the training rows, for columns with heavy
        tails. None: the values.
    metric : array-like of shape (n_features,) or None, default=None
        The widths of the columns: column j, or its ranks, is multiplied by ``metric[j]`` before the kernel compares
        rows; for example those that `LSSVMClassifier` with ``metric="learned"`` has found, its ``metric_``.
    shared_parameters : bool, default=True
        Whether selected parameters are the same for all machines. If False, they are selected for each machine by its
        own accuracy, as in Van Gestel et al. (2002).
    class_weight : dict, "balanced" or None, default=None
        Factors of the weights of every class's rows, one for classes that a dict does not name. As in ``SVC``,
        "balanced" is n / (K n_k), where n is the number of rows and n_k the number of those in the class. Rows of
        weight zero are not counted, and all others count alike: the bound of a row's dual variable is the product of
        C, of this factor and of its sample weight. The factors also count in the accuracy by which parameters are
        selected, and for a decoder that learns, but not for ``gamma="scale"``.
    priors : None, "uniform", "empirical", array of shape (K,) or dict, default=None
        Prior class probabilities, for decoders that work with them; a dict names the classes.
    tol : float, default=1e-3
        Largest violation of the optimality conditions, as in LIBSVM: the largest difference of two rows' residuals
        y − f(x) that a step could still reduce. It is absolute, in the unit of the margins. It bounds neither the error
        of the coefficients nor the duality gap relative to the objective, which can be much larger when C is large;
        ``bank_.duality_gap`` has the absolute gap.
    max_iter : int, default=-1
        Limit on the solver's steps per machine. -1 allows 10⁸ steps, or a thousand per training row if that is more,
        and 10⁷ if C is so large that rounding exceeds ``tol``. With up to a thousand rows 10⁸ steps take about 20
        seconds. A machine that stops there is used as it is, with a ``ConvergenceWarning``.
    cv : int, splitter or iterable of splits, default=5
        The folds of the selection, and of the out-of-fold outputs that a decoder learns from and by which an adaptive
        codebook grows. With a number, the folds are random and stratified; equal rows are not kept together, rows of
        one group are. A splitter is given the ``groups`` of `fit`.
    n_jobs : int or None, default=None
        Threads; the result does not depend on it.
    verbose : int, default=0
        Whether ``fit`` shows its progress: a bar with the time left if stderr is a terminal, otherwise messages of the
        logger "polymargin" at level INFO.
    random_state : int, RandomState instance or None, default=None
        For the folds and for ``coding="ecoc"``.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    codebook_ : Codebook
        The dichotomies.
    decoder_ : Decoder
        The fitted decoder.
    kernel_ : Kernel
        The kernel.
    bank_ : SVMBank
        The fitted machines, with a certificate for each: ``status``, ``kkt_violation``, ``duality_gap``.
    C_, gamma_, intercept_ : ndarray of shape (L,)
        Of every machine: the regularisation, the kernel parameter and the bias.
    n_iter_ : ndarray of int, shape (L,)
        The steps the solver took.
    support_ : ndarray of int, shape (n_support,)
        The training rows that are support vectors of some machine, ascending. Of several copies of a row, the first
        is listed.
    support_vectors_ : array or sparse matrix of shape (n_support, d)
        These rows; empty for a precomputed kernel.
    n_support_ : ndarray of int, shape (K,)
        Their number in every class.
    dual_coef_ : ndarray of shape (L, n_support)
        Coefficients of the kernel expansions.
    class_weight_ : ndarray of shape (K,)
        The factor of C for every class.
    selection_ : CrossValidation or None
        The scores of the whole grid, where something was selected.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    PosteriorSVMClassifier : Hinge loss with soft labels, for noisy labels.
    LSSVMClassifier : Least-squares dichotomies, tuned and calibrated by leave-one-out outputs.
    sklearn.svm.SVC : scikit-learn's support vector machine, one-vs-one.

    Notes
    -----
    The minimiser of the hinge loss is the sign of the more probable class, not its probability. Where rows with the
    same features occur in both classes, as with nominal features, the outputs of a machine approach −1 or +1 in every
    such cell, whatever the frequencies, and no decoder can recover these. The outputs of `PosteriorSVMClassifier` and
    `LSSVMClassifier` do depend on the frequencies.

    References
    ----------
    .. [1] Allwein, E., Schapire, R. and Singer, Y. (2000). Reducing Multiclass to Binary: A Unifying Approach for
       Margin Classifiers. Journal of Machine Learning Research 1, 113-141.
    .. [2] Mayoraz, E. and Alpaydın, E. (1998). Support Vector Machines for Multi-Class Classification. IDIAP-RR 98-06.
    .. [3] Van Gestel, T., Suykens, J. A. K., Lanckriet, G., Lambrechts, A., De Moor, B. and Vandewalle, J. (2002).
       Multiclass LS-SVMs: Moderated Outputs and Coding-Decoding Schemes. Neural Processing Letters 15.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import SVMClassifier
    >>> X_train, X_test, y_train, y_test = train_test_split(*load_wine(return_X_y=True), random_state=0)
    >>> model = make_pipeline(StandardScaler(), SVMClassifier(coding="one-vs-all")).fit(X_train, y_train)
    >>> model.score(X_test, y_test)
    1.0
    """

    class_weight_in_box = True

    bank_: SVMBank
    selection_: CrossValidation | None

    def __init__(
        self,
        C: float | None = 1.0,
        *,
        kernel: Any = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        coding: Any = "one-vs-one",
        decoding: Any = "hamming",
        selection: str | None = "cv",
        columns: Any = None,
        metric: Any = None,
        shared_parameters: bool = True,
        class_weight: Any = None,
        priors: Any = None,
        tol: float = 1e-3,
        max_iter: int = -1,
        cv: Any = 5,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.coding = coding
        self.decoding = decoding
        self.selection = selection
        self.columns = columns
        self.metric = metric
        self.shared_parameters = shared_parameters
        self.class_weight = class_weight
        self.priors = priors
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> SVMClassifier:
        """Fit the machines and the decoder.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; the square Gram matrix for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Factors of C: with given C and gamma, a row of weight two is equivalent to the row twice, and a row of
            weight zero to no row.
        groups : array-like of shape (n_samples,), default=None
            The group of every row, such as the patient or the session it comes from, or the row it is a copy of. Rows
            of one group are one observation: folds keep them together. None: every row is a group of its own, except
            likely copies of a row, which form one group, with a warning.

        Returns
        -------
        self : SVMClassifier
            The fitted estimator.
        """
        return super().fit(X, y, sample_weight, groups)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the scores of the classes, by which rows can be ranked.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, K), or (n_samples,) for two classes
            What the decoder maximises, so its scale depends on the decoder: log-probabilities where there are
            probabilities, else votes or negative losses. For three and more classes this is not the scale of ``SVC``,
            which adds fractions of a vote to pairwise votes ("ovr") or returns the pairwise margins ("ovo"); the latter
            are in `margins`, up to their signs. For two classes it is the difference of both scores; with one machine
            and a decoder that does not learn, it is the margin of the machine, as in ``SVC``.
        """
        return super().decision_function(X)

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
        self, decoder: Decoder, data: TrainingRows, shared: SharedWork, progress: Progress | None
    ) -> Decoder:
        # With the weights of the machines, or what is learned here would undo class_weight.
        return super()._fit_decoder(decoder, replace(data, weights=self._box_weights(data)), shared, progress)

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
