"""The path of everything that arrives.

An envelope is checked, indexed by its id, passed to the part that handles its kind (requests, proposals,
roster, streams, …), then to handlers and readers. Nothing on this path waits; what has to wait runs as a task
of the member.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from moot.errors import ParticipantPaused, Refused, UnsupportedByRecipient
from moot.participant.connection.inbound_check import ProtocolViolation
from moot.participant.control.control_handler import ControlHandler
from moot.participant.member_parts import MemberParts
from moot.protocol.envelope import Envelope
from moot.protocol.kinds import CANCELLED, NOTIFICATION_PREFIX
from moot.protocol.refusals import refusal_of

log = logging.getLogger(__name__)

# What decides on proposals and nothing else.
_DECISIONS: Final = (
    "mcp/withdraw",
    "mcp/reject",
    "moot/approve",
    "moot/votes",
    "moot/settle",
    "moot/assign",
    "moot/outcome",
    "moot/origins",
    "moot/opinion",
    "moot/preview",
    "space/kick",
)
_NOT_ON_DISK: Final = "in effect, but not on disk: a restart before the gateway's disk recovers would undo it"
_CONTROLS: Final = ("pause", "resume", "shutdown")
# A passive connection does not answer for the member.
_ANSWERED_CONTROLS: Final = ("request-status", "forget", "compact", "clear", "restart")

Route = Callable[[Envelope], None]


class InboundRouter:
    """Passes envelopes to the parts of a member."""

    def __init__(self, parts: MemberParts, control_handler: ControlHandler) -> None:
        self._parts = parts
        self._control_handler = control_handler
        self._routes = self._make_routes(control_handler)

    def route(self, envelope: Envelope) -> None:
        parts = self._parts
        parts.sender.counts.received += 1
        violation = parts.validator.check(envelope)
        if violation is not None:
            parts.sender.counts.dropped += 1
            self._give_up_answer(envelope, violation)
            if envelope.kind == "mcp/request" and violation.fault == "bad_payload":
                parts.server.refuse_malformed(envelope, violation.message)
            return
        parts.correlations.add(envelope)
        own = envelope.sender == parts.sender.me
        if own:
            parts.sender.echoes.resolve(envelope.id, envelope)
        route = self._routes.get(envelope.kind)
        if route is not None:
            route(envelope)
        if envelope.context is not None or envelope.kind == "reasoning/start":
            parts.contexts.handle(envelope)
        if parts.controls.transcript is not None:
            parts.recorder.record(envelope, parts.controls.transcript)
        if parts.handlers.patterns:
            parts.handlers.call(envelope, own=own)
        if parts.readers.feeds:
            parts.readers.put(envelope, own=own)

    def replay(self, history: Iterable[Envelope]) -> list[Envelope]:
        """Learn what was sent before we joined; nothing is handled or answered. Returns what was new."""
        parts = self._parts
        fresh: list[Envelope] = []
        # D-94: some clients count from 1 again, so the past may hold one id twice.
        added: set[str] = set()
        for envelope in history:
            known = envelope.id not in added and parts.correlations.get(envelope.id) is not None
            if known or not self._is_valid(envelope):
                continue
            added.add(envelope.id)
            parts.correlations.add(envelope)
            fresh.append(envelope)
            if envelope.kind == "mcp/proposal":
                parts.proposals.add_past(envelope)
            self._replay_decision(envelope)
            parts.chats.handle(envelope)
            if envelope.context is not None or envelope.kind == "reasoning/start":
                parts.contexts.handle(envelope)
        return fresh

    def replay_decisions(self, history: Iterable[Envelope], known: frozenset[str]) -> None:
        """Learn what happened to proposals while we were away (D-28, D-40, D-41).

        If the history reaches back to an envelope that we had got before, nothing can be missing. Otherwise
        (a restarted gateway, a long absence) open proposals stay marked `uncertain`.
        """
        reaches_back = False
        for envelope in history:
            if envelope.id in known:
                reaches_back = True
            elif self._parts.correlations.get(envelope.id) is None and self._is_valid(envelope):
                self._replay_decision(envelope)
        if reaches_back:
            self._parts.proposals.clear_uncertain()

    def settle_requests(self, history: Iterable[Envelope], fault: Callable[[], Exception]) -> None:
        """Find out what became of requests while we went to another gateway of a cluster.

        What was delivered is in the history, with its answer or before it; nobody knows of anything else.
        """
        parts = self._parts
        delivered: list[str] = []
        for envelope in history:
            is_new = parts.correlations.get(envelope.id) is None
            if envelope.kind == "mcp/request" and envelope.id in parts.requests:
                delivered.append(envelope.id)
                if is_new:
                    parts.correlations.add(envelope)
            elif envelope.kind == "mcp/response" and is_new and self._is_valid(envelope):
                parts.requests.handle_response(envelope)
        parts.requests.fail_all(fault, keep=delivered)
        parts.requests.go_on_waiting(delivered)

    def replay_kinds(self, history: Iterable[Envelope], kinds: Container[str]) -> None:
        """Learn what messages of these kinds say about proposals that we know."""
        for envelope in history:
            if (
                envelope.kind in kinds
                and self._parts.correlations.get(envelope.id) is None
                and self._is_valid(envelope)
            ):
                self._replay_decision(envelope)

    def _replay_decision(self, envelope: Envelope) -> None:
        if not envelope.kind.startswith("system/"):
            self._parts.proposals.observe(envelope)

    def _is_valid(self, envelope: Envelope) -> bool:
        violation = self._parts.validator.check(envelope)
        if violation is not None:
            self._give_up_answer(envelope, violation)
        return violation is None

    def _give_up_answer(self, envelope: Envelope, violation: ProtocolViolation) -> None:
        """Whoever waits for an answer that is dropped would wait in vain for a better one."""
        if envelope.kind == "mcp/response" and violation.fault != "unasked_answer":
            self._parts.requests.handle_bad_answer(envelope, violation.message)
            self._parts.proposals.handle_bad_answer(envelope, violation.message)

    # Where each kind goes

    def _make_routes(self, control_handler: ControlHandler) -> Mapping[str, Route]:
        parts = self._parts
        proposals, streams = parts.proposals, parts.streams
        handle_answer = parts.acks.handle_answer
        routes: dict[str, Route] = {
            "mcp/request": self._route_request,
            "mcp/response": self._route_response,
            "mcp/proposal": self._route_proposal,
            **dict.fromkeys(_DECISIONS, proposals.observe),
            "moot/delegate": proposals.delegations.observe,
            "moot/end-delegation": proposals.delegations.observe,
            "moot/proposals": parts.proposal_sync.handle_page,
            "chat": self._route_chat,
            "chat/acknowledge": self._route_acknowledgement,
            "chat/cancel": parts.chats.handle,
            "capability/grant": self._route_grant,
            "capability/grant-ack": handle_answer,
            "space/invite-ack": handle_answer,
            "participant/status": handle_answer,
            "participant/compact-done": handle_answer,
            "stream/request": streams.handle_request,
            "stream/open": streams.handle_open,
            "stream/close": self._route_stream_close,
            "stream/write-granted": streams.handle_change,
            "stream/write-revoked": streams.handle_change,
            "stream/ownership-transferred": streams.handle_change,
            "system/welcome": self._route_welcome,
            "system/presence": self._route_presence,
            "moot/roster-page": parts.roster_fetch.handle_page,
            "moot/owners": parts.owner_lookup.handle_page,
            "system/error": self._route_error,
        }
        controls = _CONTROLS if parts.options.passive else _CONTROLS + _ANSWERED_CONTROLS
        return routes | {f"participant/{name}": control_handler.handle for name in controls}

    def _route_request(self, envelope: Envelope) -> None:
        parts = self._parts
        if envelope.payload["method"].startswith(NOTIFICATION_PREFIX):
            if envelope.payload["method"] == CANCELLED:
                parts.proposals.observe(envelope)
            parts.requests.handle_notification(envelope)
            parts.server.handle_notification(envelope)
            return
        if envelope.sender == parts.sender.me:
            parts.requests.handle_echo(envelope)
        if envelope.correlation_id:
            parts.proposals.observe(envelope)
        if not envelope.to or parts.sender.me in envelope.to:
            parts.server.handle_request(envelope)

    def _route_response(self, envelope: Envelope) -> None:
        self._parts.requests.handle_response(envelope)
        self._parts.proposals.observe(envelope)

    def _route_proposal(self, envelope: Envelope) -> None:
        if envelope.sender == self._parts.sender.me:
            self._parts.proposals.add(envelope)
            return
        self._parts.proposals.hear(envelope)
        self._parts.server.handle_proposal(envelope)

    def _route_chat(self, envelope: Envelope) -> None:
        self._parts.chats.handle(envelope)
        if envelope.correlation_id:
            self._parts.proposals.observe(envelope)

    def _route_acknowledgement(self, envelope: Envelope) -> None:
        self._parts.chats.handle(envelope)
        self._parts.acks.handle_answer(envelope)

    def _route_stream_close(self, envelope: Envelope) -> None:
        fault = self._parts.streams.handle_close(envelope)
        if fault is not None:
            self._parts.validator.report(envelope, "not_owner", fault)

    def _route_grant(self, envelope: Envelope) -> None:
        parts = self._parts
        us = (parts.sender.me, parts.roster.own_name)
        if not parts.options.passive and envelope.payload["recipient"] in us:
            parts.acks.add_grant(envelope)

    def _route_welcome(self, envelope: Envelope) -> None:
        payload, parts = envelope.payload, self._parts
        you, sender = payload["you"], parts.sender
        if you["id"] != sender.me or (envelope.to and sender.me not in envelope.to):
            return  # MEW 3.8.1: for somebody else
        again = sender.counts.received > 1
        sender.rights = parts.roster.rights_of(you.get("capabilities", []))
        sender.extensions = frozenset(payload.get("extensions", ()))
        sender.apply_limits(payload.get("limits"))
        parts.proposals.leave_reason_is_removal = parts.proposal_sync.is_supported
        # Moot's own: what a welcome has no room for is asked for.
        complete = "more" not in payload
        name, listed = you.get("name", you["id"]), payload.get("participants", [])
        parts.roster.apply_welcome(you["id"], name, listed, again=again, complete=complete)
        if "active_streams" in payload:
            parts.streams.apply_welcome(payload["active_streams"], complete=complete)
        if complete:
            parts.roster_fetch.stop()
        else:
            parts.roster_fetch.start()
        parts.acks.acknowledge_grants(sender)

    def _route_error(self, envelope: Envelope) -> None:
        self._parts.proposals.observe(envelope)
        if self._parts.sender.me in envelope.to:  # D-32: others are about somebody else
            self._raise_where_it_belongs(envelope)

    def _raise_where_it_belongs(self, envelope: Envelope) -> None:
        """Raise a refusal of the gateway where something waits for an answer; otherwise count and log it."""
        sender, refusal = self._parts.sender, refusal_of(envelope.payload)
        if isinstance(refusal, ParticipantPaused):
            self._control_handler.handle_pause_refusal(refusal.details)
        handled = False
        for id in envelope.correlation_id:
            handled = self._fail(id, refusal) or handled
        if not envelope.correlation_id:
            handled = self._parts.streams.handle_frame_refusal(refusal)
        if not handled:
            sender.counts.unasked_refusals += 1
            code = str(envelope.payload["error"])
            log.info("refused", extra={"participant": sender.me, "code": code, "why": refusal.message})

    def _fail(self, id: str, refusal: Refused) -> bool:
        parts = self._parts
        if refusal.details.get("error") == "not_on_disk":
            # It was done, and who waits for an answer to it will get one.
            parts.sender.counts.not_on_disk += 1
            log.warning(_NOT_ON_DISK, extra={"participant": parts.sender.me, "id": id})
            return True
        if refusal.details.get("error") == "unsupported_by_recipient":
            # D-56: it was delivered, but no answer will come.
            return parts.acks.fail(id, UnsupportedByRecipient(refusal.message))
        return (
            parts.sender.fail_echo(id, refusal)
            or parts.requests.handle_refusal(id, refusal)
            or parts.acks.fail(id, refusal)
            or parts.streams.handle_refusal(id, refusal)
            or parts.acks.note_remaining(id, refusal.details)
            or parts.proposal_sync.fail(id, refusal)
            or parts.roster_fetch.handle_refusal(id, refusal)
            or parts.owner_lookup.fail(id, refusal)
        )

    def _route_presence(self, envelope: Envelope) -> None:
        parts = self._parts
        event = parts.roster.apply_presence(envelope)
        if event is not None and event.event == "leave" and event.member is not None:
            for part in (parts.requests, parts.proposals, parts.offers):
                part.handle_member_left(event.member.id)
        parts.proposals.observe(envelope)
