"""What the parameters of `LSSVMClassifier` ask for: the candidate kernels, and the search for C and gamma."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polymargin.estimators._candidates import Plan
from polymargin.estimators._flow import DichotomyClassifier
from polymargin.estimators._validation import check_positive, settings_of
from polymargin.kernels import RBF, Blend, Kernel, Polynomial, resolve_kernel
from polymargin.machines import TrainingRows
from polymargin.machines._parameters import criterion_of
from polymargin.selection.evidence import check_noise_floor
from polymargin.selection.settings import DEFAULT, SearchSettings


class ParametersMixin(DichotomyClassifier):
    """The parameters of `LSSVMClassifier`, as kernels and as a plan of the search."""

    C: float | None
    selection: str | None
    shared_parameters: bool
    noise_floor: float
    search: SearchSettings | None
    _weight_unit: float

    @property
    def _kernels(self) -> list[Kernel]:
        """The candidate kernels, not fitted; a single one if the parameters name it.

        With fixed parameters, whose meaning depends on the kernel, None is "rbf", and degree 3.
        """
        fixed = self.selection is None or not (self.gamma is None or isinstance(self.gamma, str))
        kernels: list[Kernel]
        if self.kernel is None:
            degree = 2 if self.degree is None else self.degree
            kernels = [RBF()] if fixed else [Blend(), Polynomial(degree, self.coef0, centred=True)]
        elif self.kernel == "poly" and self.degree is None and not fixed:
            kernels = [Polynomial(number, self.coef0) for number in (2, 3, 4)]
        else:
            kernels = [resolve_kernel(self.kernel, 3 if self.degree is None else self.degree, self.coef0)]
        finish = self._with_columns if isinstance(self.metric, str) else self._with_metric
        return [finish(kernel) for kernel in kernels]

    def _learns_metric(self, kernels: list[Kernel]) -> bool:
        """Return whether a metric is to be learned; raise ValueError where it cannot be."""
        if not isinstance(self.metric, str):
            return False
        if self.metric != "learned":
            raise ValueError(
                f'unknown metric {self.metric!r}; choose "learned", None or an array with a width for every column'
            )
        if not kernels[0].parts:
            raise ValueError(
                'metric="learned" needs the gradient of the kernel, which only kernels with a name have: "rbf", '
                '"laplacian", "exponential", "blend", "poly" or "linear"'
            )
        return True

    def _search_plan(self, data: TrainingRows) -> Plan:
        """Return the parameters that concern the choice of the machines; raise ValueError if they do not fit."""
        if self.C is not None:
            check_positive("C", self.C, "or None to have it selected")
        if self.selection not in ("loo", "loo-exact", "gcv", "evidence", None):
            raise ValueError(
                f'unknown selection {self.selection!r}; choose "loo", "loo-exact", "gcv", "evidence" or None'
            )
        gamma = self._resolved_gamma(data.kernel.scaled(data.X), data.weights)
        kernels = self._kernels
        tunable = any(kernel.tunable for kernel in kernels)
        if self.selection is None and (self.C is None or (gamma is None and tunable)):
            raise ValueError(
                'selection=None leaves nothing to choose C and gamma: give both, or use selection="loo"'
            )
        settings = settings_of("search", self.search, DEFAULT)
        if self.selection == "loo-exact":
            settings = replace(settings, operations=np.inf, converged=1e-6)
        return Plan(
            tuple(kernels),
            C=None if self.C is None else self.C * self._weight_unit,
            gamma=gamma,
            selection=criterion_of(self.selection),
            shared_parameters=self.shared_parameters,
            settings=settings,
            noise_floor=check_noise_floor(self.noise_floor),
            learns_metric=self._learns_metric(kernels),
        )
