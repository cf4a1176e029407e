"""
Class weights and priors
========================

Two parameters are about class frequencies. They answer different questions.

- ``class_weight`` makes errors on a class more expensive *in training*. The probabilities are then those for
  data in which the class is more frequent by this factor.
- ``priors`` are the class frequencies to expect *in use*. The machines do not change; the probabilities are
  re-weighted by Bayes' rule.

Here one row in ten belongs to the rare class. With the correct priors, the probabilities are calibrated on
new data. ``"balanced"`` weights increase the recall of the rare class, at the price of probabilities that are
too high.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss, recall_score
from sklearn.model_selection import train_test_split

from polymargin import LSSVMClassifier

X, y = make_classification(
    4000, n_features=6, n_informative=4, weights=[0.9], class_sep=0.7, flip_y=0.02, random_state=3
)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, random_state=0, stratify=y)
models = {
    "as they are": LSSVMClassifier(kernel="rbf"),
    'class_weight="balanced"': LSSVMClassifier(kernel="rbf", class_weight="balanced"),
    'priors="uniform"': LSSVMClassifier(kernel="rbf", priors="uniform"),
}

# %%
figure, ax = plt.subplots(figsize=(7, 4))
for name, model in models.items():
    proba = model.fit(X_train, y_train).predict_proba(X_test)
    recall = recall_score(y_test, model.predict(X_test))
    print(
        f"{name:24s} log-loss {log_loss(y_test, proba):.3f}  recall of the rare class {recall:.0%}  "
        f"its mean probability {proba[:, 1].mean():.0%}, its frequency {y_test.mean():.0%}"
    )
    ax.hist(proba[y_test == 1, 1], np.linspace(0, 1, 21), histtype="step", linewidth=1.8, label=name)
ax.set(xlabel="probability of the rare class", ylabel="test rows of the rare class")
ax.legend()
plt.show()

# %%
# The opposite case: the training rows were balanced on purpose, as in a case-control study, and in use one
# row in ten is of the rare class. ``priors`` corrects for this.
rare, common = np.flatnonzero(y_train == 1), np.flatnonzero(y_train == 0)
balanced = np.r_[rare, common[: rare.size]]
for priors in (None, {0: 0.9, 1: 0.1}):
    model = LSSVMClassifier(kernel="rbf", priors=priors).fit(X_train[balanced], y_train[balanced])
    print(f"priors={priors!s:16s} log-loss {log_loss(y_test, model.predict_proba(X_test)):.3f}")
