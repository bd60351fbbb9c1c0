"""Settings and limits of members that are published as A2A agents."""

from __future__ import annotations

from dataclasses import dataclass, field

from moot.participant.programs.join_target import MemberSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """Limits of what callers may use up. They are strangers with a token."""

    # Requests of one caller within a minute.
    max_requests_per_minute: int = 600
    # Wrong tokens of one address that are told why within a minute; further ones get 429.
    max_wrong_tokens_per_minute: int = 60
    # Cards that one address without a token may ask for within a minute: callers keep a card.
    max_cards_per_minute: int = 120
    # Tasks of one caller that are open.
    max_open_tasks: int = 20
    # How long a request waits for a task to be settled, if it wants to wait.
    blocking_seconds: float = 300.0


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
    limits: ServeLimits = field(default_factory=ServeLimits)
