"""A call on its way through a space: progress, logs, questions, errors, cancelling, hosts that go away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import httpx
import mcp_types as types
import pytest

from mcp import MCPError
from moot.bridges.space.error_text import describe_fault, failure_result, host_error
from moot.errors import CallOutcomeUnknown, ConnectionClosed, HostDoesNotKnow, McpError
from moot.participant import IncomingRequest, ParticipantLimits
from moot.protocol.answer_marks import unknown_outcome
from tests.bridges.served_space import ServedSpace, offer_files, served_space, text_of
from tests.bridges.space.test_space_server import ERAS, names_at
from tests.waiting import HANG_SECONDS, bounded, until


class RawHost:
    """A member that answers by hand."""

    def __init__(self) -> None:
        self.requests: list[IncomingRequest] = []
        self.cancelled = asyncio.Event()

    async def __call__(self, request: IncomingRequest) -> dict[str, Any]:
        if request.method == "tools/list":
            names = ("work", "ask", "fail", "wait", "vendor")
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        if request.method == "prompts/list":
            return {"prompts": [{"name": "p"}]}
        if request.method not in ("tools/call", "completion/complete"):
            raise McpError(-32601, "no")
        self.requests.append(request)
        if request.method == "completion/complete":
            return {"completion": {"values": ["x"]}}
        match request.params["name"]:
            case "work":
                await request.progress(1, 2, "half", vendor=True)
                await request.log("warning", "careful", "host")
                return {"content": [{"type": "text", "text": "worked"}]}
            case "fail":
                raise McpError(-32077, "out of paper", {"tray": 2})
            case "ask":
                given = request.params.get("inputResponses")
                if given is None:
                    schema = {"type": "object", "properties": {"which": {"type": "string"}}}
                    params = {"message": "Which?", "requestedSchema": schema}
                    asks = {"method": "elicitation/create", "params": params}
                    return {
                        "resultType": "input_required",
                        "inputRequests": {"q": asks},
                        "requestState": "st",
                    }
                text = f"{given['q']['content']['which']} {request.params['requestState']}"
                return {"content": [{"type": "text", "text": text}]}
            case "vendor":
                return {
                    "content": [],
                    "structuredContent": {"n": 12345678901234567890123},
                    "x": {"y": [1, None]},
                }
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return {}


async def raw_host(served: ServedSpace) -> RawHost:
    host = RawHost()
    (await served.join("files")).server.use_handler(host)
    return host


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_logs_and_errors_of_a_host_reach_the_client_as_they_are(
    tmp_path: Path, mode: Any
) -> None:
    received: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        received.append((params.level, params.data, params.logger))

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    async with served_space(tmp_path) as served:
        host = await raw_host(served)
        shown = await served.serve("bob")
        async with shown.client(mode, logging_callback=log, log_level="info") as client:
            assert text_of(await client.call_tool("work", {}, progress_callback=progress)) == "worked"
            assert set(received) == {(1, 2, "half"), ("warning", "careful", "host")}
            with pytest.raises(MCPError) as caught:
                await client.call_tool("fail", {})
            error = caught.value.error
            assert (error.code, error.message, error.data) == (-32077, "out of paper", {"tray": 2})
            reference = types.PromptReference(type="ref/prompt", name="p")
            completed = await client.complete(reference, {"name": "a", "value": "b"})
            assert completed.completion.values == ["x"]
        assert "io.modelcontextprotocol/protocolVersion" not in host.requests[0].meta


async def test_a_right_to_call_does_not_lift_a_quorum_for_mcp_clients(tmp_path: Path) -> None:
    """D-103: the call becomes a proposal, as without the right, and comes back when it has its votes."""
    rules = {"quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 1}]}
    async with served_space(tmp_path, rules=rules) as served:
        host = await raw_host(served)
        alice = await served.join("alice")
        shown = await served.serve("bob")
        async with shown.client() as client:
            calling = asyncio.ensure_future(client.call_tool("work", {}))
            await until(lambda: bool(alice.proposals.open()))
            assert not host.requests
            await alice.approve(alice.proposals.open()[0])
            assert text_of(await calling) == "worked"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_hosts_question_is_asked_at_the_client_and_answered(tmp_path: Path, mode: Any) -> None:
    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert params.message == "Which?"
        return types.ElicitResult(action="accept", content={"which": "this"})

    async with served_space(tmp_path) as served:
        host = await raw_host(served)
        shown = await served.serve("bob")
        async with shown.client(mode, elicitation_callback=answer) as client:
            assert text_of(await client.call_tool("ask", {})) == "this st"
        reply = host.requests[0].meta["io.modelcontextprotocol/clientCapabilities"]
        assert "elicitation" in reply


@pytest.mark.parametrize("mode", ERAS)
async def test_giving_up_a_call_tells_the_host(tmp_path: Path, mode: Any) -> None:
    async with served_space(tmp_path) as served:
        host = await raw_host(served)
        shown = await served.serve("bob")
        async with shown.client(mode) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "wait", {})
                await until(lambda: host.requests)
                group.cancel_scope.cancel()
            async with bounded():
                await host.cancelled.wait()
            await client.list_tools()


async def test_no_field_and_no_digit_of_an_answer_is_lost(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        await raw_host(served)
        shown = await served.serve("bob")
        async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "vendor", "_meta": meta},
            }
            headers = {
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": "vendor",
            }
            result = (await client.post(shown.url, json=body, headers=headers)).json()["result"]
        assert result["structuredContent"] == {"n": 12345678901234567890123}
        assert result["x"] == {"y": [1, None]}


async def test_a_host_that_leaves_while_it_is_asked_is_told_of(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        host = RawHost()
        files = await served.join("files")
        files.server.use_handler(host)
        quick = ParticipantLimits(host_return_seconds=0.05)
        shown = await served.serve("bob", joining={"limits": quick})
        async with shown.client() as client, anyio.create_task_group() as group:

            async def call() -> None:
                result = await client.call_tool("wait", {})
                assert result.is_error
                assert "OUTCOME UNKNOWN" in text_of(result)
                assert "Do not call it again" in text_of(result)

            group.start_soon(call)
            await until(lambda: host.requests)
            await files.close()


@pytest.mark.parametrize("how", ["kick", "shutdown"])
async def test_a_caller_that_is_removed_in_the_middle_of_a_call_is_not_told_that_it_was_not_sent(
    tmp_path: Path, how: str
) -> None:
    """D-99: the host is at work on it. Only what comes after that was not sent."""
    async with served_space(tmp_path) as served:
        host = await raw_host(served)
        alice = await served.join("alice")
        shown = await served.serve("bob")
        async with shown.client() as client, anyio.create_task_group() as group:

            async def call() -> None:
                text = text_of(await client.call_tool("wait", {}))
                assert "OUTCOME UNKNOWN: you are not in the space any more" in text
                assert "enough" in text
                assert "was not sent" not in text

            group.start_soon(call)
            await until(lambda: host.requests)
            remove = alice.admin.kick if how == "kick" else alice.admin.shutdown
            await remove("bob", reason="enough")
        with pytest.raises(ConnectionClosed) as caught:
            await shown.space.call("files", "wait")
        assert not isinstance(caught.value, CallOutcomeUnknown)
        assert describe_fault(caught.value, "wait", "files").endswith("so wait was not sent.")


def test_a_host_that_does_not_know_what_came_of_a_call_is_no_error_to_repeat() -> None:
    fault = HostDoesNotKnow(-32004, "it ended before it answered", unknown_outcome())
    error = host_error(fault, "wait", "files")
    assert "OUTCOME UNKNOWN" in error.message
    assert "Do not call it again" in error.message
    assert (error.code, error.data) == (fault.code, fault.data)
    plain = McpError(-32602, "no such file")
    assert host_error(plain, "wait", "files") is plain
    with pytest.raises(McpError, match="OUTCOME UNKNOWN"):
        failure_result(fault, method="tools/call", what="wait", host="files")


async def test_a_paused_member_is_told_that_it_is(tmp_path: Path) -> None:
    async with served_space(tmp_path) as served:
        offer_files(await served.join("files"))
        alice = await served.join("alice")
        shown = await served.serve("bob")
        await names_at(shown)
        await alice.admin.pause("bob", reason="looking into it")
        await until(lambda: shown.space.paused is not None)
        async with shown.client() as client:
            result = await client.call_tool("read_file", {"path": "a.txt"})
            assert result.is_error
            assert "paused by alice" in text_of(result)
