"""Selection: how C and the kernel's parameter are chosen inside ``fit``.

`cross_validate_svm` scores support vector machines on a grid, `polymargin.selection.evidence` infers the parameters
of least-squares machines, `SearchSettings` holds the numbers of their search by leave-one-out errors.
`polymargin.inspection.selection_surface` shows what a fitted estimator chose from.
"""

from typing import Any

from polymargin.selection.settings import SearchSettings

__all__ = ["CrossValidation", "SearchSettings", "cross_validate_svm"]


def __getattr__(name: str) -> Any:
    """Import cross-validation when it is wanted: it needs numba, which least squares never loads."""
    if name in __all__:
        from polymargin.selection import cross_validation

        return getattr(cross_validation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
