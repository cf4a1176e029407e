"""
What the search saw
===================

With ``C=None`` and ``gamma=None``, the defaults, ``fit`` selects both by the squared leave-one-out errors of
all machines (PRESS): first on a grid of gamma values, then by gradient descent. ``SelectionDisplay`` computes
the criterion on a grid around the selected point. A star marks the selected point, a ring the minimum of the
criterion.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from polymargin import LSSVMClassifier
from polymargin.plots import SelectionDisplay

X, y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
model = LSSVMClassifier(kernel="rbf").fit(X, y)
SelectionDisplay.from_estimator(model, n_C=21, n_gamma=15)
plt.show()

# %%
# The Bayesian evidence is another criterion. Both criteria have the same valley, with the minimum at a
# slightly different point.
evidence = LSSVMClassifier(kernel="rbf", selection="evidence").fit(X, y)
SelectionDisplay.from_estimator(evidence, n_C=21, n_gamma=15)
plt.show()

# %%
# ``search_results_`` is the table of candidates: kernels, C, gamma, and the held-out log-loss. A C smaller
# than the one of least PRESS is chosen only if its log-loss is lower by two standard errors.
tried = LSSVMClassifier().fit(X, y).search_results_
print(f"{'kernel':16s} {'C smaller by':>12s} {'log-loss':>8s}")
for kernel, smaller, loss, chosen in zip(
    *(tried[name] for name in ("kernel", "smaller_C", "loss", "chosen")), strict=True
):
    print(f"{kernel!s:16s} {smaller:12g} {loss:8.4f}{'  chosen' if chosen else ''}")
