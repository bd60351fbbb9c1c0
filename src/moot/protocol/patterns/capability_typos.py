"""Typing errors in capabilities: a kind or method that is not known, but nearly one that is.

Kinds of one's own are allowed (D-08), so nothing here refuses: it only says what was probably meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from moot.protocol.kinds import KINDS, OPERATION_KINDS
from moot.protocol.operation import CONTEXT_PATHS, Json
from moot.protocol.patterns.capability import Capability
from moot.protocol.patterns.globs import glob
from moot.protocol.patterns.pattern import REQUEST_LIMIT, is_regex, negates_nothing

# A letter or two, not another word.
_ALIKE: Final = 0.8

# Not `chat/x`, `m3p.kind` or a pattern.
_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")

# What the gateway only carries, but our own members send.
_CARRIED: Final = ("trust/accept", "trust/dismiss", "trust/rule", "trust/stop", "trust/suggestion")
_NAMES: Final = (*KINDS, *_CARRIED)
_FAMILIES: Final = tuple(dict.fromkeys(f"{name.partition('/')[0]}/*" for name in _NAMES if "/" in name))
# The methods of MCP that requests of a space carry.
_METHODS: Final = (
    *CONTEXT_PATHS,
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "logging/setLevel",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/prompts/list_changed",
)
_METHOD_FAMILIES: Final = ("tools/*", "resources/*", "prompts/*", "notifications/*", "*/list")


def misspelt_kind(kind: str) -> str | None:
    """The kind that was probably meant by one that matches none that is known."""
    return _closest_name(kind, _NAMES, (*_NAMES, *_FAMILIES))


def looks_like_tool(kind: str) -> bool:
    """Whether a kind is one plain word that no kind is: the name of a tool, as people write it."""
    return _WORD.fullmatch(kind) is not None and kind not in _NAMES


def misspelt_method(method: str) -> str | None:
    """Likewise for the method of a request, a response or a proposal."""
    return _closest_name(method, _METHODS, (*_METHODS, *_METHOD_FAMILIES))


def misspelt_words(capability: Capability) -> Iterator[tuple[str, str]]:
    """Every kind and method of a capability that looks like a typing error, with what was probably meant."""
    for pattern in capability.patterns:
        source: Json = pattern.source
        kinds = _texts(source.get("kind"))
        for kind in kinds:
            if meant := misspelt_kind(kind):
                yield kind, meant
        payload = source.get("payload")
        if isinstance(payload, dict) and OPERATION_KINDS & set(kinds):
            for method in _texts(payload.get("method")):
                if meant := misspelt_method(method):
                    yield method, meant


def tool_like_kinds(capability: Capability) -> Iterator[str]:
    """Every kind of a capability that is probably the name of a tool."""
    for pattern in capability.patterns:
        for kind in _texts(pattern.source.get("kind")):
            if looks_like_tool(kind) and not misspelt_kind(kind):
                yield kind


def empty_negations(capability: Capability) -> Iterator[str]:
    """Every string of a capability that begins with `!` and matches nothing."""
    for pattern in capability.patterns:
        waiting: list[Json] = [pattern.source.get(part) for part in ("kind", "payload", REQUEST_LIMIT)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str) and negates_nothing(value):
                yield value
            elif isinstance(value, dict):
                waiting += value.values()
            elif isinstance(value, list):
                waiting += value


def _texts(value: Json) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


def _closest_name(word: str, names: tuple[str, ...], offered: tuple[str, ...]) -> str | None:
    if word.startswith("!") or is_regex(word):
        return None
    pattern = glob(word)
    if any(pattern.matches(name) for name in names):
        return None
    close = difflib.get_close_matches(word.casefold(), offered, n=1, cutoff=_ALIKE)
    return close[0] if close else None
