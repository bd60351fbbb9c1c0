"""The shape of the payload of each kind (MEW 3, 4.3, 8.2), for what we send and what we receive.

`check_shape` raises `PayloadShapeError`. A kind has a table of fields, and a check of its own where a table
cannot say it. Fields that no specification defines are ignored. What arrives may lack what its envelope makes
up for (D-95): clients of the reference implementation send MCP bodies without `jsonrpc` and `id`, and
reasoning without `message`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from moot.protocol.kinds import NOTIFICATION_PREFIX
from moot.protocol.operation import Json, Payload
from moot.protocol.opinion import read_opinion
from moot.protocol.origin_report import read_report
from moot.protocol.preview_report import read_preview

_SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*")


# Null is a value.
_ABSENT: Final = object()


class PayloadShapeError(Exception):
    """A payload that its kind does not allow; the text says what is wrong."""


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
    shape = (_RECEIVED_SHAPES if received else _SHAPES).get(kind)
    if shape is None:
        return
    for name, rule in shape.fields.items():
        value = payload.get(name, _ABSENT)
        if value is _ABSENT:
            is_right = not rule.is_required
        else:
            is_right = isinstance(value, rule.type) and (rule.test is None or rule.test(value))
        if not is_right and not (value is None and rule.or_null):
            raise PayloadShapeError(f"payload.{name} must be {rule.words}")
    if shape.check is not None:
        shape.check(payload)


class _Rule(msgspec.Struct, frozen=True):
    """What one field holds."""

    words: str
    type: type | tuple[type, ...]
    # What else it has to be.
    test: Callable[[Json], bool] | None = None
    is_required: bool = False
    # Null says the same as no field.
    or_null: bool = False


class _Shape(msgspec.Struct, frozen=True):
    fields: Mapping[str, _Rule] = msgspec.field(default_factory=dict)
    check: Callable[[Payload], None] | None = None


def _required(rule: _Rule) -> _Rule:
    return replace(rule, is_required=True)


def _one_of(*words: str) -> _Rule:
    return _Rule(" or ".join(words), str, words.__contains__)


def _is_count(value: Json) -> bool:
    return value.__class__ is int and value >= 0


def _are_texts(value: Json) -> bool:
    return all(each.__class__ is str for each in value)


_STRING: Final = _Rule("a string", str)
_TEXT: Final = _Rule("a non-empty string", str, bool, is_required=True)
_COUNT: Final = _Rule("a whole number of 0 or more", int, _is_count)
_OBJECT: Final = _Rule("an object", dict)
_LIST: Final = _Rule("a list", list)
_NAMES: Final = _Rule("a list of strings", list, _are_texts)
_NAMES_OR_NULL: Final = replace(_NAMES, or_null=True)
_VERSION: Final = _Rule('"2.0"', str, "2.0".__eq__)

_REASON: Final = _Shape({"reason": _STRING})
_STATUS: Final = _Shape({"status": _STRING})
_MESSAGE: Final = _Shape({"message": _required(_STRING)})
_WRITER: Final = _Shape({"stream_id": _TEXT, "participant_id": _TEXT, "reason": _STRING})
_TRANSFER: Final = _Shape({"stream_id": _TEXT, "new_owner": _TEXT, "reason": _STRING})


# MCP bodies.


def _check_request(payload: Payload) -> None:
    _check_received_request(payload)
    if "id" not in payload and not payload["method"].startswith(NOTIFICATION_PREFIX):
        raise PayloadShapeError("payload.id of a request must be a string or a whole number")


def _check_received_request(payload: Payload) -> None:
    if payload["method"].startswith(NOTIFICATION_PREFIX):
        if "id" in payload:
            raise PayloadShapeError("a notification has no payload.id")
    elif payload.get("id", 0).__class__ not in (str, int):
        raise PayloadShapeError("payload.id of a request must be a string or a whole number")


def _check_response(payload: Payload) -> None:
    _check_received_response(payload)
    if "error" in payload and payload["error"].get("code").__class__ is not int:
        raise PayloadShapeError("payload.error must hold a whole number `code` and a string `message`")
    if "id" not in payload:
        raise PayloadShapeError("payload.id of a response must be that of the request")


def _check_received_response(payload: Payload) -> None:
    """A result of any type: whether it must be an object depends on what was asked."""
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
    if payload["method"].startswith(NOTIFICATION_PREFIX):
        raise PayloadShapeError("a notification cannot be proposed: nobody would answer it")


_CALL: Final[Mapping[str, _Rule]] = {"jsonrpc": _VERSION, "method": _TEXT, "params": _OBJECT}


# The space.


def _check_revoke(payload: Payload) -> None:
    if "grant_id" not in payload and payload.get("capabilities").__class__ is not list:
        raise PayloadShapeError("payload must hold grant_id or a list of capabilities")


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


def _check_origins(payload: Payload) -> None:
    try:
        read_report(payload)
    except ValueError as fault:
        raise PayloadShapeError(f"payload says nothing of origins: {fault}") from None


def _check_opinion(payload: Payload) -> None:
    try:
        read_opinion(payload)
    except ValueError as fault:
        raise PayloadShapeError(f"payload is no opinion: {fault}") from None


def _check_preview(payload: Payload) -> None:
    try:
        read_preview(payload)
    except ValueError as fault:
        raise PayloadShapeError(f"payload is no preview: {fault}") from None


def _check_endorse(payload: Payload) -> None:
    if sum(name in payload for name in ("value", "source", "revoke")) != 1:
        raise PayloadShapeError("payload must hold exactly one of value, source and revoke")
    value = payload.get("value", "")
    if value.__class__ not in (str, int, float):
        raise PayloadShapeError("payload.value must be a string or a number")


def _check_end_of_delegation(payload: Payload) -> None:
    if ("to" in payload) == ("from" in payload) or not all(
        isinstance(payload.get(name, "-"), str) for name in ("to", "from")
    ):
        raise PayloadShapeError("payload must name either whom it was given (to), or who gave it (from)")


def _check_plan(payload: Payload) -> None:
    if ("withdraw" in payload) == ("lines" in payload):
        raise PayloadShapeError("payload must hold a task with lines, or withdraw")


def _are_owners(entries: Json) -> bool:
    """The names of each participant that belong to others: by namespace and name, the owner."""
    return all(
        entry.__class__ is dict
        and entry.get("participant").__class__ is str
        and entry.get("taken").__class__ is dict
        and all(
            names.__class__ is dict and all(owner.__class__ is str for owner in names.values())
            for names in entry["taken"].values()
        )
        for entry in entries
    )


_OWNERS: Final = _Rule(
    "a list of objects with a participant and the names taken", list, _are_owners, is_required=True
)
_SECONDS: Final = _Rule(
    "a positive number", (int, float), lambda value: value.__class__ is not bool and value > 0, or_null=True
)
_ENTRIES: Final = _Rule(
    "a whole number of 1 or more", int, lambda value: value.__class__ is not bool and value > 0, or_null=True
)
_STREAM_REQUEST: Final[Mapping[str, _Rule]] = {
    "direction": _one_of("upload", "download"),
    "target": _NAMES_OR_NULL,
    "description": _STRING,
    "content_type": _STRING,
    "format": _STRING,
}

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
        "moot/assign",
        "moot/origins",
        "moot/opinion",
        "moot/preview",
    }
)
_IN_CONTEXT: Final = frozenset({"reasoning/thought", "reasoning/conclusion", "reasoning/cancel"})

_SHAPES: Final[Mapping[str, _Shape]] = {
    "mcp/request": _Shape(_CALL, _check_request),
    "mcp/response": _Shape({"jsonrpc": _VERSION, "result": _OBJECT}, _check_response),
    "mcp/proposal": _Shape(_CALL, _check_proposal),
    "mcp/withdraw": _REASON,
    "mcp/reject": _REASON,
    "chat": _Shape({"text": _TEXT, "format": _STRING}),
    "chat/acknowledge": _STATUS,
    "chat/cancel": _REASON,
    "reasoning/start": _MESSAGE,
    "reasoning/thought": _MESSAGE,
    "reasoning/conclusion": _MESSAGE,
    "reasoning/cancel": _REASON,
    "capability/grant": _Shape(
        {
            "recipient": _TEXT,
            "reason": _STRING,
            "capabilities": _Rule("a non-empty list", list, bool, is_required=True),
        }
    ),
    "capability/revoke": _Shape(
        {"recipient": _TEXT, "reason": _STRING, "grant_id": replace(_TEXT, is_required=False)}, _check_revoke
    ),
    "capability/grant-ack": _STATUS,
    "space/invite": _Shape(
        {"participant_id": _TEXT, "email": _STRING, "reason": _STRING, "initial_capabilities": _LIST}
    ),
    "space/invite-ack": _Shape(
        {"status": _TEXT, "participant_id": _TEXT, "token": _STRING, "connection_url": _STRING}
    ),
    "space/kick": _Shape({"participant_id": _TEXT, "reason": _STRING}),
    "participant/pause": _Shape({"reason": _STRING, "timeout_seconds": _SECONDS}),
    "participant/request-status": _Shape({"fields": _NAMES_OR_NULL}),
    "participant/status": _Shape(
        {"messages_in_context": _required(_COUNT), "tokens": _COUNT, "max_tokens": _COUNT}
    ),
    "participant/forget": _Shape({"direction": _required(_one_of("oldest", "newest")), "entries": _ENTRIES}),
    "participant/compact": _Shape({"reason": _STRING, "target_tokens": _COUNT}),
    "participant/compact-done": _Shape(
        {
            "freed_tokens": _COUNT,
            "freed_messages": _COUNT,
            "reason": _STRING,
            "status": _STRING,
            "skipped": _Rule("true or false", bool),
        }
    ),
    "stream/request": _Shape({**_STREAM_REQUEST, "direction": _required(_STREAM_REQUEST["direction"])}),
    "stream/open": _Shape({"stream_id": _TEXT, "target": _NAMES_OR_NULL}),
    "stream/close": _Shape({"stream_id": _STRING, "reason": _STRING}),
    "stream/grant-write": _WRITER,
    "stream/revoke-write": _WRITER,
    "stream/transfer-ownership": _TRANSFER,
    "stream/write-granted": _WRITER,
    "stream/write-revoked": _WRITER,
    "stream/ownership-transferred": _TRANSFER,
    "moot/settle": _Shape({"outcome": _required(_one_of("done", "failed")), "note": _STRING}),
    "moot/votes": _Shape(
        {
            "proposal_id": _TEXT,
            "approvals_needed": _required(_COUNT),
            "approvals_missing": _required(_COUNT),
            "approved_by": _required(_NAMES),
            "exempt": _required(_NAMES),
            "budgets": _LIST,
            "effects": _LIST,
            "counters": _NAMES,
            "delegated_votes": _OBJECT,
        }
    ),
    "moot/delegate": _Shape(
        {"to": _TEXT, "expires_in_seconds": replace(_SECONDS, is_required=True), "reason": _STRING}
    ),
    "moot/end-delegation": _Shape(check=_check_end_of_delegation),
    "moot/assign": _Shape({"to": _required(_NAMES)}),
    "moot/origins": _Shape(check=_check_origins),
    "moot/opinion": _Shape(check=_check_opinion),
    "moot/preview": _Shape(check=_check_preview),
    "moot/endorse": _Shape(
        {
            **dict.fromkeys(("task", "member", "until"), _STRING),
            **dict.fromkeys(("source", "revoke"), replace(_TEXT, is_required=False)),
        },
        _check_endorse,
    ),
    "moot/plan": _Shape(
        {
            **dict.fromkeys(("task", "member", "withdraw"), replace(_TEXT, is_required=False)),
            "lines": _LIST,
        },
        _check_plan,
    ),
    "moot/outcome": _Shape(
        {"proposal_id": _TEXT, "outcome": _TEXT, "reason": _STRING, "request_id": _STRING}
    ),
    "moot/proposals": _Shape({"proposals": _required(_LIST)}),
    "system/welcome": _Shape({"extensions": _NAMES}, _check_welcome),
    "moot/roster-page": _Shape(check=_check_roster),
    "moot/owners": _Shape({"owners": _OWNERS, "next": _NAMES}),
    "system/presence": _Shape(
        {"event": _TEXT}, lambda payload: _check_member(payload.get("participant"), "participant")
    ),
    "system/error": _Shape({"error": _TEXT, "message": _STRING}),
}

# Where an envelope that arrives may hold less, or more, than one that we send.
_RECEIVED_SHAPES: Final[Mapping[str, _Shape]] = {
    **_SHAPES,
    "mcp/request": _Shape(_CALL, _check_received_request),
    "mcp/response": _Shape({"jsonrpc": _VERSION}, _check_received_response),
    "reasoning/start": _Shape({"message": _STRING}),
    "reasoning/thought": _Shape({"message": _STRING}),
    "reasoning/conclusion": _Shape({"message": _STRING}),
    "stream/request": _Shape(_STREAM_REQUEST),
}


def check_metrics(metrics: Mapping[str, Json]) -> None:
    """MEW 3.9.4: metrics of one's own are named in snake_case."""
    for name in metrics:
        if _SNAKE_CASE.fullmatch(name) is None:
            raise PayloadShapeError(f"a metric is named in snake_case, as in latency_ms: {name!r}")
