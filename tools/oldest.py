"""Print the oldest versions that pyproject.toml allows of what polymargin needs, as requirements for pip."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> None:
    """Print one requirement per line: of the package itself, and of the extras that are named as arguments."""
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    needed = [*project["dependencies"]]
    for extra in sys.argv[1:]:
        needed += project["optional-dependencies"][extra]
    print("\n".join(requirement.replace(">=", "==") for requirement in needed))


if __name__ == "__main__":
    main()
