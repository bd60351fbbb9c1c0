"""Everything that a person can do in a space, each defined once.

The shell has them as commands, `moot join` as slash commands, in lines and full screen.
"""

from __future__ import annotations

from typing import Final

from moot.tui.operations import calling, deciding, managing, saying, streaming
from moot.tui.operations.operation import Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *saying.OPERATIONS,
    *deciding.OPERATIONS,
    *calling.OPERATIONS,
    *managing.OPERATIONS,
    *streaming.OPERATIONS,
)
