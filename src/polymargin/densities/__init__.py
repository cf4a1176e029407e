"""Density estimators: class probabilities from the training rows near a row, as classifiers and as soft labels.

They are the two estimators of Gönen, Tanuğur and Alpaydın (2008), §IV-A, and give `PosteriorSVMClassifier` its soft
labels.
"""

from polymargin.densities._neighbours import mean_nearest_distance
from polymargin.densities.knn import KNNPosterior
from polymargin.densities.window import WindowPosterior

__all__ = ["KNNPosterior", "WindowPosterior", "mean_nearest_distance"]
