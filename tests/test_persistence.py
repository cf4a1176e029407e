"""Model files: what comes back, what is refused, and what is left when something goes wrong."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
import zipfile
import zlib

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

import fuzz_model_files as fuzz
import polymargin
from conftest import blobs
from polymargin import (
    AutoKernelClassifier,
    Codebook,
    KernelLogisticClassifier,
    KNNPosterior,
    LSSVMClassifier,
    PosteriorSVMClassifier,
    Stack,
    SVMClassifier,
    WindowPosterior,
    _output,
)
from polymargin.codebooks import CODINGS
from polymargin.decoders import DECODERS
from polymargin.kernels import Blend, Polynomial
from polymargin.persistence import ModelFileError, ModelVersionWarning, _container, _files, describe
from polymargin.persistence._schema import check

X, Y = blobs(45, 3, seed=1)
GIVEN = {"C": 2.0, "gamma": 0.3, "kernel": "rbf"}
X_NEW = blobs(40, 3, seed=2)[0]
NAMES = np.array(["ash", "birch", "cedar"])


def restored(model, path):
    polymargin.save(model, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return polymargin.load(path)


def assert_same(model, again, X_new=X_NEW):
    """Bit for bit, whatever the model has to say."""
    assert type(again) is type(model)
    for method in (
        "predict",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "margins",
        "transform",
    ):
        if hasattr(model, method):
            expected = getattr(model, method)(X_new)
            found = getattr(again, method)(X_new)
            assert found.dtype == expected.dtype
            assert_array_equal(found, expected, err_msg=method)
    assert_array_equal(again.classes_, model.classes_)


def rewritten(path, change):
    """Forge a file: change its manifest and members, and make the digests anew."""
    data = path.read_bytes()
    archive = _container.open_archive(data)
    manifest = _container.read_manifest(archive)
    members = _container.read_members(archive, manifest, len(data))
    del manifest["members"]
    change(manifest, members)
    path.write_bytes(_container.pack(manifest, members))


# --- what comes back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        LSSVMClassifier(),
        LSSVMClassifier(coding="ecoc", decoding="loss", selection="evidence", random_state=0, **GIVEN),
        LSSVMClassifier(kernel="rbf", decoding="bayes", selection="evidence", noise_floor=0.0),
        LSSVMClassifier(coding="adaptive", decoding="hamming", **GIVEN),
        LSSVMClassifier(coding=[[1, 1, 0, -1], [-1, 0, 1, 1], [0, -1, -1, -1]], decoding="softmax", **GIVEN),
        LSSVMClassifier(coding=Codebook([[1, 1], [1, -1], [-1, 0]]), decoding="hamming", **GIVEN),
        LSSVMClassifier(shared_parameters=False, decoding="bayes", coding="one-vs-all", kernel="rbf"),
        LSSVMClassifier(kernel=Polynomial(2, centred=True), priors=[0.2, 0.3, 0.5]),
        LSSVMClassifier(kernel="blend"),
        LSSVMClassifier(kernel="exponential"),
        LSSVMClassifier(kernel=Blend(0.6), C=2.0, gamma=0.3, decoding="bayes"),
        LSSVMClassifier(random_state=np.random.RandomState(0), **GIVEN),
        LSSVMClassifier(decoding=Stack(LogisticRegression()), **GIVEN),
        LSSVMClassifier(
            decoding=Stack(make_pipeline(StandardScaler(), SGDClassifier(random_state=0))), **GIVEN
        ),
        LSSVMClassifier(decoding=Stack(), **GIVEN),
        SVMClassifier(),
        SVMClassifier(C=None, decoding="coupled-softmax", cv=2, random_state=np.random.RandomState(3)),
        SVMClassifier(kernel="blend"),
        SVMClassifier(kernel="exponential", random_state=0),
        SVMClassifier(kernel="laplacian", coding="one-vs-all", class_weight={0: 1.0, 1: 2.0, 2: 1.0}),
        PosteriorSVMClassifier(random_state=0),
        PosteriorSVMClassifier(machine="one-vs-all", density="window", random_state=0),
        KernelLogisticClassifier(),
        KernelLogisticClassifier(kernel="exponential", C=2.0, gamma=0.3),
        KernelLogisticClassifier(kernel="blend", C=2.0, gamma=0.3),
        AutoKernelClassifier(),
        KNNPosterior(),
        WindowPosterior(2.0),
    ],
    ids=lambda model: re.sub(r"\s+", " ", repr(model))[:80],
)
def test_every_estimator_comes_back_the_same(model, tmp_path):
    model = model.fit(X, Y)
    again = restored(model, tmp_path / "model")
    assert_same(model, again)


@pytest.mark.parametrize(
    "model",
    [
        LSSVMClassifier(**GIVEN),
        LSSVMClassifier(kernel="blend", decoding="softmax"),
        AutoKernelClassifier([LSSVMClassifier(**GIVEN)]),
    ],
)
def test_honest_outputs_come_back(model, tmp_path):
    model.fit(X, Y)
    again = restored(model, tmp_path / "model")
    assert_array_equal(again.loo_log_proba_, model.loo_log_proba_)
    assert again.loo_log_loss_ == model.loo_log_loss_
    if isinstance(model, LSSVMClassifier):
        assert_array_equal(again.loo_margins_, model.loo_margins_)
        assert_array_equal(again.bank_.honest_margins, model.bank_.honest_margins)


@pytest.mark.parametrize("decoding", DECODERS)
@pytest.mark.parametrize("coding", ["one-vs-one", "one-vs-all"])
def test_every_decoder_comes_back_the_same(coding, decoding, tmp_path):
    try:
        DECODERS[decoding]().check(CODINGS[coding](3, None))
    except ValueError:
        pytest.skip("this decoder cannot read this coding")
    model = LSSVMClassifier(coding=coding, decoding=decoding, **GIVEN).fit(X, Y)
    again = restored(model, tmp_path / "model")
    assert_same(model, again)
    assert_array_equal(again.variances(X_NEW), model.variances(X_NEW))


@pytest.mark.parametrize(
    "labels",
    [NAMES, NAMES.astype(object), np.array([3, 5, 8]), np.array([1.0, 2.0, 4.0]), np.array([True, False])],
    ids=["text", "object", "int", "float", "bool"],
)
def test_labels_come_back_as_they_were(labels, tmp_path):
    y = labels[Y % labels.size]
    model = KernelLogisticClassifier(**GIVEN).fit(X, y)
    again = restored(model, tmp_path / "model")
    assert_same(model, again)
    assert again.classes_.dtype == y.dtype
    assert describe(tmp_path / "model")["training"]["classes"] == np.unique(y).tolist()


def test_soft_labels_and_sparse_rows(tmp_path):
    shares = np.random.default_rng(0).dirichlet([1, 1, 1], size=Y.size)
    for kind in (sparse.csr_matrix, sparse.csr_array):
        model = LSSVMClassifier(classes=NAMES, **GIVEN).fit(kind(np.maximum(X, 0)), shares)
        again = restored(model, tmp_path / "model")
        assert_same(model, again, kind(X_NEW))
        assert_same(model, again)


def test_a_pipeline_of_columns_with_names(tmp_path):
    table = pd.DataFrame({"height": X[:, 0], "width": X[:, 1], "colour": NAMES[::-1][Y], "size": NAMES[Y]})
    table.loc[3, "height"] = np.nan
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["height", "width"]),
            ("names", OneHotEncoder(handle_unknown="ignore"), ["colour"]),
            ("order", make_pipeline(OrdinalEncoder(dtype=np.float32), MinMaxScaler()), ["size"]),
        ],
        remainder="drop",
    )
    logs = FunctionTransformer(np.abs, feature_names_out="one-to-one")
    model = make_pipeline(columns, logs, LSSVMClassifier(**GIVEN)).fit(table, NAMES[Y])
    again = restored(model, tmp_path / "model")
    assert_same(model, again, table)
    assert_array_equal(again.feature_names_in_, table.columns)
    told = describe(tmp_path / "model")["training"]
    assert told["model"] == "Pipeline(ColumnTransformer, FunctionTransformer, LSSVMClassifier)"
    assert told["feature_names"] == list(table.columns)


def test_memory_layout_and_precomputed_kernels(tmp_path):
    rows = np.asfortranarray(X)
    assert_same(model := SVMClassifier(**GIVEN).fit(rows[::-1], Y), restored(model, tmp_path / "model"))
    gram, new = rbf_kernel(X), rbf_kernel(X_NEW, X)
    for estimator in (LSSVMClassifier, SVMClassifier, KernelLogisticClassifier):
        model = estimator(C=1.0, kernel="precomputed").fit(gram, Y)
        assert_same(model, restored(model, tmp_path / "model"), new)


def test_a_codebook_comes_back_read_only_and_checked(tmp_path):
    model = LSSVMClassifier(**GIVEN).fit(X, Y)
    again = restored(model, tmp_path / "model")
    assert again.codebook_ == model.codebook_
    assert not again.codebook_.matrix.flags.writeable
    bad = Codebook.__new__(Codebook)
    with pytest.raises(ValueError, match="no column separates"):
        bad.__setstate__({"matrix": np.array([[1, -1], [1, -1], [-1, 1]])})


def test_the_outcome_of_a_solver_comes_back(tmp_path):
    model = SVMClassifier().fit(X, Y)
    again = restored(model, tmp_path / "model")
    assert again.bank_.status == model.bank_.status
    assert again.bank_.status[0] is model.bank_.status[0]


# --- what a file holds -------------------------------------------------------------------------------------


def test_description_without_loading(tmp_path, monkeypatch):
    model = make_pipeline(StandardScaler(), LSSVMClassifier(C=2.0)).fit(X, NAMES[Y])
    polymargin.save(model, tmp_path / "model", summary={"data": "trees", "when": {"year": np.int64(2024)}})
    monkeypatch.setitem(sys.modules, "skops.io", None)
    told = describe(tmp_path / "model")
    last = model[-1]
    assert told["format"] == _files.FORMAT
    assert told["summary"] == {"data": "trees", "when": {"year": 2024}}
    assert set(told["versions"]) == {"polymargin", "python", "numpy", "scipy", "scikit-learn", "skops"}
    assert told["versions"]["numpy"] == np.__version__
    training = told["training"]
    assert training["model"] == "Pipeline(StandardScaler, LSSVMClassifier)"
    assert (training["classes"], training["n_rows"], training["n_features"]) == (
        NAMES.tolist(),
        Y.size,
        X.shape[1],
    )
    assert (training["C"], training["gamma"], training["kernel"]) == (2.0, last.gamma_[0], last.kernel_.name)
    assert training["loo_log_loss"] == last.loo_log_loss_
    with pytest.raises(ImportError, match=r"its persist extra"):
        polymargin.load(tmp_path / "model")


def test_description_of_a_pool_and_of_machines_with_parameters_of_their_own(tmp_path):
    members = [LSSVMClassifier(**GIVEN), LSSVMClassifier(C=1.0, gamma=0.1, kernel="laplacian")]
    model = AutoKernelClassifier(members).fit(X, Y)
    polymargin.save(model, tmp_path / "model")
    told = describe(tmp_path / "model")["training"]
    assert [member["kernel"] for member in told["members"]] == ["rbf", "laplacian"]
    assert [member["weight"] for member in told["members"]] == model.weights_.tolist()
    model = LSSVMClassifier(shared_parameters=False, kernel="rbf", decoding="hamming").fit(X, Y)
    polymargin.save(model, tmp_path / "model")
    assert describe(tmp_path / "model")["training"]["C"] == model.C_.tolist()


def test_the_same_model_gives_the_same_file(tmp_path):
    for path in (tmp_path / "a", tmp_path / "b"):
        polymargin.save(LSSVMClassifier(**GIVEN).fit(X, Y), path)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_is_stored_twice_or_that_can_be_computed(tmp_path):
    members = [LSSVMClassifier(**GIVEN), LSSVMClassifier(C=1.0, gamma=0.1, kernel="rbf")]
    # From a table every member makes rows of its own; the file holds them once.
    polymargin.save(AutoKernelClassifier(members).fit(pd.DataFrame(X), Y), tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model") as archive:
        contents = [archive.read(name) for name in archive.namelist()]
        schema = archive.read("schema.json").decode()
    assert len(set(contents)) == len(contents)
    layouts = io.BytesIO(), io.BytesIO()
    np.save(layouts[0], np.asfortranarray(X))  # as new versions of pandas and scikit-learn hold them
    np.save(layouts[1], X)
    assert sum(contents.count(file.getvalue()) for file in layouts) == 1
    for name in ("column_groups", "distinct", "honest_margins"):
        assert name not in schema


def test_a_file_does_not_depend_on_what_was_asked_of_the_model(tmp_path):
    for model in (LSSVMClassifier(), LSSVMClassifier(decoding="softmax"), AutoKernelClassifier()):
        model.fit(X, Y)
        polymargin.save(model, tmp_path / "before")
        _ = model.predict_proba(X), model.loo_log_proba_, model.loo_log_loss_, model._repr_html_()
        polymargin.save(model, tmp_path / "after")
        with zipfile.ZipFile(tmp_path / "before") as one, zipfile.ZipFile(tmp_path / "after") as other:
            assert sorted(
                zlib.crc32(one.read(name)) for name in one.namelist() if name.endswith(".npy")
            ) == sorted(zlib.crc32(other.read(name)) for name in other.namelist() if name.endswith(".npy"))


def test_a_file_is_not_much_larger_than_its_arrays(tmp_path):
    rows, y = blobs(600, 3, d=20)
    model = LSSVMClassifier(**GIVEN).fit(rows, y)
    polymargin.save(model, tmp_path / "model")
    bank = model.bank_
    needed = (rows, bank.dual_coef, bank.loo_margins, model.loo_log_proba_)
    assert (tmp_path / "model").stat().st_size < sum(array.nbytes for array in needed) + 15_000


# --- what is refused when saving ---------------------------------------------------------------------------


def own_kernel(A, B):
    return A @ B.T


class OwnKernel(Polynomial):
    pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            SVMClassifier(kernel=own_kernel),
            r'model\.kernel is the function .*own_kernel.*kernel="precomputed"',
        ),
        (LSSVMClassifier(C=1.0, kernel=lambda A, B: A @ B.T), r"model\.kernel is the function .*<lambda>"),
        (
            make_pipeline(LSSVMClassifier(C=1.0, kernel=rbf_kernel)),
            r"steps\[0\]\[1\]\.kernel .*pairwise\.rbf_kernel",
        ),
        (LSSVMClassifier(C=1.0, kernel=OwnKernel()), r"model\.kernel is of the type .*OwnKernel"),
        (
            make_pipeline(FunctionTransformer(own_kernel, kw_args={"B": np.eye(3)}), KNNPosterior()),
            "own_kernel",
        ),
        (SVMClassifier(cv=StratifiedKFold(3)), r"model\.cv is of the type .*StratifiedKFold"),
        (LSSVMClassifier(decoding=Stack(RandomForestClassifier(2)), **GIVEN), r"sklearn\.tree\._tree\.Tree"),
    ],
    ids=["function", "lambda", "library function", "class", "transformer", "splitter", "trees"],
)
def test_what_a_file_cannot_hold_is_refused_by_name(model, message, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        polymargin.save(model.fit(X, Y), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_only_fitted_models_and_plain_summaries_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        polymargin.save(LSSVMClassifier(), tmp_path / "model")
    with pytest.raises(ModelFileError, match="only models"):
        polymargin.save({"model": 1}, tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"summary\['by'\]\[0\] is of the type object"):
        polymargin.save(KNNPosterior().fit(X, Y), tmp_path / "model", summary={"by": [object()]})
    assert os.listdir(tmp_path) == []


# --- versions ----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model"
    polymargin.save(KernelLogisticClassifier(**GIVEN).fit(X, Y), path)
    return path


def test_a_newer_format_says_which_version_reads_it(path):
    def change(manifest, members):
        manifest["format"], manifest["versions"]["polymargin"] = _files.FORMAT + 1, "7.1"
        members["schema.json"] = b"in a new language"

    rewritten(path, change)
    new, known = _files.FORMAT + 1, _files.FORMAT
    with pytest.raises(ModelFileError, match=rf"format {new}.*reads formats up to {known}.*polymargin 7\.1"):
        polymargin.load(path)
    assert describe(path)["format"] == new


def test_an_older_format_loads_or_says_why_not(path, monkeypatch):
    monkeypatch.setattr(_files, "FORMAT", _files.FORMAT + 1)
    polymargin.load(path)
    monkeypatch.setattr(_files, "OLDEST_FORMAT", _files.FORMAT)
    with pytest.raises(
        ModelFileError, match=f"no longer reads: load it with polymargin {polymargin.__version__}"
    ):
        polymargin.load(path)


def test_models_of_version_0_1_are_refused_by_name(path):
    def change(manifest, members):
        manifest["format"], manifest["versions"]["polymargin"] = 1, "0.1.0"
        members["schema.json"] = b"with classes that have moved since"

    rewritten(path, change)
    with pytest.raises(
        ModelFileError, match=r"format 1.*no longer reads: load it with polymargin 0\.1\.0, which"
    ):
        polymargin.load(path)
    assert describe(path)["versions"]["polymargin"] == "0.1.0"


@pytest.mark.parametrize("number", [0, -1, True, "1", None, 1.5])
def test_what_is_no_format_is_refused(path, number):
    rewritten(path, lambda manifest, members: manifest.update(format=number))
    with pytest.raises(ModelFileError, match="which is none"):
        polymargin.load(path)


@pytest.mark.parametrize(("release", "warns"), [("0.24.2", True), ("2.0.0", True), ("{}.99", False)])
def test_another_release_of_scikit_learn_gives_a_warning(path, release, warns):
    running = describe(path)["versions"]["scikit-learn"]
    release = release.format(".".join(running.split(".")[:2]))
    rewritten(path, lambda manifest, members: manifest["versions"].update({"scikit-learn": release}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        polymargin.load(path)
    found = [warning for warning in caught if warning.category is ModelVersionWarning]
    assert len(found) == warns
    if warns:
        assert f"scikit-learn {release}" in str(found[0].message)
        assert found[0].filename == __file__


# --- damage ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files():
    return {name: (fuzz.saved(model), rows) for name, (model, rows) in fuzz.models().items()}


def test_no_damaged_file_is_loaded(files, tmp_path):
    path = tmp_path / "model"
    for number in range(300):
        data = files[list(files)[number % len(files)]][0]
        path.write_bytes(fuzz.damaged(data, np.random.default_rng(number)))
        with pytest.raises(ModelFileError, match="model cannot be loaded"):
            polymargin.load(path)
        with pytest.raises(ModelFileError, match="model cannot be read"):
            describe(path)


def test_every_single_byte_counts(path):
    data = path.read_bytes()
    for place in [*range(0, len(data), 11), *range(len(data) - 120, len(data))]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ModelFileError):
            polymargin.load(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"no model at all" * 9, bytes(500)])
def test_other_files_are_no_models(content, tmp_path):
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ModelFileError, match="no polymargin model file"):
        polymargin.load(tmp_path / "model")
    with pytest.raises(FileNotFoundError):
        polymargin.load(tmp_path / "missing")
    with pytest.raises(ModelFileError, match="it is no file"):
        polymargin.load(tmp_path)


# --- forgery -----------------------------------------------------------------------------------------------


def test_nothing_in_a_forged_file_is_run(files, tmp_path):
    watch = fuzz.Watch()
    outcomes = set()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(200):
            data, rows = files[list(files)[number % len(files)]]
            forged = fuzz.forged(data, np.random.default_rng([1, number]))
            outcomes.add(fuzz.tried(forged, tmp_path / "model", rows, watch))
    assert watch.seen == []
    assert not fuzz.CANARY.exists()
    assert "refused" in outcomes


@pytest.mark.parametrize("loader", fuzz.LOADERS)
@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_no_kind_of_node_loads_what_could_be_called(loader, protocol, path):
    for call in fuzz.CALLS:
        node = fuzz.evil_node(loader, *call)

        def change(manifest, members, node=node):
            schema = json.loads(members["schema.json"])
            schema["content"]["content"]["kernel"] = node
            members["schema.json"] = json.dumps({**schema, "protocol": protocol}).encode()

        data = path.read_bytes()
        rewritten(path, change)
        with pytest.raises(ModelFileError) as refusal:
            polymargin.load(path)
        assert call[0] in str(refusal.value) or "operator" in str(refusal.value)
        assert call[1] in str(refusal.value)
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("polymargin.kernels.given", "np"),
        ("polymargin.kernels.given", "Callable"),
        ("polymargin.kernels", "RBF"),
        ("polymargin.kernels.rbf.RBF", "base"),
        ("polymargin.kernels.rbf", "RBF.base"),
        ("polymargin.kernels.no_such_module", "RBF"),
        ("polymargin.persistence._files", "save"),
        ("polymargin.cli", "app"),
        ("polymargin", "LSSVMClassifier"),
        ("polymargin.estimators.svm", "fit_svm_bank"),
    ],
)
def test_a_name_in_our_modules_is_not_yet_one_of_our_types(module, name):
    node = {"__loader__": "ObjectNode", "__module__": module, "__class__": name, "content": None}
    with pytest.raises(ModelFileError, match=re.escape(f"{module}.{name}")):
        check(node, {})


def test_a_bomb_is_not_unpacked(path, monkeypatch):
    data = path.read_bytes()

    def change(manifest, members):
        members["99.npy"] = bytes(24 * 2**20)

    monkeypatch.setattr(_container, "largest_unpacked", lambda packed_size: 10**12)
    rewritten(path, change)
    assert path.stat().st_size < 200_000
    monkeypatch.undo()
    monkeypatch.setattr(_container, "_unpacked", lambda archive, info: pytest.fail("it was unpacked"))
    with pytest.raises(ModelFileError, match="which no model does"):
        polymargin.load(path)
    monkeypatch.undo()
    # What we save ourselves is never taken for a bomb: it is not compressed if it would look like one.
    path.write_bytes(data)
    rewritten(path, change)
    assert path.stat().st_size > 24 * 2**20
    polymargin.load(path)


def test_a_huge_tree_of_objects_is_not_parsed(path, monkeypatch):
    monkeypatch.setattr(_container, "_LARGEST_JSON", 1000)
    with pytest.raises(ModelFileError, match="more than the 1000 that are read"):
        polymargin.save(LSSVMClassifier(**GIVEN).fit(X, Y), path)
    with pytest.raises(ModelFileError, match="more than the 1000 that are read"):
        polymargin.load(path)


@pytest.mark.parametrize(
    "schema", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b"", b"\xff", b"1"]
)
def test_a_schema_that_is_none_is_refused(schema, path):
    rewritten(path, lambda manifest, members: members.update({"schema.json": schema}))
    with pytest.raises(ModelFileError):
        polymargin.load(path)


@pytest.mark.parametrize("first", ["BytesNode", None])
@pytest.mark.parametrize("place", [-1, 3, 2**31 - 1])
def test_indices_that_point_outside_a_sparse_matrix_are_refused(first, place, tmp_path):
    path = tmp_path / "model"
    polymargin.save(KernelLogisticClassifier(**GIVEN).fit(sparse.csr_matrix(X), Y), path)

    def change(manifest, members):
        schema = json.loads(members["schema.json"])
        (name,) = (name for name in members if name.endswith("npz"))
        matrix = sparse.load_npz(io.BytesIO(members[name]))
        matrix.indices[5] = place
        file = io.BytesIO()
        sparse.save_npz(file, matrix)
        members[name] = file.getvalue()
        if first:  # that a node of another kind has been there already must not matter
            other = {"__loader__": first, "__module__": "builtins", "__class__": "bytes", "file": name}
            schema["content"]["content"] = {"tol": other, **schema["content"]["content"]}
        members["schema.json"] = json.dumps(schema).encode()

    rewritten(path, change)
    with pytest.raises(ModelFileError, match=r"sparse matrix .* is not one"):
        polymargin.load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"(45, 3)", b"(45, 4)"),
        (b"(45, 3)", b"(9999999999, 99999999999)"),
        (b"<f8", b"|O8"),
        (b"<f8", b"<U0"),
        (b"'<f8'", b"[('a', '<f8')]"),
        (b"(45, 3)", b"(45, --3)"),
        (b"\x93NUMPY\x01", b"\x93NUMPY\x03"),
        (b"\x93NUMPY", b"PK\x03\x04\x00\x00"),
        (b"\x93NUMPY", b"\x80\x04cos\n"),
    ],
)
def test_arrays_are_what_their_headers_say(old, new, path):
    def change(manifest, members):
        file = io.BytesIO()
        np.save(file, X)
        (name,) = (name for name, content in members.items() if content == file.getvalue())
        padded = members[name].replace(old, new, 1).replace(b"  ", b"  " + b" " * (len(old) - len(new)), 1)
        members[name] = (
            padded if len(new) <= len(old) else padded.replace(b" " * (len(new) - len(old)), b"", 1)
        )

    rewritten(path, change)
    with pytest.raises(ModelFileError, match=r"its array \d+\.npy"):
        polymargin.load(path)


def test_names_of_members_are_checked(path):
    data = path.read_bytes()
    for name in ("../up.npy", "/etc/passwd", "a/b.npy", "c:\\x.npy", "x.py"):
        path.write_bytes(data)
        rewritten(path, lambda manifest, members, name=name: members.update({name: b""}))
        with pytest.raises(ModelFileError, match="strange name"):
            polymargin.load(path)


def resealed(body):
    return body + _container._digest(body).encode()


def test_two_members_of_a_name_are_refused(path):
    data = path.read_bytes()
    buffer = io.BytesIO(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr("schema.json", b"{}")
    path.write_bytes(resealed(buffer.getvalue()[:-64]))
    with pytest.raises(ModelFileError, match="two members of the same name"):
        polymargin.load(path)


def test_what_zip_does_not_look_at_changes_nothing(path):
    data = path.read_bytes()
    expected = polymargin.load(path).predict_proba(X_NEW)
    dated = bytearray(data[:-64])
    dated[10:14] = b"\x12\x34\x56\x78"  # the time and date of the first member
    path.write_bytes(bytes(dated) + data[-64:])
    with pytest.raises(ModelFileError, match="damaged"):
        polymargin.load(path)
    path.write_bytes(resealed(bytes(dated)))
    assert_array_equal(polymargin.load(path).predict_proba(X_NEW), expected)


# --- writing -----------------------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file(path, monkeypatch):
    old = path.read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    for without in ("none", "O_TMPFILE"):
        if without != "none":
            monkeypatch.delattr(os, without, raising=False)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full_disk)
            with pytest.raises(OSError, match="No space left"):
                polymargin.save(KNNPosterior().fit(X, Y), path)
        assert os.listdir(path.parent) == ["model"]
        assert path.read_bytes() == old
    polymargin.save(KNNPosterior().fit(X, Y), path)
    assert isinstance(polymargin.load(path), KNNPosterior)
    assert os.listdir(path.parent) == ["model"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are a thing of Linux")
def test_a_process_that_is_killed_leaves_the_old_file(path):
    old = path.read_bytes()
    program = (
        "import os, runpy, signal, sys\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "runpy.run_path(sys.argv[1])['write_atomically'](sys.argv[2], bytes(10**6))\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, _output.__file__, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.listdir(path.parent) == ["model"]
    assert path.read_bytes() == old


def test_permissions_links_and_folders(path, tmp_path):
    model = KNNPosterior().fit(X, Y)
    (tmp_path / "plain").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "link").symlink_to(path)
    polymargin.save(model, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert isinstance(polymargin.load(path), KNNPosterior)
    with pytest.raises(IsADirectoryError):
        polymargin.save(model, tmp_path)
    with pytest.raises(FileNotFoundError):
        polymargin.save(model, tmp_path / "no" / "model")


def test_nothing_is_imported_before_it_is_needed(tmp_path):
    polymargin.save(LSSVMClassifier(**GIVEN).fit(X, Y), tmp_path / "model")
    program = (
        "import sys, polymargin\n"
        "assert {'save', 'load'} <= set(polymargin.__all__)\n"
        "assert 'skops' not in sys.modules\n"
        "polymargin.load(sys.argv[1])\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "model"], check=True)
