"""How many threads BLAS uses: on small matrices they cost more than they bring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

#: Up to this many rows one thread is faster: the threads of BLAS wait for each other by spinning.
_FEW_ROWS = 2500


@cache
def _controller() -> ThreadpoolController:
    """Return what controls the BLAS libraries that are loaded, found once."""
    return ThreadpoolController()


@contextmanager
def blas_threads_for(n_rows: int) -> Iterator[None]:
    """Hold BLAS to one thread while a problem of so few rows is solved; let it be if there are many."""
    if n_rows > _FEW_ROWS:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
