"""An envelope or a member in full."""

from __future__ import annotations

import json

from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.large_content import listed_parts
from moot.tui.capability_text import in_words
from moot.tui.operations.content_operation import reference_text
from moot.tui.row_layout import Line, Part, line


def envelope_lines(envelope: Envelope) -> list[Line]:
    """All of an envelope: its fields first, then the payload as JSON."""
    fields = (
        ("kind", envelope.kind),
        ("from", envelope.sender),
        ("to", ", ".join(envelope.to) or "all"),
        ("about", ", ".join(envelope.correlation_id)),
        ("context", envelope.context or ""),
        ("time", envelope.ts),
        ("id", envelope.id),
    )
    lines = [line((f"{name:<8}", "dim"), value) for name, value in fields if value]
    text = envelope.payload.get("text")
    if envelope.kind == "chat" and isinstance(text, str):
        return [*lines, (), *(line(each) for each in text.split("\n"))]
    result = envelope.payload.get("result")
    for part in listed_parts(result) or listed_parts(envelope.payload.get("params")):
        where = ".".join(map(str, part.at))
        lines.append(line((f"{where}: ", "strong"), (reference_text(part, is_interactive=True), "note")))
    payload = json.dumps(envelope.payload, indent=2, ensure_ascii=False)
    return [*lines, (), *(line(each) for each in payload.split("\n"))]


def member_lines(space: JoinedSpace, id: str) -> list[Line]:
    """A member and all its capabilities, in words and as JSON."""
    if id == space.me:
        name, held = space.name, space.rights.capabilities
    elif id in space.roster:
        name, held = space.roster[id].name, space.roster[id].capabilities
    else:
        return [line((f"{id} has left", "warn"))]
    mine: Part = ("  you", "me") if id == space.me else ("", "dim")
    lines = [line((id, "name"), mine), line(("name    ", "dim"), name), ()]
    for each in held:
        lines += [
            line(("may ", "dim"), in_words(each.original)),
            line(("    ", "dim"), (json.dumps(each.original, ensure_ascii=False), "dim")),
        ]
    return lines if held else [*lines, line(("no permissions visible to you", "dim"))]
