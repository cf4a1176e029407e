"""The experiment behind the defaults of `LSSVMClassifier` and `AutoKernelClassifier`: what each choice is worth.

    POLYMARGIN_DATA=<folder> python benchmarks/defaults.py [--datasets ...] [--splits 2] [--report]

Every variant changes one thing of a base: one-vs-one machines with the kernel "rbf", C and gamma by leave-one-out
errors, decoded by the coupled softmax. Splits, datasets and preparation are those of ``quality.py``. Printed is the
geometric mean over datasets of the log-loss relative to the base, and on how many sets a variant is better or worse by
more than one per cent. Finished results are kept in ``polymargin-results/defaults.jsonl``.

On 24 of the datasets with one split, before there was the blended kernel and today's pool: coupling alone 1.29, with a
temperature 1.05, softmax alone 1.01, multinomial logistic 1.14, Bayes 1.22; gcv 1.18, evidence 0.98; one-vs-all 1.09,
ecoc 1.08; laplacian 1.01, poly of degree 2 1.09; the chosen kernel 0.92; the pool of rbf and laplacian 0.94, with poly
0.90, the default pool 0.90. Parameters for each machine by itself, 0.95, would be better than shared ones, and cost
more.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from polymargin import AutoKernelClassifier, CoupledSoftmax, Coupling, LSSVMClassifier, Stack
from polymargin.metrics import log_loss
from quality import DATASETS, Split  # holds BLAS to one thread

RESULTS = Path("polymargin-results") / "defaults.jsonl"


def base(**changes: Any) -> LSSVMClassifier:
    return LSSVMClassifier(**{"kernel": "rbf", **changes})


def pool(*members: LSSVMClassifier) -> AutoKernelClassifier:
    return AutoKernelClassifier(list(members))


def one_vs_all(kernel: str) -> LSSVMClassifier:
    return base(kernel=kernel, coding="one-vs-all")


QUADRATIC = {"kernel": "poly", "degree": 2}
VARIANTS: dict[str, Any] = {
    "base: one-vs-one, rbf, loo, coupled softmax": base(),
    "decoder: softmax": base(decoding="softmax"),
    "decoder: coupling (WLW2)": base(decoding=Coupling("wlw2")),
    "decoder: coupling with a temperature": base(decoding=CoupledSoftmax(ridge=1e6)),
    "decoder: coupled softmax, smoothing 3": base(decoding=CoupledSoftmax(smoothing=3.0)),
    "decoder: coupled softmax, ridge 10": base(decoding=CoupledSoftmax(ridge=10.0)),
    "decoder: multinomial logistic": base(decoding=Stack(LogisticRegression(max_iter=2000))),
    "decoder: Bayes": base(decoding="bayes"),
    "selection: gcv": base(selection="gcv"),
    "selection: evidence": base(selection="evidence"),
    "selection: loo, each machine its own": base(shared_parameters=False),
    "coding: one-vs-all": one_vs_all("rbf"),
    "coding: one-vs-all, softmax": base(coding="one-vs-all", decoding="softmax"),
    "coding: ecoc": base(coding="ecoc", random_state=0),
    "kernel: laplacian": base(kernel="laplacian"),
    "kernel: laplacian, one-vs-all": one_vs_all("laplacian"),
    "kernel: poly 2": base(**QUADRATIC),
    "kernel: poly 3": base(kernel="poly", degree=3),
    "kernel: linear": base(kernel="linear"),
    "kernel: chosen (the default)": LSSVMClassifier(),
    "pool: rbf + laplacian": pool(base(), base(kernel="laplacian")),
    "pool: rbf + laplacian one-vs-all": pool(base(), one_vs_all("laplacian")),
    "pool: rbf + laplacian + poly 2": pool(base(), base(kernel="laplacian"), base(**QUADRATIC)),
    "pool: the default": AutoKernelClassifier(),
}


def known_results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(datasets: list[str], splits: int) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    done = {(row["dataset"], row["split"], row["variant"]) for row in known_results()}
    for number in range(splits):
        for name in datasets:
            missing = [variant for variant in VARIANTS if (name, number, variant) not in done]
            split = Split(name, number) if missing else None
            for variant in missing:
                assert split is not None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = VARIANTS[variant].fit(split.X_train, split.y_train)
                    loss = log_loss(split.y_test, model.predict_log_proba(split.X_test))
                row = {"dataset": name, "split": number, "variant": variant, "log_loss": loss}
                with RESULTS.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
            print(f"{name} {number}", flush=True)


def report() -> None:
    losses: dict[str, dict[str, list[float]]] = {}
    for row in known_results():
        losses.setdefault(row["variant"], {}).setdefault(row["dataset"], []).append(row["log_loss"])
    first = next(iter(VARIANTS))
    names = [name for name in DATASETS if name in losses.get(first, {})]
    print(f"{len(names)} datasets: {', '.join(names)}")
    print(f"{'':48s} ratio  better  worse")
    for variant in VARIANTS:
        of_variant = losses.get(variant, {})
        ratios = np.array(
            [np.mean(of_variant[n]) / np.mean(losses[first][n]) for n in names if n in of_variant]
        )
        if ratios.size:
            mean = float(np.exp(np.log(ratios).mean()))
            print(f"{variant:48s} {mean:5.3f}  {(ratios < 0.99).sum():6d}  {(ratios > 1.01).sum():5d}")


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        run(arguments.datasets, arguments.splits)
    report()


if __name__ == "__main__":
    main()
