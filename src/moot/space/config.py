"""How one space is set up: its rules, its participants and its limits. `moot.config` fills these in."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, NewType

import msgspec

from moot.protocol.envelope import DialectName, EnvelopeLimits
from moot.protocol.gateway_proposal import Undo
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, read_capabilities

SessionId = NewType("SessionId", str)
# A participant's logical name, as configured or invited. The runtime id on the wire may differ (D-19).
Name = NewType("Name", str)


class SpaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound of a space, with its default. 0 turns the two rates off."""

    # Ten times what a busy tool server says; a burst of one second's worth is fine.
    messages_per_second: float = 2_000
    # 8 MiB: eight of the largest envelopes.
    bytes_per_second: float = 8 << 20
    # D-22: a browser tab, a terminal, a few more. In a cluster, at each gateway; and of whoever signs in, for
    # each program.
    max_sessions_per_member: int = 8
    # D-07: how far back a repeated id is noticed.
    max_recent_ids: int = 10_000
    # How long an answer may be owed (D-15): long tools run for minutes, not hours.
    request_seconds: float = 3_600
    # Requests and controls of one member that wait for an answer.
    max_open_requests: int = 1_024
    # D-28: a day, so that a proposal made in the evening can be decided in the morning.
    proposal_seconds: float = 86_400
    # Open proposals of one member: nobody reviews more than that.
    max_open_proposals: int = 256
    # Open streams of one member.
    max_streams_per_member: int = 64
    # One stream frame, its `#id#` included.
    max_frame_bytes: int = 1 << 20
    # Participants that were invited, not configured.
    max_invited_participants: int = 1_000
    # Members that came by signing in at a provider of identities: the people of a large company's branch.
    max_signed_in_members: int = 10_000
    envelope: EnvelopeLimits = EnvelopeLimits()


class ParticipantConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One participant that the space knows from the start."""

    capabilities: tuple[Capability, ...] = ()
    exclusive: bool = False
    # SHA-256 of each token; the tokens themselves are known to nobody but their holder.
    credentials: tuple[str, ...] = ()


class Quorum(msgspec.Struct, frozen=True, kw_only=True):
    """D-103: a call that matches is made only by a proposal with this many approvals, whoever makes it."""

    pattern: Capability
    approvals_needed: int
    # Members whom this rule does not bind.
    exempt: tuple[Name, ...] = ()
    # Each approval is confirmed with a passkey; with a risk, only that of a call in which it is seen.
    passkey: bool = False
    risk: Literal["bad", "warn"] | None = None
    # Only calls of which `effects` says this, and those calls, which `approval_rules` fills in.
    undo: Undo | None = None
    undo_calls: tuple[Capability, ...] = ()


class PasskeyRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is approved with a passkey, and how somebody comes to the first one."""

    required: tuple[Quorum, ...] = ()
    # When signed in, or by an operator's link alone.
    first: Literal["session", "link"] = "session"


class Reminder(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the gateway notifies of a proposal that is pending for so long."""

    after_seconds: float
    # Globs of names.
    tell: tuple[str, ...]


# How long a budget lasts: from one full hour, midnight, Monday or first of the month (UTC) to the next.
BudgetPeriod = Literal["hour", "day", "week", "month"]


class SpaceBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be done in a time by calls that match: counted, or a number in their arguments summed."""

    name: str
    calls: Capability
    # Globs of names; empty: anybody.
    who: tuple[str, ...] = ()
    # Each of them has its own; otherwise all share one.
    each: bool = False
    # Where the number stands in the arguments; empty: calls are counted.
    sum: tuple[str, ...] = ()
    per: BudgetPeriod = "day"
    # Beyond it a person has to approve, beyond the other nobody can.
    ask_at: Decimal | None = None
    at_most: Decimal | None = None


class CallTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A call that belongs to another one: its arguments have `{places}` of that one's arguments."""

    tool: str
    # Empty: the host of the other call.
    to: str = ""
    arguments: Mapping[str, Json] = msgspec.field(default_factory=dict)


class ReconcileCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that tells what came of another one: its result is compared with these."""

    call: CallTemplate
    # What must be in the result, with these very values. None: it never proves that nothing was done.
    done: Mapping[str, Json]
    not_done: Mapping[str, Json] | None = None
    # `not_done` counts only so long after the call: before that it may still be on its way.
    after_seconds: float = 60


class SpaceEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What certain calls bring about: which is the same effect, and how it is taken back or found out."""

    name: str
    calls: Capability
    # A template over the arguments; empty: nothing is compared.
    key: str = ""
    # How long it is remembered that it was brought about.
    days: float = 30
    undo: Undo | None = None
    compensate: CallTemplate | None = None
    reconcile: ReconcileCall | None = None


# D-23: what anyone who may invite can give an invitee, though they hold less themselves.
INVITE_BASELINE = read_capabilities(
    [
        {"kind": "chat"},
        {"kind": "chat/acknowledge"},
        {"kind": "chat/cancel"},
        {"kind": "mcp/proposal"},
        {"kind": "mcp/withdraw"},
        {"kind": "mcp/response"},
        {"kind": "participant/status"},
        {"kind": "reasoning/*"},
    ]
)


class SpaceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one space."""

    name: str
    participants: Mapping[str, ParticipantConfig] = msgspec.field(default_factory=dict)
    # Who is let in, and whom a restricted space admits beside those that it lists. The gateway looks at both;
    # they are here so that all gateways of a cluster go by the same.
    access: Literal["private", "restricted", "public"] = "private"
    admit: frozenset[str] = frozenset()
    # Public spaces only: what an unnamed guest may do; None keeps guests out (D-21).
    anonymous: tuple[Capability, ...] | None = None
    # SHA-256 of a token → what it carries, where that is less than all of its participant's rights (MEW 5.1).
    token_limits: Mapping[str, tuple[Capability, ...]] = msgspec.field(default_factory=dict)
    dialects: frozenset[DialectName] = frozenset({"mew"})
    accept_protocols: frozenset[str] = frozenset()  # D-06
    delegation: Literal["covered", "unrestricted"] = "covered"  # D-16
    invite_baseline: tuple[Capability, ...] = INVITE_BASELINE
    kind_validation: Literal["minimal", "lazy"] = "minimal"  # D-48
    enforce_pause: bool = True  # D-25
    reference_compat: bool = False  # D-10, D-14, D-33, D-94
    unmapped: Literal["pass", "drop"] = "pass"  # D-56
    ack_delivery: Literal["all", "author"] = "all"  # D-32
    status_delivery: Literal["all", "requester"] = "all"  # D-32
    violation_notice: bool = False  # D-32
    separation_of_duties: bool = False  # D-28: a proposer never fulfils its own
    quorum: tuple[Quorum, ...] = ()
    passkeys: PasskeyRules = PasskeyRules()
    # D-103: the vote that completes a quorum makes the call; otherwise somebody approves it once more.
    last_vote_carries_out: bool = True
    budgets: tuple[SpaceBudget, ...] = ()
    effects: tuple[SpaceEffect, ...] = ()
    # In the order of their time.
    reminders: tuple[Reminder, ...] = ()
    # Proposals with a hint above this are not decided in a chat: their card only links to the page.
    chat_link_above: Literal["none", "info", "warn", "bad"] = "warn"
    # Where an invitee connects, `{id}` standing for its name (MEW 3.6.6); None leaves it out.
    connection_url: str | None = None
    limits: SpaceLimits = SpaceLimits()

    @property
    def approval_rules(self) -> tuple[Quorum, ...]:
        """Which calls need approvals, and which of these a passkey."""
        required = self.passkeys.required
        if not required:
            return self.quorum
        if any(each.undo for each in required):
            required = tuple(self._with_calls(each) for each in required)
        return (*self.quorum, *required)

    def _with_calls(self, rule: Quorum) -> Quorum:
        calls = tuple(each.calls for each in self.effects if rule.undo is not None and each.undo == rule.undo)
        return msgspec.structs.replace(rule, undo_calls=calls)
