"""
Decision regions of codings and decoders
========================================

The same kernel with different codings and decoders, on two features of the wine dataset, which has three
classes. Colours are blended according to the class probabilities: pure colours show certainty, blended
colours uncertainty. Decoders without probabilities have pure colours everywhere.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from polymargin import LSSVMClassifier
from polymargin.plots import DecisionRegionDisplay

wine = load_wine(as_frame=True)
X = wine.data[["alcohol", "flavanoids"]].to_numpy()
X, y = StandardScaler().fit_transform(X), wine.target_names[wine.target]

figure, axes = plt.subplots(2, 3, figsize=(12, 7.4), layout="constrained")
choices = [
    ("one-vs-one", "coupled-softmax"),
    ("one-vs-all", "coupled-softmax"),
    ("one-vs-one", "bayes"),
    ("one-vs-one", "votes"),
    ("one-vs-all", "hamming"),
    ("minimal", "hamming"),
]
for ax, (coding, decoding) in zip(axes.flat, choices, strict=True):
    model = LSSVMClassifier(kernel="rbf", coding=coding, decoding=decoding).fit(X, y)
    DecisionRegionDisplay.from_estimator(model, X, y, resolution=80, ax=ax)
    ax.set(title=f"{coding}, {decoding}", xlabel="alcohol", ylabel="flavanoids")
plt.show()
