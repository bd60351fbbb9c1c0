"""JSON as editors write it: with comments, commas before a closing bracket, and a byte order mark.

What JSON does not have is replaced by spaces of the same length, so that an error names the line and the
column of the file. No error quotes the text: it may hold keys.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from typing import Any, Final

from moot.errors import UsageError
from moot.protocol.operation import Json

_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")


def decode_text(data: bytes) -> str:
    """The text of a file, with or without a byte order mark; raises UsageError if it is no text."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text; save it as UTF-8") from None


def read_json_with_comments(text: str) -> tuple[Json, list[str]]:
    """The value, and the names that stand twice in one object; the last of them counts."""
    plain = _LAST_COMMA.sub(_blank, _COMMENT.sub(lambda found: _blank_comment(found, text), text))
    twice: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice.extend(name for name, count in counts.items() if count > 1)
        return made

    try:
        return json.loads(plain, object_pairs_hook=collect), twice
    except json.JSONDecodeError as fault:
        if not text.strip():
            raise UsageError("is empty") from None
        hint = "; in JSON a backslash is written twice" if fault.msg.startswith("Invalid \\") else ""
        where = f"line {fault.lineno}, column {fault.colno}"
        raise UsageError(f"{where}: not valid JSON: {fault.msg}{hint}") from None
    except (ValueError, RecursionError):
        raise UsageError("not valid JSON: a number is too long, or it is nested too deep") from None


def _blank_comment(found: re.Match[str], text: str) -> str:
    if found[0] == "/*":
        before = text[: found.start()]
        line, column = before.count("\n") + 1, found.start() - (before.rfind("\n") + 1) + 1
        raise UsageError(f"line {line}, column {column}: not valid JSON: a comment that does not end")
    return _blank(found)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else _NOT_NEWLINE.sub(" ", found[0])
