"""What the array API standard lacks, per library, with a fallback in the standard's own terms.

The mathematics of this folder is written in the standard. The few things here exist in every library, under names of
its own: the solution of triangular systems, city-block distances, free memory, and the error of memory that ran out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from scipy import linalg

from polymargin import _memory

#: How torch, CuPy and the libraries of CUDA say that memory has run out, where the class of the error does not.
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
#: The numbers of a block of differences in the fallback for city-block distances.
_DIFFERENCES = 2**20


def library(xp: Any) -> str:
    """Return the library of a namespace: "torch", "cupy", "numpy", "array_api_strict" or another name."""
    return str(xp.__name__).rpartition(".")[2]


def solve_triangle(xp: Any, lower: Any, right: Any, *, transposed: bool = False) -> Any:
    """Return L⁻¹B, or L⁻ᵀB, for a small lower triangle L with zeros above it; B has any number of columns."""
    match library(xp):
        case "torch":
            triangle = lower.mT if transposed else lower
            return xp.linalg.solve_triangular(triangle, right, upper=transposed)
        case "numpy":
            return linalg.solve_triangular(
                lower, right, lower=True, trans=int(transposed), check_finite=False
            )
        case "cupy":
            from cupyx.scipy.linalg import solve_triangular

            return solve_triangular(lower, right, lower=True, trans=int(transposed))
        case _:
            return xp.linalg.solve(lower.T if transposed else lower, right)


def solve_triangles(xp: Any, lower: Any, right: Any, *, transposed: bool = False) -> Any:
    """Return L⁻¹B, or L⁻ᵀB, for stacks of lower triangles L, shape (p, n, n), and of B, shape (p, n, m)."""
    if library(xp) == "torch":
        triangles = lower.mT if transposed else lower
        return xp.linalg.solve_triangular(triangles, right, upper=transposed)
    found = xp.empty_like(right)
    for place in range(lower.shape[0]):
        found[place, ...] = solve_triangle(xp, lower[place, ...], right[place, ...], transposed=transposed)
    return found


def cityblock(xp: Any, device: Any, X: Any, Z: Any) -> Any:
    """Return the city-block distances between the rows of X and of Z, shape (n, m)."""
    if library(xp) == "torch":
        return xp.cdist(X, Z, p=1.0)
    distances = xp.zeros((X.shape[0], Z.shape[0]), dtype=X.dtype, device=device)
    step = max(1, _DIFFERENCES // max(1, X.shape[0] * Z.shape[0]))
    for start in range(0, X.shape[1], step):
        columns = slice(start, min(start + step, X.shape[1]))
        distances += xp.sum(xp.abs(X[:, None, columns] - Z[None, :, columns]), axis=2)
    return distances


def is_accelerator(xp: Any, device: Any) -> bool:
    """Return whether arrays of this namespace and device are in a memory of their own, not in that of the host."""
    return library(xp) == "cupy" or "cuda" in str(device)


def current(xp: Any, device: Any) -> AbstractContextManager[Any]:
    """Return a context in which a library computes on this device: CuPy has one of every thread, others need none."""
    return device if library(xp) == "cupy" else nullcontext()


def free_memory(xp: Any, device: Any) -> float:
    """Return the bytes that can still be had on the device, infinity where the system does not say."""
    if not is_accelerator(xp, device):
        return _memory.available()
    if library(xp) == "torch":
        # What the allocator holds in reserve is free for us. (The functions for each number alone take a millisecond.)
        known = xp.cuda.memory_stats_as_nested_dict(device)
        reserved, used = (known.get(f"{name}_bytes") for name in ("reserved", "allocated"))
        kept = 0 if reserved is None or used is None else reserved["all"]["current"] - used["all"]["current"]
        return float(xp.cuda.mem_get_info(device)[0] + kept)
    with current(xp, device):
        kept = xp.get_default_memory_pool().free_bytes()
        return float(xp.cuda.runtime.memGetInfo()[0] + kept)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any library says that memory has run out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def is_not_positive_definite(error: BaseException) -> bool:
    """Return whether an error of any library's Cholesky factorisation says that there is none."""
    return any(cls.__name__ in ("LinAlgError", "_LinAlgError") for cls in type(error).__mro__)
