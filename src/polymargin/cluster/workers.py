"""The workers of the current client: how many there are, and their memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dask.delayed import Delayed

from polymargin import _memory


def current_client() -> Any:
    """Return the client of this thread or process; None where Dask computes by threads.

    Returns
    -------
    distributed.Client or None
    """
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        client = default_client()
    except ValueError:
        return None
    return None if client.status in ("closing", "closed") else client


def worker_memory() -> float:
    """Return the bytes that a task may hope for: those of the smallest worker, divided among its threads.

    Returns
    -------
    float
        Of this machine, if there is no client, or if workers have no limit.
    """
    limits = [
        worker["memory_limit"] / max(worker.get("nthreads", 1), 1)
        for worker in _workers()
        if worker.get("memory_limit")
    ]
    return min(limits, default=_memory.available())


def count_workers() -> int:
    """Return the number of workers.

    Returns
    -------
    int
        One, if there is no client.
    """
    return max(len(_workers()), 1)


def worker_threads() -> int:
    """Return the number of threads of the workers, the largest.

    Returns
    -------
    int
        One, if there is no client.
    """
    return max((worker.get("nthreads", 1) for worker in _workers()), default=1)


def release_memory() -> None:
    """Give memory that is free, but kept by the allocators, back to the system.

    Dask counts it as the worker's. A worker that seems to be full is paused, and has no task then that could change
    this.
    """
    with suppress(ImportError, AttributeError):
        import pyarrow

        pyarrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # where the C library is another one
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def are_lost(results: Sequence[Delayed]) -> bool:
    """Return whether results that were to stay on a cluster are lost: its client is closed, or has cancelled them.

    Parameters
    ----------
    results : sequence of Delayed
        The results.

    Returns
    -------
    bool
        What has died with a worker is not lost: it is computed again.
    """
    if "distributed" not in sys.modules:  # so that no client has ever been
        return False
    from distributed import futures_of

    return any(each.client.status != "running" or each.cancelled() for each in futures_of(list(results)))


def holders(results: Sequence[Delayed]) -> list[str]:
    """Return the address of a worker that holds each of some results that stay on the cluster.

    Parameters
    ----------
    results : sequence of Delayed
        The results.

    Returns
    -------
    list of str
        Where no worker holds a result, as none does that is computed by threads, the key of that result.
    """
    client = current_client()
    known: dict[str, Any] = {}
    if client is not None:
        from distributed import futures_of

        known = dict(client.who_has(futures_of(list(results))))
    # The first of several, so that results with the same holders stay together.
    return [min(known.get(each.key) or [str(each.key)]) for each in results]


def _workers() -> list[dict[str, Any]]:
    """Return what the scheduler knows of its workers."""
    client = current_client()
    if client is None:
        return []
    try:
        info = client.scheduler_info(n_workers=-1)
    except TypeError:  # before 2025.4 there were always all
        info = client.scheduler_info()
    return list(info["workers"].values())
