"""What a relay says and is told, from the client's side (xp1, Relay).

A relay is not trusted: whatever it sends is read within bounds, and an event stays unread bytes until a
receiver verifies it. The relay's own room reads the other direction.
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
# A relay explains itself in a sentence.
_MOST_WORDS: Final = 500
# The id in the OK that answers a proof.
PROOF_ID: Final = "auth"
# Words after which the same event may be taken later.
_LATER: Final = frozenset({"rate-limited", "full", "error"})


class NotARelay(MootError):
    """What came is no message of a relay."""


@dataclass(frozen=True, slots=True)
class RelayEvent:
    """The bytes of an event, for a subscription."""

    subscription: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Whether an event was taken; `words` say why not."""

    id: str
    taken: bool
    words: str

    @property
    def may_try_later(self) -> bool:
        return self.words.partition(":")[0] in _LATER


@dataclass(frozen=True, slots=True)
class EndOfStored:
    """From here on the events of a subscription are new."""

    subscription: str


@dataclass(frozen=True, slots=True)
class SubscriptionClosed:
    """The relay ended or refused a subscription."""

    subscription: str
    words: str


@dataclass(frozen=True, slots=True)
class RelayNotice:
    """Something for people."""

    words: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a proof has to hold."""

    challenge: str


Message = RelayEvent | PublishResult | EndOfStored | SubscriptionClosed | RelayNotice | Challenge


def read(data: bytes) -> Message:
    """What a relay says; raises NotARelay, whatever the bytes are."""
    if data.startswith(_EVENT_HEAD) and data.endswith(b"]"):
        # The usual case: our names of subscriptions have no quotes, and what follows is one JSON value.
        end = data.find(b'",', len(_EVENT_HEAD), len(_EVENT_HEAD) + 100)
        if end > 0:
            return RelayEvent(data[len(_EVENT_HEAD) : end].decode("utf-8", "replace"), data[end + 2 : -1])
    try:
        parts = _PARTS.decode(data)
        match (_TEXT.decode(parts[0]) if parts else "", len(parts)):
            case "EVENT", 3:
                return RelayEvent(_TEXT.decode(parts[1]), bytes(parts[2]))
            case "OK", 4:
                words = _TEXT.decode(parts[3])[:_MOST_WORDS]
                return PublishResult(_TEXT.decode(parts[1]), _TRUTH.decode(parts[2]), words)
            case "EOSE", 2:
                return EndOfStored(_TEXT.decode(parts[1]))
            case "CLOSED", 3:
                return SubscriptionClosed(_TEXT.decode(parts[1]), _TEXT.decode(parts[2])[:_MOST_WORDS])
            case "NOTICE", 2:
                return RelayNotice(_TEXT.decode(parts[1])[:_MOST_WORDS])
            case "AUTH", 2:
                return Challenge(_TEXT.decode(parts[1])[:_MOST_WORDS])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    raise NotARelay("that is no message of a relay")


def publish(raw: bytes) -> bytes:
    return b'["EVENT",%b]' % raw


def authenticate(proof: bytes) -> bytes:
    return b'["AUTH",%b]' % proof


def request(subscription: str, filters: list[dict[str, Json]]) -> bytes:
    return orjson.dumps(["REQ", subscription, *filters])


def close(subscription: str) -> bytes:
    return orjson.dumps(["CLOSE", subscription])
