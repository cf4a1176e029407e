"""The schema of a skops file: the tree of nodes that says how to make the objects again.

A node is a dictionary with a ``__loader__``, the kind of node, the ``__module__`` and ``__class__`` of the object, and
its content, in which there are nodes again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from polymargin.persistence._arrays import check_array, check_sparse
from polymargin.persistence._errors import ModelFileError
from polymargin.persistence._types import is_own, lookup, may_hold, needs_trust

#: More levels than any model has, fewer than the parsers can take.
_DEEPEST = 300


class Place(NamedTuple):
    """A node and where it stands in the model, such as ``model.steps[1][1].kernel``."""

    node: dict[str, Any]
    path: str


def nodes(schema: Any) -> Iterator[Place]:
    """Yield all nodes in their order, parents first."""
    stack: list[tuple[Any, str, int]] = [(schema, "model", 0)]
    while stack:
        value, path, depth = stack.pop()
        if depth > _DEEPEST:
            raise ModelFileError(f"it is nested too deeply, at {path[:200]}")
        inner: list[tuple[Any, str, int]] = []
        if isinstance(value, list):
            inner = [(item, f"{path}[{number}]", depth + 1) for number, item in enumerate(value)]
        elif isinstance(value, dict):
            if "__loader__" in value:
                yield Place(value, path)
            for key, item in value.items():
                if key == "content" and value.get("__loader__") == "DictNode" and isinstance(item, dict):
                    inner += [(child, f"{path}.{name}", depth + 2) for name, child in item.items()]
                else:
                    inner.append((item, path, depth + 1))
        stack += reversed(inner)


def check(schema: Any, members: Mapping[str, bytes]) -> set[str]:
    """Refuse a schema that holds what a model does not; return the types that skops is to trust.

    Parameters
    ----------
    schema : dict
        The parsed ``schema.json``.
    members : mapping of str to bytes
        The archive's members; those that the schema refers to are checked too.
    """
    if not isinstance(schema, dict) or "__loader__" not in schema:
        raise ModelFileError("its schema describes no object")
    trusted, checked = set(), set()
    for node, path in nodes(schema):
        loader, module, name = (str(node.get(key)) for key in ("__loader__", "__module__", "__class__"))
        if not may_hold(loader, module, name):
            raise ModelFileError(_refusal(loader, f"{module}.{name}", path))
        if loader == "FunctionNode" and "content" in node:
            raise ModelFileError(f"{path} names its function twice")
        if needs_trust(module, name):
            trusted.add(f"{module}.{name}")
        file = node.get("file")
        if file is None or (loader, file) in checked:
            continue
        if not isinstance(file, str) or file not in members:
            raise ModelFileError(f"{path} refers to {file!r}, which the file does not hold")
        if loader == "NdArrayNode":
            check_array(members[file], file)
        elif loader == "SparseMatrixNode":
            check_sparse(members[file], file)
        checked.add((loader, file))
    return trusted


def _refusal(loader: str, type_name: str, path: str) -> str:
    """Say what is refused, and what to do about it."""
    if loader in ("FunctionNode", "MethodNode", "PartialNode", "OperatorFuncNode"):
        parameter = path.rpartition(".")[2]
        remedy = (
            'use kernel="precomputed" and keep the function in your program'
            if parameter in ("kernel", "function")
            else "a parameter that prediction does not need can be set to something else before saving"
        )
        return f"{path} is the function {type_name}: model files hold no code; {remedy}"
    return (
        f"{path} is of the type {type_name}, and files hold only polymargin's own types and the estimators, arrays and "
        "sparse matrices of scikit-learn, numpy and scipy that skops trusts; a parameter that prediction does not need "
        "can be set to something else before saving, and of a search the best_estimator_ can be saved"
    )


def forget_what_can_be_computed(schema: dict[str, Any]) -> None:
    """Take out of the schema, in place, what our objects' cached properties hold."""
    for node, _ in nodes(schema):
        state = node.get("content")
        if (
            node["__loader__"] != "ObjectNode"
            or not is_own(node["__module__"])
            or not isinstance(state, dict)
        ):
            continue
        cls = lookup(node["__module__"], node["__class__"])
        names = list(state.get("content", ()))
        kept = [name for name in names if not isinstance(getattr(cls, name, None), cached_property)]
        if len(kept) < len(names):
            key_types = state["key_types"]["content"]
            state["key_types"]["content"] = [key_types[names.index(name)] for name in kept]
            state["content"] = {name: state["content"][name] for name in kept}


def renumbered(schema: dict[str, Any], members: Mapping[str, bytes]) -> dict[str, bytes]:
    """Number objects and members by their order in the schema, in place; return the members that are used.

    skops numbers them by their addresses in memory. So the same model gives the same file, and equal arrays are stored
    once.
    """
    numbers: dict[int, int] = {}
    names: dict[bytes, str] = {}
    used: dict[str, bytes] = {}
    for node, _ in nodes(schema):
        if "__id__" in node:
            node["__id__"] = numbers.setdefault(node["__id__"], len(numbers) + 1)
        if "file" in node:
            content = members[node["file"]]
            ending = node["file"].rpartition(".")[2]
            digest = hashlib.sha256(content).digest() + ending.encode()
            node["file"] = names.setdefault(digest, f"{len(names)}.{ending}")
            used[node["file"]] = content
    return used
