"""Where machines are trained and evaluated: on the CPU, or on a device. What they are does not depend on it.

A fit chooses its `Place` once, and everything that takes long is asked of it.
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from polymargin._accelerator import Accelerator
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, TrainingRows
from polymargin.machines.lssvm_training import BankTraining, train_together
from polymargin.scale.feature_maps import FeatureMap
from polymargin.solvers.gradients import mean_squared_gradients

Array = NDArray[Any]


class Place(Protocol):
    """Where machines are trained.

    Attributes
    ----------
    accelerator : Accelerator or None
        What solvers may use beside the CPU.
    """

    @property
    def accelerator(self) -> Accelerator | None: ...

    def train(self, trainings: list[BankTraining]) -> list[LSSVMBank]:
        """Train several banks; the list is emptied.

        Parameters
        ----------
        trainings : list of BankTraining
            The banks, with their parameters.

        Returns
        -------
        list of LSSVMBank
        """

    def refined(
        self, rows: TrainingRows, codebook: Codebook, C: Array, gamma: Array, smaller: float
    ) -> tuple[Array, Array]:
        """Return better C and gamma than those that few rows have proposed, where more can be had.

        Parameters
        ----------
        rows : TrainingRows
            All rows, with the kernel.
        codebook : Codebook
            The dichotomies.
        C, gamma : ndarray of shape (L,)
            The parameters.
        smaller : float
            The factor by which C is smaller than the C of least PRESS.

        Returns
        -------
        C, gamma : ndarray of shape (L,)
        """

    def margins(self, bank: LSSVMBank, X: Any) -> Array:
        """Return the margins of new rows, shape (m, L).

        Parameters
        ----------
        bank : LSSVMBank
            The machines.
        X : array or sparse matrix of shape (m, d)
            The rows.

        Returns
        -------
        ndarray of shape (m, L)
        """

    def feature_map(self, features: FeatureMap, n_rows: int) -> FeatureMap:
        """Return a feature map that is computed here.

        Parameters
        ----------
        features : FeatureMap
            The map.
        n_rows : int
            For how many rows it will be computed, at least.

        Returns
        -------
        FeatureMap
        """

    def mean_squared_gradients(
        self, kernel: Kernel, X: Any, coefficients: Array, gamma: Any, Z: Any, weights: Array
    ) -> Array:
        """Return the mean squared gradients of kernel expansions, see `polymargin.solvers.gradients`.

        Parameters
        ----------
        kernel, X, coefficients, gamma, Z, weights
            As for `polymargin.solvers.gradients.mean_squared_gradients`.

        Returns
        -------
        ndarray of shape (L, d)
        """


class OnCPU:
    """Machines on the CPU, whose groups of rows threads share."""

    accelerator = None

    def train(self, trainings: list[BankTraining]) -> list[LSSVMBank]:
        """Train several banks, see `Place`."""
        return train_together(trainings)

    def refined(
        self, rows: TrainingRows, codebook: Codebook, C: Array, gamma: Array, smaller: float
    ) -> tuple[Array, Array]:
        """Return C and gamma as they are: the search had as many rows as are affordable."""
        return C, gamma

    def margins(self, bank: LSSVMBank, X: Any) -> Array:
        """Return the margins of new rows, see `Place`."""
        return bank.margins(X)

    def feature_map(self, features: FeatureMap, n_rows: int) -> FeatureMap:
        """Return the map as it is."""
        return features

    def mean_squared_gradients(
        self, kernel: Kernel, X: Any, coefficients: Array, gamma: Any, Z: Any, weights: Array
    ) -> Array:
        """Return the mean squared gradients of kernel expansions, see `Place`."""
        return mean_squared_gradients(kernel, X, coefficients, gamma, Z=Z, weights=weights)


#: The CPU, which has no state.
ON_CPU = OnCPU()


def place_for(device: str | None, *, refines: bool = False, falls_back: bool = True) -> Place:
    """Return the place of a device.

    Parameters
    ----------
    device : str or None
        The name of the device; None: the CPU.
    refines : bool
        Whether C and gamma are refined there, because the search had but few rows.
    falls_back : bool
        Whether what does not fit onto the device is computed on the CPU; else OutOfDeviceMemory is raised.

    Returns
    -------
    Place
    """
    if device is None:
        return ON_CPU
    from polymargin.scale._on_device import OnDevice

    return OnDevice(device, refines, falls_back)
