"""Files of environment variables, one `NAME=VALUE` a line: for what no repository may have.

    # a comment
    API_KEY=abc
    export REGION=eu-1          `export` may stand there; after a blank, # begins a comment
    GREETING="two\\nlines"       double quotes: \\n, \\r, \\t, \\" and \\\\ are escapes
    PATTERN='as it is'          single quotes: nothing is an escape

Values in quotes may run over several lines. No error quotes a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moot.errors import UsageError
from moot.private_files import read_secret

# Keys and certificates are a few KiB; a file of this size was not written for this.
MAX_ENV_FILE_BYTES: Final = 1 << 20
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.-]*"
_LINE = re.compile(
    rf"""[ \t]*(?:
        (?P<nothing>\#[^\n]*)?
      | (?:export[ \t]+)?(?P<name>{_NAME})[ \t]*=[ \t]*(?:
            "(?P<double>(?:[^"\\]|\\.)*)"[ \t]*(?:\#[^\n]*)?
          | '(?P<single>[^']*)'[ \t]*(?:\#[^\n]*)?
          | (?P<bare>(?!["'])[^\n]*)
        )
    )[ \t]*(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_BARE_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_@%+=:,./~-]*", re.ASCII)


def is_variable_name(name: str) -> bool:
    return re.fullmatch(_NAME, name, re.ASCII) is not None


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a file that only its owner can read; raises UsageError that says what to do."""
    try:
        data = read_secret(path, max_bytes=MAX_ENV_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"env_file: there is no file {path}; write NAME=VALUE lines into it") from None
    except OSError as fault:
        raise UsageError(f"env_file: {path} cannot be read: {fault.strerror}") from None
    if len(data) > MAX_ENV_FILE_BYTES:
        raise UsageError(f"env_file: {path} has more than {MAX_ENV_FILE_BYTES} bytes")
    try:
        return parse_env_text(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UsageError(f"env_file: {path} is not UTF-8 text") from None
    except UsageError as fault:
        raise UsageError(f"env_file: {path}: {fault}") from None


def parse_env_text(text: str) -> dict[str, str]:
    """The variables of a text; raises UsageError with the line that is none."""
    text = text.replace("\r\n", "\n")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        line = _LINE.match(text, at)
        if line is None or "\0" in line[0]:
            number = text.count("\n", 0, at) + 1
            raise UsageError(f"line {number}: not NAME=VALUE; values with quotes or spaces stand in quotes")
        if line["name"]:
            found[line["name"]] = _value(line)
        at = line.end()
    return found


def format_env_text(variables: Mapping[str, str]) -> str:
    """The text from which `parse_env_text` reads these variables."""
    return "".join(f"{name}={_quoted(value)}\n" for name, value in variables.items())


def _value(line: re.Match[str]) -> str:
    if line["double"] is not None:
        return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), line["double"])
    if line["single"] is not None:
        return line["single"]
    return _BARE_COMMENT.sub("", line["bare"]).strip()


def _quoted(value: str) -> str:
    if _NEEDS_NO_QUOTES.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return f'"{escaped}"'
