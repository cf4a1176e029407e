"""PosteriorSVMClassifier against the paper's primal problems, against SVC, against refits, and against itself."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import (
    Argmax,
    Codebook,
    KNNPosterior,
    PlainSoftmax,
    PosteriorSVMClassifier,
    Stack,
    SVMClassifier,
    WindowPosterior,
    _memory,
    _progress,
)
from polymargin.codebooks import minimal, one_vs_all, one_vs_one
from polymargin.datasets import generators
from polymargin.decoders import DECODERS, resolve_decoder
from polymargin.estimators._soft_labels import are_soft
from polymargin.machines import _hinge
from polymargin.machines.svm import SVMBank
from polymargin.outputs import Outputs

MACHINES = ["single", "one-vs-all"]
TIGHT = {"single": 1e-9, "one-vs-all": 1e-7}


@pytest.mark.slow_without_jit
@parametrize_with_checks(
    [
        PosteriorSVMClassifier(),
        PosteriorSVMClassifier(machine="one-vs-all"),
        PosteriorSVMClassifier(density=None),
        PosteriorSVMClassifier(density="window"),
    ]
)
def test_scikit_learn_manners(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "no window of radius", UserWarning)
        check(estimator)


X, Y = blobs(n=80, K=3, d=3, seed=1, spread=1.5)
X_NEW = blobs(n=60, K=3, d=3, seed=2, spread=2.0)[0]


def machine_of(name, **parameters):
    """Return an estimator whose outputs matter, not its decoder."""
    return PosteriorSVMClassifier(machine=name, tol=TIGHT[name], **{"decoding": "argmax", **parameters})


# --- the machines ------------------------------------------------------------------------------------------


def quadratic_program(P, q, G, h):
    """Return the minimiser of ½xᵀPx + qᵀx, Gx ≤ h, by a general solver."""
    qpsolvers = pytest.importorskip("qpsolvers")
    pytest.importorskip("piqp")
    return qpsolvers.solve_qp(P, q, G=G, h=h, solver="piqp", eps_abs=1e-10, eps_rel=1e-10)


def eq_6(X, y, C):
    """Return w, b and the objective: min ½w·w + Σ C_i ξ_i, y(w·x + b) ≥ y² − y² ξ, as printed, with a linear kernel."""
    n, d = X.shape
    P = np.zeros((d + 1 + n, d + 1 + n))
    P[:d, :d] = np.eye(d)
    q = np.r_[np.zeros(d + 1), np.broadcast_to(C, n)]
    separation = np.hstack([-y[:, None] * X, -y[:, None], -np.diag(y**2)])
    slack = np.hstack([np.zeros((n, d + 1)), -np.eye(n)])
    x = quadratic_program(P, q, np.vstack([separation, slack]), np.r_[-(y**2), np.zeros(n)])
    return x[:d], x[d], 0.5 * x @ P @ x + q @ x


def eq_12(X, soft, z, C):
    """Return W, b and the objective of eqs. (7) and (12), as printed, with a linear kernel."""
    (n, d), K = X.shape, soft.shape[1]
    size = K * (d + 1) + n * K
    P = np.zeros((size, size))
    P[: K * d, : K * d] = np.eye(K * d)
    q = np.zeros(size)
    G, h = [], []
    for i in range(n):
        for m in range(K):
            slack = K * (d + 1) + i * K + m
            row = np.zeros(size)
            row[slack] = -1.0
            G.append(row.copy())
            h.append(0.0)
            if m != z[i]:
                q[slack] = np.broadcast_to(C, n)[i]
                row[m * d : (m + 1) * d], row[z[i] * d : (z[i] + 1) * d] = X[i], -X[i]
                row[K * d + m], row[K * d + z[i]] = 1.0, -1.0
                G.append(row)
                h.append(-2.0 * (soft[i, z[i]] - soft[i, m]))
    x = quadratic_program(P, q, np.array(G), np.array(h))
    return x[: K * d].reshape(K, d), x[K * d : K * (d + 1)], 0.5 * x @ P @ x + q @ x


@pytest.mark.parametrize("density", ["knn", "window", None])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("C", [0.05, 2.0])
def test_one_vs_all_solves_eq_6_as_printed(C, K, density):
    X, y = blobs(n=40, K=K, d=2, seed=4, spread=1.5)
    weights = np.random.default_rng(0).integers(1, 4, y.size)
    model = machine_of("one-vs-all", C=C, kernel="linear", density=density, n_neighbors=6, radius=1.2).fit(
        X, y, weights
    )
    soft = np.eye(K)[y] if density is None else model.soft_labels_
    for column, k in enumerate(range(K) if K > 2 else [1]):
        targets = 2.0 * soft[:, k] - 1.0
        if density == "knn":
            assert (np.sign(targets) != np.where(y == k, 1, -1)).any()  # some rows change sides
        w, b, objective = eq_6(X, targets, C * weights)
        assert_allclose(model.margins(X_NEW[:, :2])[:, column], X_NEW[:, :2] @ w + b, atol=1e-4)
        f = model.margins(X)[:, column]
        slack = np.where(
            targets == 0,
            0,
            np.maximum(0, np.abs(targets) - np.sign(targets) * f) / np.maximum(np.abs(targets), 1e-12),
        )
        ours = 0.5 * model.bank_.norms[column] ** 2 + C * weights @ slack
        assert ours == pytest.approx(objective, rel=1e-5)


@pytest.mark.parametrize("density", ["knn", "window", None])
@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("C", [0.05, 2.0])
def test_single_machine_solves_eq_12_as_printed(C, K, density):
    X, y = blobs(n=40, K=K, d=2, seed=4, spread=1.5)
    weights = np.random.default_rng(0).integers(1, 4, y.size)
    model = machine_of("single", C=C, kernel="linear", density=density, n_neighbors=6, radius=1.2).fit(
        X, y, weights
    )
    soft = np.eye(K)[y] if density is None else model.soft_labels_
    W, b, objective = eq_12(X, soft, y, C * weights)
    if density == "knn":
        assert (soft.argmax(axis=1) != y).any()  # the observed class is not always the favoured one
    expected = X_NEW[:, :2] @ W.T + b
    ours = model.margins(X_NEW[:, :2])
    ours = np.hstack([-ours, ours]) if K == 2 else ours
    # Where no margin is met exactly, the biases have room; the objective below holds them to it.
    assert_allclose(ours - ours.mean(axis=0), expected - expected.mean(axis=0), atol=1e-4)
    F = model.margins(X)
    F = np.hstack([-F, F]) if K == 2 else F
    own = np.arange(y.size), y
    slack = np.maximum(0.0, 2 * (soft[own][:, None] - soft) - (F[own][:, None] - F))
    slack[own] = 0.0
    norms = np.repeat(model.bank_.norms, 2) if K == 2 else model.bank_.norms
    assert 0.5 * np.sum(norms**2) + C * weights @ slack.sum(axis=1) == pytest.approx(objective, rel=1e-5)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("parameters", [{"density": None}, {"n_neighbors": 1}], ids=["hard", "one neighbour"])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_two_classes_with_hard_labels_are_svc(name, parameters, C):
    labels = np.where(Y == 0, "no", "yes")
    ours = machine_of(name, C=C, **parameters).fit(X, labels)
    theirs = SVC(C=C, tol=1e-8).fit(X, labels)
    assert ours.margins(X_NEW).shape == (60, 1)
    assert_allclose(ours.margins(X_NEW)[:, 0], theirs.decision_function(X_NEW), atol=1e-4)
    assert_allclose(ours.decision_function(X_NEW), theirs.decision_function(X_NEW), atol=1e-4)
    assert_array_equal(ours.predict(X_NEW), theirs.predict(X_NEW))
    assert_array_equal(ours.support_, np.sort(theirs.support_))
    assert_array_equal(ours.n_support_, theirs.n_support_)
    assert_allclose(ours.dual_coef_[0], theirs.dual_coef_[0][np.argsort(theirs.support_)], atol=1e-4 * C)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert_array_equal(ours.support_vectors_, X[ours.support_])


def test_canonical_one_vs_all_is_svm_classifier():
    ours = machine_of("one-vs-all", density=None).fit(X, Y)
    theirs = SVMClassifier(coding="one-vs-all", decoding="argmax", tol=TIGHT["one-vs-all"]).fit(X, Y)
    assert_array_equal(ours.margins(X_NEW), theirs.margins(X_NEW))
    assert ours.soft_labels_ is None


@pytest.mark.parametrize("name", MACHINES)
def test_fitted_attributes(name):
    model = machine_of(name, C=2.0, gamma=0.3).fit(X, Y)
    assert_array_equal(model.C_, [2.0] * 3)
    assert_array_equal(model.gamma_, [0.3] * 3)
    f = rbf_kernel(X_NEW, model.support_vectors_, gamma=0.3) @ model.dual_coef_.T + model.intercept_
    assert_allclose(model.margins(X_NEW), f, atol=1e-9)
    assert_array_equal(model.n_support_, np.bincount(Y[model.support_], minlength=3))
    assert (np.diff(model.support_) > 0).all()
    assert np.abs(model.dual_coef_).max(axis=0).min() > 0.0
    assert_allclose(model.dual_coef_.sum(axis=1), 0.0, atol=1e-8)
    K = rbf_kernel(model.support_vectors_, gamma=0.3)
    norms = np.sqrt(np.einsum("ls,st,lt->l", model.dual_coef_, K, model.dual_coef_))
    assert_allclose(model.bank_.norms, norms, rtol=1e-3)
    assert (model.n_iter_ > 0).all()
    assert all(status.name == "CONVERGED" for status in model.bank_.status)
    if name == "single":
        assert 0.0 <= model.bank_.relative_gap <= TIGHT[name]
        assert model.bank_.duality_gap >= -1e-9
    assert_allclose(model.soft_labels_, KNNPosterior().fit(X, Y).training_proba())
    window = machine_of(name, density="window", radius=1.3).fit(X, Y)
    assert_allclose(window.soft_labels_, WindowPosterior(1.3).fit(X, Y).training_proba())


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("name", MACHINES)
def test_other_kernels(name):
    given = machine_of(name, density=None, kernel="precomputed").fit(rbf_kernel(X, gamma=0.2), Y)
    plain = machine_of(name, density=None, gamma=0.2).fit(X, Y)
    assert_allclose(given.margins(rbf_kernel(X_NEW, X, gamma=0.2)), plain.margins(X_NEW), atol=1e-4)
    weights = (np.arange(Y.size) % 5 > 0).astype(float)
    given.fit(rbf_kernel(X, gamma=0.2), Y, weights)
    plain.fit(X, Y, weights)
    assert_allclose(given.margins(rbf_kernel(X_NEW, X, gamma=0.2)), plain.margins(X_NEW), atol=1e-4)
    assert_array_equal(given.support_, plain.support_)
    soft = machine_of(name, gamma=0.2).fit(X, Y)
    function = machine_of(name, kernel=lambda A, B: rbf_kernel(A, B, gamma=0.2)).fit(X, Y)
    assert_allclose(function.margins(X_NEW), soft.margins(X_NEW), atol=1e-4)
    thin = machine_of(name, gamma=0.2).fit(sparse.csr_matrix(X), Y)
    assert_allclose(thin.margins(sparse.csr_matrix(X_NEW)), soft.margins(X_NEW), atol=1e-4)
    # The paper's polynomials.
    cubic = machine_of(name, kernel="poly", gamma=1.0).fit(X, Y)
    by_hand = machine_of(name, kernel=lambda A, B: (A @ B.T + 1.0) ** 3).fit(X, Y)
    assert_allclose(cubic.margins(X_NEW), by_hand.margins(X_NEW), atol=1e-3)


def test_a_class_that_is_nowhere_likely_gets_a_constant():
    X, y = blobs(n=60, K=3, d=2, seed=0, shift=0.1)
    y = np.where(np.arange(60) < 4, 2, y % 2)
    model = machine_of("one-vs-all", n_neighbors=15).fit(X, y)
    assert model.soft_labels_[:, 2].max() < 0.5
    assert not model.dual_coef_[2].any()
    # It says no to every row, as loudly as the surest row demands.
    assert_allclose(model.margins(X_NEW[:, :2])[:, 2], 2 * model.soft_labels_[:, 2].min() - 1)


# --- honest outputs ----------------------------------------------------------------------------------------


class Recorder(Stack):
    """A decoder that keeps what it was given."""

    def fit(self, codebook, outputs, class_index, *, priors=None, sample_weight=None):
        self.seen_ = outputs, class_index, sample_weight
        return super().fit(codebook, outputs, class_index, priors=priors, sample_weight=sample_weight)


def recorder(**parameters):
    return Recorder(LogisticRegression(), **parameters)


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {"density": None},
        {"n_neighbors": 7},
        {"density": "window"},
        {"kernel": "precomputed", "density": None},
    ],
    ids=["hard", "knn", "window", "precomputed"],
)
def test_honest_outputs_are_those_of_machines_trained_without_the_rows(name, K, parameters):
    X, y = blobs(n=60, K=K, d=2, seed=3, spread=1.5)
    precomputed = parameters.get("kernel") == "precomputed"
    given = rbf_kernel(X, gamma=0.4) if precomputed else X
    splits = list(StratifiedKFold(4, shuffle=True, random_state=7).split(X, y))
    model = machine_of(name, gamma=0.4, decoding=recorder(), cv=splits, **parameters).fit(given, y)
    outputs, class_index, weights = model.decoder_.seen_
    assert outputs.provenance == "out_of_fold"
    assert weights is None
    assert_array_equal(class_index, y)
    for kept, fold in splits:
        part = given[np.ix_(kept, kept)] if precomputed else given[kept]
        new = given[np.ix_(fold, kept)] if precomputed else given[fold]
        refit = machine_of(name, gamma=0.4, **parameters).fit(part, y[kept])
        assert_allclose(outputs.margins[fold], refit.margins(new), atol=2e-4)
    inside = machine_of(name, gamma=0.4, decoding=recorder(in_sample=True), **parameters).fit(given, y)
    assert inside.decoder_.seen_[0].provenance == "in_sample"
    assert_allclose(inside.decoder_.seen_[0].margins, model.margins(given), atol=1e-9)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("density", ["knn", "window"])
def test_the_labels_of_held_out_rows_cannot_be_heard(name, density):
    fold = np.arange(20)
    splits = [(np.setdiff1d(np.arange(80), part), part) for part in (fold, np.arange(20, 80))]
    said = []
    for labels in (Y, np.where(np.arange(80) < 20, (Y + 1) % 3, Y)):
        model = machine_of(name, gamma=0.4, density=density, decoding=recorder(), cv=splits).fit(X, labels)
        said.append(model.decoder_.seen_[0].margins[fold])
    assert_allclose(said[0], said[1], atol=1e-4)


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("name", MACHINES)
def test_equal_rows_are_held_out_together_if_they_are_copies(name):
    copies = np.repeat(np.arange(80), 5)
    splits = [(np.flatnonzero(copies % 4 != k), np.flatnonzero(copies % 4 == k)) for k in range(4)]
    for cv, groups in ((splits, None), (4, copies), (GroupKFold(4), copies), (4, np.arange(400))):
        model = machine_of(name, gamma=0.4, decoding=recorder(), cv=cv)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if groups is None else "error", UserWarning)
            model.fit(X[copies], Y[copies], groups=groups)
        said = model.decoder_.seen_[0].margins
        if groups is not None and groups.max() == 399:  # observations of their own
            assert np.ptp(said.reshape(80, 5, 3), axis=1).max() > 0.1
        else:  # one row of five times the weight, held out whole
            assert said.shape == (80, 3)
        if cv is splits:
            for k in range(4):
                kept, out = np.flatnonzero(np.arange(80) % 4 != k), np.flatnonzero(np.arange(80) % 4 == k)
                refit = machine_of(name, gamma=0.4).fit(X[kept], Y[kept], np.full(kept.size, 5.0))
                assert_allclose(said[out], refit.margins(X[out]), atol=2e-4)


def test_a_class_with_one_row_can_be_held_out():
    y = np.where(np.arange(Y.size) == 7, 3, Y)
    for name in MACHINES:
        model = PosteriorSVMClassifier(machine=name).fit(X, y)
        assert np.isfinite(model.predict_proba(X_NEW)).all()


# --- weights, order, threads -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("density", ["knn", "window", None])
@pytest.mark.parametrize("decoding", ["softmax", "plain-softmax"])
def test_weight_two_is_the_row_twice_in_any_order(name, density, decoding):
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, 80) + (np.arange(80) < 3)
    repeated = rng.permutation(np.repeat(np.arange(80), weights))
    number = rng.integers(0, 4, 80)

    def splits(rows):
        return [(np.flatnonzero(number[rows] != k), np.flatnonzero(number[rows] == k)) for k in range(4)]

    # Folds that keep the copies of a row together, as a row is held out with all its weight.
    model = PosteriorSVMClassifier(
        machine=name, density=density, radius=1.5, decoding=decoding, cv=splits(np.arange(80))
    )
    on_copies = clone(model).set_params(cv=splits(repeated))
    weighted, copied = clone(model).fit(X, Y, weights), clone(on_copies).fit(X[repeated], Y[repeated])
    assert_allclose(copied.margins(X_NEW), weighted.margins(X_NEW), atol=1e-12)
    if decoding == "softmax":  # what it learns depends on how many observations there are, and these differ
        return
    assert_allclose(copied.predict_proba(X_NEW), weighted.predict_proba(X_NEW), atol=1e-8)
    soft = rng.dirichlet(np.ones(3), 80)
    soft[:3] = np.eye(3)
    weighted, copied = clone(model).fit(X, soft, weights), clone(on_copies).fit(X[repeated], soft[repeated])
    assert_allclose(copied.predict_proba(X_NEW), weighted.predict_proba(X_NEW), atol=1e-8)


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", ["labels", "soft labels", "sparse", "precomputed"])
def test_the_order_of_the_rows_and_the_names_of_the_classes_do_not_matter(name, kind):
    rng = np.random.default_rng(2)
    rows, weights = np.repeat(np.arange(80), 1 + np.arange(80) % 3), rng.integers(1, 4, 159)
    data, labels, new = X[rows].round(1), Y[rows], X_NEW
    if kind == "soft labels":
        labels = 0.3 * rng.dirichlet(np.ones(3), 159) + 0.7 * np.eye(3)[labels]
    order, classes = rng.permutation(159), np.array([2, 0, 1])
    given, again = data, data[order]
    if kind == "sparse":
        given, again, new = sparse.csr_matrix(data), sparse.csr_matrix(again), sparse.csr_matrix(new)
    model = PosteriorSVMClassifier(machine=name, gamma=0.2, random_state=5, tol=1e-9)
    if kind == "precomputed":
        model.set_params(kernel="precomputed", density=None)
        given, again = rbf_kernel(data, gamma=0.2), rbf_kernel(again, gamma=0.2)
        new = rbf_kernel(new, data, gamma=0.2)
    expected = clone(model).fit(given, labels, weights).predict_proba(new)
    renamed = labels[:, classes] if kind == "soft labels" else np.argsort(classes)[labels]
    permuted = clone(model).fit(again, renamed[order], weights[order])
    ours = permuted.predict_proba(new[:, order] if kind == "precomputed" else new)
    assert_allclose(ours[:, np.argsort(classes)], expected, atol=1e-4)


@pytest.mark.parametrize("name", MACHINES)
def test_the_same_again_on_any_number_of_threads(name):
    model = PosteriorSVMClassifier(machine=name, random_state=0).fit(X, Y)
    again = PosteriorSVMClassifier(machine=name, random_state=0, n_jobs=2).fit(X, Y)
    expected = model.predict_proba(X_NEW)
    assert_array_equal(again.predict_proba(X_NEW), expected)
    with ThreadPoolExecutor(4) as pool:
        for proba in pool.map(lambda _: model.predict_proba(X_NEW), range(16)):
            assert_array_equal(proba, expected)
    restored = pickle.loads(pickle.dumps(model))
    assert_array_equal(restored.predict_proba(X_NEW), expected)
    with pytest.raises(ValueError, match="no longer has its training rows"):
        model.bank_.training_outputs(honest=True)


# --- decoders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoding", DECODERS)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("K", [2, 3])
def test_label_and_probability_agree_for_every_decoder(decoding, name, K):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < K], y[y < K]
    model = PosteriorSVMClassifier(machine=name, decoding=decoding)
    decoder = resolve_decoder(decoding)
    if decoder.needs_variances:
        with pytest.raises(ValueError, match="variances, which support vector machines do not have"):
            model.fit(X, y)
        return
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "needs one machine for every" in str(error)  # noqa: PT017
        return
    assert model.score(X, y) > 0.9
    # Every decoder takes soft labels too.
    soft = clone(model).fit(X, KNNPosterior(5).fit(X, y).training_proba())
    assert soft.score(X, y) > 0.9
    if decoder.probabilistic:
        proba = model.predict_proba(X)
        assert_allclose(proba.sum(axis=1), 1.0)
        assert_array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])
    else:
        assert not hasattr(model, "predict_proba")


@pytest.mark.parametrize("name", MACHINES)
def test_plain_softmax_is_the_papers(name):
    model = PosteriorSVMClassifier(machine=name, decoding="plain-softmax").fit(X, Y)
    F = (
        rbf_kernel(X_NEW, model.support_vectors_, gamma=model.gamma_[0]) @ model.dual_coef_.T
        + model.intercept_
    )
    assert_allclose(model.predict_proba(X_NEW), np.exp(F) / np.exp(F).sum(axis=1, keepdims=True), rtol=1e-8)
    two = PosteriorSVMClassifier(machine=name, decoding=PlainSoftmax()).fit(X, Y > 0)
    f = two.margins(X_NEW)[:, 0]
    assert_allclose(two.predict_proba(X_NEW)[:, 1], 1.0 / (1.0 + np.exp(-2.0 * f)), rtol=1e-8)


def test_plain_softmax_reads_one_vs_all_only():
    margins = np.random.default_rng(0).normal(size=(5, 3))
    order = [2, 0, 1]
    book = one_vs_all(3).matrix[:, order]
    decoder = PlainSoftmax().fit(Codebook(book), None, np.arange(3))
    assert_allclose(decoder.log_proba(Outputs(margins[:, order], "new")), np.log(softmax(margins, axis=1)))
    for other in (
        one_vs_one(3),
        minimal(4),
        Codebook(np.hstack([book, [[1], [1], [-1]]])),
        Codebook([[1, -1], [-1, 1]]),
    ):
        with pytest.raises(
            ValueError, match='one machine for every class, and no others: choose coding="one-vs-all"'
        ):
            PlainSoftmax().fit(other, None, np.arange(other.n_classes))
    # Other priors than those of the training rows.
    uniform = np.full(3, 1 / 3)
    skewed = PlainSoftmax().fit(one_vs_all(3), None, np.array([0, 0, 1, 2]), priors=uniform)
    plain = softmax(margins, axis=1) * uniform / np.array([0.5, 0.25, 0.25])
    assert_allclose(
        np.exp(skewed.log_proba(Outputs(margins, "new"))), plain / plain.sum(axis=1, keepdims=True)
    )


# --- soft labels that are given ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("decoding", ["softmax", "plain-softmax", "argmax", Stack(LogisticRegression())])
def test_soft_labels_that_are_hard(name, decoding):
    hard = PosteriorSVMClassifier(machine=name, density=None, decoding=decoding).fit(X, Y)
    soft = PosteriorSVMClassifier(machine=name, decoding=decoding).fit(X, np.eye(3)[Y])
    assert_allclose(soft.margins(X_NEW), hard.margins(X_NEW), atol=1e-9)
    assert_allclose(soft.decision_function(X_NEW), hard.decision_function(X_NEW), atol=1e-4)
    assert_array_equal(soft.classes_, [0, 1, 2])
    assert_array_equal(soft.soft_labels_, np.eye(3)[Y])


def test_soft_labels_from_a_density_that_favours_the_observed_class():
    # Nobody changes sides, so the observed class is the most probable one, and both ways are the same problem.
    X, y = blobs(n=60, K=3, d=2, seed=3, shift=4.0)
    P = KNNPosterior(5).fit(X, y).training_proba()
    assert_array_equal(P.argmax(axis=1), y)
    for name in MACHINES:
        given, estimated = machine_of(name).fit(X, P), machine_of(name).fit(X, y)
        assert_allclose(given.margins(X), estimated.margins(X), atol=1e-4)


@pytest.mark.parametrize("name", MACHINES)
def test_names_of_the_columns(name):
    P = np.random.default_rng(0).dirichlet(np.ones(3), 80)
    model = PosteriorSVMClassifier(machine=name, classes=["ox", "ant", "bee"]).fit(X, P)
    assert_array_equal(model.classes_, ["ant", "bee", "ox"])  # sorted, as scikit-learn's scorers expect
    proba = model.predict_proba(X_NEW)
    assert_array_equal(model.predict(X_NEW), model.classes_[proba.argmax(axis=1)])
    plain = PosteriorSVMClassifier(machine=name).fit(X, P[:, [1, 2, 0]])
    assert_allclose(plain.predict_proba(X_NEW), proba, atol=1e-3)
    assert_array_equal(plain.classes_, [0, 1, 2])
    as_list = PosteriorSVMClassifier(machine=name).fit(X.tolist(), P[:, [1, 2, 0]].tolist())
    assert_allclose(as_list.predict_proba(X_NEW), proba, atol=1e-3)
    with pytest.raises(ValueError, match="leave classes out"):  # ordinary labels have their own names
        PosteriorSVMClassifier(machine=name, classes=["ox"]).fit(X, Y)


def test_a_learning_decoder_sees_a_soft_row_as_several():
    P = np.random.default_rng(0).dirichlet(np.ones(3), 80)
    P[5] = [0.0, 0.25, 0.75]
    weights = np.arange(80) % 4 + 1.0
    model = machine_of("single", decoding=recorder()).fit(X, P, weights)
    outputs, class_index, seen = model.decoder_.seen_
    assert outputs.margins.shape == (239, 3)
    assert_allclose(np.bincount(class_index, seen) / seen.sum(), weights @ P / weights.sum())
    assert seen.sum() == pytest.approx(weights.sum() ** 2 / np.square(weights).sum())


def test_calibrated_on_the_soft_labels():
    """Where the soft labels are the truth, so are the probabilities, up to what 300 rows can teach."""
    r3 = generators()["r3"]
    X, _ = r3.sample(300, 0)
    new, _ = r3.sample(2000, 1)
    model = PosteriorSVMClassifier(kernel="linear").fit(X, r3.posterior(X))
    assert np.abs(model.predict_proba(new) - r3.posterior(new)).mean() < 0.03


def test_soft_labels_by_kernel_matrix():
    P = np.random.default_rng(0).dirichlet(np.ones(3), 80)
    for name in MACHINES:
        given = machine_of(name, kernel="precomputed").fit(rbf_kernel(X, gamma=0.2), P)
        plain = machine_of(name, gamma=0.2).fit(X, P)
        assert_allclose(given.margins(rbf_kernel(X_NEW, X, gamma=0.2)), plain.margins(X_NEW), atol=1e-4)


def test_what_counts_as_soft():
    assert are_soft(np.eye(2))
    assert are_soft(np.eye(2, dtype=np.float32))
    assert not are_soft(np.eye(2, dtype=int))
    assert not are_soft(np.ones((4, 1)))
    assert not are_soft(np.ones(4))
    assert not are_soft([[0.5, 0.5], [1.0]])
    assert not are_soft(np.array([["a", "b"]]))
    for labels in (np.eye(3, dtype=int)[Y], np.eye(3)[Y].astype(str)):
        with pytest.raises(ValueError, match="y should be a 1d array"):
            PosteriorSVMClassifier().fit(X, labels)


# --- what it is for ----------------------------------------------------------------------------------------


def noisy_draw(seed, n):
    """Return rows of R4 and their labels, of which 20 % are changed to another class."""
    X, y = generators()["r4"].sample(n, seed)
    rng = np.random.default_rng(seed)
    return X, np.where(rng.random(n) < 0.2, (y + rng.integers(1, 3, n)) % 3, y)


@pytest.fixture(scope="module")
def clean_rows():
    r4 = generators()["r4"]
    new, _ = r4.sample(5000, 999)
    return new, r4.bayes_labels(new)


@pytest.mark.slow_without_jit
@pytest.mark.parametrize("name", MACHINES)
def test_labels_from_neighbours_resist_noise(name, clean_rows):
    """A kernel that can follow the noise, the same C: 10 draws gave +0.029 (single) and +0.021 (one-vs-all)."""
    new, truth = clean_rows
    gains, kept = [], []
    for seed in range(10):
        X, y = noisy_draw(seed, 200)
        parameters = {"C": 10.0, "gamma": 0.8, "machine": name, "decoding": "argmax"}
        canonical = PosteriorSVMClassifier(density=None, **parameters).fit(X, y)
        softened = PosteriorSVMClassifier(n_neighbors=15, **parameters).fit(X, y)
        gains.append(softened.score(new, truth) - canonical.score(new, truth))
        kept.append(softened.support_.size / canonical.support_.size)
    assert np.mean(gains) > 0.008
    assert np.mean(kept) < 0.9


@pytest.mark.slow_without_jit
def test_labels_from_neighbours_resist_noise_when_C_is_chosen_by_validation(clean_rows):
    """Cubic kernel, one-vs-all, both choose C on the same noisy validation rows: these draws gave +0.030 ± 0.006."""
    new, truth = clean_rows
    gains = []
    for seed in range(10):
        X, y = noisy_draw(seed, 300)
        scores = []
        for parameters in ({"density": None}, {"n_neighbors": 11}):
            model = PosteriorSVMClassifier(
                kernel="poly",
                gamma=1.0,
                machine="one-vs-all",
                decoding="argmax",
                max_iter=20_000,
                **parameters,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                trials = [clone(model).set_params(C=C).fit(X[:200], y[:200]) for C in (1e-3, 1e-2, 0.1, 1.0)]
                best = max(trials, key=lambda trial: trial.score(X[200:], y[200:]))
                scores.append(clone(best).fit(X, y).score(new, truth))
        gains.append(scores[1] - scores[0])
    assert np.mean(gains) > 0.01


# --- bad input ---------------------------------------------------------------------------------------------

P = np.random.default_rng(0).dirichlet(np.ones(3), 80)


def changed(row, values):
    other = P.copy()
    other[row] = values
    return other


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (changed(4, [-0.1, 0.5, 0.6]), r"must not be negative; those of row 4 are \[-0.1, 0.5, 0.6\]"),
        (changed(4, [0.2, 0.5, 0.2]), r"must sum to one; those of row 4 sum to 0.9"),
        (changed(4, [np.nan, 0.5, 0.5]), "contain NaN or infinity"),
        (P[:-1], "X has 80 rows, but there are soft labels for 79"),
        (np.tile([0.2, 0.5, 0.3], (80, 1)), "all rows have the same soft labels: there is nothing to learn"),
        (0.1 * P + 0.9 * np.eye(3)[1], "all rows favour one class, 1; a classifier needs two or more"),
        (
            np.c_[P[:, :2] / P[:, :2].sum(axis=1, keepdims=True), np.zeros(80)],
            "class 2 has no probability in any row",
        ),
    ],
)
def test_bad_soft_labels_say_what_is_wrong(labels, message):
    for name in MACHINES:
        with pytest.raises(ValueError, match=message):
            PosteriorSVMClassifier(machine=name).fit(X, labels)


def test_soft_labels_may_be_rounded():
    rounded = PosteriorSVMClassifier(decoding="plain-softmax").fit(X, P.astype(np.float32))
    exact = PosteriorSVMClassifier(decoding="plain-softmax").fit(X, P)
    assert_allclose(rounded.predict_proba(X_NEW), exact.predict_proba(X_NEW), atol=1e-3)
    assert_allclose(rounded.soft_labels_.sum(axis=1), 1.0, rtol=1e-15)


def test_bad_names_of_columns():
    with pytest.raises(
        ValueError, match=r"classes must name the 3 columns of the soft labels; it has shape \(2,\)"
    ):
        PosteriorSVMClassifier(classes=["a", "b"]).fit(X, P)
    with pytest.raises(ValueError, match="classes must name every column differently; it is"):
        PosteriorSVMClassifier(classes=["a", "b", "a"]).fit(X, P)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C must be a positive number, for example 1.0; not 0.0"),
        ({"C": None}, "C must be a positive number"),
        ({"gamma": None}, "nothing is selected inside fit"),
        ({"gamma": -1.0}, "gamma must be a positive number"),
        ({"machine": "both"}, 'unknown machine \'both\'; choose "single" or "one-vs-all"'),
        ({"density": "parzen"}, "unknown density 'parzen'; choose"),
        ({"n_neighbors": 81}, "n_neighbors=81 is more than the 80 training rows.*lower n_neighbors"),
        ({"n_neighbors": 0}, "n_neighbors must be a positive whole number"),
        ({"density": "window", "radius": -1.0}, "radius must be a positive number"),
        ({"decoding": "bayes"}, "needs variances"),
        ({"decoding": "votes"}, "one-vs-one"),
        ({"decoding": "tarot"}, "unknown decoding"),
        ({"cv": 1}, "at least 2 folds"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"max_iter": -2}, "max_iter must be a number of steps"),
        ({"kernel": lambda A, B: -(A @ B.T)}, "not positive semi-definite"),
    ],
)
@pytest.mark.parametrize("name", MACHINES)
def test_bad_parameters_say_what_to_do(parameters, message, name):
    with pytest.raises(ValueError, match=message):
        PosteriorSVMClassifier(**{"machine": name, **parameters}).fit(X, Y)


def test_a_kernel_matrix_has_no_neighbours():
    K = rbf_kernel(X)
    for density in ("knn", "window"):
        with pytest.raises(
            ValueError, match=f"density='{density}' measures distances.*choose density=None, or give soft"
        ):
            PosteriorSVMClassifier(kernel="precomputed", density=density).fit(K, Y)


def test_windows_that_hold_only_their_own_row_warn():
    with pytest.warns(UserWarning, match="raise radius") as record:
        model = machine_of("single", density="window", radius=1e-9).fit(X, Y)
    assert len(record) == 1
    assert_allclose(
        model.margins(X_NEW), machine_of("single", density=None).fit(X, Y).margins(X_NEW), atol=1e-9
    )


@pytest.mark.parametrize("name", MACHINES)
def test_too_few_steps_warn(name):
    with pytest.warns(ConvergenceWarning, match=r"machines stopped by max_iter .*max_iter=3\)"):
        PosteriorSVMClassifier(100.0, machine=name, max_iter=3, decoding="argmax", tol=1e-6).fit(X, Y)


def test_a_row_for_every_class_cannot_be_held_out():
    few, labels = np.arange(6.0).reshape(3, 2), [0, 1, 2]
    with pytest.raises(ValueError, match='does not learn, such as "argmax"'):
        PosteriorSVMClassifier(n_neighbors=1).fit(few, labels)
    model = PosteriorSVMClassifier(n_neighbors=1, decoding="plain-softmax").fit(few, labels)
    assert_array_equal(model.predict(few), labels)


@pytest.mark.parametrize("name", MACHINES)
def test_progress_is_told(name, caplog, monkeypatch):
    monkeypatch.setattr(_progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with caplog.at_level("INFO", logger="polymargin"):
        PosteriorSVMClassifier(machine=name, verbose=1).fit(X, Y)
    said = [record.getMessage() for record in caplog.records]
    n = 1 if name == "single" else 3
    assert f"machines: {n} of {n}" in said
    assert f"out-of-fold machines: {5 * n} of {5 * n}" in said


def test_memory_is_planned(monkeypatch):
    monkeypatch.setattr(_memory, "available", lambda: 100_000.0)
    monkeypatch.setattr(_memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(_hinge, "_FEW_ROWS", 0)  # of so few rows the kernel matrix is computed in any case
    with pytest.raises(MemoryError, match=r"kernel matrix of 80 rows needs .* machine=\"one-vs-all\""):
        PosteriorSVMClassifier().fit(X, Y)
    assert isinstance(
        PosteriorSVMClassifier(machine="one-vs-all", decoding=Argmax()).fit(X, Y).bank_, SVMBank
    )
