"""Decoders against the loops of `naive`, ties and extremes included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, logsumexp

import naive
from conftest import blobs
from polymargin import Argmax, Bayes, Codebook, Dag, Hamming, Loss, LSSVMClassifier, Votes
from polymargin.codebooks import ecoc, minimal, one_vs_all, one_vs_one
from polymargin.decoders import DECODERS, Decoder, ProbabilisticDecoder, resolve_decoder
from polymargin.outputs import Outputs

BOOKS = {
    "one-vs-one": one_vs_one(4),
    "one-vs-all": one_vs_all(4),
    "minimal": minimal(4),
    "ecoc": ecoc(5),
    "two": one_vs_one(2),
    "mixed": Codebook([[-1, 0, 1, 1], [1, -1, 0, 1], [0, 1, -1, -1], [1, 1, 1, 0]]),
}
every_book = pytest.mark.parametrize("book", BOOKS.values(), ids=BOOKS)
DENSE = {name: book for name, book in BOOKS.items() if book.is_dense}
every_dense_book = pytest.mark.parametrize("book", DENSE.values(), ids=DENSE)


def random_outputs(book, n=40, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    shape = (n, book.n_columns)
    margins, variances = scale * rng.normal(size=shape), 0.1 + rng.random(shape)
    return Outputs(margins, "new", variances, 0.1 + rng.random(book.n_columns), np.ones(book.n_columns))


def tied_outputs(book, n=60, seed=0):
    """Margins from a handful of values, so that ties and exact zeros abound."""
    rng = np.random.default_rng(seed)
    return Outputs(rng.choice([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5], size=(n, book.n_columns)), "new")


def labels(decoder, book, outputs, **fit):
    decoder.fit(book, None, np.arange(book.n_classes), **fit)
    scores = decoder.scores(outputs)
    assert scores.shape == (len(outputs.margins), book.n_classes)
    return scores.argmax(axis=1)


# Labels ----------------------------------------------------------------------------------------------------


@every_book
@pytest.mark.parametrize("draw", [random_outputs, tied_outputs])
def test_hamming(book, draw):
    outputs = draw(book)
    assert_array_equal(labels(Hamming(), book, outputs), naive.hamming_decode(book.matrix, outputs.margins))


@every_book
def test_hamming_scores_are_distances_up_to_the_tie_break(book):
    outputs = random_outputs(book)
    decoder = Hamming().fit(book, None, np.arange(book.n_classes))
    bits = np.sign(outputs.margins)[:, np.newaxis, :]
    distances = ((1 - book.matrix * bits) / 2).sum(axis=2)
    assert np.abs(decoder.scores(outputs) + distances).max() < 0.25


@every_book
@pytest.mark.parametrize("loss", ["squared", "hinge", "logistic", "exponential"])
@pytest.mark.parametrize("draw", [random_outputs, tied_outputs])
def test_loss(book, loss, draw):
    outputs = draw(book)
    expected, totals = naive.loss_decode(book.matrix, outputs.margins, loss)
    decoder = Loss(loss)
    found = labels(decoder, book, outputs)
    assert_allclose(-decoder.scores(outputs), totals, rtol=1e-12, atol=1e-12)
    clear = np.ptp(np.sort(totals, axis=1)[:, :2], axis=1) > 1e-9
    assert_array_equal(found[clear], expected[clear])


@pytest.mark.parametrize("K", [2, 3, 6])
@pytest.mark.parametrize("draw", [random_outputs, tied_outputs])
def test_votes_and_dag(K, draw):
    book = one_vs_one(K)
    outputs = draw(book, n=120)
    assert_array_equal(labels(Votes(), book, outputs), naive.votes_decode(book.matrix, outputs.margins))
    assert_array_equal(labels(Dag(), book, outputs), naive.dag_decode(book.matrix, outputs.margins))
    # The columns may come in any order and with any sign.
    shuffled = np.random.default_rng(1).permutation(book.n_columns)
    signs = np.random.default_rng(2).choice([-1, 1], book.n_columns)
    other = Codebook((book.matrix * signs)[:, shuffled])
    turned = Outputs((outputs.margins * signs)[:, shuffled], "new")
    assert_array_equal(labels(Votes(), other, turned), naive.votes_decode(other.matrix, turned.margins))
    assert_array_equal(labels(Dag(), other, turned), naive.dag_decode(other.matrix, turned.margins))


def test_dag_scores_are_the_rounds():
    book = one_vs_one(4)
    decoder = Dag().fit(book, None, np.arange(4))
    scores = decoder.scores(random_outputs(book))
    assert_array_equal(np.sort(scores, axis=1), np.tile(np.arange(4), (40, 1)))


def test_argmax():
    book = one_vs_all(4)
    outputs = random_outputs(book)
    assert_array_equal(labels(Argmax(scale=None), book, outputs), outputs.margins.argmax(axis=1))
    shuffled = Codebook(book.matrix[:, [2, 0, 3, 1]])
    turned = Outputs(outputs.margins[:, [2, 0, 3, 1]], "new")
    assert_array_equal(labels(Argmax(scale=None), shuffled, turned), outputs.margins.argmax(axis=1))
    two = random_outputs(one_vs_all(2))
    assert_array_equal(labels(Argmax(scale=None), one_vs_all(2), two), (two.margins[:, 0] > 0).astype(int))


def test_one_vs_all_ties_go_to_the_largest_output():
    """Van Gestel et al. 2002 §5: two machines say yes, or none does."""
    book = one_vs_all(3)
    margins = np.array([[0.2, 0.9, -1.0], [-0.5, -0.1, -0.3]])
    assert_array_equal(labels(Hamming(), book, Outputs(margins, "new")), [1, 1])


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-200, 1e200])
def test_ties_are_broken_at_any_scale(size):
    book = one_vs_all(3)
    margins = size * np.array([[1.0, 3.0, -2.0], [-3.0, -1.0, -2.0]])
    with np.errstate(all="raise", under="ignore"):
        scores = Hamming().fit(book, None, np.arange(3)).scores(Outputs(margins, "new"))
    assert np.isfinite(scores).all()
    assert_array_equal(scores.argmax(axis=1), [1, 1])


# Bayes -----------------------------------------------------------------------------------------------------


def posterior(book, outputs, priors=None, **parameters):
    decoder = Bayes(noise="model", **parameters).fit(book, None, np.arange(book.n_classes), priors=priors)
    log_proba = decoder.log_proba(outputs)
    assert_allclose(np.exp(log_proba).sum(axis=1), 1.0, rtol=1e-12)
    assert_array_equal(decoder.scores(outputs), log_proba)
    return np.exp(log_proba)


def priors_of(book, seed=0):
    return np.random.default_rng(seed).dirichlet(3 * np.ones(book.n_classes))


@every_dense_book
@pytest.mark.parametrize("update", ["joint", "sequential"])
def test_bayes_without_dont_cares_is_equation_18(book, update):
    outputs = random_outputs(book)
    variance, priors = outputs.noise + outputs.variances, priors_of(book)
    expected = naive.bayes_enumerate(book.matrix, outputs.margins, variance, priors)
    assert_allclose(posterior(book, outputs, priors, update=update), expected, atol=1e-12)
    log_expected = naive.bayes_enumerate_log(book.matrix, outputs.margins, variance, priors)
    assert_allclose(np.log(posterior(book, outputs, priors, update=update)), log_expected, atol=1e-9)


@every_book
def test_bayes_joint(book):
    outputs, priors = random_outputs(book), priors_of(book)
    expected = naive.bayes_joint(book.matrix, outputs.margins, outputs.noise + outputs.variances, priors)
    assert_allclose(posterior(book, outputs, priors), expected, atol=1e-12)
    order = np.random.default_rng(1).permutation(book.n_columns)
    shuffled = Outputs(outputs.margins[:, order], "new", outputs.variances[:, order], outputs.noise[order])
    assert_allclose(posterior(Codebook(book.matrix[:, order]), shuffled, priors), expected, atol=1e-12)


@every_book
def test_bayes_sequential(book):
    outputs, priors = random_outputs(book), priors_of(book)
    variance = outputs.noise + outputs.variances
    expected = naive.bayes_sequential(book.matrix, outputs.margins, variance, priors)
    assert_allclose(posterior(book, outputs, priors, update="sequential"), expected, atol=1e-12)


def test_misprint_in_equation_20():
    """Seed 000 eq. (20) as printed divides by a sum but loses the joint mass: it gives no probabilities."""
    book = BOOKS["one-vs-one"]
    outputs, priors = random_outputs(book), priors_of(book)
    variance = outputs.noise + outputs.variances
    printed = naive.bayes_sequential(book.matrix, outputs.margins, variance, priors, keep_mass=False)
    assert (np.abs(printed.sum(axis=1) - 1.0) > 0.05).mean() > 0.9
    normalised = printed / printed.sum(axis=1, keepdims=True)
    ours = posterior(book, outputs, priors, update="sequential")
    assert np.abs(normalised - ours).max() > 0.2
    # Literal labels differ too: the class updated last is favoured, whatever it was before.
    assert (normalised.argmax(axis=1) != ours.argmax(axis=1)).any()


@every_book
def test_priors_are_equal_unless_given(book):
    outputs = random_outputs(book)
    equal = np.full(book.n_classes, 1.0 / book.n_classes)
    assert_array_equal(posterior(book, outputs), posterior(book, outputs, equal))


@every_dense_book
def test_priors_shift_the_log_odds(book):
    outputs, priors = random_outputs(book), priors_of(book)
    plain, shifted = np.log(posterior(book, outputs)), np.log(posterior(book, outputs, priors))
    expected = plain + np.log(priors)
    expected -= logsumexp(expected, axis=1, keepdims=True)
    assert_allclose(shifted, expected, atol=1e-9)


def test_the_noise_of_the_model_or_measured_honestly():
    book = BOOKS["one-vs-one"]
    class_index = np.random.default_rng(0).integers(0, 4, 40)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 40)
    seen, new = random_outputs(book, seed=1), random_outputs(book, seed=2)
    decoder = Bayes().fit(book, seen, class_index, sample_weight=weights)
    measured = []
    for column, bits in enumerate(book.matrix.T):
        rows = np.flatnonzero(bits[class_index])
        squares = (bits[class_index[rows]] - seen.margins[rows, column]) ** 2
        measured.append(np.average(squares, weights=weights[rows]))
    assert_allclose(decoder.noise_, measured)
    equal = np.full(4, 0.25)
    expected = naive.bayes_joint(book.matrix, new.margins, measured + new.variances, equal)
    assert_allclose(np.exp(decoder.log_proba(new)), expected, atol=1e-12)
    # The model's own is what the outputs bring.
    own = Bayes(noise="model").fit(book, seen, class_index)
    assert own.noise_ is None
    assert not own.learns
    expected = naive.bayes_joint(book.matrix, new.margins, new.noise + new.variances, equal)
    assert_allclose(np.exp(own.log_proba(new)), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_the_noise_in_the_estimator_is_the_leave_one_out_error(name):
    X, y = blobs(n=40, K=3)
    model = LSSVMClassifier(kernel=name, coding="one-vs-all", decoding="bayes").fit(X, y)
    residuals = model.codebook_.targets(y) - model.loo_margins_
    assert_allclose(model.decoder_.noise_, (residuals**2).mean(axis=0))


books = st.sampled_from(list(BOOKS.values()))
extreme = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1e6, -1e6, 1e-300, -1e-300, 5e-324, 1.0, -1.0])
)


@given(books, st.data(), st.sampled_from(["joint", "sequential"]))
@settings(max_examples=150, deadline=None)
def test_bayes_is_finite_and_sums_to_one_in_the_extreme(book, data, update):
    shape = (3, book.n_columns)
    margins = data.draw(arrays(float, shape, elements=extreme))
    variances = data.draw(arrays(float, shape, elements=st.sampled_from([1e-300, 1e-30, 1e-8, 1.0, 1e6])))
    outputs = Outputs(margins, "new", variances, np.full(book.n_columns, 1e-300))
    decoder = Bayes(update=update, noise="model").fit(book, None, np.arange(book.n_classes))
    log_proba = decoder.log_proba(outputs)
    assert np.isfinite(log_proba).all()
    assert_allclose(np.exp(log_proba).sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize("update", ["joint", "sequential"])
@pytest.mark.parametrize("sure", [1e3, 1e9, 1e18, 1e250])
def test_a_machine_that_is_very_sure_moves_no_mass_of_classes_it_does_not_know(sure, update):
    """One column for classes 0 and 1; classes 2 and 3 keep their half exactly, however large z/v is."""
    book = Codebook([[-1, 0, -1], [1, 0, -1], [0, -1, 1], [0, 1, 1]])
    priors = np.array([0.3, 0.2, 0.4, 0.1])
    outputs = Outputs(np.array([[sure, 0.0, 0.0]]), "new", np.full((1, 3), 0.5), np.full(3, 0.5))
    assert_allclose(posterior(book, outputs, priors, update=update), [[0.0, 0.5, 0.4, 0.1]], atol=1e-12)


@given(books, st.data(), st.sampled_from([Hamming(), Loss("squared"), Loss("hinge"), Loss("logistic")]))
@settings(max_examples=100, deadline=None)
def test_scores_are_finite_in_the_extreme(book, data, decoder):
    margins = data.draw(arrays(float, (3, book.n_columns), elements=extreme))
    scores = decoder.fit(book, None, np.arange(book.n_classes)).scores(Outputs(margins, "new"))
    assert np.isfinite(scores).all()


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_flipping_a_column_and_its_margin_changes_nothing(data):
    book = data.draw(books)
    margins = data.draw(arrays(float, (4, book.n_columns), elements=st.floats(-3, 3)))
    signs = data.draw(arrays(int, book.n_columns, elements=st.sampled_from([-1, 1])))
    variances, noise = np.full(margins.shape, 0.3), np.full(book.n_columns, 0.2)
    other = Codebook(book.matrix * signs)
    for decoder in (Hamming(), Loss(), Loss("hinge"), Bayes(noise="model"), Bayes("sequential", "model")):
        one = decoder.fit(book, None, np.arange(book.n_classes))
        scores = one.scores(Outputs(margins, "new", variances, noise))
        two = decoder.fit(other, None, np.arange(book.n_classes))
        assert_allclose(two.scores(Outputs(margins * signs, "new", variances, noise)), scores, atol=1e-9)


# Resolving and refusing ------------------------------------------------------------------------------------


def test_names():
    for name, kind in DECODERS.items():
        assert isinstance(resolve_decoder(name), kind)
    decoder = Loss("hinge")
    assert resolve_decoder(decoder) is not decoder
    assert resolve_decoder(decoder).loss == "hinge"
    with pytest.raises(ValueError, match=r"unknown decoding 'ham'; choose one of hamming, loss"):
        resolve_decoder("ham")


@pytest.mark.parametrize("decoder", [Votes(), Dag()])
@pytest.mark.parametrize("book", [one_vs_all(4), minimal(4), BOOKS["mixed"]])
def test_voting_needs_one_vs_one(decoder, book):
    with pytest.raises(ValueError, match='every pair of classes: choose coding="one-vs-one"'):
        decoder.fit(book, None, np.arange(4))


@pytest.mark.parametrize("book", [one_vs_one(4), minimal(4)])
def test_argmax_needs_one_vs_all(book):
    with pytest.raises(ValueError, match='every class: choose coding="one-vs-all"'):
        Argmax().fit(book, None, np.arange(4))


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        (Loss("absolute"), r"unknown loss 'absolute'; choose one of squared, hinge, logistic, exponential"),
        (Bayes(update="both"), r"unknown update 'both'; choose \"joint\" or \"sequential\""),
        (Bayes(noise="none"), r"unknown noise 'none'; choose \"honest\" or \"model\""),
    ],
)
def test_unknown_parameters(decoder, words):
    with pytest.raises(ValueError, match=words):
        decoder.fit(one_vs_one(3), None, np.arange(3))


def test_bayes_needs_variances():
    decoder = Bayes(noise="model").fit(one_vs_one(3), None, np.arange(3))
    with pytest.raises(ValueError, match="variances: use least-squares machines"):
        decoder.scores(Outputs(np.zeros((1, 3)), "new"))


def test_outputs_are_a_matrix():
    with pytest.raises(ValueError, match="matrix of rows × machines"):
        Outputs(np.zeros(3), "new")


class OneNumber(ProbabilisticDecoder):
    """A decoder that returns a column for every machine where it should have one for every class."""

    def log_proba(self, outputs):
        return outputs.margins


def test_decoders_of_users_that_cannot_work():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 4
    model = LSSVMClassifier(C=1.0, gamma=1.0, kernel="rbf", decoding=OneNumber()).fit(X, y)
    for call in (model.predict, model.predict_proba, model.predict_log_proba, model.decision_function):
        with pytest.raises(
            ValueError, match=r"OneNumber returned an array of shape \(7, 6\) for 7 rows and 4 classes"
        ):
            call(X[:7])
    for kind, method in ((Decoder, "scores"), (ProbabilisticDecoder, "log_proba")):
        nothing = type("Nothing", (kind,), {})().fit(one_vs_one(3), None, np.arange(3))
        with pytest.raises(NotImplementedError, match=rf"Nothing .* must define {method}\(outputs\)"):
            nothing.scores(Outputs(np.zeros((1, 3)), "new"))


class Unnormalised(ProbabilisticDecoder):
    def log_proba(self, outputs):
        return outputs.margins @ self.codebook_.matrix.T.astype(float)


class Required(ProbabilisticDecoder):
    """A decoder that learns, with `priors` and `sample_weight` as keywords without defaults."""

    learns = True

    def fit(self, codebook, outputs, class_index, *, priors, sample_weight):
        super().fit(codebook, outputs, class_index)
        self.beta_ = 3.0
        return self

    def log_proba(self, outputs):
        return log_softmax(self.beta_ * outputs.margins @ self.codebook_.matrix.T, axis=1)


class WithoutSuper(Required):
    def fit(self, codebook, outputs, class_index, *, priors=None, sample_weight=None):
        self.beta_ = 3.0
        return self


class WithoutSelf(Required):
    def fit(self, codebook, outputs, class_index, *, priors=None, sample_weight=None):
        Decoder.fit(self, codebook, outputs, class_index)


def test_probabilities_of_decoders_of_users_sum_to_one():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    model = LSSVMClassifier(C=1.0, gamma=1.0, kernel="rbf", decoding=Unnormalised()).fit(X, y)
    for call in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match=r"Unnormalised.log_proba .* row 0 .* sum to .*log_softmax"):
            call(X[:7])


def test_how_decoders_of_users_are_fitted():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    model = LSSVMClassifier(C=1.0, gamma=1.0, kernel="rbf", decoding=Required()).fit(X, y)
    assert np.isfinite(model.loo_log_loss_)
    assert model.predict_set(X).any(axis=1).all()
    for decoder in (WithoutSuper(), WithoutSelf()):
        with pytest.raises(ValueError, match=r"fit must call super\(\).fit\(.*return self"):
            model.set_params(decoding=decoder).fit(X, y)
