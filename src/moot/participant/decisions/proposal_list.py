"""Proposals of everybody, as they were seen here (MEW 3.2, 3.3, 10.2; D-28).

    pending ── mcp/request that repeats it ──> fulfilled ── mcp/response to that request ──> it has a result
       ├────── mcp/withdraw by its proposer ─> withdrawn
       └────── time ─────────────────────────> expired

A rejection changes nothing of that: it is listed, and its proposer decides whether to go on waiting. The
ledger holds our own proposals and those of others alike; `proposing` waits for what becomes of the former.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from moot.errors import BadAnswer, Expired, FulfilmentCancelled, McpError, MemberLeft, ProposalSettled
from moot.participant.calls.outcome import MissedMessages, Rejection
from moot.participant.connection.envelope_sender import SendCounts
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.message_feed import Feed, Feeds, Reader, Spawn, called
from moot.participant.connection.roster import Roster
from moot.participant.limits import ParticipantLimits
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json

Status = Literal["pending", "fulfilled", "withdrawn", "expired"]


@dataclass(slots=True, eq=False)
class SeenProposal:
    """One proposal and what became of it so far."""

    envelope: Envelope
    expires: float  # seconds since 1970
    status: Status = "pending"
    rejections: list[Rejection] = field(default_factory=list)
    # Who voted for it, where the space asks for several (D-28).
    votes: list[str] = field(default_factory=list)
    # Who withdrew or fulfilled it, with which envelope, and why it was withdrawn.
    fulfilled_by: str | None = None
    request_id: str | None = None
    asked: tuple[str, ...] = ()
    reason: str | None = None
    # What came of the fulfilment.
    result: dict[str, Json] | None = None
    host: str | None = None
    fault: Exception | None = None
    # Since a reconnect: something about it may have been said that we did not hear.
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
    def is_over(self) -> bool:
        """Whether nothing more can come of it: a result is there, or none ever will be."""
        return self.status in ("withdrawn", "expired") or self.result is not None or self.fault is not None

    def check_open(self) -> None:
        """Raises ProposalSettled or Expired, saying what became of it and by whom."""
        match self.status:
            case "pending":
                return
            case "fulfilled":
                words = f"the proposal was already fulfilled by {self.fulfilled_by or 'somebody'}"
            case "withdrawn":
                why = f" ({self.reason})" if self.reason else ""
                words = f"the proposal was already withdrawn by {self.proposer}{why}"
            case "expired":
                raise Expired("the proposal has expired: it has to be proposed again")
        raise ProposalSettled(words, state=self.status)

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
            "createdAt": self.created,
            "expiresAt": rfc3339(self.expires),
        }

    def tell(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()


class ProposalList:
    """The ledger of one member. Bounded: what is over goes first, then the oldest."""

    def __init__(
        self,
        limits: ParticipantLimits,
        roster: Roster,
        inspector: InboundValidator,
        spawn: Spawn,
        counts: SendCounts,
    ) -> None:
        self._limits = limits
        self._roster = roster
        self._inspector = inspector
        self._spawn = spawn
        self._counts = counts
        self._seen: dict[str, SeenProposal] = {}
        self._bytes = 0
        # By the id of the request that fulfils one, and by the id of a rejection that may still be explained.
        self._fulfilments: dict[str, SeenProposal] = {}
        self._rejections: dict[str, Rejection] = {}
        self._arriving: Feeds[SeenProposal] = Feeds(counts)
        self._handlers: list[Callable[[SeenProposal], None]] = []
        self._handler_feeds: list[Feed[SeenProposal]] = []
        inspector.on_bad_answer.append(self._bad_answer)

    # Looking

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

    def arriving(self, *, size: int | None = None) -> Reader[SeenProposal]:
        """Every proposal from now on; a Gap tells of those that were missed."""
        return self._arriving.read(size or self._limits.feed_items)

    def on_proposal(self, handler: Callable[[SeenProposal], Any]) -> Callable[[SeenProposal], Any]:
        """Call this function or coroutine function for each proposal of others; works as a decorator."""
        self._handlers.append(
            called(handler, self._spawn, self._counts, self._limits.feed_items, self._handler_feeds)
        )
        return handler

    def is_faithful(self, request: Envelope) -> bool:
        """Whether a request that refers to proposals repeats each of them (D-28)."""
        for id in request.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and fingerprint(request.raw) != seen.fingerprint():
                return False
        return True

    # What is heard. Everything here has passed inspection.

    def proposal(self, envelope: Envelope, *, own: bool) -> SeenProposal:
        self._bytes += len(envelope.raw)
        self._make_room()
        seen = SeenProposal(envelope, time.time() + self._limits.proposal_seconds)
        self._seen[envelope.id] = seen
        if not own:
            self._arriving.put(seen)
            for handler in self._handlers:
                handler(seen)
        return seen

    def recalled(self, envelope: Envelope) -> None:
        """One from before we joined: known from now on, but no news. Its time began when it was made."""
        seen = self.proposal(envelope, own=True)
        with suppress(ValueError):
            made = datetime.fromisoformat(envelope.ts).timestamp()
            seen.expires = min(seen.expires, made + self._limits.proposal_seconds)

    def request(self, envelope: Envelope) -> None:
        """A request that refers to a proposal fulfils it: the gateway lets only the first one through."""
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is None or seen.status != "pending":
                continue
            seen.status = "fulfilled"
            seen.fulfilled_by = envelope.sender
            seen.request_id = envelope.id
            seen.asked = tuple(envelope.to)
            self._fulfilments[envelope.id] = seen
            seen.tell()

    def response(self, envelope: Envelope) -> None:
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is None or seen.is_over or (seen.asked and envelope.sender not in seen.asked):
                continue
            seen.host = envelope.sender
            error = envelope.payload.get("error")
            if error is None:
                seen.result = envelope.payload["result"]
            else:
                seen.fault = McpError(error["code"], error["message"], error.get("data"))
            del self._fulfilments[id]
            seen.tell()

    def cancelled(self, envelope: Envelope) -> None:
        """`notifications/cancelled` by whoever fulfilled a proposal: no answer will come."""
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is not None and seen.fulfilled_by == envelope.sender:
                self._failed(id, seen, FulfilmentCancelled(envelope.sender))

    def withdraw(self, envelope: Envelope) -> None:
        reason = envelope.payload.get("reason")
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and seen.status == "pending":
                seen.status = "withdrawn"
                seen.reason = reason if isinstance(reason, str) else "other"
                seen.tell()

    def reject(self, envelope: Envelope) -> None:
        reason = envelope.payload.get("reason")
        rejection = Rejection(
            envelope.id, envelope.sender, reason if isinstance(reason, str) and reason else "other"
        )
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and len(seen.rejections) < self._limits.items_per_context:
                seen.rejections.append(rejection)
                if len(self._rejections) >= self._limits.proposals_kept:
                    del self._rejections[next(iter(self._rejections))]
                self._rejections[envelope.id] = rejection
                seen.tell()

    def vote(self, envelope: Envelope) -> None:
        """`moot/approve`: one vote for it."""
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and envelope.sender not in seen.votes:
                seen.votes.append(envelope.sender)
                seen.tell()

    def chat(self, envelope: Envelope) -> None:
        """MEW 3.3.3: a chat that refers to a rejection explains it; only the rejecter's own words count."""
        for id in envelope.correlation_id:
            rejection = self._rejections.get(id)
            if rejection is not None and rejection.by == envelope.sender:
                rejection.explain(envelope.payload["text"])

    def left(self, member: str) -> None:
        """A host is gone: fulfilments that it alone was asked for fail, unless it is back soon."""
        waiting = [id for id, seen in self._fulfilments.items() if seen.asked == (member,)]
        if waiting:
            grace = self._limits.host_grace_seconds
            asyncio.get_running_loop().call_later(grace, self._stayed_away, member, waiting)

    def _stayed_away(self, member: str, waiting: list[str]) -> None:
        for id in waiting:
            seen = self._fulfilments.get(id)
            if seen is not None and member not in self._roster:
                self._failed(id, seen, MemberLeft(member))

    def _bad_answer(self, envelope: Envelope, fault: str) -> None:
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is not None and envelope.sender in seen.asked:
                self._failed(id, seen, BadAnswer(envelope.sender, fault))

    def _failed(self, id: str, seen: SeenProposal, fault: Exception) -> None:
        del self._fulfilments[id]
        seen.fault = fault
        seen.tell()

    def gap(self) -> None:
        """We were away: whatever is not over may have gone on without us."""
        for seen in self._seen.values():
            if not seen.is_over:
                seen.uncertain = True
                seen.tell()
        self._arriving.put(MissedMessages("reconnected"))

    def nothing_missed(self) -> None:
        """What was said while we were away has been heard after all."""
        for seen in self._seen.values():
            if seen.uncertain:
                seen.uncertain = False
                seen.tell()

    def end(self) -> None:
        self._arriving.end()
        for feed in self._handler_feeds:
            feed.end()

    def _expire(self) -> None:
        now = time.time()
        for seen in self._seen.values():
            if seen.status == "pending" and now >= seen.expires:
                seen.status = "expired"
                seen.tell()

    def _make_room(self) -> None:
        limits = self._limits
        if len(self._seen) < limits.proposals_kept and self._bytes <= limits.proposals_bytes:
            return
        self._expire()
        while self._seen and (
            len(self._seen) >= limits.proposals_kept or self._bytes > limits.proposals_bytes
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
