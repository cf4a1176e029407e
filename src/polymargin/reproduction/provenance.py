"""Where results come from: versions, machine, date."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from joblib import cpu_count

__all__ = ["describe_session", "to_toml"]

_PACKAGES = ("polymargin", "numpy", "scipy", "scikit-learn", "numba", "joblib")


def describe_session() -> dict[str, Any]:
    """Return the date (UTC), the machine's cores and the versions that matter to the numbers."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "versions": versions,
    }


def to_toml(document: Mapping[str, Any]) -> str:
    """Write a document of strings, numbers, flat tables and lists of flat tables as toml.

    Examples
    --------
    >>> print(to_toml({"name": "t", "part": {"a": 1}, "list": [{"b": "x"}]}), end="")
    name = "t"
    <BLANKLINE>
    [part]
    a = 1
    <BLANKLINE>
    [[list]]
    b = "x"
    """
    lines: list[str] = []
    _write_table(lines, document, prefix="")
    return "\n".join(lines) + "\n"


def _write_table(lines: list[str], table: Mapping[str, Any], prefix: str) -> None:
    """Append a table's own entries, then its subtables under their dotted names."""
    for name, value in table.items():
        if not isinstance(value, Mapping | list):
            lines.append(f"{_toml_key(name)} = {_toml_scalar(value)}")
    for name, value in table.items():
        path = f"{prefix}.{_toml_key(name)}" if prefix else _toml_key(name)
        if isinstance(value, Mapping):
            lines += ["", f"[{path}]"]
            _write_table(lines, value, path)
        elif isinstance(value, list):
            for item in value:
                lines += ["", f"[[{path}]]"]
                _write_table(lines, item, path)


def _toml_key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else _toml_scalar(name)


def _toml_scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    escaped = "".join(
        f"\\u{ord(character):04x}" if ord(character) < 0x20 or ord(character) == 0x7F else character
        for character in str(value).replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{escaped}"'
