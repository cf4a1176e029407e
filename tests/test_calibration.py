"""Calibration errors and reliability curves, against brute force and generators whose posterior is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from polymargin.datasets import generators
from polymargin.metrics import brier_score, calibration_error, class_loss, refinement, reliability_curve
from posteriors import counting, naive_bins, problem


def naive_error(values, happened, weights, n_bins):
    error = 0.0
    for rows in naive_bins(values, weights, n_bins):
        mass = sum(weights[i] for i in rows)
        promised = sum(weights[i] * values[i] for i in rows) / mass
        came = sum(weights[i] * happened[i] for i in rows) / mass
        error += mass / sum(weights) * abs(promised - came)
    return error


@pytest.mark.parametrize("n_bins", [1, 4, 15, None])
@pytest.mark.parametrize(("seed", "decimals"), [(0, None), (1, 1), (2, 1), (3, 2)])
def test_calibration_error_is_brute_force(seed, decimals, n_bins):
    index, p, weights = problem(seed, decimals=decimals)
    for w in (None, weights):
        y, q, counts = counting(index, p, np.ones(60, int) if w is None else w)
        top = naive_error(q.max(axis=1).tolist(), (q.argmax(axis=1) == y).tolist(), counts, n_bins)
        assert calibration_error(index, p, n_bins=n_bins, sample_weight=w) == pytest.approx(top, abs=1e-12)
        each = [naive_error(q[:, k].tolist(), (y == k).tolist(), counts, n_bins) for k in range(3)]
        found = calibration_error(index, p, kind="class-wise", n_bins=n_bins, sample_weight=w)
        assert found == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("of", [None, 0, 2])
def test_curve_is_brute_force_and_its_error_the_calibration_error(of):
    index, p, weights = problem(5, n=90, decimals=1)
    y, q, counts = counting(index, p, weights)
    values = (q.max(axis=1) if of is None else q[:, of]).tolist()
    happened = q.argmax(axis=1) == y if of is None else y == of
    curve = reliability_curve(index, p, of=of, n_bins=6, sample_weight=weights)
    bins = naive_bins(values, counts, 6)
    assert curve.count.tolist() == [len(rows) for rows in bins]
    assert_allclose(curve.share, [sum(counts[i] for i in rows) / sum(counts) for rows in bins])
    frequency = [np.average(happened[rows], weights=[counts[i] for i in rows]) for rows in bins]
    assert_allclose(curve.observed, frequency, atol=1e-14)
    assert np.all(np.diff(curve.predicted) > 0)
    assert np.all((curve.low <= curve.observed + 1e-12) & (curve.observed <= curve.high + 1e-12))
    if of is None:
        assert curve.error == pytest.approx(calibration_error(index, p, n_bins=6, sample_weight=weights))


def test_wilson_interval_solves_its_equation():
    # The ends are the frequencies f for which |observed − f| = z sqrt(f (1 − f) / n).
    index = np.array([0] * 7 + [1] * 3)
    curve = reliability_curve(index, np.tile([0.8, 0.2], (10, 1)), level=0.9)
    for end in (curve.low[0], curve.high[0]):
        assert abs(0.7 - end) == pytest.approx(1.6448536 * math.sqrt(end * (1 - end) / 10), rel=1e-6)
    sure = reliability_curve(np.zeros(5, int), np.tile([1.0, 0.0], (5, 1)))
    assert (sure.observed[0], sure.high[0]) == (1.0, 1.0)
    assert 0.5 < sure.low[0] < 0.6


def test_ties_are_not_parted_and_order_does_not_matter():
    constant = np.tile([0.6, 0.3, 0.1], (20, 1))
    index = np.arange(20) % 3
    assert reliability_curve(index, constant).count.tolist() == [20]
    assert calibration_error(index, constant) == pytest.approx(0.6 - 7 / 20)
    index, p, weights = problem(8, decimals=1)
    order = np.random.default_rng(0).permutation(index.size)
    for kind in ("top-label", "class-wise"):
        assert calibration_error(index, p, kind=kind, sample_weight=weights) == pytest.approx(
            calibration_error(index[order], p[order], kind=kind, sample_weight=weights[order]), abs=1e-14
        )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 20))
def test_weights_are_copies_of_rows(seed, n_classes, n_bins):
    index, p, weights = problem(seed, n=25, n_classes=n_classes, decimals=1)
    weights[0] = 1
    y, q = np.repeat(index, weights), np.repeat(p, weights, axis=0)
    for score in (
        calibration_error,
        class_loss,
        brier_score,
        lambda i, v, sample_weight=None: calibration_error(
            i, v, kind="class-wise", n_bins=n_bins, sample_weight=sample_weight
        ),
        lambda i, v, sample_weight=None: refinement(i, v, n_bins=n_bins, sample_weight=sample_weight),
    ):
        assert score(index, p, sample_weight=weights) == pytest.approx(score(y, q), abs=1e-12)


def test_equal_mass():
    index, p, _ = problem(3, n=1000)
    counts = reliability_curve(index, p, n_bins=10).count
    assert counts.sum() == 1000
    assert np.all(np.abs(counts - 100) <= 1)


def test_error_of_calibrated_probabilities_vanishes():
    waveform = generators()["waveform"]
    errors = []
    for n in (200, 2000, 20_000):
        X, y = waveform.sample(n, random_state=1)
        posterior = waveform.posterior(X)
        errors.append((calibration_error(y, posterior), calibration_error(y, posterior, kind="class-wise")))
    assert np.all(np.diff(np.array(errors), axis=0) < 0)
    assert max(errors[-1]) < 0.012
    sharpened = posterior**3 / (posterior**3).sum(axis=1, keepdims=True)
    assert calibration_error(y, sharpened) > 5 * errors[-1][0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibration_error(["a", "b"], [[0.5, 0.5]] * 2), "searchsorted"),
        (lambda: calibration_error([0, 2], [[0.5, 0.5]] * 2), "between 0 and 1"),
        (lambda: calibration_error([0, 1], [[0.5, 0.6]] * 2), "sum one"),
        (lambda: calibration_error([0, 1], [[0.5, np.nan]] * 2), "probabilities"),
        (lambda: calibration_error([0, 1], [[0.5, 0.5]]), r"shape \(2, K\)"),
        (lambda: calibration_error([0, 1], [[0.5, 0.5]] * 2, kind="all"), "kind"),
        (lambda: calibration_error([0, 1], [[0.5, 0.5]] * 2, n_bins=0), "n_bins"),
        (lambda: calibration_error([0, 1], [[0.5, 0.5]] * 2, sample_weight=[0, 0]), "not zero for all"),
        (lambda: calibration_error([0, 1], [[0.5, 0.5]] * 2, sample_weight=[1]), "one weight for each"),
        (lambda: reliability_curve([0, 1], [[0.5, 0.5]] * 2, of=2), "0 to 1"),
        (lambda: reliability_curve([0, 1], [[0.5, 0.5]] * 2, level=95), "between 0 and 1"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
