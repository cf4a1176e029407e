"""
Your own decoder
================

A decoder turns the outputs of the machines into probabilities; it follows the conventions of scikit-learn
estimators. This one sums, for every class, the outputs of the machines, each with its sign in the codeword of
the class, and learns one parameter, the inverse temperature beta. Because ``learns`` is set, it is fitted on
leave-one-out outputs, so that beta is learned out-of-sample. Pass the object as ``decoding=``; nothing needs
to be registered.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polymargin import LSSVMClassifier
from polymargin.decoders import ProbabilisticDecoder
from polymargin.plots import ReliabilityDisplay


class Temperature(ProbabilisticDecoder):
    """p(class) ∝ exp(beta · Σ of the outputs, each with the sign it has in the class's codeword)."""

    learns = True

    def fit(self, codebook, outputs, class_index, *, priors=None, sample_weight=None):
        """Choose the beta with the lowest log-loss on the training rows."""
        super().fit(codebook, outputs, class_index)
        own = np.arange(class_index.size), class_index

        def loss(log_beta):
            return -np.average(
                log_softmax(np.exp(log_beta) * self._votes(outputs), axis=1)[own], weights=sample_weight
            )

        self.beta_ = float(np.exp(minimize_scalar(loss, bounds=(-3, 5), method="bounded").x))
        return self

    def log_proba(self, outputs):
        """Return the logarithms of the class probabilities, shape (n, K)."""
        return log_softmax(self.beta_ * self._votes(outputs), axis=1)

    def _votes(self, outputs):
        return outputs.margins @ self.codebook_.matrix.T


# %%
# Use it like any other decoder.
X_train, X_test, y_train, y_test = train_test_split(
    *load_wine(return_X_y=True), test_size=0.5, random_state=0
)
figure, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="constrained")
for ax, decoding in zip(axes, (Temperature(), "bayes", "coupled-softmax"), strict=True):
    model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf", decoding=decoding)).fit(
        X_train, y_train
    )
    proba = model.predict_proba(X_test)
    assert (model.predict(X_test) == model.classes_[proba.argmax(axis=1)]).all()
    print(
        f"{decoding!s:16s} log-loss {log_loss(y_test, proba):.2f}  accuracy {model.score(X_test, y_test):.1%}"
    )
    if isinstance(decoding, Temperature):
        print(f"{'':16s} beta {model[-1].decoder_.beta_:.1f}, learned from outputs that are", end=" ")
        print(model[-1].bank_.training_outputs(honest=True).provenance.replace("_", "-"))
    ReliabilityDisplay.from_predictions(y_test, proba, n_bins=4, n_resamples=50, random_state=0, ax=ax)
    ax.set_title(str(decoding))
plt.show()
