"""Clients that give up and repeat: the same call is one proposal until its outcome was told."""

from __future__ import annotations

import asyncio
import math
import signal
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from moot.mcp.downstream import client_requests
from moot.mcp.downstream.client_requests import ClientTimeout
from moot.mcp.downstream.limits import McpServerLimits
from tests.bridges.served_space import HASTY, ServedMember, served_space, text_of
from tests.bridges.space.test_approvals_outlive import ADD, ERAS, files_and_alice, lab, mcp_process, words
from tests.bridges.space.test_space_server_decisions import CALL, GUEST, first_proposal, set_up
from tests.waiting import HANG_SECONDS, bounded, until

KEY = "moot/idempotency_key"
# The call is still being answered when it is cancelled, however late that is.
NO_GRACE = McpServerLimits(decision_seconds=HANG_SECONDS, answer_seconds=HANG_SECONDS)


class SilentClient:
    """Posts calls in the handshake era, and never says that it has given up on one."""

    def __init__(self, shown: ServedMember, http: httpx.AsyncClient) -> None:
        self._url = shown.url
        self._http = http
        self._headers = {"accept": "application/json, text/event-stream"}
        self._number = 0

    async def post(self, method: str, params: dict[str, Any]) -> httpx.Response:
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        return await self._http.post(self._url, json=body, headers=self._headers)

    async def start(self) -> None:
        hello = {"name": "t", "version": "1"}
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": hello}
        answer = await self.post("initialize", about)
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]

    async def call(self) -> str:
        answer = await self.post("tools/call", {"name": CALL[0], "arguments": CALL[1]})
        return answer.text


async def test_a_client_that_repeats_over_stdio_without_a_word_makes_one_proposal(tmp_path: Path) -> None:
    """As Python's SDK 1.x does it: its time is up, and the server is not told."""
    async with (
        lab(tmp_path) as gateway,
        files_and_alice(gateway.gateway.url) as (_, writes, alice),
        mcp_process(gateway.gateway.url, tmp_path) as process,
    ):
        process.send_call(*ADD)
        seen = await first_proposal(alice)
        for _ in range(2):
            process.send_call(*ADD)
        # Answered behind the calls above, on the same pipe; others may see it before its proposer does.
        status = await process.call("moot_status", {})
        while "; 0 proposals." in words(status):
            status = await process.call("moot_status", {})
        assert "; 1 proposals." in words(status)
        assert [each.id for each in alice.proposals] == [seen.id]
        await alice.approve(seen)
        status = await process.call("moot_status", {"handle": seen.id, "wait_seconds": 50})
        assert "You made this call 3 times" in words(status)
        assert ([each.id for each in alice.proposals], writes) == ([seen.id], ["pay 7"])


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_at_once_are_one_proposal_and_their_answers_say_so(tmp_path: Path, mode: Any) -> None:
    answers: list[str] = []
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served)

        async def call() -> None:
            async with shown.client(mode) as client:
                answers.append(text_of(await client.call_tool(*CALL)))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(call)
            seen = await first_proposal(alice)
            (pending,) = shown.backend.pending_calls._calls
            await until(lambda: pending.waiting == 3)
            assert alice.proposals.open() == [seen]
            await alice.approve(seen)
        assert len(answers) == 3
        for answer in answers:
            assert answer.startswith("You made this call 3 times with the same arguments")
            assert answer.endswith("wrote b")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_is_cancelled_and_repeated_is_the_same_proposal(
    tmp_path: Path, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing depends on how fast the machine is.
    monkeypatch.setattr("moot.mcp.downstream.client_requests.SILENT_SECONDS", math.inf)
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=McpServerLimits())
        async with shown.client(mode) as client:

            def waiting() -> list[int]:
                return [pending.waiting for pending in shown.backend.pending_calls._calls]

            for _ in range(2):
                async with anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, *CALL)
                    await until(lambda: waiting() == [1])
                    group.cancel_scope.cancel()
                await until(lambda: waiting() == [0])
            (seen,) = alice.proposals
            await alice.approve(seen)
            assert text_of(await client.call_tool(*CALL)).endswith("wrote b")
            assert list(alice.proposals) == [seen]
            # It was told now: this is another call.
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, *CALL)
                await alice.approve(await first_proposal(alice))
            assert len(list(alice.proposals)) == 2


async def test_a_call_that_is_cancelled_and_not_repeated_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At once, so that a test need not wait for it.
    monkeypatch.setattr("moot.mcp.downstream.client_requests.CANCEL_SECONDS", 0)
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=NO_GRACE)
        async with shown.client("legacy") as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, *CALL)
                seen = await first_proposal(alice)
                group.cancel_scope.cancel()
            await until(lambda: seen.status == "withdrawn")
            await client.list_tools()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_wants_two_says_so_with_a_key_of_its_own(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client(mode) as client:

            async def call(key: str) -> str:
                meta: Any = {KEY: key}
                return text_of(await client.call_tool(*CALL, meta=meta))

            for key in ("first", "second", "second"):
                assert (await call(key)).startswith("PENDING")
            await until(lambda: len(alice.proposals.open()) == 2)
            assert "This same call was pending already" in await call("second")
            for seen in alice.proposals.open():
                await alice.approve(seen)
            # The same key is the same call, told or not.
            assert await call("first") == await call("first")
            assert "wrote b" in await call("first")
            assert len(list(alice.proposals)) == 2


async def test_the_outcome_goes_to_who_calls_again_if_the_connection_of_the_first_is_gone(
    tmp_path: Path,
) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served)
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as first:
            client = SilentClient(shown, first)
            await client.start()
            call = asyncio.ensure_future(client.call())
            seen = await first_proposal(alice)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        (session,) = shown.http.sessions._sessions.values()
        await until(lambda: not session.open_responses)
        await alice.approve(seen)
        async with shown.client("legacy") as second:
            answer = text_of(await second.call_tool(*CALL))
        assert "It was not done again." in answer
        assert list(alice.proposals) == [seen]


async def test_the_outcome_goes_to_who_calls_again_if_the_client_gave_up_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has shown how long it waits, so what it was told later it has not read."""
    monkeypatch.setattr(client_requests, "_AT_ONCE_SECONDS", 0.0)
    async with served_space(tmp_path, GUEST) as served, httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        kept, alice, shown = await set_up(served)
        client = SilentClient(shown, http)
        await client.start()
        first = asyncio.ensure_future(client.call())
        seen = await first_proposal(alice)
        # This one is answered sooner than it was repeated.
        assert "PENDING" in await client.call()
        await alice.approve(seen)
        assert "wrote b" in await first
        kept["b"] = "changed since"
        assert "It was not done again." in await client.call()
        assert (list(alice.proposals), kept["b"]) == ([seen], "changed since")


async def test_what_pythons_sdk_is_told_late_it_is_told_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version 1 does not say when its time is up; version 2 has the same name, and may have read it."""
    monkeypatch.setattr("moot.mcp.downstream.client_requests.SILENT_SECONDS", 0)
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served, limits=McpServerLimits())
        async with shown.client("legacy") as client:

            async def call_approved() -> str:
                answers: list[str] = []

                async def call() -> None:
                    answers.append(text_of(await client.call_tool(*CALL)))

                async with anyio.create_task_group() as group:
                    group.start_soon(call)
                    await alice.approve(await first_proposal(alice))
                return answers[0]

            assert await call_approved() == "wrote b"
            kept["b"] = "changed since"
            assert "It was not done again." in text_of(await client.call_tool(*CALL))
            assert kept["b"] == "changed since"


def test_only_a_client_that_has_given_up_is_answered_sooner() -> None:
    timeout = ClientTimeout()
    timeout.learn(0.2)
    assert (timeout.answer_seconds, timeout.is_over(1e6)) == (float("inf"), False)
    timeout.learn(4.0)
    timeout.learn(8.0)
    assert (timeout.answer_seconds, timeout.is_over(3.9), timeout.is_over(4.1)) == (3.0, False, True)


async def test_a_right_that_comes_meanwhile_does_not_do_an_approved_call_again(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client() as client:
            assert text_of(await client.call_tool(*CALL)).startswith("PENDING")
            seen = await first_proposal(alice)
            await alice.approve(seen)
            await alice.admin.grant("guest", [{"kind": "mcp/request", "payload": {"method": "tools/call"}}])
            params = {"name": CALL[0], "arguments": CALL[1]}
            await until(lambda: shown.space.may_request("files", "tools/call", params))
            kept["b"] = "changed since"
            assert "It was not done again." in text_of(await client.call_tool(*CALL))
            assert kept["b"] == "changed since"
            assert text_of(await client.call_tool(*CALL)) == "wrote b"
            assert kept["b"] == "new"


async def test_a_right_that_comes_meanwhile_replaces_a_proposal_that_nobody_decided(tmp_path: Path) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        async with shown.client() as client:
            assert text_of(await client.call_tool(*CALL)).startswith("PENDING")
            seen = await first_proposal(alice)
            await alice.admin.grant("guest", [{"kind": "mcp/request", "payload": {"method": "tools/call"}}])
            params = {"name": CALL[0], "arguments": CALL[1]}
            await until(lambda: shown.space.may_request("files", "tools/call", params))
            assert text_of(await client.call_tool(*CALL)) == "wrote b"
            await until(lambda: seen.status == "withdrawn")


@pytest.mark.parametrize(
    "rules",
    [
        {"quorum": [{"payload": {"params": {"name": "measure"}}, "approvals_needed": 2}]},
        {"budgets": {"few": {"tool": "measure", "ask_at": 0}}},
    ],
)
@pytest.mark.parametrize("mode", ERAS)
async def test_a_right_that_does_not_suffice_takes_no_proposal_back(
    tmp_path: Path, mode: Any, rules: dict[str, Any]
) -> None:
    """0145: and a client that knows the tool's output schema reads that it is pending."""
    async with served_space(tmp_path, {"guest": ["mcp/*", "chat"]}, rules) as served:
        files, alice = await served.join("files"), await served.join("alice")

        @files.tool
        def measure() -> dict[str, int]:
            return {"bytes": 3}

        shown = await served.serve("guest", limits=HASTY)
        async with shown.client(mode) as client:
            (tool,) = [each for each in (await client.list_tools()).tools if each.name == "measure"]
            assert tool.output_schema is not None
            assert text_of(await client.call_tool("measure", {})).startswith("PENDING")
            seen = await first_proposal(alice)
            again = text_of(await client.call_tool("measure", {}))
            assert again.startswith("PENDING")
            assert "This same call was pending already" in again
            assert (seen.status, list(alice.proposals)) == ("pending", [seen])


async def test_two_clients_of_one_member_make_one_proposal_of_the_same_call(tmp_path: Path) -> None:
    fast = ("--decision-seconds", "0.1")
    async with lab(tmp_path) as gateway, files_and_alice(gateway.gateway.url) as (_, writes, alice):
        url = gateway.gateway.url
        async with mcp_process(url, tmp_path, *fast) as first, mcp_process(url, tmp_path, *fast) as second:
            await second.call("moot_status", {})
            handle = (await first.call(*ADD))["_meta"]["moot/pending"]["handle"]
            assert (await second.call(*ADD))["_meta"]["moot/pending"]["handle"] == handle
            await first.end(signal.SIGKILL)
            async with bounded():
                await alice.approve(await first_proposal(alice))
            assert words(await second.call(*ADD)).endswith("line 1")
        assert (writes, len(list(alice.proposals))) == (["pay 7"], 1)
