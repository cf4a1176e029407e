"""What can be wrong with a model file."""

from __future__ import annotations

import struct
import zipfile
import zlib


class ModelFileError(ValueError):
    """A model cannot be saved, or a file cannot be loaded; the message says why."""


class ModelVersionWarning(UserWarning):
    """A model file was written with another release of scikit-learn than the one that loads it."""


#: What parsers raise on bytes that make no sense to them. Whoever forges a file chooses which.
PARSER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,  # recursion that is too deep, encrypted members, unknown compression
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
