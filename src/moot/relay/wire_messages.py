"""What clients and a relay say to each other: JSON arrays, shaped after NIP-01 and NIP-42.

    client   ["EVENT", event]   ["REQ", subscription, filter, …]   ["CLOSE", subscription]   ["AUTH", proof]
    relay    ["EVENT", subscription, event]   ["OK", id, taken, words]   ["EOSE", subscription]
             ["CLOSED", subscription, words]   ["NOTICE", words]   ["AUTH", challenge]

Words begin with one that programs read: `duplicate`, `invalid`, `expired`, `rate-limited`, `restricted`,
`auth-required`, `full`, `error`, then a colon and a sentence for people. An event stays the bytes that came:
it is cut out of its message and never written anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import orjson

from moot.errors import MootError
from moot.net.websocket_frame import encode_frame
from moot.relay.relay_settings import RelayLimits
from moot.relay.subscription_filters import EventFilter

_EVENT_HEAD: Final = b'["EVENT",'
_PARTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_WORD: Final = msgspec.json.Decoder(str)
_FILTER: Final = msgspec.json.Decoder(EventFilter)


class NotAMessage(MootError):
    """What a client sent is none of the messages above; `subscription` is set when it can be told which."""

    def __init__(self, message: str, subscription: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subscription = subscription


@dataclass(frozen=True, slots=True)
class PublishMessage:
    """The bytes of an event, unread."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class SubscribeMessage:
    """Stored events first, then those that come."""

    subscription: str
    filters: tuple[EventFilter, ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeMessage:
    """No more of this subscription."""

    subscription: str


@dataclass(frozen=True, slots=True)
class AuthMessage:
    """The bytes of a proof, unread."""

    raw: bytes


Message = PublishMessage | SubscribeMessage | UnsubscribeMessage | AuthMessage


def read_message(data: bytes, limits: RelayLimits) -> Message:
    """What a client says; raises NotAMessage, whatever the bytes are."""
    if data.startswith(_EVENT_HEAD) and data.endswith(b"]"):
        # The usual case. Whatever stands between is read as one JSON value, or is no event.
        return PublishMessage(data[len(_EVENT_HEAD) : -1])
    try:
        parts = _PARTS.decode(data)
        word = _WORD.decode(parts[0]) if parts else ""
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise NotAMessage(
            "a message is a JSON array that begins with a word: EVENT, REQ, CLOSE or AUTH"
        ) from None
    if word == "EVENT" and len(parts) == 2:
        return PublishMessage(bytes(parts[1]))
    if word == "AUTH" and len(parts) == 2:
        return AuthMessage(bytes(parts[1]))
    if word == "CLOSE" and len(parts) == 2:
        return UnsubscribeMessage(_subscription(parts[1], limits))
    if word == "REQ" and len(parts) > 2:
        return _request(parts, limits)
    raise NotAMessage(
        'write ["EVENT",event], ["REQ",subscription,filter,…], ["CLOSE",subscription] or ["AUTH",proof]'
    )


def _request(parts: list[msgspec.Raw], limits: RelayLimits) -> SubscribeMessage:
    name = _subscription(parts[1], limits)
    if len(parts) - 2 > limits.filters:
        raise NotAMessage(f"{len(parts) - 2} filters; limits.filters is {limits.filters}", name)
    try:
        filters = tuple(_FILTER.decode(part) for part in parts[2:])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise NotAMessage(f"a filter that cannot be read: {str(fault)[:200]}", name) from None
    for one in filters:
        if (words := one.fault(limits.filter_values)) is not None:
            raise NotAMessage(words, name)
    return SubscribeMessage(name, filters)


def _subscription(part: msgspec.Raw, limits: RelayLimits) -> str:
    try:
        name = _WORD.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NotAMessage("a subscription is named by a text") from None
    if not 0 < len(name) <= limits.subscription_id_chars or not name.isprintable():
        raise NotAMessage(
            f"a subscription's name has 1 to {limits.subscription_id_chars} printable characters"
        )
    return name


# What the relay says, framed


def event_head(subscription: str) -> bytes:
    """How every event for a subscription begins; `event_message` takes it."""
    return b'["EVENT",%b,' % orjson.dumps(subscription)


def event_message(head: bytes, raw: bytes) -> bytes:
    return encode_frame(b"%b%b]" % (head, raw))


def ok_message(event_id: str, taken: bool, words: str = "") -> bytes:
    if taken and not words:
        return encode_frame(b'["OK","%b",true,""]' % event_id.encode())
    return encode_frame(orjson.dumps(["OK", event_id, taken, words]))


def eose_message(subscription: str) -> bytes:
    return encode_frame(orjson.dumps(["EOSE", subscription]))


def closed_message(subscription: str, words: str) -> bytes:
    return encode_frame(orjson.dumps(["CLOSED", subscription, words]))


def notice_message(words: str) -> bytes:
    return encode_frame(orjson.dumps(["NOTICE", words]))


def auth_message(challenge: str) -> bytes:
    return encode_frame(orjson.dumps(["AUTH", challenge]))
