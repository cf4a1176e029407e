"""The parts of the Brier score, against brute force and identities."""

import numpy as np
import pytest

from polymargin.metrics import brier_decomposition, brier_score, refinement, reliability_curve
from posteriors import counting, naive_bins, problem


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
