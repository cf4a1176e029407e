"""The numbers behind the search for kernel, C, gamma and the decoder's ridge, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral


@dataclass(frozen=True)
class SearchSettings:
    """How wide and how long `LSSVMClassifier` searches; pass one as ``search=`` to change it.

    The search proposes C and gamma by the leave-one-out errors of the machines (PRESS) and decides between kernels and
    a path of smaller C by the decoder's cross-fitted log-loss. All rows are used while that is affordable; beyond that
    a stratified sample drawn by ``random_state``, as large as the budget allows.

    Attributes
    ----------
    octaves : tuple of int
        The lattice of gamma, in powers of two times the kernel's natural gamma (one over the mean squared distance).
        The lowest point, with the best C of each gamma, is the start of the polish. The lattice is extended where it
        lies on an edge.
    furthest_octave : int
        The limit of the extension.
    operations : float
        The budget of each stage of the search, in floating-point operations: lattice, polish, decision.
    relative : float
        A stage may also take this share of the operations of the final fit. With one half, the three stages take about
        as long as the final fit of the machines, its factorisation and its leave-one-out errors.
    least_rows : int
        The least number of rows of every class in a sample.
    decided_rows : int
        The least number of rows on which kernels and C are compared.
    steps, converged : int, float
        The polish ends after this many steps, or when the next one is expected to lower PRESS by less than this share.
    per_octave : int
        C and gamma are rounded to this many values per octave, so that they do not depend on the last digits of X.
        Within such a step PRESS is flat.
    smaller : tuple of float
        The path of C: the one of least PRESS is divided by these, the first of which is one. Squared errors punish
        outputs that are too small, which a decoder that learns their scale does not; on noisy data machines with a much
        smaller C decode better.
    significance : float
        A smaller C must lower the cross-fitted log-loss by this many standard errors of the difference: with few rows
        the better of two is often a matter of chance, and C of least PRESS is the safe choice.
    folds : int
        The folds of the nested outputs, by which kernels and C are compared and the log-loss is stated.
    rounds, damping : int, float
        A learned metric multiplies the width of every column by a power, half of ``damping``, of the machines' mean
        squared gradient along it, at most ``rounds`` times. Few large steps (three rounds with 1.0) overshoot: 0.913 of
        the log-loss without a metric on 39 development sets, in place of 0.892.
    """

    octaves: tuple[int, ...] = tuple(range(-9, 7, 3))
    furthest_octave: int = 16
    operations: float = 1e9
    relative: float = 0.5
    least_rows: int = 20
    decided_rows: int = 800
    steps: int = 12
    converged: float = 1e-4
    per_octave: int = 8
    smaller: tuple[float, ...] = (1.0, 16.0, 256.0)
    significance: float = 2.0
    folds: int = 5
    rounds: int = 5
    damping: float = 0.5

    def __post_init__(self) -> None:
        if not self.smaller or self.smaller[0] != 1.0:
            raise ValueError(f"the path of smaller C must begin with 1.0, not {self.smaller!r}")
        if not isinstance(self.rounds, Integral) or self.rounds < 1:
            raise ValueError(f"rounds must be a whole number of at least 1, not {self.rounds!r}")
        if not self.damping > 0.0:
            raise ValueError(f"damping must be positive, not {self.damping!r}")

    def budget(self, final: float) -> float:
        """Return the budget of a stage.

        Parameters
        ----------
        final : float
            The floating-point operations of the final fit.

        Returns
        -------
        float
            In floating-point operations.
        """
        return max(self.operations, self.relative * final)


#: What `LSSVMClassifier` uses unless it is given something else.
DEFAULT = SearchSettings()
