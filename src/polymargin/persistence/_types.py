"""Which types a model file may hold.

skops checks types too, by name. What is here is stricter: a name must be that of a class which its module defines, and
every kind of node may hold the classes it is meant for and no others. Kinds of nodes that end in a call of something
that the file names (methods, partial functions, operators, reduced objects) may not occur at all.
"""

from __future__ import annotations

import importlib
import sys
from collections import OrderedDict, defaultdict
from enum import Enum
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from polymargin.kernels import FunctionKernel

#: The packages whose classes make up a fitted model.
OWN_PACKAGES = (
    "codebooks",
    "dealing",
    "decisions",
    "decoders",
    "densities",
    "estimators",
    "kernels",
    "machines",
    "outputs",
    "rows",
    "scale",
    "selection",
    "solvers",
)
#: Other places of ours, of which only transformers belong to a model.
OWN_PREPARATIONS = ("_preparation", "tables")

#: A list of column numbers in every `ColumnTransformer` of scikit-learn 1.6 that selects columns by name.
_REMAINDER = "sklearn.compose._column_transformer._RemainderColsList"

_PLAIN: dict[str, tuple[type, ...]] = {
    "JsonNode": (str,),
    "DictNode": (dict, OrderedDict),
    "DefaultDictNode": (defaultdict,),
    "ListNode": (list,),
    "TupleNode": (tuple,),
    "SetNode": (set,),
    "SliceNode": (slice,),
    "BytesNode": (bytes,),
    "BytearrayNode": (bytearray,),
    "TypeNode": (bool, int, float, str),
    "NdArrayNode": (np.ndarray,),
    "MaskedArrayNode": (np.ma.MaskedArray,),
    "DTypeNode": (np.dtype,),
    "RandomStateNode": (np.random.RandomState,),
    "RandomGeneratorNode": (np.random.Generator,),
}


def may_hold(loader: str, module: str, name: str) -> bool:
    """Tell whether a node of this kind may hold an object of this type.

    Examples
    --------
    >>> may_hold("ObjectNode", "polymargin.kernels.rbf", "RBF")
    True
    >>> may_hold("ObjectNode", "polymargin._progress", "Progress"), may_hold("TypeNode", "builtins", "eval")
    (False, False)
    """
    found = lookup(module, name)
    if loader == "FunctionNode":
        # Elementwise functions, as FunctionTransformer takes them, do nothing but arithmetic.
        return isinstance(found, np.ufunc) and module.split(".")[0] in ("numpy", "scipy")
    if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module, name):
        return False
    if loader in _PLAIN and found in _PLAIN[loader]:
        return True
    match loader:
        case "NdArrayNode" | "TypeNode":
            return issubclass(found, np.generic) and not issubclass(found, np.void | np.object_)
        case "SparseMatrixNode":
            return issubclass(found, sparse.spmatrix | sparse.sparray)
        case "ObjectNode":
            if is_own(module):
                plain = is_own_preparation(module) and not issubclass(found, BaseEstimator)
                return not plain and found is not FunctionKernel  # it is there to call something
            trained = module.startswith("sklearn.") and issubclass(found, BaseEstimator)
            return trained or f"{module}.{name}" == _REMAINDER
        case "LossNode":
            return module.startswith("sklearn.")
        case "ConstructorFromReduceNode":
            return is_own(module) and issubclass(found, Enum) and len(found) > 0
    return False


def is_own(module: str) -> bool:
    """Tell whether a module belongs to the packages whose classes make up a model."""
    parts = module.split(".")
    return parts[0] == "polymargin" and len(parts) > 1 and parts[1] in (*OWN_PACKAGES, *OWN_PREPARATIONS)


def is_own_preparation(module: str) -> bool:
    """Tell whether a module prepares tables for models."""
    return is_own(module) and module.split(".")[1] in OWN_PREPARATIONS


def needs_trust(module: str, name: str) -> bool:
    """Tell whether skops must be told to trust a type: ours, and those of other libraries that are not on its list."""
    return (
        is_own(module)
        or module.startswith("scipy.sparse.")
        or f"{module}.{name}" in ("numpy.dtype", _REMAINDER)
    )


def lookup(module: str, name: str) -> Any:
    """Return what a module calls by a name, or None; of all modules only our own are imported for that."""
    if module not in sys.modules and is_own(module):
        try:
            importlib.import_module(module)
        except ImportError:
            return None
    return vars(sys.modules[module]).get(name) if module in sys.modules else None
