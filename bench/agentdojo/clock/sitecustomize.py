"""Sets the clock of a process to the day of a world: it is on the path of the processes of a space."""

import os
import time

_real, _shift = time.time, float(os.environ.get("MOOT_BENCH_SHIFT", "0"))
time.time = lambda: _real() + _shift
