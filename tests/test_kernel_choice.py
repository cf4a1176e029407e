"""Which kernel the least-squares classifier takes when none is named, and the samples behind it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris

from conftest import blobs
from polymargin import LSSVMClassifier, _workers
from polymargin.estimators._kernel_choice import LARGEST, candidates, sample
from polymargin.estimators.lssvm import _CoarseTraining
from polymargin.kernels import RBF, Blend, Laplacian, Linear, Polynomial
from polymargin.machines import TrainingRows

X, Y = blobs(n=60, K=3, seed=0, shift=1.2)
TRIED = ["blend", "poly, degree 2"]


def products(seed):
    """Two products of features among ten, and noise: a polynomial of degree two."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(250, 10))
    noise = 0.5 * random.normal(size=250)
    return rows, (rows[:, 0] * rows[:, 1] + rows[:, 2] * rows[:, 3] + noise > 0).astype(int)


def steps(seed):
    """A step along each axis: what city-block distances see best."""
    rows = np.random.default_rng(seed).uniform(-1, 1, size=(250, 2))
    return rows, (rows[:, 0] > 0.3) + 2 * (rows[:, 1] > -0.2)


def waves(seed):
    """Smooth waves across the diagonal."""
    rows = np.random.default_rng(seed).uniform(-1, 1, size=(250, 2))
    u, v = rows.sum(axis=1), rows[:, 0] - rows[:, 1]
    return rows, (np.sin(4 * u) + v > 0).astype(int)


def cubes(seed):
    """A product of three features, a little disturbed: degree two cannot follow."""
    rows = np.random.default_rng(seed).normal(size=(250, 4))
    return rows, (rows[:, :3].prod(axis=1) + 0.3 * rows[:, 3] > 0).astype(int)


@pytest.mark.parametrize(
    ("draw", "seed", "selection"),
    [(draw, seed, "loo") for draw in (products, steps, waves) for seed in (0, 1)]
    + [(draw, 3, selection) for draw in (products, steps, waves) for selection in ("gcv", "evidence")],
)
def test_designed_problems_get_their_kernel(draw, seed, selection):
    expected = {products: "poly, degree 2", steps: "blend", waves: "blend"}[draw]
    model = LSSVMClassifier(selection=selection).fit(*draw(seed))
    assert list(model.kernel_losses_) == TRIED
    assert min(model.kernel_losses_, key=model.kernel_losses_.get) == expected
    kinds = {"poly, degree 2": Polynomial, "blend": Blend}
    assert isinstance(model.kernel_, kinds[expected])


def test_the_choice_is_the_machine_of_that_name():
    rows, y = products(0)
    chosen = LSSVMClassifier().fit(rows, y)
    named = LSSVMClassifier(kernel=Polynomial(2, centred=True)).fit(rows, y)
    assert named.kernel_losses_ is None
    # The two searches start from different samples, and end at nearly the same place.
    assert_allclose(np.log(chosen.C_), np.log(named.C_), atol=0.5)
    assert_allclose(chosen.predict_proba(rows), named.predict_proba(rows), atol=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_degree_means_two_three_or_four(seed):
    model = LSSVMClassifier(kernel="poly").fit(*cubes(seed))
    losses = model.kernel_losses_
    assert list(losses) == ["poly, degree 2", "poly, degree 3", "poly, degree 4"]
    assert losses["poly, degree 3"] < losses["poly, degree 2"] - 0.1
    assert min(losses, key=losses.get) == f"poly, degree {model.kernel_.degree:g}"
    assert model.kernel_.degree > 2


def test_a_degree_is_kept_when_kernels_are_compared():
    model = LSSVMClassifier(degree=4, coef0=2.0).fit(X, Y)
    assert list(model.kernel_losses_) == ["blend", "poly, degree 4"]
    assert candidates(None, 4, 2.0, fixed=False)[1] == Polynomial(4, 2.0, centred=True)


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"gamma": 0.3}, RBF),
        ({"gamma": 0.3, "C": 1.0}, RBF),
        ({"gamma": "scale", "C": 1.0, "selection": None}, RBF),
        ({"kernel": "laplacian"}, Laplacian),
        ({"kernel": "linear"}, Linear),
        ({"kernel": "poly", "gamma": 0.3}, Polynomial),
    ],
)
def test_where_there_is_nothing_to_choose(parameters, kind):
    model = LSSVMClassifier(**parameters).fit(X, Y)
    assert isinstance(model.kernel_, kind)
    assert model.kernel_losses_ is None
    if kind is Polynomial:
        assert model.kernel_.degree == 3
    if parameters.get("gamma") == 0.3:
        assert_array_equal(model.gamma_, 0.3)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_a_named_gamma_leaves_the_choice_open(gamma):
    model = LSSVMClassifier(gamma=gamma).fit(X, Y)
    assert list(model.kernel_losses_) == TRIED
    assert_allclose(model.gamma_, 1 / 3 if gamma == "auto" else 1 / (3 * X.var()))


@pytest.mark.parametrize("parameters", [{}, {"C": 1.0}, {"gamma": 0.1}, {"kernel": "linear"}])
def test_no_selection_needs_both_parameters(parameters):
    with pytest.raises(ValueError, match="selection=None leaves nothing to choose C and gamma: give both"):
        LSSVMClassifier(selection=None, **parameters).fit(X, Y)
    assert LSSVMClassifier(selection=None, kernel="linear", C=1.0).fit(X, Y).score(X, Y) > 0.5


def test_an_unknown_selection_is_refused():
    words = 'unknown selection \'cv\'; choose "loo", "loo-exact", "gcv", "evidence" or None'
    with pytest.raises(ValueError, match=words):
        LSSVMClassifier(selection="cv").fit(X, Y)


@pytest.mark.parametrize("kernel", [None, "rbf", "linear"])
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_generalised_cross_validation_learns(kernel, coding):
    rows, y = load_iris(return_X_y=True)
    model = LSSVMClassifier(kernel=kernel, coding=coding, selection="gcv").fit(rows[::2], y[::2])
    assert model.score(rows[1::2], y[1::2]) > (
        0.75 if kernel == "linear" and coding == "one-vs-all" else 0.92
    )
    assert np.unique(model.C_).size == np.unique(model.gamma_).size == 1


@pytest.mark.parametrize("decoding", ["hamming", "bayes", "loss"])
def test_decoders_that_learn_no_probabilities_judge_by_squared_errors(decoding):
    model = LSSVMClassifier(decoding=decoding).fit(X, Y)
    assert list(model.kernel_losses_) == TRIED
    named = {"blend": "blend", "poly, degree 2": Polynomial(2, centred=True)}
    best = min(model.kernel_losses_, key=model.kernel_losses_.get)
    known = LSSVMClassifier(kernel=named[best], decoding=decoding).fit(X, Y)
    targets = known.codebook_.matrix[Y]
    errors = np.square(targets - known.loo_margins_)[targets != 0]
    # The comparison does not polish, so it is a little worse than what it ends with.
    assert_allclose(model.kernel_losses_[best], errors.mean(), rtol=0.03)


@pytest.mark.parametrize("n", [60, 1300])
def test_neither_order_nor_copies_change_the_choice(n):
    rows, y = blobs(n=n, K=3, seed=3, shift=1.2)
    if n > 1000:
        rows, y = rows[:, :2], y
    losses = LSSVMClassifier(C=1.0, gamma="scale").fit(rows, y).kernel_losses_
    order = np.random.default_rng(0).permutation(n)
    shuffled = LSSVMClassifier(C=1.0, gamma="scale").fit(rows[order], y[order]).kernel_losses_
    assert_allclose(list(shuffled.values()), list(losses.values()), rtol=1e-6)
    if n > 1000:
        return
    weights = 1 + np.arange(n) % 3
    copies = np.repeat(np.arange(n), weights)
    weighted = LSSVMClassifier(C=1.0, gamma="scale").fit(rows, y, weights).kernel_losses_
    repeated = LSSVMClassifier(C=1.0, gamma="scale").fit(rows[copies], y[copies]).kernel_losses_
    assert_allclose(list(repeated.values()), list(weighted.values()), rtol=1e-6)


# Samples ---------------------------------------------------------------------------------------------------


def many_rows(seed=0):
    """Four classes of very unequal sizes, the last of one row, with copies."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), [2000, 597, 2, 1])
    rows = random.normal(size=(2600, 3))
    rows[100:200] = rows[0:100]
    return TrainingRows(RBF(), rows, y, random.uniform(0.5, 2.0, 2600))


def test_a_sample_keeps_every_class_and_the_shares():
    data = many_rows()
    part = sample(data)
    n = part.class_index.size
    assert abs(n - LARGEST) <= 12
    counts = np.bincount(part.class_index)
    assert_array_equal(counts[2:], [2, 1])
    assert_allclose(counts[1] / counts[0], 597 / 1900, rtol=0.02)
    assert np.unique(part.X, axis=0).shape[0] == n
    # Every row is there with its class, and copies have the weight of all.
    for row, index, weight in zip(part.X, part.class_index, part.weights, strict=True):
        same = (row == data.X).all(axis=1) & (data.class_index == index)
        assert_allclose(weight, data.weights[same].sum())
    order = np.random.default_rng(1).permutation(2600)
    shuffled = sample(TrainingRows(RBF(), data.X[order], data.class_index[order], data.weights[order]))
    assert_array_equal(shuffled.X, part.X)
    assert_allclose(shuffled.weights, part.weights)


def test_few_rows_are_all_taken():
    data = TrainingRows(RBF(), X, Y, np.ones(60))
    assert sample(data) is data


def test_a_sample_of_soft_labels_keeps_a_class_that_no_row_favours():
    random = np.random.default_rng(2)
    rows, first = random.normal(size=(1500, 2)), random.uniform(size=1500).round()
    for doubtful in range(0, 1500, 150):
        P = np.column_stack([first, 1 - first, np.zeros(1500)])
        P[doubtful] = [0.5, 0.1, 0.4]
        data = TrainingRows(RBF(), rows, P.argmax(axis=1), np.ones(1500), P)
        assert sample(data).soft_labels.any(axis=0).all(), doubtful


# Labels without a rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_is_not_learned(n_classes):
    for seed in range(4):
        random = np.random.default_rng(seed)
        rows, y = random.normal(size=(200, 3)), random.integers(0, n_classes, 200)
        model = LSSVMClassifier().fit(rows, y)
        assert min(model.kernel_losses_.values()) > 0.85 * np.log(n_classes)


# Processes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [products, steps], ids=["judged there", "judged here"])
def test_kernels_are_judged_by_processes_with_the_same_result(monkeypatch, problem):
    rows, labels = problem(0)
    alone = LSSVMClassifier().fit(rows, labels)
    assert alone.kernel_.name == TRIED[problem is products]
    worker, answer = _workers._awake()
    answer.result(60)
    _workers._idle.append(worker)
    given = []
    submit = _workers._Worker.submit
    monkeypatch.setattr(_workers._Worker, "submit", lambda *told: given.append(told[1]) or submit(*told))
    shared = LSSVMClassifier(n_jobs=2)
    for _ in range(2):  # what was learned before does not matter
        given.clear()
        shared.fit(rows, labels)
        assert _workers._work in given
        assert shared.kernel_losses_ == alone.kernel_losses_
        assert_array_equal(shared.predict_log_proba(rows), alone.predict_log_proba(rows))
        assert_array_equal(shared.dual_coef_, alone.dual_coef_)


def test_what_travels_to_another_process_has_learned_nothing():
    model = LSSVMClassifier().fit(X, Y)
    codebook, decoder = model.codebook_, model._resolved_decoder()
    training = pickle.loads(pickle.dumps(_CoarseTraining(model, codebook, decoder, lambda step: None)))
    assert not hasattr(training.estimator, "bank_")
    assert training.progress is None
    assert training.estimator.get_params() == model.get_params()
