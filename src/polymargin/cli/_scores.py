"""Scores on held-out rows, in words: beside a baseline, and with a warning where a model has learned nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["quality_lines", "warning_lines"]

#: Recalls of so many classes are listed, the smallest first.
_LISTED = 5
#: With fewer held-out rows of a class, a log-loss that is not better than the baseline's may be for want of rows.
_FEW_ROWS = 30


def quality_lines(quality: dict[str, Any], classes: Sequence[Any]) -> Iterator[str]:
    """Yield the scores, line by line.

    Parameters
    ----------
    quality : dict
        What `polymargin.cli._quality.scores` returned.
    classes : sequence
        The labels.
    """
    if "log_loss" in quality:
        yield (
            f"log-loss {quality['log_loss']:.4f} (baseline, the class frequencies: "
            f"{quality['log_loss_of_frequencies']:.4f})"
        )
    most_frequent = classes[quality["most_frequent"]]
    yield (
        f"accuracy {quality['accuracy']:.1%} (baseline, always {most_frequent!r}: "
        f"{quality['accuracy_of_most_frequent']:.1%})"
        + ("" if "log_loss" in quality else "; no probabilities")
    )
    ranked = [f"balanced accuracy (mean recall) {quality['balanced_accuracy']:.1%}"]
    if quality.get("auc") is not None:
        ranked.append(f"AUC (ROC, one-vs-rest) {quality['auc']:.3f}")
    yield ", ".join(ranked)
    if quality["unbalanced"] or _never_right(quality):
        yield f"recall: {_recalls(quality['recall'], classes)}"
    if "log_loss" in quality:
        yield f"Brier score {quality['brier']:.4f}, calibration error {quality['calibration_error']:.4f}"


def warning_lines(quality: dict[str, Any], classes: Sequence[Any]) -> Iterator[str]:
    """Yield what speaks against using a model.

    Parameters
    ----------
    quality, classes
        See `quality_lines`.

    Examples
    --------
    >>> quality = {"learned": False, "recall": [1.0, 1.0]}
    >>> print(*warning_lines(quality, ["a", "b"]))
    the model has learned nothing measurable: its log-loss is not better than that of the class frequencies by more \
than chance (two standard errors)
    >>> (line,) = warning_lines({**quality, "class_rows": [300, 20]}, ["a", "b"])
    >>> line.endswith("; there are only 20 rows of 'b', and with more rows this may change")
    True
    """
    if quality.get("learned") is False:
        yield (
            "the model has learned nothing measurable: its log-loss is not better than that of the class frequencies "
            f"by more than chance (two standard errors){_want_of_rows(quality, classes)}"
        )
        return
    never = [classes[k] for k in _never_right(quality)]
    if never:
        shown = ", ".join(map(repr, never[:_LISTED])) + (
            f" and {len(never) - _LISTED} more" * (len(never) > _LISTED)
        )
        yield (
            f"no row of {shown} is predicted right: look at the probabilities of the class rather than at the label, "
            "or at the AUC"
        )


def _want_of_rows(quality: dict[str, Any], classes: Sequence[Any]) -> str:
    """Return that a class has few rows, if so."""
    known = [(n_rows, k) for k, n_rows in enumerate(quality.get("class_rows", ())) if n_rows > 0]
    fewest, k = min(known, default=(_FEW_ROWS, 0))
    if fewest >= _FEW_ROWS:
        return ""
    rows = "is only one row" if fewest == 1 else f"are only {fewest} rows"
    return f"; there {rows} of {classes[k]!r}, and with more rows this may change"


def _never_right(quality: dict[str, Any]) -> list[int]:
    """Return the classes without a single right prediction."""
    return [k for k, recall in enumerate(quality["recall"]) if recall == 0.0]


def _recalls(recalls: Sequence[float | None], classes: Sequence[Any]) -> str:
    """Write the smallest recalls with their classes.

    >>> _recalls([0.5, 0.9, None, 0.8, 0.7, 0.1, 0.3, 1.0], "abcdefgh")
    "'f' 10.0%, 'g' 30.0%, 'a' 50.0%, 'e' 70.0%, 'd' 80.0%; at least 90.0% for the other 2 classes"
    """
    known = sorted((recall, k) for k, recall in enumerate(recalls) if recall is not None)
    listed = ", ".join(f"{classes[k]!r} {recall:.1%}" for recall, k in known[:_LISTED])
    if len(known) <= _LISTED:
        return listed
    n_others = len(known) - _LISTED
    others = "the other class" if n_others == 1 else f"the other {n_others} classes"
    return f"{listed}; at least {known[_LISTED][0]:.1%} for {others}"
