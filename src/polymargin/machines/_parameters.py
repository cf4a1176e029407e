"""C and gamma of every machine: given, or selected for pools of columns that share them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count, Progress
from polymargin.kernels._base import weighted_moments
from polymargin.machines._gram import GroupEvidence, GroupGram, Selection
from polymargin.rows import TrainingRows
from polymargin.selection import evidence, leave_one_out
from polymargin.selection.lattice import N_KERNELS
from polymargin.selection.settings import SearchSettings

Array = NDArray[Any]


def criterion_of(selection: str | None) -> Selection:
    """Return the criterion of an estimator's ``selection``: "loo" also for "loo-exact" and for None."""
    return "loo" if selection in (None, "loo-exact") else cast(Selection, selection)


def in_batches(
    groups: list[GroupGram], pools: Sequence[Array]
) -> list[tuple[list[GroupGram], list[list[tuple[int, Array]]]]]:
    """Return every group as a batch of its own, or one batch of all groups if some pool spans several.

    With every batch: for every pool with columns in it, these columns as positions in each of its groups.
    """
    pool_of = np.empty(sum(pool.size for pool in pools), dtype=np.intp)
    for number, pool in enumerate(pools):
        pool_of[pool] = number
    in_groups = [np.unique(pool_of[group.columns]) for group in groups]
    alone = sum(numbers.size for numbers in in_groups) == len(pools)
    batches = []
    for batch in [[group] for group in groups] if alone else [groups]:
        members: dict[int, list[tuple[int, Array]]] = {}
        for place, group in enumerate(batch):
            for number in np.unique(pool_of[group.columns]):
                positions = np.flatnonzero(pool_of[group.columns] == number)
                members.setdefault(int(number), []).append((place, positions))
        batches.append((batch, [members[number] for number in sorted(members)]))
    return batches


def select_parameters(
    data: TrainingRows,
    groups: list[GroupGram],
    C: float | Array | None,
    gamma: float | Array | None,
    selection: Selection,
    pools: Sequence[Array],
    settings: SearchSettings,
    progress: Progress | None,
    noise_floor: float | None = None,
) -> tuple[Array, Array]:
    """Return C and gamma of every column, shape (L,) each; those that are None are selected."""
    n_columns = sum(group.columns.size for group in groups)
    kernel = data.kernel
    if not kernel.tunable:
        gamma = 1.0
    Cs, gammas = (
        np.array(np.broadcast_to(np.nan if value is None else value, n_columns), dtype=np.float64)
        for value in (C, gamma)
    )
    if C is not None and gamma is not None:
        return Cs, gammas
    assert not isinstance(C, np.ndarray), "C of every column with a gamma to select"
    assert not isinstance(gamma, np.ndarray), "gamma of every column with a C to select"
    unit = kernel.unit_gamma(data.X, data.weights)
    wanted = " and ".join(name for name, value in (("C", C), ("gamma", gamma)) if value is None)
    if selection == "evidence":
        together = len(pools) == 1 and len(groups) > 1
        counted = f"kernels × {len(groups)} groups" if together else "kernels"
        count = Count(progress, f"inferring {wanted}", counted)
        count.expect(len(pools) * (N_KERNELS if gamma is None else 1))
    else:
        count = Count(progress, f"selecting {wanted}", "kernels")
    for batch, members in in_batches(groups, pools):
        ridge = None if C is None else 1.0 / C
        if selection == "evidence":
            levels = [GroupEvidence(group) for group in batch]
            choices = evidence.choose(
                partial(_level_two, levels),
                members,
                gammas=gamma if gamma is not None else lambda point: unit * 2.0 ** (point / 2),
                ridge=ridge,
                count=count,
                noise_floor=noise_floor,
            )
        else:
            choices = leave_one_out.choose(
                batch,
                members,
                criterion=selection,
                unit=unit,
                gamma=gamma,
                ridge=ridge,
                unit_ridge=1.0 if kernel.tunable else _natural_ridge(data),
                settings=settings,
                count=count,
            )
        for parts, choice in zip(members, choices, strict=True):
            for number, positions in parts:
                Cs[batch[number].columns[positions]] = 1.0 / choice.ridge
                gammas[batch[number].columns[positions]] = choice.gamma
    return Cs, gammas


def _level_two(levels: list[GroupEvidence], number: int, gamma: float, sample: bool) -> evidence.LevelTwo:
    """Return the evidence of one gamma for the columns of a group."""
    return levels[number].level_two(gamma, sample)


def _natural_ridge(data: TrainingRows) -> float:
    """Return the mean of K(x, x), the natural unit of the ridge for a kernel without gamma."""
    if data.kernel.parts == ("products",):  # about the mean of the rows: a shift does not change the machines
        size = float(weighted_moments(data.kernel.scaled(data.X), data.weights)[1].sum())
    else:
        own = data.kernel.diagonal(data.X)
        size = float(data.weights @ np.abs(own) / data.weights.sum())
    return size if size > 0.0 and np.isfinite(size) else 1.0
