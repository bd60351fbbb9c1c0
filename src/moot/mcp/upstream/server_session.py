"""What a server says about itself, and one run of it as callers use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from moot.mcp.eras import SERVER_INFO_KEY, Era, JsonObject

if TYPE_CHECKING:
    from moot.mcp.upstream.connection import RpcConnection
    from moot.mcp.upstream.headers import RequestHeaders


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server said about itself: always as a `server/discover` result, whatever its era."""

    era: Era
    version: str
    discover_result: JsonObject

    @property
    def capabilities(self) -> JsonObject:
        found = self.discover_result.get("capabilities")
        return found if isinstance(found, dict) else {}

    @property
    def implementation(self) -> JsonObject:
        """Its name and version, and whatever else it tells about itself."""
        meta = self.discover_result.get("_meta")
        found = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
        return found if isinstance(found, dict) else {}

    def offers(self, feature: str) -> bool:
        """Whether the server declares tools, resources, prompts, completions or logging."""
        return isinstance(self.capabilities.get(feature), dict)

    def declares(self, feature: str, option: str) -> bool:
        """Whether the server declares `listChanged` or `subscribe` of a feature."""
        found = self.capabilities.get(feature)
        return isinstance(found, dict) and found.get(option) is True


class ServerSession(NamedTuple):
    """One run of a server: a connection on which version and era are agreed."""

    connection: RpcConnection
    info: ServerInfo
    # Only over Streamable HTTP.
    headers: RequestHeaders | None
