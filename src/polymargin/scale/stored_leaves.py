"""Fitted leaves as arrays in a file, and back."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from polymargin.codebooks.partial import PartialCodebook
from polymargin.kernels import Kernel
from polymargin.kernels._features import FeatureExpansion
from polymargin.machines import LSSVMBank
from polymargin.rows import TrainingRows
from polymargin.scale.leaves import Leaf
from polymargin.scale.sources import FittedLeaf

Array = NDArray[Any]

_OF_LEAF = ("sampled", "shares", "exact", "honest")
_OF_ROWS = ("X", "class_index", "weights")
_OF_BANK = (
    "dual_coef",
    "intercept",
    "norms",
    "C",
    "gamma",
    "mu",
    "zeta",
    "log_evidence",
    "loo_margins",
    "rounding_error",
)


def to_arrays(fitted: FittedLeaf) -> dict[str, Any]:
    """Return a fitted leaf as arrays, without its kernel, which all leaves share.

    Parameters
    ----------
    fitted : FittedLeaf
        The leaf.

    Returns
    -------
    dict of str to ndarray
    """
    leaf, bank = fitted.leaf, fitted.leaf.bank
    found = {name: getattr(fitted, name) for name in _OF_LEAF}
    found |= {"constants": leaf.constants, "columns": leaf.columns}
    if bank is not None:
        found |= {name: getattr(bank.data, name) for name in _OF_ROWS}
        found |= {name: getattr(bank, name) for name in _OF_BANK}
        found["bits"] = bank.codebook.matrix
        if bank.expansion is not None:
            expansion = bank.expansion
            found |= {"feature_weights": expansion.weights, "feature_constant": expansion.constant}
            found["feature_unit"] = expansion.unit
    return found


def fitted_from(arrays: dict[str, Array], kernel: Kernel) -> FittedLeaf:
    """Return the fitted leaf that `to_arrays` made arrays of.

    Parameters
    ----------
    arrays : dict of str to ndarray
        The arrays.
    kernel : Kernel
        The kernel, which all leaves share.

    Returns
    -------
    FittedLeaf
    """
    bank = None
    if "bits" in arrays:
        expansion = None
        if "feature_unit" in arrays:
            expansion = FeatureExpansion(
                arrays["feature_weights"], arrays["feature_constant"], float(arrays["feature_unit"])
            )
        known: dict[str, Any] = {name: arrays[name] for name in _OF_BANK}
        known |= {"blocks": None, "expansion": expansion, "rounding_error": float(arrays["rounding_error"])}
        bank = LSSVMBank(
            TrainingRows(kernel, arrays["X"], arrays["class_index"], arrays["weights"]),
            PartialCodebook(arrays["bits"]),
            **known,
        )
    leaf = Leaf(arrays["constants"], arrays["columns"], bank)
    return FittedLeaf(leaf, *(arrays[name] for name in _OF_LEAF))
