"""Capabilities in plain words, as far as they are plain; the rest stays as it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from moot.protocol.operation import Json


def in_words(capability: Json) -> str:
    """A capability in a sentence, as far as it is a plain one."""
    if isinstance(capability, str):
        return "everything" if capability == "*" else capability
    if not isinstance(capability, dict):
        return json.dumps(capability, ensure_ascii=False)
    parts = [_kind_words(capability.get("kind"))]
    payload = capability.get("payload")
    if isinstance(payload, dict):
        parts += _payload_words(payload)
    to = capability.get("to")
    if isinstance(to, list | str):
        names: Sequence[Json] = [to] if isinstance(to, str) else to
        parts.append(f"at {' or '.join(map(str, names))}")
    return " ".join(parts)


_KINDS: Final[Mapping[str, str]] = {
    "*": "everything",
    "mcp/request": "request",
    "mcp/proposal": "propose",
    "mcp/response": "answer requests",
    "mcp/withdraw": "withdraw proposals",
    "mcp/reject": "reject proposals",
    "mcp/*": "all MCP: request, propose, answer",
    "chat": "chat",
    "reasoning/*": "think aloud",
    "stream/*": "use streams",
    "capability/grant": "grant rights",
    "capability/revoke": "revoke rights",
    "capability/*": "grant and revoke rights",
    "space/invite": "invite",
    "space/kick": "remove members",
    "space/*": "invite and remove members",
    "participant/*": "pause, resume and control members",
}


def _kind_words(kind: Json) -> str:
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(_KINDS.get(str(each), str(each)) for each in kinds)


def _payload_words(payload: Mapping[str, Json]) -> list[str]:
    rest = dict(payload)
    method = rest.pop("method", None)
    params = rest.pop("params", None)
    words: list[str] = []
    if isinstance(params, dict):
        fields = dict(params)
        name = fields.pop("name", None) or fields.pop("uri", None)
        arguments = fields.pop("arguments", None)
        words.append(_text(name) if name is not None else _text(method))
        if isinstance(arguments, dict):
            words.append("with " + ", ".join(f"{key}={_text(value)}" for key, value in arguments.items()))
        rest |= fields
    elif method is not None:
        words.append(_text(method))
    if rest:
        words.append(f"with {json.dumps(rest, ensure_ascii=False)}")
    return words


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
