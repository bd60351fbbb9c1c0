"""Sets the clock of a process to that of a world, which goes on by leaps: it is on the path of the approver.

`MOOT_BENCH_CLOCK` is a file with one number, by how many seconds its clock differs from ours.
"""

import mmap
import os
import struct
import time

with open(os.environ["MOOT_BENCH_CLOCK"], "rb") as _file:
    _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
_real = time.time
time.time = lambda: _real() + struct.unpack("d", _shift)[0]
