"""
Your own codebook
=================

What you know of the classes can decide which machines are trained. A codebook is a matrix with a row for
every class and a column for every machine: +1 against −1, and 0 for rows that the machine does not see. Here
the classes are digits that come in pairs which look alike, so one machine tells the pairs apart roughly and
others look closely. Any matrix works with any decoder that can read it, and its probabilities are calibrated
like all others.
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
# The codebook takes the place of the name of a coding.

for name, coding in {"own": codebook, "one-vs-all": "one-vs-all", "one-vs-one": "one-vs-one"}.items():
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf", coding=coding)).fit(
        X_train, y_train
    )
    machines = model[-1].codebook_.n_columns
    loss, accuracy = log_loss(y_test, model.predict_proba(X_test)), model.score(X_test, y_test)
    print(f"{name:10s} {machines} machines  log-loss {loss:.2f}  accuracy {accuracy:.1%}")

# %%
# Each pair's own machine sees the rows of that pair only.
print(
    "rows per machine:", (codebook.targets(np.searchsorted([1, 3, 8, 9], y_train)) != 0).sum(axis=0).tolist()
)

# %%
# A matrix that cannot work is refused, with the reason.
try:
    Codebook([[+1], [+1], [-1], [-1]])
except ValueError as error:
    print("refused:", error)
