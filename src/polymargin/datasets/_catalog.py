"""The known datasets: their shapes, and where to find those that others distribute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

ALL = ("*",)
"""Stands for every column in `Known.nominal`."""


@dataclass(frozen=True)
class OpenML:
    """A pinned OpenML dataset and how its labels translate to ours (a label not named stays as it is).

    Only all-numeric sets are pinned: nominal columns would come as codes in an order of OpenML's own. Their
    rows may be in another order than in the original files, so there is an official split only where
    `split` has the ends of the training and of the test rows.
    """

    data_id: int
    labels: Mapping[str, str] = field(default_factory=dict)
    split: tuple[int, int] | None = None


@dataclass(frozen=True)
class Known:
    """What is known of a dataset beforehand.

    Attributes
    ----------
    name : str
        Its name, also of its file.
    n_samples, n_features, n_classes : int
        Its size.
    nominal : tuple of str
        Columns whose values are codes without an order, or `ALL`.
    text : bool
        Whether the nominal columns are read as text; `X` is then an object array.
    dtype : dtype
        How numbers are stored.
    openml : OpenML or None
        The same data at OpenML, where that is certain.
    """

    name: str
    n_samples: int
    n_features: int
    n_classes: int
    nominal: tuple[str, ...] = ()
    text: bool = False
    dtype: DTypeLike = np.float64
    openml: OpenML | None = None


_CONTRACEPTIVE_CODES = (
    "wife_education",
    "husband_education",
    "wife_religion",
    "wife_working",
    "husband_occupation",
    "living_standard",
    "media_exposure",
)
_GLASS = {
    "build wind float": "1",
    "build wind non-float": "2",
    "vehic wind float": "3",
    "vehic wind non-float": "4",
    "containers": "5",
    "tableware": "6",
    "headlamps": "7",
}
_SEGMENT = {
    name: name.upper() for name in ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
}

_KNOWN = (
    Known("balance", 625, 4, 3, openml=OpenML(11)),
    Known("banana", 5300, 2, 2),
    Known("bupa", 345, 6, 2),
    Known("car", 1728, 6, 4, nominal=ALL, text=True),
    Known("car_onehot", 1728, 21, 4),
    Known("contraceptive", 1473, 9, 3, nominal=_CONTRACEPTIVE_CODES, text=True),
    Known("contraceptive_onehot", 1473, 24, 3),
    Known("covtype_15k", 15000, 54, 7),
    Known("dermatology", 366, 34, 6),
    Known("digits", 1797, 64, 10),
    Known("german_numeric", 1000, 24, 2),
    Known("glass", 214, 9, 6, openml=OpenML(41, _GLASS)),
    Known("heart", 270, 13, 2, openml=OpenML(53, {"absent": "1", "present": "2"})),
    Known("ionosphere", 351, 34, 2, openml=OpenML(59)),
    Known("iris", 150, 4, 3),
    Known("led7_3200", 3200, 7, 10),
    Known("led7digit", 500, 7, 10),
    Known("letter", 20000, 16, 26, openml=OpenML(6)),
    Known("mnist", 70000, 784, 10, dtype=np.uint8, openml=OpenML(554, split=(60000, 70000))),
    Known("new_thyroid", 215, 5, 3),
    Known("pima", 768, 8, 2, openml=OpenML(37, {"tested_negative": "0", "tested_positive": "1"})),
    Known("satimage", 6435, 36, 6),
    Known("segment", 2310, 19, 7, openml=OpenML(36, _SEGMENT)),
    Known("sonar", 208, 60, 2, openml=OpenML(40, {"Mine": "M", "Rock": "R"})),
    Known("soybean_large", 683, 35, 19, nominal=ALL),
    Known("soybean_small", 47, 35, 4, nominal=ALL),
    Known("spambase", 4601, 57, 2, openml=OpenML(44)),
    Known("splice", 3190, 60, 3, nominal=ALL, text=True),
    Known("splice_onehot", 3190, 240, 3),
    Known("twonorm", 7400, 20, 2),
    Known("usps", 9298, 256, 10),
    Known("vehicle", 846, 18, 4, openml=OpenML(54)),
    Known("vowel", 990, 10, 11),
    Known("waveform", 5000, 21, 3),
    Known("wdbc", 569, 30, 2),
    Known("wine", 178, 13, 3),
    Known("zoo", 101, 16, 7),
)

CATALOG: Mapping[str, Known] = {known.name: known for known in _KNOWN}
"""Every known dataset by name."""
