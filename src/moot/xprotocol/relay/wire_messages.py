"""The messages between clients and a relay: JSON arrays, modelled on NIP-01 and NIP-42.

    client   ["EVENT", event]   ["REQ", subscription, filter, …]   ["CLOSE", subscription]   ["AUTH", proof]
    relay    ["EVENT", subscription, event]   ["OK", id, accepted, reason]   ["EOSE", subscription]
             ["CLOSED", subscription, reason]   ["NOTICE", text]   ["AUTH", challenge]

A reason starts with a code for programs: `duplicate`, `invalid`, `expired`, `rate-limited`, `restricted`,
`auth-required`, `full`, `error`, then a colon and a sentence for people. An event keeps its original bytes:
it is cut out of its message and never encoded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import orjson

from moot.errors import MootError
from moot.net.websocket_frame import encode_frame
from moot.xprotocol.relay.subscription_filters import EventFilter

# Of one REQ.
MAX_SUBSCRIPTION_ID_CHARS: Final = 64
MAX_FILTERS: Final = 8
# In one list of a filter.
MAX_FILTER_VALUES: Final = 256

_EVENT_HEAD: Final = b'["EVENT",'
_PARTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_FILTER: Final = msgspec.json.Decoder(EventFilter)


class InvalidClientMessage(MootError):
    """A client's message is invalid; `subscription` is set when it is known."""

    def __init__(self, message: str, subscription: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subscription = subscription


@dataclass(frozen=True, slots=True)
class PublishMessage:
    """The bytes of an event, not parsed."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class SubscribeMessage:
    """Requests stored events, then new ones."""

    subscription: str
    filters: tuple[EventFilter, ...]


@dataclass(frozen=True, slots=True)
class UnsubscribeMessage:
    """Ends a subscription."""

    subscription: str


@dataclass(frozen=True, slots=True)
class AuthMessage:
    """The bytes of a proof, not parsed."""

    raw: bytes


Message = PublishMessage | SubscribeMessage | UnsubscribeMessage | AuthMessage


def read_message(data: bytes) -> Message:
    """Parse a client's message; raises InvalidClientMessage and nothing else."""
    if data.startswith(_EVENT_HEAD) and data.endswith(b"]"):
        # The usual case: the event itself is parsed later.
        return PublishMessage(data[len(_EVENT_HEAD) : -1])
    try:
        parts = _PARTS.decode(data)
        verb = _TEXT.decode(parts[0]) if parts else ""
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidClientMessage(
            "a message is a JSON array that begins with EVENT, REQ, CLOSE or AUTH"
        ) from None
    if verb == "EVENT" and len(parts) == 2:
        return PublishMessage(bytes(parts[1]))
    if verb == "AUTH" and len(parts) == 2:
        return AuthMessage(bytes(parts[1]))
    if verb == "CLOSE" and len(parts) == 2:
        return UnsubscribeMessage(_parse_subscription_id(parts[1]))
    if verb == "REQ" and len(parts) > 2:
        return _parse_subscribe(parts)
    raise InvalidClientMessage(
        'send ["EVENT",event], ["REQ",subscription,filter,…], ["CLOSE",subscription] or ["AUTH",proof]'
    )


def _parse_subscribe(parts: list[msgspec.Raw]) -> SubscribeMessage:
    name = _parse_subscription_id(parts[1])
    if len(parts) - 2 > MAX_FILTERS:
        raise InvalidClientMessage(f"{len(parts) - 2} filters; at most {MAX_FILTERS}", name)
    try:
        filters = tuple(_FILTER.decode(part) for part in parts[2:])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise InvalidClientMessage(f"an invalid filter: {str(fault)[:200]}", name) from None
    for one in filters:
        if (reason := one.find_problem(MAX_FILTER_VALUES)) is not None:
            raise InvalidClientMessage(reason, name)
    return SubscribeMessage(name, filters)


def _parse_subscription_id(part: msgspec.Raw) -> str:
    try:
        name = _TEXT.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidClientMessage("a subscription id must be text") from None
    if not 0 < len(name) <= MAX_SUBSCRIPTION_ID_CHARS or not name.isprintable():
        raise InvalidClientMessage(
            f"a subscription id has 1 to {MAX_SUBSCRIPTION_ID_CHARS} printable characters"
        )
    return name


# Messages of the relay, framed


def event_head(subscription: str) -> bytes:
    """The start of every event message of a subscription, for `event_message`."""
    return b'["EVENT",%b,' % orjson.dumps(subscription)


def event_message(head: bytes, raw: bytes) -> bytes:
    return encode_frame(b"%b%b]" % (head, raw))


def ok_message(event_id: str, accepted: bool, reason: str = "") -> bytes:
    if accepted and not reason:
        return encode_frame(b'["OK","%b",true,""]' % event_id.encode())
    return encode_frame(orjson.dumps(["OK", event_id, accepted, reason]))


def eose_message(subscription: str) -> bytes:
    return encode_frame(orjson.dumps(["EOSE", subscription]))


def closed_message(subscription: str, reason: str) -> bytes:
    return encode_frame(orjson.dumps(["CLOSED", subscription, reason]))


def notice_message(reason: str) -> bytes:
    return encode_frame(orjson.dumps(["NOTICE", reason]))


def auth_message(challenge: str) -> bytes:
    return encode_frame(orjson.dumps(["AUTH", challenge]))
