"""
From SVC(probability=True), in two steps
========================================

scikit-learn has deprecated ``SVC(probability=True)``. Its replacement is an ``SVC`` inside a grid search
inside a ``CalibratedClassifierCV``, each with its own folds. This example shows two alternatives on
handwritten digits: the same machine with probabilities, and one that needs no search. ``SVMClassifier``
accepts the parameters of ``SVC`` unchanged.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from polymargin import LSSVMClassifier, SVMClassifier
from polymargin.plots import ReliabilityDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, test_size=600, random_state=0)

# %%
# Before: a grid search for C and gamma, and probabilities by cross-validated calibration.
searched = GridSearchCV(SVC(), {"C": [1, 10, 100], "gamma": ["scale", 0.003]}, cv=3)
before = make_pipeline(StandardScaler(), CalibratedClassifierCV(searched, cv=3)).fit(X_train, y_train)

# %%
# Step one: the same machine. SVMClassifier takes SVC's parameters; probability=True learns probabilities.
svc = make_pipeline(StandardScaler(), SVC(C=10)).fit(X_train, y_train)
same = make_pipeline(StandardScaler(), SVMClassifier(**svc[-1].get_params())).fit(X_train, y_train)
with_probabilities = make_pipeline(StandardScaler(), SVMClassifier(C=10, probability=True))
with_probabilities.fit(X_train, y_train)

# %%
# Step two: no search. Kernel, C and gamma are selected inside fit, by leave-one-out errors.
after = make_pipeline(StandardScaler(), LSSVMClassifier()).fit(X_train, y_train)

alike = (same.predict(X_test) == svc.predict(X_test)).mean()
print(f"SVMClassifier gives SVC's label to {alike:.1%} of the rows")

# %%
# The bars are 95 % intervals; points above the diagonal are probabilities that are too low.
figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="constrained")
models = {
    "SVC, searched, sigmoids": before,
    "SVMClassifier, probability=True": with_probabilities,
    "LSSVMClassifier": after,
}
for ax, (name, model) in zip(axes, models.items(), strict=True):
    loss, accuracy = log_loss(y_test, model.predict_proba(X_test)), model.score(X_test, y_test)
    print(f"{name:31s} log-loss {loss:.2f}  accuracy {accuracy:.1%}")
    ReliabilityDisplay.from_estimator(model, X_test, y_test, n_resamples=50, random_state=0, name="", ax=ax)
    ax.set_title(name, fontsize="medium")
plt.show()
