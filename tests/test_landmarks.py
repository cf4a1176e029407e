"""Landmarks: feature maps, their choice, statistics of the classes, and the machines that follow from them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import naive
import naive_scale
from conftest import blobs
from polymargin import Codebook, _memory
from polymargin.codebooks import ecoc, minimal, one_vs_all, one_vs_one
from polymargin.kernels import RBF, Blend, Laplacian, Linear, Polynomial, resolve_kernel
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.scale.feature_maps import ExplicitMap, LandmarkMap, centred
from polymargin.scale.landmark_bank import choose_ridge, fit_landmark_bank
from polymargin.scale.landmarks import choose_landmarks, pivoted_cholesky
from polymargin.scale.statistics import ClassStatistics

N, K = 40, 4
X, Y = blobs(n=N, K=K, d=3, seed=1)
X_NEW = blobs(n=9, K=K, d=3, seed=2, spread=2.0)[0]
GAMMA = 0.3
MIXED = Codebook([[-1, 0, 1, 1], [1, -1, 0, 1], [0, 1, -1, -1], [1, 1, 1, 0]])
CODINGS = {
    "one-vs-one": one_vs_one(K),
    "one-vs-all": one_vs_all(K),
    "minimal": minimal(K),
    "ecoc": ecoc(K),
    "mixed": MIXED,
}
every_coding = pytest.mark.parametrize("coding", CODINGS)
RNG = np.random.default_rng(3)
WEIGHTS = {"ones": np.ones(N), "any": RNG.uniform(0.2, 3.0, N)}
GROUPS = RNG.integers(0, 15, N)
SOFT = RNG.dirichlet(np.full(K, 0.4), N)
SOFT[RNG.random((N, K)) < 0.3] = 0.0
SOFT[SOFT.sum(axis=1) == 0.0] = 0.25
SOFT /= SOFT.sum(axis=1, keepdims=True)
KERNELS = {
    "rbf": RBF(),
    "laplacian": Laplacian(),
    "blend": Blend(),
    "poly": Polynomial(2),
    "linear": Linear(),
}


def training_rows(kernel=None, weights=None, groups=None, soft_labels=None, rows=slice(None)):
    index = Y if soft_labels is None else soft_labels.argmax(axis=1)
    data = TrainingRows(
        RBF() if kernel is None else kernel,
        X[rows],
        index[rows],
        np.ones(N)[rows] if weights is None else weights[rows],
        None if soft_labels is None else soft_labels[rows],
        None if groups is None else groups[rows],
    )
    return data.shuffled()


def statistics_of(features, rows, *, together=False):
    return ClassStatistics.of(
        features(rows.X),
        rows.class_index,
        rows.weights,
        n_classes=K,
        soft_labels=rows.soft_labels,
        together=together,
    )


def fitted(rows, book, C, *, landmarks=X[:12], together=None, features=None, **more):
    """The machines of landmarks, and the leave-one-out margins of all rows, with the features of the rows."""
    if features is None:
        features = centred(LandmarkMap.of(rows.kernel, GAMMA, landmarks), rows.X)
    together = book.is_dense if together is None else together
    phi = features(rows.X)
    found = fit_landmark_bank(
        statistics_of(features, rows, together=together), features, book, C, rows, phi, **more
    )
    return *found, phi


# Feature maps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_landmark_map_is_the_projection_of_the_kernel(name):
    kernel, Z = KERNELS[name], X[:12]
    features = LandmarkMap.of(kernel, GAMMA, Z)
    naively = naive_scale.landmark_features(lambda A, B: kernel.gram(A, B, GAMMA), Z, X_NEW)
    phi = features(X_NEW)
    assert features.n_features == phi.shape[1] == naively.shape[1]
    assert_allclose(phi @ phi.T, naively @ naively.T, atol=1e-8)
    # At the landmarks it is the kernel itself.
    assert_allclose(features(Z) @ phi.T, kernel.gram(Z, X_NEW, GAMMA), atol=1e-8)
    left_out = kernel.diagonal(X_NEW, GAMMA) - np.square(naively).sum(axis=1)
    assert_allclose(features.missing(X_NEW), left_out, atol=1e-8)
    assert_allclose(features.missing(Z), 0.0, atol=1e-8)


def test_a_linear_kernel_keeps_as_many_landmarks_as_there_are_columns():
    features = LandmarkMap.of(Linear(), 1.0, X)
    assert features.n_features == 3
    assert_allclose(features(X_NEW) @ features(X).T, X_NEW @ X.T, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_equal_landmarks_count_once(name):
    kernel = KERNELS[name]
    one, twice = (LandmarkMap.of(kernel, GAMMA, Z) for Z in (X[:5], X[[0, 1, 0, 2, 3, 4, 4]]))
    assert one.n_features == twice.n_features
    assert_allclose(one(X) @ one(X_NEW).T, twice(X) @ twice(X_NEW).T, atol=1e-8)


def test_a_centre_changes_no_distance_and_nothing_that_is_missing():
    features = LandmarkMap.of(RBF(), GAMMA, X[:7])
    moved = centred(features, X)
    assert_allclose(moved(X).mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(moved(X_NEW) - moved(X[:1]), features(X_NEW) - features(X[:1]), atol=1e-12)
    assert_allclose(moved.missing(X_NEW), features.missing(X_NEW), atol=1e-12)
    # From one centre to another.
    assert_allclose(centred(moved, X_NEW)(X_NEW).mean(axis=0), 0.0, atol=1e-12)


def test_sparse_rows_have_the_same_features():
    features = LandmarkMap.of(RBF(), GAMMA, X[:7])
    of_sparse = LandmarkMap.of(RBF(), GAMMA, sparse.csr_matrix(X[:7]))
    assert_allclose(of_sparse(sparse.csr_matrix(X_NEW)), features(X_NEW), atol=1e-10)
    for kernel in (Linear(), Polynomial(2)):
        explicit, of_sparse = (ExplicitMap.of(kernel, GAMMA, rows) for rows in (X, sparse.csr_matrix(X)))
        assert_allclose(of_sparse(sparse.csr_matrix(X_NEW)), explicit(X_NEW))


def test_a_kernel_function_keeps_its_own_array():
    kept = {}

    def remembered(A, B):
        key = A.tobytes(), B.tobytes()
        kept.setdefault(key, RBF().gram(A, B, GAMMA))
        return kept[key]

    features = LandmarkMap.of(resolve_kernel(remembered, 3, 1.0), 1.0, X[:9])
    assert_array_equal(features(X), features(X))
    assert_allclose(features(X), LandmarkMap.of(RBF(), GAMMA, X[:9])(X), atol=1e-12)


@pytest.mark.parametrize("landmarks", [np.zeros((3, 2)), np.full((3, 2), 1e200)])
def test_landmarks_from_which_nothing_can_be_learned_are_refused(landmarks):
    with pytest.raises(ValueError, match=r"nothing to learn|scale the features"), np.errstate(all="ignore"):
        LandmarkMap.of(Linear(), 1.0, landmarks)


@pytest.mark.parametrize(
    "kernel", [Linear(), Polynomial(2), Polynomial(3, 0.5), Polynomial(2, 1.0, centred=True)]
)
def test_explicit_map_is_the_kernel_but_for_a_constant(kernel):
    kernel = kernel.fitted(X, np.ones(N))
    features = ExplicitMap.of(kernel, GAMMA, X)
    assert features.n_features == kernel.n_features(3)
    difference = kernel.gram(X_NEW, X, GAMMA) - features(X_NEW) @ features(X).T
    assert_allclose(difference, difference[0, 0], rtol=1e-9, atol=1e-9)
    assert_array_equal(features.missing(X_NEW), np.zeros(9))
    # Machines about any centre are the same, so that the constant does not matter.
    rows, book = training_rows(kernel), one_vs_all(K)
    exact = fit_lssvm_bank(rows, book, C=2.0, gamma=GAMMA)
    bank, loo, honest, _ = fitted(rows, book, 2.0, features=centred(features, X))
    assert_allclose(bank.margins(X_NEW), exact.margins(X_NEW), rtol=1e-7, atol=1e-8)
    assert_allclose(loo, exact.loo_margins, rtol=1e-7, atol=1e-8)
    assert_allclose(honest, exact.honest_margins, rtol=1e-7, atol=1e-8)


# The choice of landmarks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_pivots_are_those_of_the_oracle(name):
    kernel = KERNELS[name]
    matrix = kernel.gram(X, gamma=GAMMA)
    for n_pivots in (1, 9, N):
        pivots, errors = pivoted_cholesky(kernel, GAMMA, X, n_pivots)
        expected, traces = naive_scale.pivoted_cholesky(matrix, n_pivots)
        # The last pivots of a smooth kernel are decided by rounding.
        sure = int((traces > 1e-6 * np.trace(matrix)).sum())
        assert sure >= min(n_pivots, 2)
        assert_array_equal(pivots[:sure], expected[:sure])
        assert_allclose(errors[:sure], traces[:sure], rtol=1e-6)
        assert (np.diff(errors) <= 0.0).all()
        assert np.unique(pivots).size == pivots.size <= n_pivots


def test_pivots_of_sparse_rows():
    expected = pivoted_cholesky(RBF(), GAMMA, X, 8)
    found = pivoted_cholesky(RBF(), GAMMA, sparse.csr_matrix(X), 8)
    assert_array_equal(found[0], expected[0])
    assert_allclose(found[1], expected[1], rtol=1e-9)


def test_pivots_end_where_nothing_is_left():
    pivots, errors = pivoted_cholesky(RBF(), GAMMA, np.repeat(X[:4], 5, axis=0), 20)
    assert pivots.size == 4
    assert np.unique(pivots // 5).size == 4
    assert errors[-1] < 1e-9


@pytest.mark.parametrize("rule", ["uniform", "kmeans", "cholesky"])
def test_landmarks_are_rows_each_once(rule):
    rows = training_rows()
    chosen = choose_landmarks(rows, GAMMA, 12, rule)
    assert 0 < chosen.size <= 12
    assert (np.diff(chosen) > 0).all()
    assert chosen[-1] < N
    if rule != "kmeans":
        assert chosen.size == 12
    assert_array_equal(choose_landmarks(rows, GAMMA, 12, rule), chosen)
    for enough in (N, N + 1):
        assert_array_equal(choose_landmarks(rows, GAMMA, enough, rule), np.arange(N))


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
@pytest.mark.parametrize("rule", ["uniform", "kmeans", "cholesky"])
def test_landmarks_depend_neither_on_the_order_of_the_rows_nor_on_the_names_of_the_classes(rule, groups):
    rows = training_rows(groups=groups)
    expected = choose_landmarks(rows, GAMMA, 11, rule)
    order = np.random.default_rng(0).permutation(N)
    moved = training_rows(groups=groups, rows=order)
    assert_array_equal(np.sort(order[choose_landmarks(moved, GAMMA, 11, rule)]), expected)
    for renamed in (np.array([3, 1, 0, 2]), np.array([1, 2, 3, 0])):
        named = TrainingRows(RBF(), X, renamed[Y], np.ones(N), groups=groups).shuffled()
        assert_array_equal(choose_landmarks(named, GAMMA, 11, rule), expected)


def test_uniform_landmarks_are_stratified():
    counts = np.bincount(Y)
    for number in (8, 20, 31):
        chosen = np.bincount(Y[choose_landmarks(training_rows(), GAMMA, number, "uniform")], minlength=K)
        assert chosen.sum() == number
        assert_array_equal(np.abs(chosen - number * counts / N) <= 1.0, True)


def test_uniform_landmarks_are_not_the_copies_of_a_few_rows():
    """Rows that are copies of each other are one group."""
    rows = TrainingRows(
        RBF(), np.repeat(X, 10, axis=0), np.repeat(Y, 10), np.ones(10 * N), groups=np.repeat(np.arange(N), 10)
    ).shuffled()
    chosen = choose_landmarks(rows, GAMMA, 40, "uniform")
    assert np.unique(chosen // 10).size > 15  # 25 are expected of 40 that are drawn at random


def test_greedy_landmarks_explain_more_than_random_ones():
    rows = training_rows()
    left = {
        rule: LandmarkMap.of(RBF(), GAMMA, X[choose_landmarks(rows, GAMMA, 12, rule)]).missing(X).sum()
        for rule in ("uniform", "cholesky")
    }
    assert left["cholesky"] < left["uniform"]


def test_landmarks_of_kmeans_are_next_to_the_centres_of_clusters():
    """Of far clusters, one landmark each."""
    centres = 100.0 * np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    rows = TrainingRows(RBF(), X + centres[Y], Y, np.ones(N)).shuffled()
    assert_array_equal(np.sort(Y[choose_landmarks(rows, GAMMA, 4, "kmeans")]), np.arange(4))


# Statistics ------------------------------------------------------------------------------------------------


def both_triangles(products):
    lower = np.tril(products)
    return lower + np.swapaxes(np.tril(products, -1), 1, 2)


@pytest.mark.parametrize("weighting", WEIGHTS)
def test_statistics_equal_the_sums_of_the_oracle(weighting):
    weights = WEIGHTS[weighting]
    F = np.random.default_rng(0).normal(size=(N, 5))
    zeroth, first, second = naive_scale.class_statistics(F, Y, weights, K)
    found = ClassStatistics.of(F, Y, weights, n_classes=K)
    assert found.n_rows == N
    assert_allclose(found.weights, zeroth)
    assert_allclose(found.sums, first, atol=1e-12)
    assert_allclose(both_triangles(found.products), second, atol=1e-12)
    assert_allclose(np.triu(found.products[0], 1), 0.0)
    at_once = ClassStatistics.of(F, Y, weights, n_classes=K, together=True)
    assert at_once.together
    assert not found.together
    assert_allclose(both_triangles(at_once.products)[0], second.sum(axis=0), atol=1e-12)
    assert_allclose(at_once.sums, first, atol=1e-12)


def test_a_soft_label_counts_for_every_class_with_its_probability():
    F, weights = np.random.default_rng(0).normal(size=(N, 5)), WEIGHTS["any"]
    repeated = naive_scale.class_statistics(
        np.repeat(F, K, axis=0), np.tile(np.arange(K), N), (weights[:, np.newaxis] * SOFT).ravel(), K
    )
    for together in (False, True):
        found = ClassStatistics.of(
            F, SOFT.argmax(axis=1), weights, n_classes=K, soft_labels=SOFT, together=together
        )
        assert_allclose(found.weights, repeated[0])
        assert_allclose(found.sums, repeated[1], atol=1e-12)
        products = repeated[2].sum(axis=0)[np.newaxis] if together else repeated[2]
        assert_allclose(both_triangles(found.products), products, atol=1e-12)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("soft_labels", [None, SOFT], ids=["labels", "soft labels"])
def test_statistics_of_blocks_add_up_in_any_order(together, soft_labels):
    F, weights = np.random.default_rng(0).normal(size=(N, 5)), WEIGHTS["any"]

    def of(rows):
        return ClassStatistics.of(
            F[rows],
            Y[rows],
            weights[rows],
            n_classes=K,
            soft_labels=None if soft_labels is None else soft_labels[rows],
            together=together,
        )

    whole = of(np.arange(N))
    order = np.random.default_rng(1).permutation(N)
    for cuts in ([1, 2], [17], [5, 5, 39], []):  # an empty block among them
        parts = [of(rows) for rows in np.split(order, cuts)]
        added, in_place = parts[0], of(np.split(order, cuts)[0])
        for part in parts[1:]:
            added = added + part
            in_place = in_place.add(part)
        for found in (added, in_place):
            assert found.n_rows == N
            for name in ("weights", "sums", "products"):
                assert_allclose(getattr(found, name), getattr(whole, name), atol=1e-10)
        # A sum leaves its terms as they are.
        assert_allclose(parts[0].sums, of(np.split(order, cuts)[0]).sums)


@pytest.mark.parametrize("classes", [[0, 1, 2, 3], [1, 3], [2]])
def test_mean_and_products_of_some_classes(classes):
    F, weights = np.random.default_rng(0).normal(size=(N, 5)) + 3.0, WEIGHTS["any"]
    mask, rows = np.isin(np.arange(K), classes), np.isin(Y, classes)
    found = ClassStatistics.of(F, Y, weights, n_classes=K)
    total, mean, products = found.of_classes(mask)
    assert_allclose(total, weights[rows].sum())
    assert_allclose(mean, np.average(F[rows], axis=0, weights=weights[rows]))
    about = F[rows] - mean
    assert_allclose(products, about.T @ (weights[rows, np.newaxis] * about), atol=1e-10)
    at_once = ClassStatistics.of(F, Y, weights, n_classes=K, together=True)
    if mask.all():
        assert_allclose(at_once.of_classes(mask)[2], products, atol=1e-10)
    else:
        with pytest.raises(ValueError, match="without don't cares"):
            at_once.of_classes(mask)


# Machines --------------------------------------------------------------------------------------------------


@every_coding
@pytest.mark.parametrize("weighting", WEIGHTS)
@pytest.mark.parametrize("C", [0.05, 3.0, 100.0])
def test_machines_and_leave_one_out_equal_refits(coding, weighting, C):
    book, weights = CODINGS[coding], WEIGHTS[weighting]
    bank, exact, _, phi = fitted(training_rows(weights=weights), book, C)
    W, b, margins, left_out = naive_scale.codebook_machines(phi, Y, weights, book.matrix, C)
    assert_allclose(bank.weights, W, rtol=1e-6, atol=1e-7 * np.abs(W).max())
    assert_allclose(bank.intercept, b, rtol=1e-6, atol=1e-7)
    assert_allclose(bank.norms, np.linalg.norm(W, axis=0), rtol=1e-6)
    assert_allclose(bank.margins(X), margins, rtol=1e-6, atol=1e-7)
    assert_allclose(exact, left_out, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all", "mixed"])
def test_a_C_for_every_machine(coding):
    book = CODINGS[coding]
    Cs = np.array([0.3, 2.0, 2.0, 40.0, 0.3, 7.0])[: book.n_columns]
    bank, exact, _, phi = fitted(training_rows(), book, Cs)
    _, _, margins, left_out = naive_scale.codebook_machines(phi, Y, None, book.matrix, Cs)
    assert_array_equal(bank.C, Cs)
    assert_allclose(bank.margins(X), margins, rtol=1e-6, atol=1e-7)
    assert_allclose(exact, left_out, rtol=1e-6, atol=1e-6)


@every_coding
@pytest.mark.parametrize("weighting", WEIGHTS)
def test_groups_are_left_out_whole(coding, weighting):
    book, weights = CODINGS[coding], WEIGHTS[weighting]
    _, exact, _, phi = fitted(training_rows(weights=weights, groups=GROUPS), book, 3.0)
    _, _, margins, left_out = naive_scale.codebook_machines(phi, Y, weights, book.matrix, 3.0, GROUPS)
    # A row that a column does not use is new to its machine, whatever its group.
    used = book.matrix[Y] != 0
    assert_allclose(exact, np.where(used, left_out, margins), rtol=1e-6, atol=1e-6)


@every_coding
def test_soft_labels_are_rows_of_every_class(coding):
    """A row with a soft label is K rows in its place, which are left out together."""
    book, weights = CODINGS[coding], WEIGHTS["any"]
    bank, exact, _, phi = fitted(training_rows(weights=weights, soft_labels=SOFT), book, 3.0)
    repeated = np.tile(np.arange(K), N)
    W, b, _, left_out = naive_scale.codebook_machines(
        np.repeat(phi, K, axis=0),
        repeated,
        (weights[:, np.newaxis] * SOFT).ravel(),
        book.matrix,
        3.0,
        np.repeat(np.arange(N), K),
    )
    assert_allclose(bank.weights, W, rtol=1e-6, atol=1e-7)
    assert_allclose(bank.intercept, b, rtol=1e-6, atol=1e-7)
    # The K rows of a row have one left-out output.
    assert_allclose(exact, left_out[::K], rtol=1e-6, atol=1e-6)


@every_coding
@pytest.mark.parametrize(
    ("weighting", "groups", "soft_labels"),
    [("ones", None, None), ("any", None, None), ("any", GROUPS, None), ("any", None, SOFT)],
    ids=["plain", "weights", "groups", "soft labels"],
)
@pytest.mark.parametrize("name", ["laplacian", "rbf"])
def test_with_all_rows_as_landmarks_the_machines_are_exact(coding, weighting, groups, soft_labels, name):
    book, C = CODINGS[coding], 2.0
    rows = training_rows(KERNELS[name], WEIGHTS[weighting], groups, soft_labels)
    bank, loo, honest, _ = fitted(rows, book, C, landmarks=X, keep_statistics=True)
    exact = fit_lssvm_bank(rows, book, C=C, gamma=GAMMA)
    close = {"rtol": 1e-6, "atol": 1e-6}
    assert_allclose(bank.margins(X_NEW), exact.margins(X_NEW), **close)
    assert_allclose(loo, exact.loo_margins, **close)
    assert_allclose(honest, exact.honest_margins, **close)
    assert_allclose(bank.intercept + centre_part(bank), exact.intercept, **close)
    assert_allclose(bank.norms, exact.norms, **close)
    assert bank.error < 1e-6
    if soft_labels is None:
        for of_machine in ("mu", "zeta", "log_evidence"):
            assert_allclose(getattr(bank, of_machine), getattr(exact, of_machine), rtol=1e-6)
        outputs, expected = (each.outputs(X_NEW, variances=True) for each in (bank, exact))
        assert_allclose(outputs.variances, expected.variances, **close)
        assert_allclose(outputs.noise, expected.noise, rtol=1e-6)


def centre_part(bank):
    """What the centre of the features adds to a bias: the exact machines have none."""
    return -bank.features.centre @ bank.weights


@every_coding
def test_variances_of_few_landmarks_are_those_of_the_projected_kernel_and_of_what_it_lacks(coding):
    book, rows = CODINGS[coding], training_rows(weights=WEIGHTS["any"])
    features = LandmarkMap.of(RBF(), GAMMA, X[:6])

    def projected(A, B):
        return features(A) @ features(B).T

    exact = fit_lssvm_bank(
        TrainingRows(resolve_kernel(projected, 3, 1.0), X, Y, WEIGHTS["any"]), book, C=2.0, gamma=None
    )
    bank = fitted(rows, book, 2.0, features=centred(features, X), keep_statistics=True)[0]
    spread = bank.outputs(X_NEW, variances=True).variances
    lacking = (1.0 - np.square(features(X_NEW)).sum(axis=1))[:, np.newaxis] / exact.mu
    assert_allclose(spread, exact.outputs(X_NEW, variances=True).variances + lacking, rtol=1e-6)
    # Far from all landmarks the prior variance 1/μ of the function is back.
    far = bank.outputs(np.full((1, 3), 1e3), variances=True).variances
    assert (far > 1.0 / bank.mu).all()


def test_statistics_are_kept_for_variances_only_where_asked_for():
    bank = fitted(training_rows(), one_vs_all(K), 2.0)[0]
    assert bank.statistics is None
    with pytest.raises(ValueError, match="variances need the statistics"):
        bank.outputs(X_NEW, variances=True)
    assert bank.outputs(X_NEW, variances=False).variances is None


@pytest.mark.parametrize("coding", ["one-vs-all", "minimal"])
def test_products_of_all_classes_together_are_enough_for_dense_codebooks(coding):
    of_each, of_all = (fitted(training_rows(), CODINGS[coding], 2.0, together=each) for each in (False, True))
    for one, other in zip(of_each[1:3], of_all[1:3], strict=True):
        assert_allclose(one, other, atol=1e-9)
    assert_allclose(of_each[0].margins(X_NEW), of_all[0].margins(X_NEW), atol=1e-9)


def test_some_rows_are_left_out_of_machines_of_all_rows():
    rows, book, some = training_rows(weights=WEIGHTS["any"]), MIXED, np.array([3, 4, 17, 30])
    whole, exact, honest, phi = fitted(rows, book, 2.0)
    part, *left_out = fit_landmark_bank(
        statistics_of(whole.features, rows), whole.features, book, 2.0, rows.take(some), phi[some]
    )
    assert_array_equal(part.weights, whole.weights)
    assert_allclose(left_out[0], exact[some], atol=1e-10)
    assert_allclose(left_out[1], honest[some], atol=1e-10)


def test_blocks_of_rows_change_nothing(monkeypatch):
    bank, exact, _, _ = fitted(training_rows(), MIXED, 2.0, keep_statistics=True)
    before = bank.outputs(X, variances=True)
    monkeypatch.setattr(_memory, "BLOCK_BYTES", 3000)
    assert len(list(_memory.row_blocks(N, 12))) > 4
    after = bank.outputs(X, variances=True)
    assert_allclose(after.margins, before.margins, atol=1e-12)
    assert_allclose(after.variances, before.variances, atol=1e-12)
    assert_allclose(fitted(training_rows(), MIXED, 2.0)[1], exact, atol=1e-12)


def test_rows_far_from_zero_lose_no_digits():
    """The features of a linear kernel grow with the distance from zero; those about the mean do not."""
    far = X + 1e5
    rows = TrainingRows(Linear(), far, Y, np.ones(N)).shuffled()
    features = centred(ExplicitMap.of(Linear(), 1.0, far), far)
    moved, near = (
        fitted(each, one_vs_all(K), 2.0, features=map_)
        for each, map_ in (
            (rows, features),
            (training_rows(Linear()), centred(ExplicitMap.of(Linear(), 1.0, X), X)),
        )
    )
    assert_allclose(moved[0].margins(X_NEW + 1e5), near[0].margins(X_NEW), atol=1e-7)
    assert_allclose(moved[1], near[1], atol=1e-7)


def test_one_group_of_all_rows_has_no_machine_without_it():
    """Nothing is left to learn from; what is returned is finite."""
    for groups in (np.zeros(N, dtype=int), np.where(np.isin(Y, [0, 1]), 0, 1 + np.arange(N))):
        bank, exact, honest, _ = fitted(training_rows(groups=groups), one_vs_one(K), 2.0)
        assert np.isfinite(exact).all()
        assert np.isfinite(honest).all()
        assert np.isfinite(bank.weights).all()


def test_a_class_of_one_row():
    X_one, y_one = np.vstack([X, [[9.0, 9.0, 9.0]]]), np.append(Y, K)
    rows = TrainingRows(RBF(), X_one, y_one, np.ones(N + 1)).shuffled()
    features = LandmarkMap.of(RBF(), GAMMA, X_one)
    phi, book = features(X_one), one_vs_one(K + 1)
    statistics = ClassStatistics.of(phi, y_one, np.ones(N + 1), n_classes=K + 1)
    _, exact, _ = fit_landmark_bank(statistics, features, book, 2.0, rows, phi)
    # Without the row every other row of its dichotomies is of one side.
    own = np.flatnonzero(book.matrix[K])
    assert_allclose(exact[-1, own], -book.matrix[K, own], atol=1e-6)


def test_weights_of_less_than_a_row_leave_nothing_to_infer_hyperparameters_from():
    weights = np.full(N, 1e-4)
    bank, exact, _, phi = fitted(training_rows(weights=weights), one_vs_one(K), 3e4, keep_statistics=True)
    assert_allclose(
        exact, naive_scale.codebook_machines(phi, Y, weights, one_vs_one(K).matrix, 3e4)[3], atol=1e-6
    )
    for of_machine in (bank.mu, bank.zeta, bank.log_evidence):
        assert np.isnan(of_machine).all()
    with pytest.raises(ValueError, match="sum to two or more"):
        bank.outputs(X_NEW, variances=True)


def test_too_large_a_C_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="smaller C"):
        fitted(training_rows(), one_vs_one(K), 1e300, landmarks=X)


# The ridge -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weighting", "groups", "soft_labels"),
    [("ones", None, None), ("any", None, None), ("any", GROUPS, None), ("any", None, SOFT)],
    ids=["plain", "weights", "groups", "soft labels"],
)
def test_ridge_of_least_leave_one_out_error_of_one_vs_all_machines(weighting, groups, soft_labels):
    weights = WEIGHTS[weighting]
    rows = training_rows(weights=weights, groups=groups, soft_labels=soft_labels)
    features = centred(LandmarkMap.of(RBF(), GAMMA, X[:12]), X)
    phi, statistics = features(X), statistics_of(features, rows, together=True)
    labels = np.eye(K)[Y] if soft_labels is None else soft_labels
    mean_eigenvalue = np.trace(statistics.of_classes(np.ones(K, dtype=bool))[2]) / features.n_features

    def error(ridge):
        _, exact, _ = fit_landmark_bank(statistics, features, one_vs_all(K), 1.0 / ridge, rows, phi)
        return float(weights @ np.square(exact - (2.0 * labels - 1.0)).sum(axis=1))

    found = choose_ridge(statistics, rows, phi)
    grid = mean_eigenvalue * 10.0 ** np.arange(-6.0, 2.01, 0.5)
    least = min(error(ridge) for ridge in grid)
    assert grid[0] < found < grid[-1]
    assert error(found) <= least * (1.0 + 1e-9)


def test_the_unit_of_the_features_is_that_of_the_ridge():
    rows = training_rows()
    features = centred(LandmarkMap.of(RBF(), GAMMA, X[:12]), X)
    phi = features(X)

    def ridge(factor):
        statistics = ClassStatistics.of(factor * phi, Y, np.ones(N), n_classes=K, together=True)
        return choose_ridge(statistics, rows, factor * phi)

    assert_allclose(ridge(10.0), 100.0 * ridge(1.0), rtol=1e-9)


def test_copies_of_rows_in_one_group_do_not_ask_for_a_smaller_ridge():
    """Five copies of each row in a group of their own are a row of weight five."""
    copied = np.repeat(np.arange(N), 5)
    features = centred(LandmarkMap.of(RBF(), 3.0, X), X)
    once = TrainingRows(RBF(), X, Y, np.full(N, 5.0)).shuffled()
    copies = TrainingRows(RBF(), X[copied], Y[copied], np.ones(5 * N), groups=copied).shuffled()
    found = [
        choose_ridge(statistics_of(features, rows, together=True), rows, features(rows.X))
        for rows in (once, copies)
    ]
    assert_allclose(found[1], found[0], rtol=1e-9)


def test_naive_kernel_is_ours():
    """The oracles' kernel matrices are those of the library, so that comparisons above mean something."""
    assert_allclose(naive.kernel_matrix("rbf", X, X_NEW, gamma=GAMMA), RBF().gram(X, X_NEW, GAMMA), rtol=1e-9)
