"""How a solver's run ended."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Outcome(Enum):
    """How a run ended: the value is advice to the user, the name is what model files hold."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        # By name too: the wording of the advice may change.
        return cls.__members__.get(value) if isinstance(value, str) else None

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.name,)
