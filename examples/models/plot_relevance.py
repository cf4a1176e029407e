"""
A learned metric: which columns matter
======================================

``metric="learned"`` scales every column by how steep the machines are along it, so that irrelevant columns
fade out. The learned metric is kept only if it predicts better on held-out rows. ``feature_relevance``
measures how much the fitted model depends on every column: a *sensitivity* of the model, not a causal effect.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from polymargin import LSSVMClassifier
from polymargin.datasets import make_waveform
from polymargin.inspection import feature_relevance
from polymargin.plots import RelevanceDisplay

X, y = make_waveform(1300, random_state=0)
X = np.hstack([X, np.random.default_rng(0).normal(size=(1300, 150))])  # x21, …, x170 are noise
X_train, X_test, y_train, y_test = X[:300], X[300:], y[:300], y[300:]

plain = LSSVMClassifier(kernel="rbf").fit(X_train, y_train)
learned = LSSVMClassifier(kernel="rbf", metric="learned").fit(X_train, y_train)
for name, model in {"plain": plain, "learned metric": learned}.items():
    print(f"{name:15s} log-loss {log_loss(y_test, model.predict_proba(X_test)):.3f}")

# %%
# The bars are shares of the total relevance, with the standard deviation over folds.
RelevanceDisplay.from_estimator(learned, n_columns=20)
plt.show()

# %%
found = feature_relevance(learned)
print("most relevant:", ", ".join(found.to_dict()["name"][:4]))
print(f"{len(found.negligible)} columns hardly matter")
print(f"all the noise together: {learned.feature_relevance_[21:].sum():.0%}")
