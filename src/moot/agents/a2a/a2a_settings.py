"""Settings of A2A: of a foreign agent in a space, and of members that are published as agents."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(MemberSettings):
    """Members of one space as agents. `state_folder` keeps the tasks."""

    # The members that agreed to be published.
    members: tuple[str, ...]
    # What stands in the cards; callers reach us there.
    public_url: str
    # The address of the console, for links to proposals; none: no links.
    console: str = ""
    # Tell callers what members reason.
    share_reasoning: bool = False
    # Push notifications to addresses of our own network, also by plain HTTP.
    allow_private_push: bool = False
    # What one caller, a stranger with a token, may use up: requests within a minute, and tasks that are open.
    max_requests_per_minute: int = 600
    max_open_tasks: int = 20
