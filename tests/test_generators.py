"""The generators against brute force, against frequencies, and against the real files."""

import os
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from polymargin import datasets
from polymargin.datasets import generators, load
from polymargin.datasets._catalog import CATALOG
from polymargin.datasets.generators import Led7, _log_normal_mass

NAMES = ("led7", "waveform", "twonorm", "r1", "r2", "r3", "r4")
SHAPES = {"led7": (7, 10), "waveform": (21, 3), "twonorm": (20, 2)} | {
    "r1": (2, 2),
    "r2": (2, 2),
    "r3": (2, 3),
    "r4": (2, 3),
}
needs_files = pytest.mark.skipif(
    not os.environ.get("POLYMARGIN_DATA"),
    reason="set POLYMARGIN_DATA to the folder with the <name>.csv.gz files",
)

# Gönen et al. (2008), Table I, typed a second time, as full matrices.
TABLE_I = {
    "r1": [(0.7, [0, 0], [[2, 0], [0, 4]]), (0.3, [2, 2], [[2, 0], [0, 4]])],
    "r2": [(0.7, [0, 0], [[0.25, 0], [0, 1]]), (0.3, [2, 0], [[1, 0], [0, 0.25]])],
    "r3": [
        (0.5, [0, 0], [[2, 0], [0, 4]]),
        (0.3, [2, 0], [[2, 0], [0, 4]]),
        (0.2, [2, 2], [[2, 0], [0, 4]]),
    ],
    "r4": [
        (0.5, [0, 0], [[0.25, 0], [0, 1]]),
        (0.3, [2, 0], [[1, 0], [0, 0.25]]),
        (0.2, [2, 2], [[1, 0], [0, 1]]),
    ],
}


def normalise(joint):
    joint = np.asarray(joint)
    return joint / joint.sum(axis=-1, keepdims=True)


def test_all_are_listed():
    assert tuple(generators()) == NAMES
    assert all(generators()[name].name == name for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_make_function_draws_from_the_generator(name):
    make = getattr(datasets, f"make_{name}")
    X, y = make(50, random_state=3)
    n_features, n_classes = SHAPES[name]
    assert X.shape == (50, n_features)
    assert X.dtype == np.float64
    assert y.shape == (50,)
    assert y.dtype == np.int64
    assert_array_equal(generators()[name].classes, np.arange(n_classes))
    again = generators()[name].sample(50, random_state=3)
    assert_array_equal(X, again[0])
    assert_array_equal(y, again[1])
    assert not np.array_equal(X, make(50, random_state=4)[0])


@pytest.mark.parametrize("name", NAMES)
def test_random_state_object_moves_on(name):
    rng = np.random.RandomState(0)
    first, _ = generators()[name].sample(20, rng)
    second, _ = generators()[name].sample(20, rng)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("name", NAMES)
def test_posterior_sums_to_one_also_far_away(name):
    generator = generators()[name]
    X, _ = generator.sample(200, random_state=0)
    scales = (1,) if name == "led7" else (1, 100, 1e6)
    for scale in scales:
        P = generator.posterior(scale * X)
        assert np.isfinite(P).all()
        assert (P >= 0).all()
        assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
        assert_array_equal(generator.bayes_labels(scale * X), P.argmax(axis=1))


@pytest.mark.parametrize("name", NAMES)
def test_labels_come_as_often_as_the_posterior_says(name):
    generator = generators()[name]
    n = 60_000
    X, y = generator.sample(n, random_state=1)
    assert_allclose(np.bincount(y) / n, generator.priors, atol=4 * np.sqrt(0.25 / n))
    P = generator.posterior(X)
    for c in generator.classes:
        p, hit = P[:, c], y == c
        bins = np.digitize(p, np.linspace(0, 1, 11)[1:-1])
        for b in np.unique(bins):
            inside = bins == b
            # The hits are independent, each with its own p: the sum's variance is known exactly.
            spread = np.sqrt((p[inside] * (1 - p[inside])).sum())
            assert abs(hit[inside].sum() - p[inside].sum()) < 4.5 * spread + 1


def test_led7_posterior_by_enumeration():
    patterns = np.array(list(product((0.0, 1.0), repeat=7)))
    generator = generators()["led7"]
    codes = ("1110111", "0010010", "1011101", "1011011", "0111010")
    codes += ("1101011", "1101111", "1010010", "1111111", "1111011")
    joint = np.array(
        [
            [
                0.1 * np.prod([0.9 if x == int(bit) else 0.1 for x, bit in zip(row, code, strict=True)])
                for code in codes
            ]
            for row in patterns
        ]
    )
    assert_allclose(joint.sum(), 1.0)
    assert_allclose(generator.posterior(patterns), normalise(joint), rtol=1e-12)
    assert joint.max(axis=1).sum() == pytest.approx(0.74, abs=0.005)  # Breiman et al. (1984)


def test_led7_flips_a_tenth_of_the_segments():
    X, y = datasets.make_led7(20_000, random_state=0)
    assert np.mean(Led7.CODES[y] != X) == pytest.approx(0.1, abs=0.003)
    X, y = datasets.make_led7(20_000, noise=0.3, random_state=0)
    assert np.mean(Led7.CODES[y] != X) == pytest.approx(0.3, abs=0.005)


def test_waveform_posterior_by_quadrature():
    generator = generators()["waveform"]
    X, _ = generator.sample(12, random_state=5)
    i = np.arange(1, 22)

    def h(c):
        return np.maximum(6 - np.abs(i - c), 0)

    def likelihood(x, a, b):
        def density(u):
            return np.exp(-0.5 * ((x - u * h(a) - (1 - u) * h(b)) ** 2).sum() + 10)

        return quad(density, 0, 1, epsabs=0, epsrel=1e-11)[0]

    joint = [[likelihood(x, *pair) for pair in ((7, 15), (7, 11), (11, 15))] for x in X]
    assert_allclose(generator.posterior(X), normalise(joint), rtol=1e-8)


def test_normal_mass_in_the_tails():
    low = np.array([-9.0, -1.0, 2.0, 30.0, -35.0])
    high = low + np.array([3.0, 2.0, 7.0, 1.0, 5.0])
    mass = _log_normal_mass(low, high)
    assert_allclose(mass, _log_normal_mass(-high, -low), rtol=1e-14)
    assert_allclose(mass[:3], np.log(norm.cdf([-6, 1, -2]) - norm.cdf([-9, -1, -9])), rtol=1e-9)


def test_twonorm_posterior_is_logistic():
    X, _ = datasets.make_twonorm(100, random_state=0)
    expected = 1 / (1 + np.exp(-2 * (2 / np.sqrt(20)) * X.sum(axis=1)))
    assert_allclose(generators()["twonorm"].posterior(X)[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(TABLE_I))
def test_gaussian_posterior_by_scipy(name):
    X, _ = generators()[name].sample(100, random_state=0)
    joint = [prior * multivariate_normal(mean, cov).pdf(X) for prior, mean, cov in TABLE_I[name]]
    assert_allclose(generators()[name].posterior(X), normalise(np.transpose(joint)), rtol=1e-10)


@pytest.mark.parametrize("name", sorted(TABLE_I))
def test_gaussian_moments(name):
    X, y = generators()[name].sample(40_000, random_state=0)
    for c, (_, mean, cov) in enumerate(TABLE_I[name]):
        assert_allclose(X[y == c].mean(axis=0), mean, atol=0.1)
        assert_allclose(np.cov(X[y == c].T), cov, atol=0.2)


@pytest.mark.parametrize(
    ("name", "accuracy"), [("led7", 0.74), ("waveform", 0.86), ("twonorm", norm.cdf(2.0))]
)
def test_bayes_accuracy(name, accuracy):
    generator = generators()[name]
    X, y = generator.sample(40_000, random_state=2)
    assert np.mean(generator.bayes_labels(X) == y) == pytest.approx(accuracy, abs=0.01)
    # The mean of the largest posterior estimates the same number with less noise.
    assert generator.posterior(X).max(axis=1).mean() == pytest.approx(accuracy, abs=0.007)


@needs_files
@pytest.mark.parametrize(
    ("file", "name", "accuracy"),
    [
        ("led7_3200", "led7", 0.74),
        ("led7digit", "led7", 0.74),
        ("waveform", "waveform", 0.86),
        ("twonorm", "twonorm", 0.977),
    ],
)
def test_real_files_follow_the_generators(file, name, accuracy):
    data = load(file)
    if not data.source.startswith("file"):
        pytest.skip(f"put {file}.csv.gz into the folder that POLYMARGIN_DATA names")
    P = generators()[name].posterior(data.X)
    right = P[np.arange(len(data.y)), data.y]
    noise = 4 * np.sqrt(accuracy * (1 - accuracy) / len(data.y))
    assert np.mean(P.argmax(axis=1) == data.y) == pytest.approx(accuracy, abs=noise + 0.005)
    # If the labels are drawn from P, the true label's probability averages to sum P², for any P.
    assert right.mean() == pytest.approx((P**2).sum(axis=1).mean(), abs=noise)


@pytest.mark.parametrize("name", ["led7_3200", "led7digit", "twonorm", "waveform"])
def test_load_draws_anew_without_the_file(name, monkeypatch):
    monkeypatch.delenv("POLYMARGIN_DATA", raising=False)
    first, second = load(name), load(name)
    known = CATALOG[name]
    assert (*first.X.shape, first.n_classes) == (known.n_samples, known.n_features, known.n_classes)
    assert "generator" in first.source
    assert_array_equal(first.X, second.X)
    assert_array_equal(first.y, second.y)


def test_errors():
    with pytest.raises(ValueError, match="2 features, X has 3"):
        generators()["r1"].posterior(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="0 or 1"):
        generators()["led7"].posterior(np.full((1, 7), 0.5))
    with pytest.raises(ValueError, match="strictly between"):
        datasets.make_led7(5, noise=0.0)
    assert repr(generators()["r1"]) == "<generator r1: 2 features, 2 classes>"
