"""Publishes replies: signed, sealed for one sender, sent through the relays (XP 5.1, 11.1)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from moot.errors import (
    ConnectionLost,
    EventFault,
    InvalidKey,
    OutboxFull,
    TimedOut,
    UsageError,
)
from moot.protocol.operation import Json
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.endpoint.relay_subscriptions import RelayRefused
from moot.xprotocol.events.event_composer import reply, reply_fault
from moot.xprotocol.events.events import MAX_EVENT_BYTES, DirectedEvent, SignedDirected
from moot.xprotocol.events.faults import Fault, error_payload
from moot.xprotocol.identity.keys import Identity

log = logging.getLogger(__name__)

# base64 of this fills an event; larger answers are refused before they are sealed.
MAX_ANSWER_BYTES: Final = MAX_EVENT_BYTES * 3 // 4


@dataclass(frozen=True, slots=True)
class PublishedReply:
    """The outcome of a reply: id and size if it was sent, its payload, and a code if it failed."""

    id: str | None = None
    size: int = 0
    payload: Json = None
    fault: str | None = None


class ReplyPublisher:
    """Makes and publishes replies of one identity."""

    def __init__(
        self, identity: Identity, relays: RelayClient, *, ttl_seconds: int, publish_seconds: float
    ) -> None:
        self._identity = identity
        self.relays = relays
        self.ttl_seconds = ttl_seconds
        self.publish_seconds = publish_seconds

    async def send(self, request: DirectedEvent, kind: str, payload: Json) -> PublishedReply:
        """Reply to a request; a `Fault` or EventFault as payload becomes an `xp.error`. Raises nothing.

        A payload that does not fit an event is replaced by a fault that says so.
        """
        fault: str | None = None
        try:
            if isinstance(payload, Fault | EventFault):
                signed, payload_sent = self._make_fault(request, payload)
            else:
                try:
                    _check_size(payload)
                    payload_sent = payload
                    signed = reply(
                        self._identity, request, kind, payload, now=time.time(), ttl=self.ttl_seconds
                    )
                except UsageError as refusal:
                    # Not INTERNAL: the caller can do something about it.
                    message = f"the answer cannot be sent: {refusal}"
                    fault = "UPSTREAM_ERROR"
                    signed, payload_sent = self._make_fault(request, Fault(fault, message))
        except (InvalidKey, UsageError, ValueError) as refusal:
            # The sender's key cannot be used for sealing.
            log.info("cannot be answered", extra={"event": request.id, "reason": str(refusal)})
            return PublishedReply(fault="UNANSWERABLE")
        return await self._publish(request, signed, payload_sent, fault)

    async def _publish(
        self, request: DirectedEvent, signed: SignedDirected, payload_sent: Json, fault: str | None
    ) -> PublishedReply:
        try:
            await self.relays.publish(signed, timeout_seconds=self.publish_seconds)
        except (TimedOut, OutboxFull, ConnectionLost, RelayRefused) as trouble:
            log.warning("an answer was not delivered", extra={"event": request.id, "reason": str(trouble)})
            return PublishedReply(signed.event.id, len(signed.raw), payload_sent, "UNDELIVERED")
        return PublishedReply(signed.event.id, len(signed.raw), payload_sent, fault)

    def _make_fault(self, request: DirectedEvent, fault: Fault | EventFault) -> tuple[SignedDirected, Json]:
        signed = reply_fault(self._identity, request, fault, now=time.time(), ttl=self.ttl_seconds)
        return signed, error_payload(Fault(fault.code, fault.message, fault.retry_after), request.id)


def _check_size(payload: Json) -> None:
    content = payload.get("content") if payload.__class__ is dict else None
    if content.__class__ is str and len(content) > MAX_ANSWER_BYTES:
        raise UsageError(
            f"content of {len(content)} characters; an event holds {MAX_ANSWER_BYTES} bytes: ask for less"
        )
