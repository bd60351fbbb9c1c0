"""What messages of A2A hold, both ways.

Of a caller: text for a member, or one call of a tool, within bounds. Of a foreign agent: all of it as text;
hidden characters are shown, files named, links never followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from a2a.types import Artifact, Message, Part
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict

from moot.protocol.hidden_text import show_hidden

# One message of a caller: its text, all of it, and each id that it gives.
MAX_MESSAGE_CHARS: Final = 100_000
MAX_MESSAGE_BYTES: Final = 512 << 10
MAX_ID_CHARS: Final = 256


def read_content(message: Message) -> tuple[str, dict[str, Any] | None]:
    """The text of a message, or the call that it is; raises an error of A2A that says what is wrong."""
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        raise InvalidParamsError(f"a message has at most {MAX_MESSAGE_BYTES} bytes: send less at once")
    if max(len(message.message_id), len(message.context_id)) > MAX_ID_CHARS:
        raise InvalidParamsError(f"an id has at most {MAX_ID_CHARS} characters: choose a shorter one")
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "data":
                calls.append(_call_of(MessageToDict(part.data)))
            case _:
                raise ContentTypeNotSupportedError("text, or one data part with a tool; no files")
    text = "\n".join(texts)
    if len(text) > (most := MAX_MESSAGE_CHARS):
        raise InvalidParamsError(f"a message has at most {most} characters: send it in parts")
    if not message.message_id:
        raise InvalidParamsError("a message needs an id")
    if len(calls) > 1 or (calls and text.strip()) or not (calls or text.strip()):
        raise InvalidParamsError("a message is text, or one data part with a tool")
    return text, calls[0] if calls else None


def _call_of(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or not isinstance(data.get("tool"), str) or not data["tool"]:
        raise InvalidParamsError('a data part is a call: {"tool": NAME, "arguments": {…}}')
    arguments = data.get("arguments", {})
    if not isinstance(arguments, dict) or set(data) - {"tool", "arguments"}:
        raise InvalidParamsError('a data part is a call: {"tool": NAME, "arguments": {…}}, and nothing else')
    return {"name": data["tool"], "arguments": _whole_numbers(arguments)}


def _whole_numbers(value: Any) -> Any:
    """Protobuf makes every number a float: whole ones are integers again, as tools expect them."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case dict():
            return {key: _whole_numbers(each) for key, each in value.items()}
        case list():
            return [_whole_numbers(each) for each in value]
    return value


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
