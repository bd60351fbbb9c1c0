"""Where a program joins, and as whom: what the settings of all of them begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moot.participant.limits import ParticipantLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTarget:
    """A gateway, a space and a member there."""

    gateway: str
    space: str = ""
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    # The member's name, for gateways that do not know whose token it is.
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings(JoinTarget):
    """Of a program that stays, and keeps something for the time after a restart."""

    state_folder: Path
    member: ParticipantLimits = field(default_factory=ParticipantLimits)
