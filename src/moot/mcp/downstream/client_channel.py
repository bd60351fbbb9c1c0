"""The way back to whoever sent a request, for as long as that request is being answered."""

from __future__ import annotations

from typing import Final, Protocol

from moot.mcp.eras import Era, JsonObject
from moot.protocol.operation import Json

TASKS: Final = "io.modelcontextprotocol/tasks"


class ClientChannel(Protocol):
    """Who asked. In the stateless era all of it came with the request itself."""

    @property
    def era(self) -> Era: ...

    @property
    def capabilities(self) -> JsonObject: ...

    @property
    def log_level(self) -> str | None: ...

    def notify(self, method: str, params: JsonObject) -> None:
        """Tell it something about this request. Never waits; a client that does not read loses its stream."""

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask it something (handshake era only); raises McpError when refused. Cancelling takes it back."""


def takes_forms(capabilities: JsonObject) -> bool:
    """Whether it can show its person a form. An empty declaration means forms (MCP 2025-11-25)."""
    declared: Json = capabilities.get("elicitation")
    return isinstance(declared, dict) and ("form" in declared or "url" not in declared)


def takes_tasks(capabilities: JsonObject) -> bool:
    extensions: Json = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def lacks(capabilities: JsonObject, method: str, params: JsonObject) -> JsonObject | None:
    """What a client would have to declare to be asked this; None if it did."""
    word = method.partition("/")[0]
    declared: Json = capabilities.get(word)
    if not isinstance(declared, dict):
        return {word: {}}
    if word == "elicitation" and params.get("mode") == "url" and "url" not in declared:
        return {"elicitation": {"url": {}}}
    if word == "elicitation" and params.get("mode", "form") == "form" and not takes_forms(capabilities):
        return {"elicitation": {"form": {}}}
    return None
