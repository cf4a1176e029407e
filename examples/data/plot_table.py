"""
A table with numbers, words and gaps
====================================

The file has numeric columns, a text column and missing values. A scikit-learn pipeline turns it into
features. :class:`~polymargin.AutoKernelClassifier` has nothing to tune, and reports an estimate of its
log-loss without a test set, computed on held-out rows.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from polymargin import AutoKernelClassifier
from polymargin.metrics import calibration_interval
from polymargin.plots import ReliabilityDisplay


def write_orchard(path: Path) -> None:
    """Write a table of apples: size, sugar, colour and, to be predicted, variety."""
    rng = np.random.default_rng(0)
    variety = rng.choice(["boskoop", "elstar", "gala"], size=800, p=[0.25, 0.35, 0.4])
    means = pd.DataFrame(
        {"diameter": [82, 73, 70], "sugar": [11.5, 12.5, 13.3]}, index=["boskoop", "elstar", "gala"]
    )
    table = means.loc[variety].reset_index(drop=True) + rng.normal(scale=[5.0, 0.8], size=(800, 2))
    redness = pd.Series(variety).map({"boskoop": 0.3, "elstar": 0.6, "gala": 0.8})
    table["colour"] = np.where(rng.random(800) < redness, "red", "green")
    table.loc[rng.random(800) < 0.05, "sugar"] = np.nan
    table.assign(variety=variety).to_csv(path, index=False)


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "apples.csv"
    write_orchard(file)
    table = pd.read_csv(file)

X, y = table.drop(columns="variety"), table["variety"]
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)

# %%
# Kernels compare distances: numbers are standardised, missing values imputed, and text is one-hot encoded.
numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
columns = make_column_transformer(
    (numbers, make_column_selector(dtype_include="number")),
    (
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        make_column_selector(dtype_exclude="number"),
    ),
)
model = make_pipeline(columns, AutoKernelClassifier(metric=None)).fit(X_train, y_train)

# %%
# The log-loss estimated by the fit on held-out rows, and the log-loss on the test rows:
proba = model.predict_proba(X_test)
error = calibration_interval(np.searchsorted(model.classes_, y_test), proba, n_bins=10, n_resamples=200)
expected, found = model[-1].loo_log_loss_, log_loss(y_test, proba)
print(f"log-loss: {expected:.2f} expected from the training rows, {found:.2f} on test rows")
print(f"accuracy: {model.score(X_test, y_test):.0%}")
print(
    f"calibration error: {error.estimate:.2f}, with 95 % confidence from {error.low:.2f} to {error.high:.2f}"
)

# %%
shown = pd.DataFrame(proba, columns=model.classes_, index=X_test.index).head(3).round(2)
print(shown.assign(variety=y_test).to_string())

# %%
# One reliability diagram per class.
figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="constrained")
for ax, variety in zip(axes, model.classes_, strict=True):
    ReliabilityDisplay.from_predictions(
        y_test, proba, classes=model.classes_, pos_label=variety, n_resamples=50, random_state=0, ax=ax
    )
    ax.set_title(variety)
plt.show()
