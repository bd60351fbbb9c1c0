"""Settings of a foreign A2A agent in a space."""

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
