"""SVMClassifier: support vector machines for the dichotomies of a codebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from polymargin.estimators._svc_attributes import SVCAttributesMixin
from polymargin.estimators._svm_training import SVMTrainingMixin

if TYPE_CHECKING:  # importing them at run time would load numba with the package
    from polymargin.machines.svm import SVMBank
    from polymargin.selection.surface import CrossValidation

Array = NDArray[Any]


class SVMClassifier(SVCAttributesMixin, SVMTrainingMixin):
    """Multiclass support vector machine with any output coding and decoding.

    All parameters of scikit-learn's ``SVC`` are understood, so that ``SVMClassifier(**svc.get_params())`` is the same
    machine, with the same labels; by default only ties between classes differ (``break_ties``). With
    ``probability=True`` probabilities are learned from out-of-fold outputs, and labels agree with them. All dichotomies
    share one source of kernel values, and C and gamma can be selected inside ``fit``.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    C : float or None, default=1.0
        Regularisation, the larger the less. None: selected inside ``fit``.
    kernel : {"linear", "poly", "rbf", "laplacian", "exponential", "blend", "sigmoid", "precomputed"} or callable, \
default="rbf"
        The kernel. A callable takes two arrays of rows and returns the matrix of kernel values. "sigmoid",
        tanh(gamma x·z + coef0), is not positive definite: as in ``SVC``, the solution is a stationary point, perhaps
        not the best one, and a warning says so; "rbf" is safer.
    gamma : float, "scale", "auto" or None, default="scale"
        Coefficient of all kernels but "linear", "precomputed" and functions. "scale" is one over the number of features
        times the variance of X, weighted by the sample weights. None: selected inside ``fit``.
    degree : float, default=3
        Degree of "poly", (gamma x·z + coef0)^degree.
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    coding : {"one-vs-one", "one-vs-all", "minimal", "ecoc", "adaptive"}, Codebook, array of shape (K, L) or None, \
default="one-vs-one"
        How the classes are divided into dichotomies. The default is that of ``SVC``; None is the default of
        `LSSVMClassifier`, which is "one-vs-all" for more than 64 classes.
    decoding : str, Decoder or None, default=None
        How the outputs of the machines become labels: "hamming" (with one-vs-one the votes of ``SVC``), "loss" (the
        hinge loss, with which the machines are trained), "argmax", "votes", "dag", one that gives probabilities, such
        as "coupled-softmax", "softmax" or "coupling", or any other that needs no variances. None: "coupled-softmax"
        with ``probability=True``, else "hamming".
    probability : bool, default=False
        Whether probabilities are learned where `decoding` is None. They take a fit of the machines per fold, and labels
        are then those of the largest probability, which are not always those of the votes. With a decoding that has
        probabilities they are there in any case; True with one that has none is an error.
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
        selected, and for a decoder that learns, but not for ``gamma="scale"``. Probabilities are then those of classes
        in the proportions of the weighted rows, so that labels move towards heavier classes as those of votes do.
    priors : None, "uniform", "empirical", array of shape (K,) or dict, default=None
        Prior class probabilities, for decoders that work with them; a dict names the classes.
    tol : float, default=1e-3
        Largest violation of the optimality conditions, as in LIBSVM: the largest difference of two rows' residuals
        y − f(x) that a step could still reduce. It is absolute, in the unit of the margins. It bounds neither the error
        of the coefficients nor the duality gap relative to the objective, which can be much larger when C is large;
        ``bank_.duality_gap`` has the absolute gap.
    shrinking : bool, default=True
        Has no effect, as the solution does not depend on it: the solver itself decides when to set rows aside.
    cache_size : float or None, default=None
        Megabytes of kernel values to keep between steps of the solver; less makes it slower. Where the kernel matrix is
        needed as a whole, as for precomputed kernels, functions and sparse rows, it is kept in any case. None: what
        memory allows, up to 2 GiB.
    max_iter : int, default=-1
        Limit on the solver's steps per machine. -1 allows 10⁸ steps, or a thousand per training row if that is more,
        and 10⁷ if C is so large that rounding exceeds ``tol``. With up to a thousand rows 10⁸ steps take about 20
        seconds. A machine that stops there is used as it is, with a ``ConvergenceWarning``.
    cv : int, splitter or iterable of splits, default=5
        The folds of the selection, and of the out-of-fold outputs that a decoder learns from and by which an adaptive
        codebook grows. With a number, the folds are random and stratified; equal rows are not kept together, rows of
        one group are. A splitter is given the ``groups`` of `fit`.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        What `decision_function` returns: a score for every class, or with "ovo" the margins of all pairs of classes,
        for which `coding` must be "one-vs-one".
    break_ties : bool, default=True
        Whether equal votes go to the class with the larger sum of margins, so that labels are those of the largest
        `decision_function` of "ovr". False: to the first of these classes, as in ``SVC`` by default. Decodings other
        than votes of one-vs-one machines have no ties to break.
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
    coding_ : str, Codebook or array
        The coding, given or chosen.
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
    coef_ : ndarray or sparse matrix of shape (L, n_features)
        With a linear kernel, the weights of the columns. Read-only. The signs of `coef_`, `intercept_` and `dual_coef_`
        are those of ``SVC``, and of `decision_function` with "ovo": of three and more classes, a one-vs-one machine is
        positive for the first class of its pair. Those of `margins` and ``bank_`` are the codebook's, where it is the
        second.
    n_iter_ : ndarray of int, shape (L,)
        The steps the solver took.
    support_ : ndarray of int, shape (n_support,)
        The training rows that are support vectors of some machine, ascending. Of several copies of a row, the first
        is listed.
    support_vectors_ : array or sparse matrix of shape (n_support, d)
        These rows; empty for a precomputed kernel.
    n_support_ : ndarray of int, shape (K,)
        Their number in every class.
    dual_coef_ : ndarray or sparse matrix of shape (L, n_support)
        Coefficients of the kernel expansions, a row for each machine, sparse if X was. ``SVC`` packs those of three and
        more classes into K - 1 rows.
    fit_status_ : int
        0 if all machines are solved to the tolerance, else 1, with a warning.
    shape_fit_ : tuple of int
        The shape of X.
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

    With probabilities:

    >>> model = make_pipeline(StandardScaler(), SVMClassifier(probability=True)).fit(X_train, y_train)
    >>> model.predict_proba(X_test[:2]).round(1)
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """

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
        decoding: Any = None,
        probability: Any = False,
        selection: str | None = "cv",
        columns: Any = None,
        metric: Any = None,
        shared_parameters: bool = True,
        class_weight: Any = None,
        priors: Any = None,
        tol: float = 1e-3,
        shrinking: bool = True,
        cache_size: float | None = None,
        max_iter: int = -1,
        cv: Any = 5,
        decision_function_shape: str = "ovr",
        break_ties: bool = True,
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
        self.probability = probability
        self.selection = selection
        self.columns = columns
        self.metric = metric
        self.shared_parameters = shared_parameters
        self.class_weight = class_weight
        self.priors = priors
        self.tol = tol
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.max_iter = max_iter
        self.cv = cv
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
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
            With ``decision_function_shape="ovr"`` the scores of the classes, on the scale of the decoding. Votes of
            one-vs-one machines, the default, are on the scale of ``SVC``: the number of votes, and a third of
            s/(1 + abs(s)), where s is the sum of the margins for the class. Probabilities are given as their
            logarithms, other decodings have negative distances or losses. For two classes it is the difference of both
            scores; with one machine and a decoder that does not learn, the margin of the machine, as in ``SVC``.
        ndarray of shape (n_samples, K (K - 1) / 2)
            With "ovo" the margins of the pairwise machines as ``SVC`` returns them, positive for the first class of a
            pair; shape (n_samples,), positive for the second class, if there are two.
        """
        return super().decision_function(X)
