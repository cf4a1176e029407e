"""How many rows the search for C and gamma must see: what samples, landmarks and all rows find, and what it costs.

    POLYMARGIN_DATA=<folder> python benchmarks/search.py [dataset ...] [--kernel blend] [--splits 3] [--searches exact]

Four searches for the parameters of one-vs-one machines, on two thirds of every dataset (as in ``quality.py``):

- samples: ``selection="loo"``, the default. A coarse search on samples of the rows of every group, then steps down the
  exact gradient of PRESS on as many rows as 1e8 operations factor;
- landmarks: the coarse search looks at all rows, through as many landmarks as the default samples (Nyström); then the
  same steps;
- exact: ``selection="loo-exact"``. The default's coarse search, then steps on all rows, twenty at most;
- all rows: the coarse search looks at all rows, too.

Printed are the PRESS of all rows at the parameters found (of a kernel that is given: there is nothing to compare where
the searches choose different ones) and the log-loss on test rows, each as a ratio to those of the default, and the
seconds that the fit takes.

On 27 datasets, geometric means of the ratios. The default, which chooses between two kernels, five splits: log-loss
1.012 with landmarks and 0.996 exact, seconds 1.60 and 1.73. Kernel "blend", three splits: PRESS 1.010 with landmarks,
0.984 exact and 0.982 by all rows, log-loss 1.008, 0.992 and 0.992, seconds 1.55, 2.17 and 3.67. Landmarks mislead on
vowel (1.5 and 1.2 times the log-loss) and splice (1.1), and do well on car and balance. Exact steps gain 2 to 15 % on
car, segment and splice, lose on balance and glass, change little elsewhere, and make the fit of 1300 rows two to seven
times as long.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np

from polymargin import LSSVMClassifier
from polymargin.kernels._features import Features
from polymargin.metrics import log_loss
from polymargin.selection import leave_one_out
from polymargin.selection.samples import Part, Samples
from polymargin.solvers.thin import ThinMatrix
from quality import DATASETS, Split  # holds BLAS to one thread


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
    landmarks: Any = Landmarks(groups, size, leave_one_out._least_ridge(groups))
    return [leave_one_out._coarse(landmarks, pool, criterion, gammas, ridge, count) for pool in pools]


@contextmanager
def search(name: str) -> Iterator[str]:
    """Yield the ``selection`` of an estimator that then searches in such a way."""
    changes: dict[str, dict[str, Any]] = {
        "landmarks": {"search": search_by_landmarks},
        "all rows": {"_SAMPLED_ROWS": (40, 10**9), "_SAMPLED_OPERATIONS": 1e30, "_GROUPS": 10**9},
    }
    with mock.patch.multiple(leave_one_out, **changes[name]) if name in changes else nullcontext():
        yield "loo-exact" if name in ("exact", "all rows") else "loo"


SEARCHES = ("samples", "landmarks", "exact", "all rows")


def measured(split: Split, kernel: str | None, name: str) -> tuple[float, float, float]:
    """Return PRESS on the training rows, log-loss on the test rows, and the seconds of the fit."""
    with search(name) as selection:
        start = time.perf_counter()
        model = LSSVMClassifier(kernel=kernel, selection=selection).fit(split.X_train, split.y_train)
        seconds = time.perf_counter() - start
    loss = log_loss(split.y_test, model.predict_log_proba(split.X_test))
    if kernel is None:
        return np.nan, loss, seconds
    # What the search found, before C was tried at a much smaller value for the decoder's sake.
    C, gamma = float(model.C_[0] * model.shrinkage_), float(model.gamma_[0])
    found = LSSVMClassifier(C, kernel=kernel, gamma=gamma).fit(split.X_train, split.y_train)
    targets = found.codebook_.targets(np.unique(split.y_train, return_inverse=True)[1])
    press = np.square(np.where(targets == 0, 0.0, targets - found.loo_margins_)).sum()
    return float(press), loss, seconds


def _ratio(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--kernel", help="as LSSVMClassifier takes it; chosen if it is not given")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=SEARCHES)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    searches = dict.fromkeys(("samples", *arguments.searches))
    ratios: dict[str, list[Any]] = {name: [] for name in searches}
    for dataset in arguments.datasets:
        results = {
            name: np.mean(
                [
                    measured(Split(dataset, number), arguments.kernel, name)
                    for number in range(arguments.splits)
                ],
                axis=0,
            )
            for name in searches
        }
        for name in searches:
            ratios[name].append(results[name] / results["samples"])
        told = ", ".join(
            f"{name} {_ratio(ratios[name][-1][0])} {ratios[name][-1][1]:.4f} {results[name][2]:.2f} s"
            for name in searches
        )
        print(f"{dataset:16s} {told}", flush=True)
    for name in searches:
        press, loss, seconds = np.exp(np.mean(np.log(ratios[name]), axis=0))
        print(
            f"{name}: PRESS {_ratio(press)}, log-loss {loss:.4f}, seconds {seconds:.2f} (geometric means of ratios)"
        )


if __name__ == "__main__":
    main()
