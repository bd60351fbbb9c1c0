"""Proposals of everybody, as they were seen here (MEW 3.2, 3.3, 10.2; D-28).

    pending ── mcp/request that repeats it ──> fulfilled ── mcp/response to that request ──> it has a result
       │                                            └────── moot/outcome ──> unknown, until a late answer
       ├────── mcp/withdraw by its proposer, or its proposer is removed ─> withdrawn
       └────── time ─────────────────────────> expired

What happened before we joined or while we were away is asked of the gateway (`proposal_sync`).

A rejection changes none of these: it is listed, and the proposer decides whether to go on waiting. The list
holds our own proposals and those of others alike; `own_proposal` waits for the outcome of our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

from moot.errors import BadAnswer, CallOutcomeUnknown, FulfilmentCancelled, HostLeft, ResultMissed
from moot.participant.calls.outcome import Rejection, add_explanation, error_of, result_of
from moot.participant.connection.message_feed import (
    Feeds,
    HandlerRunner,
    MissedMessages,
    Reader,
    RunningHandler,
)
from moot.participant.connection.roster import Roster
from moot.participant.decisions.seen_proposal import GatewayProposal, RecordedProposal, SeenProposal
from moot.participant.limits import ParticipantLimits
from moot.protocol import strict_json
from moot.protocol.continuation import given_input, is_same_call
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope, EnvelopeLimits, rfc3339
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json
from moot.protocol.unknown_outcome import unknown_reason
from moot.resilience.steady_clock import SteadyClock

# Whether the list has all that is open: the gateway said so, is being asked, or has not told.
# `not_told`: this gateway does not know the question.
Knowledge = Literal["known", "asking", "not_known", "not_told"]


# It was sent once, under whatever limits held then.
_ANY_SIZE: Final = EnvelopeLimits(**dict.fromkeys(EnvelopeLimits.__struct_fields__, 1 << 62))


class ProposalList:
    """The proposals that one member knows. Bounded: what is over goes first, then the oldest."""

    def __init__(self, limits: ParticipantLimits, roster: Roster, runner: HandlerRunner) -> None:
        self._limits = limits
        self._clock = SteadyClock()
        # By how much the gateway's clock is ahead of ours, as far as it was told.
        self._gateway_ahead_seconds = 0.0
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
            if seen is None or self._continues(seen, request):
                continue
            if fingerprint(request.raw) != seen.fingerprint():
                return False
        return True

    # What arrives. All of it has passed the checks.

    def add(self, envelope: Envelope, *, own: bool) -> SeenProposal:
        seen = self._seen.get(envelope.id)
        # The history repeats what the gateway told: whoever holds it sees what becomes of it.
        if seen is None or seen.envelope.raw != envelope.raw:
            self._bytes += len(envelope.raw)
            self._make_room()
            seen = SeenProposal(envelope, self._gateway_now() + self._limits.proposal_seconds)
            seen.proposer_name = self._roster.names_of([envelope.sender])[0]
            for other in self._seen.values():
                if other.status == "pending" and other.is_same_call(seen):
                    seen.alike.append(other)
                    other.alike.append(seen)
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
        """A request that refers to a proposal fulfils it: the gateway delivers only the first one.

        Or it is of the proposer, and brings the input that the host asked for.
        """
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is None:
                continue
            if self._continues(seen, envelope):
                given = envelope.payload["params"].get("inputResponses")
                seen.inputs.append(given if isinstance(given, dict) else {})
                seen.result = seen.told_outcome = seen.fault = None
            elif seen.status == "pending":
                seen.status = "fulfilled"
                seen.fulfilled_by = envelope.sender
            else:
                continue
            seen.request_id = envelope.id
            seen.asked = tuple(envelope.to)
            self._fulfilments[envelope.id] = seen
            seen.notify_watchers()

    def _continues(self, seen: SeenProposal, request: Envelope) -> bool:
        """Whether a request brings the input that an approved call of its sender waits for (`wants_input`).

        The gateway has checked that the host asked for it, which we may not have heard.
        """
        return (
            seen.status == "fulfilled"
            and request.sender == seen.proposer
            and seen.request_id != request.id
            and given_input(request.payload.get("params")) is not None
            and is_same_call(seen.envelope.raw, request.raw)
        )

    def handle_response(self, envelope: Envelope) -> None:
        for id in envelope.correlation_id:
            seen = self._fulfilments.get(id)
            if seen is None or seen.result is not None or (seen.asked and envelope.sender not in seen.asked):
                continue
            seen.host = envelope.sender
            fault = error_of(envelope.payload)
            if isinstance(fault, CallOutcomeUnknown):
                self._fail(id, seen, fault)
                continue
            # A late answer counts more than what anybody said before.
            seen.told_outcome = None
            seen.fault = fault
            if fault is None:
                seen.result = result_of(envelope.payload)
            del self._fulfilments[id]
            seen.notify_watchers()

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
        seen.notify_watchers()

    def handle_settlement(self, envelope: Envelope) -> None:
        """`moot/settle`: a person says what came of it."""
        outcome, note = envelope.payload.get("outcome"), envelope.payload.get("note")
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and seen.outcome == "unknown" and outcome in ("done", "failed"):
                seen.told_outcome, seen.assessed_by = outcome, envelope.sender
                seen.note = note if isinstance(note, str) else None
                seen.notify_watchers()

    # What the gateway tells when it is asked

    def restore(self, reported: GatewayProposal, envelope: Envelope | None) -> None:
        """Take over what the gateway says about one proposal; no handler sees it."""
        seen = self._seen.get(reported.proposal_id)
        if seen is None:
            if envelope is None:
                self._note_unreadable(reported)
                return
            seen = self.add(envelope, own=True)
        elif seen.recorded and envelope is not None:
            # The bytes that an approval has to repeat, in place of what we wrote down.
            self._bytes += len(envelope.raw) - len(seen.envelope.raw)
            seen.envelope, seen.recorded, seen._fingerprint = envelope, False, ""
        if seen.recorded:
            self._note_unreadable(reported)
        else:
            self.unreadable.discard(reported.proposal_id)
        with suppress(ValueError):
            seen.expires = datetime.fromisoformat(reported.expires_at).timestamp()
        seen.uncertain = False
        seen.votes = list(reported.approved_by)
        seen.approvals_needed, seen.approvals_missing = reported.approvals_needed, reported.approvals_missing
        seen.exempt = list(reported.exempt)
        known = {each.by for each in seen.rejections}
        seen.rejections += [
            Rejection("", by, reason) for by, reason in reported.rejections if by not in known
        ]
        if reported.state == "fulfilled":
            self._restore_fulfilment(seen, reported)
        elif reported.state != "open" and seen.status == "pending":
            seen.status = reported.state
        elif reported.state == "open" and seen.status in ("expired", "withdrawn"):
            # It was so by our clock alone, or by the removal of somebody who is back.
            seen.status, seen.reason, seen.forgotten = "pending", None, False
        seen.notify_watchers()

    def _note_unreadable(self, reported: GatewayProposal) -> None:
        """Its bytes are not here: while it is open, what is pending is not known."""
        if reported.state == "open":
            self.unreadable.add(reported.proposal_id)
        else:
            self.unreadable.discard(reported.proposal_id)

    def _restore_fulfilment(self, seen: SeenProposal, reported: GatewayProposal) -> None:
        seen.status = "fulfilled"
        seen.fulfilled_by, seen.request_id = reported.fulfilled_by, reported.settled_by
        seen.asked = tuple(reported.asked)
        seen.assessed_by, seen.note = reported.assessed_by, reported.note
        if seen.result is not None or reported.settled_by is None:
            return
        self._fulfilments[reported.settled_by] = seen
        if reported.outcome is None or reported.outcome == "pending":
            return
        seen.told_outcome = reported.outcome
        if reported.outcome == "unknown":
            seen.fault = seen.fault or CallOutcomeUnknown(_describe_unknown(reported.reason))
        else:
            seen.fault = seen.fault or ResultMissed(reported.outcome)

    def mark_forgotten(self, id: str) -> None:
        """The gateway does not remember it, so it is not open."""
        seen = self._seen.get(id)
        if seen is not None and seen.status == "pending":
            seen.status = "expired"
            seen.forgotten = True
            seen.notify_watchers()

    def handle_withdrawal(self, envelope: Envelope) -> None:
        reason = envelope.payload.get("reason")
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and seen.status == "pending":
                seen.status = "withdrawn"
                seen.reason = reason if isinstance(reason, str) else "other"
                seen.notify_watchers()

    def handle_kick(self, envelope: Envelope) -> None:
        self.handle_removal(envelope.payload.get("participant_id"))

    def handle_removal(self, *names: Json) -> None:
        """Decision 0015: what a removed member proposed is withdrawn, without a message for each."""
        for seen in self._seen.values():
            if seen.status == "pending" and (seen.proposer in names or seen.proposer_name in names):
                seen.status, seen.reason = "withdrawn", "removed"
                seen.notify_watchers()

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
                seen.notify_watchers()

    def handle_vote(self, envelope: Envelope) -> None:
        """`moot/approve`: one vote for it."""
        for id in envelope.correlation_id:
            seen = self._seen.get(id)
            if seen is not None and envelope.sender not in seen.votes:
                seen.votes.append(envelope.sender)
                seen.notify_watchers()

    def handle_count(self, envelope: Envelope) -> None:
        """`moot/votes`: how many votes the gateway has counted for a proposal."""
        payload = envelope.payload
        seen = self._seen.get(str(payload["proposal_id"]))
        if seen is None:
            return
        seen.votes, seen.exempt = list(payload["approved_by"]), list(payload["exempt"])
        seen.approvals_needed = payload["approvals_needed"]
        seen.approvals_missing = payload["approvals_missing"]
        seen.counted_vote = str(payload.get("vote_id", ""))
        refusal, request = payload.get("not_carried_out"), payload.get("request_id")
        seen.counted_request = request if isinstance(request, str) else None
        seen.not_carried_out = refusal if isinstance(refusal, dict) else None
        seen.notify_watchers()

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
        seen.notify_watchers()

    def mark_uncertain(self) -> None:
        """We were away: whatever is not over may have changed without us."""
        self.knowledge = "not_known"
        for seen in self._seen.values():
            if not seen.is_over:
                seen.uncertain = True
                seen.notify_watchers()
        self._incoming.put(MissedMessages("reconnected"))

    def clear_uncertain(self) -> None:
        """Everything that we missed while we were away is known after all."""
        for seen in self._seen.values():
            if seen.uncertain:
                seen.uncertain = False
                seen.notify_watchers()

    def end(self) -> None:
        self._incoming.end()

    def set_gateway_time(self, now: float) -> None:
        """What the gateway's clock shows now; deadlines are its own, and ours may be days away from it."""
        self._gateway_ahead_seconds = now - self._clock()

    def _gateway_now(self) -> float:
        return self._clock() + self._gateway_ahead_seconds

    def _expire(self) -> None:
        now = self._gateway_now()
        for seen in self._seen.values():
            if seen.status == "pending" and now >= seen.expires:
                seen.status = "expired"
                seen.notify_watchers()

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
    return (
        f"{unknown_reason(reason)}: whether it was carried out is not known, so check before doing it again"
    )
