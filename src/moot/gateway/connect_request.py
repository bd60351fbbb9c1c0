"""What a client asks for when it connects: by path, query, subprotocol and headers, and by a join frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, unquote

import msgspec
import orjson

from moot.errors import InvalidEnvelope
from moot.gateway.access import bearer
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.space.members.member import Options

_SUBPROTOCOLS: Final[Mapping[str, DialectName]] = {"mew.v0.4": "mew", "mcpx.v0.1": "mcpx", "mcpx.m3p": "m3p"}
_PROTOCOLS: Final[Mapping[str, DialectName]] = {"mew/v0.4": "mew", "mcpx/v0.1": "mcpx"}
_JOIN_KINDS: Final = ("system/join", "system.join")
# D-20: what clients call the id that they propose in a join.
_ID_KEYS: Final = ("participantId", "participant", "participant_id", "from")


class ConnectRequest(msgspec.Struct, frozen=True):
    """What a URL and a subprotocol ask for, and a join frame where one is sent."""

    space: str | None
    token: str | None
    dialect: DialectName | None
    options: Options
    subprotocol: str | None


def is_websocket_path(path: str) -> bool:
    return path in ("/", "/ws") or participant_in(path) is not None


def participant_in(path: str) -> str | None:
    """The name in /participants/{id}/ws; None for another path."""
    steps = path.split("/")
    if len(steps) != 4 or steps[1] != "participants" or steps[3] != "ws":
        return None
    return unquote(steps[2]) or None


def read_connect_request(
    query: str, headers: Mapping[str, str], *, allow_query_token: bool
) -> ConnectRequest:
    asked = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",") if name.strip()]
    subprotocol = next((name for name in offered if name in _SUBPROTOCOLS), None)
    dialect = asked.get("dialect")
    if dialect is not None and dialect not in DIALECTS:
        raise InvalidEnvelope(f"unknown dialect: use one of {', '.join(DIALECTS)}")
    chosen: DialectName | None = None
    if dialect is not None:
        chosen = dialect  # type: ignore[assignment]  # looked up just now
    elif subprotocol is not None:
        chosen = _SUBPROTOCOLS[subprotocol]
    elif "space" in asked:
        chosen = "mew"
    elif "topic" in asked:
        chosen = "mcpx"
    routing = asked.get("routing", "all")
    if routing not in ("all", "directed"):
        raise InvalidEnvelope("routing is all or directed")
    hears = asked.get("hears", "all")
    if hears not in ("all", "mine"):
        raise InvalidEnvelope("hears is all or mine")
    options = Options(
        echo=asked.get("echo") != "0",
        echo_requests=asked.get("echo") != "unanswered",
        routing=routing,  # type: ignore[arg-type]  # one of the two words
        hears=hears,  # type: ignore[arg-type]  # one of the two words
        streams=asked.get("streams") == "1",
        answers=asked.get("answers") != "0",
    )
    token = bearer(headers.get("authorization"))
    if token is None and allow_query_token:
        token = asked.get("token")
        if token is not None and token.count(".") == 2:
            raise InvalidEnvelope("a token of a provider never stands in an address: send it in a header")
    return ConnectRequest(asked.get("space") or asked.get("topic"), token, chosen, options, subprotocol)


def is_join(data: bytes) -> bool:
    """Whether a frame is a join, in either form."""
    if b"join" not in data:
        return False
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(fields, dict) and (
        (fields.get("type") == "join" and "kind" not in fields) or fields.get("kind") in _JOIN_KINDS
    )


def read_join(data: bytes, request: ConnectRequest) -> ConnectRequest:
    """What a join frame asks for besides what was asked for before; raises MalformedEnvelope."""
    fields = strict_json.parse(data)
    if not isinstance(fields, dict):
        raise InvalidEnvelope("the first frame must be a join")
    if fields.get("type") == "join":
        body = fields
    elif fields.get("kind") in _JOIN_KINDS:
        payload = fields.get("payload", {})
        body = payload if isinstance(payload, dict) else {}
    else:
        raise InvalidEnvelope('send {"type":"join","space":…,"token":…} or a header with the token')
    token = body.get("token")
    space = body.get("space") or body.get("topic")
    return ConnectRequest(
        (space if isinstance(space, str) else None) or request.space,
        token if isinstance(token, str) and token else None,
        request.dialect or _dialect_of(fields, body),
        _joined_options(fields, body, request.options),
        request.subprotocol,
    )


def _dialect_of(fields: Mapping[str, Json], body: Mapping[str, Json]) -> DialectName | None:
    chosen, protocol = body.get("dialect"), fields.get("protocol")
    if isinstance(chosen, str) and chosen in DIALECTS:
        return DIALECTS[chosen].name  # type: ignore[index]  # looked up just now
    if isinstance(protocol, str) and protocol in _PROTOCOLS:
        return _PROTOCOLS[protocol]
    return "mcpx" if body.get("topic") else None


def _joined_options(fields: Mapping[str, Json], body: Mapping[str, Json], options: Options) -> Options:
    routing = body.get("routing")
    if routing in ("all", "directed"):
        options = msgspec.structs.replace(options, routing=routing)
    if body.get("answers") is False:
        options = msgspec.structs.replace(options, answers=False)
    given = {"from": fields.get("from")} | dict(body)
    proposed = next((given[key] for key in _ID_KEYS if isinstance(given.get(key), str)), None)
    if proposed:
        # D-19: a runtime id; existing clients give their own name, which proposes nothing.
        options = msgspec.structs.replace(options, runtime_id=proposed)
    return options
