"""Comparison: every coding with every decoder.

`compare_codings` compares on one split; `polymargin.comparison.repeated` on many, with several kinds of machines, as an
experiment that may be killed and resumed, and `polymargin.comparison.standings` ranks what it found.
"""

from polymargin.comparison.codings import Prediction, Score, compare_codings, predict_codings

__all__ = ["Prediction", "Score", "compare_codings", "predict_codings"]
