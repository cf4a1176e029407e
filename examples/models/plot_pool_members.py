"""
A pool with boosted trees
=========================

:class:`~polymargin.AutoKernelClassifier` is a log-linear pool of its members, with weights learned on
held-out rows. Any classifier with ``predict_proba`` can be a member; its weight is learned on out-of-fold
probabilities. A member that adds nothing gets a weight near zero.

The classes below depend on a chequerboard pattern in two columns, which suits trees, and on a smooth curve in
two others, which suits kernels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from polymargin import AutoKernelClassifier

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(2400, 4))
chequers = np.sign(np.floor(2.5 * X[:, 0]) % 2 - 0.5) * np.sign(np.floor(2.5 * X[:, 1]) % 2 - 0.5)
curve = np.sin(3 * X[:, 2]) + X[:, 3]
y = (1.5 * chequers + 2.0 * curve + rng.logistic(scale=0.5, size=2400) > 0).astype(int)
X_train, X_test, y_train, y_test = X[:400], X[400:], y[:400], y[400:]

trees = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.1, random_state=0)
pool = AutoKernelClassifier(["blend", trees]).fit(X_train, y_train)
losses = {
    "kernel machines": log_loss(y_test, pool.members_[0].predict_proba(X_test)),
    "boosted trees": log_loss(y_test, trees.fit(X_train, y_train).predict_proba(X_test)),
    "pool": log_loss(y_test, pool.predict_proba(X_test)),
}
print("weights:", pool.weights_.round(2), " held-out log-loss of the members:", pool.member_losses_.round(3))
for name, loss in losses.items():
    print(f"{name:16s} log-loss {loss:.3f}")

# %%
figure, ax = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
ax.barh(list(losses), list(losses.values()), color=["#2b6cb0", "#2f855a", "#c05621"])
ax.invert_yaxis()
ax.set(xlabel="log-loss on 2000 test rows")
plt.show()
