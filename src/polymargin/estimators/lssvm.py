"""LSSVMClassifier: least-squares dichotomies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from polymargin._progress import Progress
from polymargin.codebooks import Codebook
from polymargin.decoders import Decoder
from polymargin.estimators._flow import DichotomyClassifier, check_positive
from polymargin.machines import LSSVMBank, TrainingRows, fit_lssvm_bank
from polymargin.outputs import Outputs

Array = NDArray[Any]


class LSSVMClassifier(DichotomyClassifier):
    """Multiclass least-squares support vector machine with class probabilities.

    K classes are divided into L dichotomies by an output coding, each is learned by a least-squares SVM whose
    regularisation and kernel width are inferred by the evidence framework, and the outputs are decoded into
    class probabilities by Bayes' rule (Van Gestel et al. 2002). No cross-validation, no calibration step: the
    probabilities come with the fit, and ``predict`` always agrees with ``predict_proba``.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances.

    Parameters
    ----------
    C : float or None, default=None
        Regularisation, the larger the less; the papers' γ = ζ/μ. None: selected inside ``fit``.
    kernel : {"linear", "poly", "rbf", "laplacian", "precomputed"} or callable, default="rbf"
        The kernel. A callable gets two arrays of rows and returns the matrix of kernel values.
    gamma : float, "scale", "auto" or None, default=None
        Coefficient of "rbf", "laplacian" and "poly"; the papers' σ² is 1/gamma. None: selected inside ``fit``.
    degree : float, default=3
        Degree of "poly", (gamma x·z + coef0)^degree.
    coef0 : float, default=1.0
        Constant of "poly".
    coding : {"one-vs-one", "one-vs-all", "minimal", "ecoc", "adaptive"}, Codebook or array of shape (K, L), \
default="one-vs-one"
        How the classes are divided into dichotomies.
    decoding : {"bayes", "hamming", "loss", "argmax", "votes", "dag", "mixture"} or Decoder, default="bayes"
        How the outputs of the machines become labels and, for "bayes", probabilities.
    selection : {"evidence", None}, default="evidence"
        How C and gamma are selected where they are None. None: both must be given.
    shared_parameters : bool, default=True
        Whether selected parameters are the same for all machines. False gives each machine its own, as the paper
        does: slower, and on the paper's ten datasets no better.
    priors : None, "uniform", "empirical" or array of shape (K,), default=None
        Prior class probabilities of Bayesian decoding. The outputs of the machines carry the class frequencies of the
        training rows already, so None, which is "uniform", stands for data with the same frequencies; "empirical"
        counts them once more.
    verbose : int, default=0
        Whether ``fit`` shows its progress: a bar on stderr with the time left, or, where that is no terminal, a line
        now and then in the log ("polymargin", level INFO).
    random_state : int, RandomState instance or None, default=None
        Used by ``coding="ecoc"``.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    codebook_ : Codebook
        The dichotomies.
    decoder_ : Decoder
        The fitted decoder.
    bank_ : LSSVMBank
        The fitted machines.
    C_, gamma_, mu_, zeta_, log_evidence_, intercept_ : ndarray of shape (L,)
        Of every machine: the regularisation, kernel parameter, hyperparameters of the weights and of the noise,
        log-evidence (up to a constant that depends on the number of its rows only), and bias.
    dual_coef_ : ndarray of shape (L, n_support)
        Coefficients of the kernel expansions.
    support_ : ndarray of int
        The training rows that carry the machines: all those of positive weight.
    n_support_ : ndarray of int, shape (K,)
        Their number in every class.
    loo_margins_ : ndarray of shape (n_support, L)
        What each machine would say of each training row had it been trained without that row: exact, and free.
        (Of a row of weight s > 1, which counts as s rows, one is left out.)
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from polymargin import LSSVMClassifier
    >>> X_train, X_test, y_train, y_test = train_test_split(*load_wine(return_X_y=True), random_state=0)
    >>> model = make_pipeline(StandardScaler(), LSSVMClassifier()).fit(X_train, y_train)
    >>> model.score(X_test, y_test)
    1.0
    >>> model.predict_proba(X_test[:2]).round(2)
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """

    def __init__(
        self,
        C: float | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        coding: Any = "one-vs-one",
        decoding: Any = "bayes",
        selection: str | None = "evidence",
        shared_parameters: bool = True,
        priors: Any = None,
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
        self.shared_parameters = shared_parameters
        self.priors = priors
        self.verbose = verbose
        self.random_state = random_state

    def _fit_machines(
        self, data: TrainingRows, codebook: Codebook, decoder: Decoder, progress: Progress | None = None
    ) -> None:
        if self.C is not None:
            check_positive("C", self.C, "or None to have it selected")
        gamma = self._resolved_gamma(data.X, data.weights)
        if self.selection not in ("evidence", None):
            raise ValueError(f'unknown selection {self.selection!r}; choose "evidence" or None')
        if self.selection is None and (self.C is None or (gamma is None and data.kernel.tunable)):
            raise ValueError(
                'selection=None leaves nothing to choose C and gamma: give both, or use selection="evidence"'
            )
        self.bank_: LSSVMBank = fit_lssvm_bank(
            data,
            codebook,
            C=self.C,
            gamma=gamma,
            pools=[np.arange(codebook.n_columns)] if self.shared_parameters else None,
            keep_factors=decoder.needs_variances,
            progress=progress,
        )
        self.n_support_ = np.bincount(data.class_index)

    def _training_outputs(self, *, honest: bool, progress: Progress | None = None) -> Outputs:
        return self.bank_.training_outputs(honest=honest)

    def _outputs(self, X: Any, *, variances: bool) -> Outputs:
        return self.bank_.outputs(X, variances=variances)

    def variances(self, X: ArrayLike) -> Array:
        """Return σ_z², every machine's own uncertainty about its output, shape (n_samples, L)."""
        check_is_fitted(self)
        variances = self._outputs(self._new_rows(X), variances=True).variances
        assert variances is not None
        return variances

    @property
    def C_(self) -> Array:
        """The regularisation of every machine, shape (L,)."""
        return self.bank_.C

    @property
    def gamma_(self) -> Array:
        """The kernel parameter of every machine, shape (L,)."""
        return self.bank_.gamma

    @property
    def mu_(self) -> Array:
        """The inverse prior variance of the weights of every machine, shape (L,)."""
        return self.bank_.mu

    @property
    def zeta_(self) -> Array:
        """The inverse noise variance of every machine, shape (L,)."""
        return self.bank_.zeta

    @property
    def log_evidence_(self) -> Array:
        """The level-three log-evidence of every machine, shape (L,)."""
        return self.bank_.log_evidence

    @property
    def dual_coef_(self) -> Array:
        """The kernel coefficients of every machine, shape (L, n_support)."""
        return self.bank_.dual_coef

    @property
    def intercept_(self) -> Array:
        """The bias of every machine, shape (L,)."""
        return self.bank_.intercept

    @property
    def loo_margins_(self) -> Array:
        """The leave-one-out margins of the training rows, shape (n_support, L)."""
        return self.bank_.loo_margins
