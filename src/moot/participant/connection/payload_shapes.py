"""The shape of the payload of each kind (MEW 3, 4.3, 8.2), for what we send and what we receive.

`check_shape` raises `PayloadShapeError`. Fields that no specification defines are ignored. What arrives may
lack what its envelope makes up for (D-95): clients of the reference implementation send MCP bodies without
`jsonrpc` and `id`, and reasoning without `message`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moot.protocol.kinds import NOTIFICATION_PREFIX
from moot.protocol.operation import Json, Payload

_SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*")


class PayloadShapeError(Exception):
    """A payload that its kind does not allow; the text says what is wrong."""


Check = Callable[[Payload], None]


def check_shape(
    kind: str, payload: Payload, correlation_id: Sequence[str], context: str | None, *, received: bool = False
) -> None:
    """Raises PayloadShapeError. Kinds that are not in the tables are not checked (D-08).

    `received`: it arrived, or answers something that arrived without an id.
    """
    if not correlation_id and kind in CORRELATED:
        raise PayloadShapeError(f"{kind} must name what it answers in correlation_id")
    if not context and kind in _IN_CONTEXT:
        raise PayloadShapeError(f"{kind} must name its sequence in context")
    check = (_RECEIVED_CHECKS if received else _CHECKS).get(kind)
    if check is not None:
        check(payload)


# Checks of single fields.


def _check_text(payload: Payload, name: str, *, empty: bool = True) -> None:
    value = payload.get(name)
    if not isinstance(value, str) or (not empty and not value):
        raise PayloadShapeError(f"payload.{name} must be a {'' if empty else 'non-empty '}string")


def _check_texts(payload: Payload, *names: str) -> None:
    for name in names:
        _check_text(payload, name, empty=False)


def _check_optional_text(payload: Payload, *names: str) -> None:
    for name in names:
        if name in payload and not isinstance(payload[name], str):
            raise PayloadShapeError(f"payload.{name} must be a string")


def _is_count(value: Json) -> bool:
    return value.__class__ is int and value >= 0


def _check_optional_count(payload: Payload, *names: str) -> None:
    for name in names:
        if name in payload and not _is_count(payload[name]):
            raise PayloadShapeError(f"payload.{name} must be a whole number of 0 or more")


def _check_optional_object(payload: Payload, name: str) -> None:
    if name in payload and not isinstance(payload[name], dict):
        raise PayloadShapeError(f"payload.{name} must be an object")


def _check_names(value: Json, name: str) -> None:
    if value.__class__ is not list or any(each.__class__ is not str for each in value):
        raise PayloadShapeError(f"payload.{name} must be a list of strings")


def _fields(*required: str, optional: Sequence[str] = (), counts: Sequence[str] = ()) -> Check:
    """A check of texts that are required and not empty, optional texts, and optional counts."""

    def check(payload: Payload) -> None:
        _check_texts(payload, *required)
        _check_optional_text(payload, *optional)
        _check_optional_count(payload, *counts)

    return check


_REASON: Final = _fields(optional=("reason",))
_STATUS: Final = _fields(optional=("status",))
_WRITER: Final = _fields("stream_id", "participant_id", optional=("reason",))
_TRANSFER: Final = _fields("stream_id", "new_owner", optional=("reason",))


def _message(payload: Payload) -> None:
    _check_text(payload, "message")


# MCP bodies.


def _check_version(payload: Payload) -> None:
    if payload.get("jsonrpc", "2.0") != "2.0":
        raise PayloadShapeError('payload.jsonrpc must be "2.0"')


def _check_request(payload: Payload) -> None:
    _check_received_request(payload)
    if "id" not in payload and not payload["method"].startswith(NOTIFICATION_PREFIX):
        raise PayloadShapeError("payload.id of a request must be a string or a whole number")


def _check_received_request(payload: Payload) -> None:
    _check_version(payload)
    _check_text(payload, "method", empty=False)
    _check_optional_object(payload, "params")
    if payload["method"].startswith(NOTIFICATION_PREFIX):
        if "id" in payload:
            raise PayloadShapeError("a notification has no payload.id")
    elif payload.get("id", 0).__class__ not in (str, int):
        raise PayloadShapeError("payload.id of a request must be a string or a whole number")


def _check_response(payload: Payload) -> None:
    _check_received_response(payload)
    _check_optional_object(payload, "result")
    if "error" in payload and payload["error"].get("code").__class__ is not int:
        raise PayloadShapeError("payload.error must hold a whole number `code` and a string `message`")
    if "id" not in payload:
        raise PayloadShapeError("payload.id of a response must be that of the request")


def _check_received_response(payload: Payload) -> None:
    """A result of any type: whether it must be an object depends on what was asked."""
    _check_version(payload)
    has_result, has_error = "result" in payload, "error" in payload
    if has_result == has_error:
        raise PayloadShapeError("a response holds either result or error")
    if has_error:
        error = payload["error"]
        if error.__class__ is not dict or error.get("message").__class__ is not str:
            raise PayloadShapeError("payload.error must hold a whole number `code` and a string `message`")
    # JSON-RPC 2.0, 5.1: the answer to a request whose id cannot be used.
    if payload.get("id", 0).__class__ not in (str, int) and not (has_error and payload["id"] is None):
        raise PayloadShapeError("payload.id of a response must be that of the request")


def _check_proposal(payload: Payload) -> None:
    _check_version(payload)
    _check_texts(payload, "method")
    _check_optional_object(payload, "params")
    if payload["method"].startswith(NOTIFICATION_PREFIX):
        raise PayloadShapeError("a notification cannot be proposed: nobody would answer it")


# The space.


def _check_grant(payload: Payload) -> None:
    _check_texts(payload, "recipient")
    _check_optional_text(payload, "reason")
    capabilities = payload.get("capabilities")
    if capabilities.__class__ is not list or not capabilities:
        raise PayloadShapeError("payload.capabilities must be a non-empty list")


def _check_revoke(payload: Payload) -> None:
    _check_texts(payload, "recipient")
    _check_optional_text(payload, "reason")
    if "grant_id" in payload:
        _check_texts(payload, "grant_id")
    elif payload.get("capabilities").__class__ is not list:
        raise PayloadShapeError("payload must hold grant_id or a list of capabilities")


def _check_invite(payload: Payload) -> None:
    _check_texts(payload, "participant_id")
    _check_optional_text(payload, "email", "reason")
    if payload.get("initial_capabilities", []).__class__ is not list:
        raise PayloadShapeError("payload.initial_capabilities must be a list")


def _check_member(member: Json, name: str) -> None:
    if member.__class__ is not dict or member.get("id").__class__ is not str or not member["id"]:
        raise PayloadShapeError(f"payload.{name} must be an object with an id")
    if member.get("capabilities", []).__class__ is not list:
        raise PayloadShapeError(f"payload.{name}.capabilities must be a list")
    if "name" in member and member["name"].__class__ is not str:
        raise PayloadShapeError(f"payload.{name}.name must be a string")


def _check_welcome(payload: Payload) -> None:
    _check_member(payload.get("you"), "you")
    _check_roster(payload)
    if "extensions" in payload:
        _check_names(payload["extensions"], "extensions")


def _check_roster(payload: Payload) -> None:
    participants = payload.get("participants", [])
    streams = payload.get("active_streams", [])
    if participants.__class__ is not list or streams.__class__ is not list:
        raise PayloadShapeError("payload.participants and payload.active_streams must be lists")
    for member in participants:
        _check_member(member, "participants")
    for stream in streams:
        if stream.__class__ is not dict or stream.get("stream_id").__class__ is not str:
            raise PayloadShapeError("payload.active_streams must hold objects with a stream_id")


def _check_presence(payload: Payload) -> None:
    _check_texts(payload, "event")
    _check_member(payload.get("participant"), "participant")


# Controls.


def _check_pause(payload: Payload) -> None:
    _check_optional_text(payload, "reason")
    seconds = payload.get("timeout_seconds")
    if seconds is not None and (seconds.__class__ not in (int, float) or not seconds > 0):
        raise PayloadShapeError("payload.timeout_seconds must be a positive number")


def _check_request_status(payload: Payload) -> None:
    if payload.get("fields") is not None:
        _check_names(payload["fields"], "fields")


def _check_status(payload: Payload) -> None:
    if not _is_count(payload.get("messages_in_context")):
        raise PayloadShapeError("payload.messages_in_context must be a whole number in every status")
    _check_optional_count(payload, "tokens", "max_tokens")


def _check_forget(payload: Payload) -> None:
    if payload.get("direction") not in ("oldest", "newest"):
        raise PayloadShapeError("payload.direction must be oldest or newest")
    entries = payload.get("entries")
    if entries is not None and not (_is_count(entries) and entries > 0):
        raise PayloadShapeError("payload.entries must be a whole number of 1 or more")


def _check_compact_done(payload: Payload) -> None:
    _check_optional_count(payload, "freed_tokens", "freed_messages")
    _check_optional_text(payload, "reason", "status")
    if payload.get("skipped", False).__class__ is not bool:
        raise PayloadShapeError("payload.skipped must be true or false")


# Streams.


def _check_stream_request(payload: Payload) -> None:
    if "direction" not in payload:
        raise PayloadShapeError("payload.direction must be upload or download")
    _check_received_stream_request(payload)


def _check_received_stream_request(payload: Payload) -> None:
    if payload.get("direction", "upload") not in ("upload", "download"):
        raise PayloadShapeError("payload.direction must be upload or download")
    if payload.get("target") is not None:
        _check_names(payload["target"], "target")
    _check_optional_text(payload, "description", "content_type", "format")


def _check_stream_open(payload: Payload) -> None:
    _check_texts(payload, "stream_id")
    if payload.get("target") is not None:
        _check_names(payload["target"], "target")


def _check_settlement(payload: Payload) -> None:
    if payload.get("outcome") not in ("done", "failed"):
        raise PayloadShapeError("outcome must be done or failed")
    _check_optional_text(payload, "note")


def _check_votes(payload: Payload) -> None:
    _check_texts(payload, "proposal_id")
    for name in ("approvals_needed", "approvals_missing"):
        if payload.get(name).__class__ is not int or payload[name] < 0:
            raise PayloadShapeError(f"{name} must be a number of approvals")
    for name in ("approved_by", "exempt"):
        if payload.get(name).__class__ is not list or not all(
            each.__class__ is str for each in payload[name]
        ):
            raise PayloadShapeError(f"{name} must be a list of members")


def _check_proposals(payload: Payload) -> None:
    if payload.get("proposals").__class__ is not list:
        raise PayloadShapeError("proposals must be a list")


def _check_owners(payload: Payload) -> None:
    owners = payload.get("owners")
    if owners.__class__ is not list or not all(map(_is_owner_entry, owners)):
        raise PayloadShapeError("payload.owners must hold objects with a participant and the names taken")
    _check_names(payload.get("next", []), "next")


def _is_owner_entry(entry: Json) -> bool:
    """The names of one participant that belong to others: by namespace and name, the owner."""
    return (
        entry.__class__ is dict
        and entry.get("participant").__class__ is str
        and entry.get("taken").__class__ is dict
        and all(
            names.__class__ is dict and all(owner.__class__ is str for owner in names.values())
            for names in entry["taken"].values()
        )
    )


# Where MEW demands a reference. An acknowledged shutdown correlates to it, a status may be unasked for.
CORRELATED: Final = frozenset(
    {
        "mcp/response",
        "mcp/withdraw",
        "mcp/reject",
        "chat/acknowledge",
        "chat/cancel",
        "capability/grant-ack",
        "space/invite-ack",
        "moot/approve",
        "moot/settle",
    }
)
_IN_CONTEXT: Final = frozenset({"reasoning/thought", "reasoning/conclusion", "reasoning/cancel"})

_CHECKS: Final[Mapping[str, Check]] = {
    "mcp/request": _check_request,
    "mcp/response": _check_response,
    "mcp/proposal": _check_proposal,
    "mcp/withdraw": _REASON,
    "mcp/reject": _REASON,
    "chat": _fields("text", optional=("format",)),
    "chat/acknowledge": _STATUS,
    "chat/cancel": _REASON,
    "reasoning/start": _message,
    "reasoning/thought": _message,
    "reasoning/conclusion": _message,
    "reasoning/cancel": _REASON,
    "capability/grant": _check_grant,
    "capability/revoke": _check_revoke,
    "capability/grant-ack": _STATUS,
    "space/invite": _check_invite,
    "space/invite-ack": _fields("status", "participant_id", optional=("token", "connection_url")),
    "space/kick": _fields("participant_id", optional=("reason",)),
    "participant/pause": _check_pause,
    "participant/request-status": _check_request_status,
    "participant/status": _check_status,
    "participant/forget": _check_forget,
    "participant/compact": _fields(optional=("reason",), counts=("target_tokens",)),
    "participant/compact-done": _check_compact_done,
    "stream/request": _check_stream_request,
    "stream/open": _check_stream_open,
    "stream/close": _fields(optional=("stream_id", "reason")),
    "stream/grant-write": _WRITER,
    "stream/revoke-write": _WRITER,
    "stream/transfer-ownership": _TRANSFER,
    "stream/write-granted": _WRITER,
    "stream/write-revoked": _WRITER,
    "stream/ownership-transferred": _TRANSFER,
    "moot/settle": _check_settlement,
    "moot/votes": _check_votes,
    "moot/outcome": _fields("proposal_id", "outcome", optional=("reason", "request_id")),
    "moot/proposals": _check_proposals,
    "system/welcome": _check_welcome,
    "moot/roster-page": _check_roster,
    "moot/owners": _check_owners,
    "system/presence": _check_presence,
    "system/error": _fields("error", optional=("message",)),
}

# Where an envelope that arrives may hold less, or more, than one that we send.
_RECEIVED_CHECKS: Final[Mapping[str, Check]] = {
    **_CHECKS,
    "mcp/request": _check_received_request,
    "mcp/response": _check_received_response,
    "reasoning/start": _fields(optional=("message",)),
    "reasoning/thought": _fields(optional=("message",)),
    "reasoning/conclusion": _fields(optional=("message",)),
    "stream/request": _check_received_stream_request,
}


def check_metrics(metrics: Mapping[str, Json]) -> None:
    """MEW 3.9.4: metrics of one's own are named in snake_case."""
    for name in metrics:
        if _SNAKE_CASE.fullmatch(name) is None:
            raise PayloadShapeError(f"a metric is named in snake_case, as in latency_ms: {name!r}")
