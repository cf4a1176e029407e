"""How a solver's run ended."""

from __future__ import annotations

from enum import Enum
from typing import Any


def default_step_limit(n_variables: int) -> int:
    """Return the largest number of steps that a solver takes where no limit is given.

    Most problems take some tens of steps per variable. Linear kernels with a large C take many more on classes that
    overlap: the 1000 scaled rows of german_numeric 3e6 steps with C = 100 and 6e7 with C = 1000, in 11 seconds.

    Examples
    --------
    >>> default_step_limit(10), default_step_limit(500_000)
    (100000000, 500000000)
    """
    return max(100_000_000, 1000 * n_variables)


class Outcome(Enum):
    """How a run ended: the value is advice to the user, the name is what model files hold."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        # By name too: the wording of the advice may change.
        return cls.__members__.get(value) if isinstance(value, str) else None

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.name,)
