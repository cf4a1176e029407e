"""
Your own codebook
=================

Prior knowledge about the classes can determine which two-class machines are trained. A codebook is a matrix
with one row per class and one column per machine: classes with +1 against classes with −1; rows of classes
with 0 are not used by the machine. Here the classes are four digits, in two pairs that look alike: one
machine separates the two pairs, and others separate the digits of each pair. A custom codebook works with any
decoder that supports it, and the probabilities are calibrated like all others.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polymargin import Codebook, LSSVMClassifier
from polymargin.plots import CodebookDisplay

digits = load_digits()
chosen = np.isin(digits.target, [1, 8, 3, 9])
X, y = digits.data[chosen], digits.target[chosen]
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

#           {1,8} or {3,9}?   1 or 8?   3 or 9?   {1,3} or {8,9}?
codebook = Codebook(
    [
        [+1, +1, 0, +1],  # 1
        [-1, 0, +1, +1],  # 3
        [+1, -1, 0, -1],  # 8
        [-1, 0, -1, -1],  # 9
    ]
)
print(codebook, "with least distance", codebook.min_distance)
CodebookDisplay.from_codebook(codebook, classes=[1, 3, 8, 9])
plt.show()

# %%
# Pass the codebook instead of the name of a coding.

for name, coding in {"own": codebook, "one-vs-all": "one-vs-all", "one-vs-one": "one-vs-one"}.items():
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf", coding=coding)).fit(
        X_train, y_train
    )
    machines = model[-1].codebook_.n_columns
    loss, accuracy = log_loss(y_test, model.predict_proba(X_test)), model.score(X_test, y_test)
    print(f"{name:10s} {machines} machines  log-loss {loss:.2f}  accuracy {accuracy:.1%}")

# %%
# The machine for a pair is trained only on the rows of that pair.
print(
    "rows per machine:", (codebook.targets(np.searchsorted([1, 3, 8, 9], y_train)) != 0).sum(axis=0).tolist()
)

# %%
# An invalid matrix raises an error that names the problem.
try:
    Codebook([[+1], [+1], [-1], [-1]])
except ValueError as error:
    print("refused:", error)
