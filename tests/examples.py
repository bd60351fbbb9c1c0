"""How many random cases a test tries: a few in each run, many times as many in `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_TIMES: Final = int(os.environ.get("MOOT_EXAMPLES_TIMES", "1"))
# Of a test that does not say how many.
USUAL: Final = 25


def examples(count: int = USUAL) -> int:
    """So many in a run of all tests; in a soak as many times that as it says."""
    return count * _TIMES


def run_properties(times: int, seed: int) -> str:
    """The same tests with many times the cases; raises if one fails."""
    environment = os.environ | {"MOOT_EXAMPLES_TIMES": str(times)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", f"--hypothesis-seed={seed}"]
    subprocess.run(command, cwd=_ROOT, env=environment, check=True)  # noqa: S603
    return f"all properties held, with {times} times the usual cases"
