"""What another session is told: rejections with their reason, at once, and tasks that have ended."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from moot.bridges.space.calls_file import CallsFile
from moot.errors import McpError, Rejected
from moot.mcp.downstream.backend import BackendCall, PendingCall
from moot.participant.decisions.seen_proposal import RecordedProposal
from tests.bridges.served_space import ServedMember, served_space
from tests.bridges.space.test_approvals_outlive import ADD, files_and_alice, lab, mcp_process, words
from tests.bridges.space.test_space_server_decisions import CALL, GUEST, set_up
from tests.waiting import bounded, until

FAST = ("--decision-seconds", "0.1")


@pytest.mark.parametrize("gateway_restarts", [False, True])
async def test_a_rejection_is_told_after_a_restart_at_once_and_with_its_reason(
    tmp_path: Path, gateway_restarts: bool
) -> None:
    async with lab(tmp_path) as gateway:
        url = gateway.gateway.url
        async with files_and_alice(url) as (_, _writes, alice):
            async with mcp_process(url, tmp_path, *FAST) as first:
                handle = (await first.call(*ADD))["_meta"]["moot/pending"]["handle"]
                await first.end(signal.SIGKILL)
            await until(lambda: alice.proposals.get(handle))
            await alice.reject(handle, "unsafe")
        if gateway_restarts:
            await gateway.restart(signal.SIGTERM)
        async with mcp_process(url, tmp_path, *FAST) as second:
            answer = words(await second.call("moot_status", {"handle": handle}))
        assert "Rejected, so append was not done. alice: unsafe" in answer


async def test_a_session_that_knows_nothing_of_a_call_is_told_who_rejected_it_and_why(tmp_path: Path) -> None:
    nothing = (*FAST, "--calls-file", "none")
    async with lab(tmp_path) as gateway, files_and_alice(gateway.gateway.url) as (_, _writes, alice):
        url = gateway.gateway.url
        async with mcp_process(url, tmp_path, *FAST) as first:
            handle = (await first.call(*ADD))["_meta"]["moot/pending"]["handle"]
            await until(lambda: alice.proposals.get(handle))
            await alice.reject(handle, "unsafe")
            told = await first.call("moot_status", {"handle": handle, "wait_seconds": 50})
            assert "alice: unsafe" in words(told)
        async with mcp_process(url, tmp_path, *nothing) as second:
            answer = await second.call("moot_status", {"handle": handle})
        assert "Rejected by alice (unsafe)." in words(answer)
        assert answer["structuredContent"]["rejections"] == [{"by": "alice", "reason": "unsafe"}]


async def test_a_proposal_that_another_session_withdrew_after_a_rejection_is_rejected(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served)
        params = {"name": CALL[0], "arguments": CALL[1]}
        proposal = await shown.space.propose("files", "tools/call", params, stay_open=True)
        await until(lambda: alice.proposals.get(proposal.id))
        await alice.reject(proposal.id, "policy")
        with pytest.raises(Rejected):
            await proposal.outcome()
        other = await served.join("guest")
        record = RecordedProposal(
            id=proposal.id, to="files", method="tools/call", params=params, proposed_at=0.0
        )
        (resumed,) = await other.resume_proposals([record])
        with pytest.raises(Rejected, match="policy"):
            await resumed.outcome()


async def make_task(shown: ServedMember) -> str:
    call = BackendCall("tools/call", {"name": CALL[0], "arguments": CALL[1]})
    await shown.backend.offers("tools")
    pending = await shown.backend.perform(call)
    assert isinstance(pending, PendingCall)
    id: str = shown.server.tasks.create(pending)["taskId"]
    return id


async def test_a_task_says_what_is_decided_by_whom_and_where(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served)
        id = await make_task(shown)
        task = await shown.server.tasks.answer("tasks/get", {"taskId": id})
        message = task["statusMessage"]
        assert message.startswith("write_file of files needs somebody's approval")
        assert 'The call: write_file with {"path":"b","text":"new"}' in message
        assert f"It can be approved by alice. They decide in a shell with `moot approve {id}`" in message
        await until(lambda: alice.proposals.get(id))
        await alice.approve(id)
        pending = await shown.backend.pending(id)
        assert pending is not None
        async with bounded():
            await pending.finished.wait()
        task = await shown.server.tasks.answer("tasks/get", {"taskId": id})
        assert task["statusMessage"] == "approved by alice, answered by files"


@pytest.mark.parametrize("decision", ["approve", "fail", "cancel"])
async def test_a_task_that_has_ended_is_there_after_a_restart_until_its_ttl_is_over(
    tmp_path: Path, decision: str
) -> None:
    file = CallsFile(tmp_path / "calls.json")
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, calls=file)
        notes = await served.join("notes")
        notes.server.use_handler(fail)
        id = await (make_failing_task(shown) if decision == "fail" else make_task(shown))
        await until(lambda: alice.proposals.get(id))
        if decision == "cancel":
            await shown.server.tasks.answer("tasks/cancel", {"taskId": id})
        else:
            with suppress(McpError):
                await alice.approve(id)
        pending = await shown.backend.pending(id)
        assert pending is not None
        async with bounded():
            await pending.finished.wait()
        before = await shown.server.tasks.answer("tasks/get", {"taskId": id})
        # A server of the same member, with the same file: what `moot mcp` finds when it is started again.
        again = await served.serve("guest", calls=file)
        after = await again.server.tasks.answer("tasks/get", {"taskId": id})
        for name in ("status", "result", "error", "statusMessage"):
            assert after.get(name) == before.get(name)
        assert before["status"] == {"approve": "completed", "fail": "failed", "cancel": "cancelled"}[decision]
        assert 0 < after["ttlMs"] <= before["ttlMs"]


async def fail(_request: object) -> dict[str, object]:
    raise McpError(-32001, "disk full", {"left": 0})


async def make_failing_task(shown: ServedMember) -> str:
    pending = await shown.backend.pending_calls.propose(
        "notes",
        {"name": "x", "arguments": {}},
        BackendCall("tools/call", {"name": "x", "arguments": {}}),
        "x",
    )
    id: str = shown.server.tasks.create(pending)["taskId"]
    return id
