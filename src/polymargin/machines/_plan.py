"""Whether the kernel matrices of a fit, or the features in their place, fit into memory."""

from __future__ import annotations

from polymargin import _memory
from polymargin._threads import n_threads
from polymargin.machines._gram import GroupGram
from polymargin.machines._workspace import KEPT_BYTES
from polymargin.rows import TrainingRows


def require_memory(
    data: TrainingRows, groups: list[GroupGram], keep_factors: bool, by_features: bool
) -> None:
    """Raise MemoryError if the kernel matrices, or the features used in their place, do not fit into memory."""
    squares = [float(group.rows.size) ** 2 for group in groups if not group.by_features]
    n_features = data.kernel.n_features(data.X.shape[1]) if by_features else None
    n_rows = data.X.shape[0]
    at_once = min(n_threads(), len(groups))
    entry = 8.0 * data.kernel.base_numbers  # bytes of the base matrix
    factorised = (32.0 + entry) * max(squares, default=0.0) * at_once
    kept = 8.0 * sum(squares) if keep_factors else 0.0
    if n_features is None:
        shared = 2.0 * min(entry * n_rows**2, KEPT_BYTES)
        purpose = f"the kernel matrix of {max(squares) ** 0.5:.0f} rows with its factorisations"
    else:
        shared = 8.0 * n_features * n_rows * (1 + 5 * at_once)
        purpose = f"{n_features} features of {n_rows} rows, with what is computed of them,"
    remedy = "fit fewer rows"
    if len(groups) == 1:
        remedy += ', or choose coding="one-vs-one", whose machines see two classes at a time'
    _memory.require(factorised + kept + shared, purpose, remedy)


def require_matrix(group: GroupGram) -> None:
    """Raise MemoryError if a kernel matrix does not fit, once the feature map has proved numerically unusable."""
    n_rows = group.rows.size
    _memory.require(
        (32.0 + 8.0 * group.kernel.base_numbers) * float(n_rows) ** 2 * n_threads(),
        f"the kernel matrix of {n_rows} rows, among them some that are very far from the others,",
        "scale the features, for example with StandardScaler, look for outliers, or give a smaller C",
    )
