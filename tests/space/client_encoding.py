"""Envelopes as clients of the three dialects write them, and bodies as any reader parses them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json


def body_of(envelope: Envelope) -> Any:
    """Method and params as any reader would parse them, numbers exactly."""
    payload = json.loads(envelope.raw, parse_float=Decimal, parse_int=Decimal).get("payload", {})
    return {"method": payload.get("method"), "params": payload.get("params", {})}


def encode_envelope(
    dialect: DialectName,
    id: str,
    sender: str,
    kind: str,
    payload: Json,
    to: Sequence[str],
    about: Sequence[str],
    method: str,
) -> bytes:
    """An envelope as a client of this dialect would write it."""
    fields: dict[str, Json] = {
        "protocol": "mew/v0.4" if dialect == "mew" else "mcpx/v0.1",
        "id": id,
        "ts": "2026-01-31T12:00:00Z",
        "from": sender,
        "kind": kind,
        "payload": payload,
    }
    if to:
        fields["to"] = list(to)
    if about and dialect == "mew":
        fields["correlation_id"] = list(about)
    elif about and kind != "mcp/proposal":
        fields |= {"correlation_id": about[0], "x_correlation_ids": list(about)}
    if dialect != "mew":
        fields["kind"] = _legacy_kind(dialect, kind, str(payload.get("method", method)))
    return json.dumps(fields).encode()


def _legacy_kind(dialect: DialectName, kind: str, method: str) -> str:
    if kind in ("mcp/withdraw", "mcp/reject"):
        word = kind.removeprefix("mcp/")
        return f"mcpx.{word}.proposal" if dialect == "m3p" else f"proposal/{word}"
    if kind == "chat":
        return "chat.message" if dialect == "m3p" else "chat"
    if kind in ("mcp/request", "mcp/response", "mcp/proposal"):
        kind = f"{kind}{'.' if dialect == 'm3p' else ':'}{method}"
    return kind.replace("/", ".", 1) if dialect == "m3p" else kind
