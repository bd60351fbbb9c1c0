"""The messages between client and relay, from the client's side (xp1, Relay).

A relay is not trusted: its messages are bounded, and an event stays raw bytes until a receiver verifies it.
`moot.xprotocol.relay.wire_messages` is the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import orjson

from moot.errors import MootError
from moot.protocol.operation import Json

_PARTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_TRUTH: Final = msgspec.json.Decoder(bool)
_EVENT_HEAD: Final = b'["EVENT","'
# Of a relay's explanation.
_MAX_REASON_CHARS: Final = 500
# The id in the OK that answers a proof.
PROOF_ID: Final = "auth"
# Codes after which the same event may be accepted later.
_RETRYABLE: Final = frozenset({"rate-limited", "full", "error"})


class InvalidRelayMessage(MootError):
    """The bytes are not a relay message."""


@dataclass(frozen=True, slots=True)
class RelayEvent:
    """The bytes of an event, for a subscription."""

    subscription: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Whether an event was accepted; `reason` says why not."""

    id: str
    accepted: bool
    reason: str

    @property
    def is_retryable(self) -> bool:
        return self.reason.partition(":")[0] in _RETRYABLE


@dataclass(frozen=True, slots=True)
class EndOfStored:
    """From here on the events of a subscription are new."""

    subscription: str


@dataclass(frozen=True, slots=True)
class SubscriptionClosed:
    """The relay ended or refused a subscription."""

    subscription: str
    reason: str


@dataclass(frozen=True, slots=True)
class RelayNotice:
    """A text for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a proof has to contain."""

    challenge: str


Message = RelayEvent | PublishResult | EndOfStored | SubscriptionClosed | RelayNotice | Challenge


def parse_message(data: bytes) -> Message:
    """Parse a relay's message; raises InvalidRelayMessage and nothing else."""
    if data.startswith(_EVENT_HEAD) and data.endswith(b"]"):
        # The usual case: our subscription names have no quotes, and one JSON value follows.
        end = data.find(b'",', len(_EVENT_HEAD), len(_EVENT_HEAD) + 100)
        if end > 0:
            return RelayEvent(data[len(_EVENT_HEAD) : end].decode("utf-8", "replace"), data[end + 2 : -1])
    try:
        parts = _PARTS.decode(data)
        match (_TEXT.decode(parts[0]) if parts else "", len(parts)):
            case "EVENT", 3:
                return RelayEvent(_TEXT.decode(parts[1]), bytes(parts[2]))
            case "OK", 4:
                reason = _TEXT.decode(parts[3])[:_MAX_REASON_CHARS]
                return PublishResult(_TEXT.decode(parts[1]), _TRUTH.decode(parts[2]), reason)
            case "EOSE", 2:
                return EndOfStored(_TEXT.decode(parts[1]))
            case "CLOSED", 3:
                return SubscriptionClosed(_TEXT.decode(parts[1]), _TEXT.decode(parts[2])[:_MAX_REASON_CHARS])
            case "NOTICE", 2:
                return RelayNotice(_TEXT.decode(parts[1])[:_MAX_REASON_CHARS])
            case "AUTH", 2:
                return Challenge(_TEXT.decode(parts[1])[:_MAX_REASON_CHARS])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    raise InvalidRelayMessage("not a relay message")


def encode_publish(raw: bytes) -> bytes:
    return b'["EVENT",%b]' % raw


def encode_auth(proof: bytes) -> bytes:
    return b'["AUTH",%b]' % proof


def encode_subscribe(subscription: str, filters: list[dict[str, Json]]) -> bytes:
    return orjson.dumps(["REQ", subscription, *filters])


def encode_unsubscribe(subscription: str) -> bytes:
    return orjson.dumps(["CLOSE", subscription])
