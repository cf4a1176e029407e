"""AutoKernelClassifier: the pool of a few least-squares classifiers, its weights and what it says of itself."""

import contextlib
import pickle
import threading
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import AutoKernelClassifier, LSSVMClassifier
from polymargin.datasets.generators import generators
from polymargin.decoders._base import FOLDS
from polymargin.kernels import Polynomial
from polymargin.solvers.pooling import RIDGE, pool_weights, pooled


def two_members():
    """A pool that is quick to fit."""
    return [
        LSSVMClassifier(C=3.0, kernel="rbf", gamma=0.3),
        LSSVMClassifier(C=1.0, kernel="linear", coding="one-vs-all"),
    ]


@parametrize_with_checks([AutoKernelClassifier(), AutoKernelClassifier(two_members())])
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        check(estimator)


X, Y = blobs(n=70, K=3, seed=0, shift=1.2)
X_NEW = blobs(n=200, K=3, seed=7, spread=2.0)[0]


def log_loss(model, rows, y):
    return -model.predict_log_proba(rows)[np.arange(len(y)), y].mean()


# The weights -----------------------------------------------------------------------------------------------


def members_of(n=60, K=3, M=4, seed=0):
    """What M members of different worth say: some better than others, the last against the truth."""
    random = np.random.default_rng(seed)
    index = random.integers(0, K, n)
    worth = np.linspace(2.0, -0.5, M)
    logits = [w * np.eye(K)[index] + random.normal(size=(n, K)) for w in worth]
    return [z - logsumexp(z, axis=1, keepdims=True) for z in logits], index, random.uniform(0.3, 2.0, n)


def log_frequencies(index, weights, K):
    """The logarithms of the class frequencies, with half a row more of every class."""
    counts = np.array([0.5 + weights[index == k].sum() for k in range(K)])
    return np.log(counts / counts.sum())


def pool_loss(u, log_probas, index, weights, log_prior, ridge=RIDGE):
    """The stated objective, row by row."""
    total = 0.5 * ridge * sum((value - 1 / len(u)) ** 2 for value in u)
    for i in range(len(index)):
        z = log_prior + sum(
            value * (log_p[i] - log_prior) for value, log_p in zip(u, log_probas, strict=True)
        )
        total -= weights[i] * (z[index[i]] - logsumexp(z))
    return total


def best_weights(*problem):
    """The weights of least loss, by a general optimiser with slopes from differences."""
    M = len(problem[0])
    return minimize(
        pool_loss,
        np.full(M, 1 / M),
        problem,
        method="L-BFGS-B",
        bounds=[(0, None)] * M,
        options={"ftol": 1e-14, "gtol": 1e-9},
    )


@pytest.mark.parametrize(("K", "M", "seed"), [(3, 4, 0), (2, 3, 1), (5, 2, 2), (3, 6, 3)])
def test_pool_weights_minimise_the_log_loss_within_their_bounds(K, M, seed):
    log_probas, index, weights = members_of(K=K, M=M, seed=seed)
    weights = 3 * weights  # so that the ridge is not all that counts
    log_prior = np.log(np.random.default_rng(seed).dirichlet(np.full(K, 3.0)))
    problem = log_probas, index, weights, log_prior
    u = pool_weights(*problem)
    assert u.shape == (M,)
    assert (u >= 0).all()
    found = best_weights(*problem)
    assert pool_loss(u, *problem) <= found.fun * (1 + 1e-9)
    assert_allclose(u, found.x, atol=1e-3)
    # At the bounds the slope points outwards, elsewhere there is none.
    h = 1e-6
    for member in range(M):
        step = h * np.eye(M)[member]
        up, down = (pool_loss(u + s, *problem) for s in (step, -step))
        slope = (up - down) / (2 * h)
        assert slope > 1e-3 if u[member] == 0 else abs(slope) < 1e-4


def test_pool_weights_of_two_members_on_a_grid():
    log_probas, index, weights = members_of(n=20, K=3, M=2)
    problem = log_probas, index, weights, np.log([0.2, 0.3, 0.5])
    grid = np.linspace(0.0, 1.5, 31)
    losses = np.array([[pool_loss((first, second), *problem) for second in grid] for first in grid])
    place = np.unravel_index(losses.argmin(), losses.shape)
    u = pool_weights(*problem)
    assert_allclose(u, grid[list(place)], atol=0.051)
    assert pool_loss(u, *problem) <= losses.min()


def test_some_members_are_left_out_altogether():
    log_probas, index, weights = members_of(n=300)
    u = pool_weights(log_probas, index, weights, log_frequencies(index, weights, 3))
    assert u[0] == u.max()
    assert u[-1] == 0.0


def test_few_rows_give_equal_shares():
    log_probas, index, weights = members_of()
    log_prior = np.log(np.full(3, 1 / 3))
    assert_allclose(pool_weights(log_probas, index, 1e-9 * weights, log_prior), 0.25, atol=1e-6)


def test_one_member_counts_as_it_is():
    log_probas, index, weights = members_of(M=1)
    log_prior = np.log([0.2, 0.3, 0.5])
    assert_array_equal(pool_weights(log_probas, index, weights, log_prior), [1.0])
    assert_allclose(pooled(log_probas, np.ones(1), log_prior), log_probas[0], atol=1e-12)


def test_members_that_do_not_count_leave_the_class_frequencies():
    log_probas, _, _ = members_of(M=3)
    prior = np.array([0.2, 0.3, 0.5])
    p = np.exp(pooled(log_probas, np.zeros(3), np.log(prior)))
    assert_allclose(p, np.tile(prior, (60, 1)), rtol=1e-12)
    alone = pooled(log_probas, np.array([0.0, 1.0, 0.0]), np.log(prior))
    assert_allclose(alone, log_probas[1], atol=1e-12)
    # A member that says no more than the class frequencies changes nothing, whatever it weighs.
    silent = np.tile(np.log(prior), (60, 1))
    assert_allclose(pooled([log_probas[1], silent], np.array([1.0, 5.0]), np.log(prior)), alone, atol=1e-12)


def test_pool_weights_of_copies_and_in_any_order():
    log_probas, index, _ = members_of()
    log_prior = np.log([0.2, 0.3, 0.5])
    weights = 1 + np.arange(60) % 3
    copies = np.random.default_rng(0).permutation(np.repeat(np.arange(60), weights))
    expected = pool_weights(log_probas, index, weights.astype(float), log_prior)
    repeated = pool_weights(
        [log_p[copies] for log_p in log_probas], index[copies], np.ones(copies.size), log_prior
    )
    assert_allclose(repeated, expected, atol=1e-9)
    turned = pool_weights(log_probas[::-1], index, weights.astype(float), log_prior)
    assert_allclose(turned, expected[::-1], atol=1e-9)


def test_members_that_are_certain_and_wrong_do_no_harm():
    index = np.array([0, 1, 2] * 10)
    wrong = np.full((30, 3), -800.0)
    wrong[np.arange(30), (index + 1) % 3] = 0.0
    fair = np.log(np.full((30, 3), 0.1))
    fair[np.arange(30), index] = np.log(0.8)
    log_prior = np.log(np.full(3, 1 / 3))
    u = pool_weights([wrong, fair], index, np.ones(30), log_prior)
    assert np.isfinite(u).all()
    assert u[1] > 0.5
    assert u[0] * 800 < 10
    right = pooled([wrong, fair], u, log_prior)
    assert (right.argmax(axis=1) == index).all()


# The pool --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_and_probabilities_agree(n_classes):
    keep = n_classes > Y
    model = AutoKernelClassifier().fit(X[keep], Y[keep])
    for rows in (X, X_NEW, 1e3 * X_NEW):
        p = model.predict_proba(rows)
        assert p.shape == (len(rows), n_classes)
        assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        assert_array_equal(model.predict(rows), model.classes_[p.argmax(axis=1)])
        assert_allclose(np.exp(model.predict_log_proba(rows)), p, rtol=1e-12)
        scores = model.decision_function(rows)
        winners = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
        assert_array_equal(model.predict(rows), model.classes_[winners])


def test_the_pool_is_the_normalised_product_of_its_members():
    model = AutoKernelClassifier().fit(X, Y)
    assert [(m.kernel, m.coding_) for m in model.members_] == [
        ("blend", "one-vs-one"),
        (Polynomial(2, centred=True), "one-vs-one"),
        ("laplacian", "one-vs-all"),
    ]
    assert model.members_[1].kernel_.degree == 2
    assert model.weights_.shape == (3,)
    assert (model.weights_ >= 0).all()
    assert model.weights_.sum() > 0.3
    prior = (np.bincount(Y) + 0.5) / (70 + 1.5)
    assert_allclose(np.exp(model.log_prior_), prior, rtol=1e-12)
    product = np.tile(prior, (200, 1))
    for weight, member in zip(model.weights_, model.members_, strict=True):
        product *= (member.predict_proba(X_NEW) / prior) ** weight
    product /= product.sum(axis=1, keepdims=True)
    assert_allclose(model.predict_proba(X_NEW), product, atol=1e-10)
    model.weights_ = np.zeros(3)
    assert_allclose(model.predict_proba(X_NEW), np.tile(prior, (200, 1)), rtol=1e-12)


def test_members_are_fitted_as_if_alone():
    given = two_members()
    model = AutoKernelClassifier(given).fit(X, Y)
    for member, fitted in zip(given, model.members_, strict=True):
        assert not hasattr(member, "decoder_")
        assert fitted is not member
        assert_allclose(fitted.predict_proba(X_NEW), clone(member).fit(X, Y).predict_proba(X_NEW), atol=1e-12)


def test_the_weights_come_from_rows_that_members_have_not_seen():
    # By hand, with the folds that the library deals: members fitted without the fold, machines and decoders.
    given = [member.set_params(decoding="coupling") for member in two_members()]
    model = AutoKernelClassifier(given).fit(X, Y)
    numbers = model.members_[0].bank_.data.deal.fold_numbers(FOLDS)
    honest = []
    for member in given:
        log_p = np.empty((70, 3))
        for fold in range(FOLDS):
            held = numbers == fold
            log_p[held] = clone(member).fit(X[~held], Y[~held]).predict_log_proba(X[held])
        honest.append(log_p)
    for member, log_p in zip(model.members_, honest, strict=True):
        assert_allclose(member.loo_log_proba_, log_p, atol=1e-9)
    expected = pool_weights(honest, Y, np.ones(70), log_frequencies(Y, np.ones(70), 3))
    assert_allclose(model.weights_, expected, atol=1e-7)


@pytest.mark.parametrize("soft", [False, True])
def test_the_stated_probabilities_have_weights_from_other_folds(soft):
    given = np.random.default_rng(0).uniform(0.5, 2.0, 70)
    labels = 0.9 * np.eye(3)[Y] + 0.1 / 3 if soft else Y
    model = AutoKernelClassifier(two_members()).fit(X, labels, given)
    data = model.members_[0].bank_.data
    honest = [member.loo_log_proba_ for member in model.members_]
    numbers = data.deal.fold_numbers(FOLDS)
    weights = given * given.sum() / np.square(given).sum()  # as many as they are worth
    P = labels if soft else np.eye(3)[Y]
    expected = np.empty((70, 3))
    for fold in range(FOLDS):
        held = numbers == fold
        # A row with a soft label is one row of every class.
        rows, index = np.nonzero(P * ~held[:, np.newaxis])
        shares = weights[rows] * P[rows, index]
        log_prior = log_frequencies(index, shares, 3)
        others = [log_p[rows] for log_p in honest]
        u = best_weights(others, index, shares, log_prior).x
        evidence = sum(value * (log_p[held] - log_prior) for value, log_p in zip(u, honest, strict=True))
        expected[held] = log_softmax(log_prior + evidence, axis=1)
    assert_allclose(model.loo_log_proba_, expected, atol=1e-4)
    assert_allclose(model.loo_log_loss_, -(weights @ (P * expected).sum(axis=1)) / weights.sum(), atol=1e-5)
    # The weights of the pool, which have seen the rows, say something else.
    of_all = pooled(honest, model.weights_, model.log_prior_)
    assert np.abs(of_all - model.loo_log_proba_).max() > 1e-3


@pytest.mark.parametrize(("name", "n"), [("twonorm", 100), ("waveform", 100)])
def test_the_loss_it_states_is_the_loss_it_has(name, n):
    generator = generators()[name]
    stated, true = [], []
    for seed in range(6):
        model = AutoKernelClassifier().fit(*generator.sample(n, random_state=seed))
        stated.append(model.loo_log_loss_)
        true.append(log_loss(model, *generator.sample(2000, random_state=50 + seed)))
    assert abs(np.mean(stated) - np.mean(true)) < 0.06
    assert np.mean(true) < 0.75 * np.log(len(generator.priors))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_is_not_learned(n_classes):
    for seed in range(3):
        random = np.random.default_rng(seed)
        rows, y = random.normal(size=(200, 3)), random.integers(0, n_classes, 200)
        model = AutoKernelClassifier().fit(rows, y)
        assert model.loo_log_loss_ > 0.85 * np.log(n_classes)
        new = random.normal(size=(1000, 3))
        assert log_loss(model, new, random.integers(0, n_classes, 1000)) < 1.2 * np.log(n_classes)


# Weights, soft labels, priors ------------------------------------------------------------------------------


def test_a_weight_is_as_many_copies():
    weights = 1 + np.arange(70) % 3
    copies = np.repeat(np.arange(70), weights)
    weighted = AutoKernelClassifier(two_members()).fit(X, Y, weights)
    repeated = AutoKernelClassifier(two_members()).fit(X[copies], Y[copies], groups=copies)
    assert_array_equal(copies[repeated.support_], np.arange(70))
    assert_allclose(weighted.weights_, repeated.weights_, atol=1e-6)
    assert_allclose(weighted.loo_log_loss_, repeated.loo_log_loss_, rtol=1e-7)
    assert_allclose(weighted.predict_proba(X_NEW), repeated.predict_proba(X_NEW), atol=1e-7)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_copies_are_told_of_once_and_left_out_together(noise, n_jobs):
    copies = np.random.default_rng(0).permutation(np.repeat(np.arange(70), 2))
    rows = X[copies] + noise * np.random.default_rng(1).normal(size=(140, 3))
    with joblib.parallel_config(backend="threading"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = AutoKernelClassifier(two_members(), n_jobs=n_jobs).fit(rows, Y[copies])
    (warning,) = [entry for entry in caught if "of 140 rows" in str(entry.message)]
    assert str(warning.message).startswith("70 of 140 rows are copies")
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grouped = AutoKernelClassifier(two_members()).fit(rows, Y[copies], groups=copies)
        leaking = AutoKernelClassifier(two_members()).fit(rows, Y[copies], groups=np.arange(140))
    assert model.support_.size == (70 if noise == 0.0 else 140)
    if noise == 0.0:
        assert_array_equal(model.support_, np.sort(np.unique(copies, return_index=True)[1]))
    for member in model.members_:
        assert_array_equal(member.support_, model.support_)
    assert model.loo_log_proba_.shape == (model.support_.size, 3)
    assert_allclose(grouped.weights_, model.weights_, atol=1e-7)
    assert_allclose(grouped.predict_proba(X_NEW), model.predict_proba(X_NEW), atol=1e-7)
    assert leaking.loo_log_loss_ < model.loo_log_loss_ - 0.01


def test_groups_are_left_out_together():
    # The labels of the groups say nothing of those of others.
    random = np.random.default_rng(0)
    groups = random.permutation(np.repeat(np.arange(40), 4))
    rows = random.normal(size=(40, 3))[groups] + 0.01 * random.normal(size=(160, 3))
    y = np.arange(40)[groups] % 2
    apart = AutoKernelClassifier().fit(rows, y, groups=np.arange(160))
    together = AutoKernelClassifier().fit(rows, y, groups=groups)
    assert apart.loo_log_loss_ < 0.3
    assert together.loo_log_loss_ > 0.6
    with pytest.raises(ValueError, match="one group"):
        AutoKernelClassifier().fit(rows, y, groups=np.zeros(160))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("class_weight", [{0: 3.0, 2: 0.5}, "balanced"])
def test_class_weights_are_weights_of_the_rows(class_weight, soft):
    keep = np.flatnonzero((Y > 0) | (np.arange(70) % 2 == 0))
    P = 0.9 * np.eye(3)[Y[keep]] + 0.1 / 3 if soft else np.eye(3)[Y[keep]]
    labels = P if soft else Y[keep]
    given = np.random.default_rng(1).uniform(0.5, 2.0, keep.size)
    factors = (
        np.array([3.0, 1.0, 0.5])
        if isinstance(class_weight, dict)
        else P.sum(axis=0).sum() / (3 * P.sum(axis=0))
    )
    # What members say of class weights does not count.
    own = [member.set_params(class_weight={1: 10.0}) for member in two_members()]
    model = AutoKernelClassifier(own, class_weight=class_weight).fit(X[keep], labels, given)
    expected = AutoKernelClassifier(two_members()).fit(X[keep], labels, given * (P @ factors))
    if not soft:
        same(model, expected, X_NEW)
    # Soft labels are made to sum to one, which rounds.
    for name in ("weights_", "loo_log_proba_", "loo_log_loss_", "log_prior_"):
        assert_allclose(getattr(model, name), getattr(expected, name), atol=1e-8)
    assert_allclose(model.predict_proba(X_NEW), expected.predict_proba(X_NEW), atol=1e-8)
    plain = AutoKernelClassifier(two_members()).fit(X[keep], labels, given)
    assert np.abs(plain.predict_proba(X_NEW) - model.predict_proba(X_NEW)).max() > 0.01


def test_class_weights_of_unknown_classes_are_refused():
    with pytest.raises(ValueError, match=r"class_weight names \['a'\], which are not"):
        AutoKernelClassifier(two_members(), class_weight={"a": 2.0}).fit(X, Y)
    with pytest.raises(ValueError, match=r"class_weight names \[7\], which are not"):
        AutoKernelClassifier(two_members(), class_weight={7: 2.0}).fit(X, Y)


def test_the_order_of_the_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(70)
    expected = AutoKernelClassifier().fit(X, Y)
    shuffled = AutoKernelClassifier().fit(X[order], Y[order])
    assert_allclose(shuffled.predict_proba(X_NEW), expected.predict_proba(X_NEW), atol=1e-5)


def test_soft_labels():
    hard = AutoKernelClassifier().fit(X, Y)
    soft = AutoKernelClassifier(classes=["a", "b", "c"]).fit(X, np.eye(3)[Y])
    assert_array_equal(soft.classes_, ["a", "b", "c"])
    assert_allclose(soft.weights_, hard.weights_, atol=1e-6)
    assert_allclose(soft.predict_proba(X_NEW), hard.predict_proba(X_NEW), atol=1e-7)
    P = 0.8 * np.eye(3)[Y] + 0.2 * np.random.default_rng(0).dirichlet(np.ones(3), 70)
    mixed = AutoKernelClassifier().fit(X, P)
    assert (mixed.weights_ >= 0).all()
    assert np.isfinite(mixed.loo_log_loss_)
    assert np.abs(mixed.predict_proba(X_NEW) - hard.predict_proba(X_NEW)).max() > 1e-3
    with pytest.raises(ValueError, match="must sum to one"):
        AutoKernelClassifier().fit(X, 2 * P)


@pytest.mark.parametrize("soft", [False, True])
def test_priors_reweigh_the_pool(soft):
    labels = 0.9 * np.eye(3)[Y] + 0.1 / 3 if soft else Y
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 70)
    shares = weights @ (labels if soft else np.eye(3)[Y]) / weights.sum()
    plain = AutoKernelClassifier(two_members()).fit(X, labels, weights).predict_proba(X_NEW)
    for given, priors in (
        ("uniform", np.full(3, 1 / 3)),
        ([0.1, 0.2, 0.7], [0.1, 0.2, 0.7]),
        ({2: 0.7, 0: 0.1, 1: 0.2}, [0.1, 0.2, 0.7]),
        (pd.Series({2: 0.7, 0: 0.1, 1: 0.2}), [0.1, 0.2, 0.7]),
        ("empirical", shares),
    ):
        model = AutoKernelClassifier(two_members(), priors=given).fit(X, labels, weights)
        expected = plain * np.array(priors) / shares
        assert_allclose(
            model.predict_proba(X_NEW), expected / expected.sum(axis=1, keepdims=True), atol=1e-10
        )
        assert_array_equal(model.predict(X_NEW), model.predict_proba(X_NEW).argmax(axis=1))
    # What members say of priors does not count.
    own = [member.set_params(priors="uniform") for member in two_members()]
    found = AutoKernelClassifier(own).fit(X, labels, weights).predict_proba(X_NEW)
    assert_allclose(found, plain, atol=1e-12)


@pytest.mark.parametrize("priors", ["flat", [0.5, 0.5], [0.5, 0.6, -0.1]])
def test_priors_that_make_no_sense_are_refused(priors):
    with pytest.raises(ValueError, match="priors"):
        AutoKernelClassifier(two_members(), priors=priors).fit(X, Y)


# Kinds of input, and the rest ------------------------------------------------------------------------------


def dense_and_sparse():
    rows = np.maximum(X, 0.0)
    return AutoKernelClassifier().fit(rows, Y), AutoKernelClassifier().fit(sparse.csr_matrix(rows), Y)


def test_sparse_rows():
    new = np.maximum(X_NEW, 0.0)
    dense, thin = dense_and_sparse()
    for one, other in zip(dense.members_, thin.members_, strict=True):
        assert_allclose(other.predict_proba(sparse.csr_matrix(new)), one.predict_proba(new), atol=1e-6)
    assert_allclose(thin.predict_proba(sparse.csc_matrix(new)), thin.predict_proba(new), atol=1e-12)


def test_sparse_rows_get_the_same_weights():
    dense, thin = dense_and_sparse()
    assert_allclose(thin.weights_, dense.weights_, atol=1e-5)


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = AutoKernelClassifier(two_members()).fit(frame, pandas.Series(Y))
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    expected = AutoKernelClassifier(two_members()).fit(X, Y).predict_proba(X)
    assert_allclose(model.predict_proba(frame), expected, atol=1e-12)


def test_pickling_cloning_and_fitting_again():
    model = AutoKernelClassifier(two_members()).fit(X, Y)
    p = model.predict_proba(X_NEW)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X_NEW), p)
    fresh = clone(model)
    assert not hasattr(fresh, "weights_")
    assert_array_equal(fresh.fit(X, Y).predict_proba(X_NEW), p)
    assert_array_equal(model.fit(X, Y).predict_proba(X_NEW), p)
    assert (
        AutoKernelClassifier().fit(X, Y).weights_.tolist()
        == AutoKernelClassifier().fit(X, Y).weights_.tolist()
    )


def test_random_members_are_told_the_random_state():
    members = [LSSVMClassifier(C=1.0, gamma=0.3, coding="ecoc", decoding="coupling"), *two_members()]
    rows, y = blobs(n=90, K=6, seed=1)
    one, two = (AutoKernelClassifier(members, random_state=3).fit(rows, y) for _ in range(2))
    assert_array_equal(one.predict_proba(rows), two.predict_proba(rows))
    alone = clone(members[0]).set_params(random_state=3).fit(rows, y)
    assert_array_equal(one.members_[0].codebook_.matrix, alone.codebook_.matrix)


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ([], ValueError, "members must hold at least one classifier"),
        ([SVC()], TypeError, r"members must have predict_proba, which SVC\(\) has not"),
        ([LSSVMClassifier(decoding="hamming")], ValueError, "learned and gives probabilities.*not 'hamming'"),
        ([LSSVMClassifier(decoding="bayes")], ValueError, "learned and gives probabilities.*not 'bayes'"),
        (["sigmoid"], ValueError, "unknown member 'sigmoid'; the names are default, blend, poly"),
        ("rbf", TypeError, "must be a list"),
        ([LSSVMClassifier], TypeError, "members must be classifiers"),
        ([3], TypeError, "members must be classifiers"),
        (
            [LSSVMClassifier(kernel="precomputed"), LSSVMClassifier()],
            ValueError,
            "either all members or none must have a precomputed kernel",
        ),
    ],
)
def test_bad_members_are_refused(members, error, message):
    with pytest.raises(error, match=message):
        AutoKernelClassifier(members).fit(X, Y)


def test_a_refused_fit_leaves_nothing_fitted():
    model = AutoKernelClassifier(two_members()).fit(X, Y)
    with pytest.raises(ValueError, match="only one class"):
        model.fit(X, np.zeros(70))
    assert not model.__sklearn_is_fitted__()
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full_like(X, np.nan), Y)


def interrupted(A, B):
    raise KeyboardInterrupt


def broken(A, B):
    raise RuntimeError("the kernel is broken")


@pytest.mark.parametrize(
    ("kernel", "error", "n_jobs"),
    [(interrupted, KeyboardInterrupt, 1), (broken, RuntimeError, 1), (broken, RuntimeError, 2)],
)
@pytest.mark.parametrize("before", [False, True])
def test_a_fit_that_is_cut_short_leaves_nothing_fitted(kernel, error, n_jobs, before):
    model = AutoKernelClassifier(two_members(), n_jobs=n_jobs)
    if before:
        model.fit(X, Y)
    model.set_params(members=[*two_members(), LSSVMClassifier(C=1.0, kernel=kernel)])
    with pytest.raises(error):
        model.fit(X, Y)
    assert not model.__sklearn_is_fitted__()
    for answer in (model.predict, model.predict_proba, model.predict_log_proba, model.decision_function):
        with pytest.raises(NotFittedError):
            answer(X)
    model.set_params(members=two_members()).fit(X, Y)
    same(model, AutoKernelClassifier(two_members()).fit(X, Y), X_NEW)


# Members at once -------------------------------------------------------------------------------------------


def same(one, other, rows):
    for name in ("weights_", "loo_log_proba_", "classes_", "prior_shift_", "log_prior_", "support_"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.loo_log_loss_ == other.loo_log_loss_
    assert_array_equal(one.predict_proba(rows), other.predict_proba(rows))
    for mine, theirs in zip(one.members_, other.members_, strict=True):
        assert set(vars(mine)) == set(vars(theirs))
        assert_array_equal(mine.dual_coef_, theirs.dual_coef_)
        assert_array_equal(mine.loo_log_proba_, theirs.loo_log_proba_)


def rows_are_shared(model):
    first, *others = (member.bank_.data for member in model.members_)
    return all(
        getattr(data, name) is getattr(first, name)
        for data in others
        for name in ("X", "class_index", "weights", "soft_labels", "groups", "dealt")
    )


BACKENDS = ("loky", "threading")


@pytest.fixture(scope="module")
def expected():
    return AutoKernelClassifier().fit(X, Y)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_jobs", [2, 3, -1])
def test_the_number_of_jobs_does_not_show(n_jobs, backend, expected):
    with joblib.parallel_config(backend=backend):
        model = AutoKernelClassifier(n_jobs=n_jobs).fit(X, Y)
    same(model, expected, X_NEW)
    assert rows_are_shared(model)
    assert rows_are_shared(expected)
    same(pickle.loads(pickle.dumps(model)), expected, X_NEW)


def test_joblib_says_how_many_jobs_there_are():
    where = []

    def noted(A, B):
        where.append(threading.get_ident())
        return A @ B.T

    members = [LSSVMClassifier(C=C, kernel=noted) for C in (1.0, 2.0)]
    AutoKernelClassifier(members).fit(X, Y)
    assert set(where) == {threading.get_ident()}
    where.clear()
    with joblib.parallel_config(backend="threading", n_jobs=2):
        AutoKernelClassifier(members).fit(X, Y)
    assert threading.get_ident() not in where


def inverse_distance(A, B):
    return 1.0 / (1.0 + np.square(A[:, np.newaxis] - B[np.newaxis]).sum(axis=2))


def of_kind(kind):
    """Members, rows, labels and weights."""
    weights = np.arange(70) % 3
    gram = np.exp(-0.2 * np.square(X[:, np.newaxis] - X[np.newaxis]).sum(axis=2))
    given = [LSSVMClassifier(C=C, kernel="precomputed") for C in (2.0, 0.5)]
    match kind:
        case "weights":
            return two_members(), X, Y, weights
        case "lists":
            return two_members(), X.tolist(), Y.tolist(), None
        case "pandas":
            pandas = pytest.importorskip("pandas")
            frame = pandas.DataFrame(X, columns=["a", "b", "c"])
            return two_members(), frame, pandas.Series(np.array(["x", "y", "zz"])[Y]), weights.tolist()
        case "sparse":
            return two_members(), sparse.csr_matrix(np.maximum(X, 0.0)), Y, weights
        case "soft":
            return two_members(), X, 0.8 * np.eye(3)[Y] + 0.2 / 3, weights
        case "precomputed":
            return given, gram, Y, weights
        case "functions":
            return [LSSVMClassifier(C=C, kernel=inverse_distance) for C in (1.0, 2.0)], X, Y, None
        case "local functions":  # which travel as copies
            return [LSSVMClassifier(C=C, kernel=lambda A, B: A @ B.T) for C in (1.0, 2.0)], X, Y, None


KINDS = ("weights", "lists", "pandas", "sparse", "soft", "precomputed", "functions", "local functions")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_the_input_jobs_do_not_show(kind, backend):
    members, rows, labels, weights = of_kind(kind)
    expected = AutoKernelClassifier(members).fit(rows, labels, weights)
    with joblib.parallel_config(backend=backend):
        model = AutoKernelClassifier(members, n_jobs=2).fit(rows, labels, weights)
    assert rows_are_shared(model)
    same(model, expected, rows)
    assert_array_equal(model.support_, np.arange(70) if weights is None else np.flatnonzero(weights))
    if kind != "local functions":  # those cannot be pickled
        same(pickle.loads(pickle.dumps(model)), expected, rows)
    if kind == "pandas":
        assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.predict_proba(rows)
    if "functions" in kind:
        for member, given in zip(model.members_, members, strict=True):
            assert member.kernel_.function is member.kernel is given.kernel


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_of_members_elsewhere_arrive(backend):
    members = [two_members()[0], LSSVMClassifier(C=-1.0, kernel=inverse_distance)]
    with joblib.parallel_config(backend=backend), pytest.raises(ValueError, match="C must be"):
        AutoKernelClassifier(members, n_jobs=2).fit(X, Y)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seeded", [True, False])
def test_members_elsewhere_draw_the_same_numbers(seeded, backend):
    rows, y = blobs(n=90, K=6, seed=1)
    members = [LSSVMClassifier(C=1.0, gamma=0.3, coding="ecoc", decoding="coupling") for _ in range(3)]

    def fitted(n_jobs, seed=4):
        random_state = np.random.RandomState(seed) if seeded else None
        with joblib.parallel_config(backend=backend):
            return AutoKernelClassifier(members, n_jobs=n_jobs, random_state=random_state).fit(rows, y)

    one, two = fitted(1), fitted(2)
    same(one, two, rows)
    first, second, third = (member.codebook_.matrix for member in one.members_)
    # All members deal the rows alike, by one number that is drawn for them.
    assert_array_equal(first, second)
    assert_array_equal(first, third)
    if seeded:
        assert not np.array_equal(fitted(1, seed=5).members_[0].codebook_.matrix, first)


@pytest.mark.parametrize("backend", BACKENDS)
def test_members_elsewhere_are_counted(backend, monkeypatch):
    from polymargin.estimators import auto

    steps = []
    monkeypatch.setattr(auto, "shown", lambda verbose: contextlib.nullcontext(steps.append))
    with joblib.parallel_config(backend=backend):
        AutoKernelClassifier(n_jobs=2).fit(X, Y)
    assert [str(step) for step in steps] == [f"members: {done} of 3 members" for done in range(4)]


@pytest.mark.parametrize("metric", ["euclidean", True, np.ones(2)])
def test_metrics_of_a_pool_are_learned_or_none(metric):
    with pytest.raises(ValueError, match=r'metric must be "learned" or None.*widths are for members'):
        AutoKernelClassifier(metric=metric).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
