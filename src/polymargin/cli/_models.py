"""The models that commands know by name, and what a fitted one has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polymargin import codebooks
from polymargin.codebooks.default import default_coding, many_classes
from polymargin.decoders import DECODERS
from polymargin.inspection.members import member_name

__all__ = [
    "ADAPTIVE",
    "CODINGS",
    "DECODINGS",
    "KERNELS",
    "METRICS",
    "MODELS",
    "chosen",
    "make_classifier",
    "note_on_many_classes",
]

#: The coding that is grown on training rows.
ADAPTIVE = "adaptive"
CODINGS = (*codebooks.CODINGS, ADAPTIVE)
DECODINGS = tuple(DECODERS)
KERNELS = ("rbf", "laplacian", "exponential", "blend", "poly", "linear")
METRICS = ("learned", "none")
#: Of every model the options that it takes.
MODELS: Mapping[str, tuple[str, ...]] = {
    "auto": ("metric", "jobs"),
    "ls-svm": ("coding", "decoding", "kernel", "metric", "jobs"),
    "svm": ("coding", "decoding", "kernel", "jobs"),
    "posterior-svm": ("decoding", "kernel", "jobs"),
    "kernel-logistic": ("kernel",),
}


def make_classifier(model: str, seed: int, *, jobs: int | None = None, **options: str | None) -> Any:
    """Return an estimator that tunes itself and, unless a decoding says otherwise, gives probabilities.

    Parameters
    ----------
    model : str
        One of `MODELS`.
    seed : int
        Its random state.
    jobs : int or None
        Its ``n_jobs``; None for the estimator's own.
    **options : str or None
        ``coding``, ``decoding``, ``kernel`` and ``metric``, None for the estimator's own choice.

    Examples
    --------
    >>> make_classifier("ls-svm", 0, coding="one-vs-all", kernel=None)
    LSSVMClassifier(coding='one-vs-all', random_state=0)
    """
    import polymargin

    known = {"coding": CODINGS, "decoding": DECODINGS, "kernel": KERNELS, "metric": METRICS}
    for name, choices in known.items():
        value = options.get(name)
        if value is not None and value not in choices:
            raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(choices)}")
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; choose one of {', '.join(MODELS)}")
    if jobs is not None and jobs < 1 and jobs != -1:
        raise ValueError(f"--jobs must be -1 or a number of workers, not {jobs}")
    given: dict[str, Any] = {
        name: value for name, value in {**options, "jobs": jobs}.items() if value is not None
    }
    for name in given:
        if name not in MODELS[model]:
            able = [other for other, takes in MODELS.items() if name in takes]
            raise ValueError(f"--{name} is not for --model {model}; choose --model {' or '.join(able)}")
    if jobs is not None:
        given["n_jobs"] = given.pop("jobs")
    if given.get("metric") == "none":
        given["metric"] = None
    match model:
        case "auto":
            return polymargin.AutoKernelClassifier(random_state=seed, **given)
        case "ls-svm":
            return polymargin.LSSVMClassifier(random_state=seed, **given)
        case "svm":
            given.setdefault("decoding", "coupled-softmax")
            given.setdefault("coding", None)
            return polymargin.SVMClassifier(C=None, gamma=None, random_state=seed, **given)
        case "posterior-svm":
            return polymargin.PosteriorSVMClassifier(random_state=seed, **given)
    return polymargin.KernelLogisticClassifier(random_state=seed, **given)


def note_on_many_classes(classifier: Any, n_classes: int) -> str | None:
    """Return that one-vs-all coding was chosen because one-vs-one would need thousands of machines; None if not so.

    Parameters
    ----------
    classifier : estimator
        What `make_classifier` returned.
    n_classes : int
        The number of classes.

    Examples
    --------
    >>> note_on_many_classes(make_classifier("ls-svm", 0), 10) is None
    True
    >>> note_on_many_classes(make_classifier("ls-svm", 0), 120)
    '120 classes: one-vs-all coding, 120 machines; one-vs-one would have 7140 (--coding one-vs-one)'
    """
    if default_coding(n_classes) != "one-vs-all":
        return None
    pool = hasattr(classifier, "members")
    if not pool:
        if getattr(classifier, "coding", "given") is not None:
            return None
        if classifier._chosen_coding(n_classes) != "one-vs-all":
            return None
    asked = "--model ls-svm --coding one-vs-one" if pool else "--coding one-vs-one"
    return f"{many_classes(n_classes)} ({asked})"


def chosen(classifier: Any) -> dict[str, Any]:
    """Return what a fitted classifier has chosen, as plain JSON; of a pool, what each member has.

    Examples
    --------
    >>> import numpy as np
    >>> from polymargin import LSSVMClassifier
    >>> model = LSSVMClassifier(C=1.0, gamma=0.5, kernel="rbf").fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    >>> chosen(model)
    {'kernel': 'rbf', 'C': 1.0, 'gamma': 0.5, 'coding': 'one-vs-one', 'decoding': 'coupled-softmax', 'n_support': 3}
    """
    if hasattr(classifier, "members_"):
        members = zip(
            classifier.weights_.tolist(),
            classifier.member_losses_.tolist(),
            classifier.members_,
            strict=True,
        )
        return {
            "members": [
                {"weight": weight, "log_loss": loss, **chosen(member)} for weight, loss, member in members
            ]
        }
    if not hasattr(classifier, "kernel_"):  # a member of a pool that is no kernel machine
        return {"kernel": member_name(classifier)}
    facts = {
        "kernel": classifier.kernel_.name,
        "C": _one_or_range(classifier.C_),
        "gamma": _one_or_range(classifier.gamma_),
        "coding": getattr(classifier, "coding_", None),
        "decoding": getattr(classifier, "decoding", None),
        "kernel_losses": getattr(classifier, "kernel_losses_", None),
        "search_results": _search_results(classifier),
        "metric_results": _metric_results(classifier),
        "n_support": len(getattr(classifier, "support_", ())),
    }
    plan = getattr(classifier, "plan_", None)
    if plan is not None and plan.scale != "exact":
        facts["plan"] = str(plan)
    return {name: value for name, value in facts.items() if value is not None}


def _search_results(classifier: Any) -> dict[str, Any] | None:
    """Return what was tried, best first, as plain JSON; None where there was nothing to compare."""
    from polymargin.inspection.tried import searches

    for found in searches(classifier):
        return {
            "compared_by": found.loss_name,
            "n_rows": found.n_rows,
            "candidates": found.rows,
            "runner_up": found.runner_up,
        }
    return None


def _metric_results(classifier: Any) -> dict[str, Any] | None:
    """Return what was tried in learning a metric, as plain JSON; None where none was asked for."""
    table = getattr(classifier, "metric_results_", None)
    if table is None:
        return None
    plain = {name: np.asarray(values).tolist() for name, values in table.items()}
    # A loss that was not measured is not a number, which JSON does not know.
    return {name: [None if one != one else one for one in values] for name, values in plain.items()}


def _one_or_range(values: Any) -> float | list[float]:
    """Return the number that all machines share, or the least and the largest."""
    values = np.atleast_1d(values)
    least, largest = float(values.min()), float(values.max())
    return least if least == largest else [least, largest]
