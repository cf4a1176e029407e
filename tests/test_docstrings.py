"""The estimators' docstrings have the sections of numpydoc."""

from __future__ import annotations

import inspect
import re

import pytest

import polymargin

ESTIMATORS = [
    polymargin.AutoKernelClassifier,
    polymargin.KernelLogisticClassifier,
    polymargin.KNNPosterior,
    polymargin.LSSVMClassifier,
    polymargin.PosteriorSVMClassifier,
    polymargin.SVMClassifier,
    polymargin.WindowPosterior,
]


def sections(thing) -> set[str]:
    """Return the titles that are underlined in a docstring."""
    return set(re.findall(r"^(\w[\w ]*)\n-+$", inspect.getdoc(thing) or "", flags=re.MULTILINE))


def public_methods(estimator):
    """Yield the methods of the package, those that depend on the decoder included."""
    for name in dir(estimator):
        method = inspect.getattr_static(estimator, name)
        function = getattr(method, "fn", method)  # `available_if` wraps a method
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if function.__module__.startswith("polymargin"):
            yield name, function


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_classes_have_all_sections(estimator):
    expected = {"Parameters", "Attributes", "See Also", "References", "Examples"}
    assert expected <= sections(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_methods_have_parameters_and_returns(estimator):
    methods = dict(public_methods(estimator))
    assert {"fit", "predict", "predict_proba"} <= set(methods)
    for name, function in methods.items():
        expected = {"Returns"} | (
            {"Parameters"} if len(inspect.signature(function).parameters) > 1 else set()
        )
        assert expected <= sections(function), name


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_every_parameter_is_documented_in_order(estimator):
    text = inspect.getdoc(estimator).split("Attributes\n----------")[0]
    documented = re.findall(r"^(\w+(?:, \w+)*) : ", text, flags=re.MULTILINE)
    names = [name for line in documented for name in line.split(", ")]
    assert names == list(inspect.signature(estimator).parameters)
