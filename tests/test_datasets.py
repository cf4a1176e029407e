"""Datasets: every shared file, the other sources, the papers' preparation, and the error paths."""

import gzip
import json
import os
from collections import Counter
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from polymargin import datasets as ds
from polymargin.datasets import Dataset, DatasetNotFound, Split, _sources, load, load_for, one_hot

needs_files = pytest.mark.skipif(
    not os.environ.get("POLYMARGIN_DATA"),
    reason="set POLYMARGIN_DATA to the folder with the <name>.csv.gz files",
)

SEGMENT = ("BRICKFACE", "CEMENT", "FOLIAGE", "GRASS", "PATH", "SKY", "WINDOW")
ZOO = {"amphibian": 4, "bird": 20, "fish": 13, "insect": 8, "invertebrate": 10, "mammal": 41, "reptile": 5}
# name: rows, features, class counts in the order of the sorted labels, typed from the table beside the files.
TABLE = {
    "balance": (625, 4, {"B": 49, "L": 288, "R": 288}),
    "banana": (5300, 2, {-1: 2924, 1: 2376}),
    "bupa": (345, 6, {1: 145, 2: 200}),
    "car": (1728, 6, {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}),
    "car_onehot": (1728, 21, {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}),
    "contraceptive": (1473, 9, {1: 629, 2: 333, 3: 511}),
    "contraceptive_onehot": (1473, 24, {1: 629, 2: 333, 3: 511}),
    "covtype_15k": (15000, 54, {1: 5487, 2: 7292, 3: 931, 4: 67, 5: 238, 6: 466, 7: 519}),
    "dermatology": (366, 34, {1: 112, 2: 61, 3: 72, 4: 49, 5: 52, 6: 20}),
    "digits": (1797, 64, dict(enumerate([178, 182, 177, 183, 181, 182, 181, 179, 174, 180]))),
    "german_numeric": (1000, 24, {1: 700, 2: 300}),
    "glass": (214, 9, {1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29}),
    "heart": (270, 13, {1: 150, 2: 120}),
    "ionosphere": (351, 34, {"b": 126, "g": 225}),
    "iris": (150, 4, {"Iris-setosa": 50, "Iris-versicolor": 50, "Iris-virginica": 50}),
    "led7_3200": (3200, 7, dict(enumerate([325, 333, 319, 270, 336, 335, 341, 304, 327, 310]))),
    "led7digit": (500, 7, dict(enumerate([45, 37, 51, 57, 52, 52, 47, 57, 53, 49]))),
    "letter": (20000, 16, None),
    "mnist": (70000, 784, dict(enumerate([6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]))),
    "new_thyroid": (215, 5, {1: 150, 2: 35, 3: 30}),
    "pima": (768, 8, {0: 500, 1: 268}),
    "satimage": (6435, 36, {1: 1533, 2: 703, 3: 1358, 4: 626, 5: 707, 7: 1508}),
    "segment": (2310, 19, dict.fromkeys(SEGMENT, 330)),
    "sonar": (208, 60, {"M": 111, "R": 97}),
    "soybean_large": (683, 35, None),
    "soybean_small": (47, 35, {"D1": 10, "D2": 10, "D3": 10, "D4": 17}),
    "spambase": (4601, 57, {0: 2788, 1: 1813}),
    "splice": (3190, 60, {"EI": 767, "IE": 768, "N": 1655}),
    "splice_onehot": (3190, 240, {"EI": 767, "IE": 768, "N": 1655}),
    "twonorm": (7400, 20, {0: 3703, 1: 3697}),
    "usps": (9298, 256, dict(enumerate([1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821]))),
    "vehicle": (846, 18, {"bus": 218, "opel": 212, "saab": 217, "van": 199}),
    "vowel": (990, 10, dict.fromkeys(range(11), 90)),
    "waveform": (5000, 21, {0: 1657, 1: 1647, 2: 1696}),
    "wdbc": (569, 30, {"B": 357, "M": 212}),
    "wine": (178, 13, {1: 59, 2: 71, 3: 48}),
    "zoo": (101, 16, ZOO),
}


def table(text):
    """Read "name 1 2, other 3 4" as {name: (1, 2), other: (3, 4)}."""
    rows = (row.split() for row in text.split(","))
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


SPLITS = table(
    "letter 16000 4000, mnist 60000 10000, satimage 4435 2000, segment 210 2100, soybean_large 307 376, "
    "spambase 3065 1536, usps 7291 2007, vowel 528 462"
)
MISSING = {"dermatology": (8, 8), "soybean_large": (2337, 121)}
TEXT = ("car", "contraceptive", "splice")


@pytest.fixture
def no_folder(monkeypatch):
    """Neither a data folder nor the internet."""

    def offline(**_):
        raise URLError("no network")

    monkeypatch.delenv("POLYMARGIN_DATA", raising=False)
    monkeypatch.setattr(_sources, "fetch_openml", offline)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a function that writes files into an otherwise empty data folder."""
    monkeypatch.setenv("POLYMARGIN_DATA", str(tmp_path))

    def write(name, text, split=None):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt", encoding="utf-8") as stream:
            stream.write(text)
        if split is not None:
            (tmp_path / f"{name}.split.json").write_text(json.dumps(split), encoding="utf-8")

    return write


def test_names_are_those_of_the_table():
    assert ds.names() == tuple(sorted(TABLE))


@needs_files
@pytest.mark.parametrize("name", sorted(TABLE))
def test_file(name):
    """All that is to be said about one file at once, so that the large ones are read once."""
    data = load(name)
    if not data.source.startswith("file"):
        pytest.skip(f"put {name}.csv.gz into the folder that POLYMARGIN_DATA names")
    n_samples, n_features, counts = TABLE[name]
    assert (data.X.shape, data.name) == ((n_samples, n_features), name)
    found = Counter(data.y.tolist())
    assert counts is None or found == counts
    assert data.n_classes == len(found)
    assert data.y.dtype.kind == ("i" if isinstance(next(iter(found)), int) else "U")
    assert data.X.dtype == (object if name in TEXT else np.uint8 if name == "mnist" else np.float64)
    missing = data.missing
    assert (missing.sum(), missing.any(axis=1).sum()) == MISSING.get(name, (0, 0))
    assert data.has_missing == (name in MISSING)
    assert (data.split is not None) == (name in SPLITS)
    if data.split is not None:
        assert (len(data.split.train), len(data.split.test)) == SPLITS[name]
        assert_array_equal(np.sort(np.concatenate(data.split)), np.arange(n_samples))


@needs_files
def test_letter_and_soybean_classes():
    counts = np.unique(load("letter").y, return_counts=True)[1]
    assert (len(counts), counts.min(), counts.max()) == (26, 734, 813)
    counts = np.unique(load("soybean_large").y, return_counts=True)[1]
    assert sorted(counts) == [8, 14, 15, 16, *[20] * 9, 44, 44, 88, 91, 91, 92]


@needs_files
def test_vowel_extras_name_the_speakers():
    vowel = load("vowel")
    assert set(vowel.extras) == {"speaker", "sex"}
    assert_array_equal(np.unique(vowel.extras["speaker"][vowel.split.train]), np.arange(8))
    assert_array_equal(np.unique(vowel.extras["speaker"][vowel.split.test]), np.arange(8, 15))


@needs_files
def test_text_columns():
    car, contraceptive = load("car"), load("contraceptive")
    assert car.nominal == car.feature_names
    assert car.X[0].tolist() == ["vhigh", "vhigh", "2", "2", "small", "low"]
    assert contraceptive.X[0].tolist() == [24.0, "2", "3", 3.0, "1", "1", "2", "3", "0"]


@needs_files
@pytest.mark.parametrize("name", ["iris", "wine", "wdbc"])
def test_sklearn_gives_what_the_file_gives(name, monkeypatch):
    file = load(name)
    monkeypatch.setenv("POLYMARGIN_DATA", "")
    bundled = load(name)
    assert (file.source[:4], bundled.source[:12]) == ("file", "scikit-learn")
    assert_array_equal(bundled.X, file.X)
    assert_array_equal(bundled.y, file.y)
    assert bundled.feature_names == file.feature_names


@needs_files
@pytest.mark.parametrize(
    ("name", "categories"), [("car", None), ("contraceptive", None), ("splice", ("A", "C", "G", "T"))]
)
def test_one_hot_gives_what_the_derived_file_gives(name, categories):
    ours, file = one_hot(load(name), categories=categories), load(f"{name}_onehot")
    assert sorted(ours.feature_names) == sorted(file.feature_names)
    order = [ours.feature_names.index(column) for column in file.feature_names]
    assert_array_equal(ours.X[:, order], file.X)


@pytest.mark.usefixtures("no_folder")
def test_bundled_sets_without_a_folder():
    for name in ("digits", "iris", "wine", "wdbc"):
        n_samples, n_features, counts = TABLE[name]
        X, y = load(name, return_X_y=True)
        assert X.shape == (n_samples, n_features)
        assert Counter(y.tolist()) == counts
    assert repr(load("wine")) == "Dataset('wine': 178 rows, 13 features, 3 classes)"


def fake_openml(X, target):
    def fetch(*, data_id, as_frame, **_):
        assert data_id == 41
        assert not as_frame
        names = [f"a{j}" for j in range(X.shape[1])]
        return SimpleNamespace(data=X, target=np.array(target, dtype=object), feature_names=names)

    return fetch


GLASS = ["build wind float"] * 70 + ["'build wind non-float'"] * 76 + ["vehic wind float"] * 17
GLASS += ["containers"] * 13 + ["tableware"] * 9 + ["headlamps"] * 29


def test_openml_labels_are_translated(no_folder, monkeypatch):
    monkeypatch.setattr(_sources, "fetch_openml", fake_openml(np.zeros((214, 9)), GLASS))
    glass = load("glass")
    assert (glass.source, glass.split) == ("OpenML 41 through scikit-learn", None)
    assert Counter(glass.y.tolist()) == TABLE["glass"][2]


def test_openml_of_another_size_is_refused(no_folder, monkeypatch):
    monkeypatch.setattr(_sources, "fetch_openml", fake_openml(np.zeros((214, 8)), GLASS))
    with pytest.raises(DatasetNotFound, match=r"\(214, 8, 6\), but \(214, 9, 6\)"):
        load("glass")


@pytest.mark.usefixtures("no_folder")
def test_nothing_there_says_what_to_set():
    with pytest.raises(
        DatasetNotFound, match=r"Set POLYMARGIN_DATA to a folder that holds glass\.csv\.gz.*no network"
    ):
        load("glass")
    with pytest.raises(FileNotFoundError, match=r"POLYMARGIN_DATA is not set") as caught:
        load("glass", download_if_missing=False)
    assert "OpenML" not in str(caught.value)
    with pytest.raises(DatasetNotFound, match=r"zoo\.csv\.gz"):
        load_for("vangestel2002", "zoo")


def test_folder_that_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("POLYMARGIN_DATA", str(tmp_path / "slip"))
    with pytest.raises(DatasetNotFound, match=r"not a folder"):
        load("wine")


def test_folder_without_the_file(monkeypatch, tmp_path, no_folder):
    monkeypatch.setenv("POLYMARGIN_DATA", str(tmp_path))
    assert load("wine").source.startswith("scikit-learn")
    with pytest.raises(DatasetNotFound, match=r"without that file"):
        load("zoo")


@pytest.mark.parametrize(
    ("name", "message"), [("wines", "wine"), ("soybean", "soybean_large"), ("????", r"balance.*zoo")]
)
def test_unknown_name(name, message):
    with pytest.raises(ValueError, match=message):
        load(name)


def test_missing_values_and_quotes(folder):
    folder("wine", 'a,b,class\n1,,x\n"2",-3e1,"y, z"\n')
    data = load("wine")
    assert_array_equal(data.X, [[1, np.nan], [2, -30]])
    assert data.y.tolist() == ["x", "y, z"]
    assert data.feature_names == ("a", "b")


def test_windows_line_ends_and_one_column(folder):
    folder("wine", "a,class\r\n1,-1\r\n2,+1\r\n")
    X, y = load("wine", return_X_y=True)
    assert (X.tolist(), y.tolist()) == ([[1], [2]], [-1, 1])


def test_missing_text(folder):
    folder("car", "buying,maint,class\nlow,,a\nhigh,2,b\n")
    data = load("car")
    assert data.X.tolist() == [["low", None], ["high", "2"]]
    assert data.missing.tolist() == [[False, True], [False, False]]
    assert one_hot(data).X.tolist() == [[0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "ends in 'class'"),
        ("a,class\n", "and data"),
        ("", "header row"),
        ("a,b,class\n1,2,x\n1,x\n", "line 3: 2 features"),
        ("a,b,class\n1,2,\n", "line 2"),
        ("a,b,class\n1,two,x\n", r"column 'b'.*'two'"),
    ],
)
def test_malformed_file(folder, text, message):
    folder("wine", text)
    with pytest.raises(ValueError, match=message):
        load("wine")


def test_split_forms(folder):
    text = "a,class\n0,x\n1,x\n2,y\n3,y\n"
    folder("wine", text, {"train": [[0, 1], [3, 4]], "test": [[1, 3]], "speaker": [5, 6, 7, 8], "note": "-"})
    data = load("wine")
    assert [part.tolist() for part in data.split] == [[0, 3], [1, 2]]
    assert data.extras["speaker"].tolist() == [5, 6, 7, 8]
    some = data.take([3, 1, 2])
    assert some.X.ravel().tolist() == [3, 1, 2]
    assert [part.tolist() for part in some.split] == [[0], [1, 2]]
    assert some.extras["speaker"].tolist() == [8, 6, 7]
    folder("wine", text, {"flag": "0110"})
    assert [part.tolist() for part in load("wine").split] == [[0, 3], [1, 2]]
    overlap, beyond = {"train": [[0, 3]], "test": [[2, 4]]}, {"train": [[0, 3]], "test": [[3, 5]]}
    for wrong in (overlap, beyond, {"flag": "01"}):
        folder("wine", text, wrong)
        with pytest.raises(ValueError, match=r"wine\.split\.json does not fit the 4 rows"):
            load("wine")


def test_dataset_checks_its_lengths():
    with pytest.raises(ValueError, match=r"2 rows but 1 labels"):
        Dataset("toy", np.zeros((2, 1)), np.zeros(1), ("a",), "here")
    with pytest.raises(ValueError, match=r"1 columns but 2 names"):
        Dataset("toy", np.zeros((2, 1)), np.zeros(2), ("a", "b"), "here")


TOY = Dataset(
    name="toy",
    X=np.array([[1.0, 0.0, 5.0], [1.0, np.nan, 5.0], [1.0, 1.0, np.nan]]),
    y=np.array([0, 0, 1]),
    feature_names=("constant", "code", "gap"),
    source="here",
    split=Split(np.array([0, 1]), np.array([2])),
    nominal=("constant", "code"),
)


def test_drop_constant_columns():
    data = ds.drop_constant_columns(TOY)
    assert (data.feature_names, data.nominal, data.X.shape) == (("code", "gap"), ("code",), (3, 2))
    assert data.source == "here; 1 constant columns dropped"


def test_drop_incomplete_rows():
    assert ds.drop_incomplete_rows(TOY).X.tolist() == [[1, 0, 5]]


def test_one_hot_of_numbers():
    data = one_hot(TOY)
    assert data.feature_names == ("constant=1", "code=0", "code=1", "gap")
    assert_array_equal(data.X[:, :3], [[1, 1, 0], [1, 0, 0], [1, 0, 1]])
    assert data.nominal == ()


def test_imputer_sees_training_rows_only():
    X, y = np.array([[0.0], [2.0], [np.nan], [100.0]]), np.array([0, 1, 1, 0])
    pipeline = make_pipeline(ds.training_imputer(), LogisticRegression()).fit(X[:2], y[:2])
    assert_allclose(pipeline[0].transform(X[2:]), [[1.0], [100.0]])
    assert ds.training_imputer().fit_transform(np.full((2, 1), np.nan)).shape == (2, 1)


@needs_files
def test_vangestel_table_one():
    sizes = table(  # Table I: inputs, rows, classes
        "bal 4 625 3, der 34 366 6, gla 9 214 6, iri 4 150 3, led 7 3200 10, nth 5 215 3, ssd 21 47 4, "
        "veh 18 846 4, win 13 178 3, zoo 16 101 7, usps 256 9298 10"
    )
    assert ds.paper_names("vangestel2002") == tuple(sizes)
    for name, size in sizes.items():
        data = load_for("vangestel2002", name)
        assert (data.X.shape[1], data.X.shape[0], data.n_classes) == size, name
        assert data.name == name


@needs_files
def test_mayoraz():
    soybean = load_for("mayoraz1998", "soybean")
    assert (len(soybean.X), soybean.n_classes, soybean.has_missing) == (683, 19, False)
    assert set(np.unique(soybean.X)) == {0.0, 1.0}
    complete = ds.drop_incomplete_rows(load("soybean_large"))
    assert (*complete.X.shape, complete.n_classes) == (562, 35, 15)
    assert load_for("mayoraz1998", "dermatology").has_missing


@needs_files
def test_gonen_table_three():
    # Table III: rows, classes, attributes; wdbc and vehicle have 569 and 846 rows, not 570 and 946.
    sizes = table(
        "banana 5300 2 2, germannumeric 1000 2 24, heart 270 2 13, ionosphere 351 2 34, "
        "liverdisorder 345 2 6, pima 768 2 8, sonar 208 2 60, spambase 4601 2 57, twonorm 7400 2 20, "
        "wdbc 569 2 30, balancescale 625 3 4, carevaluation 1728 4 21, contraceptive 1473 3 24, "
        "dna 3190 3 240, glass 214 6 9, iris 150 3 4, vehicle 846 4 18, vowel 990 11 10, "
        "waveform 5000 3 21, wine 178 3 13"
    )
    assert set(ds.paper_names("gonen2008")) == set(sizes)
    for name, size in sizes.items():
        data = load_for("gonen2008", name)
        assert (data.X.shape[0], data.n_classes, data.X.shape[1]) == size, name
        assert data.X.dtype == np.float64


def test_names_that_are_unlike_any_are_no_guesses():
    with pytest.raises(ValueError, match=r"no dataset 'qqqq'. Known: balance, "):
        load("qqqq")


def test_load_for_errors():
    with pytest.raises(ValueError, match=r"no paper 'nobody'.*vangestel2002"):
        load_for("nobody", "wine")
    with pytest.raises(ValueError, match=r"no dataset 'wins'.*win"):
        load_for("vangestel2002", "wins")
