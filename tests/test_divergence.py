"""The divergence from a posterior that is known."""

import math

import numpy as np
import pytest

from polymargin.datasets import generators
from polymargin.metrics import divergence_from_truth


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
        (lambda: divergence_from_truth([[1.0, 0.0]], [[0.5, 0.5]]), "log_proba"),
        (lambda: divergence_from_truth([[1.0, 0.0]], np.log([[0.5, 0.5]]), [1]), "impossible"),
        (lambda: divergence_from_truth([[1.0, 0.0]], np.log([[0.5, 0.25, 0.25]])), "one shape"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
