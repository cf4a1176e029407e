"""Compare class probabilities with the truth: excess log-loss over the true posterior, on generators.

    python benchmarks/excess.py [--rows 2000] [--repeats 3] [generator ...]

Where the true posterior is known, the mean divergence of the estimated from the true probabilities is what a classifier
loses for not knowing it; noise, which is the same for all, drops out. Every repetition draws training rows and 20 000
test rows afresh. The peers are those of ``quality.py``: a tuned support vector machine with its own probabilities, or
calibrated afterwards.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.preprocessing import StandardScaler

from polymargin.datasets.generators import generators
from polymargin.metrics import divergence_from_truth
from quality import CALIBRATIONS, METHODS, OURS, Split  # holds BLAS to one thread

NAMES = ("waveform", "twonorm", "r1", "r2", "r3", "r4")
TEST_ROWS = 20_000
FAMILY = ("SVC own", *(f"SVC {name}" for name in CALIBRATIONS))


class Draw(Split):
    """Rows drawn from a generator."""

    def __init__(self, name: str, rows: int, number: int):
        generator = generators()[name]
        X_train, self.y_train = generator.sample(rows, random_state=number)
        X_test, self.y_test = generator.sample(TEST_ROWS, random_state=10_000 + number)
        scaler = StandardScaler().fit(X_train)
        self.X_train, self.X_test = scaler.transform(X_train), scaler.transform(X_test)
        self.truth = generator.posterior(X_test)
        self.n_rows, self.number, self._tuned = rows, number, None


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("generators", nargs="*", default=list(NAMES))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.generators:
        excess: dict[str, list[float]] = {}
        for number in range(arguments.repeats):
            draw = Draw(name, arguments.rows, number)
            for method in (*FAMILY, *OURS):
                start = time.process_time()
                made = METHODS[method](draw)
                assert made is not None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    proba = made[0].fit(draw.X_train, draw.y_train).predict_proba(draw.X_test)
                log_p = np.log(np.clip(proba, 1e-15, None))
                excess.setdefault(method, []).append(divergence_from_truth(draw.truth, log_p).kl)
                print(f"  {name} {number} {method}: {excess[method][-1]:.5f} "
                      f"({time.process_time() - start:.1f} s)", flush=True)  # fmt: skip
        means = {method: float(np.mean(values)) for method, values in excess.items()}
        best = min(FAMILY, key=lambda method: means[method])
        print(f"{name}: " + ", ".join(f"{method} {value:.5f}" for method, value in means.items()))
        for method in OURS:
            print(f"  {method}: {means[method] / means[best]:.2f} of the best of the family ({best}), "
                  f"{means[method] / means['SVC own']:.2f} of its own probabilities", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
