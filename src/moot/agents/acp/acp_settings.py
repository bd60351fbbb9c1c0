"""Settings and limits of an ACP agent in a space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moot.mcp.stdio_child import ChildLimits
from moot.participant import ParticipantLimits
from moot.participant.programs.chat_intake import Answers
from moot.protocol.envelope import DialectName
from moot.resilience.restart_loop import DEFAULT_RESTART, RestartPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpLimits:
    """Limits that keep an agent of others from running away, and from hanging."""

    # The first answer of an agent; one that npx fetches first takes longer than one that is installed.
    start_seconds: float = 120.0
    # Answers to everything but prompts.
    answer_seconds: float = 60.0
    # How long a cancelled turn may go on before the agent is ended.
    cancel_seconds: float = 10.0
    # How long one turn may take in all, waiting for people included: a day, as a proposal.
    turn_seconds: float = 86_400.0
    # One step of the probe at the start: the model is asked twice for something small.
    probe_seconds: float = 120.0
    # How often it is looked whether settings of the agent in its folder have changed; also after each call.
    settings_check_seconds: float = 2.0
    # How long an agent may say nothing in a turn, with nothing to decide, before people are told.
    quiet_seconds: float = 120.0
    # Edits and commands that nobody was asked about, told one by one in a turn; then their number.
    max_unasked_notes: int = 5
    # How long an explanation of a rejection is waited for, before the agent is told.
    explanation_seconds: float = 2.0
    # Chats that wait for their turn, and turns that one member may cause within a minute.
    max_queued_turns: int = 32
    max_turns_per_minute: int = 20
    # Rejections after which the agent is not prompted again by itself: then somebody has to talk to it.
    max_rejections: int = 3
    # Permissions of one turn that come to nothing; then it is cancelled.
    max_refusals: int = 30
    # Permission requests that are open at once; more are refused.
    max_open_permissions: int = 16
    # How often the agent may change a call while people decide about it; then it is refused.
    max_call_changes: int = 5
    # Tool calls, and characters of messages and thoughts, of one turn; beyond that it is cancelled.
    max_tool_calls: int = 1_000
    max_turn_chars: int = 2_000_000
    # One chat or thought; longer ones are sent in parts.
    max_text_chars: int = 16_000
    # What one act shows of a diff, an input or an output. A proposal has all of it, or is not made.
    max_shown_chars: int = 4_000
    # A proposal, below what one envelope holds. A change that cannot be shown cannot be decided.
    max_proposal_bytes: int = 512 << 10
    # Updates of the agent that wait to be sent; then it is not read until there is room.
    max_waiting_updates: int = 1_000
    # Acts and thoughts that are sent within a second; updates of one tool call are joined meanwhile.
    max_acts_per_second: float = 20.0
    # What the agent may write in one line, and leave unread.
    child: ChildLimits = field(default_factory=ChildLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSettings:
    """One ACP agent as one member of one space."""

    argv: tuple[str, ...]
    # The folder that it works in.
    folder: Path
    gateway: str
    space: str = ""
    token: str | None = field(default=None, repr=False)
    # The member's name, for gateways that do not know whose token it is.
    name: str | None = None
    dialect: DialectName = "mew"
    # Listed for the agent; may hold keys.
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Our own variables, of which the harmless ones and those that a known agent needs are passed on.
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Keeps the session, what was not answered yet, and the home of the agent.
    state_folder: Path
    # Use the home of the person who starts it, with all settings there.
    keep_home: bool = False
    # Use the sign-in of that home, and nothing else of it.
    use_sign_in: bool = False
    # Start although the folder holds settings of the agent that may allow things.
    trust_folder: bool = False
    # Whether the agent is asked at the start to do something for which it must ask.
    probe: bool = True
    # Join although the probe showed that it acts without asking.
    accept_unasked: bool = False
    answers: Answers = "named"
    limits: AcpLimits = field(default_factory=AcpLimits)
    member: ParticipantLimits = field(default_factory=ParticipantLimits)
    restart: RestartPolicy = DEFAULT_RESTART
