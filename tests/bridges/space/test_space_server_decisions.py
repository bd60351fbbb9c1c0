"""A call that its member may not make: proposed to the space, decided, and told to the client (D-28)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from mcp import MCPError
from moot.bridges.space.own_tools import MAX_WAIT_SECONDS, OWN_NAMES
from moot.bridges.space.space_backend import BackendSettings
from moot.participant import JoinedSpace
from tests.bridges.served_space import HASTY, ServedMember, ServedSpace, offer_files, served_space, text_of
from tests.bridges.space.test_space_server import LISTS
from tests.bridges.space.test_space_server_calls import RawHost
from tests.mcp.test_downstream_decisions import Person, TaskMade, ask
from tests.waiting import until

ERAS = ["legacy", "2026-07-28"]
GUEST = {"guest": [LISTS, "mcp/proposal", "mcp/withdraw", "chat"]}
CALL: tuple[str, dict[str, Any]] = ("write_file", {"path": "b", "text": "new"})


async def first_proposal(space: JoinedSpace) -> Any:
    await until(lambda: space.proposals.open())
    return space.proposals.open()[0]


async def set_up(served: ServedSpace, **more: Any) -> tuple[dict[str, str], JoinedSpace, ServedMember]:
    kept = offer_files(await served.join("files"))
    alice = await served.join("alice")
    return kept, alice, await served.serve("guest", **more)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_approved_call_answers_as_if_the_caller_had_made_it(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served)
        async with shown.client(mode) as client, anyio.create_task_group() as group:

            async def call() -> None:
                result = await client.call_tool(*CALL)
                assert (text_of(result), result.is_error) == ("wrote b", False)

            group.start_soon(call)
            seen = await first_proposal(alice)
            assert (seen.proposer, list(seen.to), seen.method) == ("guest", ["files"], "tools/call")
            assert seen.params["name"] == "write_file"
            assert "b" not in kept
            await alice.approve(seen)
        assert kept["b"] == "new"
        assert shown.server.counts.channels == {}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_rejected_call_says_who_why_and_what_to_do(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served)
        async with shown.client(mode) as client, anyio.create_task_group() as group:

            async def call() -> None:
                result = await client.call_tool(*CALL)
                assert result.is_error
                text = text_of(result)
                assert "Rejected, so write_file was not done. alice: unsafe (not on a Friday)" in text
                assert "moot_chat" in text

            group.start_soon(call)
            await alice.reject(await first_proposal(alice), "unsafe", explanation="not on a Friday")
        assert "b" not in kept


async def test_with_wait_for_others_a_no_is_not_the_end(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        settings = BackendSettings(wait_for_others=True)
        _, alice, shown = await set_up(served, settings=settings)
        bob = await served.join("bob")
        async with shown.client() as client, anyio.create_task_group() as group:

            async def call() -> None:
                assert text_of(await client.call_tool(*CALL)) == "wrote b"

            group.start_soon(call)
            seen = await first_proposal(alice)
            await alice.reject(seen, "disagree")
            (pending,) = shown.backend.pending_calls._calls
            await until(lambda: "rejected by alice (disagree)" in pending.note)
            await bob.approve(await first_proposal(bob))


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_can_be_told_by_no_means_asks_with_moot_status(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client(mode) as client:
            pending = await client.call_tool(*CALL)
            assert (pending.is_error, text_of(pending).startswith("PENDING, not done yet")) == (False, True)
            assert pending.meta is not None
            handle = pending.meta["moot/pending"]["handle"]
            assert handle in text_of(pending)
            # A model that calls again instead of asking makes no second proposal.
            again = await client.call_tool(*CALL)
            assert again.meta is not None
            assert again.meta["moot/pending"]["handle"] == handle
            await until(lambda: len(alice.proposals.open()) == 1)
            still = await client.call_tool("moot_status", {"handle": handle})
            assert text_of(still).startswith("PENDING")
            overview = await client.call_tool("moot_status", {})
            assert handle in text_of(overview)
            await alice.approve(await first_proposal(alice))
            done = await client.call_tool("moot_status", {"handle": handle, "wait_seconds": MAX_WAIT_SECONDS})
            assert text_of(done).startswith(f"{handle}: approved by alice, answered by files.\n")
            assert text_of(done).endswith("carried out at most once.\nwrote b")
            assert kept["b"] == "new"


async def test_a_pending_call_is_withdrawn_with_moot_status(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client() as client:
            pending = await client.call_tool(*CALL)
            assert pending.meta is not None
            handle = pending.meta["moot/pending"]["handle"]
            result = await client.call_tool("moot_status", {"handle": handle, "withdraw": True})
            assert result.is_error
            assert "Withdrawn before anybody decided" in text_of(result)
            await until(lambda: not alice.proposals.open())
            unknown = await client.call_tool("moot_status", {"handle": "nobody"})
            assert (unknown.is_error, "knows no proposal of yours" in text_of(unknown)) == (True, True)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_at_the_client_is_asked_and_withdraws(tmp_path: Path, mode: Any) -> None:
    person = Person("withdraw")
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client(mode, elicitation_callback=person) as client:
            result = await client.call_tool(*CALL)
            assert result.is_error
            assert "Withdrawn" in text_of(result)
        assert "write_file of files needs somebody's approval" in person.asked[0]
        await until(lambda: not alice.proposals.open())


@pytest.mark.parametrize("mode", ERAS)
async def test_a_person_who_waits_gets_the_answer(tmp_path: Path, mode: Any) -> None:
    person = Person(*["wait"] * 5)
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        async with (
            shown.client(mode, elicitation_callback=person) as client,
            anyio.create_task_group() as group,
        ):

            async def call() -> None:
                assert text_of(await client.call_tool(*CALL)) == "wrote b"

            group.start_soon(call)
            await person.reading.wait()
            await alice.approve(await first_proposal(alice))


async def test_a_client_with_tasks_polls_the_proposal_as_a_task(tmp_path: Path) -> None:
    from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

    seen: list[str] = []

    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served, limits=HASTY)

        class Tasks(ClientExtension):
            identifier = "io.modelcontextprotocol/tasks"

            def claims(self) -> list[ResultClaim[Any]]:
                return [ResultClaim(result_type="task", model=TaskMade, resolve=self.follow)]

            async def follow(self, made: TaskMade, context: ClaimContext) -> types.CallToolResult:
                assert "Waiting for a decision." in made.status_message
                while True:
                    task = await ask(context.session, "tasks/get", made.task_id)
                    seen.append(task["status"])
                    if task["status"] == "completed":
                        return types.CallToolResult.model_validate(task["result"])
                    if len(seen) == 1:
                        await alice.approve(await first_proposal(alice))
                    await asyncio.sleep(0.01)

        async with shown.client(extensions=[Tasks()]) as client:
            assert text_of(await client.call_tool(*CALL)) == "wrote b"
        assert (seen[0], seen[-1]) == ("working", "completed")
        assert kept["b"] == "new"


async def test_a_client_that_cancels_its_call_withdraws_the_proposal(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served)
        async with shown.client("legacy") as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, *CALL)
                await first_proposal(alice)
                group.cancel_scope.cancel()
            await until(lambda: not alice.proposals.open())
            await client.list_tools()


async def test_reading_and_prompting_are_proposed_too_and_never_answer_with_an_error(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client() as client:
            pending = await client.read_resource("file:///a.txt")
            (content,) = pending.contents
            assert isinstance(content, types.TextResourceContents)
            assert content.text.startswith("PENDING")
            assert pending.meta is not None
            await alice.approve(await first_proposal(alice))
            handle = pending.meta["moot/pending"]["handle"]
            done = await client.call_tool("moot_status", {"handle": handle, "wait_seconds": MAX_WAIT_SECONDS})
            assert done.structured_content is not None
            assert done.structured_content["contents"][0]["text"] == "hello"
            prompt = await client.get_prompt("summarise", {"path": "x"})
            assert isinstance(prompt.messages[0].content, types.TextContent)
            assert prompt.messages[0].content.text.startswith("PENDING")
            await alice.reject(await first_proposal(alice), "policy")
            assert prompt.meta is not None
            with pytest.raises(MCPError, match="Rejected, so summarise was not done"):
                await client.call_tool(
                    "moot_status",
                    {"handle": prompt.meta["moot/pending"]["handle"], "wait_seconds": MAX_WAIT_SECONDS},
                )


async def test_an_error_of_the_host_after_approval_keeps_code_message_and_data(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        (await served.join("files")).server.use_handler(RawHost())
        alice = await served.join("alice")
        shown = await served.serve("guest")
        async with shown.client() as client, anyio.create_task_group() as group:

            async def call() -> None:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("fail", {})
                error = caught.value.error
                assert (error.code, error.message, error.data) == (-32077, "out of paper", {"tray": 2})

            async def approve() -> None:
                with pytest.raises(Exception, match="out of paper"):
                    await alice.approve(await first_proposal(alice))

            group.start_soon(call)
            group.start_soon(approve)


# The face's own tools


async def test_chat_is_said_and_read(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST | {"mute": []}) as served:
        alice = await served.join("alice")
        shown = await served.serve("guest")
        async with shown.client() as client:
            empty = await client.call_tool("moot_chat", {})
            assert text_of(empty) == "No messages since this client joined."
            answer = await client.call_tool("moot_chat", {"text": "hello all", "to": ["alice"]})
            assert text_of(answer).startswith("Sent.")
            await alice.chat("hello guest")
            await until(lambda: shown.backend.own_tools._room.heard == 2)
            received = await client.call_tool("moot_chat", {"limit": 1})
            assert received.structured_content is not None
            (message,) = received.structured_content["messages"]
            assert (message["from"], message["text"]) == ("alice", "hello guest")
            for bad, words in (
                ({"text": 7}, "`text` is a string"),
                ({"to": ["nobody"]}, "no member is called nobody"),
                ({"to": [1]}, "a list of member names"),
                ({"limit": 1000}, "a number from 0 to 200"),
            ):
                result = await client.call_tool("moot_chat", bad)
                assert (result.is_error, words in text_of(result)) == (True, True)
        async with (await served.serve("mute")).client() as client:
            result = await client.call_tool("moot_chat", {"text": "hm"})
            assert (result.is_error, "may not chat" in text_of(result)) == (True, True)


async def test_members_and_tools_are_shown_and_found(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, _, shown = await set_up(served)
        async with shown.client() as client:
            people = await client.call_tool("moot_participants", {})
            assert people.structured_content is not None
            assert people.structured_content["you"]["id"] == "guest"
            offers = {each["id"]: each["offers"] for each in people.structured_content["participants"]}
            assert offers == {
                "alice": {},
                "files": {"tools": 2, "resources": 1, "resourceTemplates": 1, "prompts": 1},
            }
            found = await client.call_tool("moot_find_tools", {"query": "write some text", "limit": 1})
            (hit,) = json.loads(text_of(found))
            assert (hit["name"], hit["member"], hit["access"]) == ("write_file", "files", "propose")
            assert hit["inputSchema"]["required"] == ["path", "text"]
            nothing = await client.call_tool("moot_find_tools", {"query": "zeppelin"})
            assert text_of(nothing).startswith("No match")
            assert (await client.call_tool("moot_find_tools", {"query": ""})).is_error
            # A long question is cut.
            found = await client.call_tool("moot_find_tools", {"query": "write some text " + "x" * 10_000})
            assert not found.is_error


async def test_own_tools_are_described_so_that_every_client_takes_them(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        shown = await served.serve("guest")
        for mode in ERAS:
            async with shown.client(mode) as client:
                tools = (await client.list_tools()).tools
                assert [tool.name for tool in tools] == list(OWN_NAMES)
                assert all(tool.description and tool.title and tool.annotations for tool in tools)


async def test_a_call_that_was_approved_with_changes_says_what_was_changed(tmp_path: Path) -> None:
    """And what was said about it before, to whoever asks with moot_status."""
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client() as client:
            pending = await client.call_tool(*CALL)
            assert pending.meta is not None
            handle = pending.meta["moot/pending"]["handle"]
            seen = await first_proposal(alice)
            await alice.comment(seen, "shall it be old?")
            (call,) = shown.backend.pending_calls._calls
            await until(lambda: call.note == "alice says about it: shall it be old?")
            asked = await client.call_tool("moot_status", {"handle": handle})
            assert "alice says about it: shall it be old?" in text_of(asked)
            arguments = {**seen.params["arguments"], "text": "old"}
            await alice.approve(seen, params={**seen.params, "arguments": arguments})
            result = await client.call_tool("moot_status", {"handle": handle, "wait_seconds": 5})
            assert kept["b"] == "old"
            text = text_of(result)
            assert "alice approved this call with changes" in text
            assert 'arguments.text: "new" → "old"' in text
            assert text.endswith("wrote b")
            assert result.meta is not None
            changed = {"path": "arguments.text", "was": "new", "now": "old"}
            assert result.meta["moot/changes"] == [changed]
            assert result.meta["moot/receipt"] == seen.id
