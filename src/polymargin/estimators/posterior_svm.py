"""PosteriorSVMClassifier: support vector machines on soft labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from polymargin._progress import Progress
from polymargin.codebooks import Codebook, one_vs_all
from polymargin.decoders import Decoder
from polymargin.densities import KNNPosterior, WindowPosterior
from polymargin.estimators._hinge import HingeClassifier
from polymargin.estimators._validation import check_positive
from polymargin.machines import TrainingRows
from polymargin.machines._soft import DensityLabels, GivenLabels, SoftLabels
from polymargin.machines._workspace import SharedWork

if TYPE_CHECKING:  # importing them at run time would load numba with the package
    from polymargin.machines.single import SingleMachineBank
    from polymargin.machines.svm import SVMBank

Array = NDArray[Any]


class PosteriorSVMClassifier(HingeClassifier):
    """Posterior probability support vector machine (Gönen, Tanuğur and Alpaydın 2008).

    Before training, the label of every row is replaced by class probabilities, estimated from the labels of its
    neighbours or given. A row among rows of another class, which is likely mislabelled, then has less influence on the
    boundary or none, and the margin that a row near the boundary must have is smaller. After training, a decoder turns
    the outputs of the machine into class probabilities; the default one is fitted on out-of-fold outputs, for which the
    neighbours are counted again without the rows that are held out.

    Scale the features first, for example with ``StandardScaler``: kernels and neighbourhoods compare distances.

    Parameters
    ----------
    C : float, default=1.0
        Regularisation, the larger the less.
    kernel : {"linear", "poly", "rbf", "laplacian", "exponential", "blend", "precomputed"} or callable, default="rbf"
        The kernel. A callable takes two arrays of rows and returns the matrix of kernel values. A precomputed kernel
        gives no distances: it needs ``density=None`` or given soft labels.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of "rbf", "laplacian", "exponential", "blend" and "poly"; the paper's width s is
        ``gamma=1/s**2``. "scale" is one over the number of features times the variance of X.
    degree : float, default=3
        Degree of "poly", (gamma x·z + coef0)^degree.
    coef0 : float, default=1.0
        Constant of "poly". The paper's polynomials have gamma = coef0 = 1.
    machine : {"single", "one-vs-all"}, default="single"
        "single" trains the discriminants of all classes at once, with the constraints that the one of the row's own
        class z exceeds the one of class m by 2(P_z − P_m), eq. (12). z is the observed class, which the soft label need
        not favour; of given soft labels it is the most probable class. "one-vs-all" trains one machine for each class
        on 2P − 1, eq. (6); for two classes it is Tao's single machine. There the sign of 2P − 1 decides the side,
        whatever was observed, and a row with P = 1/2 takes no part. A class that is nowhere more probable than all
        others together gets a constant for its machine. (The paper holds the two machines to be the same for two
        classes. With hard labels they are; with soft ones they differ in the cost of an error and in rows whose
        observed class is improbable.)
    density : {"knn", "window", None}, default="knn"
        How the probabilities are estimated: `KNNPosterior`, `WindowPosterior`, or not at all, which gives the canonical
        machines: Weston and Watkins', or one-vs-all support vector machines.
    n_neighbors : int, default=5
        k of "knn", the row itself counted. With noisy labels more neighbours, 11 to 25, do better.
    radius : float or None, default=None
        Radius of "window"; None is twice the mean distance between nearest neighbours.
    decoding : str or Decoder, default="softmax"
        How outputs become labels and probabilities: "softmax" learns it, "plain-softmax" is the paper's softmax without
        parameters, "argmax" takes the class of the largest output and gives no probabilities; or any decoder that reads
        one-vs-all machines and needs no variances.
    class_weight : dict, "balanced" or None, default=None
        Factors of the weights of every class's rows, one for classes that a dict does not name. "balanced" is
        n / (K n_k), where n is the number of rows and n_k the number of those in the class; given soft labels divide
        their rows among the classes.
    classes : array-like of shape (K,) or None, default=None
        The class labels of the columns of y if `fit` is given soft labels; None for the names of a DataFrame's columns,
        else 0, …, K−1. With labels in y, None, or the labels that y has.
    priors : None, "uniform", "empirical", array of shape (K,) or dict, default=None
        Prior class probabilities, for decoders that work with them; a dict names the classes.
    cv : int, splitter or iterable of splits, default=5
        The folds of the out-of-fold outputs that a decoder learns from. With a number, the folds are random and
        stratified; equal rows are not kept together, rows of one group are. A splitter is given the ``groups`` of
        `fit`.
    tol : float, default=1e-3
        Of the "single" machine the largest relative duality gap, of "one-vs-all" the largest violation of the
        optimality conditions.
    max_iter : int, default=-1
        Limit on the solver's steps per machine. -1 allows 10⁸ steps, or a thousand per variable if that
        is more.
    n_jobs : int or None, default=None
        Threads, for "one-vs-all" and for prediction; the result does not depend on it.
    verbose : int, default=0
        Whether ``fit`` shows its progress: a bar with the time left if stderr is a terminal, otherwise messages of the
        logger "polymargin" at level INFO.
    random_state : int, RandomState instance or None, default=None
        For the folds.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The class labels.
    soft_labels_ : ndarray of shape (n, K) or None
        What the machine was trained on, for the training rows of positive weight; None for hard labels.
    codebook_ : Codebook
        One-vs-all; a single column for two classes.
    decoder_ : Decoder
        The fitted decoder.
    kernel_ : Kernel
        The kernel.
    bank_ : SingleMachineBank or SVMBank
        The fitted machine or machines, with a certificate.
    C_, gamma_, intercept_ : ndarray of shape (L,)
        Of every output: the regularisation, the kernel parameter and the bias; L is K, or one for two classes.
    n_iter_ : ndarray of int
        The steps the solver took, one number for the single machine, else one for each.
    support_ : ndarray of int, shape (n_support,)
        The training rows that are support vectors, of some machine if there are several, ascending. Of several copies
        of a row, the first is listed.
    support_vectors_ : array or sparse matrix of shape (n_support, d)
        These rows; empty for a precomputed kernel.
    n_support_ : ndarray of int, shape (K,)
        Their number in every class.
    coef_ : ndarray or sparse matrix of shape (L, n_features)
        With a linear kernel, the weights of the columns: ``margins(X)`` is ``X @ coef_.T + intercept_``.
    dual_coef_ : ndarray of shape (L, n_support)
        Coefficients of the kernel expansions.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    SVMClassifier : Hinge loss, with the parameters of ``SVC`` and any coding and decoding.
    LSSVMClassifier : Least-squares dichotomies, tuned and calibrated by leave-one-out outputs.
    KNNPosterior : Class probabilities by the nearest neighbours.
    WindowPosterior : Class probabilities by the rows in a window.

    Notes
    -----
    A soft label moves the margin that is asked of a row: with two classes and y = 2p − 1 in [−1, 1], the row should lie
    at abs(y) or beyond, on the side of the sign of y, and errors cost C / abs(y); a row with y = 0 asks for nothing.
    Rows whose neighbours disagree with their label thus lose influence, and often cease to be support vectors. The
    single machine trains all classes in one problem; it and ``machine="one-vs-all"`` are different machines for two
    classes, too.

    References
    ----------
    .. [1] Gönen, M., Tanuğur, A. G. and Alpaydın, E. (2008). Multiclass Posterior Probability Support Vector Machines.
       IEEE Transactions on Neural Networks 19.
    .. [2] Tao, Q., Wu, G., Wang, F. and Wang, J. (2005). Posterior Probability Support Vector Machines for Unbalanced
       Data. IEEE Transactions on Neural Networks 16, 1561-1573.
    .. [3] Weston, J. and Watkins, C. (1998). Multi-class Support Vector Machines. Technical Report CSD-TR-98-04, Royal
       Holloway, University of London.

    Examples
    --------
    A quarter of the labels is wrong:

    >>> import numpy as np
    >>> from polymargin import PosteriorSVMClassifier
    >>> from polymargin.datasets import make_r4
    >>> X, y = make_r4(300, random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> noisy = np.where(rng.random(300) < 0.25, (y + rng.integers(1, 3, 300)) % 3, y)
    >>> canonical = PosteriorSVMClassifier(density=None).fit(X, noisy)
    >>> model = PosteriorSVMClassifier(n_neighbors=15).fit(X, noisy)
    >>> model.support_.size < 0.85 * canonical.support_.size
    True
    >>> model.predict_proba([[0.0, 0.0], [3.0, 3.0]]).argmax(axis=1)
    array([0, 2])

    Soft labels that are given, for example the shares of the votes of several annotators:

    >>> P = np.array([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8]])
    >>> model = PosteriorSVMClassifier(kernel="linear", classes=["no", "yes"], decoding="plain-softmax")
    >>> model.fit([[0.0], [1.0], [2.0], [3.0]], P).predict([[0.5], [2.5]])
    array(['no', 'yes'], dtype='<U3')
    """

    takes_soft_labels = True

    bank_: SVMBank | SingleMachineBank

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 1.0,
        machine: str = "single",
        density: str | None = "knn",
        n_neighbors: int = 5,
        radius: float | None = None,
        decoding: Any = "softmax",
        class_weight: Any = None,
        classes: Any = None,
        priors: Any = None,
        cv: Any = 5,
        tol: float = 1e-3,
        max_iter: int = -1,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.machine = machine
        self.density = density
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.decoding = decoding
        self.class_weight = class_weight
        self.classes = classes
        self.priors = priors
        self.cv = cv
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> PosteriorSVMClassifier:
        """Estimate the soft labels, and fit the machines and the decoder.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; the square Gram matrix for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,) or (n_samples, K)
            Class labels; or soft labels, floating-point class probabilities that sum to one in every row, and then
            ``density`` is not used.
        sample_weight : array-like of shape (n_samples,), default=None
            Row weights: a row of weight two is equivalent to the row twice, among the neighbours too, and a row of
            weight zero to no row. The folds hold out a row with all its weight, whereas two copies of a row may be in
            different folds.
        groups : array-like of shape (n_samples,), default=None
            The group of every row, such as the patient or the session it comes from, or the row it is a copy of. Rows
            of one group are one observation: folds keep them together. None: every row is a group of its own, except
            likely copies of a row, which form one group, with a warning.

        Returns
        -------
        self : PosteriorSVMClassifier
            The fitted estimator.
        """
        return super().fit(X, y, sample_weight, groups)

    def _resolved_codebook(self, data: TrainingRows, progress: Progress | None = None) -> Codebook:
        return one_vs_all(self.classes_.size)

    def _trained(
        self,
        data: TrainingRows,
        codebook: Codebook,
        decoder: Decoder,
        shared: SharedWork,
        progress: Progress | None,
    ) -> SVMBank | SingleMachineBank:
        if self.machine not in ("single", "one-vs-all"):
            raise ValueError(f'unknown machine {self.machine!r}; choose "single" or "one-vs-all"')
        check_positive("C", self.C, "for example 1.0")
        gamma = self._gamma_of(data)
        if gamma is None:
            raise ValueError(
                'gamma must be a positive number, "scale" or "auto": nothing is selected inside fit'
            )
        labels = self._labels(data)
        self.soft_labels_ = None if labels is None else labels(data.weights)
        common = {
            "C": float(self.C),
            "gamma": float(gamma),
            "labels": labels,
            "options": self._solver_options(),
            "cv": self._folds_of_rows(),
            "random_state": self.random_state,
            "progress": progress,
        }
        if self.machine == "single":
            from polymargin.machines.single import fit_single_bank

            return fit_single_bank(data, codebook.n_classes, **common)
        from polymargin.machines.svm import fit_svm_bank

        return fit_svm_bank(data, codebook, **common)

    def _labels(self, data: TrainingRows) -> SoftLabels | None:
        """Return where the soft labels come from, or None for hard ones."""
        if self.density not in ("knn", "window", None):
            raise ValueError(f'unknown density {self.density!r}; choose "knn", "window" or None')
        if data.soft_labels is not None:
            return GivenLabels(data.soft_labels)
        if self.density is None:
            return None
        if data.kernel.precomputed:
            raise ValueError(
                f"density={self.density!r} measures distances between rows, which a precomputed kernel does not give: "
                "choose density=None, or give soft labels in the place of y"
            )
        density = KNNPosterior(self.n_neighbors) if self.density == "knn" else WindowPosterior(self.radius)
        # `fit` checks n_neighbors or radius, here for all rows.
        density.fit(data.X, data.class_index, data.weights)
        return DensityLabels(density, data.X, data.class_index, data.weights, self.classes_.size)
