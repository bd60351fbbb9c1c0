"""Capabilities in plain words, as far as they are plain; the rest stays as it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from moot.protocol.operation import Json
from moot.protocol.patterns.compiler import EXACT
from moot.protocol.patterns.pattern import REQUEST_LIMIT
from moot.protocol.patterns.url_prefix import url_prefix_of


def in_words(capability: Json) -> str:
    """A capability as what its holder can do: "call write_file with path=notes/** on files"."""
    if isinstance(capability, str):
        capability = {"kind": capability}
    if not isinstance(capability, dict):
        return json.dumps(capability, ensure_ascii=False)
    kind = capability.get("kind")
    kinds = [str(each) for each in (kind if isinstance(kind, list) else [kind])]
    calls = all(each in _CALLS for each in kinds)
    parts = [" or ".join(_KINDS.get(each, f"send {each}") for each in kinds)]
    payload = capability.get("payload")
    if isinstance(payload, dict):
        parts += _payload_words(payload)
    elif calls:
        parts.append("anything")
    request = capability.get(REQUEST_LIMIT)
    if isinstance(request, dict):
        limits = [_text(request[name]) for name in ("method", "context") if name in request]
        parts.append(f"for {' '.join(limits)}")
    to = capability.get("to")
    if isinstance(to, list | str):
        names: Sequence[Json] = [to] if isinstance(to, str) else to
        parts.append(f"{'on' if calls else 'to'} {' or '.join(map(str, names))}")
    return " ".join(parts)


_CALLS: Final = ("mcp/request", "mcp/proposal")
_KINDS: Final[Mapping[str, str]] = {
    "*": "do everything",
    "mcp/request": "call",
    "mcp/proposal": "propose",
    "mcp/response": "answer requests",
    "mcp/withdraw": "withdraw proposals",
    "mcp/reject": "reject proposals",
    "mcp/cancel": "cancel calls",
    "mcp/*": "use all of MCP (call, propose, answer)",
    "moot/approve": "vote for proposals",
    "moot/plan": "lay out plans",
    "moot/assign": "assign proposals",
    "moot/delegate": "let others decide in their place",
    "chat": "chat",
    "chat/*": "acknowledge and cancel messages",
    "chat/acknowledge": "acknowledge messages",
    "chat/cancel": "cancel messages",
    "reasoning/*": "share reasoning",
    "reasoning/cancel": "stop the reasoning of others",
    "stream/*": "use streams",
    "stream/request": "open streams",
    "capability/grant": "grant permissions",
    "capability/revoke": "revoke permissions",
    "capability/*": "grant and revoke permissions",
    "space/invite": "invite members",
    "space/kick": "remove members",
    "space/*": "invite and remove members",
    "participant/*": "pause, resume and control members",
    "participant/status": "report its status",
    "participant/pause": "pause members",
    "participant/resume": "resume members",
}


def _payload_words(payload: Mapping[str, Json]) -> list[str]:
    rest = dict(payload)
    method = rest.pop("method", None)
    params = rest.pop("params", None)
    fields = dict(params) if isinstance(params, dict) else {}
    name = fields.pop("name", None)
    if name is None:
        name = fields.pop("uri", None)
    arguments = fields.pop("arguments", None)
    words: list[str] = []
    if method == "tools/call":
        words.append("any tool" if name is None else _text(name))
    else:
        words += [_text(each) for each in (method, name) if each is not None]
    if isinstance(params, dict) and isinstance(whole := params.get(EXACT), dict):
        words[-1:] = [f"exactly {_text(whole.get('name', method))} without arguments"]
        fields.pop(EXACT)
    elif isinstance(arguments, dict) and isinstance(exact := arguments.get(EXACT), dict):
        words.append(f"with exactly {_pairs(exact)}" if exact else "without arguments")
    elif isinstance(arguments, dict):
        words.append(f"with {_pairs(arguments)}")
    rest |= fields
    if rest:
        words.append(f"with {json.dumps(rest, ensure_ascii=False)}")
    return words


def _pairs(arguments: Mapping[str, Json]) -> str:
    return ", ".join(f"{key}={_text(value)}" for key, value in arguments.items())


def _text(value: Json) -> str:
    if isinstance(value, str) and (prefix := url_prefix_of(value)) is not None:
        return f"anything below {prefix}"
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        *first, last = map(_text, value)
        return f"{', '.join(first)} or {last}" if first else last
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
