"""An MCP server with one tool, which a coding agent asks before each call: Claude Code's permission prompt.

The agent calls it with the tool and the input of a call, and does what the answer says: allow with exactly
that input, or deny with a reason. Everything that is no approval is denied, a fault of our own as well.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from moot import __version__
from moot.agents.hook.hook_call import MAX_CALL_BYTES, HookCall
from moot.agents.hook.hook_gate import describe_refusal
from moot.errors import McpError, MootError
from moot.mcp.downstream.backend import (
    BackendCall,
    ServerDescription,
    ToolsOnlyBackend,
    text_result,
)
from moot.mcp.eras import JsonObject, OfferKind
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

log = logging.getLogger(__name__)

PERMISSION_TOOL: Final = "permission_prompt"
_DEFINITION: Final[JsonObject] = {
    "name": PERMISSION_TOOL,
    "title": "Permission prompt",
    "description": "For the program that runs the model, not for the model: asks the people of a Moot space "
    "whether a call may be made. Calling it does nothing else.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "tool_name": {"type": "string"},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
        "required": ["tool_name", "input"],
    },
    "annotations": {"openWorldHint": False},
}


class ReleasesCalls(Protocol):
    """The agent's member; a Protocol because tests need no gateway to see how refusals are told."""

    async def wait_for_release(self, call: HookCall, wait_seconds: float) -> str: ...


class PermissionBackend(ToolsOnlyBackend):
    """The tool, for an agent that works in `folder`."""

    def __init__(self, member: ReleasesCalls, folder: str, wait_seconds: float) -> None:
        self._member = member
        self._folder = folder
        self._wait_seconds = wait_seconds
        self.about = ServerDescription(
            {"name": "moot-permission", "title": "Moot permission prompt", "version": __version__}
        )

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        return [_DEFINITION] if kind == "tools" else []

    def tool(self, name: str) -> JsonObject | None:
        return _DEFINITION if name == PERMISSION_TOOL else None

    async def perform(self, call: BackendCall) -> JsonObject:
        if call.method != "tools/call" or call.params.get("name") != PERMISSION_TOOL:
            raise McpError(INVALID_PARAMS, f"this server has the tool {PERMISSION_TOOL} only")
        return text_result(strict_json.encode(await self._decide(call.params.get("arguments"))).decode())

    async def _decide(self, arguments: Json) -> dict[str, Json]:
        given = arguments if isinstance(arguments, dict) else {}
        tool, called_with = given.get("tool_name"), given.get("input")
        if not isinstance(tool, str) or not tool or not isinstance(called_with, dict):
            return _deny("the agent did not tell tool_name and input; the call cannot be shown")
        if len(strict_json.encode(called_with)) > MAX_CALL_BYTES:
            return _deny(f"the call has more than {MAX_CALL_BYTES} bytes; do it in smaller parts")
        try:
            by = await self._member.wait_for_release(
                HookCall(tool, called_with, self._folder), self._wait_seconds
            )
        except MootError as fault:
            return _deny(describe_refusal(fault))
        # Not allowed by a fault of ours either; the agent is told no details.
        except Exception:
            log.exception("a permission could not be decided")
            return _deny("the permission prompt failed")
        log.info("allowed once", extra={"by": by, "tool": tool[:200]})
        return {"behavior": "allow", "updatedInput": called_with}


def _deny(why: str) -> dict[str, Json]:
    return {"behavior": "deny", "message": f"Not allowed by the Moot space: {why}"}
