"""Processes that share independent work on many small matrices, for which threads wait for the interpreter's lock.

They are joblib's. What they compute is the same, to the last bit, as in threads.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from polymargin._threads import blas_threads_for, in_threads, n_processes
from polymargin._warnings import warn

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The parts of the work that each process gets: processes do not run at the same speed, and every part brings its data.
_PARTS = 4
#: Arrays of more bytes than this, such as a matrix of more than 110 rows, are written once, to memory that processes
#: share, and not sent with every part. (To send 282 matrices of 231 rows took 0.4 s each time, to write them 0.16 s.)
_LARGE_BYTES = 10**5


class Processes:
    """Processes that share work, see `processes`.

    Parameters
    ----------
    parallel : Parallel
        Starts them.
    number : int
        How many they are.
    """

    def __init__(self, parallel: Parallel, number: int):
        self._parallel, self._number = parallel, number
        self._killed = False  # whether one of them was

    def each(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        operations: Sequence[float],
        done: Callable[[int, Result], None] | None = None,
    ) -> list[Result]:
        """Return what the function makes of every item, in their order, with one thread of BLAS.

        Parts of the work are neighbouring items, so that data that these have in common are sent once. After an error,
        or an interrupt, joblib ends the processes. If one of them is killed, as for want of memory, threads do what is
        left.

        Parameters
        ----------
        function : callable (item) -> result
            Can be pickled, as items and results can.
        items : sequence
            The items.
        operations : sequence of float
            How long each of them takes.
        done : callable (place, result) or None
            Called as results arrive, with the places of their items.

        Returns
        -------
        list
        """
        sums, n_parts = np.cumsum(operations), _PARTS * self._number
        bounds = np.searchsorted(sums, sums[-1] * np.arange(1, n_parts) / n_parts)
        parts = [part.tolist() for part in np.split(np.arange(len(items)), bounds) if part.size]
        found: dict[int, Result] = {}

        def keep(place: int, value: Result) -> None:
            found[place] = value
            if done is not None:
                done(place, value)

        if not self._killed:
            state = np.geterr()
            results = self._parallel(
                [delayed(_of_part)(function, part, [items[place] for place in part], state) for part in parts]
            )
            try:
                for part, values in results:
                    for place, value in zip(part, values, strict=True):
                        keep(place, value)
            except BaseException as error:
                with warnings.catch_warnings(action="ignore"):  # joblib's, of work that was in vain
                    results.close()  # ends the processes, unless they have ended by themselves
                if not isinstance(error, BrokenProcessPool):
                    raise
                self._killed = True
                warn(
                    "a process that trained machines was killed, most likely for want of memory; threads do what is "
                    'left. Use fewer n_jobs, or joblib.parallel_config(backend="threading"), to have no processes'
                )
        left = [place for place in range(len(items)) if place not in found]
        for place, value in zip(left, in_threads(function, [items[place] for place in left]), strict=True):
            keep(place, value)
        return [found[place] for place in range(len(items))]


@contextmanager
def processes() -> Iterator[Processes]:
    """Give the processes that share work here; while the block lasts, large arrays are sent to them once."""
    number = n_processes()
    options = {"batch_size": 1, "max_nbytes": _LARGE_BYTES, "return_as": "generator_unordered"}
    with Parallel(n_jobs=number, **options) as parallel:
        yield Processes(parallel, number)


def can_be_sent(thing: Any) -> bool:
    """Return whether processes may get it: some functions of users, and their classes, cannot be pickled.

    Examples
    --------
    >>> can_be_sent(np.exp), can_be_sent(lambda x: x)
    (True, False)
    """
    try:
        pickle.dumps(thing)
    except Exception:  # a user's class may raise anything
        return False
    return True


def _of_part(
    function: Callable[[Item], Result], part: list[int], items: list[Item], state: dict[str, Any]
) -> tuple[list[int], list[Result]]:
    """Return the places of some items, and what the function makes of them."""
    with blas_threads_for(0), np.errstate(**state):
        return part, [function(item) for item in items]
