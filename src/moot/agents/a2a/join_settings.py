"""Settings and limits of a foreign A2A agent in a space."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from moot.participant.programs.chat_intake import Answers
from moot.participant.programs.join_target import MemberSettings

# How chats are written: quoted below who wrote them, in one conversation, or as they are, with a conversation
# for each member.
MessageStyle = Literal["quoted", "bare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLimits:
    """Limits that keep an agent of others from running away, and from hanging."""

    # An answer of the agent.
    answer_seconds: float = 600.0
    # How long a task is followed in all, waiting for people of the other side included.
    task_seconds: float = 86_400.0
    # How long a lost connection to a running task is tried again.
    retry_seconds: float = 600.0
    # Tasks at once, and turns that one member may cause within a minute.
    max_tasks: int = 4
    max_chats_per_minute: int = 20
    # What the agent may say in one task; beyond that it is cancelled.
    max_task_chars: int = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSettings(MemberSettings):
    """One foreign agent as one member of one space.

    `state_folder` keeps the conversation, open tasks and questions.
    """

    # Where its card is, or below which its card is.
    url: str
    # What the agent wants to see from us, if it wants anything.
    agent_token: str | None = field(default=None, repr=False)
    # Keys that sign its card; without them a signature can only be checked by a key of the same server.
    card_keys: Path | None = None
    require_signature: bool = False
    # Other servers (https://host:port) that the card may name.
    allowed_origins: tuple[str, ...] = ()
    # Plain HTTP to other machines than this one.
    allow_plain_http: bool = False
    answers: Answers = "named"
    style: MessageStyle = "quoted"
    limits: JoinLimits = field(default_factory=JoinLimits)
