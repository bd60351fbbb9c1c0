"""Answers on their way: made for one sender, signed and sealed, and published (XP 5.1, 11.1)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final, Protocol

from moot.endpoint.relay_subscriptions import RelayRefused
from moot.errors import (
    ConnectionLost,
    EventFault,
    InvalidKey,
    OutboxFull,
    TimedOut,
    UsageError,
)
from moot.identity.keys import Identity
from moot.protocol.operation import Json
from moot.xprotocol.event_composer import reply, reply_fault
from moot.xprotocol.events import MAX_EVENT_BYTES, DirectedEvent, Signed, SignedDirected
from moot.xprotocol.faults import Fault, error_payload

log = logging.getLogger(__name__)

# base64 of this fills an event; whatever is certainly larger is not sealed first.
MAX_ANSWER_BYTES: Final = MAX_EVENT_BYTES * 3 // 4


class EventPublisher(Protocol):
    """What of `Relays` is needed here."""

    async def publish(self, signed: Signed, *, within: float = ...) -> str: ...


@dataclass(frozen=True, slots=True)
class PublishedReply:
    """What left, if anything did: its id and size, the payload, and a word for what went wrong."""

    id: str | None = None
    size: int = 0
    told: Json = None
    fault: str | None = None


class ReplyPublisher:
    """Makes and publishes answers for one identity."""

    def __init__(self, identity: Identity, relays: EventPublisher, *, ttl: int, within: float) -> None:
        self._identity = identity
        self.relays = relays
        self.ttl = ttl
        self.within = within

    async def answer(self, request: DirectedEvent, kind: str, payload: Json) -> PublishedReply:
        """Answer a request; a `Fault` or EventFault as payload becomes an `xp.error`. Raises nothing.

        What does not fit an event is answered with a fault that says so.
        """
        fault: str | None = None
        try:
            if isinstance(payload, Fault | EventFault):
                signed, told = self._fault(request, payload)
            else:
                try:
                    _check_room(payload)
                    told = payload
                    signed = reply(self._identity, request, kind, payload, now=time.time(), ttl=self.ttl)
                except UsageError as refusal:
                    # Not INTERNAL: the caller can do something about it.
                    words = f"the answer cannot be sent: {refusal}"
                    fault = "UPSTREAM_ERROR"
                    signed, told = self._fault(request, Fault(fault, words))
        except (InvalidKey, UsageError, ValueError) as refusal:
            # The sender gave a key that nothing can be sealed for.
            log.info("cannot be answered", extra={"event": request.id, "reason": str(refusal)})
            return PublishedReply(fault="UNANSWERABLE")
        return await self._publish(request, signed, told, fault)

    async def _publish(
        self, request: DirectedEvent, signed: SignedDirected, told: Json, fault: str | None
    ) -> PublishedReply:
        try:
            await self.relays.publish(signed, within=self.within)
        except (TimedOut, OutboxFull, ConnectionLost, RelayRefused) as trouble:
            log.warning("an answer was not delivered", extra={"event": request.id, "reason": str(trouble)})
            return PublishedReply(signed.event.id, len(signed.raw), told, "UNDELIVERED")
        return PublishedReply(signed.event.id, len(signed.raw), told, fault)

    def _fault(self, request: DirectedEvent, fault: Fault | EventFault) -> tuple[SignedDirected, Json]:
        signed = reply_fault(self._identity, request, fault, now=time.time(), ttl=self.ttl)
        return signed, error_payload(Fault(fault.code, fault.message, fault.retry_after), request.id)


def _check_room(payload: Json) -> None:
    content = payload.get("content") if payload.__class__ is dict else None
    if content.__class__ is str and len(content) > MAX_ANSWER_BYTES:
        raise UsageError(
            f"content of {len(content)} characters; an event holds {MAX_ANSWER_BYTES} bytes: ask for less"
        )
