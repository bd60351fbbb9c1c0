"""Answers of our own tools that stay short, however much there is to tell.

Whatever a model is told stays in its conversation and is paid for again with every turn. So a search and an
overview tell enough to go on with, and say how to get the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from moot.mcp.downstream.backend import text_result
from moot.mcp.eras import JsonObject
from moot.protocol import strict_json
from moot.protocol.operation import Json

# Of one answer as a whole, some 1,000 tokens: ten tools with a line each, or twenty pending calls.
MAX_ANSWER_BYTES: Final = 4_096
# Of a description or of arguments, from the most that helps to the least that still does.
_CHARS: Final = (300, 160, 100, 60, 30)


def found_result(found: Sequence[JsonObject]) -> JsonObject:
    """What a search found, best first. The whole schema of a tool is there if it fits."""

    def make(entries: Sequence[JsonObject]) -> JsonObject:
        about: JsonObject = {"found": [*entries]}
        if len(entries) < len(found):
            about["left_off"] = len(found) - len(entries)
        if any("arguments" in each for each in entries):
            about["hint"] = 'moot_find_tools with {"name": NAME} shows the whole inputSchema of a tool'
        return text_result(strict_json.encode([*entries]).decode(), structuredContent=about)

    entries = _fit(make, [[_short_offer(each, chars) for each in found] for chars in _CHARS])
    for number, offer in enumerate(found[: len(entries)]):
        if "inputSchema" not in offer:
            continue
        whole = {name: value for name, value in entries[number].items() if name != "arguments"}
        more = [*entries]
        more[number] = whole | {"inputSchema": offer["inputSchema"]}
        if size_of(make(more)) <= MAX_ANSWER_BYTES:
            entries = more
    return make(entries)


def listed_result(
    make: Callable[[Sequence[JsonObject]], JsonObject], entries: Callable[[int], list[JsonObject]]
) -> JsonObject:
    """The result with as many entries as fit; `entries` makes them with texts of so many characters."""
    return make(_fit(make, [entries(chars) for chars in _CHARS]))


def _fit(
    make: Callable[[Sequence[JsonObject]], JsonObject], choices: list[list[JsonObject]]
) -> list[JsonObject]:
    """The first of the choices that is short enough; of the last one, as many as fit."""
    for entries in choices:
        if size_of(make(entries)) <= MAX_ANSWER_BYTES:
            return entries
    entries = choices[-1]
    while entries and size_of(make(entries)) > MAX_ANSWER_BYTES:
        entries = entries[:-1]
    return entries


def size_of(result: JsonObject) -> int:
    return len(strict_json.encode(result))


def cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def _short_offer(offer: JsonObject, chars: int) -> JsonObject:
    made = {name: offer[name] for name in ("name", "kind", "member", "access")}
    made["description"] = cut(" ".join(str(offer["description"]).split()), chars)
    if "inputSchema" in offer:
        made["arguments"] = cut(signature_of(offer["inputSchema"]), chars)
    return made


def signature_of(schema: Json) -> str:
    """The arguments of a tool in a line: names and types, optional ones with a question mark."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    parts: list[str] = []
    for name in sorted(properties, key=lambda name: name not in needed):
        kind = properties[name].get("type") if isinstance(properties[name], dict) else None
        type_text = f": {kind}" if isinstance(kind, str) else ""
        parts.append(f"{name}{'' if name in needed else '?'}{type_text}")
    return ", ".join(parts)
