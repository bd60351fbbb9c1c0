"""The HTTP headers that repeat what a request says, so that what stands between can route it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from moot.mcp.eras import STATELESS_VERSION, JsonObject
from moot.mcp.upstream.negotiation import ServerInfo


class RequestHeaders:
    """Headers of one connection; learns from lists which arguments of a tool are repeated in headers."""

    def __init__(self) -> None:
        # None until it is known which era the server speaks.
        self.greeting: ServerInfo | None = None
        self._maps: dict[str, Mapping[tuple[str, ...], str]] = {}

    def learn(self, tools: object) -> None:
        """Take note of what a `tools/list` result says."""
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                schema = tool.get("inputSchema")
                usable = find_invalid_x_mcp_header(schema) is None
                self._maps[tool["name"]] = x_mcp_header_map(schema) if usable else {}

    def knows(self, tool: object) -> bool:
        return tool in self._maps

    def of(self, method: str, params: JsonObject) -> Mapping[str, str]:
        """The headers of one message."""
        if self.greeting is None and method == "initialize":
            # It is what settles the version.
            return {}
        version = STATELESS_VERSION if self.greeting is None else self.greeting.version
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        if self.greeting is not None and self.greeting.era == "handshake":
            return headers
        headers[MCP_METHOD_HEADER] = method
        name: Any = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (known := self._maps.get(name)):
                arguments = params.get("arguments")
                headers.update(mcp_param_headers(known, arguments if isinstance(arguments, dict) else {}))
        return headers
