"""What a benchmark says where a dataset is not there."""

from __future__ import annotations

import sys
from collections.abc import Callable

from polymargin.datasets import DatasetNotFound


def run(main: Callable[[], object]) -> None:
    """Run a benchmark; where a dataset is missing, end with the message that says what to set."""
    try:
        main()
    except DatasetNotFound as error:
        sys.exit(str(error))
