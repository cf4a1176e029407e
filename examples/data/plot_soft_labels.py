"""
Soft labels: annotators who disagree
====================================

Five annotators label every training row. The votes, divided by five, are class probabilities, and ``fit``
accepts them instead of labels. The majority label discards the information about uncertain rows. The true
probabilities are known, because the data are generated, so that both models can be compared with them.
"""

import matplotlib.pyplot as plt
import numpy as np

from polymargin import LSSVMClassifier
from polymargin.datasets import generators
from polymargin.metrics import divergence_from_truth
from polymargin.plots import DecisionRegionDisplay

rng = np.random.default_rng(0)
r4 = generators()["r4"]
X_train, _ = r4.sample(150, random_state=0)
X_test, y_test = r4.sample(2000, random_state=1)

votes = rng.multinomial(5, r4.posterior(X_train))
majority = votes.argmax(axis=1)
print(f"the annotators agree about {(votes.max(axis=1) == 5).mean():.0%} of the rows")

names = np.array(["left", "right", "top"])
from_votes = LSSVMClassifier(classes=names).fit(X_train, votes / 5)
from_majority = LSSVMClassifier().fit(X_train, names[majority])

# %%
# The Kullback–Leibler divergence from the true probabilities is the excess log-loss of a model.
truth = r4.posterior(X_test)
for name, model in {"votes": from_votes, "majority": from_majority}.items():
    far = divergence_from_truth(truth, model.predict_log_proba(X_test))
    print(f"{name:9s} {far.kl:.3f} nats from the true probabilities, mean difference {far.absolute:.3f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
for ax, (name, model) in zip(axes, {"votes": from_votes, "majority": from_majority}.items(), strict=True):
    DecisionRegionDisplay.from_estimator(model, X_train, names[majority], resolution=80, ax=ax)
    ax.set(title=f"learned from the {name}")
plt.show()
