"""Tools are there at once, also for a client that may only propose; very many are found, not listed."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp_types import ListToolsRequest, ListToolsResult

from moot.bridges.space.own_tools import CALL_TOOL, OWN_NAMES
from moot.cli.mcp.defaults import MAX_CONNECTIONS_PER_ADDRESS
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StartFailed, StdioServer
from moot.net.http_protocol import ConnectionLimiter
from moot.operations.call_operations import _tools
from moot.operations.operation import ClientContext
from moot.participant import IncomingRequest
from moot.participant.programs import offer_discovery
from tests.agents.model.test_unanswered import tools_request
from tests.bridges.bridged_space import bridged_space, call
from tests.bridges.served_space import HASTY, offer_files, serve_member, served_space, text_of
from tests.bridges.server.test_command import command, printed_line
from tests.bridges.space.test_approvals_outlive import mcp_process, words
from tests.bridges.space.test_mcp_command import token_file
from tests.bridges.space.test_space_server_decisions import CALL, GUEST, first_proposal, set_up
from tests.gateway.running_gateway import Client
from tests.gateway.served import served
from tests.mcp.test_downstream_decisions import Person
from tests.mcp.upstreams import script
from tests.mcp.upstreams import text_of as text_of_result
from tests.waiting import HANG_SECONDS, bounded, until
from tests.warm_start import warm_command

ERAS = ["legacy", "2026-07-28"]


async def test_from_nothing_to_an_approved_call_as_the_readme_has_it(tmp_path: Path) -> None:
    """A gateway, a bridged MCP server, a client that may only propose, and a person at a shell."""
    people = {
        "you": {"capabilities": ["*"], "tokens": ["t-you"]},
        "guest": {"profile": "proposal-only", "tokens": ["t-guest"]},
        "files": {"profile": "response-only", "tokens": ["t-files"]},
    }
    file = tmp_path / "moot.yaml"
    file.write_text(yaml.safe_dump({"spaces": {"lab": {"participants": people}}}))
    file.chmod(0o600)
    shared = tmp_path / "shared"
    shared.mkdir()
    async with served(file, "--port", "0") as gateway:
        where = ("--gateway", gateway.url, "--space", "lab", "--token-file")
        server = (sys.executable, "-m", "moot.up.servers.files", str(shared))
        async with command(tmp_path, *where, str(token_file(tmp_path, "files")), "--", *server) as bridge:
            assert (await printed_line(bridge)).endswith(" is files in lab\n")
            async with mcp_process(gateway.url, tmp_path, "--decision-seconds", "0.2") as client:
                listed = (await client.request("tools/list", {}))["result"]["tools"]
                assert "write_file" in [tool["name"] for tool in listed]
                arguments = {"path": "note.txt", "text": "hello"}
                pending = await client.call("write_file", arguments)
                assert words(pending).startswith("PENDING")
                handle = pending["_meta"]["moot/pending"]["handle"]
                assert not (shared / "note.txt").exists()
                approve = await asyncio.create_subprocess_exec(
                    *warm_command(),
                    *pending["_meta"]["moot/pending"]["approve_command"].split()[1:],
                    *(*where, str(token_file(tmp_path, "you"))),
                    stdout=asyncio.subprocess.DEVNULL,
                    env=dict(os.environ),
                )
                async with bounded():
                    assert await approve.wait() == 0
                done = await client.call("moot_status", {"handle": handle, "wait_seconds": 30})
                assert f"{handle}: approved by you" in words(done)
                assert (shared / "note.txt").read_text() == "hello"


def hasten_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for before the tools are listed."""
    monkeypatch.setattr(offer_discovery, "FIRST_LIST_SECONDS", 0.01)
    monkeypatch.setattr(offer_discovery.OfferDiscovery.wait_settled, "__defaults__", (0.01,))


WRITE = {"name": "write", "inputSchema": {"type": "object"}}


async def test_a_call_waits_for_a_server_that_has_not_told_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was started anew calls what it knows from before."""
    hasten_lists(monkeypatch)
    async with served_space(tmp_path) as served:
        files = await served.gateway.join("files")
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", HANG_SECONDS)
        shown = await served.serve("bob")
        async with shown.client() as client:
            calling = asyncio.create_task(client.call_tool("write", {}))
            asked = await tools_request(files)
            await asyncio.sleep(0.1)
            assert not calling.done()
            tools = {"jsonrpc": "2.0", "id": asked["payload"]["id"], "result": {"tools": [WRITE]}}
            await files.say("mcp/response", tools, to=["bob"], about=[asked["id"]])
            call = await files.hear(lambda each: each["payload"].get("method") == "tools/call")
            result = {"jsonrpc": "2.0", "id": call["payload"]["id"], "result": {"content": []}}
            await files.say("mcp/response", result, to=["bob"], about=[call["id"]])
            assert not (await calling).is_error


async def test_a_search_waits_for_a_server_that_has_not_told_its_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten_lists(monkeypatch)
    async with served_space(tmp_path) as served:
        files = await served.gateway.join("files")
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", HANG_SECONDS)
        shown = await served.serve("bob")
        async with shown.client() as client:
            searching = asyncio.create_task(client.call_tool("moot_find_tools", {"query": "write"}))
            asked = await tools_request(files)
            await asyncio.sleep(0.1)
            assert not searching.done()
            tools = {"jsonrpc": "2.0", "id": asked["payload"]["id"], "result": {"tools": [WRITE]}}
            await files.say("mcp/response", tools, to=["bob"], about=[asked["id"]])
            found = (await searching).structured_content
            assert found is not None
            assert [each["name"] for each in found["found"]] == ["write"]


@pytest.mark.parametrize("wanted", [{"query": "write"}, {"name": "write"}])
async def test_a_search_that_finds_nothing_says_whose_tools_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str]
) -> None:
    hasten_lists(monkeypatch)
    async with served_space(tmp_path) as served:
        await served.gateway.join("files")
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", 0.02)
        shown = await served.serve("bob")
        async with shown.client() as client:
            nothing = await client.call_tool("moot_find_tools", wanted)
            assert text_of(nothing).endswith("These have not answered yet which tools they offer: files.")


async def test_whose_tools_are_not_known_is_said_with_an_unknown_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten_lists(monkeypatch)
    async with served_space(tmp_path) as served:
        await served.gateway.join("files")
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", 0.02)
        shown = await served.serve("bob")
        async with shown.client() as client:
            with pytest.raises(Exception, match="not answered yet which tools they offer: files"):
                await client.call_tool("write", {})


@pytest.mark.parametrize("rights", [None, ["*"]], ids=["a host", "one that may call"])
async def test_a_list_waits_for_all_pages_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights: list[Any] | None
) -> None:
    """Seven pages that take longer than people at a console are waited for."""
    hasten_lists(monkeypatch)
    if rights is not None:
        monkeypatch.setattr(offer_discovery, "FIRST_LIST_SECONDS", HANG_SECONDS)
    people = {} if rights is None else {"files": rights}
    async with served_space(tmp_path, people) as served:
        files = await served.gateway.join("files")
        monkeypatch.setattr("moot.mcp.downstream.client_requests.PROGRESS_SECONDS", 0.01)
        limits = McpServerLimits()
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", HANG_SECONDS)
        shown = await served.serve("bob", limits)
        told: list[str | None] = []
        async with shown.client("legacy") as client:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                told.append(message)

            listing = asyncio.create_task(
                client.session.send_request(
                    ListToolsRequest(),
                    ListToolsResult,
                    progress_callback=on_progress,
                )
            )
            for page in range(7):
                asked = await tools_request(files, page + 1)
                assert not listing.done()
                if page == 1:
                    # From here on only that it has begun to answer speaks for it.
                    monkeypatch.setattr(offer_discovery, "FIRST_LIST_SECONDS", 0.01)
                    await until(lambda: told)
                result: dict[str, Any] = {"tools": [WRITE | {"name": f"write_{page}"}]}
                result |= {"nextCursor": str(page)} if page < 6 else {}
                body = {"jsonrpc": "2.0", "id": asked["payload"]["id"], "result": result}
                await files.say("mcp/response", body, to=["bob"], about=[asked["id"]])
            # It has nothing else, and who lists once learns all at once.
            for method in ("resources/list", "resources/templates/list", "prompts/list"):
                asked = await _first_request(files, method)
                error = {"code": -32601, "message": "Method not found"}
                body = {"jsonrpc": "2.0", "id": asked["payload"]["id"], "error": error}
                await files.say("mcp/response", body, to=["bob"], about=[asked["id"]])
            names = [tool.name for tool in (await listing).tools]
        assert [name for name in names if name.startswith("write_")] == [f"write_{page}" for page in range(7)]
        assert told[0] == "Some members have not told yet what they offer"


async def _first_request(server: Client, method: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        return [each for each in server.received if each["payload"].get("method") == method]

    return (await until(found))[0]


async def test_nobody_waits_for_a_person_who_may_only_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their console answers no list."""
    hasten_lists(monkeypatch)
    async with served_space(tmp_path, {"ana": ["chat"]}) as served:
        await served.gateway.join("ana")
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", HANG_SECONDS)
        shown = await served.serve("bob")
        async with shown.client() as client, bounded():
            (find,) = (each for each in (await client.list_tools()).tools if each.name == "moot_find_tools")
        assert "have not answered" not in (find.description or "")


async def test_a_list_says_whose_tools_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hasten_lists(monkeypatch)
    async with served_space(tmp_path) as served:
        await served.gateway.join("files")
        await served.gateway.join("alice")
        monkeypatch.setattr("moot.bridges.space.space_backend.LIST_SECONDS", 0.02)
        shown = await served.serve("bob")
        async with shown.client() as client:
            (find,) = (each for each in (await client.list_tools()).tools if each.name == "moot_find_tools")
        assert (find.description or "").endswith("have not answered: the tools of files.")


async def test_a_call_waits_for_a_server_that_is_starting(tmp_path: Path) -> None:
    """It has joined before it is ready, so that those who call know of it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    start = 'cat "$1" >/dev/null; shift; exec "$@"'
    argv = ("sh", "-c", start, "sh", str(gate), *script("odd").command.argv)
    async with bridged_space(tmp_path) as space:
        bridging = asyncio.create_task(
            space.bridge(StdioServer(command=Command(argv=argv), inherited=os.environ), must_start=True)
        )
        bob = await space.join("bob")
        await bob.roster.wait_for("host", timeout_seconds=HANG_SECONDS)
        shown = await serve_member(bob, space.stack)
        async with shown.client() as client:
            listing = asyncio.create_task(client.list_tools())
            calling = asyncio.create_task(client.call_tool("sleep", {}))
            asked = asyncio.create_task(call(bob, "sleep", {}))
            await until(lambda: shown.backend.discovery.is_host("host"))
            assert [task for task in (bridging, listing, calling, asked) if task.done()] == []
            await asyncio.to_thread(gate.write_text, "go")
            async with bounded():
                assert text_of(await calling) == "slept"
                assert "sleep" in [tool.name for tool in (await listing).tools]
                await asked
                await bridging


async def test_a_server_that_does_not_start_leaves_the_one_that_serves_alone(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        await space.bridge(script("odd"))
        alice = await space.join("alice")
        with pytest.raises(StartFailed):
            await space.bridge(
                StdioServer(command=Command(argv=("false",)), inherited=os.environ), must_start=True
            )
        assert text_of_result(await call(alice, "sleep")) == "slept"


# Very many tools


def test_the_command_takes_as_many_connections_of_an_address_as_the_limiter() -> None:
    assert ConnectionLimiter().max_per_address == MAX_CONNECTIONS_PER_ADDRESS


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_beyond_a_size_are_not_listed_but_found_and_called(
    tmp_path: Path, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.bridges.space.space_backend.MAX_LISTED_BYTES", 1_000)
    async with served_space(tmp_path) as served_lab:
        offer_files(await served_lab.join("files"))
        shown = await served_lab.serve("bob")
        async with shown.client(mode) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [*OWN_NAMES, "read_file", "write_file"]
            notes = await served_lab.join("notes")
            notes.tool(name="summarise_notes", description="Summarise all notes. " * 100)(lambda: "short")
            await until(lambda: shown.backend.offer_table.find("tools", "summarise_notes"))
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [*OWN_NAMES, CALL_TOOL]
            (find,) = (tool for tool in tools if tool.name == "moot_find_tools")
            assert "This space has 3 tools, too many to list" in (find.description or "")
            found = await client.call_tool("moot_find_tools", {"query": "read a file", "limit": 1})
            assert '"name":"read_file"' in text_of(found)
            arguments = {"name": "read_file", "arguments": {"path": "a.txt"}}
            assert text_of(await client.call_tool(CALL_TOOL, arguments)) == "hello"
            # What somebody still remembers by name works as before.
            assert text_of(await client.call_tool("summarise_notes", {})) == "short"
            own = await client.call_tool(CALL_TOOL, {"name": "moot_participants"})
            assert "You are bob" in text_of(own)
            for bad in ({}, {"name": 7}, {"name": "read_file", "arguments": []}):
                refused = await client.call_tool(CALL_TOOL, bad)
                assert (refused.is_error, CALL_TOOL in text_of(refused)) == (True, True)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_found_tool_is_proposed_like_a_listed_one(
    tmp_path: Path, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.bridges.space.space_backend.MAX_LISTED_BYTES", 0)
    person = Person(*["wait"] * 5)
    call = {"name": CALL[0], "arguments": CALL[1]}
    async with served_space(tmp_path, GUEST) as served_lab:
        kept, alice, shown = await set_up(served_lab, limits=HASTY)
        async with (
            shown.client(mode, elicitation_callback=person) as client,
            anyio.create_task_group() as group,
        ):

            async def run() -> None:
                assert text_of(await client.call_tool(CALL_TOOL, call)) == "wrote b"

            group.start_soon(run)
            await person.reading.wait()
            seen = await first_proposal(alice)
            assert seen.params["name"] == "write_file"
            assert seen.params["arguments"] == CALL[1]
            await alice.approve(seen)
        assert kept["b"] == "new"
        assert "write_file of files needs somebody's approval" in person.asked[0]


# `moot tools`


async def list_tools(context: ClientContext) -> list[str]:
    return list((await _tools(context, argparse.Namespace(member=None))).lines)


async def test_a_server_that_is_still_starting_is_waited_for_before_it_is_said_that_there_are_no_tools(
    tmp_path: Path,
) -> None:
    async def answer(request: IncomingRequest) -> dict[str, Any] | None:
        if request.is_broadcast:
            # As a bridge whose server is not up yet.
            return None
        return {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}

    async with served_space(tmp_path) as served_lab:
        (await served_lab.join("files")).server.use_handler(answer)
        alice = await served_lab.join("alice")
        assert "slow" in "\n".join(await list_tools(ClientContext(alice)))


async def test_who_did_not_answer_is_named_and_nobody_is_said_to_offer_nothing(tmp_path: Path) -> None:
    async def hang(_: IncomingRequest) -> dict[str, Any] | None:
        await asyncio.Event().wait()
        return None

    async with served_space(tmp_path) as served_lab:
        alice = await served_lab.join("alice")
        context = ClientContext(alice, timeout_seconds=0.2)
        assert await list_tools(context) == ["no member offers a tool"]
        (await served_lab.join("files")).server.use_handler(hang)
        await alice.roster.wait_for("files", timeout_seconds=HANG_SECONDS)
        (answer,) = await list_tools(context)
        assert answer.startswith("no tools are known yet: files did not answer")
