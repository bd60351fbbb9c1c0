"""What a foreign agent sends, as text: hidden characters are shown, files named, links never followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson
from a2a.types import Artifact, Part
from google.protobuf.json_format import MessageToDict

from moot.protocol.hidden_text import show_hidden


def parts_text(parts: Sequence[Part], max_data_chars: int) -> str:
    """All parts as one text."""
    return "\n".join(text for part in parts if (text := part_text(part, max_data_chars)))


def part_text(part: Part, max_data_chars: int) -> str:
    match part.WhichOneof("content"):
        case "text":
            return show_hidden(part.text)
        case "data":
            return shorten(show_hidden(orjson.dumps(MessageToDict(part.data)).decode()), max_data_chars)
        case "raw":
            return f"[{_file(part)}, {len(part.raw)} bytes, not kept here]"
        case "url":
            return f"[{_file(part)} at {_line(part.url, 1_000)}, not fetched]"
    return ""


def artifact_text(artifact: Artifact, max_data_chars: int) -> str:
    """An artifact with its name above it, unless it is plain text without one."""
    text = parts_text(artifact.parts, max_data_chars)
    name = _line(artifact.name, 200)
    return f"{name}:\n{text}" if name and text else text or name


def texts_of(parts: Iterable[Part]) -> int:
    """How many characters or bytes parts hold."""
    return sum(len(part.text) + len(part.raw) + len(part.url) + part.data.ByteSize() for part in parts)


def shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}… ({len(text)} characters in all)"


def cut(text: str, max_chars: int) -> list[str]:
    """The text in parts that fit."""
    return [text[at : at + max_chars] for at in range(0, len(text), max_chars)]


def _file(part: Part) -> str:
    name = _line(part.filename, 200) or "a file"
    return f"{name} ({_line(part.media_type, 100)})" if part.media_type else name


def _line(text: str, max_chars: int) -> str:
    return shorten(" ".join(show_hidden(text).split()), max_chars)
