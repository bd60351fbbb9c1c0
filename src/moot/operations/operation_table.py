"""Everything that a person can do in a space, each defined once.

The shell has them as commands, `moot join` as slash commands, in lines and full screen.
"""

from __future__ import annotations

from typing import Final

from moot.operations import (
    call_operations,
    compensate_operation,
    content_operation,
    decision_operations,
    member_operations,
    message_operations,
    plan_operations,
    preview_operations,
    proposal_operations,
    stream_operations,
    talk_operations,
)
from moot.operations.operation import UserOperation

OPERATIONS: Final[tuple[UserOperation, ...]] = (
    *message_operations.OPERATIONS,
    *proposal_operations.OPERATIONS,
    *decision_operations.OPERATIONS,
    *compensate_operation.OPERATIONS,
    *preview_operations.OPERATIONS,
    *talk_operations.OPERATIONS,
    *plan_operations.OPERATIONS,
    *call_operations.OPERATIONS,
    *content_operation.OPERATIONS,
    *member_operations.OPERATIONS,
    *stream_operations.OPERATIONS,
)
