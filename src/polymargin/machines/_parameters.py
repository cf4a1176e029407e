"""C and gamma of every machine: given, or selected for pools of columns that share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Count, Progress
from polymargin._threads import blas_threads_for
from polymargin.machines._gram import RowGroupGram
from polymargin.machines._rows import TrainingRows
from polymargin.selection import evidence, leave_one_out
from polymargin.selection.lattice import KERNELS
from polymargin.selection.leave_one_out import Polish, Start

if TYPE_CHECKING:
    from polymargin.machines.lssvm import LSSVMBank

Array = NDArray[Any]
Selection = Literal["evidence", "loo", "gcv"]


def criterion_of(selection: str | None) -> Selection:
    """Return what an estimator's ``selection`` minimises; None, where all is given, would minimise as "loo" does."""
    return "loo" if selection in (None, "loo-exact") else cast(Selection, selection)


def in_batches(groups: list[RowGroupGram], pools: Sequence[Array]) -> list[list[RowGroupGram]]:
    """Return the groups one by one, or all together if some pool needs several at a time."""
    group_of = _owners([group.columns for group in groups])
    if all((group_of[pool] == group_of[pool[0]]).all() for pool in pools):
        return [[group] for group in groups]
    return [groups]


def _owners(columns: Sequence[Array]) -> Array:
    """Return for every column the number of the set of columns that it belongs to, shape (L,)."""
    owners = np.empty(sum(part.size for part in columns), dtype=np.intp)
    for number, part in enumerate(columns):
        owners[part] = number
    return owners


def kernel_count(
    data: TrainingRows,
    C: float | Array | None,
    gamma: float | Array | None,
    selection: Selection,
    pools: Sequence[Array],
    groups: list[RowGroupGram],
    progress: Progress | None,
) -> Count:
    """Return the count of the kernels that are tried to select what is None."""
    search = gamma is None and data.kernel.tunable
    wanted = " and ".join(name for name, open_ in (("C", C is None), ("gamma", search)) if open_)
    if selection != "evidence":
        return Count(progress, f"selecting {wanted}", "kernels")
    together = len(pools) == 1 and len(groups) > 1
    unit = f"kernels × {len(groups)} groups" if together else "kernels"
    count = Count(progress, f"inferring {wanted}", unit)
    if wanted:
        count.expect(len(pools) * (KERNELS if search else 1))
    return count


def set_parameters(
    bank: LSSVMBank,
    groups: list[RowGroupGram],
    C: float | Array | None,
    gamma: float | Array | None,
    selection: Selection,
    pools: Sequence[Array],
    polish: Polish,
    starts: dict[int, Start] | None,
    count: Count,
) -> None:
    """Fill in C and gamma of the groups' columns, inferring what is None."""
    kernel = bank.data.kernel
    if not kernel.tunable:
        gamma = 1.0
    for group in groups:
        bank.C[group.columns] = np.nan if C is None else np.broadcast_to(C, bank.C.shape)[group.columns]
        bank.gamma[group.columns] = (
            np.nan if gamma is None else np.broadcast_to(gamma, bank.gamma.shape)[group.columns]
        )
    if C is not None and gamma is not None:
        return
    assert not isinstance(C, np.ndarray), "C of every column with a gamma to select"
    assert not isinstance(gamma, np.ndarray), "gamma of every column with a C to select"
    unit = kernel.unit_gamma(bank.data.X, bank.data.weights)
    pool_of = _owners(pools)
    of_pools: dict[int, list[tuple[int, Array]]] = {}
    for number, group in enumerate(groups):
        for pool in sorted(set(pool_of[group.columns].tolist())):
            of_pools.setdefault(pool, []).append((number, np.flatnonzero(pool_of[group.columns] == pool)))
    members = [of_pools[pool] for pool in sorted(of_pools)]
    gammas = gamma if gamma is not None else lambda point: unit * 2.0 ** (point / 2)
    ridge = None if C is None else 1.0 / C
    if selection == "evidence":
        choices = evidence.choose(
            lambda number, value, sample: groups[number].level_two(value, sample),
            members,
            gammas=gammas,
            ridge=ridge,
            count=count,
        )
    else:
        first = [int(groups[parts[0][0]].columns[parts[0][1][0]]) for parts in members]
        known = {} if starts is None else starts
        largest = max(group.rows.size for group in groups)
        with blas_threads_for(largest if polish == "all" else 0):  # else it looks at samples
            if not all(column in known for column in first):
                found = leave_one_out.search(
                    groups, members, criterion=selection, gammas=gammas, ridge=ridge, count=count
                )
                known.update(zip(first, found, strict=True))
            choices = leave_one_out.choose(
                groups,
                members,
                criterion=selection,
                gammas=gammas,
                ridge=ridge,
                starts=[known[column] for column in first],
                polish=polish,
                count=count,
            )
    for parts, choice in zip(members, choices, strict=True):
        for number, positions in parts:
            bank.C[groups[number].columns[positions]] = 1.0 / choice.ridge
            bank.gamma[groups[number].columns[positions]] = choice.gamma
