"""Where a refusal of the gateway goes: to whatever waits for an answer."""

from __future__ import annotations

import logging

from moot.errors import ParticipantPaused, Refused, UnsupportedByRecipient
from moot.participant.calls.request_client import RequestClient
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.refusals import refusal_of
from moot.participant.connection.roster_fetch import RosterFetch
from moot.participant.control.control_handler import ControlHandler
from moot.participant.control.pending_acks import PendingAcks
from moot.participant.conversation.stream_client import StreamClient
from moot.participant.decisions.proposal_sync import ProposalSync
from moot.participant.discovery.owner_lookup import OwnerLookup
from moot.protocol.envelope import Envelope

log = logging.getLogger(__name__)


class RefusalHandler:
    """Finds what a `system/error` is about, and fails it."""

    def __init__(
        self,
        sender: EnvelopeSender,
        requests: RequestClient,
        acks: PendingAcks,
        streams: StreamClient,
        control_handler: ControlHandler,
        proposal_sync: ProposalSync,
        roster_fetch: RosterFetch,
        owner_lookup: OwnerLookup,
    ) -> None:
        self._sender = sender
        self._requests = requests
        self._acks = acks
        self._streams = streams
        self._control_handler = control_handler
        self._proposal_sync = proposal_sync
        self._roster_fetch = roster_fetch
        self._owner_lookup = owner_lookup

    def handle(self, envelope: Envelope) -> None:
        """Raise it where something waits for it; otherwise count and log it."""
        sender = self._sender
        if sender.me not in envelope.to:
            return  # D-32: about somebody else
        refusal = refusal_of(envelope.payload)
        if isinstance(refusal, ParticipantPaused):
            self._control_handler.handle_pause_refusal(refusal.details)
        handled = False
        for id in envelope.correlation_id:
            handled = self._fail(id, refusal) or handled
        if not envelope.correlation_id:
            handled = self._streams.handle_frame_refusal(refusal)
        if not handled:
            sender.counts.unasked_refusals += 1
            code = str(envelope.payload["error"])
            log.info("refused", extra={"participant": sender.me, "code": code, "why": refusal.message})

    def _fail(self, id: str, refusal: Refused) -> bool:
        if refusal.details.get("error") == "not_on_disk":
            # It was done, and who waits for an answer to it will get one.
            log.warning("in effect, but not on disk", extra={"participant": self._sender.me, "id": id})
            return True
        if refusal.details.get("error") == "unsupported_by_recipient":
            # D-56: it was delivered, but no answer will come.
            return self._acks.fail(id, UnsupportedByRecipient(refusal.message))
        return (
            self._sender.fail_echo(id, refusal)
            or self._requests.handle_refusal(id, refusal)
            or self._acks.fail(id, refusal)
            or self._streams.handle_refusal(id, refusal)
            or self._acks.note_remaining(id, refusal.details)
            or self._proposal_sync.fail(id, refusal)
            or self._roster_fetch.handle_refusal(id, refusal)
            or self._owner_lookup.fail(id, refusal)
        )
