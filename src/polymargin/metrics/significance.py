"""Is one method better than another, or was it luck? Tests for paired results.

On one data set: `five_by_two_f_test` for five repetitions of two folds, `mcnemar_test` for one test set. Over several
data sets: `sign_test` and `wilcoxon_test`. `wins_ties_losses` counts.

All p-values are two-sided unless ``alternative`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, fdtrc

__all__ = [
    "TestResult",
    "WinsTiesLosses",
    "five_by_two_f_test",
    "mcnemar_test",
    "sign_test",
    "verdict",
    "wilcoxon_test",
    "wins_ties_losses",
]

Alternative = Literal["two-sided", "greater"]
Better = Literal["higher", "lower"]
Verdict = Literal["W", "T", "L"]

#: McNemar's test counts exactly up to so many rows on which the two disagree.
_EXACT_DISAGREEMENTS = 25
#: Wilcoxon's test counts exactly up to so many differences; the numbers of subsets stay exact in float64.
_EXACT_DIFFERENCES = 50
#: Differences are rounding if they are this small beside the values they come from.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class TestResult:
    """A test statistic and the probability of one at least as extreme if there were no difference.

    Attributes
    ----------
    statistic : float
        The test statistic.
    p_value : float
        Its p-value.

    Examples
    --------
    >>> TestResult(statistic=5.1, p_value=0.04).significant()
    True
    """

    __test__ = False  # its name is no invitation to pytest

    statistic: float
    p_value: float

    def significant(self, level: float = 0.05) -> bool:
        """Return whether the p-value is below the level.

        Parameters
        ----------
        level : float
            The level of significance.

        Returns
        -------
        significant : bool
            Whether the difference is significant.
        """
        return self.p_value < level


@dataclass(frozen=True)
class WinsTiesLosses:
    """How often the first of two methods is better, as good and worse.

    Attributes
    ----------
    wins, ties, losses : int
        The counts.

    Examples
    --------
    >>> WinsTiesLosses(5, 3, 2).text
    '5-3-2'
    """

    wins: int
    ties: int
    losses: int

    @property
    def text(self) -> str:
        """Wins, ties and losses as papers print them."""
        return f"{self.wins}-{self.ties}-{self.losses}"


def five_by_two_f_test(values: ArrayLike, others: ArrayLike | None = None) -> TestResult:
    """Compare two methods on one data set by five repetitions of two-fold cross-validation (Alpaydın, 1999).

    f = Σ_ij p_ij² / (2 Σ_i s_i²), where p_ij is the difference on fold j of repetition i and s_i² the variance of
    the two around their mean, follows F(10, 5) approximately if the methods are equally good.

    Parameters
    ----------
    values : array-like of shape (5, 2)
        Differences, or the first method's results.
    others : array-like of shape (5, 2), optional
        The second method's results.

    Returns
    -------
    TestResult
        With differences that are all zero p = 1; with none that vary within a repetition f = inf and p = 0.

    Examples
    --------
    >>> result = five_by_two_f_test([[0.02, 0.03], [0.01, 0.04], [0.03, 0.02], [0.02, 0.02], [0.04, 0.01]])
    >>> result.statistic, result.p_value
    (3.4, 0.0945...)
    """
    p = _numbers(values, "the results of 5x2 folds", (5, 2))
    if others is not None:
        p = _differences(p, _numbers(others, "the other results of 5x2 folds", (5, 2)))
    squares = float(np.square(p).sum())
    variances = float(np.square(p[:, 0] - p[:, 1]).sum()) / 2.0
    if squares == 0.0:
        return TestResult(0.0, 1.0)
    if variances <= _ROUNDING**2 * squares:
        return TestResult(float("inf"), 0.0)
    f = squares / (2.0 * variances)
    return TestResult(f, float(fdtrc(10.0, 5.0, f)))


def mcnemar_test(
    correct_a: ArrayLike, correct_b: ArrayLike, *, method: Literal["auto", "exact", "chi2"] = "auto"
) -> TestResult:
    """Compare two classifiers on one test set by the rows that only one of them gets right (McNemar, 1947).

    Parameters
    ----------
    correct_a, correct_b : array-like of bool, shape (n,)
        Whether each row was classified correctly.
    method : {"auto", "exact", "chi2"}
        "exact": the smaller of the two counts is binomial with probability ½. "chi2": (abs(a − b) − 1)² / (a + b), with
        its correction for continuity, has one degree of freedom; this is the textbook form. "auto" is exact up to
        25 rows in all and "chi2" above.

    Returns
    -------
    TestResult
        The statistic is the smaller count if exact, else chi-square. p = 1 if they never disagree.

    Examples
    --------
    >>> a = [True] * 9 + [False] * 2 + [True] * 30
    >>> b = [False] * 9 + [True] * 2 + [True] * 30
    >>> result = mcnemar_test(a, b)
    >>> result.statistic, result.p_value
    (2.0, 0.0654...)
    >>> result = mcnemar_test(a, b, method="chi2")
    >>> result.statistic, result.p_value
    (3.2727..., 0.0704...)
    """
    first, second = np.asarray(correct_a), np.asarray(correct_b)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"correct_a and correct_b must be two lists of one length, not {first.shape}, {second.shape}"
        )
    if first.dtype != np.bool_ or second.dtype != np.bool_:
        raise ValueError("correct_a and correct_b must be True or False per row: pass predicted == true")
    if method not in ("auto", "exact", "chi2"):
        raise ValueError(f"method must be 'auto', 'exact' or 'chi2', not {method!r}")
    only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
    total = only_a + only_b
    if method == "exact" or (method == "auto" and total <= _EXACT_DISAGREEMENTS):
        return TestResult(float(min(only_a, only_b)), sign_test(only_a, only_b).p_value)
    statistic = max(abs(only_a - only_b) - 1, 0) ** 2 / max(total, 1)
    return TestResult(float(statistic), float(chdtrc(1.0, statistic)))


def sign_test(wins: int, losses: int, *, alternative: Alternative = "two-sided") -> TestResult:
    """Test whether wins and losses are equally likely; ties are left out.

    Parameters
    ----------
    wins, losses : int
    alternative : {"two-sided", "greater"}
        "greater": there are more wins than luck gives. "two-sided": more wins, or more losses.

    Returns
    -------
    TestResult
        The statistic is the number of wins; p is exact.

    Examples
    --------
    >>> sign_test(8, 2).p_value, sign_test(9, 1).p_value, sign_test(8, 2, alternative="greater").p_value
    (0.109..., 0.0214..., 0.0546...)
    """
    _check_alternative(alternative)
    if wins < 0 or losses < 0:
        raise ValueError(f"wins and losses are counts; they are {wins} and {losses}")
    if wins + losses == 0:
        return TestResult(0.0, 1.0)
    from scipy.stats import binomtest

    return TestResult(float(wins), float(binomtest(wins, wins + losses, 0.5, alternative=alternative).pvalue))


def wilcoxon_test(a: ArrayLike, b: ArrayLike, *, alternative: Alternative = "two-sided") -> TestResult:
    """Compare two methods over several data sets by the ranks of their differences (Wilcoxon, 1945).

    Equal pairs are left out, equal differences share their ranks. Up to 50 differences p is exact, shared ranks
    included; above, it is normal with corrections for ties and continuity (`scipy.stats.wilcoxon`).

    Parameters
    ----------
    a, b : array-like of shape (n,)
        The results of both methods on the same n data sets.
    alternative : {"two-sided", "greater"}
        "greater": a is larger than b.

    Returns
    -------
    TestResult
        The statistic is the smaller of the two sums of ranks, or the sum of the positive ones if "greater". p = 1
        if all pairs are equal.

    Examples
    --------
    >>> result = wilcoxon_test([0.91, 0.85, 0.77, 0.96, 0.70, 0.88], [0.90, 0.82, 0.75, 0.96, 0.71, 0.84])
    >>> result.statistic, result.p_value
    (1.5, 0.1875)
    """
    _check_alternative(alternative)
    first, second = _numbers(a, "a"), _numbers(b, "b")
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"a and b must be two lists of one length, not {first.shape} and {second.shape}")
    differences = _differences(first, second)
    differences = differences[differences != 0.0]
    if differences.size == 0:
        return TestResult(0.0, 1.0)
    from scipy.stats import rankdata, wilcoxon

    size = np.abs(differences)
    # Differences that are equal but for rounding share their ranks.
    ranks = rankdata(np.round(size / size.max(), 12))
    up, down = float(ranks[differences > 0].sum()), float(ranks[differences < 0].sum())
    statistic = up if alternative == "greater" else min(up, down)
    if differences.size > _EXACT_DIFFERENCES:
        signed = np.copysign(ranks, differences)  # as good as the differences: only their ranks count
        result = wilcoxon(signed, alternative=alternative, correction=True, method="asymptotic")
        return TestResult(statistic, float(result.pvalue))
    tail = _rank_sum_tail(ranks, up if alternative == "greater" else max(up, down))
    return TestResult(statistic, tail if alternative == "greater" else min(1.0, 2.0 * tail))


def _rank_sum_tail(ranks: NDArray[np.float64], value: float) -> float:
    """Return the share of all choices of signs whose positive ranks sum to at least a value, by counting."""
    halves = np.rint(2.0 * ranks).astype(np.intp)  # shared ranks end in ½
    counts = np.zeros(int(halves.sum()) + 1)
    counts[0] = 1.0
    for half in halves:
        counts[half:] += counts[: counts.size - half].copy()
    return float(counts[int(np.rint(2.0 * value)) :].sum() / counts.sum())


def verdict(
    result: TestResult, difference: float, *, better: Better = "higher", level: float = 0.05
) -> Verdict:
    """Return "W" or "L" if a difference is significant and good or bad, else "T".

    Parameters
    ----------
    result : TestResult
        Of a test of the difference.
    difference : float
        Ours minus the other's.
    better : {"higher", "lower"}
        Which is good.
    level : float
        The level of significance.

    Returns
    -------
    verdict : {"W", "T", "L"}
        A win, a tie or a loss.

    Examples
    --------
    >>> verdict(TestResult(6.0, 0.02), -3.5, better="lower"), verdict(TestResult(1.0, 0.4), 2.0)
    ('W', 'T')
    """
    gain = _direction(better) * difference
    if gain == 0.0 or not result.significant(level):
        return "T"
    return "W" if gain > 0.0 else "L"


def wins_ties_losses(
    a: Sequence[Any] | NDArray[Any],
    b: Sequence[Any] | NDArray[Any],
    *,
    better: Better = "higher",
    test: Callable[[Any, Any], TestResult] | None = None,
    level: float = 0.05,
) -> WinsTiesLosses:
    """Count the data sets on which a is better than b, as good, and worse.

    Parameters
    ----------
    a, b : sequences of one length
        One entry per data set: a number, or what the test takes.
    better : {"higher", "lower"}
        Which is good.
    test : callable, optional
        ``test(a_i, b_i)`` such as `mcnemar_test` or `five_by_two_f_test`; a difference of the means that it does not
        find significant is a tie. Without one, numbers are compared as they are.
    level : float
        Of the test.

    Returns
    -------
    WinsTiesLosses

    Examples
    --------
    >>> wins_ties_losses([0.9, 0.8, 0.7], [0.8, 0.8, 0.6]).text
    '2-1-0'
    """
    if len(a) != len(b):
        raise ValueError(f"a is for {len(a)} data sets and b for {len(b)}")
    verdicts: list[Verdict] = []
    for first, second in zip(a, b, strict=True):
        means = np.mean(np.asarray(first, dtype=float)), np.mean(np.asarray(second, dtype=float))
        difference = float(_differences(*means))
        result = TestResult(difference, 0.0) if test is None else test(first, second)
        verdicts.append(verdict(result, difference, better=better, level=level))
    return WinsTiesLosses(verdicts.count("W"), verdicts.count("T"), verdicts.count("L"))


def _differences(first: Any, second: Any) -> NDArray[np.float64]:
    """Return first − second, zero where it is only rounding."""
    difference = np.asarray(first - second, dtype=float)
    scale = np.maximum(np.abs(first), np.abs(second))
    return np.where(np.abs(difference) <= _ROUNDING * scale, 0.0, difference)


def _numbers(values: ArrayLike, name: str, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=float)
    if shape is not None and numbers.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite: leave out or mend what is missing")
    return numbers


def _direction(better: Better) -> float:
    if better not in ("higher", "lower"):
        raise ValueError(f"better must be 'higher' or 'lower', not {better!r}")
    return 1.0 if better == "higher" else -1.0


def _check_alternative(alternative: str) -> None:
    if alternative not in ("two-sided", "greater"):
        raise ValueError(f"alternative must be 'two-sided' or 'greater', not {alternative!r}")
