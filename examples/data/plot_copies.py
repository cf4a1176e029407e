"""
Copies and nominal columns
==========================

There are two kinds of equal rows. In a table of nominal columns, such as sex, cabin class and age group,
equal rows are independent observations, and the right probabilities are the class frequencies in their cell.
In a table with duplicated rows, perhaps with a little noise added, a row and its duplicates are one
observation. The former are counted as independent; the latter are detected and grouped, with a warning.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from polymargin import LSSVMClassifier
from polymargin.datasets import make_waveform

# %%
# *Nominal columns.* Three binary columns have eight cells; the predicted probability in a cell is close to
# the observed frequency.
rng = np.random.default_rng(0)
cells = rng.integers(0, 2, size=(600, 3))
truth = 1 / (1 + np.exp(-(cells @ [2.0, -1.0, 0.5] - 0.5)))
y = (rng.random(600) < truth).astype(int)
model = LSSVMClassifier().fit(cells, y)

distinct, cell = np.unique(cells, axis=0, return_inverse=True)
frequency = np.bincount(cell.ravel(), weights=y) / np.bincount(cell.ravel())
said = model.predict_proba(distinct)[:, 1]
figure, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
ax.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
ax.plot(frequency, said, "o")
ax.set(xlabel="frequency of class 1 in the cell", ylabel="probability", aspect="equal")
plt.show()
print(f"largest difference: {np.abs(frequency - said).max():.3f}")

# %%
# *Duplicates.* Every row of waveform is in the table three times, with a little noise. The fit warns of this,
# groups the duplicates, and reports a log-loss that is valid for new rows.
X, y = make_waveform(150, random_state=0)
X_test, y_test = make_waveform(3000, random_state=1)
X_copied = np.vstack([X, X + 1e-4 * rng.normal(size=X.shape), X + 1e-4 * rng.normal(size=X.shape)])
y_copied = np.tile(y, 3)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    grouped = LSSVMClassifier(kernel="rbf").fit(X_copied, y_copied)
print(caught[0].message)

independent = LSSVMClassifier(kernel="rbf").fit(X_copied, y_copied, groups=np.arange(y_copied.size))
alone = LSSVMClassifier(kernel="rbf").fit(X, y)
for name, model in {
    "the 150 rows": alone,
    "with copies, found": grouped,
    "with copies, taken for rows": independent,
}.items():
    print(f"{name:28s} log-loss {model.loo_log_loss_:.2f} stated, "
          f"{log_loss(y_test, model.predict_proba(X_test)):.2f} on new rows")  # fmt: skip
