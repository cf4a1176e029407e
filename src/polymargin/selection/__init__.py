"""Selection: by which criteria C and the kernel's parameter are chosen inside ``fit``, and how they are searched.

`SearchSettings` holds the numbers of the search by leave-one-out errors, `CrossValidation` the result of a
cross-validation.
`polymargin.inspection.selection_surface` shows what a fitted estimator chose from.
"""

from polymargin.selection.settings import SearchSettings
from polymargin.selection.surface import CrossValidation

__all__ = ["CrossValidation", "SearchSettings"]
