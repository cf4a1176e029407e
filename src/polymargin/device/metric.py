"""A kernel's metric on a device: the widths of columns, and their ranks."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from polymargin.device.arrays import Device
from polymargin.kernels import Kernel, Scaled
from polymargin.kernels.ranks import Ranks


def compared(kernel: Kernel, X: Any, device: Device) -> Any:
    """Return rows on a device as the kernel compares them, in double precision: `Kernel.scaled`, shape (n, d)."""
    rows = device.to_device(X)
    if not isinstance(kernel, Scaled):
        return rows
    if kernel.columns is not None:
        rows = _ranked(device, kernel.columns, rows)
    return rows if kernel.widths is None else rows * device.to_device(kernel.widths)


def with_plain_numbers(kernel: Kernel) -> Kernel:
    """Return the kernel with Python's numbers in place of NumPy's, which would make NumPy arrays of other ones."""
    if not is_dataclass(kernel):
        return kernel
    changed: dict[str, Any] = {}
    for part in fields(kernel):
        value = getattr(kernel, part.name)
        if isinstance(value, np.generic):
            changed[part.name] = value.item()
        elif isinstance(value, Kernel):
            changed[part.name] = with_plain_numbers(value)
    return replace(kernel, **changed)


def _ranked(device: Device, ranks: Ranks, rows: Any) -> Any:
    """Return the ranks of the entries of rows: NumPy's ``interp``, column by column."""
    xp = device.xp
    gaps = np.diff(ranks.places, axis=0)
    slopes = np.divide(np.diff(ranks.ranks, axis=0), gaps, out=np.zeros_like(gaps), where=gaps > 0.0)
    # Columns first, so that each is contiguous.
    places, heights, slopes = (device.to_device(part.T) for part in (ranks.places, ranks.ranks, slopes))
    ranked = xp.empty(rows.shape, dtype=rows.dtype, device=device.device)
    for column in range(rows.shape[1]):
        knots = places[column, :]
        x = xp.minimum(xp.maximum(rows[:, column], knots[0]), knots[-1])
        below = xp.clip(xp.searchsorted(knots, x, side="right") - 1, min=0, max=knots.shape[0] - 2)
        # At the last knot, and beyond, the last line reaches its end.
        rise = xp.take(slopes[column, :], below) * (x - xp.take(knots, below))
        ranked[:, column] = xp.take(heights[column, :], below) + rise
    return ranked
