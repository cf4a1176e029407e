"""Significance tests and the bias–variance–noise decomposition, against enumeration and quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from polymargin.metrics import (
    TestResult,
    bias_variance_noise,
    five_by_two_f_test,
    mcnemar_test,
    sign_test,
    verdict,
    wilcoxon_test,
    wins_ties_losses,
)


def f_tail(f: float, d1: int, d2: int) -> float:
    """P(F ≥ f) by quadrature of the beta density of d1 F / (d1 F + d2)."""
    u = np.linspace(d1 * f / (d1 * f + d2), 1.0, 400_001)
    density = u ** (d1 / 2 - 1) * (1 - u) ** (d2 / 2 - 1)
    constant = math.gamma((d1 + d2) / 2) / math.gamma(d1 / 2) / math.gamma(d2 / 2)
    return constant * float(np.trapezoid(density, u))


@pytest.mark.parametrize("seed", range(5))
def test_five_by_two_is_the_ratio_of_the_paper_and_its_tail(seed):
    p = np.random.default_rng(seed).normal(0.02 * seed, 0.03, (5, 2))
    numerator = denominator = 0.0
    for first, second in p:
        mean = (first + second) / 2
        numerator += first**2 + second**2
        denominator += 2 * ((first - mean) ** 2 + (second - mean) ** 2)
    result = five_by_two_f_test(p)
    assert result.statistic == pytest.approx(numerator / denominator)
    assert result.p_value == pytest.approx(f_tail(result.statistic, 10, 5), abs=1e-7)


def test_five_by_two_critical_value_and_pairs():
    # F(10, 5) exceeds 4.74 with probability 0.05: Alpaydın's printed threshold.
    assert f_tail(4.735, 10, 5) == pytest.approx(0.05, abs=1e-4)
    generator = np.random.default_rng(3)
    a, b = generator.random((2, 5, 2))
    assert five_by_two_f_test(a, b).p_value == pytest.approx(five_by_two_f_test(a - b).p_value)
    assert five_by_two_f_test(a, b) == five_by_two_f_test(b, a)


def test_five_by_two_without_variance():
    assert five_by_two_f_test(np.zeros((5, 2))) == TestResult(0.0, 1.0)
    assert five_by_two_f_test(np.full((5, 2), 0.1)) == TestResult(math.inf, 0.0)
    # 0.3 − 0.2 and 0.8 − 0.7 differ in the last digit only.
    a, b = np.tile([0.3, 0.8], (5, 1)), np.tile([0.2, 0.7], (5, 1))
    assert five_by_two_f_test(a, b).p_value == 0.0


def binomial_two_sided(k: int, n: int) -> float:
    """P(|2 Bin(n, ½) − n| ≥ |2k − n|), every sequence of n coins counted."""
    extreme = sum(abs(2 * sum(coins) - n) >= abs(2 * k - n) for coins in itertools.product((0, 1), repeat=n))
    return extreme / 2**n


@pytest.mark.parametrize(("wins", "total"), [(w, n) for n in (0, 1, 7, 10) for w in range(n + 1)])
def test_sign_test_counts_coins(wins, total):
    losses = total - wins
    assert sign_test(wins, losses).p_value == pytest.approx(binomial_two_sided(wins, total))
    more = sum(math.comb(total, k) for k in range(wins, total + 1)) / 2**total
    assert sign_test(wins, losses, alternative="greater").p_value == pytest.approx(more)


def correctness(only_a: int, only_b: int, both: int = 20, none: int = 5):
    pairs = (
        [(True, False)] * only_a + [(False, True)] * only_b + [(True, True)] * both + [(False, False)] * none
    )
    return np.array(pairs).T


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 1), (3, 3), (9, 2), (1, 12), (6, 8)])
def test_mcnemar_is_exact_for_few_disagreements(only_a, only_b):
    result = mcnemar_test(*correctness(only_a, only_b))
    assert result.statistic == min(only_a, only_b)
    assert result.p_value == pytest.approx(binomial_two_sided(only_a, only_a + only_b))


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (9, 2), (20, 6), (30, 30), (31, 30), (10, 60)])
def test_mcnemar_chi_square_with_correction(only_a, only_b):
    result = mcnemar_test(*correctness(only_a, only_b), method="chi2")
    expected = (abs(only_a - only_b) - 1) ** 2 / (only_a + only_b) if only_a != only_b else 0.0
    assert result.statistic == pytest.approx(expected)
    assert result.p_value == pytest.approx(math.erfc(math.sqrt(expected / 2)))  # a squared normal
    if only_a + only_b > 25:
        assert mcnemar_test(*correctness(only_a, only_b)) == result
        assert result.p_value == pytest.approx(
            mcnemar_test(*correctness(only_a, only_b), method="exact").p_value, abs=0.01
        )


def midranks(values):
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def wilcoxon_by_signs(differences):
    """Two-sided and one-sided p by all 2^n choices of signs."""
    differences = [d for d in differences if d != 0]
    ranks = midranks([abs(d) for d in differences])
    up = sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0)
    total = sum(ranks)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=len(ranks))
    ]
    two = sum(max(s, total - s) >= max(up, total - up) for s in sums) / len(sums)
    return min(up, total - up), two, up, sum(s >= up for s in sums) / len(sums)


@pytest.mark.parametrize("seed", range(12))
def test_wilcoxon_counts_signs_with_ties_and_zeros(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 13))
    # Whole numbers tie often; the odd seeds have none.
    differences = generator.integers(-4, 6, n).astype(float) if seed % 2 else generator.normal(0.5, 1, n)
    b = generator.integers(50, 90, n).astype(float)
    statistic, two, up, greater = wilcoxon_by_signs(list((b + differences) - b))
    result = wilcoxon_test(b + differences, b)
    assert result.statistic == pytest.approx(statistic)
    assert result.p_value == pytest.approx(two)
    result = wilcoxon_test(b + differences, b, alternative="greater")
    assert result.statistic == pytest.approx(up)
    assert result.p_value == pytest.approx(greater)


def test_wilcoxon_equal_pairs_rounding_and_many():
    assert wilcoxon_test([0.5, 0.7], [0.5, 0.7]) == TestResult(0.0, 1.0)
    # 0.3 − 0.2 and 0.8 − 0.7 are one difference: both share ranks 1 and 2.
    assert wilcoxon_test([0.3, 0.7, 0.9], [0.2, 0.8, 0.4]).statistic == 1.5
    generator = np.random.default_rng(0)
    b = generator.normal(size=60)
    many = b + generator.normal(0.2, 1, 60)
    few = wilcoxon_test(many[:50], b[:50])
    signs = generator.choice([-1.0, 1.0], size=(100_000, 60))
    for n, result in ((50, few), (60, wilcoxon_test(many, b))):
        d = many[:n] - b[:n]
        ranks = np.array(midranks(list(np.abs(d))))
        centre = ranks.sum() / 2
        sums = (signs[:, :n] > 0) @ ranks
        drawn = np.mean(np.abs(sums - centre) >= abs(ranks[d > 0].sum() - centre))
        assert result.p_value == pytest.approx(drawn, abs=0.007)


def test_verdicts_and_counts():
    good, luck = TestResult(9.0, 0.01), TestResult(1.0, 0.3)
    assert [verdict(good, 1.0), verdict(good, -1.0), verdict(luck, 1.0), verdict(good, 0.0)] == list("WLTT")
    assert verdict(good, -1.0, better="lower") == "W"
    assert verdict(luck, 1.0, level=0.5) == "W"
    assert wins_ties_losses([1, 2, 3, 4], [0, 2, 4, 9]).text == "1-1-2"
    assert wins_ties_losses([1, 2, 3, 4], [0, 2, 4, 9], better="lower").text == "2-1-1"
    assert wins_ties_losses([0.1 + 0.2], [0.3]).text == "0-1-0"


def test_counts_by_a_test():
    pairs = [correctness(12, 1), correctness(6, 4), correctness(0, 9), correctness(0, 0)]
    a, b = zip(*pairs, strict=True)
    assert wins_ties_losses(a, b, test=mcnemar_test).text == "1-2-1"
    assert wins_ties_losses(a, b).text == "2-1-1"
    folds = np.full((5, 2), 0.5)
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 5, 2))
    better = [folds + 0.1 + noise[0], folds + noise[1], folds - 0.1 + noise[2]]
    assert wins_ties_losses(better, [folds] * 3, test=five_by_two_f_test).text == "1-1-1"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: five_by_two_f_test(np.zeros((2, 5))), r"shape \(5, 2\)"),
        (lambda: five_by_two_f_test(np.full((5, 2), np.nan)), "finite"),
        (lambda: mcnemar_test([1, 0], [0, 1]), "predicted == true"),
        (lambda: mcnemar_test([True], [True, False]), "one length"),
        (lambda: mcnemar_test([True], [True], method="yates"), "method"),
        (lambda: sign_test(-1, 2), "counts"),
        (lambda: sign_test(1, 2, alternative="less"), "alternative"),
        (lambda: wilcoxon_test([1.0], [1.0, 2.0]), "one length"),
        (lambda: wins_ties_losses([1], [1, 2]), "data sets"),
        (lambda: verdict(TestResult(0, 0), 1.0, better="bigger"), "better"),
        (lambda: bias_variance_noise([[0.5, 0.6]], [[0.5, 0.5]]), "true_posterior"),
        (lambda: bias_variance_noise([[0.5, 0.5]], [[1.0]]), "one shape"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("K", [2, 3, 5])
def test_decomposition_sums_to_the_error_of_drawn_labels(K):
    """Every pair of a true class and a drawn class enumerated, the parts by the paper's sums."""
    generator = np.random.default_rng(K)
    P, Q = generator.dirichlet(np.ones(K), 40), generator.dirichlet(np.full(K, 0.5), 40)
    error = bias = variance = noise = 0.0
    for p, q in zip(P, Q, strict=True):
        error += sum(p[true] * q[drawn] for true in range(K) for drawn in range(K) if true != drawn) / 40
        best, favoured = max(range(K), key=lambda m: p[m]), max(range(K), key=lambda m: q[m])
        bias += (p[best] - p[favoured]) * q[favoured] / 40
        variance += sum((p[best] - p[m]) * q[m] for m in range(K) if m != favoured) / 40
        noise += (1 - p[best]) / 40
    parts = bias_variance_noise(P, Q)
    assert (parts.bias, parts.variance, parts.noise) == pytest.approx((bias, variance, noise))
    assert parts.error == pytest.approx(error)


def test_decomposition_of_votes_is_the_mean_error_of_the_voters():
    generator = np.random.default_rng(1)
    P = generator.dirichlet(np.ones(3), 30)
    labels = generator.integers(0, 3, (25, 30))
    errors = [np.mean([1 - P[i, label] for i, label in enumerate(row)]) for row in labels]
    votes = np.eye(3)[labels].mean(axis=0)
    assert bias_variance_noise(P, votes).error == pytest.approx(np.mean(errors))
    # The Bayes rule has neither bias nor variance.
    exact = bias_variance_noise(P, np.eye(3)[P.argmax(axis=1)])
    assert (exact.bias, exact.variance) == (0.0, 0.0)
