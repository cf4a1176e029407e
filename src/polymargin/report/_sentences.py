"""The text above each figure: how to read it, and what it shows for these data."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymargin.inspection.relevance import shortened

Summary = dict[str, Any]

#: A calibration error above this multiple of the one by chance is reported as miscalibration.
_TELLING = 1.5
_SURE = 0.95


def quoted(label: str) -> str:
    """Return a class label in quotes, shortened if it is long."""
    return f'"{shortened(label)}"'


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
        text["classifiers"] = _classifiers(summary)
    warning = _warning(summary)
    if warning:
        text["warning"] = warning
    if summary["model"]["relevance"]:
        text["relevance"] = _relevance(summary["model"]["relevance"])
    if summary["model"]["codebook"]:
        text["codebook"] = _codebook(summary)
    if summary["model"]["members"]:
        text["members"] = (
            "The model is a pool (a log-linear ensemble): the log-probabilities of its members are added, each "
            "multiplied by its weight. The weights need not sum to one: a sum above one makes the probabilities of the "
            "pool more extreme, a sum below one less so, as held-out rows require. The log-loss is that of the member "
            "alone, on held-out rows."
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
    rows = summary["classifiers"] or summary["ranking"]
    scored = [row for row in rows if row["log_loss"]]
    if not scored:
        return (
            f"Of {_count(len(rows), 'method', 'methods')}, {summary['best']} has the highest accuracy, "
            f"{summary['scores']['accuracy']:.1%}. None gives probabilities."
        )
    best = scored[0]
    name = best["model"] if summary["classifiers"] else best["name"]
    kind = ("classifier", "classifiers") if summary["classifiers"] else ("method", "methods")
    lead = (
        f"Of {_count(len(rows), *kind)}, {name} has the lowest log-loss on test rows: "
        f"{best['log_loss']['mean']:.3f}, with an accuracy of {best['accuracy']['mean']:.1%}."
    )
    others = [row for row in scored[1:] if row["machine"] != "baseline"]
    if summary["classifiers"] and others:
        lead += (
            " Then "
            + "; ".join(f"{row['model']} ({row['log_loss']['mean']:.3f})" for row in others[:4])
            + "."
        )
    return lead


def _fit_lead(summary: Summary) -> str:
    scores = summary["scores"]
    return (
        f"{summary['model']['estimator']} on {_count(summary['data']['rows'], 'row', 'rows')}. On held-out rows its "
        f"log-loss is {scores['log_loss']:.3f} and its accuracy {scores['accuracy']:.1%}."
    )


def _warning(summary: Summary) -> str | None:
    """Return what speaks against using the model, None if nothing does."""
    scores = summary["scores"]
    if scores["baseline"]["learned"] is False:
        return (
            f"This model has learned nothing measurable. Its log-loss, {scores['log_loss']:.3f}, is not lower than "
            f"that of the class frequencies, {scores['baseline']['log_loss']:.3f}, by more than chance (two standard "
            "errors)."
        )
    never = [row["class"] for row in summary["per_class"] if row["recall"] == 0.0]
    if never:
        names = ", ".join(quoted(name) for name in never[:5]) + (" and others" if len(never) > 5 else "")
        return (
            f"No row of class {names} is predicted right. The accuracy hides this; look at the recall by class, and at "
            "the probabilities rather than the labels."
        )
    return None


def _tests(summary: Summary) -> str:
    if summary["kind"] == "fit":
        return (
            "All scores and figures down to the single rows are of out-of-sample predictions: the prediction of a row "
            "comes from models that were not fitted on it (see the notes above for how)."
        )
    scores = summary["scores"]
    splits = summary["splits"]
    several = " A row that was tested in several splits counts each time." if splits > 1 else ""
    return (
        f"From here on the page shows one model, {summary['best']}, on the test rows of "
        f"{_count(splits, 'split', 'splits')}: {scores['predictions']} predictions of {scores['rows']} different rows."
        f"{several}"
    )


def _rows(summary: Summary) -> str:
    if summary["rows_of_file"]:
        return "Rows are numbered as in the file: in a CSV file the header is row 1."
    return "Rows are counted from 1."


def _ranking(summary: Summary) -> str:
    rows, splits = summary["ranking"], summary["splits"]
    how = _design(summary)
    if summary["classifiers"]:
        how = (
            "A coding turns the classes into two-class problems (dichotomies), one kernel machine for each; a decoding "
            "turns the outputs of the machines into probabilities and a label. All were compared on the same splits. "
            "The best of so many is a little optimistic, since it was picked by these test rows."
        )
    known = [row for row in rows if row["log_loss"]]
    if len(known) < 2 or splits < 2:
        return how
    reach = known[0]["log_loss"]["mean"] + known[0]["log_loss"]["sd"]
    close = sum(row["log_loss"]["mean"] <= reach for row in known)
    if close == 1:
        return f"{how} The first is ahead of all others by more than its standard deviation."
    return f"{how} The first {close} lie within one standard deviation of the best: take them as equals."


def _design(summary: Summary) -> str:
    splits = summary["splits"]
    return (
        f"Every method was trained on {1 - summary['test_size']:.0%} of the rows and tested on the others, on "
        f"{_count(splits, 'random split', 'random splits')}; smaller log-loss is better."
    )


def _classifiers(summary: Summary) -> str:
    return (
        f"{_design(summary)} Each model tunes itself on the training rows; those with a coding and a decoding have "
        "their default ones. The baseline predicts the class frequencies for every row."
    )


def _tried(summary: Summary) -> str:
    found = summary["model"]["tried"]
    what = "the kernel and C" if len({row["kernel"] for row in found["rows"]}) > 1 else "C"
    on = "" if found["n_rows"] is None else f", on a sample of {found['n_rows']} rows"
    how = (
        f"The candidates for {what}: C and gamma of every kernel minimise the {found['proposed_by']}; the kernels are "
        f"compared by the {found['loss_name']}{on}. Smaller is better."
    )
    if any(row["smaller_C"] != 1.0 for row in found["rows"]):
        how += " A smaller C is taken only if it lowers the loss significantly."
    if found["with_metric"]:
        chosen = "; ".join(
            f"{row['name']}: C = {row['C']}" + ("" if row["gamma"] is None else f", gamma = {row['gamma']}")
            for row in found["with_metric"]
        )
        how += (
            " The table is from before the metric was learned. With the learned metric kernel, C and gamma were chosen "
            f"again ({chosen})."
        )
    return how


def _reliability(summary: Summary) -> str:
    scores = summary["scores"]
    error, chance = scores["calibration_error"], scores["calibration_by_chance"]
    how = (
        "The reliability diagram (calibration curve). Each point stands for predictions of about the same probability: "
        "on the horizontal axis the mean predicted probability, on the vertical axis the share that turned out true, "
        "with 95 % intervals. Calibrated probabilities lie on the diagonal; points below it are overconfident. "
    )
    here = f"Here the calibration error is {error:.3f}; calibrated probabilities have about {chance:.3f} by chance"
    if error <= _TELLING * chance:
        return f"{how}{here}, so there is no sign of miscalibration."
    return f"{how}{here}: {_direction(summary)}."


def _direction(summary: Summary) -> str:
    curve = summary["reliability"]["views"][0]
    count = np.array(curve["count"])
    excess = float(count @ (np.array(curve["predicted"]) - np.array(curve["observed"])) / count.sum())
    return "the probabilities are overconfident" if excess > 0 else "the probabilities are underconfident"


def _histograms(summary: Summary) -> str:
    found = summary["histograms"]
    right, wrong = (np.array(series["counts"]) for series in found["views"][0]["series"])
    sure = np.array(found["edges"][:-1]) >= _SURE - 1e-9
    n_sure, total = int((right + wrong)[sure].sum()), int((right + wrong).sum())
    how = (
        "The distribution of the predicted probabilities. A good classifier has large probabilities where it is right, "
        "and smaller ones where it is wrong."
    )
    if n_sure == 0:
        return f"{how} Here no label has a probability of {_SURE:.0%} or more."
    return (
        f"{how} Here {n_sure / total:.0%} of the labels have a probability of {_SURE:.0%} or more, and "
        f"{wrong[sure].sum() / n_sure:.1%} of those are wrong."
    )


def _confusion(summary: Summary) -> str:
    counts = np.array(summary["confusion"]["counts"])
    off = counts - np.diag(np.diag(counts))
    how = (
        "One row per true class, one column per predicted class; the diagonal holds the correct predictions."
    )
    if not off.any():
        return f"{how} Here all predictions are correct."
    true, said = np.unravel_index(int(off.argmax()), off.shape)
    true_name, said_name = (quoted(summary["classes"][k]) for k in (true, said))
    return (
        f"{how} Here {_count(int(off.sum()), 'prediction is', 'predictions are')} wrong; the most frequent confusion "
        f"is class {true_name} predicted as {said_name} ({_count(int(off.max()), 'time', 'times')})."
    )


def _per_class(summary: Summary) -> str:
    how = (
        "Recall (sensitivity): the share of a class that is predicted right. Precision: the share of the predictions "
        "of a class that are right. F1: their harmonic mean. Log-loss: the mean of minus the log-probability of the "
        "true class. Calibration: the calibration error of the probability of that class."
    )
    known = [row for row in summary["per_class"] if row["recall"] is not None]
    worst = min(known, key=lambda row: row["recall"])
    if worst["recall"] == 1.0:
        return f"{how} Here every class has a recall of 100 %."
    name = quoted(worst["class"])
    return f"{how} Here class {name} has the lowest recall, {worst['recall']:.1%}."


def _uncertain(summary: Summary) -> str:
    averaged = ", averaged over its tests," if summary["kind"] == "compare" else ""
    first = summary["uncertain"][0]
    return (
        f"The rows whose largest probability{averaged} is smallest: check these first, or have them labelled again. "
        f"Row {first['row']} is the most uncertain, with {first['first_probability']:.2f} for class "
        f"{quoted(first['first'])}."
    )


def _wrong(summary: Summary) -> str:
    if not summary["wrong"]:
        return "Wrong predictions, the most confident first. Here there is none."
    often = " at least once" if summary["kind"] == "compare" else ""
    return (
        f"The rows that were predicted wrong{often}, the most confident first. Errors in the labels of the data are "
        "likely to be found here."
    )


def _relevance(found: Summary) -> str:
    how = (
        "Feature relevance: how much the outputs of the model change if the value of a column is replaced by that of "
        "another row, as mean squared changes that add up to 100 %"
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
        "The codebook (output coding) turns the classes into two-class problems. Every column is one machine, trained "
        "to separate the classes marked + from those marked −; rows of the other classes are not used. Every row is "
        "the code word of a class: the more two code words differ, the more wrong machines decoding can correct."
    )
    sizes = " and ".join(
        f"{_count(view['machines'], 'machine', 'machines')} ({view['name']})" for view in views
    )
    return f"{how} Here: {sizes}."


def _surface(summary: Summary) -> str:
    found = summary["model"]["surface"]
    if "missing" in found:
        return f"There is no picture of the search for C and gamma: {found['missing']}."
    best = "Larger" if found["greater_is_better"] else "Smaller"
    of = f" for the member of the pool with the largest weight ({found['of']})" if found["of"] else ""
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
            f" The criterion alone would choose a {found['shrinkage']:g} times larger C "
            f"({'the rings' if several else 'the ring'}); the smaller one was chosen because the probabilities decoded "
            "from its outputs have the lower log-loss on held-out rows."
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
        "rows far from it can have another prediction than the plane where they are drawn. For "
        f"{found['agreement']:.0%} of the rows the two agree."
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
