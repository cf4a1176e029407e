"""Training rows in a file: the source of a fit to a table larger than memory.

Statistics of the classes are added up block by block, and kept on disk from time to time. Rows are routed to their
leaves in runs, each sorted by leaf and appended to one file; then leaf after leaf is read, trained and kept. What is on
disk is not computed again, neither by this fit nor, if it is killed, by the next one of the same task.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin import _memory
from polymargin._output import write_atomically
from polymargin._progress import Count, Progress
from polymargin._threads import blas_threads_for, in_threads, n_threads
from polymargin.kernels import Linear
from polymargin.rows import TrainingRows
from polymargin.scale.leaves import LeafTraining
from polymargin.scale.row_file import EXTRA, RowFile, draw, priorities
from polymargin.scale.sources import Block, FittedLeaf, Sample
from polymargin.scale.statistics import ClassStatistics
from polymargin.scale.stored_leaves import fitted_from, to_arrays
from polymargin.scale.tree import Tree
from polymargin.scale.work_folder import WorkFolder, digest_of

Array = NDArray[Any]

#: Statistics are kept after so many seconds, so that no more than these are lost.
_SECONDS_BETWEEN_CHECKPOINTS = 60.0
#: A sample of no more bytes is remembered, so that members of a pool share their rows.
_REMEMBERED_BYTES = 2**27
#: Trees whose numbers differ by less are the same: directions have unit length, and rows are standardised.
_SAME = 1e-9
#: Part of every digest: changes when what is kept changes its meaning.
_FORMAT = 1


class FileRows:
    """Training rows in a file.

    Parameters
    ----------
    file : RowFile
        The rows.
    class_counts : ndarray of int, shape (K,)
        The number of rows of every class.
    features : callable (ndarray of shape (n, d)) -> ndarray of shape (n, p)
        Prepares the columns of rows for a kernel, each row by itself.
    folder : WorkFolder
        Where statistics, routed rows and leaves are kept.
    seed : int
        Draws the samples.
    mean_weight : float
        What weights are divided by.
    block_rows : int or None
        The rows of a block; None: as many as memory allows. The result does not depend on it, but for rounding.
    memory : float or None
        The bytes that blocks and buffers may take; None for the usual.
    least_rows : int
        The least number of rows of every class in a sample.

    Attributes
    ----------
    class_counts : ndarray of int, shape (K,)
        The number of rows of every class.
    weight_unit : float
        What weights are divided by.

    See Also
    --------
    polymargin.scale.sources.MemoryRows : Rows in memory.
    """

    def __init__(
        self,
        file: RowFile,
        class_counts: Array,
        features: Callable[[Array], Array],
        folder: WorkFolder,
        *,
        seed: int = 0,
        mean_weight: float = 1.0,
        block_rows: int | None = None,
        memory: float | None = None,
        least_rows: int = 20,
    ) -> None:
        self.class_counts = np.asarray(class_counts)
        self._file, self._features, self._folder = file, features, folder
        self._seed, self._mean_weight, self._least_rows = seed, mean_weight, least_rows
        self.weight_unit = mean_weight
        self._block_rows = block_rows
        self._buffer = _memory.BLOCK_BYTES if memory is None else max(memory / 32.0, 2.0**22)
        self._samples: dict[int, Sample] = {}

    def sample(self, n_rows: int) -> Sample:
        """Return a random sample with its share of every class, and at least some rows of each.

        Parameters
        ----------
        n_rows : int
            How many rows.

        Returns
        -------
        Sample
        """
        known = self._samples.get(n_rows)
        if known is not None:
            return known
        if self._file.n_rows <= n_rows:
            numbers = np.arange(self._file.n_rows)
        else:
            numbers = draw(self._file, self.class_counts, n_rows, self._least_rows, self._seed)
        sample = Sample(numbers, self._rows(self._file.take(numbers)).shuffled(self._seed))
        if sample.rows.X.nbytes <= _REMEMBERED_BYTES:
            self._samples[n_rows] = sample
        return sample

    def add_up(
        self,
        of_block: Callable[[TrainingRows], ClassStatistics],
        n_values: int,
        progress: Progress | None = None,
    ) -> ClassStatistics:
        """Return the sum of the statistics of all blocks of rows.

        Parameters
        ----------
        of_block : callable (TrainingRows) -> ClassStatistics
            The statistics of a block.
        n_values : int
            The numbers that are computed of a row.
        progress : callable or None
            Called with every block.

        Returns
        -------
        ClassStatistics
        """
        size = self._rows_of_block(4 * n_values)
        name = f"statistics-{digest_of(_FORMAT, of_block, size)}.npz"
        starts = range(0, self._file.n_rows, size)
        count = Count(progress, "statistics of the classes", "rows", self._file.n_rows)
        total, done = self._kept_statistics(name)
        count.advance(done)
        last, at_once = time.monotonic(), n_threads()
        for first in range(-(-done // size), len(starts), at_once):
            some = starts[first : first + at_once]
            # In their order, so that the sum does not depend on the number of threads.
            for part in in_threads(lambda start: of_block(self._block(start, size)), some):
                total = part if total is None else total.add(part)
                count.advance(part.n_rows)
            finished = some[-1] == starts[-1]
            if finished or time.monotonic() - last > _SECONDS_BETWEEN_CHECKPOINTS:
                assert total is not None
                self._folder.keep_arrays(name, dict(vars(total)))
                last = time.monotonic()
        assert total is not None
        return total

    def _kept_statistics(self, name: str) -> tuple[ClassStatistics | None, int]:
        """Return the statistics that are on disk, and the number of rows they are of."""
        kept = self._folder.arrays(name)
        if kept is None:
            return None, 0
        n_rows = int(kept.pop("n_rows"))
        return ClassStatistics(n_rows, **kept), n_rows

    def fit_leaves(
        self,
        tree: Tree,
        training: LeafTraining,
        share: float,
        decoded: Sample,
        progress: Progress | None,
    ) -> Sequence[FittedLeaf]:
        """Return the trained leaves; those that are on disk already are not trained again.

        Parameters
        ----------
        tree : Tree
            The regions.
        training : LeafTraining
            How machines are trained.
        share : float
            The share of the rows that are used.
        decoded : Sample
            The decoder's sample, all of which is used.
        progress : callable or None
            Called with every leaf.

        Returns
        -------
        list of FittedLeaf
        """
        place = f"leaves-{digest_of(_FORMAT, tree.children, training, share, decoded.numbers)}"
        self._keep_tree(place, tree)
        routed = _Routed(self, place, tree, training, share, decoded.numbers, progress)
        count = Count(progress, "leaves", "leaves")
        count.expect(tree.n_leaves)

        def fitted(number: int) -> FittedLeaf:
            name = f"{place}/leaf-{number:06d}.npz"
            kept = self._folder.arrays(name)
            if kept is not None:
                found = fitted_from(kept, training.kernel)
            else:
                found = FittedLeaf.of(training, *routed.leaf(number))
                self._folder.keep_arrays(name, to_arrays(found))
            count.advance()
            return found

        with blas_threads_for(training.largest / 4):
            return in_threads(fitted, range(tree.n_leaves))

    def _keep_tree(self, place: str, tree: Tree) -> None:
        """Keep the tree; what is there of one that differs by more than rounding is removed.

        The number of threads of BLAS changes the last digits of a tree, which is no reason to train its leaves again.
        """
        arrays = {"directions": tree.directions, "low": tree.low, "high": tree.high}
        kept = self._folder.arrays(f"{place}/tree.npz")
        if kept is not None:
            if all(np.allclose(kept[name], value, rtol=0.0, atol=_SAME) for name, value in arrays.items()):
                return
            self._folder.forget(place)
        self._folder.keep_arrays(f"{place}/tree.npz", arrays)

    def remembered(self, compute: Callable[[], Any], *inputs: Any) -> Any:
        """Return what was computed of these inputs before, by this fit or by one that was killed, or compute it now.

        Parameters
        ----------
        compute : callable
            Computes it: an object of the types that models are made of.
        *inputs : object
            All that it depends on.

        Returns
        -------
        object
        """
        from polymargin.persistence._files import pack_part, unpack_part

        path = self._folder.file(f"search-{digest_of(_FORMAT, *inputs)}.skops")
        if path.is_file():
            return unpack_part(path.read_bytes())
        found = compute()
        write_atomically(path, pack_part(found))
        return found

    def raw(self, numbers: Array) -> Array:
        """Return rows as they are in the file.

        Parameters
        ----------
        numbers : ndarray of int
            Which ones.

        Returns
        -------
        ndarray of shape (n, d + 3)
        """
        return self._file.take(numbers)

    def _rows_of_block(self, n_values: float) -> int:
        """Return how many rows are worked on at a time if that takes so many numbers of each."""
        return self._block_rows or max(1, int(self._buffer // (8.0 * n_values)))

    def _block(self, start: int, size: int) -> TrainingRows:
        return self._rows(self._file.read(start, min(start + size, self._file.n_rows)))

    def _rows(self, raw: Array) -> TrainingRows:
        """Return rows of the file as training rows, whose kernel is one that stands for any."""
        return TrainingRows(
            Linear(),
            self._features(raw[:, :-EXTRA]),
            raw[:, -3].astype(np.intp),
            raw[:, -2] / self._mean_weight,
        )


class _Routed:
    """The rows of every leaf, in a file of runs, each sorted by leaf."""

    def __init__(
        self,
        source: FileRows,
        place: str,
        tree: Tree,
        training: LeafTraining,
        share: float,
        decoded: Array,
        progress: Progress | None,
    ) -> None:
        self._source, self._training, self._decoded = source, training, decoded
        self._width = source._file.width + 2  # then the row's number, and its weight in this leaf
        self._path = source._folder.file(f"{place}/routed.bin")
        kept = source._folder.arrays(f"{place}/routed.npz")
        if kept is None:
            bounds = self._route(tree, share, progress)
            source._folder.keep_arrays(f"{place}/routed.npz", {"bounds": bounds})
        else:
            bounds = kept["bounds"]
        #: In every run, the first row of every leaf, and the end; shape (runs, n_leaves + 1).
        self._bounds = bounds

    def leaf(self, number: int) -> tuple[Block, Array]:
        """Return the rows of a leaf, in the order of the table, and their weights in it."""
        parts = [
            np.fromfile(
                self._path,
                np.float64,
                int(stop - start) * self._width,
                offset=8 * int(start) * self._width,
            )
            for start, stop in self._bounds[:, number : number + 2]
        ]
        found = np.concatenate([np.empty(0), *parts]).reshape(-1, self._width)
        numbers = found[:, -2].astype(np.intp)
        places = np.searchsorted(self._decoded, numbers)
        places[places == self._decoded.size] = 0
        sampled = np.where(self._decoded[places] == numbers, places, -1)
        return Block(self._source._rows(found[:, :-2]), sampled), found[:, -1].copy()

    def _route(self, tree: Tree, share: float, progress: Progress | None) -> Array:
        """Write the runs, and return where the rows of every leaf begin in each."""
        source, file = self._source, self._source._file
        self._path.parent.mkdir(exist_ok=True)
        count = Count(progress, "rows to leaves", "rows", file.n_rows)
        size = source._rows_of_block(4 * (self._width + self._training.codebook.n_classes))
        bounds, buffered, held, done = [], [], 0, 0
        with self._path.open("wb") as stream:
            for start in range(0, file.n_rows, size):
                raw = file.read(start, min(start + size, file.n_rows))
                used = self._used(start, len(raw), share)
                X = source._features(raw[used, :-EXTRA])
                routes = tree.route(self._training.kernel.scaled(X))
                leaf = np.repeat(np.arange(tree.n_leaves), [rows.size for rows, _ in routes])
                rows = used[np.concatenate([rows for rows, _ in routes])]
                weights = np.concatenate([weights for _, weights in routes])
                buffered.append((leaf, np.column_stack([raw[rows], start + rows, weights])))
                held += 8 * rows.size * self._width
                count.advance(len(raw))
                if held > source._buffer or start + size >= file.n_rows:
                    bounds.append(done + _write_run(stream, buffered, tree.n_leaves))
                    done, buffered, held = int(bounds[-1][-1]), [], 0
            stream.flush()
            os.fsync(stream.fileno())
        return np.array(bounds)

    def _used(self, start: int, n_rows: int, share: float) -> Array:
        """Return the places in a block of the rows that leaves are trained on."""
        if share >= 1.0:
            return np.arange(n_rows)
        used = priorities(self._source._seed, start, start + n_rows) < share
        first, last = np.searchsorted(self._decoded, [start, start + n_rows])
        used[self._decoded[first:last] - start] = True
        return np.flatnonzero(used)


def _write_run(stream: Any, buffered: list[tuple[Array, Array]], n_leaves: int) -> Array:
    """Append rows sorted by leaf, then by their order in the table; return where each leaf begins, and the end."""
    leaf = np.concatenate([leaf for leaf, _ in buffered])
    rows = np.concatenate([rows for _, rows in buffered])
    order = np.argsort(leaf, kind="stable")
    stream.write(rows[order].data)
    return np.searchsorted(leaf[order], np.arange(n_leaves + 1))
