"""Intervals around scores and calibration errors, against errors that are known."""

import numpy as np
import pytest

from polymargin.metrics import bootstrap_interval, brier_score, calibration_error, calibration_interval
from posteriors import problem


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval(brier_score, [0], [[1.0, 0.0]], n_resamples=1), "n_resamples"),
        (lambda: calibration_interval([0, 1], [[0.5, 0.5]] * 2, level=90), "between 0 and 1"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
