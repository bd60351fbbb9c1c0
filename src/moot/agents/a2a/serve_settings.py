"""Settings of members that are published as A2A agents."""

from __future__ import annotations

from dataclasses import dataclass

from moot.participant.programs.join_target import MemberSettings


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
