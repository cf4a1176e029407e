"""The line search and the parabola that all solvers share."""

import numpy as np
import pytest

from polymargin.solvers.line_search import backtrack, backtrack_rows, rounding_of
from polymargin.solvers.parabola import curvature, vertex


def quartic(x):
    return 0.25 * x**4 + 0.5 * x**2


STARTS = np.array([1.0, -3.0, 0.5, 8.0, 2.0])
STEPS = np.array([-1.0, 40.0, -0.5, -300.0, 1.0])  # the last goes up
SLOPES = (STARTS**3 + STARTS) * STEPS


@pytest.mark.parametrize("sufficient", [1e-4, 0.2, 0.45])
def test_the_first_length_that_gains_enough(sufficient):
    for start, step, slope in zip(STARTS[:-1], STEPS, SLOPES, strict=False):

        def enough(length, start=start, step=step, slope=slope):
            return quartic(start + length * step) <= quartic(start) + sufficient * length * slope

        lengths = 0.5 ** np.arange(40.0)
        expected = next(length for length in lengths if enough(length))
        asked = []

        def objective(length, start=start, step=step, asked=asked):
            asked.append(length)
            return quartic(start + length * step)

        assert backtrack(objective, quartic(start), slope, sufficient=sufficient) == expected
        assert asked[-1] == expected


def test_rows_are_searched_as_if_alone():
    asked = []

    def objective(length, rows):
        asked.append(rows.size)
        return quartic(STARTS[rows] + length * STEPS[rows])

    lengths, reached = backtrack_rows(objective, quartic(STARTS), SLOPES)
    for row, (start, step, slope) in enumerate(zip(STARTS, STEPS, SLOPES, strict=True)):
        alone = backtrack(
            lambda length, start=start, step=step: quartic(start + length * step), quartic(start), slope
        )
        if row < len(STARTS) - 1:
            assert lengths[row] == alone > 0.0
    np.testing.assert_array_equal(reached, quartic(STARTS + lengths * STEPS))
    assert asked == sorted(asked, reverse=True)  # those that have found their length are not computed again


def test_no_descent_is_no_step():
    lengths, reached = backtrack_rows(
        lambda length, rows: 1.0 + length * np.arange(1.0, 3.0)[rows], np.ones(2), np.array([-1.0, -1.0])
    )
    assert lengths.tolist() == [0.0, 0.0]
    assert reached.tolist() == [1.0, 1.0]
    assert backtrack(lambda length: 1.0 + length, 1.0, -1.0) == 0.0


def test_at_a_minimum_rounding_is_allowed_for():
    value = 1e3
    risen = value * (1.0 + 4e-16)
    assert risen > value
    assert backtrack(lambda length: risen, value, -1e-20) == 0.0
    assert backtrack(lambda length: risen, value, -1e-20, slack=rounding_of(value)) == 1.0


@pytest.mark.parametrize("places", [(-1.0, 0.0, 1.0), (0.3, 1.0, 1.2), (-5.0, -4.9, 7.0)])
def test_a_parabola_is_found_again(places):
    places = np.array(places)
    for lowest, bend in ((0.1, 2.0), (-3.0, 1e-3)):
        values = 0.5 * bend * (places - lowest) ** 2 + 7.0
        assert curvature(places, values) == pytest.approx(bend, rel=1e-8)
        assert vertex(places, values) == pytest.approx(lowest, rel=1e-8)


@pytest.mark.parametrize("values", [(1.0, 1.0, 1.0), (0.0, 1.0, 0.0), (np.inf, 1.0, np.inf), (2.0, 1.0, 0.0)])
def test_without_a_lowest_point_the_middle(values):
    assert vertex(np.array([0.0, 1.0, 2.0]), np.array(values)) == 1.0
