"""Proposals of everybody, as they were seen here (MEW 3.2, 3.3, 10.2; D-28).

    pending ── mcp/request that repeats it ──> fulfilled ── mcp/response to that request ──> it has a result
       │                                            └────── moot/outcome ──> unknown, until a late answer
       ├────── mcp/withdraw by its proposer ─> withdrawn
       └────── time ─────────────────────────> expired

What happened before we joined or while we were away is asked of the gateway (`proposal_sync`).

A rejection changes none of these: it is listed, and the proposer decides whether to go on waiting. The list
holds our own proposals and those of others alike; `own_proposal` waits for the outcome of our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from moot.errors import (
    BadAnswer,
    CallOutcomeUnknown,
    Expired,
    FulfilmentCancelled,
    HostLeft,
    McpError,
    ProposalSettled,
    ResultMissed,
)
from moot.participant.calls.outcome import Rejection, add_explanation, error_of, result_of
from moot.participant.connection.message_feed import (
    Feeds,
    HandlerRunner,
    MissedMessages,
    Reader,
    RunningHandler,
)
from moot.participant.connection.roster import Roster
from moot.participant.limits import ParticipantLimits
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope, EnvelopeLimits, rfc3339
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json
from moot.resilience.steady_clock import SteadyClock

Status = Literal["pending", "fulfilled", "withdrawn", "expired"]
# What came of a fulfilment.
ExecutionOutcome = Literal["pending", "done", "failed", "unknown"]
# Whether the list has all that is open: the gateway said so, is being asked, or has not told.
Knowledge = Literal["known", "asking", "not_known"]


class GatewayProposal(msgspec.Struct):
    """One proposal as the gateway tells it (D-96)."""

    proposal_id: str
    state: Literal["open", "fulfilled", "withdrawn", "expired"]
    proposer: str = ""
    proposed_at: str = ""
    method: str = ""
    name: str | None = None
    expires_at: str = ""
    approved_by: list[str] = []
    rejected_by: list[str] = []
    settled_by: str | None = None
    fulfilled_by: str | None = None
    asked: list[str] = []
    outcome: ExecutionOutcome | None = None
    reason: str | None = None
    assessed_by: str | None = None
    note: str | None = None
    envelope: msgspec.Raw = msgspec.Raw()


@dataclass(slots=True, eq=False)
class SeenProposal:
    """One proposal and its state as far as it is known here."""

    envelope: Envelope
    expires: float  # seconds since 1970
    status: Status = "pending"
    rejections: list[Rejection] = field(default_factory=list)
    # Who voted for it, where the space asks for several (D-28).
    votes: list[str] = field(default_factory=list)
    # Who fulfilled it, with which request to whom; and why it was withdrawn.
    fulfilled_by: str | None = None
    request_id: str | None = None
    asked: tuple[str, ...] = ()
    reason: str | None = None
    # The result of the fulfilment.
    result: dict[str, Json] | None = None
    host: str | None = None
    fault: Exception | None = None
    # What the gateway, or a person in place of the host, says came of it; and in which words.
    told_outcome: ExecutionOutcome | None = None
    assessed_by: str | None = None
    note: str | None = None
    # Written down by us and not as it was sent: its params may have had members for us alone.
    recorded: bool = False
    # The gateway does not remember it: it is not open, and what became of it is not known.
    forgotten: bool = False
    # Since a reconnect: we may have missed something about it.
    uncertain: bool = False
    watchers: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _fingerprint: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def proposer(self) -> str:
        return self.envelope.sender

    @property
    def to(self) -> tuple[str, ...]:
        return tuple(self.envelope.to)

    @property
    def method(self) -> str:
        method: str = self.envelope.payload["method"]
        return method

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.envelope.payload.get("params", {})
        return params

    @property
    def created(self) -> str:
        return self.envelope.ts

    @property
    def outcome(self) -> ExecutionOutcome | None:
        """What came of a fulfilled one, as far as it is known; None while nobody has fulfilled it."""
        if self.status != "fulfilled":
            return None
        if self.result is not None:
            return "failed" if self.result.get("isError") is True else "done"
        if isinstance(self.fault, McpError | BadAnswer):
            return "failed" if isinstance(self.fault, McpError) else "unknown"
        if self.told_outcome is not None:
            return self.told_outcome
        return "unknown" if self.fault is not None else "pending"

    @property
    def is_over(self) -> bool:
        """Whether there is a result, or there never will be one."""
        return self.status in ("withdrawn", "expired") or self.result is not None or self.fault is not None

    def check_open(self) -> None:
        """Raises ProposalSettled or Expired if it cannot be decided any more."""
        match self.status:
            case "pending":
                return
            case "fulfilled":
                message = f"the proposal was already fulfilled by {self.fulfilled_by or 'somebody'}"
                if self.outcome == "unknown":
                    message += ", and what came of it is not known; it never runs again"
            case "withdrawn":
                why = f" ({self.reason})" if self.reason else ""
                message = f"the proposal was already withdrawn by {self.proposer}{why}"
            case "expired":
                raise Expired("the proposal has expired: it has to be proposed again")
        raise ProposalSettled(message, state=self.status)

    def fingerprint(self) -> str:
        if not self._fingerprint:
            self._fingerprint = fingerprint(self.envelope.raw)
        return self._fingerprint

    def record(self) -> dict[str, Json]:
        """As MEW 10.2 lists it."""
        return {
            "proposalId": self.id,
            "proposer": self.proposer,
            "target": list(self.to),
            "method": self.method,
            "params": self.params,
            "status": self.status,
            **({} if self.outcome is None else {"outcome": self.outcome}),
            "createdAt": self.created,
            "expiresAt": rfc3339(self.expires),
        }

    def _notify_watchers(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()


class RecordedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal of ours, written down by whoever wants to follow it after a restart."""

    id: str
    to: str
    method: str
    params: dict[str, Any]
    # Seconds since 1970.
    proposed_at: float


# It was sent once, under whatever limits held then.
_ANY_SIZE: Final = EnvelopeLimits(**dict.fromkeys(EnvelopeLimits.__struct_fields__, 1 << 62))


class ProposalList:
    """The proposals that one member knows. Bounded: what is over goes first, then the oldest."""

    def __init__(self, limits: ParticipantLimits, roster: Roster, runner: HandlerRunner) -> None:
        self._limits = limits
        self._clock = SteadyClock()
        self._roster = roster
        self._runner = runner
        self._seen: dict[str, SeenProposal] = {}
        self._bytes = 0
        # By the id of the request that fulfils one, and by the id of a rejection that may still be explained.
        self._fulfilments: dict[str, SeenProposal] = {}
        self._rejections: dict[str, Rejection] = {}
        self.knowledge: Knowledge = "not_known"
        # Open ones that the gateway told of, but that could not be read.
        self.unreadable: set[str] = set()
        self._incoming: Feeds[SeenProposal] = Feeds(runner.counts)
        self._handlers: list[RunningHandler[SeenProposal]] = []

    # Looking up

    def __iter__(self) -> Iterator[SeenProposal]:
        return iter(list(self._seen.values()))

    def __len__(self) -> int:
        return len(self._seen)

    def get(self, id: str) -> SeenProposal | None:
        self._expire()
        return self._seen.get(id)

    def open(self) -> list[SeenProposal]:
        """Those that can still be decided on, oldest first; rejected ones too, until withdrawn (D-28)."""
        self._expire()
        return [seen for seen in self._seen.values() if seen.status == "pending"]

    @property
    def known(self) -> bool:
        """Whether `open` is all there is. If not, nobody may be told that nothing is pending."""
        return self.knowledge == "known"

    def unknown_outcomes(self) -> list[SeenProposal]:
        """Those that were approved, and nobody knows what came of them; a person can settle them."""
        return [seen for seen in self._seen.values() if seen.outcome == "unknown"]

    def incoming(self, *, max_messages: int | None = None) -> Reader[SeenProposal]:
        """Every proposal of others from now on; `MissedMessages` in place of those that were missed."""
        return self._incoming.read(max_messages or self._limits.max_feed_messages)

    def on_proposal(self, handler: Callable[[SeenProposal], Any]) -> Callable[[SeenProposal], Any]:
        """Call this function or coroutine function for each proposal of others; works as a decorator."""
        self._handlers.append(self._runner.start(handler))
        return handler

    def is_faithful(self, request: Envelope) -> bool:
        """Whether a request that refers to proposals repeats each of them (D-28)."""
        for id in request.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and fingerprint(request.raw) != seen.fingerprint():
                return False
        return True

    # What arrives. All of it has passed the checks.

    def add(self, envelope: Envelope, *, own: bool) -> SeenProposal:
        self._bytes += len(envelope.raw)
        self._make_room()
        seen = SeenProposal(envelope, self._clock() + self._limits.proposal_seconds)
        self._seen[envelope.id] = seen
        if not own:
            self._incoming.put(seen)
            for handler in self._handlers:
                handler.call(seen)
        return seen

    def add_past(self, envelope: Envelope) -> None:
        """One from before we joined; no handler sees it. Its time began when it was made."""
        seen = self.add(envelope, own=True)
        with suppress(ValueError):
            made = datetime.fromisoformat(envelope.ts).timestamp()
            seen.expires = min(seen.expires, made + self._limits.proposal_seconds)

    def add_recorded(self, call: RecordedProposal, sender: str) -> SeenProposal:
        """One of ours from an earlier run, as we wrote it down; whoever asks the gateway learns the rest."""
        seen = self._seen.get(call.id)
        if seen is None:
            fields = {
                "protocol": "mew/v0.4",
                "id": call.id,
                "ts": rfc3339(call.proposed_at),
                "from": sender,
                "to": [call.to],
                "kind": "mcp/proposal",
                "payload": {"method": call.method, "params": call.params},
            }
            raw = strict_json.encode(fields)
            seen = self.add(DIALECTS["mew"].decode(raw, _ANY_SIZE), own=True)
            seen.recorded = True
        return seen

    def handle_request(self, envelope: Envelope) -> None:
        """A request that refers to a proposal fulfils it: the gateway delivers only the first one."""
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is None or seen.status != "pending":
                continue
            seen.status = "fulfilled"
            seen.fulfilled_by = envelope.sender
            seen.request_id = envelope.id
            seen.asked = tuple(envelope.to)
            self._fulfilments[envelope.id] = seen
            seen._notify_watchers()

    def handle_response(self, envelope: Envelope) -> None:
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is None or seen.result is not None or (seen.asked and envelope.sender not in seen.asked):
                continue
            seen.host = envelope.sender
            # A late answer counts more than what anybody said before.
            seen.told_outcome = None
            seen.fault = error_of(envelope.payload)
            if seen.fault is None:
                seen.result = result_of(envelope.payload)
            del self._fulfilments[id]
            seen._notify_watchers()

    def handle_cancellation(self, envelope: Envelope) -> None:
        """`notifications/cancelled` by whoever fulfilled a proposal: no answer will come."""
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is not None and seen.fulfilled_by == envelope.sender:
                self._fail(id, seen, FulfilmentCancelled(envelope.sender))

    def handle_outcome(self, envelope: Envelope) -> None:
        """`moot/outcome`: the gateway says that nobody can tell what came of it."""
        payload = envelope.payload
        seen = self._seen.get(str(payload.get("proposal_id")))
        if seen is None or seen.status != "fulfilled" or seen.result is not None:
            return
        seen.told_outcome = "unknown"
        if payload.get("reason") != "host_left" and seen.request_id is not None and seen.fault is None:
            # A host that left may be back in a moment (`handle_member_left`).
            self._fail(seen.request_id, seen, CallOutcomeUnknown(_describe_unknown(payload.get("reason"))))
            return
        seen._notify_watchers()

    def handle_settlement(self, envelope: Envelope) -> None:
        """`moot/settle`: a person says what came of it."""
        outcome, note = envelope.payload.get("outcome"), envelope.payload.get("note")
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and seen.outcome == "unknown" and outcome in ("done", "failed"):
                seen.told_outcome, seen.assessed_by = outcome, envelope.sender
                seen.note = note if isinstance(note, str) else None
                seen._notify_watchers()

    # What the gateway tells when it is asked

    def restore(self, told: GatewayProposal, envelope: Envelope | None) -> None:
        """Take over what the gateway says about one proposal; no handler sees it."""
        seen = self._seen.get(told.proposal_id)
        if seen is None:
            if envelope is None:
                if told.state == "open":
                    self.unreadable.add(told.proposal_id)
                return
            seen = self.add(envelope, own=True)
        elif seen.recorded and envelope is not None:
            # The bytes that an approval has to repeat, in place of what we wrote down.
            self._bytes += len(envelope.raw) - len(seen.envelope.raw)
            seen.envelope, seen.recorded, seen._fingerprint = envelope, False, ""
        self.unreadable.discard(told.proposal_id)
        with suppress(ValueError):
            seen.expires = datetime.fromisoformat(told.expires_at).timestamp()
        seen.uncertain = False
        seen.votes = list(told.approved_by)
        known = {each.by for each in seen.rejections}
        seen.rejections += [Rejection("", by, "other") for by in told.rejected_by if by not in known]
        if told.state == "fulfilled":
            self._restore_fulfilment(seen, told)
        elif told.state != "open" and seen.status == "pending":
            seen.status = told.state
        seen._notify_watchers()

    def _restore_fulfilment(self, seen: SeenProposal, told: GatewayProposal) -> None:
        seen.status = "fulfilled"
        seen.fulfilled_by, seen.request_id = told.fulfilled_by, told.settled_by
        seen.asked = tuple(told.asked)
        seen.assessed_by, seen.note = told.assessed_by, told.note
        if seen.result is not None or told.settled_by is None:
            return
        self._fulfilments[told.settled_by] = seen
        if told.outcome is None or told.outcome == "pending":
            return
        seen.told_outcome = told.outcome
        if told.outcome == "unknown":
            seen.fault = seen.fault or CallOutcomeUnknown(_describe_unknown(told.reason))
        else:
            seen.fault = seen.fault or ResultMissed(told.outcome)

    def mark_forgotten(self, id: str) -> None:
        """The gateway does not remember it, so it is not open."""
        seen = self._seen.get(id)
        if seen is not None and seen.status == "pending":
            seen.status = "expired"
            seen.forgotten = True
            seen._notify_watchers()

    def handle_withdrawal(self, envelope: Envelope) -> None:
        reason = envelope.payload.get("reason")
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and seen.status == "pending":
                seen.status = "withdrawn"
                seen.reason = reason if isinstance(reason, str) else "other"
                seen._notify_watchers()

    def handle_rejection(self, envelope: Envelope) -> None:
        reason = envelope.payload.get("reason")
        rejection = Rejection(
            envelope.id, envelope.sender, reason if isinstance(reason, str) and reason else "other"
        )
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and len(seen.rejections) < self._limits.max_messages_per_context:
                # In place of what the gateway told of it, which has no reason.
                seen.rejections = [no for no in seen.rejections if no.id or no.by != rejection.by]
                seen.rejections.append(rejection)
                if len(self._rejections) >= self._limits.max_proposals:
                    del self._rejections[next(iter(self._rejections))]
                self._rejections[envelope.id] = rejection
                seen._notify_watchers()

    def handle_vote(self, envelope: Envelope) -> None:
        """`moot/approve`: one vote for it."""
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and envelope.sender not in seen.votes:
                seen.votes.append(envelope.sender)
                seen._notify_watchers()

    def handle_chat(self, envelope: Envelope) -> None:
        """MEW 3.3.3: a chat that refers to a rejection explains it, if its sender is the rejecter."""
        for id in envelope.correlation_id:
            rejection = self._rejections.get(id)
            if rejection is not None and rejection.by == envelope.sender:
                add_explanation(rejection, envelope.payload["text"])

    def handle_member_left(self, member: str) -> None:
        """Fulfilments that only this member was asked for fail, unless it is back soon."""
        waiting = [id for id, seen in self._fulfilments.items() if seen.asked == (member,)]
        if waiting:
            grace = self._limits.host_return_seconds
            asyncio.get_running_loop().call_later(grace, self._fail_if_away, member, waiting)

    def _fail_if_away(self, member: str, waiting: list[str]) -> None:
        for id in waiting:
            seen = self._fulfilments.get(id)
            if seen is not None and member not in self._roster:
                self._fail(id, seen, HostLeft(member))

    def handle_bad_answer(self, envelope: Envelope, fault: str) -> None:
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is not None and envelope.sender in seen.asked:
                self._fail(id, seen, BadAnswer(envelope.sender, fault))

    def _fail(self, id: str, seen: SeenProposal, fault: Exception) -> None:
        if not isinstance(fault, CallOutcomeUnknown):
            # Of those that are unknown a late answer is still of interest.
            self._fulfilments.pop(id, None)
        seen.fault = fault
        seen._notify_watchers()

    def mark_uncertain(self) -> None:
        """We were away: whatever is not over may have changed without us."""
        self.knowledge = "not_known"
        for seen in self._seen.values():
            if not seen.is_over:
                seen.uncertain = True
                seen._notify_watchers()
        self._incoming.put(MissedMessages("reconnected"))

    def clear_uncertain(self) -> None:
        """Everything that we missed while we were away is known after all."""
        for seen in self._seen.values():
            if seen.uncertain:
                seen.uncertain = False
                seen._notify_watchers()

    def end(self) -> None:
        self._incoming.end()

    def _expire(self) -> None:
        now = self._clock()
        for seen in self._seen.values():
            if seen.status == "pending" and now >= seen.expires:
                seen.status = "expired"
                seen._notify_watchers()

    def _make_room(self) -> None:
        limits = self._limits
        if len(self._seen) < limits.max_proposals and self._bytes <= limits.max_proposal_bytes:
            return
        self._expire()
        while self._seen and (
            len(self._seen) >= limits.max_proposals or self._bytes > limits.max_proposal_bytes
        ):
            # Whoever is waiting for one keeps it: those are our own, and the gateway bounds them.
            over = (id for id, seen in self._seen.items() if seen.is_over and not seen.watchers)
            oldest = (id for id, seen in self._seen.items() if not seen.watchers)
            gone = next(over, None) or next(oldest, None)
            if gone is None:
                return
            forgotten = self._seen.pop(gone)
            self._bytes -= len(forgotten.envelope.raw)
            if forgotten.request_id is not None:
                self._fulfilments.pop(forgotten.request_id, None)


def _describe_unknown(reason: Json) -> str:
    why = {
        "host_left": "its host left before it answered",
        "host_removed": "its host was removed before it answered",
        "timed_out": "its host did not answer in time",
        "cancelled": "the call was cancelled",
        "gateway_restarted": "the gateway restarted before its host answered",
    }.get(str(reason), "no answer came")
    return f"{why}: whether it was carried out is not known, so check before doing it again"
