"""Machines and feature maps on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymargin import device as devices
from polymargin._progress import logger
from polymargin._threads import n_threads
from polymargin.codebooks import Codebook
from polymargin.device.arrays import Device, OutOfDeviceMemory, with_memory_errors
from polymargin.device.kernels import DeviceKernel
from polymargin.kernels import Kernel
from polymargin.machines import LSSVMBank, TrainingRows
from polymargin.machines._gram import GroupGram
from polymargin.machines.lssvm_training import BankTraining, train_together
from polymargin.scale._places import ON_CPU
from polymargin.scale.feature_maps import FeatureMap, LandmarkMap
from polymargin.scale.statistics import ClassStatistics
from polymargin.solvers._softmax_problem import SoftmaxData
from polymargin.solvers.softmax import SoftmaxFit

Array = NDArray[Any]
_Result = TypeVar("_Result")

#: How often C and gamma, which were found on few rows, are tried on a device with half of the rows, which takes as long
#: as the machines of all rows.
_EVALUATIONS, _REFINED_SHARE = 8, 0.5
#: The seconds that a device takes for a group of rows, however few they are, and how many n³ a thread of the CPU does
#: in a second: 430 rows take both as long, 1100 rows a device and 16 threads (an H200 beside the cores of its machine).
_GROUP_SECONDS, _CUBES_PER_SECOND = 0.008, 1e10
#: The seconds that a device takes for a stack of groups with few rows, and how many n³ it does in a second then.
_STACK_SECONDS, _STACKED_CUBES_PER_SECOND = 0.03, 1e12
#: What a value of a kernel takes the CPU, in such operations: 10 ns, and 0.2 ns for every column of the rows.
_VALUE, _VALUE_OF_COLUMN = 100.0, 2.0
#: Softmax problems with fewer multiplications in a product stay on the CPU, which solves them in a few milliseconds.
_SOFTMAX_OPERATIONS = 5e5
#: Threads that train leaves have the device one after the other: each may need most of its memory.
_ONE_AT_A_TIME = RLock()


class OnDevice:
    """A `Place`: a device, for one group of rows after the other; the CPU where it is faster, as with few rows.

    Parameters
    ----------
    device : str
        The name of the device.
    refines, falls_back : bool
        See `polymargin.scale._places.place_for`.
    """

    def __init__(self, device: str, refines: bool, falls_back: bool):
        self._device, self._refines, self._falls_back = devices.resolve_device(device), refines, falls_back
        # Those that share the work here: where one of them trains a leaf, it has no others.
        self._n_threads = n_threads()
        # The last kernel, with its rows, which several banks have in common; one at a time.
        self._known: tuple[Any, Kernel, Any] | None = None

    @property
    def accelerator(self) -> OnDevice:
        """The device, for softmax problems."""
        return self

    def fit_softmax(
        self,
        data: SoftmaxData,
        start: SoftmaxFit | None,
        tol: float,
        max_iter: int,
        on_cpu: Callable[[], SoftmaxFit],
    ) -> SoftmaxFit:
        """Solve a softmax problem, see `polymargin._accelerator.Accelerator`."""
        if data.operations < _SOFTMAX_OPERATIONS:
            return on_cpu()
        return self._tried(
            lambda: devices.fit_softmax(data, start, tol=tol, max_iter=max_iter, device=self._device),
            on_cpu,
            falls_back=True,
        )

    def train(self, trainings: list[BankTraining]) -> list[LSSVMBank]:
        """Train several banks, see `Place`."""
        if all(self._cpu_trains_faster(each.groups) for each in trainings):
            return train_together(trainings)
        return self._tried(lambda: self._train(trainings), lambda: train_together(trainings))

    def _train(self, trainings: list[BankTraining]) -> list[LSSVMBank]:
        banks = []
        for training in trainings:
            bank = devices.fit_device_bank(
                training.data,
                training.codebook,
                training.C,
                training.gamma,
                self._device,
                n_folds=0 if training.folds is None else int(training.folds.max()) + 1,
                keep_fold_coef=training.keep_fold_coef,
                kernel=self._kernel(training.data),
            )
            banks.append(bank)
        for training in trainings:
            training.machines.advance(training.codebook.n_columns)
        trainings.clear()
        return banks

    def refined(
        self, rows: TrainingRows, codebook: Codebook, C: Array, gamma: Array, smaller: float
    ) -> tuple[Array, Array]:
        """Return C and gamma of less PRESS, see `Place`."""
        if not self._refines:
            return C, gamma
        half = rows.take(rows.deal.sample(_REFINED_SHARE, 1))

        def refine() -> tuple[Array, Array]:
            self._known = None
            found = devices.refine_parameters(
                half, codebook, C * smaller, gamma, self._device, max_evaluations=_EVALUATIONS
            )
            return found.C / smaller, found.gamma

        return self._tried(refine, lambda: (C, gamma))

    def margins(self, bank: LSSVMBank, X: Any) -> Array:
        """Return the margins of new rows, see `Place`."""
        values = float(X.shape[0]) * bank.data.X.shape[0]
        operations = values * (_VALUE + _VALUE_OF_COLUMN * X.shape[1] + len(bank.dual_coef))
        # Of one thread: the parts of so small a problem are done before another one has begun.
        if bank.expansion is not None or operations < _CUBES_PER_SECOND * _GROUP_SECONDS:
            return bank.margins(X)
        return self._tried(
            lambda: devices.DeviceMargins(bank, self._device).margins(X), lambda: bank.margins(X)
        )

    def feature_map(self, features: FeatureMap, n_rows: int) -> FeatureMap:
        """Return a map of landmarks that is computed on the device, and others as they are: they have few features."""
        if self._cpu_is_faster([float(n_rows) * features.n_features**2]):
            return features
        if not isinstance(features, LandmarkMap):
            return features
        on_cpu: FeatureMap = features
        return self._tried(lambda: DeviceMap(features, self._device), lambda: on_cpu)

    def mean_squared_gradients(
        self, kernel: Kernel, X: Any, coefficients: Array, gamma: Any, Z: Any, weights: Array
    ) -> Array:
        """Return the mean squared gradients of kernel expansions, see `Place`."""
        arguments = kernel, X, coefficients, gamma
        return self._tried(
            lambda: devices.mean_squared_gradients(*arguments, self._device, Z=Z, weights=weights),
            lambda: ON_CPU.mean_squared_gradients(*arguments, Z, weights),
        )

    def _kernel(self, rows: TrainingRows) -> DeviceKernel:
        """Return the kernel on the device, with these rows."""
        if self._known is None or self._known[0] is not rows.X or self._known[1] is not rows.kernel:
            self._known = None
            self._known = rows.X, rows.kernel, DeviceKernel(rows.kernel, rows.X, self._device)
        return self._known[2]

    def _cpu_trains_faster(self, groups: list[GroupGram]) -> bool:
        """Return whether the threads that there are train some machines sooner than a device."""
        cubes = [float(group.rows.size) ** 3 for group in groups if group.rows.size <= devices.STACKED_ROWS]
        seconds = _GROUP_SECONDS * (len(groups) - len(cubes))
        if len(cubes) > 1:
            seconds += _STACK_SECONDS + sum(cubes) / _STACKED_CUBES_PER_SECOND
        else:
            seconds += _GROUP_SECONDS * len(cubes)
        return self._seconds([_operations(group) for group in groups]) < seconds

    def _seconds(self, operations: list[float]) -> float:
        """Return how long the threads that there are take for the operations of some groups of rows."""
        return sum(operations) / (_CUBES_PER_SECOND * self._n_threads)

    def _cpu_is_faster(self, operations: list[float]) -> bool:
        """Return whether the threads that there are do the operations of some groups of rows sooner than a device."""
        return self._seconds(operations) < _GROUP_SECONDS * len(operations)

    def _tried(
        self,
        on_device: Callable[[], _Result],
        on_cpu: Callable[[], _Result],
        falls_back: bool | None = None,
    ) -> _Result:
        if falls_back is None:
            falls_back = self._falls_back
        if self._known is not None:
            try:
                return _tried(self._device, on_device, None)
            except OutOfDeviceMemory:
                self._known = None  # without what is kept it may fit
        return _tried(self._device, on_device, on_cpu if falls_back else None)


class DeviceMap:
    """A `FeatureMap` by landmarks on a device; on the CPU where the memory of the device runs out.

    Parameters
    ----------
    features : LandmarkMap
        The map.
    device : Device
        The device.
    """

    def __init__(self, features: LandmarkMap, device: Device):
        self.on_cpu, self._device = features, device
        self.kernel, self.gamma, self.centre = features.kernel, features.gamma, features.centre
        self.n_features = features.n_features
        self._on_device = DeviceKernel(features.kernel, features.landmarks, device)
        self._whitening, self._centre = map(device.to_device, (features.whitening, features.centre))

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of rows whose features are computed together."""
        # As many as the kernel between them and the landmarks has in a block, with room for the rows themselves.
        return self._on_device.blocks(n_rows, self.n_features + int(self.on_cpu.landmarks.shape[1]))

    def __call__(self, X: Any) -> Array:
        """Return the features of rows, shape (n, D)."""
        return self._tried(lambda: self._device.to_numpy(self._features(X)), lambda: self.on_cpu(X))

    def times(self, X: Any, weights: Array) -> Array:
        """Return the features of rows times weights of shape (D, L), shape (n, L)."""
        return self._tried(
            lambda: self._device.to_numpy(self._features(X) @ self._device.to_device(weights)),
            lambda: self.on_cpu.times(X, weights),
        )

    def statistics(self, rows: TrainingRows, n_classes: int, together: bool) -> ClassStatistics:
        """Return the statistics of the classes."""
        return self._tried(
            lambda: ClassStatistics.of(
                self._features(rows.X),
                rows.class_index,
                rows.weights,
                n_classes=n_classes,
                soft_labels=rows.soft_labels,
                together=together,
                moments=self._moments,
            ),
            lambda: self.on_cpu.statistics(rows, n_classes, together),
        )

    def missing(self, X: Any) -> Array:
        """Return what the map leaves out of K(x, x), shape (n,)."""
        return self.on_cpu.missing(X)

    def _features(self, X: Any) -> Any:
        kernel = self._on_device
        values = kernel.values(kernel.parts(kernel.rows(X), kernel.training), self.gamma)
        return values @ self._whitening - self._centre

    def _moments(self, features: Any, shares: Array, counted: Array) -> tuple[Array, Array]:
        """Return the sums and products of features on the device, see `polymargin.scale.statistics.moments`."""
        device, xp = self._device, self._device.xp
        products = np.empty((len(counted), self.n_features, self.n_features))
        for number, own in enumerate(counted):
            used = np.flatnonzero(own)
            scaled = features
            if used.size < own.size:
                scaled = xp.take(features, device.to_device(used, "int64"), axis=0)
            if (own[used] != 1.0).any():
                scaled = scaled * device.to_device(np.sqrt(own[used]))[:, None]
            products[number] = device.to_numpy(xp.tril(scaled.T @ scaled))
        return device.to_numpy(device.to_device(shares).T @ features), products

    def _tried(self, on_device: Callable[[], _Result], on_cpu: Callable[[], _Result]) -> _Result:
        return _tried(self._device, on_device, on_cpu)


def _tried(device: Device, on_device: Callable[[], _Result], on_cpu: Callable[[], _Result] | None) -> _Result:
    """Return what is computed on a device, or, if its memory runs out, on the CPU; None: raise OutOfDeviceMemory."""
    try:
        with _ONE_AT_A_TIME, device.current():
            return with_memory_errors(on_device)()
    except OutOfDeviceMemory as error:
        if on_cpu is None:
            raise
        logger.info("%s: computed on the CPU instead", error)
    return on_cpu()


def _operations(group: GroupGram) -> float:
    """Return how many operations the CPU needs for the machines of a group of rows: n³, or nD² with D features."""
    n = float(group.rows.size)
    return n * float(group.n_features or n) ** 2
