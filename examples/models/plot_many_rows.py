"""
Many rows: exact machines, leaves and landmarks
===============================================

Exact machines on n rows take O(n²) memory and O(n³) time. Beyond some 12 000 rows,
:class:`~polymargin.LSSVMClassifier` divides the work: *leaves* are exact machines on overlapping regions,
*landmarks* are machines on the Nyström features of a few hundred rows. Here both are requested on a small
dataset, so that they can be compared with exact machines.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from polymargin import LSSVMClassifier
from polymargin.scale import ScaleSettings

rng = np.random.default_rng(0)


def posterior(X):
    """Return the true class probabilities: waves along two columns."""
    logit = 4.0 * np.sin(4.0 * X[:, 0]) * np.sin(4.0 * X[:, 1])
    return np.column_stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))])


X_train, X_test = rng.uniform(-2, 2, size=(2500, 2)), rng.uniform(-2, 2, size=(4000, 2))
y_train, y_test = ((rng.random(len(X)) < posterior(X)[:, 1]).astype(int) for X in (X_train, X_test))
truth = log_loss(y_test, posterior(X_test))

small = ScaleSettings(leaf_rows=700, sample_rows=700)
options = {"kernel": "rbf", "scaling": small}
models = {
    "exact": LSSVMClassifier(scale="exact", **options),
    "leaves of 700 rows": LSSVMClassifier(scale="leaves", **options),
    "20 landmarks": LSSVMClassifier(scale="landmarks", n_landmarks=20, **options),
    "100 landmarks": LSSVMClassifier(scale="landmarks", n_landmarks=100, **options),
    "300 landmarks": LSSVMClassifier(scale="landmarks", n_landmarks=300, **options),
}
excess = {}
for name, model in models.items():
    model.fit(X_train, y_train)
    excess[name] = log_loss(y_test, model.predict_proba(X_test)) - truth
    print(f"{name:18s} excess log-loss {excess[name]:.4f}")
print(models["leaves of 700 rows"].plan_)

# %%
# The true posterior of these data is known. The bars show the excess log-loss of each model over the true
# posterior.
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.barh(list(excess), list(excess.values()), color="#2b6cb0")
ax.invert_yaxis()
ax.set(xlabel="log-loss above that of the true posterior")
plt.show()
