"""Writes the pages of the API reference: one for every public module, with all that its ``__all__`` names.

They are written before the build into ``docs/api`` (which git ignores), so that nothing public can be missing. What
``polymargin`` itself offers is documented by that name: `polymargin.Bayes`, not ``polymargin.decoders.Bayes``.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx

import polymargin

#: The modules of the reference, in its order.
FOR_USERS = (
    "estimators", "densities", "codebooks", "decoders", "kernels", "metrics", "plots", "inspection", "selection",
    "decisions",
    "tables", "scale", "datasets", "comparison", "persistence", "onnx", "report",
)  # fmt: skip
FOR_DEVELOPERS = ("outputs", "machines", "folds", "device", "cluster", "reproduction", "papers")
#: Modules without ``__all__``.
NAMES = {"outputs": ("Outputs", "Nested")}


def public_names(module: str) -> list[str]:
    """Return the classes and functions of a public module."""
    loaded = import_module(f"polymargin.{module}")
    things = ((name, getattr(loaded, name)) for name in NAMES.get(module, getattr(loaded, "__all__", ())))
    return [name for name, thing in things if inspect.isclass(thing) or inspect.isfunction(thing)]


def documented_name(module: str, name: str) -> str:
    """Return the full name under which something public is documented."""
    ours = getattr(import_module(f"polymargin.{module}"), name)
    offered = getattr(polymargin, name, None) is ours
    return f"polymargin.{name}" if offered else f"polymargin.{module}.{name}"


def page(module: str) -> str:
    """Return the page of a module."""
    loaded = import_module(f"polymargin.{module}")
    title = f"polymargin.{module}"
    lines = [
        title,
        "=" * len(title),
        "",
        *(inspect.getdoc(loaded) or "").split("\n\n")[0].splitlines(),
        "",
    ]
    names = public_names(module)
    kinds = {
        "Classes": [name for name in names if inspect.isclass(getattr(loaded, name))],
        "Functions": [name for name in names if not inspect.isclass(getattr(loaded, name))],
    }
    for kind, listed in kinds.items():
        if listed:
            lines += [
                kind,
                "-" * len(kind),
                "",
                ".. autosummary::",
                "   :toctree: generated",
                "   :nosignatures:",
                "",
            ]
            lines += [f"   {documented_name(module, name)}" for name in listed]
            lines.append("")
    return "\n".join(lines)


def index() -> str:
    """Return the first page of the reference."""
    lines = ["API reference", "=============", ""]
    parts = {
        "For users": ("What programs import; names such as ``LSSVMClassifier`` from ``polymargin`` itself.", FOR_USERS),
        "For developers": ("What the parts above are made of, and what reproduces the papers.", FOR_DEVELOPERS),
    }  # fmt: skip
    for title, (about, modules) in parts.items():
        lines += [title, "-" * len(title), "", about, "", ".. toctree::", "   :maxdepth: 1", ""]
        lines += [f"   {module}" for module in modules] + [""]
    return "\n".join(lines)


def write_pages(app: Sphinx) -> None:
    """Write the pages that have changed."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    texts = {"index": index()} | {module: page(module) for module in (*FOR_USERS, *FOR_DEVELOPERS)}
    for name, text in texts.items():
        file = folder / f"{name}.rst"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its files."""
    write_pages(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
