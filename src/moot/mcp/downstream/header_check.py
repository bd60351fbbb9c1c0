"""Headers of the stateless era that repeat what the body says, so that proxies can route by them."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterable
from importlib import import_module
from typing import Final

from moot.errors import McpError
from moot.mcp.downstream import stateless
from moot.mcp.downstream.backend import Backend
from moot.mcp.downstream.rpc import RpcRequest
from moot.mcp.eras import HEADER_MISMATCH, PROTOCOL_VERSION_KEY, JsonObject
from moot.protocol import strict_json

VERSION_HEADER: Final = "mcp-protocol-version"
# Method → the member of its params that the header Mcp-Name repeats.
_NAME_PARAMS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_MAX_KNOWN_TOOLS: Final = 10_000
_UNIQUE_HEADERS: Final = (VERSION_HEADER, "mcp-method", "mcp-name")


class HeaderCheck:
    """Compares headers with bodies."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # Tools with their definition, and whether it names headers.
        self._header_tools: dict[str, tuple[JsonObject, bool]] = {}

    async def check(self, request: RpcRequest, pairs: list[tuple[str, str]], headers: dict[str, str]) -> None:
        """Raises McpError where a header says something else than the body, or is missing."""
        _check_method(request, pairs, headers)
        await self._check_arguments(request, pairs)

    async def _check_arguments(self, request: RpcRequest, pairs: list[tuple[str, str]]) -> None:
        """A tool may want arguments repeated as headers, so that proxies can route by them."""
        if request.method != "tools/call":
            return
        name, arguments = request.params.get("name"), request.params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return
        tool = self._backend.tool(name)
        if tool is None or not self._wants_headers(name, tool):
            return
        # The SDK checks a long list of rules. It takes a second to import, and few need it.
        inbound = await asyncio.to_thread(import_module, "mcp.shared.inbound")
        refusal = inbound.validate_mcp_param_headers(tool.get("inputSchema"), arguments, _HeaderPairs(pairs))
        if refusal is not None:
            raise McpError(refusal.code, refusal.message, refusal.data)

    def _wants_headers(self, name: str, tool: JsonObject) -> bool:
        """Whether a tool's schema names headers; checked once for each definition."""
        known = self._header_tools.get(name)
        if known is None or known[0] is not tool:
            if len(self._header_tools) >= _MAX_KNOWN_TOOLS:
                self._header_tools.clear()
            known = self._header_tools[name] = (tool, b"x-mcp-header" in strict_json.encode(tool))
        return known[1]


class _HeaderPairs(dict[str, str]):
    """Headers in the form that the SDK's check needs: `items` with every line, also repeated ones."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Iterable[tuple[str, str]]:  # type: ignore[override]  # all it does is iterate
        return iter(self._pairs)


def _check_method(request: RpcRequest, pairs: list[tuple[str, str]], headers: dict[str, str]) -> None:
    names = [name for name, _ in pairs]
    for name in _UNIQUE_HEADERS:
        if names.count(name) > 1:
            raise McpError(HEADER_MISMATCH, f"Header mismatch: {name} appears more than once")
    version = request.params["_meta"][PROTOCOL_VERSION_KEY]
    if headers.get(VERSION_HEADER) != version:
        raise McpError(HEADER_MISMATCH, f"Header mismatch: {VERSION_HEADER} must be what params._meta says")
    if headers.get("mcp-method") != request.method:
        raise McpError(HEADER_MISMATCH, "Header mismatch: mcp-method must be the body's method")
    member = _NAME_PARAMS.get(request.method)
    if member is not None:
        expected = request.params.get(member)
        if expected is not None and _decode_header(headers.get("mcp-name", "")) != expected:
            raise McpError(HEADER_MISMATCH, f"Header mismatch: mcp-name must be the body's params.{member}")
    stateless.check_version(version)


def _decode_header(value: str) -> str | None:
    """A header's text; `=?base64?…?=` holds what a header cannot. None if it cannot be decoded."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    text = value.removeprefix("=?base64?").removesuffix("?=")
    try:
        raw = b64decode(text, validate=True)
        # Only the canonical encoding: another one could pass for a different name elsewhere.
        return raw.decode("utf-8") if b64encode(raw).decode() == text else None
    except ValueError:
        return None
