"""Reading `gateway.mcp`: which spaces the gateway itself serves to MCP clients, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from moot.config.configuration import SpaceSettings
from moot.config.gateway_config import McpEndpointConfig
from moot.config.oidc_config import OidcConfig
from moot.config.section_reader import mapping, read_struct
from moot.errors import UsageError
from moot.protocol.operation import Json

_PATH: Final = re.compile(r"/mcp(/[A-Za-z0-9_-]{1,64}){0,8}")


def read_mcp(
    value: Json, path: str, spaces: Mapping[str, SpaceSettings], providers: Sequence[OidcConfig]
) -> tuple[McpEndpointConfig, ...]:
    """One endpoint, or a list of several; raises UsageError."""
    if value is None:
        return ()
    found: list[McpEndpointConfig] = []
    for index, section in enumerate(value if isinstance(value, list) else [value]):
        place = f"{path}[{index}]" if isinstance(value, list) else path
        entry = read_struct(McpEndpointConfig, mapping(section, place), place)
        entry = _with_space(entry, place, spaces)
        if _PATH.fullmatch(entry.path) is None:
            raise UsageError(f"{place}.path: is /mcp, or below it, such as /mcp/lab")
        if entry.server not in spaces[entry.space].config.participants:
            raise UsageError(f"{place}.server: {entry.space} has no participant {entry.server}")
        if any(other.path == entry.path for other in found):
            raise UsageError(f"{place}.path: is served twice")
        for resource in _resources(entry, providers):
            if not urlsplit(resource).path.endswith(entry.path):
                raise UsageError(
                    f"{place}.path: {entry.server} of {entry.space} has the resource {resource} in"
                    f" gateway.oidc.mcp, which has to end in {entry.path}"
                )
        found.append(entry)
    return tuple(found)


def _with_space(
    entry: McpEndpointConfig, place: str, spaces: Mapping[str, SpaceSettings]
) -> McpEndpointConfig:
    if entry.space in spaces:
        return entry
    known = ", ".join(spaces)
    if entry.space:
        raise UsageError(f"{place}.space: there is no space {entry.space}; known are {known}")
    if len(spaces) > 1:
        raise UsageError(f"{place}.space: is missing: choose from {known}")
    return msgspec.structs.replace(entry, space=next(iter(spaces)))


def _resources(entry: McpEndpointConfig, providers: Sequence[OidcConfig]) -> list[str]:
    return [
        each.resource
        for provider in providers
        for each in provider.mcp
        if (each.space, each.server) == (entry.space, entry.server)
    ]
