"""A summary as one HTML page without external resources."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from polymargin._output import write_atomically
from polymargin.report._figures import figures

__all__ = ["render_page", "write_page"]

_KINDS = ("fit", "compare")
#: Characters of JSON that could end a script element, or a line of a script.
_HARMFUL = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def write_page(summary: dict[str, Any], path: str | Path) -> Path:
    """Write a summary as one HTML file; at any moment it is the old page or the new one, whole.

    Parameters
    ----------
    summary : dict
        What `fit_summary` or `compare_summary` returned.
    path : str or Path
        The file.

    Returns
    -------
    Path
        The file, with its folder.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.report import fit_summary
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = make_pipeline(LSSVMClassifier(kernel="linear")).fit(X, y)
    >>> honest = model[-1].loo_log_proba_
    >>> summary = fit_summary(model, X, y, title="iris", log_proba=honest, classes=model.classes_)
    >>> write_page(summary, Path(tempfile.mkdtemp()) / "iris.html").name
    'iris.html'
    """
    path = Path(path)
    write_atomically(path, render_page(summary).encode())
    return path.resolve()


def render_page(summary: dict[str, Any]) -> str:
    """Return a summary as the text of an HTML page."""
    if summary.get("kind") not in _KINDS:
        raise ValueError(f'a summary\'s "kind" is "fit" or "compare", not {summary.get("kind")!r}')
    scripts = {"plotly_js": _plotly_js(), "page_js": _static("page.js")}
    drawn = figures(summary)
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            **summary,
            **{name: Markup(script) for name, script in scripts.items()},
            figures=drawn,
            figures_json=Markup(_script_json(drawn)),
            region_shares=_region_shares(summary),
            script_hashes=Markup(" ".join(_hash(script) for script in scripts.values())),
            style=Markup(_static("style.css")),
        )
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("polymargin.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["three"] = lambda value: f"{value:.3g}"
    return environment


def _static(name: str) -> str:
    return (files("polymargin.report") / "templates" / name).read_text(encoding="utf-8")


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element, whatever texts it holds.

    Examples
    --------
    >>> print(_script_json({"name": "</script>"}))
    {"name":"\\u003c/script\\u003e"}
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_HARMFUL)


def _hash(script: str) -> str:
    """Return the hash of a script for the page's Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _region_shares(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the share of the plane that every class has, as a description of the figure in words."""
    found = summary["model"]["regions"]
    if "missing" in found:
        return []
    label, probability = np.array(found["label"]), np.array(found["probability"])
    return [
        {
            "class": name,
            "share": float((label == k).mean()),
            "probability": float(probability[label == k].mean()) if (label == k).any() else None,
        }
        for k, name in enumerate(summary["classes"])
    ]
