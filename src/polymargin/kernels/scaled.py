"""A kernel of scaled columns, or of their ranks: the metric of a kernel machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from polymargin.kernels._base import Array, Kernel
from polymargin.kernels._features import Features
from polymargin.kernels.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Scaled(Kernel):
    """K(x, z) = kernel(widths ∘ x, widths ∘ z): column j is multiplied by ``widths[j]`` before rows are compared.

    A column of width zero has no influence; the larger the width, the more the column matters. With
    ``columns="ranks"`` the ranks of the columns among the training rows are compared in place of their values.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the scaled columns; not "precomputed". If it is `Scaled` itself, the widths are multiplied.
    widths : array-like of shape (d,) or None, default=None
        The factors, not negative and not all zero; None: all columns count as they are.
    columns : "ranks", Ranks or None, default=None
        What is scaled: ranks, which `fitted` learns from the training rows, or, with None, the columns themselves.

    Examples
    --------
    >>> from polymargin.kernels import RBF
    >>> Scaled(RBF(), [1.0, 0.0]).gram(np.array([[0.0, 0.0], [1.0, 5.0]]), gamma=np.log(2.0)).round(3)
    array([[1. , 0.5],
           [0.5, 1. ]])

    Of heavy tails ranks keep the order only:

    >>> X = np.array([[0.0], [1.0], [1e3]])
    >>> Scaled(RBF(), columns="ranks").fitted(X, np.ones(3)).gram(X, gamma=np.log(2.0)).round(2)
    array([[1.  , 0.37, 0.02],
           [0.37, 1.  , 0.37],
           [0.02, 0.37, 1.  ]])
    """

    kernel: Kernel
    widths: Array | None = None
    columns: Any = None

    def __post_init__(self) -> None:
        if self.widths is not None:
            object.__setattr__(self, "widths", check_widths(self.widths))
        if not (self.columns is None or isinstance(self.columns, Ranks) or str(self.columns) == "ranks"):
            raise ValueError(f'unknown columns {self.columns!r}; choose "ranks" or None')
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel object, such as polymargin.kernels.RBF(), not {self.kernel!r}"
            )
        if isinstance(self.kernel, Scaled):
            self._join(self.kernel)
        if self.kernel.precomputed:
            raise ValueError(
                'a metric scales columns, and ranks are those of columns, which kernel="precomputed" does not have: '
                "compute the kernel matrix from rows that are scaled or ranked"
            )

    def _join(self, inner: Scaled) -> None:
        """Be one kernel of scaled columns in place of two: ranks come first, widths second."""
        if inner.columns is not None and self.columns is not None:
            raise ValueError(f"the kernel {inner.name!r} has ranks for columns already")
        object.__setattr__(self, "columns", inner.columns if self.columns is None else self.columns)
        if self.widths is None:
            object.__setattr__(self, "widths", inner.widths)
        elif inner.widths is not None:
            inner._check_columns(self.widths.size)
            object.__setattr__(self, "widths", check_widths(inner.widths * self.widths))
        object.__setattr__(self, "kernel", inner.kernel)

    # What is declared once for other kernels is that of the kernel inside.
    @property
    def tunable(self) -> bool:  # type: ignore[override]
        """Whether the kernel inside has a ``gamma``."""
        return self.kernel.tunable

    @property
    def untrusted(self) -> bool:  # type: ignore[override]
        """Whether the Gram matrix comes from outside."""
        return self.kernel.untrusted

    @property
    def positive_definite(self) -> bool:  # type: ignore[override]
        """Whether every Gram matrix of the kernel inside is positive semi-definite."""
        return self.kernel.positive_definite

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        """Which matrices between scaled rows the kernel is a function of."""
        return self.kernel.parts

    @property
    def base_numbers(self) -> int:  # type: ignore[override]
        """The numbers of the base for every two rows."""
        return self.kernel.base_numbers

    @property
    def centre(self) -> Array | None:  # type: ignore[override]
        """What is subtracted from scaled rows."""
        return self.kernel.centre

    @property
    def name(self) -> str:
        """The name of the kernel inside, and whether it is one of ranks."""
        return self.kernel.name if self.columns is None else f"{self.kernel.name}, ranks"

    def scaled(self, X: Any) -> Any:
        """Return the rows with scaled columns."""
        self._check_columns(X.shape[1])
        if self.columns is not None:
            if not isinstance(self.columns, Ranks):
                raise ValueError('columns="ranks": ranks are those among training rows; call fitted first')
            X = self.columns(X)
        if self.widths is None:
            return X
        return X.multiply(self.widths).tocsr() if sparse.issparse(X) else X * self.widths

    def _check_columns(self, d: int) -> None:
        if self.widths is not None and d != self.widths.size:
            raise ValueError(f"the metric has {self.widths.size} widths, but the rows have {d} columns")

    def base(self, X: Any, Z: Any = None) -> Array:
        """Return the base matrix of the scaled rows."""
        return self.kernel.base(self.scaled(X), None if Z is None else self.scaled(Z))

    def base_diagonal(self, X: Any) -> Array:
        """Return the base of every scaled row with itself."""
        return self.kernel.base_diagonal(self.scaled(X))

    def to_rows(self, Z: Any) -> Callable[[Any], Array]:
        """Return what computes the base of any scaled rows with those of Z."""
        compute = self.kernel.to_rows(self.scaled(Z))
        return lambda X: compute(self.scaled(X))

    def apply(self, base: Array, gamma: float) -> Array:
        """Return the values of the kernel inside."""
        return self.kernel.apply(base, gamma)

    def slope(self, base: Array, values: Array, gamma: float) -> Array:
        """Return the derivative of the kernel inside."""
        return self.kernel.slope(base, values, gamma)

    def roundings(self, X: Any, gamma: float) -> float:
        """Return the expected error for the scaled rows."""
        return self.kernel.roundings(self.scaled(X), gamma)

    def n_features(self, d: int) -> int | None:
        """Return the dimension of the feature map of the kernel inside."""
        return self.kernel.n_features(d)

    def features(self, X: Any, unit: float | None = None) -> Features:
        """Return the features of the scaled rows."""
        return self.kernel.features(self.scaled(X), unit)

    def feature_terms(self, d: int) -> list[tuple[Array, Array]] | None:
        """Return the monomials of the scaled columns."""
        return self.kernel.feature_terms(d)

    def formula(self, parts: Sequence[Any], gamma: float, exp: Callable[[Any], Any]) -> Any:
        """Return the formula of the kernel inside."""
        return self.kernel.formula(parts, gamma, exp)

    def smo_arguments(self) -> dict[str, Any] | None:
        """Return those of the kernel inside, for scaled rows."""
        return self.kernel.smo_arguments()

    def fitted(self, X: Any, weights: Array) -> Kernel:
        """Return the kernel fitted to the scaled rows, whose ranks are learned if it has ranks."""
        ranked = self if self.columns is None else replace(self, columns=Ranks.of(X, weights))
        return replace(ranked, kernel=self.kernel.fitted(ranked.scaled(X), weights))

    def unit_gamma(self, X: Any, weights: Array) -> float:
        """Return the natural gamma of the scaled rows."""
        return self.kernel.unit_gamma(self.scaled(X), weights)


def check_widths(widths: Any) -> Array:
    """Return the widths as an array; raise ValueError if they cannot scale columns."""
    try:
        checked = np.array(widths, dtype=np.float64)
    except (TypeError, ValueError):
        checked = np.empty(0)
    if checked.ndim != 1 or not checked.size or not np.isfinite(checked).all() or (checked < 0.0).any():
        raise ValueError(
            f"the widths of a metric must be finite numbers that are not negative, one per column; not {widths!r}"
        )
    if not checked.any():
        raise ValueError("all widths of the metric are zero: no column would matter")
    checked.flags.writeable = False
    return checked
