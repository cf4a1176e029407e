"""AutoKernelClassifier: the pool of a few least-squares classifiers, its weights and what it says of itself."""

import contextlib
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from conftest import blobs
from polymargin import AutoKernelClassifier, LSSVMClassifier, _workers
from polymargin.datasets.generators import generators
from polymargin.estimators._pool import pool_weights, pooled
from polymargin.kernels import Polynomial


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


def pool_loss(u, log_probas, index, weights, ridge=1.0):
    """The stated objective, row by row."""
    total = 0.5 * ridge * sum((value - 1 / len(u)) ** 2 for value in u)
    for i in range(len(index)):
        z = sum(value * log_p[i] for value, log_p in zip(u, log_probas, strict=True))
        total -= weights[i] * (z[index[i]] - logsumexp(z))
    return total


@pytest.mark.parametrize(("K", "M", "seed"), [(3, 4, 0), (2, 3, 1), (5, 2, 2), (3, 6, 3)])
def test_pool_weights_minimise_the_log_loss_within_their_bounds(K, M, seed):
    log_probas, index, weights = members_of(K=K, M=M, seed=seed)
    u = pool_weights(log_probas, index, weights)
    assert u.shape == (M,)
    assert (u >= 0).all()
    found = minimize(
        pool_loss,
        np.full(M, 1 / M),
        (log_probas, index, weights),
        method="L-BFGS-B",
        bounds=[(0, None)] * M,
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    assert pool_loss(u, log_probas, index, weights) <= found.fun * (1 + 1e-9)
    assert_allclose(u, found.x, atol=1e-3)
    # At the bounds the slope points outwards, elsewhere there is none.
    h = 1e-6
    for member in range(M):
        step = h * np.eye(M)[member]
        up, down = (pool_loss(u + s, log_probas, index, weights) for s in (step, -step))
        slope = (up - down) / (2 * h)
        assert slope > 1e-3 if u[member] == 0 else abs(slope) < 1e-4


def test_some_members_are_left_out_altogether():
    log_probas, index, weights = members_of()
    u = pool_weights(log_probas, index, weights)
    assert u[0] == u.max()
    assert u[-1] == 0.0


def test_one_member_counts_as_it_is():
    log_probas, index, weights = members_of(M=1)
    assert_array_equal(pool_weights(log_probas, index, weights), [1.0])
    assert_allclose(pooled(log_probas, np.ones(1)), log_probas[0], atol=1e-12)


def test_pool_weights_of_copies_and_in_any_order():
    log_probas, index, _ = members_of()
    weights = 1 + np.arange(60) % 3
    copies = np.random.default_rng(0).permutation(np.repeat(np.arange(60), weights))
    expected = pool_weights(log_probas, index, weights.astype(float))
    repeated = pool_weights([log_p[copies] for log_p in log_probas], index[copies], np.ones(copies.size))
    assert_allclose(repeated, expected, atol=1e-9)
    assert_allclose(pool_weights(log_probas[::-1], index, weights.astype(float)), expected[::-1], atol=1e-9)


def test_members_that_are_certain_and_wrong_do_no_harm():
    index = np.array([0, 1, 2] * 10)
    wrong = np.full((30, 3), -800.0)
    wrong[np.arange(30), (index + 1) % 3] = 0.0
    fair = np.log(np.full((30, 3), 0.1))
    fair[np.arange(30), index] = np.log(0.8)
    u = pool_weights([wrong, fair], index, np.ones(30))
    assert np.isfinite(u).all()
    assert u[1] > 0.5
    assert u[0] * 800 < 10
    right = pooled([wrong, fair], u)
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
    assert [(m.kernel, m.coding) for m in model.members_] == [
        ("blend", "one-vs-one"),
        (Polynomial(2, centred=True), "one-vs-one"),
        (Polynomial(2, centred=True), "one-vs-all"),
    ]
    assert model.members_[1].kernel_.degree == 2
    assert model.weights_.shape == (3,)
    assert (model.weights_ >= 0).all()
    assert model.weights_.sum() > 0.3
    product = np.ones((200, 3))
    for weight, member in zip(model.weights_, model.members_, strict=True):
        product *= member.predict_proba(X_NEW) ** weight
    assert_allclose(model.predict_proba(X_NEW), product / product.sum(axis=1, keepdims=True), atol=1e-10)


def test_two_classes_have_two_members():
    keep = Y < 2
    for labels in (Y[keep], np.eye(2)[Y[keep]], np.array(["no", "yes"])[Y[keep]]):
        assert len(AutoKernelClassifier().fit(X[keep], labels).members_) == 2


def test_members_are_fitted_as_if_alone():
    given = two_members()
    model = AutoKernelClassifier(given).fit(X, Y)
    for member, fitted in zip(given, model.members_, strict=True):
        assert not hasattr(member, "decoder_")
        assert fitted is not member
        assert_allclose(fitted.predict_proba(X_NEW), clone(member).fit(X, Y).predict_proba(X_NEW), atol=1e-12)


def test_the_weights_come_from_rows_that_decoders_have_not_seen():
    # By hand, with the folds that the library deals: decoders fitted on half of the honest outputs.
    from polymargin.decoders._folds import deal_rows

    model = AutoKernelClassifier(two_members()).fit(X, Y)
    honest = []
    for member in model.members_:
        log_p = np.empty((70, 3))
        outputs = member.bank_.training_outputs(honest=True)
        for fold in deal_rows(outputs.margins, Y, 2):
            kept = np.setdiff1d(np.arange(70), fold)
            decoder = clone(member.decoder_).set_params(ridge=member.decoder_.ridge_)
            decoder.fit(member.codebook_, outputs.rows(kept), Y[kept])
            log_p[fold] = decoder.log_proba(outputs.rows(fold))
        honest.append(log_p)
        # The library's fits for this are rough ones.
        assert_allclose(member.loo_log_proba_, log_p, atol=0.02)
    assert_allclose(model.weights_, pool_weights(honest, Y, np.ones(70)), atol=5e-3)
    expected = (pool_loss(model.weights_, honest, Y, np.ones(70), ridge=0.0)) / 70
    assert_allclose(model.loo_log_loss_, expected, rtol=1e-3)


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
    repeated = AutoKernelClassifier(two_members()).fit(X[copies], Y[copies])
    assert_allclose(weighted.weights_, repeated.weights_, atol=1e-6)
    assert_allclose(weighted.loo_log_loss_, repeated.loo_log_loss_, rtol=1e-7)
    assert_allclose(weighted.predict_proba(X_NEW), repeated.predict_proba(X_NEW), atol=1e-7)


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
        ([], ValueError, "members must hold at least one LSSVMClassifier"),
        ([SVC()], TypeError, r"members must be LSSVMClassifier objects, not SVC\(\)"),
        ([LSSVMClassifier(decoding="hamming")], ValueError, "learned and gives probabilities.*not 'hamming'"),
        ([LSSVMClassifier(decoding="bayes")], ValueError, "learned and gives probabilities.*not 'bayes'"),
        (["rbf"], TypeError, "rbf"),
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


# Members in processes --------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch):
    """Have all members but the first fitted by other processes, which are there already."""
    awake = [_workers._awake() for _ in range(2)]
    for worker, answer in awake:
        answer.result(30)
        _workers._idle.append(worker)
    monkeypatch.setattr(_workers._Call, "_next", lambda self: None)
    here = []
    fit = LSSVMClassifier.fit

    def noted(self, *rows):
        here.append(self)
        return fit(self, *rows)

    monkeypatch.setattr(LSSVMClassifier, "fit", noted)
    return here


def same(one, other, rows):
    for name in ("weights_", "loo_log_proba_", "classes_", "prior_shift_"):
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
        for name in ("X", "class_index", "weights", "soft_labels")
    )


@pytest.mark.parametrize("n_jobs", [2, 3, -1])
def test_the_number_of_processes_does_not_show(elsewhere, n_jobs):
    expected = AutoKernelClassifier().fit(X, Y)
    elsewhere.clear()
    model = AutoKernelClassifier(n_jobs=n_jobs).fit(X, Y)
    assert elsewhere[:1] == model.members_[:1]
    if n_jobs > 1:
        assert len(elsewhere) == 1
    same(model, expected, X_NEW)
    assert rows_are_shared(model)
    assert rows_are_shared(expected)
    same(pickle.loads(pickle.dumps(model)), expected, X_NEW)


def inverse_distance(A, B):
    if len(A) == len(B):
        warnings.warn("a warning of a kernel", UserWarning, stacklevel=1)
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
        case "mixed":
            return [given[0], *two_members()], gram, Y, weights


KINDS = (
    "weights",
    "lists",
    "pandas",
    "sparse",
    "soft",
    "precomputed",
    "functions",
    "local functions",
    "mixed",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:a warning of a kernel")
def test_whatever_the_input_processes_do_not_show(elsewhere, kind):
    members, rows, labels, weights = of_kind(kind)
    expected = AutoKernelClassifier(members).fit(rows, labels, weights)
    elsewhere.clear()
    model = AutoKernelClassifier(members, n_jobs=2).fit(rows, labels, weights)
    # A precomputed kernel and others do not have the same rows, where some have no weight.
    assert len(elsewhere) == (len(members) if kind == "mixed" else 1)
    assert rows_are_shared(model) == (kind != "mixed")
    same(model, expected, rows)
    if kind != "local functions":  # those cannot be pickled
        same(pickle.loads(pickle.dumps(model)), expected, rows)
    if kind == "pandas":
        assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
        for member in model.members_:
            assert_array_equal(member.feature_names_in_, ["a", "b", "c"])
    if "functions" in kind:
        for member, given in zip(model.members_, members, strict=True):
            assert member.kernel_.function is member.kernel is given.kernel


def test_warnings_and_errors_of_members_elsewhere_arrive(elsewhere):
    members = [two_members()[0], LSSVMClassifier(C=1.0, kernel=inverse_distance)]
    with pytest.warns(UserWarning, match="a warning of a kernel"):
        AutoKernelClassifier(members, n_jobs=2).fit(X, Y)
    assert len(elsewhere) == 1
    members[1].set_params(C=-1.0)
    with pytest.raises(ValueError, match="C must be") as caught:
        AutoKernelClassifier(members, n_jobs=2).fit(X, Y)
    assert "In a worker process" in caught.value.__notes__[0]


@pytest.mark.parametrize("seeded", [True, False])
def test_members_elsewhere_draw_the_same_numbers(elsewhere, seeded):
    rows, y = blobs(n=90, K=6, seed=1)
    members = [LSSVMClassifier(C=1.0, gamma=0.3, coding="ecoc", decoding="coupling") for _ in range(3)]

    def fitted(n_jobs):
        np.random.seed(5)  # noqa: NPY002  (which None stands for)
        random_state = np.random.RandomState(4) if seeded else None
        return AutoKernelClassifier(members, n_jobs=n_jobs, random_state=random_state).fit(rows, y)

    one, two = fitted(1), fitted(2)
    same(one, two, rows)
    first, second, third = (member.codebook_.matrix for member in one.members_)
    assert first.shape != second.shape or (first != second).any()
    assert second.shape != third.shape or (second != third).any()


def test_members_elsewhere_are_counted(elsewhere, monkeypatch):
    from polymargin.estimators import auto

    steps = []
    monkeypatch.setattr(auto, "shown", lambda verbose: contextlib.nullcontext(steps.append))
    AutoKernelClassifier(n_jobs=2).fit(X, Y)
    assert [str(step) for step in steps] == [f"members: {done} of 3 members" for done in range(4)]
