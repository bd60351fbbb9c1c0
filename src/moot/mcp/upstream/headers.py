"""The HTTP headers that repeat parts of a request, so that proxies can route by them."""

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
from moot.mcp.upstream.server_session import ServerInfo


class RequestHeaders:
    """Headers of one connection; learns from lists which arguments of a tool are repeated in headers."""

    def __init__(self) -> None:
        # None until it is known which era the server speaks.
        self.server_info: ServerInfo | None = None
        self._maps: dict[str, Mapping[tuple[str, ...], str]] = {}

    def learn(self, tools: object) -> None:
        """Read a `tools/list` result."""
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                schema = tool.get("inputSchema")
                usable = find_invalid_x_mcp_header(schema) is None
                self._maps[tool["name"]] = x_mcp_header_map(schema) if usable else {}

    def knows(self, tool: object) -> bool:
        return tool in self._maps

    def of(self, method: str, params: JsonObject) -> Mapping[str, str]:
        """The headers of one message."""
        if self.server_info is None and method == "initialize":
            # The version is agreed on by this very request.
            return {}
        version = STATELESS_VERSION if self.server_info is None else self.server_info.version
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        if self.server_info is not None and self.server_info.era == "handshake":
            return headers
        headers[MCP_METHOD_HEADER] = method
        name: Any = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call" and (known := self._maps.get(name)):
                arguments = params.get("arguments")
                headers.update(mcp_param_headers(known, arguments if isinstance(arguments, dict) else {}))
        return headers
