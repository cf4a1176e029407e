"""The command ``polymargin``, and ``python -m polymargin``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from polymargin.cli import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("typer", "rich"):
            raise
        sys.exit(
            f"polymargin: the command line needs {missing}, which is not installed: "
            "install polymargin with its cli extra"
        )
    app(prog_name="polymargin")


if __name__ == "__main__":
    main()
