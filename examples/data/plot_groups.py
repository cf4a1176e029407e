"""
Rows that belong together
=========================

Four visits of one patient are not four patients. A model trained on three of them recognises the fourth, so
that leaving out one *row* leaks the label and says nothing about new patients. ``fit(X, y, groups=patient)``
leaves all rows of a patient out together.

The diagnosis below depends on one column. All columns differ between patients, but hardly between visits of
the same patient, so that the features of a visit identify the patient.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from polymargin import LSSVMClassifier

rng = np.random.default_rng(0)


def visits(n_patients):
    """Return four visits per patient: rows, diagnoses and patient numbers."""
    patient = np.repeat(np.arange(n_patients), 4)
    person = rng.normal(size=(n_patients, 8))
    diagnosis = person[:, 0] + rng.logistic(scale=0.4, size=n_patients) > 0
    X = person[patient] + 0.15 * rng.normal(size=(patient.size, 8))
    return X, np.where(diagnosis, "ill", "well")[patient], patient


X, y, patient = visits(60)
X_new, y_new, _ = visits(2000)

# %%
# Without ``groups``, ``fit`` treats rows as independent. Visits differ too much to be detected as duplicates,
# so you have to pass the groups.
found = {}
for name, groups in {"every row by itself": np.arange(y.size), "a patient's rows together": patient}.items():
    model = LSSVMClassifier(kernel="rbf").fit(X, y, groups=groups)
    found[name] = model.loo_log_loss_, log_loss(y_new, model.predict_proba(X_new))
    print(f"{name:26s} log-loss {found[name][0]:.2f} stated, {found[name][1]:.2f} on new patients")

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
places = np.arange(2)
ax.barh(places - 0.2, [stated for stated, _ in found.values()], 0.4, label="stated by the fit")
ax.barh(places + 0.2, [new for _, new in found.values()], 0.4, label="on new patients")
ax.set_yticks(places, list(found))
ax.invert_yaxis()
ax.set(xlabel="log-loss")
ax.legend()
plt.show()
