"""Coupling in a graph: `polymargin.solvers.coupling`, method by method.

Linear systems are solved by elimination in a loop over the classes. It needs no pivoting: the systems of "wlw2" and
"ht" are positive definite, and those of "wlw1" are diagonally dominant. The two iterative methods are loops that end
when the last row is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polymargin.onnx._graph import Array, Value
from polymargin.solvers.coupling import CLIP, LARGEST_CUT, LONGEST_STEP, MAX_ITER, TOL

__all__ = ["bradley_terry", "couple"]


def couple(r: Value, method: str, weights: Array, n_classes: int) -> Value:
    """Return class probabilities, shape (n, K), from the r_ik of the pairs (0, 1), (0, 2), …, (1, 2), …"""
    return METHODS[method](r.at_least(CLIP).at_most(1.0 - CLIP), weights, n_classes)


def _wu_lin_weng_1(r: Value, weights: Array, n_classes: int) -> Value:
    """Return the stationary state of a Markov chain."""
    square = _square(r, 1.0 - r, n_classes)
    eye = np.eye(n_classes)
    system = (1.0 - square) * (1.0 - eye) + (n_classes - square.sum(axis=2, keepdims=True)) * eye
    return _normalised(_solve(system, _ones(r, n_classes), n_classes))


def _wu_lin_weng_2(r: Value, weights: Array, n_classes: int) -> Value:
    """Return the p that makes Σ (r_ki p_i − r_ik p_k)² least."""
    square = _square(r, 1.0 - r, n_classes)
    eye = np.eye(n_classes)
    crossed = square * square.transposed(0, 2, 1)
    system = (1.0 - crossed) * (1.0 - eye) + (1.0 + square.square().sum(axis=1, keepdims=True)) * eye
    return _normalised(_solve(system, _ones(r, n_classes), n_classes))


def _price(r: Value, weights: Array, n_classes: int) -> Value:
    """Return Price, Knerr, Personnaz and Dreyfus's formula, normalised."""
    square = _square(r, 1.0 - r, n_classes) + np.eye(n_classes)
    return _normalised(1.0 / ((1.0 / square).sum(axis=2) - 1.0 - (n_classes - 2.0)))


def _hastie_tibshirani(r: Value, weights: Array, n_classes: int) -> Value:
    """Return the p of least Kullback–Leibler distance, by Newton's method in θ = log p.

    The third derivative along a step s is at most R = max s − min s times the second, so that the part log(1 + R)/R of
    a Newton step always gains (Bach 2010, "Self-concordant analysis for logistic regression"), and no line search is
    needed. Near the end the part is one.
    """
    i, k = np.triu_indices(n_classes, 1)
    eye = np.eye(n_classes)
    differences = (eye[:, i] - eye[:, k]).astype(np.float64)
    q = weights / weights.sum()

    def step(_: Value, theta: Value, r: Value, _before: Value) -> list[Value]:
        nu = (theta @ differences).sigmoid()
        gradient = (q * (nu - r)) @ differences.T
        bends = q * nu * (1.0 - nu)
        across = _square(bends, bends, n_classes)
        hessian = 1.0 / n_classes**2 - across + across.sum(axis=2, keepdims=True) * eye
        newton = -_solve(hessian, gradient, n_classes)
        reach = (newton.max(keepdims=True) - newton.min(keepdims=True)).at_least(1e-9)
        return [theta + newton * ((1.0 + reach).log() / reach), r, _largest(gradient)]

    # Where the r agree with some p, this is it.
    start = (r.log() - (1.0 - r).log()) @ (differences.T / n_classes)
    theta, *_ = r.graph.loop(
        MAX_ITER, [start, r, np.inf], step, until=lambda theta, r, gradient: gradient <= TOL
    )
    return theta.log_softmax().exp()


#: The methods for pairs.
METHODS: dict[str, Callable[[Value, Array, int], Value]] = {
    "wlw2": _wu_lin_weng_2,
    "wlw1": _wu_lin_weng_1,
    "ht": _hastie_tibshirani,
    "pkpd": _price,
}


def bradley_terry(r: Value, matrix: Array, weights: Array, prior: float = 1e-4) -> Value:
    """Return class probabilities, shape (n, K), from the probabilities of the dichotomies of any codebook.

    The steps are those of `polymargin.solvers.coupling.bradley_terry`.
    """
    sides = _Sides(matrix, weights / weights.mean(), prior)
    r = r.at_least(CLIP).at_most(1.0 - CLIP)
    start = r.take(np.array([0])) * 0.0 + np.full(len(matrix), 1.0 / len(matrix))
    p, *_ = r.graph.loop(
        MAX_ITER, [start, r, np.inf], sides.step, until=lambda p, r, gradient: gradient <= sides.tolerance
    )
    return p


class _Sides:
    """The distance of `bradley_terry`, in θ = log p, and the steps that lessen it."""

    def __init__(self, matrix: Array, weights: Array, prior: float):
        self.plus = (matrix > 0).astype(np.float64)
        self.minus = (matrix < 0).astype(np.float64)
        self.weights, self.prior = weights, prior
        self.n_classes = len(matrix)
        self.tolerance = TOL * weights.size

    def step(self, _: Value, p: Value, r: Value, _before: Value) -> list[Value]:
        """Return p after a step, r, and the largest entry of the gradient before the step."""
        up, down = self._balance_terms(p, r)
        gradient = down - up
        best = _floored(p * up / down)
        value = self._value(best, r)
        in_theta = _floored(p * self._newton(p, r, gradient).exp())
        for trial in (self._newton_on_simplex(p, r, gradient), in_theta):
            reached = self._value(trial, r)
            wins = reached <= value + 4.0 * np.finfo(np.float64).eps * (1.0 + value.absolute())
            best, value = wins.choose(trial, best), wins.choose(reached, value)
        return [best, r, _largest(gradient)]

    def _value(self, p: Value, r: Value) -> Value:
        above, below = p @ self.plus, p @ self.minus
        distances = (above + below).log() - r * above.log() - (1.0 - r) * below.log()
        smooth = float(self.n_classes) * p.sum(keepdims=True).log() - p.log().sum(keepdims=True)
        return distances @ self.weights[:, np.newaxis] + self.prior * smooth

    def _balance_terms(self, p: Value, r: Value) -> tuple[Value, Value]:
        """Return the positive and the negative terms of the gradient of every class, equal at a stationary point."""
        above, below = p @ self.plus, p @ self.minus
        up = (self.weights * r / above) @ self.plus.T + (self.weights * (1.0 - r) / below) @ self.minus.T
        down = (self.weights / (above + below)) @ (self.plus + self.minus).T
        return p * up + self.prior, p * (down + self.prior * self.n_classes)

    def _newton(self, p: Value, r: Value, gradient: Value) -> Value:
        """Return the Newton steps in θ, none of them too long."""
        above, below = p @ self.plus, p @ self.minus
        eye = np.eye(self.n_classes)
        column = p.with_axis(2)
        anchored = self.prior * self.n_classes
        hessian = column * (anchored * eye) - anchored * column * p.with_axis(1) + 1.0 / self.n_classes**2
        for mask, mass, factor in (
            (self.plus + self.minus, above + below, r * 0.0 + self.weights),
            (self.plus, above, r * -self.weights),
            (self.minus, below, (1.0 - r) * -self.weights),
        ):
            # The covariance of the indicator of a class within the side, for every column.
            within = column * mask / mass.with_axis(1)
            weighted = within * factor.with_axis(1)
            hessian = (
                hessian + weighted.sum(axis=2, keepdims=True) * eye - weighted @ within.transposed(0, 2, 1)
            )
        step = -_solve(hessian, gradient, self.n_classes)
        longest = step.absolute().max(keepdims=True).at_least(1e-300)
        return step * (LONGEST_STEP / longest).at_most(1.0)

    def _newton_on_simplex(self, p: Value, r: Value, gradient: Value) -> Value:
        """Return p after a Newton step in p itself."""
        above, below = p @ self.plus, p @ self.minus
        hessian: Any = max(self.prior, 1e-12) * np.eye(self.n_classes)
        for mask, mass, factor in (
            (self.plus, above, r * self.weights),
            (self.minus, below, (1.0 - r) * self.weights),
        ):
            within = p.with_axis(2) * mask / mass.with_axis(1)
            hessian = (within * factor.with_axis(1)) @ within.transposed(0, 2, 1) + hessian
        free, along = (_solve(hessian, right, self.n_classes) for right in (gradient, p))
        u = along * ((p * free).sum(keepdims=True) / (p * along).sum(keepdims=True)) - free
        furthest = (-u.min(keepdims=True)).at_least(1e-300)
        return _floored(p * (1.0 + (LARGEST_CUT / furthest).at_most(1.0) * u))


def _solve(systems: Value, right: Value, size: int) -> Value:
    """Return the solutions x of A x = b for every matrix, shape (n, K), by Gauss–Jordan elimination."""
    eye = np.eye(size)

    def eliminate(place: Value, augmented: Value) -> list[Value]:
        row = augmented.take(place, axis=1)
        row = row / row.take(place, axis=1).with_axis(1)
        # One less in the pivot's own row: it becomes the row over the pivot.
        column = augmented.take(place, axis=2) - augmented.graph.value(eye).take(place, axis=0)
        return [augmented - column.with_axis(2) * row.with_axis(1)]

    (solved,) = systems.graph.loop(size, [systems.beside(right.with_axis(2), axis=2)], eliminate)
    return solved.take(np.array(size), axis=2)


def _square(above: Value, below: Value, n_classes: int) -> Value:
    """Return (n, K, K) matrices from the parts above and below their diagonals, which are zero."""
    i, k = np.triu_indices(n_classes, 1)
    place = np.full((n_classes, n_classes), 2 * i.size)
    place[i, k], place[k, i] = np.arange(i.size), i.size + np.arange(i.size)
    zero = above.take(np.array([0])) * 0.0
    return above.beside(below, zero).take(place.ravel()).reshaped(0, n_classes, n_classes)


def _ones(r: Value, n_classes: int) -> Value:
    return r.take(np.array([0])) * 0.0 + np.ones(n_classes)


def _normalised(p: Value) -> Value:
    """Return rows that sum to one, without what rounding leaves below zero."""
    p = p.at_least(0.0)
    return p / p.sum(keepdims=True)


def _floored(p: Value) -> Value:
    """Return normalised rows in which no class falls to zero."""
    p = p.at_least(1e-300)
    return p / p.sum(keepdims=True)


def _largest(gradient: Value) -> Value:
    """Return the largest entry in size of all rows, a number."""
    return gradient.absolute().max(axis=1).max(axis=0)
