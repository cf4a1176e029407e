"""Which kernel and which C the least-squares classifier takes when none is named."""

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from conftest import blobs
from polymargin import AutoKernelClassifier, CoupledSoftmax, LSSVMClassifier
from polymargin.datasets import generators
from polymargin.kernels import RBF, Blend, Laplacian, Linear, Polynomial
from polymargin.machines import fit_lssvm_bank
from polymargin.selection.settings import SearchSettings

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
    assert_allclose(chosen.C_, named.C_, rtol=1e-12)
    assert_allclose(chosen.gamma_, named.gamma_, rtol=1e-12)
    assert chosen.shrinkage_ == named.shrinkage_
    assert_allclose(chosen.predict_proba(rows), named.predict_proba(rows), atol=1e-9)


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
    assert LSSVMClassifier(degree=4, coef0=2.0)._kernels[1] == Polynomial(4, 2.0, centred=True)


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
    assert_allclose(model.kernel_losses_[best], errors.mean(), rtol=1e-9)
    assert model.shrinkage_ == 1.0


@pytest.mark.parametrize("n", [60, 1300])
def test_the_order_of_the_rows_does_not_change_the_choice(n):
    rows, y = blobs(n=n, K=3, seed=3, shift=1.2)
    results = LSSVMClassifier(C=1.0, gamma="scale").fit(rows, y).search_results_
    order = np.random.default_rng(0).permutation(n)
    shuffled = LSSVMClassifier(C=1.0, gamma="scale").fit(rows[order], y[order]).search_results_
    assert_allclose(shuffled["loss"], results["loss"], rtol=1e-6)
    assert shuffled["chosen"] == results["chosen"]
    (n_rows,) = set(results["n_rows"])
    assert n_rows == 60 if n == 60 else 800 <= n_rows < 1300


def test_copies_in_groups_do_not_change_the_choice():
    """Three copies of every row weigh three times as much: C is a third."""
    each = np.repeat(np.arange(60), 3)
    alone = LSSVMClassifier(C=3.0, gamma="scale").fit(X, Y)
    copied = LSSVMClassifier(C=1.0, gamma="scale").fit(X[each], Y[each], groups=each)
    assert_allclose(copied.search_results_["loss"], alone.search_results_["loss"], rtol=1e-5)
    assert_allclose(copied.loo_margins_, alone.loo_margins_[each[copied.support_]], atol=1e-6)


# What was tried --------------------------------------------------------------------------------------------


def test_the_table_says_what_was_tried_and_what_was_chosen():
    model = LSSVMClassifier().fit(X, Y)
    table = model.search_results_
    assert len({len(column) for column in table.values()}) == 1
    assert table["kernel"][0] == "blend"
    assert sum(table["chosen"]) == 1
    place = table["chosen"].index(True)
    assert table["kernel"][place] == model.kernel_.name
    assert table["smaller_C"][place] == model.shrinkage_
    assert_allclose([table["C"][place], table["gamma"][place]], [model.C_[0], model.gamma_[0]])
    for name, loss in model.kernel_losses_.items():
        assert loss == min(
            each for each, kernel in zip(table["loss"], table["kernel"], strict=True) if kernel == name
        )
    # Smaller C of one kernel are the first divided by what the settings say.
    for name in TRIED:
        own = [number for number, kernel in enumerate(table["kernel"]) if kernel == name]
        divisors = [table["smaller_C"][number] for number in own]
        assert divisors == list(SearchSettings().smaller)[: len(own)]
        assert_allclose([table["C"][own[0]] / table["C"][number] for number in own], divisors)


def test_candidates_are_judged_by_the_cross_fitted_log_loss():
    """With C and gamma named one by one, the decoder's own cross-fit on the same outputs gives the table's losses."""
    table = LSSVMClassifier(kernel="rbf").fit(X, Y).search_results_
    assert len(table["loss"]) > 1
    for C, gamma, loss in zip(table["C"], table["gamma"], table["loss"], strict=True):
        model = LSSVMClassifier(kernel="rbf", C=C, gamma=gamma).fit(X, Y)
        outputs = model.bank_.training_outputs(honest=True)
        assert outputs.nested is None
        log_p = CoupledSoftmax().cross_fit(model.codebook_, outputs, Y)
        assert_allclose(-log_p[np.arange(60), Y].mean(), loss, rtol=1e-6)


def test_the_log_loss_is_stated_on_nested_outputs():
    """Machines and decoder have not seen the fold that they are judged by."""
    model = LSSVMClassifier(kernel="rbf").fit(X, Y)
    bank = fit_lssvm_bank(
        model.bank_.data,
        model.codebook_,
        C=model.C_[0],
        gamma=model.gamma_[0],
        n_folds=SearchSettings().folds,
    )
    outputs = bank.training_outputs(honest=True)
    assert outputs.nested is not None
    log_p = CoupledSoftmax().cross_fit(model.codebook_, outputs, Y)
    assert_allclose(model.loo_log_loss_, -log_p[np.arange(60), Y].mean(), rtol=1e-6)


def noisy(n=300, seed=0):
    return generators()["waveform"].sample(n, random_state=seed)


def log_loss(model, X, y):
    return -model.predict_log_proba(X)[np.arange(y.size), y].mean()


def test_noise_calls_for_a_smaller_C_and_it_pays():
    gains, divisors = [], []
    for seed in range(3):
        rows, y = noisy(seed=seed)
        model = LSSVMClassifier(kernel="rbf").fit(rows, y)
        first = LSSVMClassifier(kernel="rbf", search=SearchSettings(smaller=(1.0,))).fit(rows, y)
        assert_allclose(first.C_, model.C_ * model.shrinkage_, rtol=1e-9)
        new = generators()["waveform"].sample(4000, random_state=100 + seed)
        divisors.append(model.shrinkage_)
        gains.append(log_loss(first, *new) - log_loss(model, *new))
    assert max(divisors) > 1.0
    assert np.mean(gains) > 0.0


def test_a_smaller_C_must_be_better_by_a_standard_error():
    table = LSSVMClassifier(kernel="rbf").fit(*noisy()).search_results_
    losses = np.array(table["loss"])
    taken = table["chosen"].index(True)
    assert (np.diff(losses[: taken + 1]) < 0.0).all()
    if taken + 1 < losses.size:  # the path ends where it does not gain enough
        assert taken + 2 == losses.size


def test_clear_classes_keep_their_C():
    rows, y = load_wine(return_X_y=True)
    assert LSSVMClassifier().fit(StandardScaler().fit_transform(rows), y).shrinkage_ == 1.0


@pytest.mark.parametrize(
    "parameters", [{"C": 1.0}, {"selection": "evidence"}, {"selection": "gcv"}, {"decoding": "bayes"}]
)
def test_only_what_leave_one_out_selected_has_a_path_of_smaller_C(parameters):
    model = LSSVMClassifier(kernel="rbf", **parameters).fit(*noisy(150))
    assert model.shrinkage_ == 1.0
    assert model.search_results_ is None
    assert model.kernel_losses_ is None


def test_many_rows_are_decided_on_a_sample():
    rows, y = noisy(500)
    settings = SearchSettings(operations=1.0, relative=0.0, decided_rows=200)
    model = LSSVMClassifier(kernel="rbf", search=settings).fit(rows, y)
    (n_rows,) = set(model.search_results_["n_rows"])
    assert 200 <= n_rows <= 203
    assert model.loo_margins_.shape[0] == 500
    # What is stated is of all rows, by a decoder that has not learned from them.
    assert model.loo_log_proba_.shape == (500, 3)
    assert abs(model.loo_log_loss_ - log_loss(model, *noisy(4000, seed=9))) < 0.1


@pytest.mark.parametrize("n", [120, 300])
def test_overlapping_classes_are_not_told_by_leave_one_out_outputs(n):
    """Six classes along one feature: many machines, little to learn, and the labels of neighbours all around."""
    stated, true, best = [], [], []
    for seed in range(3):
        random = np.random.default_rng(seed)
        y, y_new = random.integers(0, 6, n), random.integers(0, 6, 3000)
        X, X_new = (random.normal(size=(index.size, 1)) + 0.35 * index[:, np.newaxis] for index in (y, y_new))
        logits = -0.5 * (X_new - 0.35 * np.arange(6)) ** 2
        truth = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        for model in (LSSVMClassifier(), AutoKernelClassifier()):
            model.fit(X, y)
            stated.append(model.loo_log_loss_)
            true.append(log_loss(model, X_new, y_new))
            best.append(-truth[np.arange(3000), y_new].mean())
    assert np.mean(true) < np.mean(best) + 0.08
    assert abs(np.mean(stated) - np.mean(true)) < 0.06


# Labels without a rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_noise_is_not_learned(n_classes):
    for seed in range(4):
        random = np.random.default_rng(seed)
        rows, y = random.normal(size=(200, 3)), random.integers(0, n_classes, 200)
        model = LSSVMClassifier().fit(rows, y)
        assert min(model.kernel_losses_.values()) > 0.85 * np.log(n_classes)


@pytest.mark.parametrize("make", [LSSVMClassifier, AutoKernelClassifier])
def test_jobs_do_not_change_anything(make):
    rows, y = noisy(200)
    expected = make().fit(rows, y).predict_proba(rows[:50])
    assert_array_equal(make(n_jobs=2).fit(rows, y).predict_proba(rows[:50]), expected)
    for backend in ("threading", "loky"):
        with parallel_config(backend=backend):
            assert_array_equal(make(n_jobs=2).fit(rows, y).predict_proba(rows[:50]), expected)


@pytest.mark.parametrize("make", [LSSVMClassifier, AutoKernelClassifier])
def test_a_dask_cluster_does_not_change_anything(make):
    distributed = pytest.importorskip("distributed")
    rows, y = noisy(200)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        parallel_config(backend="dask"),
    ):
        found = make(n_jobs=2).fit(rows, y).predict_proba(rows[:50])
    assert_array_equal(found, make().fit(rows, y).predict_proba(rows[:50]))
