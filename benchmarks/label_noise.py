"""Wrong labels in the training rows: which classifier predicts clean rows best?

    POLYMARGIN_DATA=<folder> python benchmarks/label_noise.py [--seeds 10] [--jobs 2] [--write]

Of 300 training rows a share has its label replaced by another class, drawn at random. Accuracy and log-loss are those
of further rows, at most 3000, whose labels are right. Features are standardised. ``--write`` writes the table of
``benchmarks/results/label_noise.csv``.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from _missing import run as run_benchmark
from _tables import write_table
from polymargin import AutoKernelClassifier, LSSVMClassifier, PosteriorSVMClassifier
from polymargin.datasets import load, make_waveform

RESULT = Path(__file__).parent / "results" / "label_noise.csv"
MODELS = {
    "Auto": AutoKernelClassifier,
    "LSSVM": LSSVMClassifier,
    "PosteriorSVM": PosteriorSVMClassifier,
    "PosteriorSVM, n_neighbors=15": lambda: PosteriorSVMClassifier(n_neighbors=15),
}
DATASETS = ("waveform", "wdbc", "contraceptive", "satimage", "digits")
SHARES = (0.2, 0.4)
TRAINING_ROWS, TEST_ROWS = 300, 3000


def rows_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if name == "waveform":
        return make_waveform(TRAINING_ROWS + TEST_ROWS, random_state=seed)
    found = load(name)
    return np.asarray(found.X, dtype=np.float64), np.unique(found.y, return_inverse=True)[1]


def wrong_labels(y: np.ndarray, share: float, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    """Return the labels, of which a share is another class."""
    wrong = rng.permutation(y.size) < round(share * y.size)
    return np.where(wrong, (y + rng.integers(1, n_classes, y.size)) % n_classes, y)


def measured(name: str, share: float, seed: int) -> dict[str, tuple[float, float]]:
    """Return accuracy and log-loss of every model."""
    X, y = rows_of(name, seed)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, train_size=TRAINING_ROWS, random_state=seed, stratify=y
    )
    X_test, y_test = X_test[:TEST_ROWS], y_test[:TEST_ROWS]
    mean, scale = X_train.mean(axis=0), X_train.std(axis=0)
    scale[scale == 0.0] = 1.0
    X_train, X_test = (X_train - mean) / scale, (X_test - mean) / scale
    K = int(y.max()) + 1
    given = wrong_labels(y_train, share, K, np.random.default_rng(seed))
    found = {}
    for title, model in MODELS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = model().fit(X_train, given)
        proba = fitted.predict_proba(X_test)
        # Without rounding to zero, so that one row does not decide.
        loss = log_loss(y_test, np.clip(proba, 1e-9, 1.0), labels=np.arange(K))
        found[title] = (float((fitted.predict(X_test) == y_test).mean()), loss)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = [["", *MODELS]]
    for name in arguments.datasets:
        for share in SHARES:
            tasks = (delayed(measured)(name, share, seed) for seed in range(arguments.seeds))
            some = Parallel(arguments.jobs)(tasks)
            cells = [
                "{:.3f} / {:.3f}".format(*np.mean([found[title] for found in some], axis=0))
                for title in MODELS
            ]
            lines.append([f"{name}, {share:.0%} wrong", *cells])
            print("  ".join(lines[-1]), flush=True)
    if arguments.write:
        write_table(RESULT, lines)


if __name__ == "__main__":
    run_benchmark(main)
