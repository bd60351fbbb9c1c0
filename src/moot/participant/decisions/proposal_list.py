"""Proposals of everybody, as they were seen here (MEW 3.2, 3.3, 10.2; D-28).

What becomes of each is the one life of a proposal (`protocol/proposal_life`). The list adds what a member
needs: what the gateway tells on request (`proposal_sync`), readers and handlers, bounds. It holds our own
proposals and those of others alike; `own_proposal` waits for the outcome of our own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

from moot.errors import BadAnswer, CallOutcomeUnknown
from moot.participant.calls.outcome import Rejection, error_of, result_of
from moot.participant.connection import message_feed
from moot.participant.connection.message_feed import (
    Feeds,
    HandlerRunner,
    MissedMessages,
    Reader,
    RunningHandler,
)
from moot.participant.connection.roster import Roster
from moot.participant.decisions.seen_proposal import RecordedProposal, SeenProposal
from moot.participant.decisions.unread_proposals import UnreadProposals
from moot.participant.limits import ParticipantLimits
from moot.protocol import strict_json
from moot.protocol.continuation import given_input, is_same_call
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, Envelope, rfc3339
from moot.protocol.fingerprint import fingerprint
from moot.protocol.gateway_proposal import BudgetUse, Delegation, EffectRule, GatewayProposal
from moot.protocol.operation import Payload
from moot.protocol.proposal_tracker import ProposalTracker
from moot.resilience.steady_clock import seconds_running

# Proposals of others that are kept.
MAX_PROPOSALS: Final = 1_024
MAX_PROPOSAL_BYTES: Final = 32 << 20

# Whether the list has all that is open: the gateway said so, is being asked, or has not told.
# `not_told`: this gateway does not know the question.
Knowledge = Literal["known", "asking", "not_known", "not_told"]


# Who decides in whose place, as far as it is known here (decision 0210). The gateway is the judge.
class Delegations:
    """Delegations of everybody; those that are over are left out."""

    def __init__(self, clock: Callable[[], float], roster: Roster) -> None:
        """`clock` is the gateway's, in seconds since 1970."""
        self._clock = clock
        self._roster = roster
        self._known: list[Delegation] = []

    def living(self) -> list[Delegation]:
        return [each for each in self._known if self._clock() < _seconds(each.until)]

    def to_us(self) -> list[Delegation]:
        """Those by which we decide in somebody's place."""
        us = (self._roster.own_id, self._roster.own_name)
        return [each for each in self.living() if each.delegate in us]

    def restore(self, told: Sequence[Delegation]) -> None:
        """As the gateway tells all of them."""
        self._known = list(told)

    def observe(self, envelope: Envelope) -> None:
        """Somebody delegates, or ends it."""
        payload, sender = envelope.payload, envelope.sender
        giver, delegate = (payload["from"], sender) if "from" in payload else (sender, payload["to"])
        self._known = [each for each in self._known if (each.giver, each.delegate) != (giver, delegate)]
        if envelope.kind == "moot/delegate":
            until = rfc3339(self._clock() + payload["expires_in_seconds"])
            reason = payload.get("reason")
            self._known.append(
                Delegation(
                    delegation_id=envelope.id, giver=giver, delegate=delegate, until=until, reason=reason
                )
            )


def _seconds(until: str) -> float:
    with suppress(ValueError):
        return datetime.fromisoformat(until).timestamp()
    return 0.0


class ProposalList(ProposalTracker[SeenProposal]):
    """The proposals that one member knows. Bounded: what is over goes first, then the oldest."""

    rejection_type = Rejection

    def __init__(self, limits: ParticipantLimits, roster: Roster, runner: HandlerRunner) -> None:
        super().__init__()
        # Until somebody looks.
        self._unread: UnreadProposals | None = UnreadProposals()
        self._limits = limits
        # By how much the gateway's clock is ahead of `seconds_running`; until it is told, the wall clock.
        self._gateway_ahead_seconds = time.time() - seconds_running()
        self._roster = roster
        self._runner = runner
        self._bytes = 0
        self.knowledge: Knowledge = "not_known"
        # Open ones that the gateway told of, but that could not be read.
        self.unreadable: set[str] = set()
        # The budgets of the space, as the gateway told with its list.
        self.budgets: list[BudgetUse] = []
        # What calls bring about, as the configuration of the space says.
        self.effects: list[EffectRule] = []
        self.delegations = Delegations(self._gateway_now, roster)
        self._incoming: Feeds[SeenProposal] = Feeds(runner.counts)
        self._handlers: list[RunningHandler[SeenProposal]] = []

    # Looking up. Whoever does it first makes this a list that is kept up to date.

    @property
    def is_followed(self) -> bool:
        """Whether anybody has looked."""
        return self._unread is None

    def follow(self) -> None:
        """Read what came so far; from now on everything is read as it comes."""
        unread, self._unread = self._unread, None
        if unread is None:
            return
        for at, name, envelope in unread.messages:
            self.expire(at)
            if envelope.kind == "mcp/proposal":
                self._add(envelope, at)
            else:
                self.observe(envelope, at, name)
        if unread.is_uncertain:
            self._set_uncertain([seen for seen in self._known.values() if not seen.is_over], True)
        for member in unread.left:
            self.handle_member_left(member)

    def __len__(self) -> int:
        self.follow()
        return super().__len__()

    def __iter__(self) -> Iterator[SeenProposal]:
        self.follow()
        return super().__iter__()

    def get(self, id: str) -> SeenProposal | None:
        self.expire_due()
        return self._known.get(id)

    def open(self) -> list[SeenProposal]:
        """Those that can still be decided on, oldest first; rejected ones too, until withdrawn (D-28)."""
        self.expire_due()
        return self.pending()

    @property
    def known(self) -> bool:
        """Whether `open` is all there is. If not, nobody may be told that nothing is pending."""
        return self.knowledge == "known"

    def unknown_outcomes(self) -> list[SeenProposal]:
        """Those that were approved, and nobody knows what came of them; a person can settle them."""
        self.follow()
        return [seen for seen in self._known.values() if seen.outcome == "unknown"]

    def incoming(self, *, max_messages: int | None = None) -> Reader[SeenProposal]:
        """Every proposal of others from now on; `MissedMessages` in place of those that were missed."""
        self.follow()
        return self._incoming.read(max_messages or message_feed.MAX_FEED_MESSAGES)

    def on_proposal(self, handler: Callable[[SeenProposal], Any]) -> Callable[[SeenProposal], Any]:
        """Call this function or coroutine function for each proposal of others; works as a decorator."""
        self.follow()
        self._handlers.append(self._runner.start(handler))
        return handler

    def is_faithful(self, request: Envelope) -> bool:
        """Whether a request that refers to proposals repeats each of them (D-28).

        One that brings the input which an approved call of its sender waits for is that call but for it.
        """
        if self._unread is not None:
            if self._unread.are_repeated_by(request):
                return True
            self.follow()
        known = self._known
        for id in request.correlation_id:
            if (seen := known.get(id)) is None:
                continue
            brings_input = seen.status == "fulfilled" and request.sender == seen.proposer
            if brings_input and given_input(request.payload.get("params")) is not None:
                if not is_same_call(seen.envelope.raw, request.raw):
                    return False
            # The gateway lets only a counter-proposal be carried out in its place.
            elif seen.fingerprint() != fingerprint(request.raw) and not any(
                id in known[each].envelope.correlation_id for each in request.correlation_id if each in known
            ):
                return False
        return True

    # What arrives. All of it has passed the checks.

    def hear(self, envelope: Envelope) -> None:
        """Somebody else proposes."""
        if self._unread is not None:
            self._unread.add(envelope, self._gateway_now(), envelope.sender)
            return
        seen = self._add(envelope, self._gateway_now())
        self._incoming.put(seen)
        for handler in self._handlers:
            handler.call(seen)

    def add(self, envelope: Envelope) -> SeenProposal:
        """One of ours, or of the past; no handler sees it."""
        self.follow()
        return self._add(envelope, self._gateway_now())

    def _add(self, envelope: Envelope, now: float) -> SeenProposal:
        seen = self._known.get(envelope.id)
        # The history repeats what the gateway told: whoever holds it sees what becomes of it.
        if seen is None or seen.envelope.raw != envelope.raw:
            self._bytes += len(envelope.raw)
            self._make_room()
            seen = SeenProposal(
                id=envelope.id,
                proposer=envelope.sender,
                proposer_name=self._roster.names_of([envelope.sender])[0],
                envelope=envelope,
                proposed_at=now,
                expires=now + self._limits.proposal_seconds,
            )
            for other in self.pending():
                if other.is_same_call(seen):
                    seen.alike.append(other)
                    other.alike.append(seen)
            self.track(seen)
        return seen

    def add_past(self, envelope: Envelope) -> None:
        """One from before we joined; no handler sees it. Its time began when it was made."""
        seen = self.add(envelope)
        with suppress(ValueError):
            made = datetime.fromisoformat(envelope.ts).timestamp()
            seen.expires = min(seen.expires, made + self._limits.proposal_seconds)
            self._index(seen)

    def add_recorded(self, call: RecordedProposal, sender: str) -> SeenProposal:
        """One of ours from an earlier run, as we wrote it down; whoever asks the gateway learns the rest."""
        seen = self.get(call.id)
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
            seen = self.add(DIALECTS["mew"].decode(raw, ANY_SIZE))
            seen.recorded = True
        return seen

    def observe(self, envelope: Envelope, at: float | None = None, name: str = "") -> None:
        """Learn what a message says about the proposals that are known here.

        `at` and `name`: when it came and what its sender was called then, if it was kept until now.
        """
        unread = self._unread
        if unread is not None and not unread.proposals:
            return
        if at is None:
            at, name = seconds_running() + self._gateway_ahead_seconds, envelope.sender
            if not self._roster.ids_are_names:
                name = self._roster.names_of([name])[0]
        if unread is not None:
            unread.add(envelope, at, name)
            return
        for seen in self.apply(envelope, at, name):
            if envelope.kind == "mcp/request" and seen.settled_by == envelope.id:
                _note_request(seen, envelope)
            elif envelope.kind == "mcp/response":
                _note_answer(seen, envelope)
                if seen.waiting:
                    self._give_up(seen)
            elif envelope.kind == "moot/votes":
                _note_count(seen, envelope.payload)
            if seen.watchers:
                seen.notify_watchers()

    def _note_origins(self, life: SeenProposal, envelope: Envelope, by: str) -> bool:
        before = life.origins_bytes
        changed = super()._note_origins(life, envelope, by)
        self._bytes += life.origins_bytes - before
        return changed

    def handle_bad_answer(self, envelope: Envelope, fault: str) -> None:
        """An answer that is none: nobody knows what its host did."""
        self.follow()
        for seen in [each for id in envelope.correlation_id for each in self._requests.get(id, ())]:
            if envelope.sender in seen.asked and seen.lose_track("host_does_not_know"):
                seen.error = BadAnswer(envelope.sender, fault)
                seen.notify_watchers()

    def handle_member_left(self, member: str) -> None:
        """Fulfilments that this member was asked for lack its answer, unless it is back soon."""
        if self._unread is not None:
            self._unread.note_left(member)
            return
        waiting = [seen for seen in self._known.values() if member in seen.waiting]
        if waiting:
            grace = self._limits.host_return_seconds
            asyncio.get_running_loop().call_later(grace, self._give_up_if_away, member, waiting)

    def _give_up_if_away(self, member: str, waiting: list[SeenProposal]) -> None:
        for seen in waiting:
            if member in seen.waiting and member not in self._roster:
                seen.away.add(member)
                self._give_up(seen)

    def _give_up(self, seen: SeenProposal) -> None:
        """Nobody who is here can still answer: those who are waited for left, and are not back."""
        if seen.waiting and all(each in seen.away and each not in self._roster for each in seen.waiting):
            seen.lose_track("host_left")
            seen.is_given_up = True
            seen.notify_watchers()

    # What the gateway tells when it is asked

    def restore(self, reported: GatewayProposal, envelope: Envelope | None) -> None:
        """Take over what the gateway says about one proposal; no handler sees it."""
        self.follow()
        seen = self._known.get(reported.proposal_id)
        if seen is None and envelope is not None:
            seen = self.add(envelope)
            seen.is_told = True
            with suppress(ValueError):
                seen.proposed_at = datetime.fromisoformat(reported.proposed_at).timestamp()
        elif seen is not None and seen.recorded and envelope is not None:
            # The bytes that an approval has to repeat, in place of what we wrote down.
            self._bytes += len(envelope.raw) - len(seen.envelope.raw)
            seen._take_envelope(envelope)
        # Its bytes are not here: while it is open, what is pending is not known.
        if reported.state == "open" and (seen is None or seen.recorded):
            self.unreadable.add(reported.proposal_id)
        else:
            self.unreadable.discard(reported.proposal_id)
        if seen is not None:
            self.restore_known(reported, self._gateway_now())
            if reported.proposer:
                seen.proposer_name = self._roster.names_of([reported.proposer])[0]
            seen.is_given_up = reported.outcome == "unknown"
            seen.notify_watchers()

    def mark_forgotten(self, id: str) -> None:
        """The gateway does not remember it, so it is not open."""
        self.follow()
        for seen in self.forget(id, self._gateway_now()):
            seen.notify_watchers()

    def mark_uncertain(self) -> None:
        """We were away: whatever is not over may have changed without us."""
        self.knowledge = "not_known"
        if self._unread is not None:
            self._unread.is_uncertain = True
        self._set_uncertain([seen for seen in self._known.values() if not seen.is_over], True)
        self._incoming.put(MissedMessages("reconnected"))

    def clear_uncertain(self) -> None:
        """Everything that we missed while we were away is known after all."""
        if self._unread is not None:
            self._unread.is_uncertain = False
        self._set_uncertain([seen for seen in self._known.values() if seen.uncertain], False)

    def _set_uncertain(self, changed: list[SeenProposal], value: bool) -> None:
        for seen in changed:
            seen.uncertain = value
        for seen in changed:
            seen.notify_watchers()

    def end(self) -> None:
        self._incoming.end()

    def set_gateway_time(self, now: float) -> None:
        """What the gateway's clock shows now; deadlines are its own, and ours may be days away from it."""
        self._gateway_ahead_seconds = now - seconds_running()

    def _gateway_now(self) -> float:
        return seconds_running() + self._gateway_ahead_seconds

    def expire_due(self) -> None:
        """Let those end whose time is over, as far as it is known here."""
        if self._unread is not None:
            self.follow()
        for seen in self.expire(seconds_running() + self._gateway_ahead_seconds):
            seen.notify_watchers()

    def _make_room(self) -> None:
        if len(self._known) < MAX_PROPOSALS and self._bytes <= MAX_PROPOSAL_BYTES:
            return
        self.expire_due()
        while self._known and (len(self._known) >= MAX_PROPOSALS or self._bytes > MAX_PROPOSAL_BYTES):
            # Whoever is waiting for one keeps it: those are our own, and the gateway bounds them.
            over = (id for id, seen in self._known.items() if seen.is_over and not seen.watchers)
            oldest = (id for id, seen in self._known.items() if not seen.watchers)
            gone = next(over, None) or next(oldest, None)
            if gone is None:
                return
            self.untrack(gone)

    def untrack(self, id: str) -> SeenProposal:
        gone = super().untrack(id)
        self._bytes -= len(gone.envelope.raw) + gone.origins_bytes
        return gone


def _note_request(seen: SeenProposal, request: Envelope) -> None:
    """It is carried out, or a changed version of it is."""
    # One that names nothing else is the very call (`is_faithful`).
    if len(request.correlation_id) > 1 and seen.fingerprint() != fingerprint(request.raw):
        seen.changed = {name: request.payload.get(name) for name in ("method", "params")}


def _note_answer(seen: SeenProposal, answer: Envelope) -> None:
    """What its host said."""
    if "error" in answer.payload:
        seen.error, seen.host = error_of(answer.payload), answer.sender
        return
    if seen.outcome != "unknown" and isinstance(seen.error, CallOutcomeUnknown | BadAnswer):
        seen.error = None
    # Of several hosts, what failed is told.
    result = result_of(answer.payload)
    if seen.result is None or result.get("isError") is True:
        seen.result = result
        seen.host = seen.host if seen.error is not None else answer.sender


def _note_count(seen: SeenProposal, payload: Payload) -> None:
    """Which vote the gateway has counted, and what it did by that."""
    seen.counted_vote = str(payload.get("vote_id", ""))
    refusal, request = payload.get("not_carried_out"), payload.get("request_id")
    seen.counted_request = request if isinstance(request, str) else None
    seen.not_carried_out = refusal if isinstance(refusal, dict) else None
