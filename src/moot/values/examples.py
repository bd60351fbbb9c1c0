"""Texts at the edges of templates: the shortest, the longest, the lowest, the highest, and just outside.

They are made from the template alone, so a person sees what it allows and not what somebody meant. The
callers check each of them with the pattern itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from moot.values.kinds import ValuePattern
from moot.values.templates import Slot, ValueTemplate

_EDGES: Final = {
    "name": ("a", "n" * 64, "Z9_-x", "anything", "x1"),
    "file": ("a", "n" * 64, "main", "anything", "x1"),
    "path": ("a", "/".join("abcdefgh"), "any/thing", "x1/y2/z3"),
    "hex": ("0000000", "f" * 64, "abcdef0", "0123456789abcdef"),
    "uuid": tuple("-".join(sign * count for count in (8, 4, 4, 4, 12)) for sign in "0f5a"),
    "date": ("1000-01-01", "2999-12-31", "2026-02-29"),
    "prose": ("No.", "Whatever anybody writes, in words!", "Stop everything.", "Send it to everybody."),
    "lines": ("No.", "Whatever anybody writes:\nin words, on several lines!", "Stop everything."),
    "id": ("a1", "n" * 63 + "1", "0", "any_body_42"),
    "page": ("a", "any/thing.html", "x1/y2/z3#part"),
    "message": ("x", "Whatever anybody writes, in words!", "Fixes #1 (again); see src/x"),
    "text": ("", "#!/bin/sh\nanything at all", "<script>anything</script>", "DROP TABLE users"),
}
_OUTSIDE: Final = {
    "name": ("main", "secrets", "a/b", "n" * 65),
    "file": ("secrets", "a/b", ".env", "n" * 65),
    "path": ("a/../b", "a/.env", "secrets/a"),
    "hex": ("zzzzzzz",),
    "uuid": ("all",),
    "date": ("2026-13-01",),
    "prose": ("$(reboot)", "see https://example.net", "one line\nand another"),
    "lines": ("$(reboot)", "see https://example.net"),
    "id": ("all", "a/1", "admin1"),
    "page": ("a/../b", "admin", "a?x=1"),
    "message": ("it's", "$(reboot)", "password hunter2", "two\nlines"),
    "text": ("\u202e",),
}
# What is put behind a value of a kind to try whether it goes unnoticed.
_TAILS: Final = {
    "shell": ("; reboot", " --force", " > /tmp/x", " && reboot"),
    "path": ("/../x", ".sh"),
    "url": ("/../x", "?x=1", "#x"),
    "email": (".example.net", ", x@example.net"),
    "sql": ("; DROP TABLE x",),
}


def edge_texts(pattern: ValuePattern) -> Iterator[str]:
    """Texts that the pattern allows, from its edges."""
    for template in pattern.templates:
        for which in range(5):
            yield _filled(template, which)


def outside_texts(pattern: ValuePattern) -> Iterator[str]:
    """Texts that are just outside the pattern."""
    for template in pattern.templates:
        base = _filled(template, 0)
        for at, part in enumerate(template.parts):
            if isinstance(part, Slot):
                for text in _outside_of(part):
                    rest = (*template.parts[:at], text, *template.parts[at + 1 :])
                    yield _filled(ValueTemplate(rest), 0)
        for tail in _TAILS.get(pattern.kind, ()):
            yield base + tail
        if pattern.kind == "email":
            yield base.replace("@", "@mail.", 1)
        if pattern.kind == "url":
            yield base.replace("://", "://x@", 1)
        if pattern.kind == "sql":
            yield re.sub(r"(?i)\bwhere .*", "", base).strip() + " "
            yield re.sub(r"(?i)^select ", "SELECT password, ", base)


def _filled(template: ValueTemplate, which: int) -> str:
    text = ""
    for part in template.parts:
        if isinstance(part, str):
            text += part
        else:
            edges = _edges_of(part)
            text += edges[min(which, len(edges) - 1)]
    return text


def _edges_of(slot: Slot) -> tuple[str, ...]:
    match slot.kind:
        case "digits":
            low, high = int(slot.low), int(slot.high)
            return "0" * low, "9" * high, "1" * low, "5" * high, "8" * high
        case "range":
            middle = (slot.low + slot.high) / 2
            return str(slot.low), str(slot.high), str(middle.quantize(slot.low, rounding="ROUND_FLOOR"))
        case "choice":
            return slot.options
    if slot.kind == "text" and slot.high:
        return (*_EDGES["text"], "x" * int(slot.high))
    return _EDGES[slot.kind]


def _outside_of(slot: Slot) -> tuple[str, ...]:
    match slot.kind:
        case "digits":
            return "9" * (int(slot.high) + 1), "x"
        case "range":
            return str(slot.high + 1), str(slot.low - 1), str(slot.high * Decimal(1000))
        case "choice":
            return (slot.options[0] + "x",)
    return _OUTSIDE[slot.kind]
