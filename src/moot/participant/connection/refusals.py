"""What the gateway refuses, as the exception that carries the same word (MEW 3.8.2, D-42)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from moot.errors import ParticipantPaused, Refused, UnsupportedByRecipient
from moot.participant.calls.request_client import RequestClient
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.control.administration import PendingAcks
from moot.participant.control.controls import Controlled
from moot.participant.conversation.stream_client import StreamClient
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Payload

log = logging.getLogger(__name__)


def _descendants(root: type[Refused]) -> Iterator[type[Refused]]:
    for child in root.__subclasses__():
        yield child
        yield from _descendants(child)


# The first class of a word is the general one: InvalidRequest rather than InvalidPattern.
_BY_CODE: Final[Mapping[str, type[Refused]]] = {
    found.code: found for found in reversed(list(_descendants(Refused))) if "code" in vars(found)
}


def refusal_of(payload: Payload) -> Refused:
    """The exception for a `system/error`; `details` holds what it says beside code and message.

    A word that this version does not know makes a plain `Refused`, and stands in its details as `error`.
    """
    word = str(payload.get("error", ""))
    message = payload.get("message")
    text = message if isinstance(message, str) and message else word
    found = _BY_CODE.get(word)
    refusal = Refused(text) if found is None else found(text)
    told = ("message",) if found is None else ("error", "message")
    refusal.details = {name: value for name, value in payload.items() if name not in told}
    return refusal


class Refusals:
    """Finds out whom a `system/error` concerns."""

    def __init__(
        self,
        voice: EnvelopeSender,
        requests: RequestClient,
        answers: PendingAcks,
        streams: StreamClient,
        controlled: Controlled,
    ) -> None:
        self._voice = voice
        self._requests = requests
        self._answers = answers
        self._streams = streams
        self._controlled = controlled

    def hear(self, envelope: Envelope) -> None:
        """Raised where something waits for it; otherwise counted and logged, and handlers see it."""
        voice = self._voice
        if voice.me not in envelope.to:
            return  # D-32: a notice about somebody else
        refusal = refusal_of(envelope.payload)
        if isinstance(refusal, ParticipantPaused):
            self._controlled.paused_by_gateway(refusal.details)
        taken = False
        for id in envelope.correlation_id:
            taken = self._is_taken(id, refusal) or taken
        if not envelope.correlation_id:
            taken = self._streams.frame_refused(refusal)
        if not taken:
            voice.counts.unasked_refusals += 1
            code = str(envelope.payload["error"])
            log.info("refused", extra={"participant": voice.me, "code": code, "why": refusal.message})

    def _is_taken(self, id: str, refusal: Refused) -> bool:
        if refusal.details.get("error") == "unsupported_by_recipient":
            # D-56: not a refusal, but no answer will come.
            return self._answers.failed(id, UnsupportedByRecipient(refusal.message))
        return (
            self._voice.hear_refusal(id, refusal)
            or self._requests.refused(id, refusal)
            or self._answers.failed(id, refusal)
            or self._streams.refused(id, refusal)
            or self._answers.incomplete(id, refusal.details)
        )
