"""Tempering and contamination: the trust and the share of least log-loss, against a search on a line."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from polymargin.solvers.tempering import contaminated, contamination, temper, tempered


def loss_by_hand(u, log_p, log_prior, index, weights):
    total = 0.0
    for i, k in enumerate(index):
        prior = log_prior if np.ndim(log_prior) == 1 else log_prior[i]
        p = np.exp(log_p[i]) ** u * np.exp(prior) ** (1.0 - u)
        total -= weights[i] * np.log(p[k] / p.sum())
    return total


def problem(seed, n=60, n_classes=3, sharpness=1.0, own_priors=False):
    """Probabilities that are right on average, made surer or less sure."""
    random = np.random.default_rng(seed)
    truth = random.dirichlet(np.ones(n_classes), n)
    index = np.array([random.choice(n_classes, p=p) for p in truth])
    log_p = sharpness * np.log(truth)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    prior = random.dirichlet(5.0 * np.ones(n_classes), n if own_priors else None)
    return log_p, np.log(prior), index, random.uniform(0.2, 3.0, n)


@pytest.mark.parametrize("own_priors", [False, True])
@pytest.mark.parametrize("sharpness", [0.2, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_the_trust_has_the_least_log_loss(seed, n_classes, sharpness, own_priors):
    given = problem(seed, n_classes=n_classes, sharpness=sharpness, own_priors=own_priors)
    u = temper(*given)
    best = minimize_scalar(
        loss_by_hand, bounds=(0.0, 1.0), args=given, method="bounded", options={"xatol": 1e-10}
    )
    assert 0.0 <= u <= 1.0
    assert loss_by_hand(u, *given) <= best.fun + 1e-9
    assert_allclose(u, best.x, atol=1e-5)


@pytest.mark.parametrize("u", [0.0, 0.3, 1.0])
def test_tempered_probabilities_lie_between_the_prior_and_themselves(u):
    log_p, log_prior, _, _ = problem(0)
    found = np.exp(tempered(log_p, log_prior, u))
    expected = np.exp(log_p) ** u * np.exp(log_prior) ** (1.0 - u)
    assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)
    assert_allclose(found.sum(axis=1), 1.0)


def test_what_is_right_is_trusted_and_what_is_wrong_is_not():
    random = np.random.default_rng(0)
    index = random.integers(0, 3, 200)
    prior, ones = np.log(np.full(3, 1 / 3)), np.ones(200)
    right = np.log(0.05 + 0.85 * np.eye(3)[index])
    wrong = np.log(0.05 + 0.85 * np.eye(3)[(index + 1) % 3])
    assert temper(right, prior, index, ones) == 1.0
    assert temper(wrong, prior, index, ones) == 0.0
    # Probabilities that say what the prior says leave the trust as it is.
    assert 0.0 <= temper(np.tile(prior, (200, 1)), prior, index, ones) <= 1.0


def test_neither_the_unit_of_the_weights_nor_copies_matter():
    log_p, log_prior, index, weights = problem(1, sharpness=3.0)
    u = temper(log_p, log_prior, index, weights)
    assert 0.0 < u < 1.0
    assert_allclose(temper(log_p, log_prior, index, 1e-6 * weights), u, atol=1e-9)
    copies = np.repeat(np.arange(60), 1 + np.arange(60) % 3)
    twice = temper(log_p[copies], log_prior, index[copies], np.ones(copies.size))
    assert_allclose(twice, temper(log_p, log_prior, index, 1.0 + np.arange(60) % 3), atol=1e-9)


def test_extreme_probabilities_stay_finite():
    log_p = np.array([[-1e-300, -800.0, -900.0]] * 9 + [[-700.0, -1e-300, -800.0]])
    u = temper(log_p, np.log(np.full(3, 1 / 3)), np.zeros(10, dtype=int), np.ones(10))
    assert 0.0 < u < 1.0
    assert np.isfinite(tempered(log_p, np.log(np.full(3, 1 / 3)), u)).all()


# Contamination ---------------------------------------------------------------------------------------------


def mixed_by_hand(p, prior, share):
    return [
        [(1.0 - share) * a + share * b for a, b in zip(*row, strict=True)]
        for row in zip(p, prior, strict=True)
    ]


def contamination_loss_by_hand(log_share, log_p, log_prior, index, weights):
    """The log-loss of the mixture, less a tenth of a row's worth of the logarithm of the share."""
    share = np.exp(log_share)
    mixed = mixed_by_hand(np.exp(log_p), np.exp(np.broadcast_to(log_prior, log_p.shape)), share)
    return -0.1 * log_share - sum(w * np.log(row[k]) for w, row, k in zip(weights, mixed, index, strict=True))


@pytest.mark.parametrize("own_priors", [False, True])
@pytest.mark.parametrize("sharpness", [0.2, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_the_contamination_has_the_least_log_loss(seed, n_classes, sharpness, own_priors):
    given = problem(seed, n_classes=n_classes, sharpness=sharpness, own_priors=own_priors)
    share = contamination(*given)
    assert 0.0 < share <= 0.5
    # The loss is convex in the share, so it has one minimum in its logarithm as well.
    best = minimize_scalar(
        contamination_loss_by_hand,
        bounds=(np.log(1e-9), np.log(0.5)),
        args=given,
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert contamination_loss_by_hand(np.log(share), *given) <= best.fun + 1e-9
    assert_allclose(share, np.exp(best.x), rtol=1e-4)


@pytest.mark.parametrize("own_priors", [False, True])
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.3])
def test_contaminated_probabilities_are_a_mixture(share, own_priors):
    log_p, log_prior, _, _ = problem(0, own_priors=own_priors)
    found = np.exp(contaminated(log_p, log_prior, share))
    prior = np.exp(np.broadcast_to(log_prior, log_p.shape))
    assert_allclose(found, mixed_by_hand(np.exp(log_p), prior, share), rtol=1e-12)
    assert_allclose(found.sum(axis=1), 1.0)
