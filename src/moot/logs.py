"""Lines for the operator: one event a line, as JSON or as text, on stderr or in files that rotate.

A message is constant and its facts come from `extra`: `log.info("joined", extra={"participant": name})`.
What a peer wrote is escaped, so that no line forges another and no terminal obeys it. Whatever looks like a
token is blotted out on the way: nobody logs one on purpose, and this is the last place to catch it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, Literal, cast

from moot.private_files import open_private

# 16 MiB: an editor still opens it.
FILE_BYTES: Final = 16 << 20
# Older files kept beside the current one: 96 MiB in all.
MAX_OLD_FILES: Final = 5
# A fact is an id or a size; a peer's longest name is 256 characters.
MAX_FIELD_CHARS: Final = 1_024

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
# What a record has besides the facts.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_RESERVED: Final = frozenset({"time", "level", "logger", "message", "exception", "stack"})

_REDACTED: Final = "[redacted]"
_BEARER = re.compile(r"\b(bearer|basic)(\s+|%20|\+)[^\s\"',;&]+", re.IGNORECASE)
_NAMED = re.compile(
    r"""(token|authorization|password|secret|cookie)(["']?\s*[:=]\s*["']?)(?!\[redacted\])[^\s"'&,;}\])]+""",
    re.IGNORECASE,
)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
# What `secrets.token_urlsafe(32)` makes has 43 of these, of both cases; a hash has one. Public keys look like
# it, too, and say what they are.
_LONG = re.compile(r"(?<![A-Za-z0-9_-])(?<!ed25519:)(?<!x25519:)[A-Za-z0-9_-]{40,}")
_SECRET_FIELD = re.compile(r"token$|authorization|password|secret|cookie", re.IGNORECASE)
_BARE = re.compile(r"[\w.:/@+#-]+", re.ASCII)

_installed: logging.Handler | None = None


def set_up(
    level: Literal["debug", "info", "warning", "error"] = "info",
    format: Literal["json", "text"] = "text",
    file: Path | None = None,
    *,
    file_bytes: int = FILE_BYTES,
    max_old_files: int = MAX_OLD_FILES,
) -> logging.Handler:
    """Send every logger's lines to one place; called again, to another one instead of it."""
    global _installed
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, max_old_files + 1):
            # Those of a version that did not care.
            with suppress(OSError):
                os.close(open_private(f"{file}.{number}", os.O_WRONLY))
        handler = _PrivateFileHandler(file, maxBytes=file_bytes, backupCount=max_old_files, encoding="utf-8")
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    if _installed is not None:
        root.removeHandler(_installed)
        _installed.close()
    _installed = handler
    return handler


class _PrivateFileHandler(RotatingFileHandler):
    """Files that only our user can read: names of members, addresses and traces of calls stand in them."""

    def _open(self) -> TextIOWrapper:
        opened = open(self.baseFilename, self.mode, encoding=self.encoding, opener=open_private)  # noqa: SIM115
        return cast("TextIOWrapper", opened)


def redact(text: str) -> str:
    """The text without anything that looks like a bearer token, a password or a long random secret."""
    text = _BEARER.sub(rf"\1 {_REDACTED}", text)
    text = _NAMED.sub(rf"\1\2{_REDACTED}", text)
    text = _JWT.sub(_REDACTED, text)
    return _LONG.sub(_redact_if_random, text)


def escape(text: str) -> str:
    """The text with everything escaped that moves a cursor, colours, reverses or ends a line."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in text
    )


def _redact_if_random(found: re.Match[str]) -> str:
    text = found[0]
    return text if text == text.lower() or text == text.upper() else _REDACTED


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What came as `extra`, as plain values of bounded length."""
    facts: dict[str, Any] = {}
    for name, value in vars(record).items():
        if name not in _STANDARD and not name.startswith("_"):
            # `level` and the like are the line's own words.
            facts[f"{name}_" if name in _RESERVED else name] = _to_plain(name, value)
    return facts


def _to_plain(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON has no NaN.
        return value if math.isfinite(value) else str(value)
    if _SECRET_FIELD.search(name):
        return _REDACTED
    text = value if isinstance(value, str) else str(value)
    if len(text) > MAX_FIELD_CHARS:
        # Cut after blotting: half a token is a token still.
        return redact(text[: MAX_FIELD_CHARS * 4])[:MAX_FIELD_CHARS] + "…"
    return redact(text)


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _LineFormatter(logging.Formatter):
    """What both formats share: the fields of a line."""

    def traceback_of(self, record: logging.LogRecord) -> str | None:
        """The exception and the stack, if any. Not cached in the record: other handlers have their own."""
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(record.stack_info)
        return redact("\n".join(parts)) if parts else None


class JsonFormatter(_LineFormatter):
    """One JSON object a line, in ASCII: nothing in it can act on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        } | _extra_fields(record)
        traceback = self.traceback_of(record)
        if traceback is not None:
            line["exception"] = traceback
        return json.dumps(line, default=str)


class TextFormatter(_LineFormatter):
    """Time, level, logger, message, and the facts as name=value; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [
            _timestamp(record),
            f"{record.levelname.lower():<7}",
            f"{escape(record.name)}:",
            escape(redact(record.getMessage())),
            *_format_fields(_extra_fields(record)),
        ]
        lines = [" ".join(parts)]
        traceback = self.traceback_of(record)
        if traceback is not None:
            lines += [f"    {escape(line)}" for line in traceback.splitlines()]
        return "\n".join(lines)


def _format_fields(facts: Mapping[str, Any]) -> list[str]:
    shown = []
    for name, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        # Quoted where it could be read as the next fact.
        shown.append(f"{escape(name)}={text if _BARE.fullmatch(text) else escape(_quote(text))}")
    return shown


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
