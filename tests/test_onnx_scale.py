"""Models with leaves and landmarks in onnxruntime against the same models in Python; see `test_onnx.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import polymargin
from polymargin import Argmax, AutoKernelClassifier, LSSVMClassifier, Stack
from polymargin.cli import app
from polymargin.kernels import Polynomial
from polymargin.scale import ScaleSettings
from polymargin.tables import preparation

onnxruntime = pytest.importorskip("onnxruntime", reason="install polymargin with its onnx extra")
skl2onnx = pytest.importorskip("skl2onnx", reason="install polymargin with its onnx extra")
import polymargin.onnx  # noqa: E402
from polymargin.onnx import scale  # noqa: E402

LIMIT = {np.float32: 1e-5, np.float64: 1e-9}
SETTINGS = ScaleSettings(leaf_rows=60, sample_rows=150, decoder_rows=300)
SMALL = {"scaling": SETTINGS, "n_landmarks": 30}
FIXED = {**SMALL, "C": 3.0, "gamma": 0.1}
WIDTHS = np.linspace(0.5, 2.0, 5)


@cache
def data(n: int = 400, d: int = 5) -> tuple[Any, Any, Any]:
    """Return rows of three classes, two clusters each, labels and other rows, among them some far from everything.

    One cluster lies apart, so that some leaves have one class.
    """
    random = np.random.default_rng(0)
    centres = random.normal(size=(6, d)) * 1.5
    centres[5] += 8.0
    cluster = random.integers(0, 6, n + 150)
    X = centres[cluster] + random.normal(size=(n + 150, d))
    y = np.array(["ash", "oak", "elm"])[cluster % 3]
    far = X[:2] + 20.0 * X.std(axis=0)
    return X[:n], y[:n], np.vstack([X[n:], X[:5], far])


def LS(scale: str, **parameters: Any) -> LSSVMClassifier:
    return LSSVMClassifier(scale=scale, **{**FIXED, **parameters})


MEMBERS = [LSSVMClassifier(C=3.0, gamma=0.1, kernel="rbf"), LogisticRegression()]
MODELS: dict[str, Any] = {
    "leaves rbf": LS("leaves", kernel="rbf"),
    "leaves blend one-vs-all": LS("leaves", kernel="blend", coding="one-vs-all"),
    "leaves exponential": LS("leaves", kernel="exponential"),
    "leaves quadratic": LS("leaves", kernel="poly", degree=2),
    "leaves cubic": LS("leaves", kernel="poly", degree=3),
    "leaves minimal softmax": LS("leaves", kernel="rbf", coding="minimal", decoding="softmax"),
    "leaves own C and gamma": LS("leaves", kernel="laplacian", C=None, gamma=None),
    "landmarks rbf": LS("landmarks", kernel="rbf"),
    "landmarks blend priors": LS("landmarks", kernel="blend", priors="uniform"),
    "landmarks exponential": LS("landmarks", kernel="exponential"),
    "landmarks bayes": LS("landmarks", kernel="laplacian", decoding="bayes"),
    "landmarks cubic bayes": LS("landmarks", kernel="poly", degree=3, decoding="bayes", n_landmarks=20),
    "explicit quadratic": LS("landmarks", kernel=Polynomial(2, centred=True)),
    "explicit bayes": LS("landmarks", kernel="linear", decoding="bayes", coding="one-vs-all"),
    "both rbf": LS("both", kernel="rbf"),
    "both linear priors": LS("both", kernel="linear", priors=[0.5, 0.3, 0.2]),
    "both quadratic": LS("both", kernel=Polynomial(2, centred=True)),
    "both ranks": LS("both", kernel="laplacian", columns="ranks", coding="one-vs-all"),
    "both metric": LS("both", kernel="blend", metric=WIDTHS),
    "both quadratic metric of ranks": LS("both", kernel="poly", degree=2, columns="ranks", metric=WIDTHS),
    "both coupling": LS("both", kernel="rbf", decoding="coupling"),
    "both stacked": LS("both", kernel="rbf", decoding=Stack(LogisticRegression())),
    "pool of both": AutoKernelClassifier(scale="both", priors="uniform", **SMALL),
    "pool of leaves and a linear model": AutoKernelClassifier(MEMBERS, scale="leaves", **SMALL),
}
LABELS: dict[str, Any] = {
    "leaves votes": LS("leaves", kernel="blend", decoding="votes"),
    "landmarks norm": LS("landmarks", kernel="rbf", coding="one-vs-all", decoding=Argmax("norm")),
}


def run(model: Any, X: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


def assert_same(model: Any, X: Any, limits: dict[Any, float] = LIMIT, **options: Any) -> None:
    """Compare labels and probabilities, or scores."""
    for dtype, limit in limits.items():
        rows = X.astype(dtype)
        labels, values = run(polymargin.onnx.to_onnx(model, float64=dtype is np.float64, **options), rows)
        rows = rows.astype(np.float64)
        expected = (model.predict_proba if hasattr(model, "predict_proba") else model.decision_function)(rows)
        np.testing.assert_allclose(values, expected, rtol=0.0, atol=limit)
        np.testing.assert_array_equal(labels, model.predict(rows))


@cache
def fitted(name: str) -> Any:
    X, y, _ = data()
    return (MODELS | LABELS)[name].fit(X, y)


@pytest.mark.parametrize("name", MODELS | LABELS)
def test_onnxruntime_says_what_python_says(name):
    assert_same(fitted(name), data()[2])


def test_machines_of_all_kinds_are_among_them():
    leaves = fitted("leaves rbf").bank_.leaves.leaves
    assert any(leaf.bank is None for leaf in leaves)  # one class only
    assert any(leaf.bank is not None and 0 < leaf.columns.size < 3 for leaf in leaves)
    assert any(leaf.columns.size == 3 for leaf in leaves)
    # Machines in the kernel's features where a leaf has more rows than features.
    banks = [leaf.bank for leaf in fitted("leaves quadratic").bank_.leaves.leaves if leaf.bank is not None]
    assert {bank.expansion is None for bank in banks} == {True, False}
    maps = {
        type(fitted(name).bank_.landmarks.features).__name__
        for name in ("landmarks cubic bayes", "explicit bayes")
    }
    assert maps == {"LandmarkMap", "ExplicitMap"}


def test_defaults_in_a_pipeline():
    # With C and gamma of their own, leaves of sixty rows have coefficients that cost some digits, see `test_onnx.py`.
    X, y, new = data()
    for model in (LSSVMClassifier(scale="both", **SMALL), AutoKernelClassifier(scale="leaves", **SMALL)):
        model = make_pipeline(StandardScaler(), model).fit(X, y)
        assert_same(model, new, {np.float32: 1e-5, np.float64: 1e-6})


def test_rows_alone_and_together():
    # A row goes to few of the leaves, and some leaves get no row.
    _, _, new = data()
    model = fitted("both rbf")
    converted = polymargin.onnx.to_onnx(model, float64=True)
    expected = model.predict_proba(new)
    for rows in (slice(0, 1), slice(7, 8), slice(-1, None), slice(3, 5)):
        np.testing.assert_allclose(run(converted, new[rows])[1], expected[rows], atol=1e-9)


def test_one_leaf_and_many_columns():
    X, y, new = data()
    one = LS("leaves", kernel="rbf", scaling=replace(SETTINGS, leaf_rows=1000)).fit(X, y)
    assert one.bank_.leaves.tree.n_leaves == 1
    assert_same(one, new)
    X, y, new = data(300, 300)
    many = LS("leaves", kernel="rbf", gamma=1e-3).fit(X, y)
    assert many.bank_.leaves.tree.sketch is not None
    assert_same(many, new)


def test_sparse_rows_two_classes_and_given_landmarks():
    X, y, new = data()
    X, new = np.where(np.abs(X) < 0.7, 0.0, X), np.where(np.abs(new) < 0.7, 0.0, new)
    model = LS("both", kernel="blend", n_landmarks=X[:20]).fit(sparse.csr_matrix(X), y == "oak")
    assert_same(model, new)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_operator_sets(opset):
    for name in ("both metric", "both quadratic"):
        assert_same(fitted(name), data()[2], {np.float64: 1e-9}, opset=opset)


def test_skl2onnx_converts_them():
    _, _, new = data()
    for name in ("both ranks", "pool of both"):
        model, rows = fitted(name), new.astype(np.float32)
        labels, proba = run(skl2onnx.to_onnx(model, rows[:1], options={"zipmap": False}), rows)
        np.testing.assert_allclose(proba, model.predict_proba(rows.astype(np.float64)), atol=1e-5)
        np.testing.assert_array_equal(labels, model.predict(rows.astype(np.float64)))


def test_the_size_of_the_graph_does_not_depend_on_the_number_of_leaves():
    X, y, _ = data()
    more = LS("leaves", kernel="rbf", scaling=replace(SETTINGS, leaf_rows=30)).fit(X, y)
    sizes, leaves = zip(
        *(
            (len(polymargin.onnx.to_onnx(model).graph.node), model.bank_.leaves.tree.n_leaves)
            for model in (fitted("leaves rbf"), more)
        ),
        strict=True,
    )
    assert leaves[1] > 1.5 * leaves[0]
    assert sizes[1] <= sizes[0] + 4  # the tree is deeper


def test_the_check_asks_about_rows_like_those_of_the_training():
    X, y, _ = data()
    for model in (LS("both", kernel="rbf"), AutoKernelClassifier(MEMBERS[:1], scale="landmarks", **SMALL)):
        model.fit(X + 1000.0, y)
        seen = []
        ask = model.predict
        model.predict = lambda rows, ask=ask, seen=seen: seen.append(rows) or ask(rows)
        agreement = polymargin.onnx.check(model, polymargin.onnx.to_onnx(model, float64=True))
        assert agreement.equal_labels == 1.0
        assert np.abs(seen[0].mean(axis=0) - (X + 1000.0).mean(axis=0)).max() < 2.5


def export(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_on_the_command_line(tmp_path):
    X, y, new = data()
    frame = pd.DataFrame(X, columns=list("abcde")).assign(colour=np.where(X[:, 0] > 0.0, "red", "blue"))
    for model in (LS("both", kernel="rbf"), AutoKernelClassifier(MEMBERS, scale="both", **SMALL)):
        path = tmp_path / f"{type(model).__name__}.skops"
        model = make_pipeline(preparation(frame), model).fit(frame, y)
        polymargin.save(model, path)
        done = export(path, "--float64", "--json")
        assert done.exit_code == 0, done.output
        document = json.loads(done.output)
        assert document["check"]["equal_labels"] == 1.0
        assert document["check"]["largest_difference"] < 1e-9
        session = onnxruntime.InferenceSession(path.with_suffix(".onnx"))
        rows = pd.DataFrame(new, columns=list("abcde")).assign(colour="red")
        labels, proba = session.run(None, {name: rows[[name]].to_numpy() for name in rows})
        np.testing.assert_allclose(proba, model.predict_proba(rows), atol=1e-9)
        np.testing.assert_array_equal(labels, model.predict(rows))


def test_too_large_a_graph_is_refused(tmp_path, monkeypatch):
    message = r"{} leaves .* take 0 MB.* scale=\"landmarks\".* fewer rows"
    for name in ("both rbf", "pool of both", "leaves own C and gamma"):
        model = fitted(name)
        members = getattr(model, "members_", [model])
        leaves = [leaf for member in members for leaf in member.bank_.leaves.leaves]
        size = sum(scale._bytes(leaf.bank) for leaf in leaves if leaf.bank is not None)
        with monkeypatch.context() as patched:
            patched.setattr(scale, "_LARGEST", size)
            constants = polymargin.onnx.to_onnx(model).graph.initializer
            assert 0.5 * sum(tensor.ByteSize() for tensor in constants) < size  # there is little else
            patched.setattr(scale, "_LARGEST", size - 1)
            with pytest.raises(ValueError, match=message.format(len(leaves))):
                polymargin.onnx.to_onnx(model)
    monkeypatch.setattr(scale, "_LARGEST", 0)
    polymargin.onnx.to_onnx(fitted("landmarks rbf"))
    path = tmp_path / "model.skops"
    polymargin.save(fitted("both rbf"), path)
    done = export(path)
    assert done.exit_code != 0
    assert 'scale="landmarks"' in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not path.with_suffix(".onnx").exists()


def test_leaves_on_a_cluster_must_be_gathered():
    model = LS("leaves", kernel="rbf").fit(*data()[:2])
    leaves = model.bank_.leaves
    model.bank_ = replace(model.bank_, leaves=replace(leaves, leaves=[object()] * len(leaves.leaves)))
    with pytest.raises(ValueError, match="gather_leaves"):
        polymargin.onnx.to_onnx(model)
