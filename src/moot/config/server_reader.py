"""`mcp_servers:` of a space: MCP servers that `moot up` bridges, each as a participant of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from moot.config.box_config import BoxConfig
from moot.config.configuration import McpServerConfig, MemberConfig
from moot.config.participant_reader import (
    ParticipantSection,
    ReadContext,
    read_mcp_server,
    read_participant,
    serve_once,
)
from moot.config.section_reader import at, checked, mapping, optional
from moot.errors import UsageError
from moot.protocol.kinds import WIDEN_BOX
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities

# What a tool server needs and no more: to answer questions that were put to everybody (an answer to its own
# name is owed, D-15), to tell of progress and of lists that changed, and to say that a tool changed (D-87).
SERVER_RIGHTS: Final = read_capabilities(
    [
        {"kind": "mcp/response"},
        {"kind": "mcp/request", "payload": {"method": "notifications/*"}},
        {"kind": "chat"},
    ]
)
# In a box: to propose that it is widened, and nothing else (decision 0271).
_BOXED_RIGHTS: Final = (
    *SERVER_RIGHTS,
    *read_capabilities(
        [{"kind": "mcp/proposal", "payload": {"method": "tools/call", "params": {"name": WIDEN_BOX}}}]
    ),
)

_SERVER_KEYS: Final = frozenset(McpServerConfig.__struct_fields__)
# What else may be said of a server that no participant of its name stands for.
_ABOUT_KEYS: Final = frozenset({"capabilities", "exclusive", "notation", "profile", "token_env", "tokens"})


def read_servers(
    value: Json, path: str, reading: ReadContext, *, folder: Path, found: ParticipantSection
) -> None:
    """Add every server to `found`: to the participant of its name, or as one with `SERVER_RIGHTS`."""
    for name, settings in optional(value, path).items():
        place = at(path, name)
        known = name in found.configs
        keys = _SERVER_KEYS | {"auto_start"} | (frozenset() if known else _ABOUT_KEYS)
        section = reading.known(mapping(settings, place), keys, place)
        server = read_mcp_server({k: v for k, v in section.items() if k in _SERVER_KEYS}, place, reading)
        if not known:
            about = {key: value for key, value in section.items() if key in _ABOUT_KEYS}
            rights = _BOXED_RIGHTS if isinstance(server.box, BoxConfig) else SERVER_RIGHTS
            read_participant(name, about, place, reading, folder=folder, defaults=rights, found=found)
        member = found.members.get(name, MemberConfig())
        if member.mcp_server is not None or member.command is not None:
            raise UsageError(f"{place}: the participant of that name says itself how it is started")
        starts = checked(section.get("auto_start", True), bool, "true or false", f"{place}.auto_start")
        found.members[name] = msgspec.structs.replace(member, mcp_server=server, auto_start=starts)
        serve_once(name, reading, found)
