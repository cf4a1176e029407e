"""Class weights in SVC and in SVMClassifier: accuracy, log-loss, recall and mean probabilities.

    python benchmarks/class_weights.py [--write]

Three classes with frequencies of 79, 16 and 5 %, 700 training rows of 3000, standardised, C=10. ``--write`` writes the
table of ``benchmarks/results/class_weights.csv``. It needs a scikit-learn whose `SVC` has ``probability``.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score, log_loss, recall_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from _tables import write_table
from polymargin import SVMClassifier

RESULT = Path(__file__).parent / "results" / "class_weights.csv"
HEADINGS = ["", "accuracy", "log-loss", "recall of the classes", "mean probabilities"]
PROBABLE, WEIGHTED = {"probability": True}, {"class_weight": "balanced"}
MODELS: dict[str, tuple[type, dict[str, Any]]] = {
    'SVC(probability=True, class_weight="balanced")': (SVC, PROBABLE | WEIGHTED),
    'SVMClassifier(probability=True, class_weight="balanced")': (SVMClassifier, PROBABLE | WEIGHTED),
    "SVMClassifier(probability=True)": (SVMClassifier, PROBABLE),
    'SVMClassifier(class_weight="balanced")': (SVMClassifier, WEIGHTED),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    X, y = make_classification(
        3000, 10, n_informative=6, n_classes=3, weights=[0.8, 0.16, 0.04], flip_y=0.02, random_state=0
    )
    X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=700, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    lines = [HEADINGS]
    for title, (model, options) in MODELS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = model(C=10, random_state=0, **options).fit(X_train, y_train)
        labels = fitted.predict(X_test)
        recall = ", ".join(f"{share:.2f}" for share in recall_score(y_test, labels, average=None))
        lines.append([title, f"{accuracy_score(y_test, labels):.2f}", "", recall, ""])
        if options.get("probability"):
            proba = fitted.predict_proba(X_test)
            lines[-1][2] = f"{log_loss(y_test, proba):.2f}"
            lines[-1][4] = ", ".join(f"{share:.2f}" for share in np.mean(proba, axis=0))
        print("  ".join(lines[-1]))
    if arguments.write:
        write_table(RESULT, lines)


if __name__ == "__main__":
    main()
