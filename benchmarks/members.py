"""What other members bring to a pool of kernel classifiers: log-loss on test rows.

    POLYMARGIN_DATA=<folder> python benchmarks/members.py [--datasets ...] [--splits 2] [--rows 1000]

Two thirds of the rows are for training, the rest for testing, stratified; sets of more than 1000 rows are cut to a
random 1000. The members of all pools are the same: each is fitted once, and only the weights are found again.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

from _missing import run as run_benchmark  # noqa: E402
from polymargin import AutoKernelClassifier, LSSVMClassifier  # noqa: E402
from polymargin.datasets import load, preprocessor  # noqa: E402
from polymargin.estimators._soft_labels import decoder_rows  # noqa: E402
from polymargin.kernels import Polynomial  # noqa: E402
from polymargin.solvers.pooling import pool_weights, pooled  # noqa: E402

DATASETS = ("bupa", "car", "contraceptive", "german_numeric", "glass", "pima", "vehicle", "vowel")
ROUGH: dict[str, Any] = {"kernel": "laplacian", "coding": "one-vs-all"}
MEMBERS: dict[str, Any] = {
    "blend": "blend",
    "blend with metric": LSSVMClassifier(kernel="blend", metric="learned"),
    "poly": "poly",
    "poly with metric": LSSVMClassifier(kernel=Polynomial(2, centred=True), metric="learned"),
    "laplacian": LSSVMClassifier(**ROUGH),
    "ranks": LSSVMClassifier(**ROUGH, columns="ranks"),
    "ranks with metric": LSSVMClassifier(**ROUGH, columns="ranks", metric="learned"),
    "boosted": HistGradientBoostingClassifier(),
    "forest": RandomForestClassifier(),
}
DEFAULT = ("blend with metric", "poly", "ranks with metric")
POOLS = {
    "default": DEFAULT,
    "columns, no metrics": ("blend", "poly", "laplacian"),
    "no metrics": ("blend", "poly", "ranks"),
    "metric of blend only": ("blend with metric", "poly", "ranks"),
    "metric of ranks only": ("blend", "poly", "ranks with metric"),
    "metric of poly, too": ("blend with metric", "poly with metric", "ranks with metric"),
    "without blend": ("poly", "ranks with metric"),
    "without poly": ("blend with metric", "ranks with metric"),
    "without ranks": ("blend with metric", "poly"),
    "with boosted": (*DEFAULT, "boosted"),
    "with forest": (*DEFAULT, "forest"),
    "with both": (*DEFAULT, "boosted", "forest"),
    "boosted alone": ("boosted",),
    "forest alone": ("forest",),
}


class _Kept(AutoKernelClassifier):
    """A pool that keeps the members' out-of-sample log-probabilities of the training rows."""

    def _fit_members(self, *args: Any) -> Any:
        members, self.honest_ = super()._fit_members(*args)
        return members, self.honest_


def losses(name: str, split: int, n_rows: int) -> dict[str, float]:
    """Return the log-loss of every pool on the test rows of a split."""
    data = load(name)
    if data.y.size > n_rows:
        data = data.take(np.sort(np.random.default_rng(0).choice(data.y.size, n_rows, replace=False)))
    train, test = train_test_split(
        np.arange(data.y.size), test_size=1 / 3, stratify=data.y, random_state=split
    )
    train_rows, test_rows = data.take(train), data.take(test)
    prepare = preprocessor(train_rows).fit(train_rows.X)
    model = _Kept(list(MEMBERS.values())).fit(prepare.transform(train_rows.X), train_rows.y)
    new, y_test = prepare.transform(test_rows.X), test_rows.y
    tested = dict(zip(MEMBERS, (model._log_proba(member, new) for member in model.members_), strict=True))
    honest = dict(zip(MEMBERS, model.honest_, strict=True))
    rows = decoder_rows(model._data, None)
    found = {}
    for pool, names in POOLS.items():
        u = pool_weights([honest[each] for each in names], rows.class_index, rows.weights, model.log_prior_)
        log_p = pooled([tested[each] for each in names], u, model.log_prior_)
        own = np.searchsorted(model.classes_, y_test)
        found[pool] = -float(log_p[np.arange(own.size), own].mean())
    return found


def main() -> None:
    """Compare the pools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':16}" + "".join(f"{pool:>22}" for pool in POOLS))
    table = []
    for name in options.datasets:
        by_split = [losses(name, split, options.rows) for split in range(options.splits)]
        table.append([np.mean([found[pool] for found in by_split]) for pool in POOLS])
        print(f"{name:16}" + "".join(f"{loss:22.4f}" for loss in table[-1]), flush=True)
    ratios = np.array(table) / np.array(table)[:, :1]
    for title, values in (
        ("geometric mean", np.exp(np.log(ratios).mean(axis=0))),
        ("best", ratios.min(axis=0)),
        ("worst", ratios.max(axis=0)),
    ):
        print(f"{title:16}" + "".join(f"{value:22.3f}" for value in values))


if __name__ == "__main__":
    run_benchmark(main)
