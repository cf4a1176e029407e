"""How a solver's run ended."""

from __future__ import annotations

from enum import Enum
from typing import Any


def default_step_limit(n_variables: int) -> int:
    """Return the largest number of steps that a solver takes where no limit is given.

    Problems that can be solved to a usual tolerance take some tens or hundreds of steps per variable. Beyond a thousand
    the tolerance is out of reach for practical purposes, as with a huge C on classes that overlap.

    Examples
    --------
    >>> default_step_limit(10), default_step_limit(50_000)
    (1000000, 50000000)
    """
    return max(1_000_000, 1000 * n_variables)


class Outcome(Enum):
    """How a run ended: the value is advice to the user, the name is what model files hold."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        # By name too: the wording of the advice may change.
        return cls.__members__.get(value) if isinstance(value, str) else None

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.name,)
