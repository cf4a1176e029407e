"""
Leave-one-out margins
=====================

A model has seen the labels of its training rows, so that its outputs for these rows look better than those
for new rows. *Leave-one-out* outputs do not have this bias: the output for a row comes from a machine trained
without that row. For least-squares machines they follow exactly from the factorisation of the fit, and
:class:`~polymargin.LSSVMClassifier` stores them as ``loo_margins_``. A *margin* is the output of a two-class
machine, positive on the side of the class coded with +1.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from polymargin import LSSVMClassifier

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=285, random_state=0)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
model = LSSVMClassifier(C=100.0, kernel="rbf", gamma=0.03).fit(X_train, y_train)

# %%
# With such a large ``C``, the machine nearly interpolates its labels: the in-sample outputs are close to −1
# and +1. The leave-one-out outputs have the same spread as those of new rows.
sign = np.where(y_train == model.classes_[1], 1.0, -1.0)
if np.corrcoef(sign, model.margins(X_train)[:, 0])[0, 1] < 0:
    sign = -sign  # the codebook decides which class is +1
own = {
    "training rows, seen": sign * model.margins(X_train)[:, 0],
    "training rows, each left out": sign * model.loo_margins_[:, 0],
    "test rows": np.where(y_test == y_train[sign > 0][0], 1, -1) * model.margins(X_test)[:, 0],
}
figure, ax = plt.subplots(figsize=(8, 4))
bins = np.linspace(-2, 3, 51)
for name, margins in own.items():
    ax.hist(margins, bins, density=True, histtype="step", linewidth=1.8, label=name)
    print(f"{name:29s} standard deviation {margins.std():.2f}, wrong {np.mean(margins < 0):.1%}")
ax.axvline(0, color="grey", linewidth=0.8)
ax.set(xlabel="margin, positive where the row is on its own side", ylabel="density")
ax.legend()
plt.show()

# %%
# The decoder was fitted on the leave-one-out margins. So ``fit`` can estimate the log-loss on new rows:
expected, found = model.loo_log_loss_, log_loss(y_test, model.predict_proba(X_test))
print(f"log-loss: {expected:.3f} stated by the fit, {found:.3f} on test rows")
