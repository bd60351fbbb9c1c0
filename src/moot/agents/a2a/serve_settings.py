"""Settings and limits of members that are published as A2A agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from moot.participant import ParticipantLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """Limits of what callers may use up. They are strangers with a token."""

    # The size of one request.
    max_body_bytes: int = 1 << 20
    # Requests of one caller: at once (streams count), and within a minute.
    max_requests_at_once: int = 32
    max_requests_per_minute: int = 600
    # Callers that are connected.
    max_callers: int = 100
    # Wrong tokens of one address that are told why within a minute; further ones get 429.
    max_wrong_tokens_per_minute: int = 60
    # Cards that one address without a token may ask for within a minute: callers keep a card.
    max_cards_per_minute: int = 120
    # Tasks that are kept, those of one caller that are open, and how long ended ones are kept.
    max_tasks: int = 1_000
    max_open_tasks: int = 20
    keep_seconds: float = 86_400.0
    # A task without an end is ended after this; a proposal lasts as long.
    task_seconds: float = 86_400.0
    # How long a request waits for a task to be settled, if it wants to wait.
    blocking_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Members of one space as agents."""

    gateway: str
    space: str = ""
    token: str | None = field(default=None, repr=False)
    name: str | None = None
    # The members that agreed to be published.
    members: tuple[str, ...]
    # What stands in the cards; callers reach us there.
    public_url: str
    # Keeps the tasks.
    state_folder: Path
    # The address of the console, for links to proposals; none: no links.
    console: str = ""
    # Tell callers what members reason.
    share_reasoning: bool = False
    # Push notifications to addresses of our own network, also by plain HTTP.
    allow_private_push: bool = False
    limits: ServeLimits = field(default_factory=ServeLimits)
    member: ParticipantLimits = field(default_factory=ParticipantLimits)
