"""Arrays in model files: what they declare must be what they are, before numpy and scipy make them."""

from __future__ import annotations

import io
import math
import re
import zipfile

import numpy as np
from scipy import sparse

from polymargin.persistence._container import check_sizes
from polymargin.persistence._errors import PARSER_ERRORS, ModelFileError

#: The header of an array as `numpy.save` writes it; numpy would read more than that.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<type>[<>|][biufcSUmM][1-9][0-9]{0,8}(\[[0-9]{0,9}[a-zA-Z]{1,7}\])?)', "
    rb"'fortran_order': (True|False), 'shape': \((?P<shape>([0-9]{1,18}, ?)*([0-9]{1,18})?)\), \} *\n",
    re.DOTALL,
)
#: The bytes before the text whose length the header gives.
_BEFORE_HEADER = 10


def check_array(content: bytes, name: str) -> None:
    """Refuse an array of objects or records, and one whose header promises other bytes than there are.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(3))
    >>> check_array(file.getvalue(), "0.npy")
    >>> check_array(file.getvalue()[:-1], "0.npy")
    Traceback (most recent call last):
        ...
    polymargin.persistence._errors.ModelFileError: its array 0.npy does not hold as many bytes as its header says
    """
    header = _HEADER.match(content)
    if header is None or int.from_bytes(header["length"], "little") != header.end() - _BEFORE_HEADER:
        raise ModelFileError(f"its array {name} has no header of an array of numbers or texts")
    sizes = [int(size) for size in header["shape"].replace(b",", b" ").split()]
    promised = math.prod(sizes) * np.dtype(header["type"].decode()).itemsize
    if promised != len(content) - header.end():
        raise ModelFileError(f"its array {name} does not hold as many bytes as its header says")


def check_sparse(content: bytes, name: str) -> None:
    """Refuse a sparse matrix whose indices point outside it: compiled code would follow them."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_sizes(archive.infolist(), len(content))
            for part in archive.namelist():
                check_array(archive.read(part), f"{name}/{part}")
        matrix = sparse.load_npz(io.BytesIO(content))
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except ModelFileError:
        raise
    except PARSER_ERRORS as error:
        raise ModelFileError(f"its sparse matrix {name} is not one: {error}") from error
