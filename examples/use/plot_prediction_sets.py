"""
Prediction sets, and when not to decide
=======================================

Where one label is not enough: ``predict_set`` returns for every row the classes that hold the true one with a given
probability, and ``decide`` leaves doubtful rows undecided, or weighs errors by their costs. Both use the out-of-sample
probabilities of the fit, so no rows need to be set aside. The data are handwritten digits of which only the upper
half is visible.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from polymargin import LSSVMClassifier
from polymargin.decisions import decide, predict_set

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X[:, :32], y, train_size=500, stratify=y, random_state=1)
model = make_pipeline(MinMaxScaler(), LSSVMClassifier(kernel="rbf")).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}")

# %%
# Sets of a coverage of 95% hold the true digit of about 95% of the new rows, averaged over all of them: with 500
# training rows the share varies by a percent or two. It is larger for some digits and smaller for others. With
# ``per_class=True`` every digit has a threshold of its own, from its own 50 training rows: the sets are larger, and no
# digit is covered much less than the others.
sets = {
    "over all rows": predict_set(model, X_test, coverage=0.95),
    "per class": predict_set(model, X_test, coverage=0.95, per_class=True),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
digits, width = np.arange(10), 0.4
for number, (name, held) in enumerate(sets.items()):
    covered = held[np.arange(len(y_test)), y_test]
    of_digit = [covered[y_test == digit].mean() for digit in digits]
    sizes = held.sum(axis=1)
    print(f"{name}: coverage {covered.mean():.3f}, lowest {min(of_digit):.3f}, mean size {sizes.mean():.2f}")
    left.bar(digits + (number - 0.5) * width, of_digit, width, label=name)
    share = np.bincount(sizes, minlength=6)[1:6] / len(sizes)
    right.bar(np.arange(1, 6) + (number - 0.5) * width, share, width, label=name)
left.axhline(0.95, color="black", linewidth=1)
left.set(xticks=digits, ylim=(0.8, 1.0), xlabel="true digit", ylabel="share of rows whose set holds it")
right.set(xlabel="classes in the set", ylabel="share of rows")
left.legend(loc="lower left")

# %%
# With ``reject`` rows of which no class is probable enough stay undecided. The probabilities are calibrated, so that
# what is decided is right at least as often as the threshold says: the curve is above the dashed line.
thresholds = np.linspace(0.3, 0.99, 24)
decided, right_of_these = [], []
for threshold in thresholds:
    answers = decide(model, X_test, reject=threshold, rejected=-1)
    decided.append((answers >= 0).mean())
    right_of_these.append((answers == y_test)[answers >= 0].mean())
answers = decide(model, X_test, reject=0.8, rejected=-1)
kept = answers >= 0
accuracy = np.mean(answers[kept] == y_test[kept])
print(f"reject=0.8: {kept.mean():.3f} of the rows are decided, accuracy of these {accuracy:.3f}")
figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.plot(thresholds, right_of_these, label="accuracy of decided rows")
ax.plot(thresholds, decided, label="share of rows decided")
ax.plot(thresholds, thresholds, "--", color="grey", linewidth=1, label="the threshold itself")
ax.set(xlabel="reject", ylim=(0.25, 1.02))
ax.legend(loc="lower left")

# %%
# With costs the cheapest decision need not be the most probable one. Here reading an 8 as another digit costs ten times
# as much as any other error.
costs = 1.0 - np.eye(10)
costs[8] *= 10.0
for name, answers in (
    ("most probable", model.predict(X_test)),
    ("cheapest", decide(model, X_test, costs=costs)),
):
    print(f"{name}: mean cost {costs[y_test, answers].mean():.3f}")
plt.show()
