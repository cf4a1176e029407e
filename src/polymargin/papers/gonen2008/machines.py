"""The two machines, trained for many C on one Gram matrix: eq. (6), alone or one-vs-all, and eqs. (12)–(13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polymargin.solvers.status import Status

__all__ = ["BINARY", "ONE_VS_ALL", "SINGLE", "Limits", "Trained", "predict", "train_path"]

Array = NDArray[np.float64]

BINARY, SINGLE, ONE_VS_ALL = "binary", "single", "one-vs-all"


class Limits(NamedTuple):
    """Limits on the steps of a solver for each C, in multiples of the number of variables."""

    smo: float
    cycles: float


@dataclass(frozen=True)
class Trained:
    """Coefficients (n, L) and biases (L,) of the machines for one C, and how many solves the limit stopped."""

    coefficients: Array
    biases: Array
    n_capped: int

    @property
    def support(self) -> NDArray[np.intp]:
        """The rows with a coefficient in any of the machines."""
        return np.flatnonzero(self.coefficients.any(axis=1))

    def at(self, rows: NDArray[np.intp]) -> Trained:
        """Return the machines with the coefficients of some rows alone."""
        return Trained(self.coefficients[rows], self.biases, self.n_capped)


def predict(kernel_rows: Array, trained: Sequence[Trained]) -> list[NDArray[np.intp]]:
    """Return the classes that machines give new rows, by one matrix product for all of them.

    Parameters
    ----------
    kernel_rows : array of shape (n_new, n)
        K from the new rows to the training rows.
    trained : sequence of Trained
        With one column of coefficients the sign of the output decides, with more the largest output.
    """
    outputs = kernel_rows @ np.hstack([machines.coefficients for machines in trained])
    found, start = [], 0
    for machines in trained:
        f = outputs[:, start : start + machines.biases.size] + machines.biases
        start += machines.biases.size
        found.append((f[:, 0] > 0.0).astype(np.intp) if f.shape[1] == 1 else f.argmax(axis=1))
    return found


def train_path(
    machine: str,
    gram: Array,
    P: Array,
    z: NDArray[np.intp],
    costs: Sequence[float],
    tol: float,
    limits: Limits,
) -> list[Trained]:
    """Train for ascending costs C, each from the solution before.

    Parameters
    ----------
    machine : {"binary", "single", "one-vs-all"}
    gram : array of shape (n, n)
    P : array of shape (n, K)
        Posteriors; one-hot rows make the canonical SVM.
    z : array of shape (n,)
        The observed classes.
    costs : sequence of float
    tol : float
        Largest violation of the optimality conditions (SMO), or relative duality gap (single machine).
    limits : Limits
    """
    if machine == SINGLE:
        return _single(gram, P, z, costs, tol, limits)
    labels = 2.0 * (P[:, 1:] if machine == BINARY else P) - 1.0
    paths = [_binary(gram, labels[:, column], costs, tol, limits) for column in range(labels.shape[1])]
    return [
        Trained(
            np.column_stack([machines[0] for machines in at_one_cost]),
            np.array([machines[1] for machines in at_one_cost]),
            sum(machines[2] for machines in at_one_cost),
        )
        for at_one_cost in zip(*paths, strict=True)
    ]


def _binary(
    gram: Array, y: Array, costs: Sequence[float], tol: float, limits: Limits
) -> list[tuple[Array, float, bool]]:
    """Solve eq. (6): with s = sign(y), a = α|y| the linear term is |y| and the box C/|y|; rows with y = 0 have no part.

    What SMO has not solved within its limit goes to the solver of the single machine, which has Newton steps:
    two classes with the margins 2|y| and the boxes C/|y| are the same problem, and F₁ − F₀ = 2f.
    """
    from polymargin.solvers import single_machine
    from polymargin.solvers.smo_dichotomies import Dichotomy, solve_dichotomies_path

    used = np.flatnonzero(y)
    size, positive = np.abs(y[used]), (y[used] > 0.0).astype(np.intp)
    if positive.all() or not positive.any():  # one side alone: the least constant that satisfies all rows
        return [(np.zeros(y.size), float(np.sign(y.sum()) * size.max(initial=0.0)), False)] * len(costs)
    problem = Dichotomy(np.sign(y[used]), 1.0 / size, rows=used, linear=size)
    limit = int(limits.smo * used.size)
    path = []
    part: Array | None = None
    for cost, (solution,) in zip(
        costs, solve_dichotomies_path(gram, [problem], costs, tol=tol, max_iter=limit), strict=True
    ):
        coefficients, intercept, capped = solution.coefficients, solution.intercept, False
        if solution.status is not Status.CONVERGED:
            part = np.ascontiguousarray(gram[np.ix_(used, used)]) if part is None else part
            start, required = np.zeros((used.size, 2)), np.zeros((used.size, 2))
            start[np.arange(used.size), 1 - positive] = solution.alpha
            required[np.arange(used.size), 1 - positive] = 2.0 * size
            again = single_machine.solve(
                part,
                single_machine.Margins(required, positive),
                cost,
                tol=tol,
                max_iter=int(limits.cycles * used.size),
                alpha0=start,
                sample_weight=1.0 / size,
            )
            coefficients, intercept = again.beta[:, 1], 0.5 * float(again.biases[1] - again.biases[0])
            capped = again.status is not Status.CONVERGED
        spread = np.zeros(y.size)
        spread[used] = coefficients
        path.append((spread, intercept, capped))
    return path


def _single(
    gram: Array, P: Array, z: NDArray[np.intp], costs: Sequence[float], tol: float, limits: Limits
) -> list[Trained]:
    """Solve eqs. (12)–(13); once no α is at its bound, a larger C changes nothing and nothing is solved."""
    from polymargin.solvers.single_machine import SingleMachineSolution, required_margins, solve

    margins = required_margins(P, z)
    limit = int(limits.cycles * P.shape[0] * (P.shape[1] - 1))
    path: list[Trained] = []
    last: SingleMachineSolution | None = None
    for i, cost in enumerate(costs):
        if last is not None and last.status is Status.CONVERGED and (last.alpha < costs[i - 1]).all():
            path.append(path[-1])
            continue
        start = None if last is None else last.alpha
        last = solve(gram, margins, cost, tol=tol, max_iter=limit, alpha0=start)
        path.append(Trained(last.beta, last.biases, int(last.status is not Status.CONVERGED)))
    return path
