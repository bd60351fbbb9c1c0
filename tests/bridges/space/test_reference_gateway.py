"""`moot mcp` at a gateway as the reference's: whoever may only propose gets no answer to `tools/list`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from moot.participant import connect
from tests.bridges.served_space import ServedMember, serve_member, text_of
from tests.participant.rogue_gateway import RogueGateway, rogue_gateway
from tests.waiting import bounded, until

TOOL = {"name": "deploy", "description": "Deploy it.", "inputSchema": {"type": "object"}}


@asynccontextmanager
async def proposer_at_reference() -> AsyncIterator[tuple[RogueGateway, ServedMember]]:
    """A gateway that wants a join frame, tells everybody everything, and knows nothing of Moot's own."""
    async with rogue_gateway() as gateway, AsyncExitStack() as stack:
        gateway.waits_for_join = True
        gateway.capabilities = [{"kind": "mcp/proposal"}, {"kind": "chat"}]
        everything = [{"kind": "*"}, {"kind": "mcp/response"}]
        gateway.participants = [
            {"id": "tools", "capabilities": [{"kind": "mcp/response"}]},
            {"id": "human", "capabilities": everything},
        ]
        space = await stack.enter_async_context(connect(gateway.url, "lab", "t"))
        yield gateway, await serve_member(space, stack)


async def test_tools_that_others_ask_for_are_listed_also_where_they_ask_without_an_id() -> None:
    """As the reference's clients do (D-95)."""
    async with proposer_at_reference() as (gateway, shown), shown.client() as client:
        asked = await gateway.emit("mcp/request", {"method": "tools/list"}, sender="human", to=["tools"])
        answer = {"result": {"tools": [TOOL]}}
        await gateway.emit("mcp/response", answer, sender="tools", to=["human"], about=[asked])
        await until(lambda: shown.backend.offer_table.find("tools", "deploy"))
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[-1] == "deploy"


async def test_a_tool_that_cannot_be_listed_is_proposed_by_its_name() -> None:
    results: list[str] = []
    async with proposer_at_reference() as (gateway, shown), shown.client() as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        told = listed["moot_call_tool"].description or ""
        assert told.startswith("Your rights in this space do not let you ask members for their tools")
        unknown = await client.call_tool("moot_call_tool", {"name": "deploy", "member": "nobody"})
        assert (unknown.is_error, "no member is called nobody" in text_of(unknown)) == (True, True)

        async def call() -> None:
            arguments = {"name": "deploy", "member": "tools", "arguments": {"to": "prod"}}
            results.append(text_of(await client.call_tool("moot_call_tool", arguments)))

        async with bounded(), anyio.create_task_group() as group:
            group.start_soon(call)
            proposal = await gateway.wait_for("mcp/proposal")
            assert (proposal["to"], proposal["payload"]["method"]) == (["tools"], "tools/call")
            assert proposal["payload"]["params"]["name"] == "deploy"
            assert proposal["payload"]["params"]["arguments"] == {"to": "prod"}
            request = await gateway.emit(
                "mcp/request",
                {"jsonrpc": "2.0", "id": 1, **proposal["payload"]},
                sender="human",
                to=["tools"],
                about=[proposal["id"]],
            )
            done = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "deployed"}]}}
            await gateway.emit("mcp/response", done, sender="tools", to=["human"], about=[request])
        assert results == ["deployed"]
