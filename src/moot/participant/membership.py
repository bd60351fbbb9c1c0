"""The parts of a member, and the way that everything takes which arrives.

An envelope is inspected (`checking`), noted (`lineage`), shown to the part that it concerns (requests,
proposals, roster, streams, …), then to handlers and readers. Nothing on that way waits. Whatever has to wait
runs in tasks of one group, which ends with the block of the connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from moot.errors import (
    ConnectionClosed,
    ConnectionLost,
    Interrupted,
    MalformedEnvelope,
    MootError,
)
from moot.net.websocket_client import ClientSocket
from moot.participant.calls.outcome import CloseReason, MissedMessages
from moot.participant.calls.request_client import RequestClient
from moot.participant.connection.correlation_index import CorrelationIndex
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.inbound_check import InboundValidator
from moot.participant.connection.link import ConnectTarget, Link
from moot.participant.connection.member_tasks import MemberTasks
from moot.participant.connection.message_feed import Feed, Feeds, Handlers
from moot.participant.connection.missed_decisions import HEARD_LAST, hear_decision, restore_missed_decisions
from moot.participant.connection.refusals import Refusals
from moot.participant.connection.roster import Roster
from moot.participant.connection.violation_log import ViolationLog
from moot.participant.control.administration import PendingAcks
from moot.participant.control.controls import Controlled, Controls
from moot.participant.conversation.chat import Chats
from moot.participant.conversation.contexts import Contexts
from moot.participant.conversation.reasoning import Thinking
from moot.participant.conversation.stream_client import StreamClient
from moot.participant.decisions.proposal_client import ProposalClient
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.limits import ParticipantLimits
from moot.participant.serving.own_offers import OwnOffers
from moot.participant.serving.request_server import RequestServer
from moot.protocol.close_codes import SHUT_DOWN
from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame
from moot.protocol.kinds import CANCELLED, NOTIFICATION_PREFIX

if TYPE_CHECKING:
    from moot.participant.joined_space import JoinedSpace

log = logging.getLogger(__name__)

# What a transcript keeps: what was said and done, not who came and went.
_MEMORABLE: Final = frozenset(
    {
        "chat",
        "mcp/request",
        "mcp/response",
        "mcp/proposal",
        "mcp/withdraw",
        "mcp/reject",
        "reasoning/start",
        "reasoning/thought",
        "reasoning/conclusion",
    }
)

Route = Callable[[Envelope], None]


class Membership:
    """What a member is made of. `JoinedSpace` adds the words that people use."""

    def __init__(
        self,
        door: ConnectTarget,
        limits: ParticipantLimits,
        *,
        controls: Controls,
        reconnect: bool,
        passive: bool,
        version: str,
    ) -> None:
        self.limits = limits
        self._door = door
        self._lost_at = 0.0
        self._heard_last: frozenset[str] = frozenset()
        self.ending: CloseReason | None = None
        self._passive = passive
        self._tasks = MemberTasks()
        self.spawn = self._tasks.spawn
        self._ended = asyncio.Event()
        self._shut_down_reason: str | None = None
        # What comes right behind the first welcome, before anybody had time to say what to do with it.
        self._held: list[Envelope | Frame] | None = []
        # Told when the first welcome is there, or why it never will be.
        self._arrived: asyncio.Future[None] | None = None

        voice = self._voice = EnvelopeSender(door.dialect, limits, echo=door.echo)
        self.counts = voice.counts
        self.roster = Roster(door.dialect, self.spawn, voice.counts, feed_items=limits.feed_items)
        voice.names = self.roster.names
        self.misbehaviour = ViolationLog(senders=limits.misbehaving_senders, kept=limits.misdeeds_kept)
        self.lineage = CorrelationIndex(limits.lineage)
        inspector = self._inspector = InboundValidator(self.lineage, self.misbehaviour)
        self.proposals = ProposalList(limits, self.roster, inspector, self.spawn, voice.counts)
        inspector.is_faithful = self.proposals.is_faithful
        self._requests = RequestClient(voice, self.roster, inspector, self.spawn)
        self._desk = ProposalClient(voice, self._requests, self.proposals, self.spawn)
        self._host = RequestServer(voice, inspector, self.proposals, self.spawn)
        self._offer = OwnOffers(self._host, lambda: voice.me, version)
        if not passive:
            self._host.handler = self._offer.answer
            self._host.can_run = self._offer.can_run
        self.chats = Chats(limits)
        self.contexts = Contexts(limits, inspector)
        self.streams = StreamClient(voice, self.spawn)
        self._thinking = Thinking(voice, self.contexts, self.streams, self._desk)
        self._answers = PendingAcks()
        self.controls = controls
        self._controlled = Controlled(cast("JoinedSpace", self), voice, controls)

        self._refusals = Refusals(voice, self._requests, self._answers, self.streams, self._controlled)
        self._handlers = Handlers(self.spawn, voice.counts, limits.feed_items)
        self._others: Feeds[Envelope] = Feeds(voice.counts)
        self._all: Feeds[Envelope] = Feeds(voice.counts)
        self._rejoined: list[Callable[[None], None]] = []
        self._rejoined_feeds: list[Feed[None]] = []
        self._routes = self._table()
        self.link = Link(door, limits, self, reconnect=reconnect)

    # What the link calls

    def joined(self, line: ClientSocket, welcome: Envelope) -> None:
        again = bool(self._voice.me)
        self._voice.attach(line)
        # Who we are is told by the first welcome of each connection; it may differ from last time (D-19).
        self._voice.me = welcome.payload["you"]["id"]
        self._hear(welcome)
        if again:
            self.counts.reconnects += 1
            log.info("rejoined", extra={"participant": self._voice.me})
            gap = MissedMessages("reconnected")
            self._others.put(gap)
            self._all.put(gap)
            self.proposals.gap()
            if len(self.proposals):
                self.spawn(self._catch_up())
            for tell in self._rejoined:
                tell(None)
        elif self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def _catch_up(self) -> None:
        await restore_missed_decisions(
            self._door,
            self._voice.me,
            self._lost_at,
            heard_last=self._heard_last,
            limits=self.limits,
            lineage=self.lineage,
            inspector=self._inspector,
            proposals=self.proposals,
        )

    def _recall(self, past: list[Envelope]) -> list[Envelope]:
        """Play what was said before we joined into the ledgers; nothing is handled, answered or shown."""
        fresh: list[Envelope] = []
        for envelope in past:
            if self.lineage.get(envelope.id) is not None or not self._inspector.lets_in(envelope):
                continue
            self.lineage.note(envelope)
            fresh.append(envelope)
            if envelope.kind == "mcp/proposal":
                self.proposals.recalled(envelope)
            hear_decision(envelope, self.proposals)
            if envelope.kind == "chat":
                self.chats.chat(envelope, me=self._voice.me)
            elif envelope.kind == "chat/acknowledge":
                self.chats.acknowledge(envelope, me=self._voice.me)
            elif envelope.kind == "chat/cancel":
                self.chats.cancel(envelope)
            if envelope.context is not None or envelope.kind == "reasoning/start":
                self.contexts.hear(envelope)
        return fresh

    def heard(self, envelope: Envelope) -> None:
        if self._held is None:
            self._hear(envelope)
        else:
            self._held.append(envelope)

    def _begin(self) -> None:
        """The block has had its first step, and with it a chance to register handlers and tools."""
        held, self._held = self._held, None
        for item in held or ():
            if isinstance(item, Frame):
                self.frame(item)
            else:
                self._hear(item)

    def _hear(self, envelope: Envelope) -> None:
        self.counts.received += 1
        if not self._inspector.lets_in(envelope):
            self.counts.dropped += 1
            return
        self.lineage.note(envelope)
        me = self._voice.me
        own = envelope.sender == me
        if own:
            self._voice.hear_echo(envelope)
        route = self._routes.get(envelope.kind)
        if route is not None:
            route(envelope)
        if envelope.context is not None or envelope.kind == "reasoning/start":
            self.contexts.hear(envelope)
        if self.controls.memory is not None and envelope.kind in _MEMORABLE:
            self._controlled.remember(envelope, self.contexts.sequence_of(envelope.context))
        self._handlers.call(envelope, own=own)
        self._all.put(envelope)
        if not own:
            self._others.put(envelope)

    def frame(self, frame: Frame) -> None:
        if self._held is not None:
            self._held.append(frame)
            return
        self.counts.received += 1
        self.streams.frame(frame)

    def broken(self, fault: MalformedEnvelope) -> None:
        self.counts.received += 1
        self.counts.dropped += 1
        self._inspector.broken(fault.message, kind=fault.kind or "", id=fault.about or "")

    def lost(self, code: int, reason: str) -> None:
        """The connection is away; whatever waits for an answer would wait in vain."""
        self._lost_at = time.time()
        self._heard_last = self.lineage.latest(HEARD_LAST)
        how = f"{code} {reason}".rstrip()
        words = f"the connection was lost ({how}): whether it was done is not known"
        self._fail_all(lambda: ConnectionLost(words))

    def ended(self, ending: CloseReason) -> None:
        """It is over; everybody who waits is told, readers come to their end."""
        if self.ending is not None:
            return
        if self._shut_down_reason is not None:
            ending = CloseReason(SHUT_DOWN, self._shut_down_reason)
        self.ending = self._voice.ending = ending
        self._fail_all(lambda: ConnectionClosed(ending.code, ending.reason))
        for part in (self._others, self._all, self._handlers, self.roster, self.proposals, self.streams):
            part.end()
        for feed in self._rejoined_feeds:
            feed.end()
        self._controlled.end()
        self._tasks.cancel()
        self._ended.set()

    def _fail_all(self, fault: Callable[[], Exception]) -> None:
        self._voice.detach(fault)
        self._requests.fail_all(fault)
        self._answers.fail_all(fault)
        self.streams.lost(fault)

    # Where each kind goes

    def _table(self) -> Mapping[str, Route]:
        answers = self._answers.hear
        table: dict[str, Route] = {
            "mcp/request": self._hear_request,
            "mcp/response": self._hear_response,
            "mcp/proposal": self._hear_proposal,
            "mcp/withdraw": self.proposals.withdraw,
            "mcp/reject": self.proposals.reject,
            "moot/approve": self.proposals.vote,
            "chat": self._hear_chat,
            "chat/acknowledge": self._hear_acknowledgement,
            "chat/cancel": self.chats.cancel,
            "capability/grant": self._hear_grant,
            "capability/grant-ack": answers,
            "space/invite-ack": answers,
            "participant/status": answers,
            "participant/compact-done": answers,
            "stream/request": self.streams.requested,
            "stream/open": self.streams.opened,
            "stream/close": self._hear_stream_close,
            "stream/write-granted": self.streams.changed,
            "stream/write-revoked": self.streams.changed,
            "stream/ownership-transferred": self.streams.changed,
            "system/welcome": self._hear_welcome,
            "system/presence": self._hear_presence,
            "system/error": self._refusals.hear,
        }
        # A passive connection keeps to a pause and ends when told to, but answers for nobody.
        controls = ["pause", "resume", "shutdown"]
        if not self._passive:
            controls += ["request-status", "forget", "compact", "clear", "restart"]
        for name in controls:
            table[f"participant/{name}"] = self._controlled.hear
        return table

    def _hear_request(self, envelope: Envelope) -> None:
        if envelope.payload["method"].startswith(NOTIFICATION_PREFIX):
            if envelope.payload["method"] == CANCELLED:
                self.proposals.cancelled(envelope)
            self._requests.notification(envelope)
            self._host.notification(envelope)
            return
        if envelope.sender == self._voice.me:
            self._requests.echo(envelope)
        if envelope.correlation_id:
            self.proposals.request(envelope)
        self._host.request(envelope)

    def _hear_response(self, envelope: Envelope) -> None:
        self._requests.response(envelope)
        self.proposals.response(envelope)

    def _hear_proposal(self, envelope: Envelope) -> None:
        own = envelope.sender == self._voice.me
        self.proposals.proposal(envelope, own=own)
        if not own:
            self._host.proposal(envelope)

    def _hear_chat(self, envelope: Envelope) -> None:
        self.chats.chat(envelope, me=self._voice.me)
        if envelope.correlation_id:
            self.proposals.chat(envelope)

    def _hear_acknowledgement(self, envelope: Envelope) -> None:
        self.chats.acknowledge(envelope, me=self._voice.me)
        self._answers.hear(envelope)

    def _hear_stream_close(self, envelope: Envelope) -> None:
        fault = self.streams.closed(envelope)
        if fault is not None:
            self._inspector.report(envelope, "not_owner", fault)

    def _hear_grant(self, envelope: Envelope) -> None:
        if not self._passive and envelope.payload["recipient"] in (self._voice.me, self.roster.own_name):
            self._answers.granted(envelope)

    def _hear_welcome(self, envelope: Envelope) -> None:
        payload = envelope.payload
        you = payload["you"]
        voice = self._voice
        if you["id"] != voice.me or (envelope.to and voice.me not in envelope.to):
            return  # MEW 3.8.1: somebody else's
        again = self.counts.received > 1
        voice.rights = self.roster.rights_of(you.get("capabilities", []))
        self.roster.welcome(
            you["id"], you.get("name", you["id"]), payload.get("participants", []), again=again
        )
        if "active_streams" in payload:
            self.streams.welcome(payload["active_streams"])
        self._answers.acknowledge_grants(voice)

    def _hear_presence(self, envelope: Envelope) -> None:
        event = self.roster.presence(envelope)
        if event is not None and event.event == "leave" and event.member is not None:
            self._requests.left(event.member.id)
            self.proposals.left(event.member.id)
            self._offer.left(event.member.id)

    # What controls do

    def no_return(self) -> None:
        """MEW 3.9.10: however this connection ends now, it is not opened again."""
        self.link.reconnect = False

    def shut_down(self, reason: str) -> None:
        """We were asked to end; `ending` says so."""
        self._shut_down_reason = reason
        self._say_last_words()
        self.link.leave(reason)

    async def interrupt(self, why: str) -> None:
        """MEW 3.9.9: end what we wait for, what we do for others, and our streams."""
        self._requests.fail_all(lambda: Interrupted(why))
        self._host.interrupt(why)
        self._say_last_words()

    def _say_last_words(self) -> None:
        """Streams closed and proposals withdrawn, as far as anything can still be said."""
        try:
            for info in self.streams.owned():
                self.streams.writer(info.id).say_close("owner_left")
            for proposal in self._desk.own():
                self._desk.take_back(proposal)
        except MootError as fault:
            log.debug("no last words", extra={"why": type(fault).__name__})
