"""Decoders that learn: scaled argmax, mixture and stack (Mayoraz and Alpaydın 1998, §§3–6)."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from polymargin import LSSVMClassifier
from polymargin.codebooks import Codebook, ecoc, one_vs_all, one_vs_one
from polymargin.decoders import Argmax, Mixture, Stack, resolve_decoder
from polymargin.outputs import Outputs
from polymargin.selection.settings import SearchSettings

SCALES = ["mean", "least-squares"]


def blobs(n_classes=4, n_rows=120, seed=0, spread=1.2):
    """Return overlapping Gaussian classes of unequal sizes in two dimensions."""
    random = np.random.default_rng(seed)
    y = np.sort(random.integers(0, n_classes, n_rows))
    y[:n_classes] = np.arange(n_classes)
    centres = 3.0 * np.stack([np.cos(np.arange(n_classes)), np.sin(np.arange(n_classes))], axis=1)
    return centres[y] + spread * random.normal(size=(n_rows, 2)), y


def outputs_of(codebook, class_index, seed=0, noise=0.5, norms=None):
    """Return outputs that agree with the codebook, each machine in a range of its own."""
    random = np.random.default_rng(seed)
    ranges = np.exp(random.normal(size=codebook.n_columns))
    signal = codebook.targets(class_index) + noise * random.normal(
        size=(class_index.size, codebook.n_columns)
    )
    return Outputs(ranges * signal, "leave_one_out", norms=norms)


@pytest.fixture(scope="module")
def problem():
    index = np.random.default_rng(1).integers(0, 4, 80)
    index[:4] = np.arange(4)
    weights = np.random.default_rng(2).uniform(0.2, 3.0, 80)
    return one_vs_all(4), outputs_of(one_vs_all(4), index), index, weights


# --- Argmax -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_least_squares_scale_minimises_eq_5(problem, weighted):
    book, outputs, index, weights = problem
    given = weights if weighted else None
    scale = Argmax("least-squares").fit(book, outputs, index, sample_weight=given).scale_
    weights = weights if weighted else np.ones(index.size)
    for column in range(4):
        y, g = np.where(index == column, 1.0, -1.0), outputs.margins[:, column]
        best = minimize_scalar(lambda pi, y=y, g=g: weights @ (pi * g - y) ** 2)
        assert scale[column] == pytest.approx(best.x, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_scale_makes_the_mean_of_yg_one(problem, weighted):
    book, outputs, index, weights = problem
    given = weights if weighted else None
    decoder = Argmax("mean").fit(book, outputs, index, sample_weight=given)
    scaled = decoder.scores(outputs)
    y = np.where(index[:, np.newaxis] == np.arange(4), 1.0, -1.0)
    np.testing.assert_allclose(np.average(y * scaled, axis=0, weights=given), 1.0)


def test_norm_scale_is_the_distance_to_the_hyperplane():
    X, y = blobs(3)
    model = LSSVMClassifier(C=1.0, kernel="linear", coding="one-vs-all", decoding=Argmax("norm")).fit(X, y)
    weight_vectors = model.dual_coef_ @ X
    distances = (X @ weight_vectors.T + model.intercept_) / np.linalg.norm(weight_vectors, axis=1)
    np.testing.assert_allclose(model.decision_function(X), distances, rtol=1e-8, atol=1e-10)


def test_norm_scale_in_feature_space():
    X, y = blobs(3)
    model = LSSVMClassifier(C=1.0, gamma=0.5, coding="one-vs-all", decoding=Argmax("norm")).fit(X, y)
    K = np.exp(-0.5 * np.square(X[:, np.newaxis] - X).sum(axis=2))
    norms = np.sqrt(np.einsum("li,ij,lj->l", model.dual_coef_, K, model.dual_coef_))  # eq. (4)
    np.testing.assert_allclose(model.decision_function(X), model.margins(X) / norms, rtol=1e-7, atol=1e-10)


def test_scale_undoes_the_ranges_of_the_machines(problem):
    book, outputs, index, _ = problem
    ranges = np.array([0.01, 1.0, 7.0, 300.0])
    stretched = Outputs(outputs.margins * ranges, "leave_one_out", norms=ranges)
    for decoder in (Argmax("mean"), Argmax("least-squares"), Argmax("norm"), Mixture()):
        plain = clone(decoder).fit(book, Outputs(outputs.margins, "leave_one_out", norms=np.ones(4)), index)
        other = clone(decoder).fit(book, stretched, index)
        np.testing.assert_allclose(
            other.scores(stretched),
            plain.scores(Outputs(outputs.margins, "new", norms=np.ones(4))),
            rtol=1e-7,
        )


def test_argmax_learns_only_where_it_must():
    assert [Argmax(scale).learns for scale in (None, "norm", *SCALES)] == [False, False, True, True]
    with pytest.raises(ValueError, match="unknown scale 'median'"):
        Argmax("median").fit(one_vs_all(3), None, np.arange(3))
    decoder = Argmax("norm").fit(one_vs_all(3), None, np.arange(3))
    with pytest.raises(ValueError, match="norms of their weights"):
        decoder.scores(Outputs(np.eye(3), "new"))


def test_argmax_finds_the_columns_of_its_own():
    matrix = np.array([[1, -1, 1, -1], [1, 1, -1, -1], [-1, -1, -1, 1]])  # the first column is nobody's own
    margins = np.array([[9.0, -1.0, 2.0, 0.0]])
    scores = Argmax().fit(Codebook(matrix), None, np.arange(3)).scores(Outputs(margins, "new"))
    np.testing.assert_array_equal(scores, [[2.0, -1.0, 0.0]])
    for book in (one_vs_one(3), Codebook([[1, 0, -1], [-1, 1, 0], [0, -1, 1]])):
        with pytest.raises(ValueError, match="one-vs-all"):
            Argmax().check(book)


@pytest.mark.parametrize("scale", SCALES)
def test_a_useless_machine_keeps_its_scale(scale):
    index = np.array([0, 1, 2, 0, 1, 2])
    margins = np.where(index[:, np.newaxis] == np.arange(3), 2.0, -2.0)
    margins[:, 1] *= -1.0  # worse than chance
    margins[:, 2] = 0.0  # silent
    decoder = Argmax(scale).fit(one_vs_all(3), Outputs(margins, "leave_one_out"), index)
    np.testing.assert_allclose(decoder.scale_, [0.5, 1.0, 1.0])


@pytest.mark.parametrize("scale", [None, "norm", *SCALES])
def test_two_classes_have_one_machine_and_no_need_of_scales(scale):
    X, y = blobs(2)
    plain = LSSVMClassifier(coding="one-vs-all", decoding="hamming").fit(X, y)
    scaled = LSSVMClassifier(coding="one-vs-all", decoding=Argmax(scale)).fit(X, y)
    np.testing.assert_array_equal(scaled.predict(X), plain.predict(X))


# --- Mixture ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("coding", [one_vs_all, one_vs_one])
def test_mixture_minimises_eq_7(coding, weighted):
    book = coding(3)
    index = np.random.default_rng(3).integers(0, 3, 50)
    outputs = outputs_of(book, index)
    weights = np.random.default_rng(4).uniform(0.1, 2.0, 50) if weighted else np.ones(50)
    y = np.where(index[:, np.newaxis] == np.arange(3), 1.0, -1.0)

    def error(flat):
        return weights @ np.square(outputs.margins @ flat.reshape(3, -1).T - y).sum(axis=1)

    best = minimize(error, np.zeros(3 * book.n_columns), method="BFGS", options={"gtol": 1e-9})
    decoder = Mixture().fit(book, outputs, index, sample_weight=weights if weighted else None)
    np.testing.assert_allclose(decoder.matrix_, best.x.reshape(3, -1), atol=1e-5)
    np.testing.assert_array_equal(decoder.scores(outputs), outputs.margins @ decoder.matrix_.T)


def test_mixture_of_dependent_outputs_has_the_least_norm(problem):
    book, outputs, index, _ = problem
    doubled = Codebook(np.hstack([book.matrix, book.matrix]))
    twice = Outputs(np.hstack([outputs.margins, outputs.margins]), "leave_one_out")
    decoder = Mixture().fit(doubled, twice, index)
    single = Mixture().fit(book, outputs, index)
    np.testing.assert_allclose(decoder.matrix_, np.hstack([single.matrix_] * 2) / 2, atol=1e-10)
    silent = Mixture().fit(book, Outputs(np.zeros((index.size, 4)), "leave_one_out"), index)
    assert not silent.matrix_.any()


def test_mixture_sees_through_a_turned_output(problem):
    book, outputs, index, _ = problem
    turned = Outputs(outputs.margins * np.array([1.0, -1.0, 1.0, -1.0]), "leave_one_out")
    labels = [Mixture().fit(book, o, index).scores(o).argmax(axis=1) for o in (outputs, turned)]
    np.testing.assert_array_equal(*labels)


# --- invariances ------------------------------------------------------------------------------------------------

LEARNED = [Argmax("mean"), Argmax("least-squares"), Mixture()]


@pytest.mark.parametrize("decoder", LEARNED, ids=repr)
def test_the_order_of_rows_does_not_matter(problem, decoder):
    book, outputs, index, weights = problem
    order = np.random.default_rng(5).permutation(index.size)
    shuffled = Outputs(outputs.margins[order], "leave_one_out")
    one = clone(decoder).fit(book, outputs, index, sample_weight=weights)
    other = clone(decoder).fit(book, shuffled, index[order], sample_weight=weights[order])
    np.testing.assert_allclose(other.scores(outputs), one.scores(outputs), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decoder", LEARNED, ids=repr)
def test_the_names_of_classes_do_not_matter(problem, decoder):
    book, outputs, index, weights = problem
    names = np.array([2, 0, 3, 1])  # class k becomes names[k], and so does its machine
    renamed = Outputs(outputs.margins[:, np.argsort(names)], "leave_one_out")
    one = clone(decoder).fit(book, outputs, index, sample_weight=weights)
    other = clone(decoder).fit(book, renamed, names[index], sample_weight=weights)
    np.testing.assert_allclose(other.scores(renamed)[:, names], one.scores(outputs), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decoder", [*LEARNED, Stack(LogisticRegression()), Stack()], ids=repr)
def test_a_weight_of_two_is_the_row_twice(problem, decoder):
    book, outputs, index, _ = problem
    weights = np.random.default_rng(6).integers(1, 4, index.size)
    repeated = Outputs(np.repeat(outputs.margins, weights, axis=0), "leave_one_out")
    one = clone(decoder).fit(book, outputs, index, sample_weight=weights.astype(float))
    other = clone(decoder).fit(book, repeated, np.repeat(index, weights))
    np.testing.assert_allclose(other.scores(outputs), one.scores(outputs), rtol=1e-3, atol=1e-3)


# --- Stack ------------------------------------------------------------------------------------------------------


def test_stack_is_the_classifier_on_leave_one_out_margins():
    X, y = blobs(4)
    labels = np.array(["d", "a", "c", "b"])[y]
    model = LSSVMClassifier(coding="one-vs-one", decoding=Stack(LogisticRegression())).fit(X, labels)
    by_hand = LogisticRegression().fit(model.bank_.honest_margins, labels)
    np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(model.margins(X)), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), by_hand.predict(model.margins(X)))


def test_stack_on_distances():
    X, y = blobs(3)
    model = LSSVMClassifier(coding="ecoc", decoding=Stack(LogisticRegression(), scale="norm"), random_state=0)
    model.fit(X, y)
    norms = model.bank_.norms
    by_hand = LogisticRegression().fit(model.bank_.honest_margins / norms, y)
    np.testing.assert_allclose(
        model.predict_proba(X), by_hand.predict_proba(model.margins(X) / norms), rtol=1e-9
    )
    with pytest.raises(ValueError, match="unknown scale"):
        LSSVMClassifier(decoding=Stack(scale="mean")).fit(X, y)


class Oracle(ClassifierMixin, BaseEstimator):
    """A classifier with nothing but predictions."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[np.abs(X).astype(int).sum(axis=1) % self.classes_.size]


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize(
    "estimator",
    [
        None,
        LinearSVC(),
        SVC(),
        SVC(decision_function_shape="ovo"),
        make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
        RidgeClassifier(),
        Perceptron(),
        Oracle(),
        OneVsRestClassifier(SVC(kernel="poly", degree=2)),
    ],
    ids=repr,
)
def test_stack_without_probabilities_gives_the_classifiers_labels(estimator, n_classes):
    X, y = blobs(n_classes)
    model = LSSVMClassifier(C=1.0, gamma=0.5, coding="one-vs-one", decoding=Stack(estimator)).fit(X, y)
    assert not hasattr(model, "predict_proba")
    stacked = model.decoder_.estimator_
    agree = model.predict(X) == stacked.predict(model.margins(X))
    # SVC votes among pairs, and breaks ties otherwise than its decision function.
    assert agree.all() or (isinstance(stacked, SVC) and agree.mean() > 0.97)
    decision = model.decision_function(X)
    assert decision.shape == ((X.shape[0],) if n_classes == 2 else (X.shape[0], n_classes))
    if n_classes == 2 and hasattr(stacked, "decision_function"):
        np.testing.assert_array_equal(decision > 0, model.predict(X) == 1)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        LinearDiscriminantAnalysis(),
        KNeighborsClassifier(3),  # with exact zeros and many ties
        DecisionTreeClassifier(random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=repr,
)
def test_label_and_probability_agree(estimator, n_classes):
    X, y = blobs(n_classes)
    model = LSSVMClassifier(C=1.0, gamma=0.5, decoding=Stack(estimator)).fit(X, y)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])
    np.testing.assert_allclose(model.decoder_.estimator_.predict_proba(model.margins(X)), proba, atol=1e-12)
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_stack_is_probabilistic_as_its_classifier_is():
    assert Stack(LogisticRegression()).probabilistic
    assert resolve_decoder(Stack(LogisticRegression())).probabilistic
    assert not Stack().probabilistic
    assert not Stack(LinearSVC()).probabilistic
    assert hasattr(LSSVMClassifier(decoding=Stack(LogisticRegression())), "predict_proba")
    assert not hasattr(LSSVMClassifier(decoding=Stack(LinearSVC())), "predict_proba")


@pytest.mark.parametrize("seen", [[0, 3], [1, 2, 3], [0, 1, 2]])
@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearSVC(), Oracle()], ids=repr)
def test_a_class_the_classifier_never_saw_is_never_chosen(problem, estimator, seen):
    book, outputs, index, _ = problem
    rows = np.isin(index, seen)
    decoder = Stack(estimator).fit(book, Outputs(outputs.margins[rows], "leave_one_out"), index[rows])
    scores = decoder.scores(outputs)
    assert scores.shape == (index.size, 4)
    assert np.isfinite(scores).all()
    assert np.isin(scores.argmax(axis=1), seen).all()


def test_stack_passes_weights_on_or_refuses_them(problem):
    book, outputs, index, weights = problem
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    decoder = Stack(pipeline).fit(book, outputs, index, sample_weight=weights)
    by_hand = clone(pipeline).fit(outputs.margins, index, logisticregression__sample_weight=weights)
    np.testing.assert_allclose(
        np.exp(decoder.scores(outputs)), by_hand.predict_proba(outputs.margins), rtol=1e-12
    )
    with pytest.raises(ValueError, match="takes no sample weights"):
        Stack(KNeighborsClassifier()).fit(book, outputs, index, sample_weight=weights)
    Stack(KNeighborsClassifier()).fit(book, outputs, index, sample_weight=np.ones(index.size))


# --- in an estimator --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decoder", "honest"),
    [
        (Argmax("mean"), True),
        (Argmax("mean", in_sample=True), False),
        (Argmax("least-squares"), True),
        (Argmax("least-squares", in_sample=True), False),
        (Mixture(), True),
        (Mixture(in_sample=True), False),
        (Stack(LogisticRegression()), True),
        (Stack(LogisticRegression(), in_sample=True), False),
    ],
    ids=repr,
)
def test_what_is_learned_from(monkeypatch, decoder, honest):
    seen = []
    fit = type(decoder).fit
    monkeypatch.setattr(
        type(decoder),
        "fit",
        lambda self, book, outputs, *a, **k: (
            seen.append((self, outputs)) or fit(self, book, outputs, *a, **k)
        ),
    )
    X, y = blobs(3)
    model = LSSVMClassifier(C=1.0, gamma=0.5, coding="one-vs-all", decoding=decoder).fit(X, y)
    (outputs,) = [outputs for fitted, outputs in seen if fitted is model.decoder_]
    assert outputs.provenance == ("leave_one_out" if honest else "in_sample")
    np.testing.assert_allclose(outputs.margins, model.bank_.honest_margins if honest else model.margins(X))
    # Other decoders are fitted only to cross-fit probabilities, each on honest outputs of the rows outside a fold.
    others = [outputs for fitted, outputs in seen if fitted is not model.decoder_]
    cross_fits = decoder.probabilistic
    assert len(others) == (SearchSettings().folds if cross_fits else 0)
    assert {outputs.provenance for outputs in others} <= {"leave_one_out"}
    assert sum(y.size - outputs.margins.shape[0] for outputs in others) == (y.size if cross_fits else 0)


def test_nothing_is_computed_for_a_decoder_that_does_not_learn(monkeypatch):
    X, y = blobs(3)
    monkeypatch.setattr(LSSVMClassifier, "_training_outputs", lambda self, **_: pytest.fail("not needed"))
    LSSVMClassifier(coding="one-vs-all", decoding=Argmax("norm")).fit(X, y)


SETTINGS = {"C": 1.0, "gamma": "scale"}
CHECKED = {
    "mixture": LSSVMClassifier(**SETTINGS, decoding="mixture"),
    "argmax norm": LSSVMClassifier(**SETTINGS, coding="one-vs-all", decoding=Argmax("norm")),
    "argmax mean": LSSVMClassifier(**SETTINGS, coding="one-vs-all", decoding=Argmax("mean")),
    "argmax least-squares": LSSVMClassifier(
        **SETTINGS, coding="one-vs-all", decoding=Argmax("least-squares")
    ),
    "stack": LSSVMClassifier(**SETTINGS, decoding=Stack()),
    "probabilistic stack": LSSVMClassifier(**SETTINGS, decoding=Stack(LogisticRegression())),
}


@pytest.mark.parametrize("name", CHECKED)
def test_scikit_learn_accepts_it(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(clone(CHECKED[name]), on_skip=None)


@pytest.mark.parametrize(
    "decoder", [*LEARNED, Argmax("norm"), Stack(), Stack(LogisticRegression())], ids=repr
)
def test_clone_and_pickle(decoder):
    X, y = blobs(3)
    model = LSSVMClassifier(coding="one-vs-all", decoding=decoder).fit(X, y, np.linspace(0.5, 2.0, y.size))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    other = clone(model).fit(X, y, np.linspace(0.5, 2.0, y.size))
    np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))


def test_parameters_of_the_stacked_classifier_can_be_searched():
    model = LSSVMClassifier(decoding=Stack(LogisticRegression()))
    model.set_params(decoding__estimator__C=0.1, decoding__in_sample=True)
    assert model.decoding.estimator.C == 0.1


def test_normalising_repairs_what_the_ranges_spoil():
    """§2: three classes of one shape; the machine with the widest margin has the smallest outputs."""
    book, random = one_vs_all(3), np.random.default_rng(0)
    index = np.repeat([0, 1, 2], 200)
    margins = book.targets(index) + 0.7 * random.normal(size=(600, 3))
    spoilt = Outputs(margins * [20.0, 20.0, 1.0], "leave_one_out", norms=np.array([20.0, 20.0, 1.0]))
    errors = {
        scale: (Argmax(scale).fit(book, spoilt, index).scores(spoilt).argmax(axis=1) != index).mean()
        for scale in (None, "norm", *SCALES)
    }
    errors["mixture"] = (Mixture().fit(book, spoilt, index).scores(spoilt).argmax(axis=1) != index).mean()
    plain = errors.pop(None)
    assert max(errors.values()) < 0.6 * plain


def test_ecoc_with_every_learned_decoder():
    X, y = blobs(5, 150)
    for decoder in (Mixture(), Stack(), Stack(LogisticRegression())):
        model = LSSVMClassifier(coding=ecoc(5, 0), decoding=decoder).fit(X, y)
        assert model.score(X, y) > 0.6
