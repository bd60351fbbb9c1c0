"""An MCP client in a space: it sees what its member may use, and whoever offers a thing does it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from mcp import MCPError
from moot.bridges.space.own_tools import CALL_TOOL, OWN_NAMES
from moot.errors import McpError
from moot.mcp.eras import LISTS as LISTS_OF
from moot.mcp.eras import OfferKind
from moot.participant import IncomingRequest, JoinedSpace
from tests.bridges.served_space import ServedMember, offer_files, served_space, text_of
from tests.waiting import until

OWN = list(OWN_NAMES)
ERAS = ["legacy", "2026-07-28"]


async def names_at(shown: ServedMember, mode: Any = "2026-07-28") -> list[str]:
    async with shown.client(mode) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


def call_right(tool: Any, kind: str = "mcp/request", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": {"method": "tools/call", "params": {"name": tool, **more}}}


LISTS = {
    "kind": "mcp/request",
    "payload": {"method": ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]},
}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_uses_what_members_offer(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path) as served:
        kept = offer_files(await served.join("files"))
        shown = await served.serve("bob")
        async with shown.client(mode) as client:
            assert client.server_info is not None or mode != "legacy"
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [*OWN, "read_file", "write_file"]
            assert tools[-1].meta == {"moot/member": "files", "moot/access": "request"}
            done = await client.call_tool("write_file", {"path": "b", "text": "new"})
            assert text_of(done) == "wrote b"
            assert kept["b"] == "new"
            assert [each.uri for each in (await client.list_resources()).resources] == ["file:///a.txt"]
            for uri, text in (("file:///a.txt", "hello"), ("file:///b", "new")):
                (content,) = (await client.read_resource(uri)).contents
                assert isinstance(content, types.TextResourceContents)
                assert content.text == text
            prompt = await client.get_prompt("summarise", {"path": "b"})
            assert isinstance(prompt.messages[0].content, types.TextContent)
            assert prompt.messages[0].content.text == "Summarise b"


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        ([LISTS], []),
        ([LISTS, call_right("read_file")], ["read_file"]),
        ([LISTS, call_right("read_*", kind="mcp/proposal")], ["read_file"]),
        ([LISTS, {"kind": "mcp/request", "to": ["notes"]}], []),
        ([LISTS, call_right("write_file", arguments={"path": "docs/*"})], ["write_file"]),
        (
            [LISTS, call_right("write_file"), call_right("*", kind="mcp/proposal")],
            ["read_file", "write_file"],
        ),
    ],
)
async def test_only_what_the_member_may_request_or_propose_is_listed(
    tmp_path: Path, rights: list[Any], expected: list[str]
) -> None:
    async with served_space(tmp_path, {"guest": rights}) as served:
        offer_files(await served.join("files"))
        assert await names_at(await served.serve("guest")) == [*OWN, *expected]


async def test_a_right_that_depends_on_arguments_is_asked_when_the_call_is_made(tmp_path: Path) -> None:
    rights = [LISTS, call_right("write_file", arguments={"path": "docs/*"})]
    async with served_space(tmp_path, {"guest": rights}) as served:
        kept = offer_files(await served.join("files"))
        async with (await served.serve("guest")).client() as client:
            assert (
                text_of(await client.call_tool("write_file", {"path": "docs/x", "text": "1"}))
                == "wrote docs/x"
            )
            refused = await client.call_tool("write_file", {"path": "etc/x", "text": "1"})
            assert refused.is_error
            assert "neither request nor propose write_file" in text_of(refused)
            assert "etc/x" not in kept
            with pytest.raises(MCPError, match="Unknown tool: read_file"):
                await client.call_tool("read_file", {"path": "a.txt"})


async def test_what_may_only_be_proposed_says_so_and_promises_no_output_schema(tmp_path: Path) -> None:
    """A client would refuse the answer "pending" for not matching it."""
    async with served_space(tmp_path, {"guest": [LISTS, "mcp/proposal"]}) as served:
        files = await served.join("files")

        @files.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
        def count() -> dict[str, int]:
            """Count."""
            return {"n": 1}

        async with (await served.serve("guest")).client() as client:
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "count"]
            assert tool.meta is not None
            assert tool.meta["moot/access"] == "propose"
            assert tool.output_schema is None
            assert "only propose" in (tool.description or "")
        async with (await served.serve("bob")).client() as client:
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "count"]
            assert tool.output_schema is not None
            assert tool.description == "Count."


async def test_who_may_only_propose_does_not_see_what_an_approver_reports_to_people(tmp_path: Path) -> None:
    guest = [LISTS, "mcp/proposal"]
    async with served_space(tmp_path, {"guest": guest, "files": ["mcp/response", "trust/rule"]}) as served:
        files = await served.join("files")

        @files.tool
        def trust_rules() -> str:
            """Lists the rules of this space."""
            return "none"

        @files.tool
        def count() -> str:
            """Count."""
            return "1"

        async with (await served.serve("guest")).client() as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert "count" in listed
            assert "trust_rules" not in listed
        async with (await served.serve("bob")).client() as client:
            assert "trust_rules" in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_member_that_may_not_ask_for_lists_learns_from_answers_to_others(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_files(await served.join("files"))
        alice = await served.join("alice")
        shown = await served.serve("guest")
        # What it does not see it may propose by its name.
        assert await names_at(shown) == [*OWN, CALL_TOOL]
        await alice.list_all("files", "tools")
        await alice.list_all("files", "prompts")
        await until(lambda: shown.backend.offer_table.find("prompts", "summarise"))
        assert await names_at(shown) == [*OWN, CALL_TOOL, "read_file", "write_file"]


async def test_the_first_list_waits_for_everybody_who_answers(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        files = await served.join("files")
        asked, released = asyncio.Event(), asyncio.Event()

        async def slow(request: IncomingRequest) -> dict[str, Any]:
            asked.set()
            await released.wait()
            if request.method == "tools/list":
                return {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}
            raise McpError(-32601, "no")

        files.server.use_handler(slow)
        shown = await served.serve("bob")
        async with shown.client() as client, anyio.create_task_group() as group:

            async def ask() -> None:
                assert [tool.name for tool in (await client.list_tools()).tools] == [*OWN, "slow"]

            group.start_soon(ask)
            await asked.wait()
            released.set()


# Names (D-91)


def offer(space: Any, *names: str) -> None:
    for name in names:
        space.tool(name=name, description=f"{name} of {space.me}")(lambda: space.me)


async def test_a_name_is_its_first_members_and_later_ones_say_whose_they_are(tmp_path: Path) -> None:
    async with served_space(tmp_path, {"aaa": ["*"]}) as served:
        offer(await served.join("files"), "look", "moot_chat")
        shown = await served.serve("bob")
        assert await names_at(shown) == [*OWN, "look", "files__moot_chat"]
        offer(await served.join("aaa"), "look")
        await until(lambda: len(shown.backend.offer_table.all("tools")) == 3)
        assert await names_at(shown) == [*OWN, "aaa__look", "look", "files__moot_chat"]
        async with shown.client() as client:
            assert text_of(await client.call_tool("look", {})) == "files"
            assert text_of(await client.call_tool("aaa__look", {})) == "aaa"


async def test_a_name_stays_with_a_member_that_is_away(tmp_path: Path) -> None:
    async with served_space(tmp_path, {"thief": ["*"]}) as served:
        files = await served.join("files")
        offer(files, "pay")
        shown = await served.serve("bob")
        await names_at(shown)
        await files.close()
        await until(lambda: not shown.backend.offer_table.all("tools"))
        offer(await served.join("thief"), "pay")
        await until(lambda: shown.backend.offer_table.all("tools"))
        assert await names_at(shown) == [*OWN, "thief__pay"]
        async with shown.client() as client:
            result = await client.call_tool("pay", {})
            assert (result.is_error, "files, which owns pay, is not in the space" in text_of(result)) == (
                True,
                True,
            )


# Changes


async def test_clients_hear_when_members_come_go_and_change(tmp_path: Path) -> None:
    received: list[str] = []

    async def hear(message: Any) -> None:
        received.append(message.method.removeprefix("notifications/"))

    async with served_space(tmp_path) as served:
        shown = await served.serve("bob")
        async with shown.client("legacy", message_handler=hear) as client:
            await client.list_tools()
            files = await served.join("files")
            await until(lambda: "files" in shown.space.roster)
            offer(files, "one")
            await until(lambda: "tools/list_changed" in received)
            assert [tool.name for tool in (await client.list_tools()).tools] == [*OWN, "one"]
            received.clear()
            files.offers.remove_tool("one")
            await until(lambda: received == ["tools/list_changed"])
            offer(files, "two")
            await until(lambda: len(received) == 2)
            await files.close()
            await until(lambda: len(received) == 3)
            assert [tool.name for tool in (await client.list_tools()).tools] == OWN


async def test_a_grant_shows_more_and_a_stateless_listener_hears_of_it(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer(await served.join("files"), "one")
        alice = await served.join("alice")
        shown = await served.serve("guest")
        async with shown.client() as client, client.listen(tools_list_changed=True) as news:
            listed = (await client.list_tools(cache_mode="bypass")).tools
            assert [tool.name for tool in listed] == [*OWN, CALL_TOOL]
            await alice.admin.grant("guest", [LISTS, call_right("one")])
            await anext(aiter(news))
            await until(lambda: shown.backend.offer_table.all("tools"))
            tools = (await client.list_tools(cache_mode="bypass")).tools
            assert [tool.name for tool in tools] == [*OWN, "one"]
            assert text_of(await client.call_tool("one", {})) == "files"


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_subscription_is_made_at_the_host_once_and_its_updates_come_through(tmp_path: Path) -> None:
    received: list[str] = []

    async def hear(message: Any) -> None:
        if message.method == "notifications/resources/updated":
            received.append(message.params.uri)

    async with served_space(tmp_path) as served:
        files = await served.join("files")
        offer_files(files)
        shown = await served.serve("bob")
        async with shown.client("legacy", message_handler=hear) as one, shown.client("legacy") as other:
            await one.subscribe_resource("file:///a.txt")
            await other.subscribe_resource("file:///a.txt")
            await other.unsubscribe_resource("file:///a.txt")
            assert files.offers.notify_updated("file:///a.txt")
            await until(lambda: received == ["file:///a.txt"])
            await one.unsubscribe_resource("file:///a.txt")
            assert not files.offers.notify_updated("file:///a.txt")
            with pytest.raises(MCPError, match="Resource not found"):
                await one.subscribe_resource("moot://nobody/x")


# Resources of several members


async def test_a_name_that_several_offer_does_not_go_to_whoever_answers_first(tmp_path: Path) -> None:
    answered = asyncio.Event()

    def listing(first: bool) -> Any:
        async def answer(request: IncomingRequest) -> dict[str, Any]:
            if request.method != "tools/list":
                return {LISTS_OF[request.method]: []}
            if first:
                answered.set()
            else:
                await answered.wait()
            return {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]}

        return answer

    async with served_space(tmp_path) as served:
        (await served.join("notes")).server.use_handler(listing(True))
        (await served.join("files")).server.use_handler(listing(False))
        shown = await served.serve("bob")
        async with shown.client() as client:
            assert [tool.name for tool in (await client.list_tools()).tools][-2:] == ["pay", "notes__pay"]


async def test_whose_a_name_is_is_the_same_for_every_client_and_after_a_restart(tmp_path: Path) -> None:
    """For tools, prompts and resources: shown to one client, it is settled for all."""

    def offer_pay(space: JoinedSpace) -> None:
        space.tool(name="pay")(lambda: space.me)
        space.prompt(name="pay")(lambda: space.me)
        space.resource("x://pay")(lambda: space.me)

    async def see(shown: ServedMember) -> dict[str, str]:
        await until(lambda: len(shown.backend.offer_table.all("prompts")) == 2)
        table = shown.backend.offer_table
        kinds: list[OfferKind] = ["tools", "prompts", "resources"]
        return {f"{kind} {offer.shown}": offer.owner for kind in kinds for offer in table.all(kind)}

    expected = {f"{kind} pay": "notes" for kind in ("tools", "prompts")} | {"resources x://pay": "notes"}
    expected |= {f"{kind} files__pay": "files" for kind in ("tools", "prompts")}
    expected |= {"resources moot://files/x://pay": "files"}
    async with served_space(tmp_path) as served:
        notes = await served.join("notes")
        offer_pay(notes)
        early = await served.serve("bob")
        await until(lambda: early.backend.offer_table.find("prompts", "pay"))
        # It comes before notes in the configuration and in the alphabet, and later than the name was shown.
        offer_pay(await served.join("files"))
        assert await see(early) == expected
        late = await served.serve("alice")
        assert await see(late) == expected
    async with served_space(tmp_path) as served:
        offer_pay(await served.join("files"))
        alone = await served.serve("bob")
        await until(lambda: alone.backend.offer_table.find("prompts", "files__pay"))
        assert alone.backend.offer_table.find("tools", "pay") is None
        offer_pay(await served.join("notes"))
        assert await see(alone) == expected


async def test_the_same_uri_of_two_members_is_told_apart_and_read_from_each(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        for name in ("files", "notes"):
            space = await served.join(name)
            space.resource("x://same")(lambda name=name: f"of {name}")
            space.resource("x://{key}")(lambda key, name=name: f"{key} of {name}")
        shown = await served.serve("bob")
        async with shown.client() as client:
            uris = [each.uri for each in (await client.list_resources()).resources]
            assert uris == ["x://same", "moot://notes/x://same"]
            templates = (await client.list_resource_templates()).resource_templates
            assert [each.uri_template for each in templates] == ["x://{key}", "moot://notes/x://{key}"]
            for uri, text in (
                ("x://same", "of files"),
                ("moot://notes/x://same", "of notes"),
                ("x://7", "7 of files"),
                ("moot://notes/x://7", "7 of notes"),
            ):
                (content,) = (await client.read_resource(uri)).contents
                assert isinstance(content, types.TextResourceContents)
                assert (content.uri, content.text) == (uri, text)
            for missing in ("y://1", "moot://nobody/x://same"):
                with pytest.raises(MCPError) as caught:
                    await client.read_resource(missing)
                assert caught.value.error.code == -32602
