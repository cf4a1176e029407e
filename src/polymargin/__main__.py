"""``python -m polymargin`` is the command line."""

from polymargin.cli import app

if __name__ == "__main__":
    app(prog_name="polymargin")
