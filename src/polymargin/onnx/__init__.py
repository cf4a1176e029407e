"""Fitted models as ONNX files, which run without Python.

Importing this package tells skl2onnx about every estimator of polymargin, so that `skl2onnx.to_onnx` converts them and
pipelines with them. `to_onnx` does the same with sensible options, and computes in double precision from the first
step to the last:

    onnx_model = polymargin.onnx.to_onnx(model)
    Path("model.onnx").write_bytes(onnx_model.SerializeToString())

On the command line it is ``polymargin export``. Kernels given as functions or as matrices cannot be exported, nor can
more than a gigabyte of leaves (``scale="leaves"`` or ``"both"``).
"""

from __future__ import annotations

try:
    import onnx  # noqa: F401
    import skl2onnx  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"ONNX models need more packages ({error}): install polymargin with its onnx extra"
    ) from error

from polymargin.onnx.check import Agreement, check
from polymargin.onnx.convert import initial_types, to_onnx
from polymargin.onnx.estimators import register

__all__ = ["Agreement", "check", "initial_types", "register", "to_onnx"]

register()
