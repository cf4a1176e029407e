"""
Your own kernel
===============

A kernel is a function of two arrays of rows that returns their kernel matrix. It must be symmetric and
positive semidefinite. Here the feature is the time of day, so that 23:45 is close to 0:15. A periodic kernel
takes this into account; the standard kernels do not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from polymargin import LSSVMClassifier


def periodic(X, Z):
    """Return exp(−4 sin²(π (x − z) / 24)): hours of the day on a circle."""
    return np.exp(-4.0 * np.sin(np.pi * (X[:, [0]] - Z[:, 0]) / 24.0) ** 2)


rng = np.random.default_rng(0)
names = np.array(["home", "office", "travel"])


def truth(hour):
    """Return the true probabilities of the three places, shape (n, 3)."""
    at_home = 0.1 + 0.85 * np.exp(1.5 * (np.cos(2 * np.pi * (hour - 0.5) / 24.0) - 1.0))
    office = (1 - at_home) * (0.15 + 0.7 * (np.abs(hour - 13.0) < 4.5))
    return np.column_stack([at_home, office, 1 - at_home - office])


def draw(n):
    """Return n hours of the day, and places."""
    hour = rng.uniform(0, 24, size=(n, 1))
    p = truth(hour[:, 0])
    return hour, names[(rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)]


X, y = draw(150)
X_test, y_test = draw(4000)

# %%
# C is selected as for any other kernel; the parameters of the kernel are part of the function.
models = {
    "periodic": LSSVMClassifier(kernel=periodic).fit(X, y),
    "rbf": LSSVMClassifier(kernel="rbf").fit(X, y),
}
midnight = np.abs(X_test[:, 0] - 12.0) > 10.0
for name, model in models.items():
    proba = model.predict_proba(X_test)
    print(
        f"{name:9s} log-loss {log_loss(y_test, proba):.3f}, "
        f"within two hours of midnight {log_loss(y_test[midnight], proba[midnight]):.3f}"
    )

# %%
# Only the periodic kernel predicts the same probability at 0 h and at 24 h.
hours = np.linspace(0, 24, 241)
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
ax.plot(hours, truth(hours)[:, 0], color="grey", linewidth=3, alpha=0.5, label="truth")
for name, model in models.items():
    ax.plot(hours, model.predict_proba(hours[:, None])[:, 0], label=name)
ax.set(xlabel="hour", ylabel="probability of home", xticks=range(0, 25, 4), ylim=(0, 1))
ax.legend()
plt.show()
for name, model in models.items():
    before, after = model.predict_proba([[0.0], [24.0]])[:, 0]
    print(f"{name:9s} at 0 h {before:.2f}, at 24 h {after:.2f}")
