"""What a client asks for when it connects: by the path, the query, the subprotocol and the headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, unquote

import msgspec

from moot.errors import InvalidEnvelope
from moot.gateway.access import bearer
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName
from moot.space.members.member import Options

_SUBPROTOCOLS: Final[Mapping[str, DialectName]] = {"mew.v0.4": "mew", "mcpx.v0.1": "mcpx", "mcpx.m3p": "m3p"}


class ConnectRequest(msgspec.Struct, frozen=True):
    """What a URL and a subprotocol ask for."""

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
