"""The numbers behind a fit to many rows, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

LandmarkRule = Literal["uniform", "kmeans", "cholesky"]


@dataclass(frozen=True)
class ScaleSettings:
    """How a fit to many rows is divided; pass one as ``scaling=`` to change it.

    Attributes
    ----------
    exact_operations : float
        The largest number of operations, the sum of the cubes of the rows of all dichotomies that share a kernel
        matrix, for which ``scale="auto"`` trains exact machines: 12 000 rows in one-vs-all coding take two minutes on
        two cores.
    leaf_rows : int or None
        The largest number of rows of a region of the tree, with those that it shares with its neighbours. An exact
        machine costs its square per row. None: 1500, or two or four times as many where that lowers the honest
        log-loss of leaves of a sample, within `leaf_operations` and the memory.
    leaf_operations : float
        The largest number of operations, the sum of the cubes of the rows of all dichotomies of all leaves, for which
        leaves of more than 1500 rows are tried: as long as the largest exact machines.
    overlap : float
        The rows on either side of a cut that belong to both sides, as a share of the rows of two leaves.
    landmarks : {"uniform", "kmeans", "cholesky"}
        How landmarks are chosen from a sample: at random; those next to the centres of k-means; or greedily, by a
        pivoted Cholesky factorisation, each time the row that the others explain least.
    sample_rows : int
        The number of rows on which kernel, C, gamma and metric are chosen.
    decoder_rows : int
        The number of rows from whose honest outputs the decoder learns: it has some hundred coefficients at most.
    memory : float or None
        The bytes that a fit may take; None: what is free.
    """

    exact_operations: float = 2e12
    leaf_rows: int | None = None
    leaf_operations: float = 2e12
    overlap: float = 0.1
    landmarks: LandmarkRule = "uniform"
    sample_rows: int = 4000
    decoder_rows: int = 20_000
    memory: float | None = None

    def __post_init__(self) -> None:
        if self.landmarks not in ("uniform", "kmeans", "cholesky"):
            raise ValueError(
                f'unknown rule for landmarks {self.landmarks!r}; choose "uniform", "kmeans" or "cholesky"'
            )
        for name in ("leaf_rows", "sample_rows", "decoder_rows"):
            given = getattr(self, name)
            if not (given is None and name == "leaf_rows") and not (_is_number(given) and given >= 20):
                raise ValueError(f"{name} must be at least 20, a number of rows; not {given!r}")
        for name in ("exact_operations", "leaf_operations"):
            given = getattr(self, name)
            if not (_is_number(given) and given >= 0.0):
                raise ValueError(f"{name} must be a number of operations, not {given!r}")
        if not (_is_number(self.overlap) and 0.0 <= self.overlap <= 0.25):
            raise ValueError(f"overlap must lie between 0 and 0.25, not {self.overlap!r}")
        if self.memory is not None and not (_is_number(self.memory) and self.memory > 0.0):
            raise ValueError(f"memory must be a positive number of bytes or None, not {self.memory!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


#: What estimators use unless they are given something else.
DEFAULT = ScaleSettings()
