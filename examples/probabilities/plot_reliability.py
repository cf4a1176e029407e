"""
Reliability diagrams: can the probabilities be believed?
========================================================

Of all rows whose label a classifier predicts with a probability of 80 %, about 80 % should be predicted
correctly. A *reliability diagram* (calibration curve) shows this for every level of confidence: points on the
diagonal are calibrated, points below it overconfident.

The example compares the softmax of the scores of an SVM, the same SVM calibrated by cross-validation, and
:class:`~polymargin.LSSVMClassifier`, on handwritten digits with few training rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from polymargin import LSSVMClassifier
from polymargin.plots import ReliabilityDisplay

X, y = load_digits(return_X_y=True)
# Noise: otherwise all of them are nearly certain.
X = X + np.random.default_rng(0).normal(scale=5.0, size=X.shape)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, random_state=0)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)

# %%
# Scores that are merely mapped to values between 0 and 1 are not probabilities; calibration by
# cross-validation is much better. A least-squares SVM has leave-one-out outputs, and needs no folds.
svc = SVC(C=10, gamma=0.005).fit(X_train, y_train)
calibrated = CalibratedClassifierCV(SVC(C=10, gamma=0.005), cv=3).fit(X_train, y_train)
lssvm = LSSVMClassifier(coding="one-vs-all", kernel="rbf").fit(X_train, y_train)
probabilities = {
    "SVC, softmax of its scores": softmax(svc.decision_function(X_test), axis=1),
    "SVC, sigmoids in 3 folds": calibrated.predict_proba(X_test),
    "LSSVMClassifier": lssvm.predict_proba(X_test),
}
for name, proba in probabilities.items():
    print(
        f"{name:27s} log-loss {log_loss(y_test, proba):.2f}  accuracy {(proba.argmax(1) == y_test).mean():.1%}"
    )

# %%
# The bars are 95 % intervals of the observed frequency; ECE in the legend is the expected calibration error,
# with its interval. The histogram below shows how many rows have which confidence.
figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="constrained")
for ax, (name, proba) in zip(axes, probabilities.items(), strict=True):
    ReliabilityDisplay.from_predictions(y_test, proba, name="", n_resamples=50, random_state=0, ax=ax)
    ax.set_title(name, fontsize="medium")
plt.show()
