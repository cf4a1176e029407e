"""The text above each figure: how to read it, and what it shows for these data."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin.inspection.relevance import shortened

Summary = dict[str, Any]

#: A calibration error above this multiple of the one by chance is reported as miscalibration.
_TELLING = 1.5
_SURE = 0.95


def with_sentences(summary: Summary) -> Summary:
    """Return the summary with its sentences, by section, under "text"."""
    text = {
        "lead": _compare_lead(summary) if summary["kind"] == "compare" else _fit_lead(summary),
        "tests": _tests(summary),
        "rows": _rows(summary),
        "confusion": _confusion(summary),
        "per_class": _per_class(summary),
        "surface": _surface(summary),
        "regions": _regions(summary),
    }
    if summary["ranking"]:
        text["ranking"] = _ranking(summary)
    if summary["model"]["relevance"]:
        text["relevance"] = _relevance(summary["model"]["relevance"])
    if summary["model"]["codebook"]:
        text["codebook"] = _codebook(summary)
    if summary["model"]["members"]:
        text["members"] = (
            "The members of the pool, by their log-loss on held-out rows. The weight tells how much a member counts; "
            "the pool is usually better than the best of them."
        )
    if summary["model"]["tried"]:
        text["tried"] = _tried(summary)
    if summary["reliability"]:
        text |= {
            "reliability": _reliability(summary),
            "histograms": _histograms(summary),
            "uncertain": _uncertain(summary),
            "wrong": _wrong(summary),
        }
    return summary | {"text": text}


def _compare_lead(summary: Summary) -> str:
    best, scores = summary["ranking"][0], summary["scores"]
    methods = _count(len(summary["ranking"]), "method", "methods")
    right = f"{scores['accuracy']:.1%} of the labels right"
    if best["log_loss"] is None:
        return (
            f"Of {methods}, {summary['best']} has the most labels right: {right}. None gives probabilities."
        )
    return (
        f"Of {methods}, {summary['best']} gives the best probabilities: a log-loss of {best['log_loss']['mean']:.3f} "
        f"on rows it was not trained on, with {right}."
    )


def _fit_lead(summary: Summary) -> str:
    scores = summary["scores"]
    return (
        f"{summary['model']['estimator']} on {summary['data']['rows']} rows. On rows held out of the training it has a "
        f"log-loss of {scores['log_loss']:.3f}, with {scores['accuracy']:.1%} of the labels right."
    )


def _tests(summary: Summary) -> str:
    if summary["kind"] == "fit":
        return "All figures below show honest predictions: of every row, what is said without having learned from it."
    scores = summary["scores"]
    return (
        f"The figures below show the best method, {summary['best']}, on the test rows of {summary['splits']} splits: "
        f"{scores['predictions']} predictions of {scores['rows']} different rows. A row that was tested in several "
        "splits counts each time."
    )


def _rows(summary: Summary) -> str:
    if summary["rows_of_file"]:
        return "Rows are counted from 1, as in the program's messages; in a CSV file the header is row 1."
    return "Rows are counted from 1."


def _ranking(summary: Summary) -> str:
    rows, splits = summary["ranking"], summary["splits"]
    how = (
        f"Every method was trained on {1 - summary['test_size']:.0%} of the rows and tested on the others, on "
        f"{_count(splits, 'random split', 'random splits')}; smaller log-loss is better."
    )
    known = [row for row in rows if row["log_loss"]]
    if len(known) < 2 or splits < 2:
        return how
    reach = known[0]["log_loss"]["mean"] + known[0]["log_loss"]["sd"]
    close = sum(row["log_loss"]["mean"] <= reach for row in known)
    if close == 1:
        return f"{how} The first is ahead of all others by more than its standard deviation."
    return f"{how} The first {close} lie within one standard deviation of the best: take them as equals."


def _tried(summary: Summary) -> str:
    found = summary["model"]["tried"]
    what = "the kernel and C" if len({row["kernel"] for row in found["rows"]}) > 1 else "C"
    on = "" if found["n_rows"] is None else f", on a sample of {found['n_rows']} rows"
    how = (
        f"The candidates for {what}: for every kernel, {found['proposed_by']} propose C and gamma. They are compared "
        f"by the {found['loss_name']}{on}; smaller is better."
    )
    if any(row["smaller_C"] != 1.0 for row in found["rows"]):
        how += " A smaller C is taken only if it lowers the loss significantly."
    return how


def _reliability(summary: Summary) -> str:
    scores = summary["scores"]
    error, chance = scores["calibration_error"], scores["calibration_by_chance"]
    how = (
        "Each point stands for predictions of about the same probability: to the right what was promised, upwards how "
        "often it came true, with 95 % intervals. Promises that are kept lie on the diagonal. "
    )
    here = f"Here the calibration error is {error:.3f}; perfect probabilities would show about {chance:.3f} by chance"
    if error <= _TELLING * chance:
        return f"{how}{here}, so nothing speaks against them."
    return f"{how}{here}: {_direction(summary)}."


def _direction(summary: Summary) -> str:
    curve = summary["reliability"]["views"][0]
    count = np.array(curve["count"])
    excess = float(count @ (np.array(curve["predicted"]) - np.array(curve["observed"])) / count.sum())
    return (
        "the probabilities are too sure of themselves" if excess > 0 else "the probabilities are too cautious"
    )


def _histograms(summary: Summary) -> str:
    found = summary["histograms"]
    right, wrong = (np.array(series["counts"]) for series in found["views"][0]["series"])
    sure = np.array(found["edges"][:-1]) >= _SURE - 1e-9
    n_sure, total = int((right + wrong)[sure].sum()), int((right + wrong).sum())
    how = "How often each probability was given. A good classifier is sure where it is right, and unsure where it errs."
    if n_sure == 0:
        return f"{how} Here no label was given {_SURE:.0%} or more."
    return (
        f"{how} Here {n_sure / total:.0%} of the labels were given a probability of {_SURE:.0%} or more, and "
        f"{wrong[sure].sum() / n_sure:.1%} of those were wrong."
    )


def _confusion(summary: Summary) -> str:
    counts = np.array(summary["confusion"]["counts"])
    off = counts - np.diag(np.diag(counts))
    how = "One line per true class, one column per predicted class; what is on the diagonal is right."
    if not off.any():
        return f"{how} Here nothing was confused."
    true, said = np.unravel_index(int(off.argmax()), off.shape)
    true_name, said_name = (shortened(summary["classes"][k]) for k in (true, said))
    return (
        f"{how} Here {_count(int(off.sum()), 'prediction was', 'predictions were')} wrong; most often class "
        f"{true_name} was taken for {said_name} ({_count(int(off.max()), 'time', 'times')})."
    )


def _per_class(summary: Summary) -> str:
    how = (
        "Recall: the share of a class that was found. Precision: the share of its predictions that are right."
    )
    known = [row for row in summary["per_class"] if row["recall"] is not None]
    worst = min(known, key=lambda row: row["recall"])
    if worst["recall"] == 1.0:
        return f"{how} Here every class was found whole."
    name = shortened(worst["class"])
    return f"{how} Here class {name} is the hardest to find, with a recall of {worst['recall']:.1%}."


def _uncertain(summary: Summary) -> str:
    averaged = ", averaged over its tests," if summary["kind"] == "compare" else ""
    first = summary["uncertain"][0]
    return (
        f"The rows whose largest probability{averaged} is smallest: worth a second look, or a second annotator. Row "
        f"{first['row']} comes first, with {first['first_probability']:.2f} for class {shortened(first['first'])}."
    )


def _wrong(summary: Summary) -> str:
    if not summary["wrong"]:
        return "The rows that were labelled wrong, the surest first. Here there is none."
    often = " at least once" if summary["kind"] == "compare" else ""
    return (
        f"The rows that were labelled wrong{often}, the surest first; if a label in the data is a slip, it is likely "
        "to be here."
    )


def _relevance(found: Summary) -> str:
    how = (
        "How much the outputs of the machines change if another row's value is put into a column of the data: the mean "
        "squared changes, as shares"
        f"{', with the standard deviation over folds' if found['spread_known'] else ''}. This is a sensitivity of the "
        "model, not a cause: of two columns that say the same, either may have the share, or each a half, and to "
        "change a column in the world need not change the class."
    )
    first = found["rows"][0]
    if first["relevance"] == 0.0:
        return f"{how} Here the model depends on no column."
    here = f"Here {shortened(first['name'])} has the largest share, {first['relevance']:.1%}"
    idle = found["negligible"]
    if idle:
        hardly = _count(idle, "column hardly matters", "columns hardly matter")
        here += f"; {hardly} (less than a tenth of an equal share)"
    return f"{how} {here}."


def _codebook(summary: Summary) -> str:
    views = summary["model"]["codebook"]["views"]
    how = (
        "Every column is a machine that tells the classes marked + from those marked −; a blank class takes no part. "
        "A class is recognised by its line, so lines that differ in many places forgive a machine's mistakes."
    )
    sizes = " and ".join(
        f"{_count(view['machines'], 'machine', 'machines')} ({view['name']})" for view in views
    )
    return f"{how} Here: {sizes}."


def _surface(summary: Summary) -> str:
    found = summary["model"]["surface"]
    if "missing" in found:
        return f"There is no picture of the choice of C and gamma: {found['missing']}."
    best = "Larger" if found["greater_is_better"] else "Smaller"
    of = f" for the pool's heaviest member ({found['of']})" if found["of"] else ""
    both = len(found["gamma"]) > 1
    how = (
        f"The criterion by which {'C and gamma were' if both else 'C was'} chosen{of}: {found['label']}. {best} is "
        "better; where it is flat, the choice matters little."
    )
    several = len(found["chosen_C"]) > 1
    gamma = f", gamma = {found['chosen_gamma'][0]:.3g}" if both else ""
    chosen = f"The star is what was chosen: C = {found['chosen_C'][0]:.3g}{gamma}."
    if several:
        chosen = "The stars are what the machines have."
    if found["shrinkage"] != 1.0:
        chosen += (
            f" By the criterion alone C would be {found['shrinkage']:g} times larger "
            f"({'the rings' if several else 'the ring'}); the smaller one was taken because the probabilities that are "
            "decoded from its outputs have the lower log-loss on rows that the decoder had not seen."
        )
    return f"{how} {chosen}"


def _regions(summary: Summary) -> str:
    found = summary["model"]["regions"]
    if "missing" in found:
        return f"There is no picture of the decision regions: {found['missing']}."
    how = "The colour is the most probable class, the stronger the more probable; the dots are the rows of the data."
    if not summary["reliability"]:
        how = "The colour is the label; the dots are the rows of the data."
    if found["plane"] == "features":
        return how
    return (
        f"{how} The plane is that of the first two principal components of the prepared features, through their mean: "
        "rows that lie far from it may be labelled otherwise than the colour below them says."
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
