"""The bank of a fit to many rows: leaves, landmarks, or both, with the honest outputs of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, Workspace
from polymargin.outputs import Nested, Outputs
from polymargin.rows import TrainingRows
from polymargin.scale._places import ON_CPU, Place
from polymargin.scale.landmark_bank import LandmarkBank
from polymargin.scale.leaves import LeafBank

Array = NDArray[Any]


@dataclass(frozen=True)
class ScaledBank:
    """Machines of many rows: those of leaves, of landmarks, or both.

    The outputs have a column for every column of the codebook and every kind of machines: first those of the leaves,
    then those of the landmarks.

    Attributes
    ----------
    data : TrainingRows
        The sample of the training rows whose honest outputs are known: what decoders learn from.
    codebook : Codebook
        The dichotomies.
    pilot : LSSVMBank
        Exact machines of a sample, by which kernel, metric and parameters were chosen.
    leaves : LeafBank or None
        The machines of the leaves.
    landmarks : LandmarkBank or None
        The machines of the landmarks.
    loo_margins, honest_margins : ndarray of shape (n, P·L)
        The leave-one-out margins of the sample, and the same without the shift of the target mean.
    leak : ndarray of bool, shape (n,), or None
        The rows of the sample that a metric was learned from: their leave-one-out margins are too good.
    """

    data: TrainingRows
    codebook: Codebook
    pilot: LSSVMBank
    leaves: LeafBank | None
    landmarks: LandmarkBank | None
    loo_margins: Array
    honest_margins: Array
    leak: Array | None = None
    nested: Nested | None = None
    rounding_error: float = 0.0

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.pilot.kernel

    @property
    def n_parts(self) -> int:
        """The number of kinds of machines."""
        return (self.leaves is not None) + (self.landmarks is not None)

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
        ndarray of shape (n, P·L)
        """
        parts = (self.leaves, self.landmarks)
        return np.hstack([part.margins(X, place) for part in parts if part is not None])

    def outputs(self, X: Any, *, variances: bool, place: Place = ON_CPU) -> Outputs:
        """Return the outputs for new rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
            Rows.
        variances : bool
            Whether the variances of the margins are computed as well, which landmarks alone have.
        place : Place
            Where the margins are computed.

        Returns
        -------
        Outputs
        """
        if self.leaves is None and self.landmarks is not None:
            return self.landmarks.outputs(X, variances=variances, place=place)
        if variances:
            raise ValueError('leaves have no variances: use scale="landmarks" or scale="exact"')
        return Outputs(self.margins(X, place), "new")

    def training_outputs(self, *, honest: bool, workspace: Workspace | None = None) -> Outputs:
        """Return the outputs of the sample of the training rows.

        Parameters
        ----------
        honest : bool
            True for out-of-sample outputs (leave-one-out), False for in-sample ones.
        workspace : Workspace or None
            Not used.

        Returns
        -------
        Outputs
        """
        landmarks = self.landmarks if self.leaves is None else None
        noise, norms = (None, None) if landmarks is None else (1.0 / landmarks.zeta, landmarks.norms)
        if not honest:
            return Outputs(self.margins(self.data.X), "in_sample", None, noise, norms)
        return Outputs(
            self.honest_margins,
            "leave_one_out",
            noise=noise,
            norms=norms,
            exact=self.loo_margins,
            dealt=self.data.deal,
        )
