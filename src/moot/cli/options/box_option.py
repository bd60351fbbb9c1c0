"""`--box`: what confines a program that a command starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.config.box_config import BoxConfig

_HELP = (
    "confine the command: on, off, read=PATH, write=PATH, network=HOST, memory_bytes=2GiB, max_processes=N, "
    "cpu_seconds=N, max_file_bytes=1GiB, preview=on (of MCP servers); may be repeated (default: off)"
)
_SWITCHES: Final = {"on": True, "off": False}


def add_box_option(add: Callable[..., Any]) -> None:
    add("--box", action="append", default=[], metavar="WHAT", help=_HELP)


def box_of(words: Sequence[str]) -> BoxConfig | None:
    """What the words allow; None: no box. Raises UsageError."""
    from moot.config.box_config import BoxConfig, read_box

    if not words:
        return None
    if len(words) == 1 and words[0] in ("on", "off"):
        box = read_box(words[0], "--box")
    else:
        listed: dict[str, Any] = {}
        for each in words:
            name, equals, value = each.partition("=")
            if not equals and each != "on":
                raise UsageError(f"--box {each}: write on, off, or what it may reach, such as write=PATH")
            if name in ("read", "write", "network"):
                listed.setdefault(name, []).append(value)
            elif equals:
                listed[name] = int(value) if value.isdigit() else _SWITCHES.get(value, value)
        box = read_box(listed, "--box")
    return box if isinstance(box, BoxConfig) else None
