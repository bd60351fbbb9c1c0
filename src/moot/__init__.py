"""Moot: a shared workspace where people, agents and MCP tools meet.

The names below are the public ones. They are loaded when first used, so that `import moot` costs nothing
and `import moot.space` loads no server.
"""

from __future__ import annotations

from importlib import import_module

# As `typing` has it, which takes longer to load than all of this, for every command.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from moot.errors import MootError, Refused, UsageError
    from moot.participant.connect import connect
    from moot.participant.own_token import token_from
    from moot.protocol.dialects import DIALECTS
    from moot.protocol.envelope import Envelope
    from moot.protocol.patterns import Capability, covers, read_capability
    from moot.space.config import ParticipantConfig, SpaceConfig, SpaceLimits
    from moot.space.effects import Deliver, Effect, Mint, Reply, Token
    from moot.space.members.member import Options
    from moot.space.space import Space

__version__: Final = "0.3.0.dev0"

_HOMES: Final = {
    "Capability": "moot.protocol.patterns",
    "DIALECTS": "moot.protocol.dialects",
    "Deliver": "moot.space.effects",
    "Effect": "moot.space.effects",
    "Envelope": "moot.protocol.envelope",
    "Mint": "moot.space.effects",
    "MootError": "moot.errors",
    "Options": "moot.space.members.member",
    "ParticipantConfig": "moot.space.config",
    "Refused": "moot.errors",
    "Reply": "moot.space.effects",
    "Space": "moot.space.space",
    "SpaceConfig": "moot.space.config",
    "SpaceLimits": "moot.space.config",
    "Token": "moot.space.effects",
    "UsageError": "moot.errors",
    "connect": "moot.participant.connect",
    "covers": "moot.protocol.patterns",
    "read_capability": "moot.protocol.patterns",
    "token_from": "moot.participant.own_token",
}

__all__ = [
    "DIALECTS",
    "Capability",
    "Deliver",
    "Effect",
    "Envelope",
    "Mint",
    "MootError",
    "Options",
    "ParticipantConfig",
    "Refused",
    "Reply",
    "Space",
    "SpaceConfig",
    "SpaceLimits",
    "Token",
    "UsageError",
    "connect",
    "covers",
    "read_capability",
    "token_from",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'moot' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
