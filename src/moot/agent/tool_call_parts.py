"""Tool calls put together from the parts of a streamed chat completion.

By the book every part has an `index`, and the first part of a call its id and name. Real endpoints leave out
the index (Gemini), give all calls index 0 (Ollama, several proxies), repeat id and name with every part,
repeat one id for several calls, send no id, or send arguments as an object. A part belongs to

- the call with its id and index, if it has an id that is known under that index,
- otherwise the last call under its index (or the last one at all, if it has no index),

unless it begins a new one: another id, a name after arguments that are complete, or another name than that of
a call without arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from moot.agent.model_reply import ToolCall, as_arguments, unique_ids


@dataclass(slots=True)
class _CallParts:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""
    # Fields that we do not know and that the endpoint may want back (Gemini signs its calls).
    extra: dict[str, Any] = field(default_factory=dict)
    function_extra: dict[str, Any] = field(default_factory=dict)


class ToolCallParts:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._calls: list[_CallParts] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, pieces: list[dict[str, Any]]) -> None:
        """Add the `tool_calls` of one delta, or of a whole message."""
        # A list never holds two parts of one call that both have a name.
        begun: list[_CallParts] = []
        for position, piece in enumerate(pieces):
            function = piece.get("function") or {}
            index = piece.get("index")
            index = index if isinstance(index, int) else None
            id, name = _text(piece.get("id")), _text(function.get("name"))
            arguments = function.get("arguments")
            call = self._find(index, id, position if len(pieces) > 1 and not name else -1)
            # Part of a name comes alone; what says what it is, or has arguments, is a call.
            is_whole = "type" in piece or arguments is not None
            if call is None or _begins(call, id, name, arguments, call in begun, is_whole):
                call = _CallParts(index)
                self._calls.append(call)
            if name:
                begun.append(call)
            _extend(call, id, name, arguments)
            call.extra |= {key: piece[key] for key in piece.keys() - {"index", "id", "type", "function"}}
            call.function_extra |= {key: function[key] for key in function.keys() - {"name", "arguments"}}

    def _find(self, index: int | None, id: str, position: int) -> _CallParts | None:
        calls = [call for call in self._calls if index is None or call.index == index]
        if id and (same := [call for call in calls if call.id == id]):
            return same[-1]
        if index is None and not id and 0 <= position < len(calls):
            return calls[position]
        return calls[-1] if calls else None

    def finish(self, fresh: Iterator[int]) -> tuple[list[ToolCall], list[dict[str, Any]]]:
        """The calls, and the same as the endpoint wants them back."""
        named = [call for call in self._calls if call.name]
        if any(call.index is not None for call in named):
            named.sort(key=lambda call: call.index or 0)
        ids = unique_ids([call.id for call in named], fresh)
        calls = [
            ToolCall(id, call.name, as_arguments(call.arguments)) for id, call in zip(ids, named, strict=True)
        ]
        native = [
            {
                **parts.extra,
                "id": call.id,
                "type": "function",
                "function": {**parts.function_extra, "name": call.name, "arguments": call.arguments},
            }
            for call, parts in zip(calls, named, strict=True)
        ]
        return calls, native


def _begins(
    call: _CallParts, id: str, name: str, arguments: Any, begun_in_this_delta: bool, is_whole: bool
) -> bool:
    """Whether a part begins another call than the one that was found for it."""
    if id and call.id and id != call.id:
        return True
    if not name or not call.name:
        return False
    if begun_in_this_delta or (is_whole and not call.arguments and name != call.name):
        return True
    if not call.arguments or arguments in (None, ""):
        return False
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    # The same once more is the whole call, sent again at the end.
    return _is_complete(call.arguments) and not (id and name == call.name and written == call.arguments)


def _extend(call: _CallParts, id: str, name: str, arguments: Any) -> None:
    call.id = call.id or id
    if name != call.name:
        # Names come whole; only before any argument may the rest of one follow.
        call.name = call.name + name if not call.arguments else call.name or name
    if arguments is None:
        return
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if not (written == call.arguments and _is_complete(written)):
        call.arguments += written


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
