"""Soft labels for the least-squares classifier: an n×K matrix of class probabilities in the place of y."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import naive
from conftest import blobs
from polymargin import Codebook, LSSVMClassifier
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.datasets.generators import generators

X, Y = blobs(n=50, K=4, seed=0, shift=1.2)
X_NEW = blobs(n=40, K=4, seed=5, spread=2.0)[0]
ONE_HOT = np.eye(4)[Y]
SOFT = 0.4 * np.random.default_rng(0).dirichlet(np.full(4, 0.4), 50) + 0.6 * ONE_HOT
SOFT[:10] = ONE_HOT[:10]
SOFT[10:14] = [0.5, 0.5, 0.0, 0.0]
MIXED = Codebook([[-1, 0, 1, 1], [1, -1, 0, 1], [0, 1, -1, -1], [1, 1, 1, 0]])
CODINGS = {
    "one-vs-one": "one-vs-one",
    "one-vs-all": "one-vs-all",
    "minimal": "minimal",
    "ecoc": "ecoc",
    "adaptive": "adaptive",
    "mixed": MIXED,
}


# Certain labels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", CODINGS)
def test_one_hot_is_the_label(coding):
    parameters = {"kernel": "rbf", "coding": CODINGS[coding], "random_state": 0}
    hard = LSSVMClassifier(**parameters).fit(X, Y)
    soft = LSSVMClassifier(**parameters).fit(X, ONE_HOT)
    assert_array_equal(soft.classes_, np.arange(4))
    assert_array_equal(soft.codebook_.matrix, hard.codebook_.matrix)
    assert_allclose(soft.C_, hard.C_, rtol=1e-8)
    assert_allclose(soft.gamma_, hard.gamma_, rtol=1e-8)
    assert_allclose(soft.loo_margins_, hard.loo_margins_, atol=1e-8)
    assert_allclose(soft.predict_proba(X_NEW), hard.predict_proba(X_NEW), atol=1e-8)
    assert_array_equal(soft.predict(X_NEW), hard.predict(X_NEW))
    assert_array_equal(soft.n_support_, hard.n_support_)


@pytest.mark.parametrize("selection", ["loo", "gcv", "evidence"])
@pytest.mark.parametrize("decoding", ["coupled-softmax", "softmax", "coupling", "bayes"])
def test_one_hot_is_the_label_for_every_decoding_and_selection(decoding, selection):
    coding = "one-vs-one" if selection == "gcv" else "one-vs-all"
    parameters = {"decoding": decoding, "selection": selection, "coding": coding}
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 50)
    hard = LSSVMClassifier(**parameters).fit(X, Y, weights)
    soft = LSSVMClassifier(**parameters).fit(X, ONE_HOT, weights)
    assert list(soft.kernel_losses_) == list(hard.kernel_losses_)
    assert_allclose(list(soft.kernel_losses_.values()), list(hard.kernel_losses_.values()), rtol=1e-7)
    assert_allclose(soft.predict_proba(X_NEW), hard.predict_proba(X_NEW), atol=1e-7)


def test_gcv_of_one_hot_one_vs_all_counts_as_for_labels():
    hard = LSSVMClassifier(kernel="rbf", coding="one-vs-all", selection="gcv").fit(X, Y)
    soft = LSSVMClassifier(kernel="rbf", coding="one-vs-all", selection="gcv").fit(X, ONE_HOT)
    assert_allclose(soft.C_, hard.C_, rtol=1e-6)
    assert_allclose(soft.gamma_, hard.gamma_, rtol=1e-6)


def test_two_classes():
    keep = Y < 2
    P = SOFT[keep, :2] / SOFT[keep, :2].sum(axis=1, keepdims=True)
    hard = LSSVMClassifier(kernel="rbf").fit(X[keep], Y[keep])
    assert_allclose(
        LSSVMClassifier(kernel="rbf").fit(X[keep], np.eye(2)[Y[keep]]).predict_proba(X_NEW),
        hard.predict_proba(X_NEW),
        atol=1e-8,
    )
    model = LSSVMClassifier(kernel="rbf").fit(X[keep], P)
    assert model.decision_function(X_NEW).shape == (40,)
    assert_array_equal(model.predict(X_NEW), model.predict_proba(X_NEW).argmax(axis=1))


# Uncertain labels are weighted copies ----------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("coding", [name for name in CODINGS if name != "adaptive"])
def test_a_soft_label_is_a_copy_for_every_class(coding, weighted):
    parameters = {"C": 3.0, "kernel": "rbf", "gamma": 0.2, "coding": CODINGS[coding], "random_state": 0}
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 50) if weighted else np.ones(50)
    soft = LSSVMClassifier(**parameters).fit(X, SOFT, weights)
    rows, labels = np.repeat(np.arange(50), 4), np.tile(np.arange(4), 50)
    copies = LSSVMClassifier(**parameters).fit(X[rows], labels, (weights[:, None] * SOFT).ravel())
    assert_array_equal(soft.codebook_.matrix, copies.codebook_.matrix)
    assert_allclose(soft.margins(X_NEW), copies.margins(X_NEW), atol=1e-8)
    assert_allclose(soft.intercept_, copies.intercept_, atol=1e-8)
    summed = np.zeros((soft.codebook_.n_columns, 50))
    np.add.at(summed, (slice(None), rows[copies.support_]), copies.dual_coef_)
    assert_allclose(soft.dual_coef_, summed, atol=1e-8)


@pytest.mark.parametrize("book", [one_vs_one(4), one_vs_all(4), MIXED])
def test_leave_one_out_leaves_the_whole_row_out(book):
    model = LSSVMClassifier(C=3.0, kernel="rbf", gamma=0.2, coding=book).fit(X, SOFT)
    K = naive.kernel_matrix("rbf", X, X, gamma=0.2)
    for column, bits in enumerate(book.matrix.T.astype(float)):
        share = SOFT @ np.abs(bits)
        used = np.flatnonzero(share > 0)
        targets = SOFT[used] @ bits / share[used]
        expected = naive.lssvm_loo_margins(K[np.ix_(used, used)], targets, 3.0, share[used])
        assert_allclose(model.loo_margins_[used, column], expected, atol=1e-8)


every_soft_problem = pytest.mark.parametrize(
    ("coding", "selection"),
    [(c, s) for c in ("one-vs-one", "one-vs-all") for s in ("loo", "gcv", "evidence")],
)


@every_soft_problem
def test_the_order_of_soft_rows_does_not_matter(coding, selection):
    weights = np.random.default_rng(3).uniform(0.5, 2.0, 50)
    order = np.random.default_rng(4).permutation(50)
    parameters = {"kernel": "rbf", "coding": coding, "selection": selection}
    expected = LSSVMClassifier(**parameters).fit(X, SOFT, weights)
    shuffled = LSSVMClassifier(**parameters).fit(X[order], SOFT[order], weights[order])
    assert_allclose(shuffled.predict_proba(X_NEW), expected.predict_proba(X_NEW), atol=1e-5)


def weighted_and_repeated(coding, selection, **more):
    weights = 1 + np.arange(50) % 2
    copies = np.random.default_rng(3).permutation(np.repeat(np.arange(50), weights))
    parameters = {"kernel": "rbf", "coding": coding, "selection": selection, **more}
    weighted = LSSVMClassifier(**parameters).fit(X, SOFT, weights)
    repeated = LSSVMClassifier(**parameters).fit(X[copies], SOFT[copies], groups=copies)
    return weighted, repeated, copies


@every_soft_problem
def test_a_soft_row_of_weight_two_is_the_row_twice_to_the_machines(coding, selection):
    weighted, repeated, copies = weighted_and_repeated(coding, selection, C=2.0, gamma=0.2)
    assert_allclose(repeated.margins(X_NEW), weighted.margins(X_NEW), atol=1e-8)
    assert_allclose(repeated.loo_margins_, weighted.loo_margins_[copies], atol=1e-7)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 50)
    one, other = (
        LSSVMClassifier(kernel="rbf", coding=coding, selection=selection).fit(X, SOFT, factor * weights)
        for factor in (1.0, 16.0)
    )
    assert_allclose(other.predict_proba(X_NEW), one.predict_proba(X_NEW), atol=1e-6)


@pytest.mark.parametrize("coding", ["one-vs-all", "one-vs-one"])
def test_a_soft_row_of_weight_two_is_a_group_of_two_to_the_decoder(coding):
    weighted, repeated, _ = weighted_and_repeated(coding, "loo", C=2.0, gamma=0.2)
    # The same softmax; how far it is trusted depends on the folds, which groups are dealt into differently.
    one, other = weighted.decoder_, repeated.decoder_
    assert other.ridge_ == one.ridge_
    assert_allclose(other.fit_.objective, one.fit_.objective, rtol=1e-8)
    assert_allclose(other.fit_.coef / other.trust_, one.fit_.coef / one.trust_, atol=1e-6)


def test_rows_without_weight_do_not_count():
    weights = np.ones(50)
    weights[20:25] = 0.0
    kept = weights > 0
    model = LSSVMClassifier(kernel="rbf").fit(X, SOFT, weights)
    assert_array_equal(model.support_, np.flatnonzero(kept))
    expected = LSSVMClassifier(kernel="rbf").fit(X[kept], SOFT[kept])
    assert_allclose(model.predict_proba(X_NEW), expected.predict_proba(X_NEW), atol=1e-8)


def test_priors_of_soft_labels():
    plain = LSSVMClassifier(kernel="rbf").fit(X, SOFT).predict_proba(X_NEW)
    even = LSSVMClassifier(kernel="rbf", priors="uniform").fit(X, SOFT).predict_proba(X_NEW)
    expected = plain / SOFT.mean(axis=0)
    assert_allclose(even, expected / expected.sum(axis=1, keepdims=True), atol=1e-10)


def test_sparse_rows():
    rows = np.maximum(X, 0.0)
    dense = LSSVMClassifier(kernel="rbf").fit(rows, SOFT)
    thin = LSSVMClassifier(kernel="rbf").fit(sparse.csr_matrix(rows), SOFT)
    assert_allclose(thin.predict_proba(X_NEW), dense.predict_proba(X_NEW), atol=1e-6)


# Names and errors ------------------------------------------------------------------------------------------


def test_classes_name_the_columns():
    names = np.array(["pear", "apple", "fig", "date"])
    model = LSSVMClassifier(kernel="rbf", classes=names).fit(X, SOFT)
    plain = LSSVMClassifier(kernel="rbf").fit(X, SOFT)
    assert_array_equal(model.classes_, np.sort(names))
    assert_array_equal(model.predict(X_NEW), names[plain.predict(X_NEW)])
    assert_allclose(model.predict_proba(X_NEW), plain.predict_proba(X_NEW)[:, np.argsort(names)], atol=1e-6)


def test_classes_name_the_columns_of_labels_without_ties():
    names = np.array(["pear", "apple", "fig", "date"])
    clear = 0.9 * SOFT + 0.1 * np.eye(4)[SOFT.argmax(axis=1)]
    model = LSSVMClassifier(kernel="rbf", classes=names).fit(X, clear)
    plain = LSSVMClassifier(kernel="rbf").fit(X, clear)
    assert_array_equal(model.predict(X_NEW), names[plain.predict(X_NEW)])
    assert_allclose(model.predict_proba(X_NEW), plain.predict_proba(X_NEW)[:, np.argsort(names)], atol=1e-6)


def changed(row, values):
    P = SOFT.copy()
    P[row] = values
    return P


@pytest.mark.parametrize(
    ("P", "parameters", "message"),
    [
        (changed(3, [0.5, 0.4, 0.0, 0.0]), {}, "must sum to one; those of row 3 sum to 0.9"),
        (changed(7, [1.2, -0.2, 0.0, 0.0]), {}, "must not be negative; those of row 7"),
        (changed(2, np.nan), {}, "contain NaN or infinity; they must be probabilities"),
        (np.full((50, 4), 0.25), {}, "all rows have the same soft labels: there is nothing to learn"),
        (0.1 + 0.6 * np.eye(4)[[0] * 50], {}, "same soft labels"),
        (0.3 * SOFT + 0.7 * np.eye(4)[0], {}, "all rows favour one class, 0; a classifier needs two or more"),
        (np.column_stack([SOFT, np.zeros(50)]), {}, "class 4 has no probability in any row"),
        (SOFT[:49], {}, "X has 50 rows, but there are soft labels for 49"),
        (
            SOFT,
            {"classes": ["a", "b"]},
            r"classes must name the 4 columns of the soft labels; it has shape \(2,\)",
        ),
        (SOFT, {"classes": ["a", "b", "b", "c"]}, "must name every column differently"),
        (ONE_HOT.astype(int), {}, "1d array"),
    ],
)
def test_soft_labels_that_make_no_sense_are_refused(P, parameters, message):
    with pytest.raises(ValueError, match=message):
        LSSVMClassifier(**parameters).fit(X, P)


# What they are worth ---------------------------------------------------------------------------------------


def test_votes_bring_the_posterior_nearer_to_the_truth():
    r4 = generators()["r4"]
    distances = []
    for seed in range(5):
        rows, y = r4.sample(150, random_state=seed)
        random = np.random.default_rng(seed)
        votes = np.array([random.multinomial(5, p) for p in r4.posterior(rows)]) / 5
        new, _ = r4.sample(1000, random_state=100 + seed)
        truth = r4.log_posterior(new)
        both = []
        for labels in (votes, y):
            log_p = LSSVMClassifier(kernel="rbf").fit(rows, labels).predict_log_proba(new)
            both.append(np.sum(np.exp(truth) * (truth - log_p), axis=1).mean())
        distances.append(both)
    soft, hard = np.mean(distances, axis=0)
    assert soft < 0.6 * hard  # 0.020 and 0.060 nats when this was written
    assert soft < 0.035
