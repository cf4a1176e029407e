"""Selection of C and the kernel's parameter inside ``fit``: the criteria, and the search.

`SearchSettings` holds the numbers of the search by leave-one-out errors, `CrossValidation` the result of a
cross-validation.
`polymargin.inspection.selection_surface` returns the criterion of a fitted estimator on a grid.
"""

from polymargin.selection.settings import SearchSettings
from polymargin.selection.surface import CrossValidation

__all__ = ["CrossValidation", "SearchSettings"]
