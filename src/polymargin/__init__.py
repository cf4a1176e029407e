"""Multiclass kernel machines whose class probabilities can be trusted."""

from polymargin._version import __version__

__all__ = ["__version__"]
