"""Memory: plan an allocation before it is made, and refuse with a remedy what cannot fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

#: The unit of memory in messages.
GIB = 2**30
#: Rows are processed in blocks whose largest temporary stays near this many bytes.
BLOCK_BYTES = 64 * 2**20
#: So few bytes are not worth asking the system for.
NEGLIGIBLE = 2**24


def available() -> float:
    """Return the bytes this process may still take, infinity where the system does not say."""
    limits = [float("inf")]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    except OSError:
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        if limit != "max":
            limits.append(float(limit) - float(used))
    except OSError:
        pass
    if resource is not None:  # what `ulimit -v` allows
        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
        if allowed != resource.RLIM_INFINITY:
            try:
                pages = int(Path("/proc/self/statm").read_text().split()[0])
            except OSError:
                pages = 0
            limits.append(max(0.0, float(allowed - pages * resource.getpagesize())))
    return min(limits)


def require(n_bytes: float, purpose: str, remedy: str) -> None:
    """Raise MemoryError, with the number and the remedy, if `n_bytes` for `purpose` cannot be had."""
    if n_bytes < NEGLIGIBLE:
        return
    free = available()
    if n_bytes > free:
        raise MemoryError(
            f"{purpose} needs {n_bytes / GIB:.1f} GiB and {free / GIB:.1f} GiB are free; {remedy}"
        )


def block_rows(bytes_per_row: float) -> int:
    """Return how many rows make a block of about `BLOCK_BYTES`."""
    return max(1, int(BLOCK_BYTES // max(bytes_per_row, 1.0)))


def row_blocks(n_rows: int, n_values: int) -> Iterator[slice]:
    """Yield slices of rows for which a few matrices of this many values per row fit into a block."""
    size = block_rows(8.0 * 4 * n_values)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
