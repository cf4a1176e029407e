"""How many threads BLAS uses: on small matrices they cost more than they bring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

#: Up to this many rows one thread is faster: the threads of BLAS wait for each other by spinning.
_FEW_ROWS = 2500


class _OneThread:
    """Holds BLAS to one thread while anybody wants it; the limit is the process's, so threads must agree on it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanted = 0
        self._controller: ThreadpoolController | None = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._wanted += 1
            if self._wanted == 1:
                # The libraries that are loaded are found once.
                self._controller = self._controller or ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")
                self._limit.__enter__()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._limit.__exit__(*error)


_one_thread = _OneThread()


@contextmanager
def blas_threads_for(n_rows: int) -> Iterator[None]:
    """Hold BLAS to one thread while a problem of so few rows is solved; let it be if there are many."""
    if n_rows > _FEW_ROWS:
        yield
        return
    with _one_thread:
        yield
