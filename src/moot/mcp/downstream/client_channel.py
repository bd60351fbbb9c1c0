"""The client of one request, for as long as that request is being answered."""

from __future__ import annotations

from typing import Final, Protocol

from moot.mcp.eras import Era, JsonObject
from moot.protocol.operation import Json

TASKS: Final = "io.modelcontextprotocol/tasks"


class ClientChannel(Protocol):
    """The sender of a request. In the stateless era all of this came with the request."""

    @property
    def era(self) -> Era: ...

    @property
    def capabilities(self) -> JsonObject: ...

    @property
    def log_level(self) -> str | None: ...

    @property
    def is_read(self) -> bool:
        """Whether an answer would reach the client now. False: its connection is gone."""

    @property
    def may_give_up_silently(self) -> bool:
        """Whether it may be a client that does not say when it stops waiting."""

    def notify(self, method: str, params: JsonObject) -> None:
        """Notify it about this request. Never waits; a client that does not read loses its stream."""

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send it a request (handshake era only); raises McpError when refused. Cancelling cancels it."""


def supports_forms(capabilities: JsonObject) -> bool:
    """Whether the client can show a form. An empty declaration means forms (MCP 2025-11-25)."""
    declared: Json = capabilities.get("elicitation")
    return isinstance(declared, dict) and ("form" in declared or "url" not in declared)


def supports_tasks(capabilities: JsonObject) -> bool:
    extensions: Json = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def missing_capability(capabilities: JsonObject, method: str, params: JsonObject) -> JsonObject | None:
    """What a client would have to declare to get this request; None if it did."""
    capability = method.partition("/")[0]
    declared: Json = capabilities.get(capability)
    if not isinstance(declared, dict):
        return {capability: {}}
    if capability == "elicitation" and params.get("mode") == "url" and "url" not in declared:
        return {"elicitation": {"url": {}}}
    if (
        capability == "elicitation"
        and params.get("mode", "form") == "form"
        and not supports_forms(capabilities)
    ):
        return {"elicitation": {"form": {}}}
    return None
