"""A tool that asks its caller: one approval covers the whole call, also if the approver has left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from moot.errors import CapabilityViolation, McpError, ProposalMismatch, ProposalSettled
from moot.mcp.eras import JsonObject
from tests.bridges.bridged_space import BridgedSpace, bridged_space
from tests.bridges.served_space import ServedMember, serve_member, text_of
from tests.bridges.space.test_mcp_command import token_file
from tests.bridges.space.test_space_server_decisions import ERAS, first_proposal
from tests.mcp.upstreams import script
from tests.waiting import bounded, until
from tests.warm_start import warm_command

LISTS: Any = {"kind": "mcp/request", "payload": {"method": "*/list"}}
CARL: dict[str, Any] = {"carl": [LISTS, "mcp/proposal", "mcp/withdraw", "chat"]}
CALL: JsonObject = {"name": "ask_name", "arguments": {}}
ANSWER: JsonObject = {"action": "accept", "content": {"name": "carl"}}


async def approve_in_a_shell(space: BridgedSpace, folder: Path, id: str) -> str:
    """`moot approve` as alice: a process that leaves at once."""
    arguments = ["approve", id, "--gateway", space.gateway.url, "--space", "lab"]
    process = await asyncio.create_subprocess_exec(
        *warm_command(),
        *arguments,
        "--token-file",
        str(token_file(folder, "alice")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
    )
    async with bounded():
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def serve_carl(space: BridgedSpace, **options: Any) -> ServedMember:
    await space.bridge(script("odd"))
    return await serve_member(await space.join("carl"), space.stack, **options)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_that_asks_its_caller_is_approved_once_from_a_shell(tmp_path: Path, mode: Any) -> None:
    questions: list[str] = []

    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "carl"})

    async with bridged_space(tmp_path, CARL) as space:
        shown = await serve_carl(space)
        bob = await space.join("bob")
        results: list[str] = []
        async with shown.client(mode, elicitation_callback=answer) as client:

            async def call() -> None:
                results.append(text_of(await client.call_tool("ask_name", {})))

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                seen = await first_proposal(bob)
                output = await approve_in_a_shell(space, tmp_path, seen.id)
            assert results == ['[{"action": "accept", "content": {"name": "carl"}}]']
        # The caller may have been asked before whether to wait for the approval.
        asked = [each for each in questions if "needs somebody's approval" not in each]
        assert asked == ["Who are you? (1)"]
        assert "Who are you? (1)" in output
        # One proposal, whose outcome is known, and everybody can see what was answered.
        await until(lambda: seen.outcome == "done")
        assert list(bob.proposals) == [seen]
        assert [list(given.values()) for given in seen.inputs] == [[ANSWER]]
        assert seen.fulfilled_by == "alice"


async def test_only_what_was_approved_goes_on_and_only_for_who_proposed_it(tmp_path: Path) -> None:
    async with bridged_space(tmp_path, CARL) as space:
        await space.bridge(script("odd"))
        carl, bob = await space.join("carl"), await space.join("bob")
        proposal = await carl.propose("host", "tools/call", CALL)
        await bob.approve(await first_proposal(bob))
        outcome = await proposal.outcome()
        assert outcome.input_required
        assert bob.proposals.get(proposal.id).outcome == "pending"  # type: ignore[union-attr]
        (key,) = outcome.result["inputRequests"]
        given = {"inputResponses": {key: ANSWER}, "requestState": outcome.result["requestState"]}
        # Another tool, other arguments, another state, nothing of it, another member.
        for params in (
            CALL | given | {"name": "told"},
            CALL | given | {"arguments": {"more": 1}},
            CALL | given | {"requestState": "another"},
            CALL,
        ):
            with pytest.raises(CapabilityViolation):
                await carl.give_input(proposal.id, params)
        with pytest.raises((ProposalSettled, ProposalMismatch)):
            await bob.request("host", "tools/call", CALL | given, about=proposal.id)
        with pytest.raises(McpError, match="is another caller's"):
            await bob.request("host", "tools/call", CALL | given)
        done = await carl.give_input(proposal.id, CALL | given)
        assert done.text == '[{"action": "accept", "content": {"name": "carl"}}]'
        assert (await carl.look_up_proposal(proposal.id)).outcome == "done"  # type: ignore[union-attr]
        with pytest.raises(CapabilityViolation):
            await carl.give_input(proposal.id, CALL | given)
