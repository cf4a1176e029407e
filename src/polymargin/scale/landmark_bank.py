"""Least-squares machines in a feature space, from statistics of the classes.

With N, m and S the weight, the mean and the centred products of the rows of a dichotomy, its machine is w = M⁻¹ Σ_c y_c
(Σ_c sφ − n_c m) with M = S + 1/C, and its bias ȳ − m·w. The leverage of a row is s((φ − m)ᵀM⁻¹(φ − m) + 1/N), from
which its leave-one-out output follows, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack

from polymargin import _memory
from polymargin._progress import Count, Progress
from polymargin.codebooks import Codebook
from polymargin.machines._gram import DichotomyGroup, dichotomy_groups
from polymargin.outputs import Outputs
from polymargin.rows import TrainingRows
from polymargin.scale._places import ON_CPU, Place
from polymargin.scale.feature_maps import ExplicitMap, FeatureMap, LandmarkMap
from polymargin.scale.statistics import ClassStatistics
from polymargin.selection.evidence import log_evidence
from polymargin.solvers.leave_out import LeftOut

Array = NDArray[Any]

#: The candidate ridges 1/C, in multiples of the mean eigenvalue of the products, two to a decade.
_RIDGES = 10.0 ** np.arange(-9.0, 2.01, 0.5)
#: The least value of one minus a leverage: below, it is dominated by the rounding error of the leverage.
_LEAST_REST = 1e-9
#: A group that leaves less than this part of the weight is all that there is.
_NOTHING_LEFT = 1e-12


class MachineFactor(NamedTuple):
    """The factorisation behind machines that share their rows and C.

    Attributes
    ----------
    columns : ndarray of int
        Their columns.
    total : float
        The weight N of their rows.
    mean : ndarray of shape (D,)
        The mean m of the features.
    lower : ndarray of shape (D, D)
        The lower Cholesky factor of M = S + 1/C.
    """

    columns: Array
    total: float
    mean: Array
    lower: Array


@dataclass(frozen=True)
class LandmarkBank:
    """Least-squares machines in a feature space, one per column of the codebook.

    Attributes
    ----------
    features : LandmarkMap or ExplicitMap
        The feature map.
    codebook : Codebook
        The dichotomies.
    weights : ndarray of shape (D, L)
        The weights of the features.
    intercept, norms, C, mu, zeta, log_evidence : ndarray of shape (L,)
        As of `polymargin.machines.LSSVMBank`.
    error : float
        What the landmarks leave out: the mean of K(x, x) − φ(x)·φ(x) over a sample, as a share of the mean of K(x, x).
    statistics : ClassStatistics or None
        The statistics that the machines come from, where they are kept: for variances, further rows and merging.

    See Also
    --------
    fit_landmark_bank : Trains the machines.
    """

    features: LandmarkMap | ExplicitMap
    codebook: Codebook
    weights: Array
    intercept: Array
    norms: Array
    C: Array
    mu: Array
    zeta: Array
    log_evidence: Array
    error: float = 0.0
    statistics: ClassStatistics | None = None

    def margins(self, X: Any, place: Place = ON_CPU) -> Array:
        """Return the decision values of new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        place : Place
            Where they are computed.

        Returns
        -------
        ndarray of shape (n, L)
        """
        features = place.feature_map(self.features, X.shape[0])
        margins = np.empty((X.shape[0], self.intercept.size))
        for rows in features.blocks(X.shape[0]):
            margins[rows] = features.times(X[rows], self.weights) + self.intercept
        return margins

    def outputs(self, X: Any, *, variances: bool, place: Place = ON_CPU) -> Outputs:
        """Return the outputs for new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        variances : bool
            Whether the variances of the margins are computed as well, for which the bank must have its statistics.
        place : Place
            Where the margins are computed.

        Returns
        -------
        Outputs
        """
        margins = self.margins(X, place)
        spread = self._variances(X) if variances else None
        return Outputs(margins, "new", spread, 1.0 / self.zeta, self.norms)

    def _variances(self, X: Any) -> Array:
        """Return σ_z², of the weights of the features, and of what these leave out of the kernel, shape (n, L)."""
        if np.isnan(self.mu).any():
            raise ValueError("variances need sample weights that sum to two or more in every dichotomy")
        missing = self.features.missing(X)[:, np.newaxis] / self.mu
        spread = np.empty((X.shape[0], self.intercept.size))
        phi = self.features(X)
        for factor in self.factors():
            own = _quadratic(factor.lower, phi - factor.mean)[:, np.newaxis]
            spread[:, factor.columns] = (own + 1.0 / factor.total) / self.zeta[factor.columns]
        return spread + missing

    def factors(self) -> Iterator[MachineFactor]:
        """Yield the factorisations behind the variances, for which the bank must have its statistics.

        Yields
        ------
        MachineFactor
            One for columns that share classes and C; all together have every column once.
        """
        if self.statistics is None:
            raise ValueError("variances need the statistics of the classes, which this model has not kept")
        for group in self.codebook.column_groups:
            total, mean, products = self.statistics.of_classes(group.classes)
            for ridge, columns in _by_ridge(1.0 / self.C[group.columns], group.columns):
                yield MachineFactor(columns, total, mean, _factor(products, ridge))


def features_of(features: FeatureMap, X: Any) -> Array:
    """Return the features of rows, computed in blocks.

    Parameters
    ----------
    features : FeatureMap
        The feature map.
    X : array or sparse matrix of shape (n, d)
        Rows.

    Returns
    -------
    ndarray of shape (n, D)
    """
    phi = np.empty((X.shape[0], features.n_features))
    for rows in features.blocks(X.shape[0]):
        phi[rows] = features(X[rows])
    return phi


def choose_ridge(statistics: ClassStatistics, rows: TrainingRows, phi: Array) -> float:
    """Return the ridge 1/C of least squared leave-one-out error of one-vs-all machines.

    One eigendecomposition serves all ridges, and C serves machines of other codings as well. Rows of one group are left
    out together.

    Parameters
    ----------
    statistics : ClassStatistics
        The statistics of all rows.
    rows : TrainingRows
        The rows whose errors are counted, a sample.
    phi : ndarray of shape (n, D)
        Their features.

    Returns
    -------
    float
    """
    K = statistics.weights.size
    total, mean, products = statistics.of_classes(np.ones(K, dtype=bool))
    eigenvalues, U = eigh(products, overwrite_a=True, check_finite=False)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    labels = np.eye(K)[rows.class_index] if rows.soft_labels is None else rows.soft_labels
    targets = 2.0 * labels - 1.0
    shares = statistics.weights / total
    # Of class c, Σ y (φ − m) with y = ±1 is twice the sum of the class about the mean of all rows.
    right = 2.0 * U.T @ (statistics.sums - statistics.weights[:, np.newaxis] * mean).T
    rotated = (phi - mean) @ U
    squares = np.square(rotated)
    unit = float(eigenvalues.mean()) or 1.0
    left_out = None if rows.groups is None else LeftOut.of(rows.groups)
    errors = np.full(_RIDGES.size, np.inf)
    for number, ridge in enumerate(unit * _RIDGES):
        inverse = 1.0 / (eigenvalues + ridge)
        residuals = targets - (rotated @ (inverse[:, np.newaxis] * right) + (2.0 * shares - 1.0))
        if left_out is None:
            rest = (1.0 - rows.weights * (squares @ inverse + 1.0 / total))[:, np.newaxis]
            least, residuals = float(rest.min()), residuals / np.maximum(rest, _LEAST_REST)
        else:
            half = rotated * np.sqrt(inverse)
            residuals, least = _without_groups(left_out, half, total, rows.weights, targets, residuals)
        # Of machines that reproduce a row whatever its label is, nobody knows what they would say without it.
        if least > _LEAST_REST:
            errors[number] = rows.weights @ np.square(residuals).sum(axis=1)
    best = int(np.argmin(errors)) if np.isfinite(errors).any() else -1
    return float(unit * _RIDGES[best])


def fit_landmark_bank(
    statistics: ClassStatistics,
    features: FeatureMap,
    codebook: Codebook,
    C: Array | float,
    rows: TrainingRows,
    phi: Array,
    *,
    keep_statistics: bool = False,
    measure_error: bool = True,
    progress: Progress | None = None,
) -> tuple[LandmarkBank, Array, Array]:
    """Solve the machines of every column, and leave out each of some training rows.

    Parameters
    ----------
    statistics : ClassStatistics
        The statistics of all training rows.
    features : FeatureMap
        The feature map.
    codebook : Codebook
        The dichotomies.
    C : float or ndarray of shape (L,)
        The regularisation.
    rows : TrainingRows
        Some of the training rows, to be left out one after the other, or group by group.
    phi : ndarray of shape (n, D)
        Their features.
    keep_statistics : bool
        Whether the bank keeps the statistics.
    measure_error : bool
        Whether to measure what the landmarks leave out.
    progress : callable or None
        Called with every step.

    Returns
    -------
    bank : LandmarkBank
    exact, honest : ndarray of shape (n, L)
        The leave-one-out margins of these rows, and the same without the shift of the target mean, see
        `polymargin.outputs.Outputs`.
    """
    n_columns = codebook.n_columns
    Cs = np.broadcast_to(np.asarray(C, dtype=np.float64), n_columns).copy()
    found = {name: np.empty(n_columns) for name in ("intercept", "norms", "mu", "zeta", "log_evidence")}
    weights = np.empty((features.n_features, n_columns))
    exact = np.empty((phi.shape[0], n_columns))
    honest = np.empty_like(exact)
    count = Count(progress, "landmark machines", "machines")
    count.expect(n_columns)
    for group, left_out in zip(codebook.column_groups, dichotomy_groups(rows, codebook), strict=True):
        total, mean, products = statistics.of_classes(group.classes)
        for ridge, columns in _by_ridge(1.0 / Cs[group.columns], group.columns):
            machine = _Machines.of(statistics, total, mean, products, codebook.matrix[:, columns], ridge)
            weights[:, columns] = machine.weights
            for name, values in found.items():
                values[columns] = getattr(machine, name)
            places = np.searchsorted(left_out.columns, columns)
            exact[:, columns] = phi @ machine.weights + machine.intercept
            honest[:, columns] = exact[:, columns]
            without, shift = machine.left_out(left_out, places, phi[left_out.rows])
            exact[np.ix_(left_out.rows, columns)] = without
            honest[np.ix_(left_out.rows, columns)] = without + shift
            count.advance(columns.size)
    error = 0.0
    if measure_error:
        own = rows.kernel.diagonal(rows.X, features.gamma)
        left = own - np.square(phi + features.centre).sum(axis=1)
        if isinstance(features.on_cpu, LandmarkMap) and own.any():
            error = float(np.maximum(left, 0.0).sum() / own.sum())
    bank = LandmarkBank(
        features.on_cpu,
        codebook,
        weights,
        C=Cs,
        error=error,
        statistics=statistics if keep_statistics else None,
        **found,
    )
    return bank, exact, honest


@dataclass(frozen=True)
class _Machines:
    """The machines of some columns that share rows and ridge; see `LandmarkBank` for the quantities."""

    total: float
    mean: Array
    target_means: Array
    lower: Array
    weights: Array
    intercept: Array
    norms: Array
    mu: Array
    zeta: Array
    log_evidence: Array

    @classmethod
    def of(
        cls,
        statistics: ClassStatistics,
        total: float,
        mean: Array,
        products: Array,
        bits: Array,
        ridge: float,
    ) -> _Machines:
        """Solve the machines for these codeword bits, shape (K, l)."""
        lower = _factor(products, ridge)
        signed = bits.astype(np.float64)
        means = statistics.weights @ signed / total
        right = (statistics.sums - statistics.weights[:, np.newaxis] * mean).T @ signed
        weights = lapack.dpotrs(lower, right, lower=1)[0]
        D = mean.size
        # tᵀ(A + ε)⁻¹t of the centred targets t, and the spectrum of A + ε, of which N − 1 − D eigenvalues are ε.
        variation = statistics.weights @ np.square(signed) - total * np.square(means)
        fit = np.maximum(variation - np.einsum("dl,dl->l", right, weights), 1e-300) / ridge
        inverse = lapack.dtrtri(lower, lower=1)[0]
        others = total - 1.0 - D
        logs = 2.0 * np.log(np.diagonal(lower)).sum() + others * np.log(ridge)
        inverses = float(np.square(np.tril(inverse)).sum()) + others / ridge
        mu, evidence = np.full((2, fit.size), np.nan)
        if total > 1.0:  # else no degree of freedom is left to infer hyperparameters from
            mu, evidence = (total - 1.0) / fit, log_evidence(total, ridge, fit, logs, inverses)
        return cls(
            total,
            mean,
            means,
            lower,
            weights,
            means - mean @ weights,
            np.sqrt(np.einsum("dl,dl->l", weights, weights)),
            mu,
            mu / ridge,
            evidence,
        )

    def left_out(self, group: DichotomyGroup, places: Array, phi: Array) -> tuple[Array, Array]:
        """Return the leave-one-out margins of the group's rows, and the shift of the target mean, (m, l) each."""
        targets, weights = group.targets[:, places], group.weights
        about = phi - self.mean
        residuals = targets - (phi @ self.weights + self.intercept)
        moved = weights[:, np.newaxis] * (targets - self.target_means)
        if group.observations is None:
            leverages = weights * (_quadratic(self.lower, about) + 1.0 / self.total)
            rest = np.maximum(1.0 - leverages, _LEAST_REST)[:, np.newaxis]
            return targets - residuals / rest, moved / (self.total - weights)[:, np.newaxis]
        left_out = LeftOut.of(group.observations)
        half = _half_solved(self.lower, about).T
        errors, _ = _without_groups(left_out, half, self.total, weights, targets, residuals)
        shift = np.empty_like(moved)
        for members in left_out.blocks:
            rest = np.maximum(self.total - weights[members].sum(axis=1), _NOTHING_LEFT * self.total)
            shift[members] = (moved[members].sum(axis=1) / rest[:, np.newaxis])[:, np.newaxis]
        return targets - errors, shift


def _without_groups(
    left_out: LeftOut, half: Array, total: float, weights: Array, targets: Array, residuals: Array
) -> tuple[Array, float]:
    """Return the residuals of machines trained without each row's group, shape (n, l); of no rows at all they say zero.

    `half`, shape (n, D), has the inner products (φ − m)ᵀM⁻¹(φ' − m). The second value is the least eigenvalue of one
    minus the hat matrix of a group.
    """
    errors, least = np.empty_like(residuals), 1.0
    roots = np.sqrt(weights)[:, np.newaxis]
    for members in left_out.blocks:
        own, of_rows = half[members], roots[members]
        hat = of_rows * (own @ own.swapaxes(1, 2) + 1.0 / total) * of_rows.swapaxes(1, 2)
        nothing = total - weights[members].sum(axis=1) <= _NOTHING_LEFT * total
        hat[nothing] = 0.0
        eigenvalues, U = np.linalg.eigh(np.eye(members.shape[1]) - hat)
        least = min(least, float(eigenvalues.min()))
        rest = np.maximum(eigenvalues, _LEAST_REST)[:, :, np.newaxis]
        errors[members] = U @ ((U.swapaxes(1, 2) @ (of_rows * residuals[members])) / rest) / of_rows
        errors[members[nothing]] = targets[members[nothing]]
    return errors, least


def _by_ridge(ridges: Array, columns: Array) -> list[tuple[float, Array]]:
    """Return the columns of every ridge."""
    return [(float(ridge), columns[ridges == ridge]) for ridge in np.unique(ridges)]


def _factor(products: Array, ridge: float) -> Array:
    """Return the Cholesky factor of the products plus the ridge."""
    M = np.array(products, order="F")
    M[np.diag_indices_from(M)] += ridge
    lower, info = lapack.dpotrf(M, lower=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError("the ridge 1/C is too small for these features: use a smaller C")
    return lower


def _half_solved(lower: Array, rows: Array) -> Array:
    """Return L⁻¹ of the transposed rows, shape (D, n)."""
    return lapack.dtrtrs(lower, rows.T, lower=1)[0]


def _quadratic(lower: Array, rows: Array) -> Array:
    """Return xᵀ(LLᵀ)⁻¹x of every row, shape (n,), in blocks."""
    found = np.empty(len(rows))
    for some in _memory.row_blocks(len(rows), rows.shape[1]):
        half = _half_solved(lower, rows[some])
        found[some] = np.einsum("dn,dn->n", half, half)
    return found
