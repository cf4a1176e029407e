"""Formulas as MathML, which browsers draw themselves: nothing is loaded, on a phone or without a network.

``latex2mathml`` translates when the pages are built. A formula that it cannot read fails the build.
"""

from __future__ import annotations

from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def translated(node: nodes.Element, display: str) -> str:
    """Return the MathML of a formula, with its LaTeX as the text for those who cannot see it."""
    source = node.astext()
    body = source
    if display == "block" and "\\\\" in source and "\\begin" not in source:
        body = r"\begin{aligned}" + source + r"\end{aligned}"
    try:
        markup = convert(body, display=display)
    except Exception as error:
        logger.warning("cannot translate the formula %r: %s", source, error, location=node)
        return f"<code>{escape(source)}</code>"
    return markup.replace("<math ", f'<math aria-label="{escape(source.strip())}" ', 1)


def visit_inline(translator, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    translator.body.append(f'<span class="math">{translated(node, "inline")}</span>')
    raise nodes.SkipNode


def visit_block(translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, with its number if it has a label."""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    anchors = "".join(f'<span id="{escape(name)}"></span>' for name in node.get("ids", ()))
    translator.body.append(f'{anchors}<div class="math">{translated(node, "block")}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
