"""Settings and limits of members that are published as A2A agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from moot.participant import ParticipantLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """Limits of what callers may use up. They are strangers with a token."""

    # One request: its size, and how long its body may take.
    max_body_bytes: int = 1 << 20
    body_seconds: float = 30.0
    # Requests of one caller: at once (streams count), and within a minute.
    max_requests_at_once: int = 32
    max_requests_per_minute: int = 600
    # Callers that are connected, and how long one without open tasks stays connected.
    max_callers: int = 100
    idle_seconds: float = 600.0
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
    # An agent may end its reasoning a moment before or after its answer.
    settle_seconds: float = 0.3
    # A call of a tool that needs no approval.
    call_seconds: float = 300.0
    # One message of a caller: its text, all of it, and each id that it gives; and those to one task.
    max_message_chars: int = 100_000
    max_message_bytes: int = 512 << 10
    max_id_chars: int = 256
    max_task_messages: int = 1_000
    # Messages and artifacts that a task keeps, the latest; one artifact.
    max_history_messages: int = 100
    max_history_bytes: int = 1 << 20
    max_artifacts: int = 100
    max_artifact_bytes: int = 256 << 10
    # Events that a stream may be behind before it is cut.
    max_waiting_events: int = 1_000
    # The tools of a member on its card, the schemas of their arguments, and how long they are taken as they
    # were.
    max_skills: int = 100
    max_schemas_bytes: int = 64 << 10
    skills_seconds: float = 30.0
    # Push notifications: targets of one task, the time of one, tries, and those that wait.
    max_push_targets: int = 5
    push_seconds: float = 15.0
    max_push_tries: int = 3
    push_retry_seconds: float = 2.0
    max_waiting_pushes: int = 1_000


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
