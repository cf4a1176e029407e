"""How a fit is divided: exact machines, landmarks, leaves, or leaves and landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin.codebooks import Codebook
from polymargin.kernels import Kernel
from polymargin.scale.settings import DEFAULT, ScaleSettings

Array = NDArray[Any]
Scale = Literal["exact", "leaves", "landmarks", "both"]

SCALES = ("auto", "exact", "leaves", "landmarks", "both")
#: Landmarks, unless their number is given, if memory allows it: the statistics of a row then cost a million operations.
#: (Waveform, 200 000 rows: excess over the true posterior 0.0021 with 1000 in 45 s, 0.0020 with 2000 in 104 s.)
_LANDMARKS = 1000
#: Fewer are used if the machines, with their leave-one-out outputs, would take more operations, half a minute on two
#: cores.
_MACHINE_OPERATIONS = 1e12
#: A landmark is to stand for at least this many rows.
_ROWS_PER_LANDMARK = 5
#: The share of the memory for statistics of the classes, and for the rows of leaves.
_STATISTICS_SHARE, _LEAF_SHARE = 0.25, 0.5
#: How much faster a device is than the CPU at float64: an H200 has 60 TFLOP/s, two cores have a few tenths of one.
_DEVICE_SPEED = 200.0
#: Of a leaf, the share of ``leaf_rows`` that it has on average: regions are halved.
_FILLED = 0.75
#: The rows of a leaf, unless they are given, and how often they are doubled at most. (Honest
#: log-losses of leaves of 750, 1500, 3000 and 6000 rows: magic 0.320, 0.320, 0.312, 0.301; ring 0.090, 0.073, 0.065,
#: 0.057; penbased 0.0219, 0.0211, 0.0217, 0.0225; on new rows the same size is best.)
_LEAF_ROWS, _LEAF_DOUBLINGS = 1500, 2
#: The bytes of a leaf while it is trained, in squares of its rows: eight matrices of these and of its overlap.
LEAF_BYTES = 64.0 * 1.5**2
#: Exact machines that take less memory, in bytes, need no plan.
_LITTLE = 2.0**30


@dataclass(frozen=True)
class ScalePlan:
    """How a fit is divided, and why.

    Attributes
    ----------
    scale : {"exact", "leaves", "landmarks", "both"}
        The machines: exact ones of all rows, exact ones of regions, those in the feature space of landmarks, or both.
    n_rows, n_classes : int
        The size of the problem.
    n_landmarks : int
        The number of landmarks; zero if there are none.
    n_leaves : int
        The number of leaves; zero if there are none. Before the fit it is what is expected of the smallest size.
    leaf_rows : tuple of int
        The largest number of rows of a leaf; before the fit all sizes that are tried, ascending.
    leaf_share : float
        The share of the rows that leaves are trained on: less than one if more would not fit into memory.
    sample_rows, decoder_rows : int
        The number of rows on which parameters are chosen, and from which the decoder learns.
    memory : float
        The bytes that the fit is expected to take at its peak, beside the rows themselves.
    device : str or None
        Where machines are trained and evaluated; None: on the CPU.
    reason : str
        Why, in a sentence.
    """

    scale: Scale
    n_rows: int
    n_classes: int
    n_landmarks: int
    n_leaves: int
    leaf_rows: tuple[int, ...]
    leaf_share: float
    sample_rows: int
    decoder_rows: int
    memory: float
    device: str | None
    reason: str

    @property
    def is_plain(self) -> bool:
        """Whether the machines are exact, on the CPU, and take little memory, so that there is nothing to tell."""
        return self.scale == "exact" and self.device is None and self.memory < _LITTLE

    @property
    def has_leaves(self) -> bool:
        """Whether there are leaves."""
        return self.scale in ("leaves", "both")

    @property
    def has_landmarks(self) -> bool:
        """Whether there are landmarks."""
        return self.scale in ("landmarks", "both")

    def __str__(self) -> str:
        parts = []
        if self.has_leaves:
            sizes = " to ".join(str(size) for size in sorted({self.leaf_rows[0], self.leaf_rows[-1]}))
            leaves = "one leaf" if self.n_leaves == 1 else f"about {self.n_leaves} leaves"
            parts.append(f"{leaves} of up to {sizes} rows")
            if self.leaf_share < 1.0:
                parts[-1] += f" ({self.leaf_share:.0%} of all rows)"
        if self.has_landmarks:
            parts.append(f"{self.n_landmarks} landmarks")
        what = " and ".join(parts) if parts else "exact machines"
        where = "" if self.device is None else f" on {self.device}"
        return (
            f"{self.n_rows} rows, {self.n_classes} classes: {what}{where}, "
            f"{_in_bytes(self.memory)} of memory; {self.reason}"
        )


def plan_scale(
    scale: str,
    class_counts: Array,
    n_columns: int,
    codebook: Codebook,
    kernels: Sequence[Kernel],
    *,
    pooled: bool,
    variances: bool = False,
    n_landmarks: int | None = None,
    settings: ScaleSettings = DEFAULT,
    n_jobs: int = 1,
    device: str | None = None,
    device_memory: float | None = None,
    divided: bool = False,
    worker_memory: float | None = None,
) -> ScalePlan:
    """Decide how to divide a fit.

    Parameters
    ----------
    scale : {"auto", "exact", "leaves", "landmarks", "both"}
        What was asked for.
    class_counts : ndarray of int, shape (K,)
        The number of rows of every class.
    n_columns : int
        The number of columns d of the rows.
    codebook : Codebook
        The dichotomies.
    kernels : sequence of Kernel
        The candidate kernels.
    pooled : bool
        Whether the decoder learns probabilities, so that those of leaves and of landmarks can be pooled.
    variances : bool
        Whether the decoder needs variances.
    n_landmarks : int or None
        The number of landmarks; None to choose it.
    settings : ScaleSettings
        Limits and sizes.
    n_jobs : int
        The number of leaves that are trained at the same time.
    device : str or None
        Where machines are to be trained; None: on the CPU.
    device_memory : float or None
        The free bytes of the device.
    divided : bool
        Whether "auto" is never "exact": the rows are not in memory, or other members of a pool are not exact.
    worker_memory : float or None
        The bytes of a worker, where leaves are trained and kept on a cluster: statistics must fit into one worker, but
        no row is left out, as workers hold them together, on their disks if need be. None: there is no cluster.

    Returns
    -------
    ScalePlan

    Examples
    --------
    >>> from polymargin.codebooks import one_vs_all
    >>> from polymargin.kernels import RBF
    >>> plan_scale("auto", np.array([40_000, 60_000]), 10, one_vs_all(2), [RBF()], pooled=True).scale
    'both'
    """
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}; choose one of {', '.join(map(repr, SCALES))}")
    K, n = class_counts.size, int(class_counts.sum())
    free = _memory.available() if settings.memory is None else settings.memory
    exact_free = free if device_memory is None else device_memory
    sizes = np.array(
        [class_counts[group.classes].sum() for group in codebook.column_groups], dtype=np.float64
    )
    by_features = all(_has_few_features(kernel, n_columns, n) for kernel in kernels)
    if by_features:
        D = max(kernel.n_features(n_columns) or 0 for kernel in kernels)
        operations, exact_bytes = float(n) * D**2, 8.0 * D * n * 6.0
    else:
        entry = 8.0 * max(kernel.base_numbers for kernel in kernels)
        operations = float((sizes**3).sum())
        exact_bytes = (32.0 + entry) * float(sizes.max()) ** 2
        if device is not None:
            exact_bytes = 2.0 * 8.0 * float(sizes.max()) ** 2
    affordable = operations <= settings.exact_operations * (1.0 if device is None else _DEVICE_SPEED)
    chosen, reason = scale, f'scale="{scale}" was given'
    if scale == "auto":
        if kernels[0].precomputed:
            chosen, reason = "exact", "a precomputed kernel matrix is there already"
        elif affordable and exact_bytes <= exact_free and not divided:
            chosen, reason = "exact", "exact machines of so few rows are fast enough"
        else:
            if exact_bytes > exact_free:
                why = f"exact machines would take {exact_bytes / _memory.GIB:.0f} GiB"
            elif affordable or not settings.exact_operations:
                why = "the rows are not in memory, or exact machines would not do for the whole pool"
            else:
                why = f"exact machines would take too long (about {operations:.0e} operations)"
            if variances:
                chosen, reason = "landmarks", f"{why}, and the decoding needs variances"
            elif by_features:
                chosen, reason = "landmarks", f"{why}, and the kernel has an explicit feature map"
            elif pooled:
                chosen, reason = "both", why
            else:
                chosen, reason = "leaves", f"{why}, and the decoding learns no probabilities to pool"
    elif scale == "both" and not pooled:
        raise ValueError(
            'scale="both" pools probabilities, which this decoding does not learn: choose scale="leaves" or '
            '"landmarks", or a decoding such as "coupled-softmax"'
        )
    if chosen == "leaves" and variances:
        raise ValueError(
            'this decoding needs variances, which leaves do not have: choose scale="landmarks" or "exact"'
        )
    if chosen != "exact" and kernels[0].precomputed:
        raise ValueError('a precomputed kernel matrix has no rows to divide: use scale="exact"')
    has_landmarks, has_leaves = chosen in ("landmarks", "both"), chosen in ("leaves", "both")
    r = n_leaves = 0
    leaf_rows: tuple[int, ...] = ()
    leaf_share, memory = 1.0, exact_bytes if chosen == "exact" else 0.0
    sample_rows = n if chosen == "exact" else min(n, settings.sample_rows)
    decoder_rows = n if chosen == "exact" else min(n, settings.decoder_rows)
    if has_landmarks:
        n_products = 1 if codebook.is_dense else K
        r = _landmark_number(decoder_rows, codebook) if n_landmarks is None else n_landmarks
        r = max(1, min(r, n))
        if n_landmarks is None:
            least_free = free if worker_memory is None else min(free, worker_memory)
            largest = np.sqrt(_STATISTICS_SHARE * least_free / (8.0 * 2.0 * n_products))
            r = int(max(min(r, largest, n // _ROWS_PER_LANDMARK), min(r, 50)))
        memory += 8.0 * (2.0 * n_products * r**2 + 2.0 * decoder_rows * r) + 4.0 * min(
            _memory.BLOCK_BYTES, 8.0 * n * max(r, n_columns)
        )
    if has_leaves:
        # The memory of a leaf while it is trained: of a worker it takes less than half, as others wait there.
        for_leaf = _LEAF_SHARE * free / n_jobs
        if worker_memory is not None:
            for_leaf = min(for_leaf, _LEAF_SHARE / 2.0 * worker_memory)
        # How often a row is in a leaf: 1.6 times with an overlap of 0.1, 6.5 times with the largest.
        times = (1.0 - 2.0 * settings.overlap) ** -2.5
        per_row = times * float(((sizes / n) ** 3).sum()) / _FILLED
        leaf_rows = _leaf_sizes(settings, n, per_row, for_leaf)
        times = times if n > leaf_rows[0] else 1.0
        held = 8.0 * times * n * (n_columns + codebook.n_columns)
        if held > _LEAF_SHARE * free and worker_memory is None:
            leaf_share = _LEAF_SHARE * free / held
        n_leaves = 1
        if leaf_share * n > leaf_rows[0]:
            n_leaves = int(np.ceil(leaf_share * times * n / (_FILLED * leaf_rows[0])))
        memory += held * leaf_share + n_jobs * LEAF_BYTES * float(min(leaf_rows[-1], n)) ** 2
    if chosen != "exact" and not all(kernel.parts for kernel in kernels):
        device = None  # kernels that are functions
    return ScalePlan(
        chosen,  # type: ignore[arg-type]
        n,
        K,
        r,
        n_leaves,
        leaf_rows,
        leaf_share,
        sample_rows,
        decoder_rows,
        memory,
        device,
        reason,
    )


def _in_bytes(n_bytes: float) -> str:
    """Write a number of bytes.

    >>> _in_bytes(2.5 * 2**30), _in_bytes(170_000.0)
    ('about 2.5 GiB', 'less than 0.1 GiB')
    """
    found = n_bytes / _memory.GIB
    if found < 0.1:
        return "less than 0.1 GiB"
    return f"about {found:.2g} GiB" if found < 100.0 else f"about {found:.0f} GiB"


def _leaf_sizes(settings: ScaleSettings, n_rows: int, per_row: float, memory: float) -> tuple[int, ...]:
    """Return the sizes of leaves to try, of which each takes so many times its squared rows operations per row."""
    if settings.leaf_rows is not None:
        return (settings.leaf_rows,)
    sizes = [_LEAF_ROWS]
    largest = min(np.sqrt(memory / LEAF_BYTES), np.sqrt(settings.leaf_operations / (n_rows * per_row)))
    while len(sizes) <= _LEAF_DOUBLINGS and sizes[-1] < n_rows and 2 * sizes[-1] <= largest:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


def _landmark_number(n_left_out: int, codebook: Codebook) -> int:
    """Return how many landmarks the machines of a codebook can afford, if so many rows are left out one by one."""
    # How many groups of columns a row is in, on average.
    times = sum(float(group.classes.mean()) for group in codebook.column_groups)
    tried = np.arange(50.0, _LANDMARKS + 1.0, 50.0)
    operations = len(codebook.column_groups) * tried**3 / 3.0 + times * n_left_out * tried**2
    affordable = tried[operations <= _MACHINE_OPERATIONS]
    return int(affordable[-1] if affordable.size else tried[0])


def _has_few_features(kernel: Kernel, n_columns: int, n_rows: int) -> bool:
    """Return whether machines of a kernel are solved in its explicit feature map."""
    n_features = kernel.n_features(n_columns)
    return n_features is not None and 2 * n_features <= n_rows
