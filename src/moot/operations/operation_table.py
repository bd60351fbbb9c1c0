"""Everything that a person can do in a space, each defined once.

The shell has them as commands, `moot join` as slash commands, in lines and full screen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moot.operations.operation import UserOperation

    OPERATIONS: tuple[UserOperation, ...]

# Module → its operations. A command loads the module of its own one: all of them take longer than most do.
_MODULES: Final = {
    "message_operations": ("send", "chat", "ack", "cancel", "stop"),
    "proposal_operations": ("proposals", "budgets"),
    "decision_operations": ("approve", "vote", "reject", "withdraw", "settle"),
    "compensate_operation": ("compensate",),
    "preview_operations": ("preview", "undo"),
    "talk_operations": ("delegate", "comment", "assign"),
    "plan_operations": ("plans", "plan"),
    "call_operations": ("tools", "call", "propose", "request", "reasoning"),
    "content_operation": ("content",),
    "member_operations": (
        "members", "invite", "grant", "revoke", "kick", "pause", "resume", "shutdown", "capabilities",
        "status", "control",
    ),
    # Only as slash commands.
    "stream_operations": (),
}  # fmt: skip


def operation_named(name: str) -> UserOperation:
    """The operation of this name; it has to be one that the shell has."""
    module = next(module for module, names in _MODULES.items() if name in names)
    return next(each for each in _operations_of(module) if each.name == name)


def _operations_of(module: str) -> tuple[UserOperation, ...]:
    found: tuple[UserOperation, ...] = import_module(f"moot.operations.{module}").OPERATIONS
    return found


def __getattr__(name: str) -> Any:
    if name != "OPERATIONS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return tuple(each for module in _MODULES for each in _operations_of(module))
