"""Check the docstrings of everything public by numpydoc: parameters that match the signature, and what is returned.

Public is what ``polymargin.__all__`` and the ``__all__`` of its public submodules name, and the public methods and
properties of the classes among that. A method that overrides one of the package is described by that one's docstring,
and needs sections of its own only where it says more. Dataclasses and named tuples may describe their fields as
Attributes instead of Parameters.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

CHECKS = {
    "GL06",  # an unknown section
    "GL07",  # sections in the wrong order
    "GL08",  # no docstring
    "PR01",  # a parameter that is not documented
    "PR02",  # a documented parameter that does not exist
    "PR03",  # parameters in another order than in the signature
    "PR04",  # a parameter without a type
    "PR10",  # a type that is not set off by " : "
    "RT01",  # no Returns section
    "SS03",  # a summary without a period
    "YD01",  # no Yields section
}
#: What an overriding method leaves to the docstring of the method that it overrides.
INHERITED = {"PR01", "RT01", "YD01"}


class Public(NamedTuple):
    """A public object, by the name that numpydoc takes, and what is checked of it."""

    name: str
    module: str
    checks: frozenset[str]


def _describes_its_fields(cls: type) -> bool:
    """Return whether a dataclass or named tuple has all its public fields in its Attributes section or a base's."""
    names = getattr(cls, "_fields", None) or list(getattr(cls, "__dataclass_fields__", {}))
    fields = [name for name in names if not name.startswith("_")]
    ours = [base for base in cls.__mro__ if base.__module__.startswith("polymargin.")]
    attributes = [part for base in ours for part in NumpyDocString(base.__doc__ or "")["Attributes"]]
    described = {name.strip() for attribute in attributes for name in attribute.name.split(",")}
    return bool(fields) and described.issuperset(fields)


def public_objects() -> Iterator[Public]:
    """Yield the public classes and functions of the package, and the methods and properties of the classes."""
    package = import_module("polymargin")
    submodules = [
        module.name
        for module in pkgutil.iter_modules(package.__path__, "polymargin.")
        if not module.name.split(".")[1].startswith("_")
    ]
    seen = set()
    for module_name in ("polymargin", *submodules):
        module = import_module(module_name)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or thing in seen:
                continue
            seen.add(thing)
            checks = CHECKS - {"PR01"} if inspect.isclass(thing) and _describes_its_fields(thing) else CHECKS
            yield Public(f"{thing.__module__}.{thing.__qualname__}", thing.__module__, frozenset(checks))
            if inspect.isclass(thing):
                yield from _members(thing, seen)


def _members(cls: type, seen: set[Any]) -> Iterator[Public]:
    """Yield the methods and properties that a class has from the package."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("polymargin.")]
    for place, base in enumerate(ours):
        for attribute, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if attribute.startswith("_") or not inspect.isfunction(function) or function in seen:
                continue
            seen.add(function)
            checks = frozenset(CHECKS)
            if isinstance(member, property):
                checks -= {"RT01"}
            if any(attribute in vars(other) for other in ours[place + 1 :]):
                checks -= INHERITED
            yield Public(f"{base.__module__}.{base.__qualname__}.{attribute}", function.__module__, checks)


def main() -> int:
    """Print the violations, and their number in every module."""
    counts: Counter[str] = Counter()
    for public in public_objects():
        for code, message in validate(public.name)["errors"]:
            if code in public.checks:
                counts[public.module] += 1
                print(f"{public.name}: {code} {message}")
    for module, count in sorted(counts.items()):
        print(f"{count:4d}  {module}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
