"""What an MCP message does: a method, and the tool, prompt or resource it applies to (MCPx 3.1, D-49)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

# Whatever a JSON text holds, not looked at: mypy checks nothing of it.
Json = Any
# The same while it is read: mypy asks that each value is looked at before it is used (decision 0332).
JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
Payload = Mapping[str, Json]
UnreadPayload = Mapping[str, JsonValue]


class Operation(NamedTuple):
    """A method and its context: `tools/call` on `read_file`, `resources/read` of a URI.

    `None` where it is not known, not given, or the method has no context.
    """

    method: str | None
    context: str | None


# D-49: where a method keeps its context. Each path is tried in turn; lists and the rest have none.
CONTEXT_PATHS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "tools/call": (("params", "name"),),
    "prompts/get": (("params", "name"),),
    "resources/read": (("params", "uri"),),
    "resources/subscribe": (("params", "uri"),),
    "resources/unsubscribe": (("params", "uri"),),
    "completion/complete": (("params", "ref", "name"), ("params", "ref", "uri")),
}


def context_of(method: str | None, payload: Payload) -> str | None:
    """The context that the payload itself names, if this method has one."""
    for path in CONTEXT_PATHS.get(method or "", ()):
        value: Json = payload
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str):
            return value
    return None


# Calls of tools by name, of which a space has hundreds; all in the same words are one object.
_known_calls: Final[dict[str, Operation]] = {}
_CALLS_KEPT: Final = 4_096
# Longer names seldom come twice.
_KEPT_CHARS: Final = 256


def operation_of(payload: UnreadPayload) -> Operation:
    """The operation that a request or proposal body holds: the facts, whatever a kind claims."""
    method: Json = payload.get("method")
    if method == "tools/call":
        params: Json = payload.get("params")
        if params.__class__ is dict:
            try:
                return _known_calls[params["name"]]
            except (KeyError, TypeError):
                # Not kept, or no name.
                pass
    if not isinstance(method, str):
        return Operation(None, None)
    operation = Operation(method, context_of(method, payload))
    if method == "tools/call" and operation.context and len(operation.context) <= _KEPT_CHARS:
        if len(_known_calls) >= _CALLS_KEPT:
            _known_calls.clear()
        _known_calls[operation.context] = operation
    return operation
