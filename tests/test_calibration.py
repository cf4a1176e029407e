"""Calibration metrics, against brute force, identities and generators whose posterior is known."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import log_loss as sklearn_log_loss

from polymargin.datasets import generators
from polymargin.metrics import (
    accuracy,
    bootstrap_interval,
    brier_decomposition,
    brier_score,
    calibration_error,
    calibration_interval,
    class_loss,
    divergence_from_truth,
    log_loss,
    refinement,
    reliability_curve,
)


def problem(seed, n=60, n_classes=3, decimals=None):
    """Probabilities (rounded so that ties occur, if asked) and classes that know something of them."""
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.ones(n_classes), n)
    if decimals is not None:
        p = np.round(p, decimals)
        p[:, -1] = np.round(1.0 - p[:, :-1].sum(axis=1), decimals)
        p = np.abs(p)
        p /= p.sum(axis=1, keepdims=True)
    index = np.array([generator.choice(n_classes, p=0.7 * row + 0.3 / n_classes) for row in p])
    return index, p, generator.integers(0, 4, n)


def naive_bins(values, weights, n_bins):
    """Lists of rows: each distinct value goes to the bin in which the middle of its weight lies."""
    total, below, bins = sum(weights), 0, {}
    for value in sorted(set(values)):
        rows = [i for i, v in enumerate(values) if v == value]
        mass = sum(weights[i] for i in rows)
        middle = Fraction(2 * below + mass, 2 * total)
        below += mass
        number = len(bins) if n_bins is None else min(math.floor(middle * n_bins), n_bins - 1)
        bins.setdefault(number, []).extend(rows)
    return [bins[number] for number in sorted(bins)]


def naive_error(values, happened, weights, n_bins):
    error = 0.0
    for rows in naive_bins(values, weights, n_bins):
        mass = sum(weights[i] for i in rows)
        promised = sum(weights[i] * values[i] for i in rows) / mass
        came = sum(weights[i] * happened[i] for i in rows) / mass
        error += mass / sum(weights) * abs(promised - came)
    return error


def counting(index, p, weights):
    keep = weights > 0
    return index[keep], p[keep], [int(w) for w in weights[keep]]


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


# --- Brier -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_the_brier_score(seed):
    index, p, weights = problem(seed, n=80, decimals=1)
    for w in (None, weights):
        parts = brier_decomposition(index, p, n_bins=None, sample_weight=w)
        whole = brier_score(index, p, sample_weight=w)
        assert parts.within == pytest.approx(0.0, abs=1e-12)
        assert parts.calibration + parts.refinement == pytest.approx(whole, abs=1e-12)
        y, q, counts = counting(index, p, np.ones(80, int) if w is None else w)
        calibration = refined = 0.0
        for k in range(3):
            for rows in naive_bins(q[:, k].tolist(), counts, None):
                mass = [counts[i] for i in rows]
                came = np.average(y[rows] == k, weights=mass)
                calibration += sum(mass) / sum(counts) * (q[rows[0], k] - came) ** 2
                refined += sum(mass) / sum(counts) * came * (1 - came)
        assert (parts.calibration, parts.refinement) == pytest.approx((calibration, refined), abs=1e-12)
        shares = np.bincount(index, w, minlength=3) / (80 if w is None else w.sum())
        assert parts.uncertainty == pytest.approx(1 - np.square(shares).sum())
        assert 0.0 <= parts.resolution <= parts.uncertainty


def test_binned_parts_sum_up_with_what_binning_leaves_out():
    index, p, _ = problem(11, n=500)
    parts = brier_decomposition(index, p, n_bins=8)
    assert parts.brier == pytest.approx(brier_score(index, p))
    # within = Σ over bins of the variance of p minus twice its covariance with the outcome.
    within = 0.0
    for k in range(3):
        for rows in naive_bins(p[:, k].tolist(), [1] * 500, 8):
            spread, came = p[rows, k] - p[rows, k].mean(), (index[rows] == k) - (index[rows] == k).mean()
            within += (spread @ spread - 2 * spread @ came) / 500
    assert parts.within == pytest.approx(within, abs=1e-12)
    assert refinement(index, p, n_bins=8) == parts.refinement


def test_recalibration_leaves_the_refinement():
    index, p, _ = problem(2, n=300, n_classes=2, decimals=1)
    curve = reliability_curve(index, p, of=0, n_bins=None)
    mended = np.interp(p[:, 0], curve.predicted, curve.observed)
    score = brier_score(index, np.column_stack([mended, 1 - mended]))
    assert score == pytest.approx(refinement(index, p, n_bins=None), abs=1e-12)


# --- bootstrap ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "n_bins"), [(0.1, 5), (0.1, 15), (0.03, 10), (0.0, 15)])
def test_interval_covers_a_known_calibration_error(gap, n_bins):
    # Labels are right with probability (confidence − gap): that is the error whatever the bins.
    generator = np.random.default_rng(42)
    covered = far = 0
    for repetition in range(40):
        confidence = generator.uniform(0.6, 1.0, 300)
        index = (generator.random(300) > confidence - gap).astype(int)
        p = np.column_stack([confidence, 1 - confidence])
        found = calibration_interval(
            index, p, n_bins=n_bins, level=0.9, n_resamples=60, random_state=repetition
        )
        covered += found.low <= gap <= found.high
        far += found.low <= gap + 0.2 <= found.high
    assert covered >= 33, "of 40 intervals at 90 %, at least 36 are expected"
    assert far == 0


def test_interval_of_gross_overconfidence_is_far_from_zero():
    index, p, _ = problem(4, n=800)
    sharp = p**8 / (p**8).sum(axis=1, keepdims=True)
    for kind in ("top-label", "class-wise"):
        found = calibration_interval(index, sharp, kind=kind, n_resamples=100)
        assert found.low > 0.5 * found.estimate
        assert found.estimate == calibration_error(index, sharp, kind=kind)
        assert found.high > found.estimate


def test_bootstrap_of_a_mean_is_the_normal_interval():
    index, p, _ = problem(4, n=400)
    found = bootstrap_interval(brier_score, index, p, n_resamples=2000, random_state=3)
    losses = np.square(p - np.eye(3)[index]).sum(axis=1)
    half = 1.96 * losses.std() / 20
    assert found.estimate == pytest.approx(losses.mean())
    assert (found.low, found.high) == pytest.approx(
        (losses.mean() - half, losses.mean() + half), abs=0.1 * half
    )


def test_intervals_repeat():
    index, p, weights = problem(6, n=50)
    for interval in (
        lambda seed: bootstrap_interval(
            brier_score, index, p, n_resamples=50, sample_weight=weights, random_state=seed
        ),
        lambda seed: calibration_interval(index, p, n_resamples=50, sample_weight=weights, random_state=seed),
    ):
        first, again, other = interval(1), interval(1), interval(2)
        assert first == again != other
        assert interval(None) == interval(0)


# --- scores ------------------------------------------------------------------------------------------------


def test_class_loss_is_the_error_rate():
    index, p, weights = problem(9)
    assert class_loss(index, p) == pytest.approx(1.0 - accuracy(index, p.argmax(axis=1)))
    weighted = 1.0 - accuracy(index, p.argmax(axis=1), sample_weight=weights)
    assert class_loss(index, p, sample_weight=weights) == pytest.approx(weighted)
    assert class_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]]) == 0.5, "the first of equals has it"


def test_weighted_scores():
    index, p, weights = problem(10)
    expected = sklearn_log_loss(index, p, sample_weight=weights, labels=[0, 1, 2])
    assert log_loss(index, np.log(p), sample_weight=weights) == pytest.approx(expected)
    y, q = np.repeat(index, weights), np.repeat(p, weights, axis=0)
    assert brier_score(index, p, sample_weight=weights) == pytest.approx(brier_score(y, q))
    assert accuracy(index, p.argmax(axis=1), sample_weight=weights) == pytest.approx(
        np.mean(y == q.argmax(axis=1))
    )
    logs = np.array([[math.log(0.5), math.log(0.5)], [0.0, -np.inf]])
    assert log_loss(np.array([0, 1]), logs, sample_weight=np.array([1.0, 0.0])) == pytest.approx(math.log(2))


def test_divergence_from_truth():
    truth, guess = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), np.array([[0.4, 0.5, 0.1], [0.1, 0.1, 0.8]])
    found = divergence_from_truth(truth, np.log(guess), sample_weight=[1.0, 3.0])
    kl = [
        sum(a * math.log(a / b) for a, b in zip(row, other, strict=True) if a > 0)
        for row, other in zip(truth, guess, strict=True)
    ]
    assert found.kl == pytest.approx((kl[0] + 3 * kl[1]) / 4)
    assert found.absolute == pytest.approx((0.2 / 3 + 3 * 0.6 / 3) / 4)
    assert found.excess_log_loss is None
    same = divergence_from_truth(truth[1:], np.log(truth[1:]), [2])
    assert (same.kl, same.absolute, same.excess_log_loss) == (0.0, 0.0, 0.0)
    with np.errstate(divide="ignore"):
        assert divergence_from_truth(guess, np.log(truth)).kl == math.inf


def test_excess_log_loss_is_the_divergence_on_average():
    led = generators()["led7"]
    X, y = led.sample(40_000, random_state=0)
    truth = led.posterior(X)
    guess = 0.7 * truth + 0.03
    found = divergence_from_truth(truth, np.log(guess), y)
    assert found.excess_log_loss == pytest.approx(found.kl, rel=0.1)
    assert found.kl > 0.05


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
        (lambda: bootstrap_interval(brier_score, [0], [[1.0, 0.0]], n_resamples=1), "n_resamples"),
        (lambda: calibration_interval([0, 1], [[0.5, 0.5]] * 2, level=90), "between 0 and 1"),
        (lambda: divergence_from_truth([[1.0, 0.0]], [[0.5, 0.5]]), "log_proba"),
        (lambda: divergence_from_truth([[1.0, 0.0]], np.log([[0.5, 0.5]]), [1]), "impossible"),
        (lambda: divergence_from_truth([[1.0, 0.0]], np.log([[0.5, 0.25, 0.25]])), "one shape"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
