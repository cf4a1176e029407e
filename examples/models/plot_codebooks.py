"""
Codebooks drawn
===============

Kernel machines are binary classifiers. A *codebook* defines how a problem with K classes is divided into
two-class problems, the *dichotomies*. It is a matrix with one row per class and one column per machine. In
each column, the classes with +1 are trained against those with −1; rows of the classes with 0 are not used.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from polymargin import Adaptive, LSSVMClassifier
from polymargin.codebooks import ecoc, minimal, one_vs_all, one_vs_one
from polymargin.plots import CodebookDisplay

codebooks = {
    "one-vs-one": one_vs_one(5),
    "one-vs-all": one_vs_all(5),
    "minimal": minimal(5),
    "ecoc": ecoc(5, random_state=0),
}
figure, axes = plt.subplots(2, 2, figsize=(11, 7.4), layout="constrained")
for ax, (name, codebook) in zip(axes.flat, codebooks.items(), strict=True):
    CodebookDisplay.from_codebook(codebook, classes=list("abcde"), ax=ax)
    ax.set_title(f"{name}: {codebook.n_columns} machines, least distance {codebook.min_distance:g}", pad=26)
plt.show()

# %%
# One-vs-one, the default, has one column per pair of classes, each with few rows. One-vs-all has one column
# per class. The minimal code has the fewest columns that can separate all classes. ``"ecoc"``
# (error-correcting output codes) has columns chosen so that codewords differ in many places, which lets a
# decoder correct errors of single machines. ``"adaptive"`` grows its columns on the training rows, so that
# each separates classes that are easy to separate. On the digits, it groups those that look alike:
X, y = load_digits(return_X_y=True)
model = LSSVMClassifier(coding=Adaptive(), kernel="rbf", gamma=0.0005, C=10.0, decoding="softmax")
model.fit(X[:400], y[:400])
CodebookDisplay.from_estimator(model)
plt.title("Adaptive coding of ten digits", pad=26)
plt.show()
