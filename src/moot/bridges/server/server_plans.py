"""A server's own plan of a call, for what no overlay can show; the call is made while that plan still holds.

A tool names the one that plans it, `_meta: {"moot/plan-tool": "plan_deploy"}`, which takes the same arguments
and says that it only reads. Right before the call its plan is made again, and the call only if it says the
same. A plan may have an id, in `_meta: {"moot/plan-id": …}` of its result: the call is sent with that of the
last one, so that a server can hold itself to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from moot.bridges.server.overlay_previews import nothing_done
from moot.bridges.server.preview_run import PREVIEW_SECONDS, call_hash
from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.preview_report import MAX_PLAN_LINES, MAX_TEXT_CHARS, PreviewReport
from moot.protocol.rpc_codes import INVALID_PARAMS

# In `_meta` of a tool, and in that of a plan and of the call that it is for.
PLAN_TOOL: Final = "moot/plan-tool"
PLAN_ID: Final = "moot/plan-id"
MAX_HEARD: Final = 10_000

# Calls a tool that is listed and only reads; raises McpError, also where it is neither.
ReadByTool = Callable[[str, JsonObject], Awaitable[JsonObject]]


class ServerPlan(NamedTuple):
    """What a server says that it would do; `id` is None if it gave none."""

    hash: str
    lines: list[str]
    result: JsonObject
    id: str | None

    def whole(self) -> JsonObject:
        """For who asks for all of it, in the shape of an effect's."""
        lines: list[Json] = [*self.lines]
        return {
            "differences": [{"path": "plan", "what": "planned", "lines": lines}],
            "result": self.result,
        }


class ServerPlans:
    """The plans of one server's calls. They are known while the bridge runs."""

    def __init__(
        self,
        space: JoinedSpace,
        read: ReadByTool,
        tool_of: Callable[[str], str | None],
        wait_for_tools: Callable[[], Awaitable[object]],
    ) -> None:
        """`tool_of`: the tool that plans another one, once they are known."""
        self._space, self._read, self._tool_of, self._wait_for_tools = space, read, tool_of, wait_for_tools
        # By proposal: None has been heard, and nothing told of it that binds.
        self._told: LatestDict[str, ServerPlan | None] = LatestDict(MAX_HEARD)

    async def cover(self, payload: Mapping[str, Json]) -> bool:
        """Whether there is a tool that plans this call; raises McpError where the server does not answer."""
        await self._wait_for_tools()
        params = payload.get("params")
        if payload.get("method") != "tools/call" or not isinstance(params, dict):
            return False
        return self._tool_of(str(params.get("name"))) is not None

    def note(self, id: str) -> None:
        """It was proposed while we were there."""
        if id not in self._told:
            self._told[id] = None

    def told(self, id: str) -> ServerPlan | None:
        return self._told.get(id)

    async def make(self, id: str, params: JsonObject) -> PreviewReport:
        """Plan it, anew if it was planned before."""
        try:
            plan = await self._plan(params)
        except McpError as fault:
            self._told[id] = None
            return PreviewReport(why=f"its server gives no plan: {fault.message}"[:MAX_TEXT_CHARS])
        self._told[id] = plan
        return PreviewReport(
            effect=plan.hash,
            plan=tuple(each[:MAX_TEXT_CHARS] for each in plan.lines[:MAX_PLAN_LINES]),
            more=max(0, len(plan.lines) - MAX_PLAN_LINES),
        )

    async def check(self, request: IncomingRequest) -> ServerPlan | None:
        """The plan that a call of a proposal goes by; None: nothing binds it.

        Raises McpError if it is not what was told, or nobody knows any more what was.
        """
        about, wanted = request.envelope.correlation_id, request.envelope.payload.get("effect")
        hashes = {plan.hash for id in about if (plan := self._told.get(id)) is not None}
        is_covered = await self.cover(request.envelope.payload)
        if is_covered and isinstance(wanted, str):
            hashes.add(wanted)
        if hashes:
            plan = await self._plan(request.params)
            if hashes == {plan.hash}:
                return plan
            new = "\n".join(plan.lines[:MAX_PLAN_LINES])
            raise nothing_done(f"its server plans something else now, {plan.hash[:8]}:\n{new}")
        for id in about if is_covered else ():
            if id not in self._told and await self._space.look_up_proposal(id) is not None:
                raise nothing_done("what its server planned was told before this bridge was started")
        return None

    async def _plan(self, params: JsonObject) -> ServerPlan:
        tool = self._tool_of(str(params.get("name")))
        if tool is None:
            raise McpError(INVALID_PARAMS, "this tool names none that plans it")
        asked: JsonObject = {"name": tool, "arguments": params.get("arguments") or {}}
        try:
            async with asyncio.timeout(PREVIEW_SECONDS):
                result = await self._read(tool, asked)
        except TimeoutError:
            raise McpError(INVALID_PARAMS, f"{tool} takes more than {PREVIEW_SECONDS:.0f} s") from None
        lines = _lines(result)
        if result.get("isError") is True or result.get("resultType", "complete") != "complete":
            raise McpError(INVALID_PARAMS, f"{tool} fails: {' '.join(lines)[:500]}")
        said = [call_hash("tools/call", params), tool, result.get("content"), result.get("structuredContent")]
        digest = hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()
        meta = result.get("_meta")
        id = meta.get(PLAN_ID) if isinstance(meta, dict) else None
        return ServerPlan(digest, lines, result, id if isinstance(id, str) else None)


def plan_tool_of(tool: JsonObject) -> str | None:
    """The tool that plans this one, as it says itself."""
    meta = tool.get("_meta")
    named = meta.get(PLAN_TOOL) if isinstance(meta, dict) else None
    return named if isinstance(named, str) else None


def _lines(result: JsonObject) -> list[str]:
    """A plan as people read it: its text, and data where there is none."""
    content = result.get("content")
    texts = [
        str(each["text"])
        for each in (content if isinstance(content, list) else [])
        if isinstance(each, dict) and isinstance(each.get("text"), str)
    ]
    if not texts and "structuredContent" in result:
        texts = [json.dumps(result["structuredContent"], ensure_ascii=False, indent=2)]
    return [line for text in texts for line in text.splitlines()]
