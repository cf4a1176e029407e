"""
What the search saw
===================

With ``C=None`` and ``gamma=None``, the defaults, ``fit`` chooses both by the squared leave-one-out errors of
all machines (PRESS). A lattice of gamma comes first, then steps down the gradient. ``SelectionDisplay``
computes the criterion on a grid around the choice; a star marks what was chosen, a ring what the criterion
alone would favour.
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
# The evidence of Bayesian inference is another criterion. Between the two, the valley is the same and its
# bottom a little elsewhere.
evidence = LSSVMClassifier(kernel="rbf", selection="evidence").fit(X, y)
SelectionDisplay.from_estimator(evidence, n_C=21, n_gamma=15)
plt.show()

# %%
# ``search_results_`` is the table of what was tried: kernels, C, gamma, and the log-loss on rows that were
# held out. A C that is smaller than the one of least PRESS is taken only if its log-loss is lower by two
# standard errors.
tried = LSSVMClassifier().fit(X, y).search_results_
print(f"{'kernel':16s} {'C smaller by':>12s} {'log-loss':>8s}")
for kernel, smaller, loss, chosen in zip(
    *(tried[name] for name in ("kernel", "smaller_C", "loss", "chosen")), strict=True
):
    print(f"{kernel!s:16s} {smaller:12g} {loss:8.4f}{'  chosen' if chosen else ''}")
