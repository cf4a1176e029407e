"""Tables of results, as the documentation reads them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path


def write_table(path: Path, lines: Sequence[Sequence[str]]) -> None:
    """Write a table to a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
