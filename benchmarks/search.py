"""How many rows the search for C and gamma must see: what samples, landmarks and all rows find, and what it costs.

    POLYMARGIN_DATA=<folder> python benchmarks/search.py [--kernel blend] [--splits 2] [dataset ...]

Four searches for the parameters of one-vs-one machines, on two thirds of every dataset (as in ``quality.py``):

- samples: the default. A coarse search on samples of the rows of every group, then steps down the exact gradient of
  PRESS on as many rows as 1e8 operations factor;
- landmarks: the coarse search looks at all rows, through as many landmarks as the default samples (Nyström); then the
  same steps;
- polished on all rows: the default's coarse search, then the steps on all rows;
- all rows: both on all rows.

Printed are the PRESS of all rows at the parameters found and the log-loss on test rows, each as a ratio to those of the
default, and the seconds that the fit takes.

On 27 datasets with three splits and "blend", geometric means of PRESS, log-loss, seconds: landmarks 1.027, 1.039, 1.33;
polished on all rows 0.988, 0.990, 1.40; all rows 0.983, 0.997, 2.99. Landmarks mislead on car (2.5 times the log-loss),
vowel (1.2) and splice (1.1). Steps on all rows gain on car, segment, splice and new_thyroid (6 to 11 %), lose on
balance and glass (3 to 6 %), change little elsewhere, and make the fit of 1300 rows two to five times as long.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from polymargin import LSSVMClassifier
from polymargin.kernels._features import Features
from polymargin.metrics import log_loss
from polymargin.selection import leave_one_out
from polymargin.selection.samples import Part, Samples
from polymargin.solvers.thin import ThinMatrix
from quality import DATASETS, Split  # pins the threads before numpy is imported

EVERYTHING = {"_OPERATIONS": 1e30, "_SHARE": 1.0 - 1e-12}


class Landmarks:
    """The criterion on all rows of some groups, through landmarks; `Samples` with other eyes."""

    def __init__(self, groups: Sequence[Any], size: int, least_ridge: float):
        self.groups, self.size, self.least_ridge = groups, size, least_ridge
        self._known: dict[float, Samples] = {}

    def _at(self, gamma: float) -> Samples:
        if gamma not in self._known:
            parts = [self._part(group, gamma) for group in self.groups]
            self._known[gamma] = Samples(self.groups[0].kernel, parts, self.least_ridge)
        return self._known[gamma]

    def _part(self, group: Any, gamma: float) -> Part:
        kept = group._sampled(self.size)[0]
        kept = np.arange(group.rows.size) if kept is None else kept
        K = group.kernel.apply(group.base[:, kept], gamma)
        eigenvalues, vectors = np.linalg.eigh(K[kept])
        used = eigenvalues > 1e-10 * eigenvalues[-1]
        values = K @ (vectors[:, used] / np.sqrt(eigenvalues[used]))
        filled = np.zeros((values.shape[0], self.size + 4))  # a sample may have a few rows more
        filled[:, : values.shape[1]] = values
        matrix = ThinMatrix(Features(filled, np.zeros(filled.shape[1])), group.weights)
        return Part(matrix, group.weights, group.targets, group.counted)

    @property
    def totals(self) -> Any:
        """The weight of every group."""
        return np.array([group.total for group in self.groups])

    @property
    def n_columns(self) -> int:
        """The most columns of a group."""
        return max(group.targets.shape[1] for group in self.groups)

    def best_ridge(self, criterion: Any, gamma: float, mask: Any, ridge: Any) -> Any:
        """See `Samples`."""
        return self._at(gamma).best_ridge(criterion, gamma, mask, ridge)

    def costs(self, criterion: Any, gamma: float, ridges: Any) -> Any:
        """See `Samples`."""
        return self._at(gamma).costs(criterion, gamma, ridges)


def search_by_landmarks(
    groups: Any, pools: Any, *, criterion: Any, gammas: Any, ridge: Any, count: Any
) -> Any:
    """Search as `leave_one_out.search` does, with landmarks in place of samples."""
    groups, pools = leave_one_out._searched(groups, pools)
    size = int(
        np.clip((leave_one_out._SAMPLED_OPERATIONS / len(groups)) ** (1 / 3), *leave_one_out._SAMPLED_ROWS)
    )
    size = min([size, *(group.n_different for group in groups)])  # as many in every group: they are one stack
    landmarks: Any = Landmarks(groups, size, leave_one_out._least_ridge(groups))
    return [leave_one_out._coarse(landmarks, pool, criterion, gammas, ridge, count) for pool in pools]


@contextmanager
def search(name: str) -> Iterator[None]:
    changes: dict[str, Any] = {
        "samples": {},
        "landmarks": {"search": search_by_landmarks},
        "polished on all rows": EVERYTHING,
        "all rows": {
            **EVERYTHING,
            "_SAMPLED_ROWS": (40, 10**9),
            "_SAMPLED_OPERATIONS": 1e30,
            "_GROUPS": 10**9,
        },
    }[name]
    with mock.patch.multiple(leave_one_out, **changes) if changes else mock.patch.dict({}):
        yield


SEARCHES = ("samples", "landmarks", "polished on all rows", "all rows")


def measured(split: Split, kernel: str, name: str) -> tuple[float, float, float]:
    """Return PRESS on the training rows, log-loss on the test rows, and the seconds of the fit."""
    with search(name):
        start = time.perf_counter()
        model = LSSVMClassifier(kernel=kernel).fit(split.X_train, split.y_train)
        seconds = time.perf_counter() - start
    # What the search found, before C was tried at a much smaller value for the decoder's sake.
    C, gamma = float(model.C_[0] * model.shrinkage_), float(model.gamma_[0])
    found = LSSVMClassifier(C, kernel=kernel, gamma=gamma).fit(split.X_train, split.y_train)
    targets = found.codebook_.targets(np.unique(split.y_train, return_inverse=True)[1])
    press = np.square(np.where(targets == 0, 0.0, targets - found.loo_margins_)).sum()
    return float(press), log_loss(split.y_test, model.predict_log_proba(split.X_test)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--kernel", default="blend")
    parser.add_argument("--splits", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    ratios: dict[str, list[Any]] = {name: [] for name in SEARCHES}
    for dataset in arguments.datasets:
        results = {
            name: np.mean(
                [
                    measured(Split(dataset, number), arguments.kernel, name)
                    for number in range(arguments.splits)
                ],
                axis=0,
            )
            for name in SEARCHES
        }
        for name in SEARCHES:
            ratios[name].append(results[name] / results["samples"])
        told = ", ".join(
            f"{name} {ratios[name][-1][0]:.4f} {ratios[name][-1][1]:.4f} {results[name][2]:.2f} s"
            for name in SEARCHES
        )
        print(f"{dataset:16s} {told}", flush=True)
    for name in SEARCHES:
        press, loss, seconds = np.exp(np.mean(np.log(ratios[name]), axis=0))
        print(
            f"{name}: PRESS {press:.4f}, log-loss {loss:.4f}, seconds {seconds:.2f} (geometric means of ratios)"
        )


if __name__ == "__main__":
    main()
