"""
ONNX: a model without Python
============================

A fitted pipeline is converted to an ONNX graph, which runs in a browser, on a phone or on a server without
Python. This needs the extra ``onnx``. On the command line, use ``polymargin export``.
"""

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polymargin.onnx
from polymargin import LSSVMClassifier

X, y = load_wine(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
model = make_pipeline(StandardScaler(), LSSVMClassifier(kernel="rbf")).fit(X_train, y_train)

# %%
# One call converts the model; the bytes can be written to a file. With ``float64=True``, inputs and outputs
# are in double precision; the default is float32, which most applications send.
graph = polymargin.onnx.to_onnx(model, float64=True).SerializeToString()
print(f"{len(graph) / 1024:.0f} KiB")

# %%
# ONNX Runtime predicts the same labels, and the same probabilities up to rounding.
session = onnxruntime.InferenceSession(graph)
feed = {session.get_inputs()[0].name: X_test}
labels, proba = session.run(None, feed)
differences = np.abs(proba - model.predict_proba(X_test)).max(axis=1)
print("same labels:", bool((labels == model.predict(X_test)).all()))
print(f"largest difference of a probability below 1e-9: {differences.max() < 1e-9}")

# %%
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.hist(np.log10(np.maximum(differences, 1e-18)), bins=30)
ax.set(xlabel="log10 of the difference between ONNX Runtime and Python", ylabel="test rows")
plt.show()
