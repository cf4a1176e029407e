"""LSSVMClassifier: least-squares dichotomies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgWarning
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from polymargin._progress import Progress
from polymargin._threads import blas_threads_for
from polymargin._warnings import warn
from polymargin.codebooks import Codebook, Train
from polymargin.decoders import Decoder, ProbabilisticDecoder
from polymargin.estimators._choice import choose
from polymargin.estimators._dask import GatherMixin
from polymargin.estimators._flow import DichotomyClassifier
from polymargin.estimators._incremental import GrowingMixin
from polymargin.estimators._lssvm_attributes import AttributesMixin
from polymargin.estimators._lssvm_parameters import ParametersMixin
from polymargin.estimators._lssvm_scale import ScaleMixin
from polymargin.estimators._soft_labels import DecoderRows, decoder_rows
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, TrainingRows
from polymargin.machines._workspace import SharedWork
from polymargin.outputs import Outputs
from polymargin.scale._places import place_for
from polymargin.scale.plan import ScalePlan
from polymargin.scale.settings import ScaleSettings
from polymargin.scale.sources import MemoryRows
from polymargin.selection.settings import SearchSettings

Array = NDArray[Any]

#: A fit warns if fewer significant digits than this are expected of the margins: errors of 1e-4 do not show in the
#: first three decimals of a probability, larger ones may. Of 1152 random fits compared with exact arithmetic (all
#: kernels, C up to 1e12, nearly equal rows, columns far from zero) 116 had larger errors and are all warned of, with 24
#: others, most of which lost nearly as many.
_LEAST_DIGITS = 4


class LSSVMClassifier(
    AttributesMixin, ParametersMixin, ScaleMixin, GrowingMixin, GatherMixin, DichotomyClassifier
):
    """Multiclass least-squares support vector machine with calibrated class probabilities and automatic tuning.

    An output coding divides the K classes into L dichotomies (two-class problems). A least-squares SVM is trained on
    each, and a decoder turns their outputs into class probabilities. Every fit yields the exact leave-one-out outputs
    of all machines. They are used to select kernel, C and gamma, and the decoder is fitted to them, so that tuning and
    calibration need no refit of the selected machines. ``predict`` always agrees with ``predict_proba``.
    ``selection="evidence"`` with ``noise_floor=0`` and ``decoding="bayes"`` is the machine of Van Gestel et al. 2002.

    Scale the features first, for example with ``StandardScaler``: kernels compare distances. A
    ``scipy.linalg.LinAlgWarning`` is issued if rounding errors leave few correct digits in the machines' outputs, as
    with a huge C or with columns far from zero.

    Parameters
    ----------
    C : float or None, default=None
        Inverse regularisation strength: the larger, the less regularisation; the papers' γ = ζ/μ. None: selected inside
        ``fit``.
    kernel : {"linear", "poly", "rbf", "laplacian", "exponential", "blend", "precomputed"}, callable or None
        The kernel. "blend" is a sum of "laplacian" and "rbf"; "exponential" is exp(-gamma ‖x - z‖), with the Euclidean
        distance. A callable takes two arrays of rows and returns their kernel matrix. None, the default: "blend", or
        "poly" of degree 2 on centred rows, whichever has the lower cross-fitted log-loss (with many rows they are
        compared on a sample of 800 or more); "rbf" if gamma is given as a number or ``selection=None``.
    gamma : float, "scale", "auto" or None, default=None
        Coefficient of "rbf", "laplacian", "exponential", "blend" and "poly"; the papers' σ² is 1/gamma. None:
        selected inside ``fit``.
    degree : float or None, default=None
        Degree of "poly", (gamma x·z + coef0)^degree. None: 2, 3 or 4, selected like the kernel, or 3 if nothing is
        selected.
    coef0 : float, default=1.0
        Constant of "poly". Changing it is equivalent to rescaling gamma and C.
    coding : {"one-vs-one", "one-vs-all", "minimal", "ecoc", "adaptive"}, Codebook, array of shape (K, L) or None, \
default=None
        The output coding, which divides the classes into dichotomies. None: "one-vs-one" up to 64 classes and
        "one-vs-all" for more, where K(K−1)/2 machines would take long; for any number of classes the one of the two
        that the decoding can read, if it needs a machine for every pair of classes, or one for every class.
    decoding : str or Decoder, default="coupled-softmax"
        The decoder, which turns the outputs of the machines into labels and probabilities. "coupled-softmax",
        "softmax", "coupling" and "bayes" have probabilities; "hamming", "loss", "argmax", "votes", "dag" and "mixture"
        only labels.
    selection : {"loo", "loo-exact", "gcv", "evidence", None}, default="loo"
        How C and gamma are selected if they are None: by the squared leave-one-out errors (PRESS) on a grid, followed
        by gradient descent; by generalised cross-validation; or by the Bayesian evidence. "loo" uses all rows while its
        budget (``search``) allows, otherwise a stratified sample; "loo-exact" always uses all rows. With "loo", the
        decoder's cross-fitted log-loss selects the kernel, and decides whether a smaller C is better than the one of
        least PRESS. None: both must be given.
    columns : "ranks" or None, default=None
        What the kernel compares. "ranks": the ranks of the columns among the training rows, for heavy tails; ranks are
        interpolated between 32 quantiles, and ties get their mean rank. Ranks do not depend on the units of the
        columns, so that the features need no scaling. None: the values.
    metric : "learned", array-like of shape (n_features,) or None, default=None
        The weights of the columns in the kernel: column j, or its ranks, is multiplied by ``metric[j]`` before the
        kernel compares rows. "learned" (metric learning): each column is scaled by how steep the machines are along it,
        in a few rounds, so that irrelevant columns fade out. The learned metric is kept only if it lowers the log-loss,
        by one standard error and by 3 in the sum over all rows, on rows held out from the metric, the machines and the
        decoder. It takes two to seven times as long.
    shared_parameters : bool, default=True
        Whether selected parameters are the same for all machines. False selects them for each machine separately, as in
        the paper: slower, and no better on the paper's ten datasets.
    noise_floor : float, default=0.25
        Lower bound on the noise-to-signal ratio, 1/C over the mean eigenvalue of the centred kernel matrix, for
        ``selection="evidence"``; not used by the other selections. If the ratio of maximal evidence is above the bound,
        the machine is that of Van Gestel et al. 2002. If it is below, as is common on separable or nearly separable
        data, C is that of the bound, and gamma the best one for it. With 0, the selection is always that of the paper;
        its machines may interpolate the labels and are then always overconfident. It must be less than 1e6, the upper
        end of the search.
    search : SearchSettings or None, default=None
        Range and budget of the search (`polymargin.selection.SearchSettings`); None for the defaults.
    scale : {"auto", "exact", "leaves", "landmarks", "both"}, default="auto"
        The method for many rows. "exact": machines on all rows, with O(n²) memory and O(n³) time. "leaves": exact
        machines on the leaves of a tree, overlapping regions of a few thousand rows, so that probabilities are
        continuous. "landmarks": machines on Nyström features of ``n_landmarks`` (or on the explicit feature map, if the
        kernel has one with few features). "both": a pool of leaves and landmarks. Except for "exact", the cost is
        linear in the number of rows, and kernel and metric are selected on a sample. "auto": "exact" where that is
        affordable, else "both" (see ``plan_``).
    n_landmarks : int, array of shape (r, n_features) or None, default=None
        The number of landmarks, or the landmarks themselves; None: a thousand, fewer if memory is short.
    scaling : ScaleSettings or None, default=None
        The sizes of leaves and samples (`polymargin.scale.ScaleSettings`); None for the defaults.
    device : {"cpu", "cuda", "cuda:<number>"} or None, default=None
        The device on which machines are trained and evaluated: with "cuda" a GPU, with torch or CuPy (extra ``gpu``),
        in float64. Exact machines are for up to some 60 000 rows with 140 GB of GPU memory; kernel, metric and
        parameters are selected on a sample on the CPU and refined on the GPU. Fits that exceed the GPU's memory are
        divided into leaves and landmarks, which use the GPU where it is faster and has the memory, and the CPU
        elsewhere; so does the softmax of a decoder. None: the CPU, or the GPU that holds X, under
        ``sklearn.config_context(array_api_dispatch=True)``.
    class_weight : dict, "balanced" or None, default=None
        Factors that multiply the weights of the rows of each class; "balanced": inversely proportional to the class
        frequencies. The probabilities are those for the class proportions of the weighted rows.
    priors : None, "uniform", "empirical", array of shape (K,) or dict, default=None
        The class frequencies to expect in use. The probabilities are re-weighted from the training frequencies to
        these. A dict maps class labels to frequencies. None, the same as "empirical": as in training.
    classes : array-like of shape (K,) or None, default=None
        The class labels of the columns of y if `fit` is given soft labels; None for the names of a DataFrame's columns,
        else 0, …, K−1. With labels in y, None, or the labels that y has.
    n_jobs : int or None, default=None
        The number of candidate kernels fitted in parallel with joblib, whose backend is set with
        ``joblib.parallel_config``, and of threads that share groups of rows, parts of large matrices and the rows of
        predictions. In long fits with four jobs or more, on as many cores, joblib's processes take the place of threads
        where there are many groups of few rows, unless another backend than "loky" is set. The result does not depend
        on it; more jobs than there are cores are slower.
    verbose : int, default=0
        Whether ``fit`` shows its progress: a bar on stderr with the time left, or, if stderr is not a terminal,
        occasional messages of the logger "polymargin" at level INFO.
    random_state : int, RandomState instance or None, default=None
        Seeds the folds and samples of rows, and the codebook of ``coding="ecoc"``. For folds and samples None is the
        same as 0, so that fits are reproducible. Neither the order of the rows nor the names of the classes matter.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    kernel_ : Kernel
        The kernel.
    search_results_ : dict of str to list, or None
        The candidates of the search, as columns with one entry per candidate: "kernel", "C", "gamma", "smaller_C" (the
        factor by which C is smaller than the one of least leave-one-out error), "loss" (the decoder's cross-fitted
        log-loss, or the machines' mean squared leave-one-out error where it learns no probabilities), "chosen", and
        "n_rows", the number of rows. Use ``pandas.DataFrame(search_results_)``. None if there was only one candidate.
    kernel_losses_ : dict of str to float, or None
        The out-of-sample loss of every kernel tried; None if there was only one.
    metric_ : ndarray of shape (n_features,) or None
        The weights of the columns, learned or given; None: the columns are not scaled.
    metric_results_ : dict of str to list, or None
        The rounds of a learned metric, as columns with one entry per round: "kernel", "rounds" (0: without a metric),
        "loss" (on rows held out from the metric, the machines and the decoder), "loss_on_all_rows" (the same for
        machines trained on all rows, if the metric was learned from a sample; NaN if it was not needed), "chosen", and
        "n_rows", the number of rows from which the metric was learned. None if no metric was to be learned.
    feature_relevance_ : ndarray of shape (n_features,)
        How much the machines depend on every column: the mean squared change of their outputs if its value is replaced
        by that of another row (total Sobol indices), as shares that sum to one. A sensitivity of the fitted machines,
        not a causal effect: of two redundant columns, either may have the share, or each a half.
    feature_relevance_folds_ : ndarray of shape (n_folds, n_features) or None
        With ``metric="learned"``, the relevance for metrics and machines learned without each fold (at most
        ``search.folds``; fewer if all rows of a class are in one fold).
    feature_relevance_std_ : ndarray of shape (n_features,) or None
        Standard deviation of the relevance over folds. The folds share training rows, so that independent samples would
        vary more.
    coding_ : str, Codebook or array
        The coding, chosen or given.
    codebook_ : Codebook
        The dichotomies.
    decoder_ : Decoder
        The fitted decoder.
    bank_ : LSSVMBank or ScaledBank
        The fitted machines.
    plan_ : ScalePlan
        How the fit was divided, and why; see ``print(model.plan_)``. With leaves and landmarks, ``C_``, ``gamma_``, the
        evidence and ``feature_relevance_`` are those of the exact machines on a sample on which the parameters were
        selected.
    C_, gamma_, mu_, zeta_, log_evidence_, intercept_ : ndarray of shape (L,)
        For every machine: the regularisation, the kernel parameter, the hyperparameters of the weights and of the
        noise, the log-evidence (up to a constant that depends only on its number of rows), and the bias.
    shrinkage_ : float
        The factor by which ``C_`` is smaller than the C of least leave-one-out error: more than one if machines with a
        smaller C had a significantly lower log-loss.
    coef_ : ndarray or sparse matrix of shape (L, n_features)
        With a linear kernel, the weights of the columns: ``margins(X)`` is ``X @ coef_.T + intercept_``.
    dual_coef_ : ndarray of shape (L, n_support)
        Coefficients of the kernel expansions.
    support_ : ndarray of int
        Indices of the training rows used by the machines: all those of positive weight; of exact duplicates in one
        group, only the first. With leaves and landmarks: the sample of rows whose leave-one-out outputs the decoder is
        fitted to.
    n_support_ : ndarray of int, shape (K,)
        The number of these rows in every class.
    n_rows_ : int
        With leaves and landmarks: the number of training rows.
    loo_margins_ : ndarray of shape (n_support, L)
        The exact leave-one-out margins: those of each training row are computed by machines trained without this row
        and the other rows of its group (without a refit). The decoder is fitted to these margins after the
        leave-one-out shift of the target mean has been removed, see `polymargin.outputs.Outputs`.
    loo_log_proba_ : ndarray of shape (n_support, K)
        Cross-fitted log-probabilities of the training rows, by machines and decoders trained without the row's fold
        (with many rows, where the difference is negligible, by machines trained without this row). Only for decodings
        that learn probabilities.
    loo_log_loss_ : float
        The log-loss of `loo_log_proba_`, an estimate of the log-loss on new rows. Rows from which a metric was learned
        are excluded, unless it was learned from all rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    AutoKernelClassifier : Several least-squares classifiers, pooled by their held-out log-loss.
    SVMClassifier : Hinge loss, with the parameters of ``SVC`` and any coding and decoding.
    PosteriorSVMClassifier : Hinge loss with soft labels, for noisy labels.
    KernelLogisticClassifier : All classes at once, by the cross-entropy, without dichotomies.

    Notes
    -----
    The machines are ridge regressions of targets ±1 with an unregularised bias:
    ``[[0, 1'], [1, K + I/C]] [b; a] = [0; y]``. The matrix does not depend on the labels, so that machines on the same
    rows share one factorisation, which takes O(n³) operations. The leave-one-out output of row i differs from its
    target by ``a_i / ([(K + I/C)⁻¹]_ii − v_i² / 1'v)``, where v solves (K + I/C) v = 1 (§4 of [4]_). C and gamma
    minimise PRESS, the sum of the squared differences; the decoder's cross-fitted log-loss selects the kernel.

    References
    ----------
    .. [1] Suykens, J. A. K. and Vandewalle, J. (1999). Least Squares Support Vector Machine Classifiers. Neural
       Processing Letters 9, 293-300.
    .. [2] Van Gestel, T., Suykens, J. A. K., Lanckriet, G., Lambrechts, A., De Moor, B. and Vandewalle, J. (2002).
       Multiclass LS-SVMs: Moderated Outputs and Coding-Decoding Schemes. Neural Processing Letters 15.
    .. [3] Mayoraz, E. and Alpaydın, E. (1998). Support Vector Machines for Multi-Class Classification. IDIAP-RR 98-06.
    .. [4] Shim, J., Bae, J. and Hwang, C. (2008). Multiclass Classification via Least Squares Support Vector Machine
       Regression.
    .. [5] Bravo, C., L'Huillier, G., Lobato, J. L. and Weber, R. (2010). Probability Estimation for Multiclass Problems
       Combining SVMs and Neural Networks. Neural Network World.

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

    takes_soft_labels = True
    _weight_unit = 1.0

    def __init__(
        self,
        C: float | None = None,
        *,
        kernel: Any = None,
        gamma: float | str | None = None,
        degree: float | None = None,
        coef0: float = 1.0,
        coding: Any = None,
        decoding: Any = "coupled-softmax",
        selection: str | None = "loo",
        columns: Any = None,
        metric: Any = None,
        shared_parameters: bool = True,
        noise_floor: float = 0.25,
        search: SearchSettings | None = None,
        scale: str = "auto",
        n_landmarks: Any = None,
        scaling: ScaleSettings | None = None,
        device: str | None = None,
        class_weight: Any = None,
        priors: Any = None,
        classes: Any = None,
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
        self.noise_floor = noise_floor
        self.search = search
        self.scale = scale
        self.n_landmarks = n_landmarks
        self.scaling = scaling
        self.device = device
        self.class_weight = class_weight
        self.priors = priors
        self.classes = classes
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _training_rows(self, X: Any, y: Any, sample_weight: Any, groups: Any = None) -> TrainingRows:
        """Validate the input; the weights are divided by their mean, which multiplies a given C."""
        data = super()._training_rows(X, y, sample_weight, groups)
        self._weight_unit = float(data.weights.mean())
        return data if self._weight_unit == 1.0 else replace(data, weights=data.weights / self._weight_unit)

    def _matrix_rows(self, data: TrainingRows, codebook: Codebook) -> Array:
        """Return the number of rows of every group of columns."""
        counts = np.bincount(data.class_index, minlength=codebook.n_classes).astype(np.float64)
        return np.array([counts[group.classes].sum() for group in codebook.column_groups])

    def _fit_machines(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None = None,
    ) -> None:
        plan = self._search_plan(data)
        scale: ScalePlan | None = getattr(self, "plan_", None)
        if scale is None or scale.scale == "exact":
            plan = replace(plan, device=None if scale is None else scale.device)
            choice = choose(data, codebook, decoder, plan, shared, progress, self.n_jobs)
            self.bank_ = choice.bank
        else:
            source = MemoryRows(data, codebook.n_classes, plan.settings.least_rows)
            plan = replace(plan, device=scale.device)
            choice, sample = self._fit_many(source, codebook, decoder, plan, progress)
            self.support_ = self.support_[sample]
        self._keep_choice(choice)

    def _column_trainer(self, machine: Any, data: TrainingRows, progress: Progress | None) -> Train:
        machine._weight_unit = self._weight_unit
        return super()._column_trainer(machine, data, progress)

    def _fit_decoder(
        self,
        decoder: Decoder,
        data: TrainingRows,
        shared: SharedWork,
        progress: Progress | None,
        priors: Array | None = None,
    ) -> Decoder:
        if self.bank_.rounding_error > 10.0**-_LEAST_DIGITS:
            _warn_of_lost_digits(self.bank_.rounding_error, data.kernel)
        # Of many rows, the decoder learns from a sample.
        fitted = super()._fit_decoder(decoder, self.bank_.data, shared, progress, priors)
        self._cross_log_proba = getattr(fitted, "cross_log_proba_", None)
        if self._cross_log_proba is None and decoder.learns_probabilities:
            assert isinstance(decoder, ProbabilisticDecoder)
            rows = decoder_rows(self.bank_.data, self.bank_.training_outputs(honest=True))
            assert rows.outputs is not None
            with blas_threads_for(0):
                self._cross_log_proba = clone(decoder).cross_fit(
                    self.codebook_, rows.outputs, rows.class_index, sample_weight=rows.weights
                )
        # They are many numbers, and have served.
        if isinstance(self.bank_, LSSVMBank):
            self.bank_ = replace(self.bank_, nested=None)
        return fitted

    def _honest(self) -> tuple[DecoderRows, Array]:
        """Return the rows the decoder learned from, and its log-probabilities of each, learned from others, (n, K)."""
        assert self._cross_log_proba is not None
        outputs = self.bank_.training_outputs(honest=True)
        return decoder_rows(self.bank_.data, outputs), self._cross_log_proba

    def _training_outputs(
        self, *, honest: bool, shared: SharedWork, progress: Progress | None = None
    ) -> Outputs:
        return self.bank_.training_outputs(honest=honest, workspace=shared.workspace(self.bank_.data))

    def _outputs(self, X: Any, *, variances: bool) -> Outputs:
        bank = self.bank_
        if self._gpu is None or variances or not bank.kernel.parts:
            return bank.outputs(X, variances=variances)
        place = place_for(self._gpu)
        if isinstance(bank, LSSVMBank):
            return Outputs(place.margins(bank, X), "new", None, 1.0 / bank.zeta, bank.norms)
        return bank.outputs(X, variances=False, place=place)

    def variances(self, X: ArrayLike) -> Array:
        """Return σ_z², the predictive variance of every machine's output (Van Gestel et al. 2002, eq. 12).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; their kernel values with the training rows for ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, L)
            The variances, one column per column of ``codebook_``.
        """
        check_is_fitted(self)
        variances = self._outputs(self._new_rows(X), variances=True).variances
        assert variances is not None
        return variances


def _warn_of_lost_digits(error: float, kernel: Kernel) -> None:
    """Warn of a large expected relative rounding error of the margins."""
    digits = int(-np.log10(min(error, 1.0)))
    kept = f"only {digits} correct digit{'s' * (digits > 1)}" if digits else "no correct digit"
    remedy = "use a smaller C"
    if not kernel.precomputed:
        remedy += ", or standardise the features, for example with StandardScaler"
    warn(
        f"the kernel matrix is ill-conditioned: rounding may leave {kept} of the margins "
        f"(estimated relative error {error:.0e}); {remedy}",
        LinAlgWarning,
    )
