"""What was chosen and how good it is: a table that fitted estimators show in notebooks, in scikit-learn's diagram."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from polymargin.inspection.honest import honest_rows
from polymargin.inspection.members import coding_name, in_a_word, kernel_members, member_name, training_rows
from polymargin.inspection.tried import in_words, searches

#: Names of more classes than this are not all written out.
_NAMES = 8
#: What a parameter ``selection`` means.
SELECTIONS = {
    None: "approximate leave-one-out log-loss",  # of kernel logistic regression, which has no other
    "loo": "squared leave-one-out errors",
    "loo-exact": "squared leave-one-out errors of all rows",
    "gcv": "generalised cross-validation",
    "evidence": "the evidence",
    "cv": "cross-validation",
}
_MARK = "polymargin-choices"
# Colours are inherited, since notebooks may be light or dark, and stripe tables. scikit-learn's diagram finds out which
# and marks itself ``dark``, but keeps its light boxes; the table is dark there.
_STYLE = f"""<style>
.{_MARK} table {{ border-collapse: collapse; margin: 0.3em 0.5em; font-size: 0.95em; color: inherit; }}
.{_MARK} tr {{ background: transparent !important; }}
.{_MARK} th, .{_MARK} td {{ padding: 0.15em 0.7em 0.15em 0; text-align: left !important; vertical-align: top;
  border: none; border-bottom: 1px solid rgba(128, 128, 128, 0.3); color: inherit; white-space: normal; }}
.{_MARK} th {{ font-weight: 600; opacity: 0.75; white-space: nowrap; }}
.sk-global.dark .{_MARK} {{ background: #1b2027; color: #e7eaee; color-scheme: dark; padding: 0.2em 0.3em; }}
</style>"""


class ChoicesMixin:
    """Shows the table of choices with scikit-learn's HTML representation; to come before BaseEstimator."""

    def __dir__(self) -> list[str]:
        # Without the attributes that this decoding, or kernel, does not have. Relevances take as long to compute as
        # machines, and are not computed for a list of names.
        costly = {"feature_relevance_": getattr(self, "_has_relevance", False)}
        names = object.__dir__(self)
        return [name for name in names if (costly[name] if name in costly else hasattr(self, name))]

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        """Return scikit-learn's table of parameters (1.7 and newer), with the choices above it, in pipelines too."""
        parameters = super()._get_params_html(*args, **kwargs)  # type: ignore[misc]
        table, shown = choices_table(self), parameters._html_repr
        parameters._html_repr = lambda: table + shown()
        return parameters

    def _repr_html_inner(self) -> str:
        return _with_table(self, super()._repr_html_inner())  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = _with_table(self, bundle["text/html"])
        return bundle


def _with_table(estimator: Any, page: str) -> str:
    """Return the page with the table, which scikit-learn before 1.7 has left out."""
    return page if _MARK in page else page + choices_table(estimator)


def choices_table(estimator: Any) -> str:
    """Return the table of what a fitted estimator chose and how good it is, as HTML; empty if it is not fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return ""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in choices(estimator)
    )
    tried = "".join(_tried_tables(estimator))
    return f'{_STYLE}<div class="{_MARK}"><table><tbody>{rows}</tbody></table>{tried}</div>'


def _tried_tables(estimator: Any) -> Iterator[str]:
    """Yield what was tried, by every member of a pool, as tables that are opened by a click."""
    pool = hasattr(estimator, "members_")
    for found in searches(estimator):
        names = ("kernel", "C", "gamma", "C divided by", found.loss_name, "chosen")
        head = "".join(f"<td><b>{escape(name)}</b></td>" for name in names)
        body = ""
        for row in found.rows:
            chosen = "yes" if row["chosen"] else ""
            cells = (
                row["kernel"],
                in_words(row["C"]),
                in_words(row["gamma"]),
                f"{row['smaller_C']:g}",
                f"{row['loss']:.4g}",
                chosen,
            )
            body += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        of = f" by {escape(found.model)}" if pool else ""
        sample = f", compared on a sample of {found.n_rows} rows" if found.sampled else ""
        yield f"<details><summary>What was tried{of}{sample}</summary><table><tr>{head}</tr>{body}</table></details>"


def choices(estimator: Any) -> Iterator[tuple[str, str]]:
    """Yield names and values; what an estimator does not have is left out."""
    names = [str(name) for name in np.asarray(estimator.classes_).tolist()]
    yield "classes", f"{len(names)}: {', '.join(names[:_NAMES])}{', …' if len(names) > _NAMES else ''}"
    kernel = getattr(estimator, "kernel_", None)
    if kernel is not None:
        yield "kernel", kernel.name
        yield "C", _span(estimator.C_)
        if kernel.tunable:
            yield "gamma", _span(estimator.gamma_)
        if estimator.C is None or (estimator.gamma is None and kernel.tunable):
            yield "chosen by", SELECTIONS[getattr(estimator, "selection", None)]
        if getattr(estimator, "shrinkage_", 1.0) != 1.0:
            yield "smaller C", f"by a factor of {estimator.shrinkage_:g}: its outputs decode better"
    if getattr(estimator, "kernel_losses_", None):
        yield (
            "kernels tried",
            "; ".join(f"{name}: {loss:.4g}" for name, loss in estimator.kernel_losses_.items()),
        )
    if hasattr(estimator, "codebook_"):
        yield (
            "coding",
            f"{coding_name(estimator)}, {len(names)} classes × {estimator.codebook_.n_columns} machines",
        )
        yield "decoding", in_a_word(estimator._decoding)
    for member, weight in zip(
        getattr(estimator, "members_", ()), getattr(estimator, "weights_", ()), strict=True
    ):
        yield f"weight of {member_name(member)}", f"{weight:.2f}"
    yield from _rows(estimator)
    yield from _quality(estimator)


def _rows(estimator: Any) -> Iterator[tuple[str, str]]:
    """Yield how the fit was planned, how many rows there were, and how many of them became support vectors."""
    plan = getattr(estimator, "plan_", None)
    yield from _plans(estimator)
    if plan is not None and plan.scale != "exact" and hasattr(estimator, "n_rows_"):
        yield "training rows", f"{estimator.n_rows_}"
        yield "decoder learned from", f"{estimator.support_.size} of them"
        return
    for place in ("_trained_rows", "support_", "_class_index"):
        if hasattr(estimator, place):
            n_rows = len(getattr(estimator, place))
            yield "training rows", f"{n_rows}"
            break
    if hasattr(estimator, "support_") and kernel_members(estimator):
        share = estimator.support_.size / n_rows
        yield "support vectors", f"{estimator.support_.size} ({'all' if share == 1.0 else f'{share:.0%}'})"


def _plans(estimator: Any) -> Iterator[tuple[str, str]]:
    """Yield how the fit was divided; nothing where all machines are exact and take little memory."""
    members = [each for each in kernel_members(estimator) if hasattr(each, "plan_")]
    if all(each.plan_.is_plain for each in members):
        return
    texts = [str(each.plan_).partition(": ")[2] for each in members]
    if len(set(texts)) == 1:
        yield "plan", texts[0]
        return
    for member, text in zip(members, texts, strict=True):
        yield f"plan of {member_name(member)}", text


def _quality(estimator: Any) -> Iterator[tuple[str, str]]:
    """Yield how good it is on rows that were held out, where that is known."""
    found = getattr(estimator, "selection_", None)
    if found is not None and len(found.best_score) == 1:
        yield "cross-validated accuracy", f"{found.best_score[0]:.1%}"
    if not hasattr(estimator, "loo_log_loss_"):
        return
    yield "leave-one-out log-loss", f"{estimator.loo_log_loss_:.4g}"
    if training_rows(estimator).soft_labels is None:
        yield "leave-one-out accuracy", f"{honest_rows(estimator).accuracy:.1%}"


def _span(values: Any) -> str:
    """Return a number, or from where to where several go."""
    different = np.unique(values)
    if different.size == 1:
        return f"{different[0]:.4g}"
    return f"{different[0]:.4g} to {different[-1]:.4g}, machine by machine"
