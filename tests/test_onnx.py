"""Models in onnxruntime against the same models in Python.

``python tests/test_onnx.py`` prints the largest difference of every combination, which the tests hold to 1e-9 (float64)
and 1e-5 (float32); but for the last, see `test_large_coefficients_cost_digits`.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC

from polymargin import (
    Argmax,
    AutoKernelClassifier,
    Bayes,
    Coupling,
    KernelLogisticClassifier,
    KNNPosterior,
    Loss,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    Softmax,
    Stack,
    SVMClassifier,
    WindowPosterior,
)
from polymargin.datasets import make_r4
from polymargin.decoders import DECODERS
from polymargin.kernels import Polynomial

onnxruntime = pytest.importorskip("onnxruntime", reason="install polymargin with its onnx extra")
skl2onnx = pytest.importorskip("skl2onnx", reason="install polymargin with its onnx extra")
import polymargin.onnx  # noqa: E402

LIMIT = {np.float32: 1e-5, np.float64: 1e-9}


@cache
def data(name: str) -> tuple[Any, Any, Any]:
    """Return training rows, labels and other rows, among them some far from everything."""
    match name:
        case "wine":
            X, y = load_wine(return_X_y=True)
        case "iris":
            X, y = load_iris(return_X_y=True)
        case "digits":
            X, y = load_digits(n_class=6, return_X_y=True)
            X, y = X[:400], y[:400]
        case "cancer":
            X, y = load_breast_cancer(return_X_y=True)
            X, y = X[:240], y[:240]
        case _:
            X, y = make_r4(200, random_state=0)
    half = len(X) // 2
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    far = X[:2] + 20.0 * X.std(axis=0)
    return X[:half], y[:half], np.vstack([X[half:], X[:5], far])


FIXED = {"C": 5.0, "gamma": 0.05, "selection": None, "kernel": "rbf"}
ECOC = np.array([[1, 1, 1, 1, -1], [1, -1, -1, 1, 1], [-1, 1, -1, -1, 1]])
SPARSE = np.array([[1, 1, 0, 1], [-1, 0, 1, 1], [-1, -1, -1, -1]])

EVIDENCE = {
    "selection": "evidence",
    "shared_parameters": False,
    "coding": "one-vs-all",
    "decoding": "bayes",
}
SCALED_LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())
LS, SVM, Posterior = LSSVMClassifier, SVMClassifier, PosteriorSVMClassifier
BLENDS = [LS(kernel="blend"), LS(kernel="rbf"), LS(kernel="laplacian", coding="one-vs-all")]
#: The combinations: data, and a model that follows a StandardScaler.
PROBABILISTIC: dict[str, tuple[str, Any]] = {
    "ls-svm default, wine": ("wine", LS()),
    "ls-svm default, digits": ("digits", LS()),
    "ls-svm default, cancer": ("cancer", LS()),
    "ls-svm laplacian one-vs-all coupled-softmax, wine": ("wine", LS(kernel="laplacian", coding="one-vs-all")),
    "ls-svm linear coupled-softmax priors, wine": ("wine", LS(kernel="linear", priors=[0.7, 0.2, 0.1])),
    "ls-svm blend, digits": ("digits", LS(kernel="blend")),
    "ls-svm blend own parameters, wine": ("wine", LS(kernel="blend", shared_parameters=False)),
    "ls-svm blend bayes, wine": ("wine", LS(C=5.0, gamma=0.05, kernel="blend", decoding="bayes")),
    "ls-svm blend bayes evidence, digits": ("digits", LS(**EVIDENCE, kernel="blend")),
    "ls-svm exponential, digits": ("digits", LS(kernel="exponential")),
    "ls-svm exponential bayes, wine": ("wine", LS(C=5.0, gamma=0.3, kernel="exponential", decoding="bayes")),
    "ls-svm centred poly, digits": ("digits", LS(kernel=Polynomial(2, centred=True))),
    "ls-svm poly, iris": ("iris", LS(kernel="poly", degree=3)),
    "ls-svm own parameters, wine": ("wine", LS(kernel="rbf", shared_parameters=False)),
    "ls-svm minimal coupled-softmax, digits": ("digits", LS(**FIXED, coding="minimal")),
    "ls-svm bayes one-vs-one, wine": ("wine", LS(**FIXED, decoding="bayes")),
    "ls-svm bayes one-vs-all, digits": ("digits", LS(**FIXED, coding="one-vs-all", decoding="bayes")),
    "ls-svm bayes evidence, iris": ("iris", LS(**EVIDENCE, kernel="rbf", priors="uniform")),
    "ls-svm bayes sequential, digits": ("digits", LS(**FIXED, decoding=Bayes("sequential", "model"), priors="uniform")),
    "ls-svm bayes linear, cancer": ("cancer", LS(C=1.0, kernel="linear", decoding="bayes")),
    "ls-svm bayes poly evidence, digits": ("digits", LS(**EVIDENCE, kernel="poly", degree=2)),
    "ls-svm softmax, iris": ("iris", LS(**FIXED, decoding="softmax")),
    "ls-svm hidden softmax, digits": ("digits", LS(**FIXED, decoding=Softmax(hidden=3, ridge=1.0))),
    "ls-svm wlw2, digits": ("digits", LS(**FIXED, decoding=Coupling("wlw2"))),
    "ls-svm wlw1, digits": ("digits", LS(**FIXED, decoding=Coupling("wlw1"))),
    "ls-svm ht, digits": ("digits", LS(**FIXED, decoding=Coupling("ht"))),
    "ls-svm ht in sample, wine": ("wine", LS(**FIXED, decoding=Coupling("ht", in_sample=True))),
    "ls-svm pkpd, wine": ("wine", LS(**FIXED, decoding=Coupling("pkpd"), priors=[0.2, 0.2, 0.6])),
    "ls-svm bradley-terry one-vs-all, digits": ("digits", LS(**FIXED, coding="one-vs-all", decoding="coupling")),
    "ls-svm bradley-terry codes, wine": ("wine", LS(**FIXED, coding=ECOC, decoding="coupling")),
    "ls-svm bradley-terry don't cares, iris": ("iris", LS(**FIXED, coding=SPARSE, decoding="coupling")),
    "ls-svm bradley-terry pairs, digits": ("digits", LS(**FIXED, decoding=Coupling("bradley-terry"))),
    "ls-svm two classes wlw2, cancer": ("cancer", LS(**FIXED, decoding=Coupling("wlw2"))),
    "ls-svm stacked logistic, wine": ("wine", LS(**FIXED, decoding=Stack(LogisticRegression()))),
    "ls-svm stacked pipeline, iris": ("iris", LS(**FIXED, decoding=Stack(SCALED_LOGISTIC, scale="norm"))),
    "svm coupled-softmax, wine": ("wine", SVM(decoding="coupled-softmax", random_state=0)),
    "svm wlw2 laplacian, digits": ("digits", SVM(kernel="laplacian", decoding="coupling", random_state=0)),
    "svm plain-softmax, iris": ("iris", SVM(coding="one-vs-all", decoding="plain-softmax", priors=[0.5, 0.3, 0.2])),
    "svm plain-softmax, cancer": ("cancer", SVM(kernel="poly", decoding="plain-softmax")),
    "svm softmax, r4": ("r4", SVM(decoding="softmax", C=10.0, random_state=0)),
    "svm votes, digits": ("digits", SVM()),
    "svm votes, first of ties, r4": ("r4", SVM(break_ties=False)),
    "svm exponential, wine": ("wine", SVM(kernel="exponential", decoding="coupled-softmax", random_state=0)),
    "svm blend, digits": ("digits", SVM(kernel="blend", decoding="coupled-softmax", random_state=0)),
    "posterior svm single softmax, r4": ("r4", Posterior(random_state=0)),
    "posterior svm one-vs-all softmax, wine": ("wine", Posterior(machine="one-vs-all", density="window", radius=3.0)),
    "posterior svm exponential, iris": ("iris", Posterior(kernel="exponential", random_state=0)),
    "posterior svm plain-softmax, cancer": ("cancer", Posterior(decoding="plain-softmax", kernel="linear")),
    "kernel logistic rbf, wine": ("wine", KernelLogisticClassifier()),
    "kernel logistic laplacian, r4": ("r4", KernelLogisticClassifier(kernel="laplacian", C=3.0, gamma=0.3)),
    "kernel logistic exponential, r4": ("r4", KernelLogisticClassifier(kernel="exponential", C=3.0, gamma=0.3)),
    "kernel logistic blend, wine": ("wine", KernelLogisticClassifier(kernel="blend", C=3.0, gamma=0.1)),
    "auto, wine": ("wine", AutoKernelClassifier()),
    "pool of blends, digits": ("digits", AutoKernelClassifier(BLENDS)),
    "auto priors, cancer": ("cancer", AutoKernelClassifier(priors="uniform")),
    "knn, iris": ("iris", KNNPosterior(7)),
    "knn, digits": ("digits", KNNPosterior(3)),
    "window, r4": ("r4", WindowPosterior()),
    "window, wine": ("wine", WindowPosterior(2.5)),
}  # fmt: skip
#: The same for decoders that give labels and scores only.
LABELS: dict[str, tuple[str, Any]] = {
    "svm default, digits": ("digits", SVM()),
    "svm default, cancer": ("cancer", SVM()),
    "svm loss, wine": ("wine", SVM(coding="one-vs-all", decoding="loss")),
    "svm argmax norm, digits": ("digits", SVM(coding="one-vs-all", decoding=Argmax("norm"))),
    "ls-svm hamming codes, wine": ("wine", LS(**FIXED, coding=ECOC, decoding="hamming")),
    "ls-svm squared loss, iris": ("iris", LS(**FIXED, coding=SPARSE, decoding="loss")),
    "ls-svm logistic loss, wine": ("wine", LS(**FIXED, decoding=Loss("logistic"))),
    "ls-svm exponential loss, wine": ("wine", LS(**FIXED, decoding=Loss("exponential"))),
    "ls-svm votes, digits": ("digits", LS(**FIXED, decoding="votes")),
    "ls-svm dag, digits": ("digits", LS(**FIXED, decoding="dag")),
    "ls-svm argmax, wine": ("wine", LS(**FIXED, coding="one-vs-all", decoding=Argmax("least-squares"))),
    "ls-svm mixture, wine": ("wine", LS(**FIXED, coding=ECOC, decoding="mixture")),
    "ls-svm stacked svms, wine": ("wine", LS(**FIXED, decoding=Stack())),
    "ls-svm stacked svm, cancer": ("cancer", LS(**FIXED, decoding=Stack())),
}  # fmt: skip
#: All of them, and one that is not held to the same digits.
MODELS = PROBABILISTIC | LABELS | {"ls-svm, large C, iris": ("iris", LS(C=1e7, gamma=0.02, kernel="rbf"))}


@cache
def fitted(name: str) -> Any:
    source, model = MODELS[name]
    X, y, _ = data(source)
    return make_pipeline(StandardScaler(), model).fit(X, y)


def run(model: Any, X: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


def difference(name: str, dtype: Any) -> tuple[float, float]:
    """Return the largest difference of probabilities (or scores), and the share of equal labels."""
    model, X = fitted(name), data(MODELS[name][0])[2].astype(dtype)
    labels, values = run(polymargin.onnx.to_onnx(model, float64=dtype is np.float64), X)
    assert values.dtype == dtype
    X = X.astype(np.float64)  # the same rows; scikit-learn's scaler would compute in float32
    if hasattr(model, "predict_proba"):
        expected = model.predict_proba(X)
    else:
        expected = model.decision_function(X)
        values = values[:, 1] - values[:, 0] if expected.ndim == 1 else values
    return float(np.abs(values - expected).max()), float(np.mean(labels == model.predict(X)))


@pytest.mark.parametrize("name", PROBABILISTIC | LABELS)
def test_onnxruntime_says_what_python_says(name):
    for dtype, limit in LIMIT.items():
        largest, equal = difference(name, dtype)
        assert largest <= limit
        assert equal == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "ls-svm default, wine",
        "ls-svm bayes one-vs-one, wine",
        "ls-svm stacked pipeline, iris",
        "svm softmax, r4",
        "posterior svm single softmax, r4",
        "kernel logistic laplacian, r4",
        "auto, wine",
        "knn, digits",
        "window, wine",
    ],
)
def test_skl2onnx_converts_every_estimator(name):
    model, X = fitted(name), data(PROBABILISTIC[name][0])[2]
    for dtype, limit in LIMIT.items():
        rows = X.astype(dtype)
        labels, proba = run(skl2onnx.to_onnx(model, rows[:1], options={"zipmap": False}), rows)
        np.testing.assert_allclose(proba, model.predict_proba(rows.astype(np.float64)), atol=limit)
        np.testing.assert_array_equal(labels, model.predict(rows.astype(np.float64)))


def test_large_coefficients_cost_digits():
    # Where C is large, coefficients are, and cancel in every margin. Kernel values are rounded, so nobody can add them
    # up better than that, neither Python nor onnxruntime.
    model = fitted("ls-svm, large C, iris")[-1]
    rounding = np.finfo(np.float64).eps * np.abs(model.dual_coef_).sum(axis=1).max()
    assert rounding > 1e-9
    for dtype, limit in ((np.float64, rounding), (np.float32, LIMIT[np.float32])):
        largest, equal = difference("ls-svm, large C, iris", dtype)
        assert largest <= limit
        assert equal == 1.0


@pytest.mark.parametrize(("kernel", "offset"), [("linear", 1e5), ("poly", 30.0), (Polynomial(3, 0.0), 10.0)])
def test_features_keep_the_digits_of_columns_with_an_offset(kernel, offset):
    X, y, new = data("iris")
    model = LS(kernel=kernel, degree=2).fit(X + offset, y)
    assert model.bank_.expansion is not None
    labels, proba = run(polymargin.onnx.to_onnx(model, float64=True), new + offset)
    np.testing.assert_allclose(proba, model.predict_proba(new + offset), atol=1e-8)
    np.testing.assert_array_equal(labels, model.predict(new + offset))


def test_the_check_asks_about_rows_like_those_of_the_training():
    X, y, _ = data("iris")
    for model in (
        LS(kernel="linear"),
        AutoKernelClassifier(),
        make_pipeline(SVM()),
        KernelLogisticClassifier(1.0, gamma=0.1),
        KNNPosterior(),
        WindowPosterior(),
        make_pipeline(MinMaxScaler(), SVM()),
        make_pipeline(RobustScaler(), SVM()),
    ):
        model.fit(X + 1000.0, y)
        seen = []
        ask = model.predict
        model.predict = lambda rows, ask=ask, seen=seen: seen.append(rows) or ask(rows)
        agreement = polymargin.onnx.check(model, polymargin.onnx.to_onnx(model, float64=True))
        assert agreement.equal_labels == 1.0
        assert np.abs(seen[0].mean(axis=0) - (X + 1000.0).mean(axis=0)).max() < 2.0


def test_members_of_a_pool_share_their_features():
    X, y, new = data("wine")
    quadratic = Polynomial(2, centred=True)
    members = [LS(kernel=quadratic, coding=coding) for coding in ("one-vs-one", "one-vs-all")]
    model = AutoKernelClassifier(members).fit(X[:, :3], y)
    assert all(member.bank_.expansion is not None for member in model.members_)
    converted = polymargin.onnx.to_onnx(model, float64=True)
    # Computed once: every variable, and the two of every product.
    rows = next(node for node in converted.graph.node if node.op_type == "Gather").input[0]
    assert sum(node.op_type == "Gather" and node.input[0] == rows for node in converted.graph.node) == 3
    np.testing.assert_allclose(run(converted, new[:, :3])[1], model.predict_proba(new[:, :3]), atol=1e-9)


def test_members_of_a_pool_share_their_distances():
    converted = polymargin.onnx.to_onnx(fitted("pool of blends, digits"))
    # Three members, two with city-block distances and two with squared ones: each kind is computed once.
    kinds = [node.op_type for node in converted.graph.node]
    assert kinds.count("Scan") == 1
    rows = sum(tensor.dims[:] in ([64, 200], [200, 64]) for tensor in converted.graph.initializer)
    assert rows == 2


def test_every_decoder_is_in_the_table():
    decoders = {type(fitted(name)[-1].decoder_) for name in PROBABILISTIC | LABELS if "svm" in name}
    assert decoders >= set(DECODERS.values())


NAMES = {
    "texts": np.array(["no", "yes", "ünclear"]),
    "objects": np.array(["no", "yes", "maybe"], dtype=object),
    "integers": np.array([-3, 7, 10**12]),
    "unsigned": np.array([1, 2, 5], dtype=np.uint8),
    "whole numbers": np.array([1.0, 2.0, 5.0]),
    "truths": np.array([False, True]),
    "numbers": np.array([0.25, 1.5, 4.0]),
}


@pytest.mark.parametrize("kind", NAMES)
def test_labels_of_any_type(kind):
    X, y, new = data("iris")
    names = NAMES[kind]
    if kind == "numbers":  # as labels scikit-learn takes them for the values of a function
        model = LSSVMClassifier(**FIXED, classes=names).fit(X, np.eye(3)[y])
    else:
        model = LSSVMClassifier(**FIXED).fit(X, names[y % len(names)])
    new = new.astype(np.float32)
    labels, _ = run(skl2onnx.to_onnx(model, new[:1], options={"zipmap": False}), new)
    np.testing.assert_array_equal(labels, model.predict(new))
    if kind == "numbers":
        with pytest.raises(RuntimeError, match="integers or strings"):
            skl2onnx.to_onnx(model, new[:1])
        return
    _, dictionaries = run(skl2onnx.to_onnx(model, new[:1]), new)
    zipped = np.array([[row[label] for label in model.classes_.tolist()] for row in dictionaries])
    np.testing.assert_allclose(zipped, model.predict_proba(new), atol=1e-6)


def test_outputs_are_named_as_those_of_scikit_learn():
    model = fitted("svm softmax, r4")
    X = data("r4")[2]
    reference = LogisticRegression().fit(*data("r4")[:2])
    for options in (None, {"zipmap": False}, {"zipmap": "columns"}):
        ours, theirs = (
            [
                output.name
                for output in skl2onnx.to_onnx(one, X[:1].astype(np.float32), options=options).graph.output
            ]
            for one in (model, reference)
        )
        assert ours == theirs
    # Dictionaries hold float32, whatever goes in.
    _, dictionaries = run(skl2onnx.to_onnx(model, X[:1]), X)
    np.testing.assert_allclose(
        [list(row.values()) for row in dictionaries], model.predict_proba(X), atol=1e-6
    )


def test_raw_scores_are_the_decision_function():
    X, y, new = data("wine")
    model = LSSVMClassifier(**FIXED).fit(X, y)
    _, scores = run(skl2onnx.to_onnx(model, X[:1], options={"raw_scores": True, "zipmap": False}), new)
    np.testing.assert_allclose(scores, model.decision_function(new), atol=1e-9)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_operator_sets(opset):
    for name in (
        "ls-svm ht, digits",
        "ls-svm bradley-terry codes, wine",
        "knn, iris",
        "ls-svm bayes sequential, digits",
    ):
        model, X = fitted(name), data(PROBABILISTIC[name][0])[2]
        converted = polymargin.onnx.to_onnx(model, opset=opset, float64=True)
        assert max(entry.version for entry in converted.opset_import if entry.domain == "") <= opset
        np.testing.assert_allclose(run(converted, X)[1], model.predict_proba(X), atol=1e-9)
    with pytest.raises(ValueError, match="13 or newer"):
        polymargin.onnx.to_onnx(fitted("knn, iris"), opset=12)


def test_all_of_a_pipeline_is_computed_in_doubles():
    # Features far from zero: a scaler that computes in float32 loses what tells them apart.
    X, y, new = data("iris")
    model = make_pipeline(StandardScaler(), LSSVMClassifier(**FIXED)).fit(X + 1000.0, y)
    new = (new + 1000.0).astype(np.float32)
    exact = run(polymargin.onnx.to_onnx(model), new)[1]
    rough = run(skl2onnx.to_onnx(model, new[:1], options={"zipmap": False}), new)[1]
    expected = model.predict_proba(new.astype(np.float64))
    assert exact.dtype == np.float32
    assert np.abs(exact - expected).max() < 1e-7 < np.abs(rough - expected).max()


def test_one_feature():
    # onnxruntime would fuse the scaler, whose factor is a single number, with the kernel, as float32.
    X, y, new = data("iris")
    for kernel in ("linear", "poly"):
        model = make_pipeline(
            StandardScaler(), SVMClassifier(kernel=kernel, coding="one-vs-all", decoding="plain-softmax")
        )
        model.fit(X[:, 2:3], y)
        proba = run(polymargin.onnx.to_onnx(model, float64=True), new[:, 2:3])[1]
        np.testing.assert_allclose(proba, model.predict_proba(new[:, 2:3]), atol=1e-12)


def test_tied_neighbours_share_their_place():
    X = np.array([[0.0], [1.0], [2.0], [4.0], [4.0]])
    y = np.array(["a", "b", "b", "c", "a"])
    new = np.array([[1.0], [0.5], [3.0], [1.5], [40.0]])
    for model in (KNNPosterior(2).fit(X, y, [1, 1, 0.5, 2, 1]), WindowPosterior(1.0).fit(X, y)):
        proba = run(polymargin.onnx.to_onnx(model, float64=True), new)[1]
        np.testing.assert_allclose(proba, model.predict_proba(new), atol=1e-15)
    np.testing.assert_allclose(proba[4], [0.4, 0.4, 0.2])  # nobody is near


def test_sparse_rows_and_weights():
    from scipy.sparse import csr_matrix

    X, y, new = data("wine")
    X, new = np.where(np.abs(X - X.mean(axis=0)) < X.std(axis=0), 0.0, X / X.std(axis=0)), new / X.std(axis=0)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    for kernel in ("laplacian", "exponential", Polynomial(2, centred=True)):
        model = LSSVMClassifier(kernel=kernel, C=1.0, gamma=0.1, selection=None).fit(
            csr_matrix(X), y, weights
        )
        proba = run(polymargin.onnx.to_onnx(model, float64=True), new)[1]
        np.testing.assert_allclose(proba, model.predict_proba(new), atol=1e-9)


def test_a_classifier_that_knows_fewer_classes_is_stacked():
    X, y, new = data("wine")
    # Trained on two classes only: a class without a machine of its own gets no probability.
    model = LSSVMClassifier(**FIXED, decoding=Stack(LogisticRegression())).fit(X, y)
    keep = y[:, np.newaxis] == [0, 2]
    model.decoder_.estimator_ = LogisticRegression().fit(
        model.margins(X)[keep.any(axis=1)], y[keep.any(axis=1)]
    )
    proba = run(polymargin.onnx.to_onnx(model, float64=True), new)[1]
    np.testing.assert_allclose(proba, model.predict_proba(new), atol=1e-12)
    assert proba[:, 1].max() < 1e-300


def test_what_cannot_be_exported_is_refused():
    X, y, _ = data("iris")
    gram = X @ X.T
    with pytest.raises(ValueError, match="precomputed kernel"):
        polymargin.onnx.to_onnx(LSSVMClassifier(kernel="precomputed", C=1.0).fit(gram, y))
    with pytest.raises(
        ValueError, match=r"Python function.* linear, poly, rbf, laplacian, exponential or blend"
    ):
        polymargin.onnx.to_onnx(SVMClassifier(kernel=lambda A, B: A @ B.T).fit(X, y))
    with pytest.raises(ValueError, match="no probabilities"):
        polymargin.onnx.to_onnx(LSSVMClassifier(**FIXED, decoding=Stack(SVC())).fit(X, y))

    class OwnDecoder(type(fitted("svm default, digits")[-1].decoder_).__mro__[1]):
        def scores(self, outputs):
            return outputs.margins

    with pytest.raises(ValueError, match="OwnDecoder"):
        polymargin.onnx.to_onnx(LSSVMClassifier(**FIXED, decoding=OwnDecoder()).fit(X, y))


def test_onnx_is_optional():
    code = """
import sys, polymargin, polymargin.cli
assert not {"onnx", "skl2onnx", "onnxruntime"} & set(sys.modules)
sys.modules["skl2onnx"] = None
import polymargin.onnx
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "install polymargin with its onnx extra" in done.stderr.splitlines()[-1]


if __name__ == "__main__":
    print(f"{'':52} float64  float32  labels")
    for name in MODELS:
        (wide, equal), (narrow, equal_too) = (difference(name, dtype) for dtype in (np.float64, np.float32))
        print(f"{name:52} {wide:.1e}  {narrow:.1e}  {min(equal, equal_too):.0%}")
