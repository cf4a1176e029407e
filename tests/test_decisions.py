"""Prediction sets and decisions on arrays: against slow oracles, and the coverage that is guaranteed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import log_softmax

import naive
from polymargin.decisions import (
    CalibrationRows,
    CostMatrix,
    conformity_scores,
    decided_labels,
    expected_costs,
    least_cost,
    prediction_sets,
)
from polymargin.decisions.conformal import rows_needed, score_quantile
from polymargin.decisions.costs import check_reject

SCORES = ["lac", "aps"]
N_DRAWS = 1000


def probabilities(n, K, seed=0, rounded=False):
    """Return log-probabilities of rows; rounded ones have ties within and between rows."""
    logits = 1.5 * np.random.default_rng(seed).normal(size=(n, K))
    return log_softmax(np.round(logits) if rounded else logits, axis=1)


# Sets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("coverage", ["0.5", "0.8", "0.9", "0.95"])
def test_sets_are_those_of_p_values(score, per_class, rounded, coverage):
    log_p, new = probabilities(49, 3, 1, rounded), probabilities(40, 3, 2, rounded)
    y = np.random.default_rng(3).choice(3, size=49, p=[0.6, 0.3, 0.1])  # 0.9 · 50 = 45, without a remainder
    q = CalibrationRows(log_p, y).thresholds(float(coverage), per_class=per_class, score=score)
    sets = prediction_sets(new, q, score=score, allow_empty=True)
    slow = [naive.conformal_set(log_p, y, row, Fraction(coverage), score, per_class) for row in new]
    assert sets.tolist() == slow


@given(st.integers(1, 60), st.sampled_from(["0.1", "0.5", "0.75", "0.9", "0.99"]), st.integers(0, 99))
def test_the_quantile_is_the_order_statistic(n, coverage, seed):
    scores = np.random.default_rng(seed).normal(size=n)
    k = -int(-(n + 1) * Fraction(coverage) // 1)  # rounded up
    expected = np.inf if k > n else np.sort(scores)[k - 1]
    assert score_quantile(scores, float(coverage)) == expected
    assert (n < rows_needed(float(coverage))) == (k > n)


def test_rows_that_are_repeated_within_their_group_count_once():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=40)
    copies = np.repeat(np.arange(40), 3)
    for coverage in (0.3, 0.8, 0.9, 0.95, 0.99):
        alone = score_quantile(scores, coverage)
        assert score_quantile(scores[copies], coverage, groups=copies) == alone
        assert score_quantile(scores[copies], coverage, np.full(120, 0.2), copies) == alone
        assert score_quantile(np.r_[scores, 99.0], coverage, np.r_[np.ones(40), 0.0]) == alone
    # 40 groups are too few for a coverage of 0.99; 120 rows by themselves are not.
    assert np.isinf(score_quantile(scores[copies], 0.99, groups=copies))
    assert np.isfinite(score_quantile(scores[copies], 0.99))


def test_heavier_rows_draw_the_threshold_towards_them():
    scores, light = np.arange(1.0, 101.0), np.r_[np.ones(50), np.full(50, 0.1)]
    assert (
        score_quantile(scores, 0.9, light)
        < score_quantile(scores, 0.9)
        < score_quantile(scores, 0.9, light[::-1])
    )
    assert np.isinf(score_quantile(np.array([]), 0.9))


def test_the_most_probable_class_is_in_every_set_unless_asked():
    log_p = np.log([[0.5, 0.3, 0.2], [0.34, 0.33, 0.33], [0.4, 0.4, 0.2]])
    q = np.full(3, -np.log(0.45))
    assert prediction_sets(log_p, q, allow_empty=True).tolist() == [
        [True, False, False],
        [False] * 3,
        [False] * 3,
    ]
    assert prediction_sets(log_p, q).tolist() == [[True, False, False]] * 3
    # The score "aps" of the most probable class is zero, which is in every set.
    log_q = probabilities(30, 4)
    assert prediction_sets(log_q, np.zeros(4), score="aps", allow_empty=True).sum(axis=1).tolist() == [1] * 30


def test_scores_by_hand():
    log_p = np.log([[0.2, 0.5, 0.2, 0.1]])
    assert_allclose(conformity_scores(log_p), -log_p)
    assert_allclose(conformity_scores(log_p, "aps"), [[0.5, 0.0, 0.5, 0.9]])


def test_sets_grow_with_the_coverage():
    rows = CalibrationRows(probabilities(200, 4), np.random.default_rng(1).integers(0, 4, 200))
    new = probabilities(50, 4, 5)
    for score in SCORES:
        before = np.zeros((50, 4), dtype=bool)
        for coverage in (0.2, 0.5, 0.8, 0.9, 0.99, 0.999):
            sets = prediction_sets(new, rows.thresholds(coverage, score=score), score=score)
            assert (sets >= before).all()
            before = sets
        assert before.all()  # 200 rows are too few for 0.999


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 90, np.nan, None, "0.9", True])
def test_coverages_that_are_none(coverage):
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        CalibrationRows(probabilities(9, 2), np.zeros(9, dtype=int)).thresholds(coverage)


def test_a_score_that_is_unknown():
    with pytest.raises(ValueError, match='choose "lac" or "aps"'):
        conformity_scores(np.zeros((1, 2)), "raps")


def test_rows_that_are_no_calibration_rows():
    log_p, index = probabilities(20, 3), np.arange(20) % 3
    given = {"log_proba": log_p, "class_index": index}
    for wrong, message in (
        ({"class_index": np.where(index > 0, 1, -1)}, r"from 0 to 2; for labels give np.searchsorted"),
        ({"class_index": index + 1}, "from 0 to 2"),
        ({"class_index": np.array(["a", "b"] * 10)}, "from 0 to 2"),
        ({"class_index": index[:10]}, "class_index must have one value for each of the 20 rows"),
        ({"log_proba": np.where(index[:, np.newaxis] == 0, np.nan, log_p)}, "row 0 sum to nan"),
        ({"log_proba": np.exp(log_p)}, "these look like probabilities: give np.log of them"),
        ({"log_proba": 2.0 * log_p}, r"sum to 0.\d+, not 1$"),
        ({"log_proba": log_p[0]}, r"of shape \(n rows, K classes\), not \(3,\)"),
        ({"weights": np.ones(3)}, "weights must have one value for each of the 20 rows"),
        ({"weights": -np.ones(20)}, "weights must be finite numbers of at least zero"),
        ({"groups": np.arange(3)}, "groups must have one value for each of the 20 rows"),
    ):
        with pytest.raises(ValueError, match=message):
            CalibrationRows(**(given | wrong))
    rows = CalibrationRows(log_p, index)
    q = rows.thresholds(0.8)
    lists = CalibrationRows(log_p.tolist(), index.tolist(), [1.0] * 20, list(range(20)))
    assert_allclose(lists.thresholds(0.8), q)
    assert prediction_sets(log_p.tolist(), q.tolist()).tolist() == prediction_sets(log_p, q).tolist()
    with pytest.raises(ValueError, match="thresholds must be a number for each of the 3 classes"):
        prediction_sets(log_p, q[:2])
    with pytest.raises(ValueError, match="thresholds must be a number"):
        prediction_sets(log_p, [np.nan] * 3)
    with pytest.raises(ValueError, match="look like probabilities"):
        prediction_sets(np.exp(log_p), q)
    with pytest.raises(ValueError, match="per_class must be True or False, not 'yes'"):
        rows.thresholds(0.8, per_class="yes")
    with pytest.raises(ValueError, match="allow_empty must be True or False, not 'no'"):
        prediction_sets(log_p, q, allow_empty="no")


# The guarantee -------------------------------------------------------------------------------------------


def draws(n, n_new, seed):
    """Return rows of a world whose labels do not follow the probabilities that are stated: these are too sure."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n + n_new, 3)) * [1.0, 1.5, 0.7] + [1.0, 0.0, -0.5]
    truth = np.exp(log_softmax(0.6 * logits, axis=1))
    y = (rng.random((n + n_new, 1)) > truth.cumsum(axis=1)[:, :2]).sum(axis=1)
    log_p = log_softmax(2.0 * logits + [0.0, 0.3, 0.0], axis=1)
    return CalibrationRows(log_p[:n], y[:n]), log_p[n:], y[n:]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_coverage_over_a_thousand_draws(score, coverage):
    n, n_new = 59, 20
    covered = np.empty(N_DRAWS)
    for draw in range(N_DRAWS):
        rows, new, y = draws(n, n_new, draw)
        sets = prediction_sets(new, rows.thresholds(coverage, score=score), score=score, allow_empty=True)
        covered[draw] = sets[np.arange(n_new), y].mean()
    error = covered.std() / N_DRAWS**0.5
    assert error < 0.004
    assert covered.mean() > coverage - 4 * error
    # No scores of "lac" are equal; those of "aps" are, at zero, and cover more.
    if score == "lac":
        assert covered.mean() < coverage + 1 / (n + 1) + 4 * error


def test_coverage_of_every_class_over_a_thousand_draws():
    """Per class, each class is covered; with one threshold, the rare class is not."""
    n, n_new, coverage = 120, 40, 0.9
    counts = {(per_class, k): [] for per_class in (False, True) for k in range(3)}
    for draw in range(N_DRAWS):
        rows, new, y = draws(n, n_new, draw)
        for per_class in (False, True):
            q = rows.thresholds(coverage, per_class=per_class)
            hit = prediction_sets(new, q, allow_empty=True)[np.arange(n_new), y]
            for k in range(3):
                counts[per_class, k].append((hit[y == k].sum(), (y == k).sum()))
    for k in range(3):
        hits, total = np.transpose(counts[True, k])
        share = hits.sum() / total.sum()
        error = np.std(hits - share * total) * N_DRAWS**0.5 / total.sum()  # of a ratio
        assert error < 0.005
        assert coverage - 4 * error < share < coverage + 0.05  # classes of some twenty rows: 1/21
    marginal = [np.transpose(counts[False, k]).sum(axis=1) for k in range(3)]
    assert min(hits / total for hits, total in marginal) < 0.85


# Costs and rejects ---------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(2, 5), st.integers(0, 10_000))
def test_least_cost_is_that_of_the_slow_oracle(K, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(K), size=20)
    costs = CostMatrix.of(rng.normal(size=(K, K)), np.arange(K))
    assert least_cost(p, costs).tolist() == [
        naive.least_expected_cost(row, costs.values.tolist()) for row in p
    ]
    assert_allclose(
        expected_costs(p, costs.values).min(axis=1), (p[:, :, None] * costs.values).sum(axis=1).min(axis=1)
    )


def test_equal_costs_give_the_most_probable_class_ties_included():
    p = np.exp(probabilities(500, 7, rounded=True))
    p = np.vstack([p, [[0.1] * 3 + [0.2] * 3 + [0.1]], [[1 / 7] * 7]])
    zero_one = CostMatrix.of(1 - np.eye(7), np.arange(7))
    assert (least_cost(p, zero_one) == p.argmax(axis=1)).all()
    assert (least_cost(p, CostMatrix.of(3e9 * (1 - np.eye(7)), np.arange(7))) == p.argmax(axis=1)).all()
    assert (least_cost(p, CostMatrix.of(np.zeros((7, 7)), np.arange(7))) == p.argmax(axis=1)).all()
    assert (least_cost(p, CostMatrix.of(-np.eye(7), np.arange(7))) == p.argmax(axis=1)).all()  # gains


@settings(max_examples=60)
@given(st.integers(2, 5), st.integers(0, 10_000))
def test_the_excess_cost_is_bounded_by_the_error_of_the_probabilities(K, seed):
    rng = np.random.default_rng(seed)
    p, stated = rng.dirichlet(np.ones(K), size=(2, 50))
    costs = CostMatrix.of(rng.normal(size=(K, K)), np.arange(K))
    true = expected_costs(p, costs.values)
    excess = true[np.arange(50), least_cost(stated, costs)] - true.min(axis=1)
    bound = np.ptp(costs.values) * np.abs(p - stated).sum(axis=1)
    assert (excess <= bound + 1e-12).all()


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_costs_of_tables_without_an_index(kind):
    columns = {"q": [1.0, 0.0], "ask": [0.2, 0.2], "p": [0.0, 9.0]}
    tables = pytest.importorskip(kind)
    table = tables.DataFrame(columns) if kind == "polars" else tables.table(columns)
    costs = CostMatrix.of(table, np.array(["p", "q"]))
    assert costs.decisions.tolist() == ["q", "ask", "p"]
    assert costs.class_of.tolist() == [1, -1, 0]
    assert costs.values.tolist() == [[1.0, 0.2, 0.0], [0.0, 0.2, 9.0]]
    with pytest.raises(ValueError, match=r"a line for each of the classes \['p', 'q', 'r'\], in this order"):
        CostMatrix.of(table, np.array(["p", "q", "r"]))
    numbers = {"1": [1.0, 0.0], "0": [0.0, 9.0]}
    numbered = tables.DataFrame(numbers) if kind == "polars" else tables.table(numbers)
    assert CostMatrix.of(numbered, np.array([0, 1])).class_of.tolist() == [1, 0]


def test_costs_whose_columns_have_no_names():
    for classes in (["a", "b", "c"], [1, 2, 3]):
        with pytest.raises(ValueError, match="the columns of costs have no names"):
            CostMatrix.of(pd.DataFrame(1 - np.eye(3), index=classes), np.array(classes))


def test_costs_by_name():
    classes = np.array(["a", "b", "c"])
    table = pd.DataFrame(
        {"c": [1, 1, 0], "a": [5, 0, 2], "ask": [0.3] * 3, "b": [0, 1, 3]}, index=["b", "a", "c"]
    )
    costs = CostMatrix.of(table, classes)
    assert costs.decisions.tolist() == ["c", "a", "ask", "b"]
    assert costs.class_of.tolist() == [2, 0, -1, 1]
    assert costs.values.tolist() == [[1, 0, 0.3, 1], [1, 5, 0.3, 0], [0, 2, 0.3, 3]]
    p = np.array([[0.9, 0.05, 0.05], [0.6, 0.3, 0.1], [0.0, 0.0, 1.0]])
    assert decided_labels(p, classes, costs=costs).tolist() == ["ask", "ask", "c"]
    # Numbers and a text: the labels stay what they are.
    mixed = CostMatrix.of(pd.DataFrame({0: [0, 1], 1: [1, 0], "ask": [0.1, 0.1]}), np.array([0, 1]))
    assert decided_labels(np.array([[0.99, 0.01], [0.5, 0.5]]), np.array([0, 1]), costs=mixed).tolist() == [
        0,
        "ask",
    ]


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([[0, 1], [1, 0], [1, 1]], r"shape \(3, 3\), not \(3, 2\).*DataFrame"),
        ([0, 1, 2], "must be a matrix of numbers"),
        ([["x"] * 3] * 3, "must be a matrix of numbers"),
        ([[np.nan] * 3] * 3, "must be finite"),
        (pd.DataFrame(np.eye(3), index=[0, 1, 3]), r"lines of costs must be the classes \[0, 1, 2\]"),
        (pd.DataFrame(np.eye(3), index=[0, 1, 1]), "two lines of the same name"),
        (pd.DataFrame(np.eye(3), columns=[0, 1, 1]), "two columns of the same name"),
        (pd.DataFrame(index=[0, 1, 2]), "a column for every decision"),
        ((1 - np.eye(3)) * 1j, "real numbers, not complex"),
        (pd.DataFrame(np.eye(3) * 1j), "real numbers, not complex"),
    ],
)
def test_costs_that_are_none(costs, message):
    with pytest.raises(ValueError, match=message):
        CostMatrix.of(costs, np.arange(3))


@pytest.mark.parametrize(
    ("classes", "rejected", "kind"),
    [
        (["a", "b"], None, "O"),
        (["a", "b"], "not sure at all", "U"),
        (["a", "b"], -1, "O"),
        ([0, 1], -1, "i"),
        ([0, 1], None, "O"),
        ([0, 1], "?", "O"),
        ([0.5, 1.5], np.nan, "f"),
    ],
)
def test_rejected_rows(classes, rejected, kind):
    classes = np.array(classes)
    p = np.array([[0.8, 0.2], [0.3, 0.7], [0.05, 0.95]])
    found = decided_labels(p, classes, reject=0.8, rejected=rejected)
    assert found.dtype.kind == kind
    assert found[[0, 2]].tolist() == classes[[0, 1]].tolist()  # 0.8 is not below 0.8
    assert found[1] is rejected or found[1] == rejected or np.isnan(found[1])
    assert decided_labels(p, classes).tolist() == classes[[0, 1, 1]].tolist()


def test_rejects_that_are_none():
    classes = np.array([0, 1])
    with pytest.raises(ValueError, match="reject must be a probability"):
        check_reject(80, None, None, classes)
    with pytest.raises(ValueError, match="rejected=1 is a class"):
        check_reject(0.8, 1, None, classes)
    with pytest.raises(ValueError, match="further column"):
        check_reject(0.8, None, np.eye(2), classes)
    with pytest.raises(ValueError, match="single value"):
        check_reject(0.8, [1, 2], None, classes)
    for costs in (None, np.eye(2)):
        with pytest.raises(ValueError, match="rejected=1 has no effect without reject"):
            check_reject(None, 1, costs, classes)
    assert check_reject(None, None, np.eye(2), classes) is None
