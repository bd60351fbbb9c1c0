"""`box:` of an MCP server: what its process may reach. Everything else is out of its reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from moot.config.section_reader import at, read_struct, strings
from moot.errors import UsageError
from moot.protocol.operation import Json

# Hosts that one box lists: each name has two listening sockets of its own.
MAX_HOSTS: Final = 64
_HOST = re.compile(
    r"(\*|(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?|\[[0-9a-fA-F:.]+\])(:\d{1,5})?", re.ASCII
)
_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB)?", re.ASCII)
_UNITS: Final = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class BoxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a boxed server may reach. Its program, its libraries and a home of its own are always there."""

    # Folders or files that it may read, and those that it may change: absolute, or beside the configuration.
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    # Hosts that it may connect to: `api.example.org`, `*.example.org`, `host:port`; `*`: all public ones.
    network: tuple[str, ...] = ()
    # Of each process, and with a cgroup of all together: twice what Node.js takes for its heap.
    memory_bytes: int = 4 << 30
    # Of each file that it writes; not of all together, which nothing bounds.
    max_file_bytes: int = 8 << 30
    # Of each process, in its whole life; None: no limit.
    cpu_seconds: int | None = None
    # Processes and threads at once: a server of Node.js has about a dozen.
    max_processes: int = 256
    # Whether proposed calls are tried in an overlay of the folders, and approving applies what was seen.
    preview: bool = False


BoxSetting = BoxConfig | Literal["off"]


def read_box(value: Json, path: str) -> BoxSetting:
    """`off`, `on`, or what it may reach; raises UsageError."""
    # YAML reads the words off and on as false and true.
    if value is False or value == "off":
        return "off"
    if value is True or value == "on":
        return BoxConfig()
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{path}: is off, on, or what the server may reach: read, write, network and the like"
        )
    box: BoxConfig = read_struct(BoxConfig, value, path, _READERS)
    for name, least in (
        ("memory_bytes", 64 << 20),
        ("max_file_bytes", 1 << 20),
        ("max_processes", 1),
        ("cpu_seconds", 1),
    ):
        if (given := getattr(box, name)) is not None and given < least:
            raise UsageError(f"{at(path, name)}: has to be at least {least}")
    return box


def _paths(value: Json, path: str) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(strings(value, path))
    if any(not each or "\0" in each for each in found):
        raise UsageError(f"{path}: a path is missing")
    return found


def read_hosts(value: Json, path: str) -> tuple[str, ...]:
    """Hosts that may be connected to; raises UsageError."""
    hosts = (value,) if isinstance(value, str) else tuple(strings(value, path))
    if hosts == ("none",):
        return ()
    for each in hosts:
        if not _HOST.fullmatch(each):
            example = "write none, or a list of hosts such as api.example.org, *.example.org or host:8443"
            raise UsageError(f"{path}: {each!r} is no host: {example}")
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"{path}: names more than {MAX_HOSTS} hosts: use patterns such as *.example.org")
    return tuple(each.lower() for each in hosts)


def _size(value: Json, path: str) -> int:
    found = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) else None
    if found is None:
        raise UsageError(f"{path}: is a size, such as 512MiB or 2GiB")
    return int(found[1]) * _UNITS[found[2]]


_READERS: Final = {
    "read": _paths,
    "write": _paths,
    "network": read_hosts,
    "memory_bytes": _size,
    "max_file_bytes": _size,
}
