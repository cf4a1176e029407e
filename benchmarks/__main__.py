"""Run benchmarks by name, or all of them: ``python -m benchmarks lssvm smo``.

Each is also a script with options of its own: ``python benchmarks/quality.py --help``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def main(wanted: list[str]) -> None:
    """Run the benchmarks that are asked for."""
    if {"-h", "--help"} & set(wanted):
        print(f"{__doc__}\nBenchmarks: {', '.join(NAMES)}")
        return
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    for name in wanted or NAMES:
        print(f"== {name}", flush=True)
        # A process of its own: some pin the number of threads before anything is imported.
        subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
