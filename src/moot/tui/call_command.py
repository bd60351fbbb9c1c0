"""A proposed call as a command line, so that a person can change it and make it themselves."""

from __future__ import annotations

import json
import shlex

from moot.operations.terminal_escape import printable
from moot.participant import SeenProposal
from moot.protocol.operation import Json


def call_command(seen: SeenProposal) -> str | None:
    """`/call files write_file path=a.md text:="…"`; None for what is no call of a tool on one host."""
    name, arguments = seen.params.get("name"), seen.params.get("arguments", {})
    if seen.method != "tools/call" or len(seen.to) != 1 or not isinstance(name, str):
        return None
    if not isinstance(arguments, dict) or any(sign in key for key in arguments for sign in "=:"):
        return None
    words = ["/call", seen.to[0], name, *(_word(key, value) for key, value in arguments.items())]
    text = " ".join(shlex.quote(word) for word in words)
    return text if printable(text) == text else None


def _word(name: str, value: Json) -> str:
    if isinstance(value, str) and printable(value) == value and "\n" not in value:
        return f"{name}={value}"
    text = json.dumps(value, ensure_ascii=False)
    return f"{name}:={text if printable(text) == text else json.dumps(value)}"
