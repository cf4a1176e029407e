"""Where exact machines are trained and evaluated: on the CPU, or on a device. The choices between them are the same."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from polymargin._threads import n_threads
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, TrainingRows
from polymargin.machines._gram import dichotomy_groups
from polymargin.machines.lssvm_training import BankTraining, train_together
from polymargin.solvers.gradients import mean_squared_gradients

Array = NDArray[Any]

#: How often C and gamma, which were found on few rows, are tried on a device with half of the rows, which takes as long
#: as the machines of all rows.
_EVALUATIONS, _REFINED_SHARE = 8, 0.5
#: The seconds that a device takes for a group of rows, however few they are, and how many n³ a thread of the CPU does
#: in a second: 430 rows take both as long, 1100 rows a device and 16 threads (an H200 beside the cores of its machine).
_GROUP_SECONDS, _CUBES_PER_SECOND = 0.008, 1e10


class Place(Protocol):
    """Where machines are trained."""

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

    def mean_squared_gradients(
        self, kernel: Kernel, X: Any, coefficients: Array, gamma: Any, Z: Any, weights: Array
    ) -> Array:
        """Return the mean squared gradients of kernel expansions, see `Place`."""
        return mean_squared_gradients(kernel, X, coefficients, gamma, Z=Z, weights=weights)


class OnDevice:
    """Machines on a device, one group of rows after the other; on the CPU where groups are so small that it is faster.

    Parameters
    ----------
    device : str
        The name of the device.
    refines : bool
        Whether C and gamma are refined, because the search had but few rows.
    """

    def __init__(self, device: str, refines: bool):
        from polymargin.device import resolve_device

        self._device, self._refines = resolve_device(device), refines
        # The last kernel, with its rows, which several banks have in common; one at a time.
        self._known: tuple[Any, Kernel, Any] | None = None

    def train(self, trainings: list[BankTraining]) -> list[LSSVMBank]:
        """Train several banks, see `Place`."""
        from polymargin.device import fit_device_bank

        banks = []
        if all(_cpu_is_faster([group.rows.size for group in each.groups]) for each in trainings):
            return train_together(trainings)
        while trainings:
            training = trainings.pop(0)
            bank = fit_device_bank(
                training.data,
                training.codebook,
                training.C,
                training.gamma,
                self._device,
                n_folds=0 if training.folds is None else int(training.folds.max()) + 1,
                keep_fold_coef=training.keep_fold_coef,
                kernel=self._kernel(training.data),
            )
            training.machines.advance(training.codebook.n_columns)
            banks.append(bank)
        return banks

    def refined(
        self, rows: TrainingRows, codebook: Codebook, C: Array, gamma: Array, smaller: float
    ) -> tuple[Array, Array]:
        """Return C and gamma of less PRESS, see `Place`."""
        if not self._refines:
            return C, gamma
        from polymargin.device import refine_parameters

        half = rows.take(rows.deal.sample(_REFINED_SHARE, 1))
        if _cpu_is_faster([group.rows.size for group in dichotomy_groups(half, codebook)]):
            return C, gamma
        self._known = None
        found = refine_parameters(
            half, codebook, C * smaller, gamma, self._device, max_evaluations=_EVALUATIONS
        )
        return found.C / smaller, found.gamma

    def margins(self, bank: LSSVMBank, X: Any) -> Array:
        """Return the margins of new rows, see `Place`."""
        from polymargin.device import DeviceMargins

        margins: Array = DeviceMargins(bank, self._device).margins(X)
        return margins

    def mean_squared_gradients(
        self, kernel: Kernel, X: Any, coefficients: Array, gamma: Any, Z: Any, weights: Array
    ) -> Array:
        """Return the mean squared gradients of kernel expansions, see `Place`."""
        from polymargin.device import mean_squared_gradients

        found: Array = mean_squared_gradients(
            kernel, X, coefficients, gamma, self._device, Z=Z, weights=weights
        )
        return found

    def _kernel(self, rows: TrainingRows) -> Any:
        """Return the kernel on the device, with these rows."""
        from polymargin.device.kernels import DeviceKernel

        if self._known is None or self._known[0] is not rows.X or self._known[1] is not rows.kernel:
            self._known = None
            self._known = rows.X, rows.kernel, DeviceKernel(rows.kernel, rows.X, self._device)
        return self._known[2]


def _cpu_is_faster(sizes: list[int]) -> bool:
    """Return whether the threads that there are train groups of so many rows sooner than a device."""
    cubes = sum(float(size) ** 3 for size in sizes)
    return cubes / (_CUBES_PER_SECOND * n_threads()) < _GROUP_SECONDS * len(sizes)
