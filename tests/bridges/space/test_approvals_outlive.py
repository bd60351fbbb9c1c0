"""A proposal outlives its client: `moot mcp` killed and restarted, the gateway restarted, calls repeated."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
import pytest
import yaml

from mcp import Client, MCPError, StdioServerParameters
from moot.bridges.space.calls_file import CallsFile
from moot.bridges.space.person_decisions import PersonDecisions
from moot.bridges.space.space_backend import SpaceBackend
from moot.mcp.downstream.backend import BackendCall, PendingCall
from moot.participant import JoinedSpace, connect
from tests.bridges.foreign_servers import MODULES, NODE
from tests.bridges.served_space import HASTY, HOST, offer_files, served_space, text_of
from tests.bridges.space.test_mcp_command import token_file
from tests.bridges.space.test_space_server import LISTS
from tests.bridges.space.test_space_server_decisions import CALL, GUEST, first_proposal, set_up
from tests.gateway.running_gateway import participants
from tests.gateway.served import Served, started
from tests.mcp.test_downstream_decisions import Person
from tests.waiting import HANG_SECONDS, bounded, until, until_told

ERAS = ["legacy", "2026-07-28"]


class McpProcess:
    """`moot mcp` as a process, spoken to in the handshake era line by line, so that it can be killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        async with bounded():
            while True:
                line = await self._process.stdout.readline()
                assert line, "moot mcp ended"
                answer: dict[str, Any] = json.loads(line)
                if answer.get("id") == self._number:
                    return answer

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = await self.request("tools/call", {"name": name, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    def send_call(self, name: str, arguments: dict[str, Any]) -> None:
        """Call and do not wait."""
        self._number += 1
        params = {"name": name, "arguments": arguments}
        self._write({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def end(self, number: int) -> None:
        if number == 0:
            assert self._process.stdin is not None
            self._process.stdin.close()
        else:
            self._process.send_signal(number)
        async with bounded():
            await self._process.wait()


@asynccontextmanager
async def mcp_process(url: str, folder: Path, *more: str) -> AsyncIterator[McpProcess]:
    arguments = ["-m", "moot.cli", "mcp", "--gateway", url, "--space", "lab"]
    arguments += ["--token-file", str(token_file(folder, "guest")), *more]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=pipe,
        stdout=pipe,
        env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
    )
    one = McpProcess(process)
    try:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        await one.request("initialize", hello)
        yield one
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def words(result: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in result["content"])


class Lab:
    """A gateway process with a file tool and alice, who decides."""

    def __init__(self, file: Path, gateway: Served) -> None:
        self.file = file
        self.gateway = gateway
        self.port = gateway.url.rpartition(":")[2]

    async def restart(self, number: int = signal.SIGKILL) -> None:
        await self.gateway.end(number)
        self.gateway = await started(self.file, "--port", self.port)


@asynccontextmanager
async def lab(folder: Path) -> AsyncIterator[Lab]:
    everybody = participants(alice=["*"], guest=GUEST["guest"], files=HOST)
    file = folder / "moot.yaml"
    file.write_text(yaml.safe_dump({"spaces": {"lab": {"participants": everybody}}}))
    file.chmod(0o600)
    one = Lab(file, await started(file, "--port", "0"))
    try:
        yield one
    finally:
        await one.gateway.close()
        await one.gateway.end()


@asynccontextmanager
async def files_and_alice(url: str) -> AsyncIterator[tuple[dict[str, str], list[str], JoinedSpace]]:
    """What the tools write into, each write that was made, and alice."""
    writes: list[str] = []
    async with AsyncExitStack() as stack:
        files = await stack.enter_async_context(connect(url, "lab", "t-files"))
        kept = offer_files(files)

        @files.tool
        def append(text: str) -> str:
            """Append a line."""
            writes.append(text)
            return f"line {len(writes)}"

        yield kept, writes, await stack.enter_async_context(connect(url, "lab", "t-alice"))


ADD: tuple[str, dict[str, Any]] = ("append", {"text": "pay 7"})


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, 0])
async def test_a_proposal_stays_when_its_client_ends_and_its_result_is_told_after_a_restart(
    tmp_path: Path, how: int
) -> None:
    async with lab(tmp_path) as gateway, files_and_alice(gateway.gateway.url) as (_, writes, alice):
        async with mcp_process(gateway.gateway.url, tmp_path) as first:
            first.send_call(*ADD)
            seen = await first_proposal(alice)
            await first.end(how)
        await until(lambda: "guest" not in alice.roster)
        assert [each.id for each in alice.proposals.open()] == [seen.id]
        await alice.approve(seen)
        async with mcp_process(gateway.gateway.url, tmp_path) as second:
            overview = words(await second.call("moot_status", {}))
            assert f"{seen.id}: finished, approved by alice, answered by files. append of files" in overview
            assert 'with {"text":"pay 7"}' in overview
            # The model repeats the call whose result it never saw: it gets that result, and nothing is done.
            again = await second.call(*ADD)
            assert "earlier call with the same arguments" in words(again)
            assert "line 1" in words(again)
            assert (writes, alice.proposals.open()) == (["pay 7"], [])
        async with mcp_process(gateway.gateway.url, tmp_path, "--decision-seconds", "0.1") as third:
            # It has seen that one now, so this is a call of its own.
            assert words(await third.call(*ADD)).startswith("PENDING")
            await until(lambda: len(alice.proposals.open()) == 1)


async def test_a_pending_call_is_found_again_after_client_and_gateway_were_killed(tmp_path: Path) -> None:
    async with lab(tmp_path) as gateway:
        url = gateway.gateway.url
        async with files_and_alice(url), mcp_process(url, tmp_path, "--decision-seconds", "0.1") as first:
            pending = await first.call(*ADD)
            handle = pending["_meta"]["moot/pending"]["handle"]
            await first.end(signal.SIGKILL)
        await gateway.restart()
        async with files_and_alice(url) as (_, writes, alice):
            await alice.refresh_proposals()
            async with mcp_process(url, tmp_path, "--decision-seconds", "0.1") as second:
                status = await second.call("moot_status", {"handle": handle})
                assert words(status).startswith("PENDING, not done yet: append of files")
                assert 'append with {"text":"pay 7"}' in words(status)
                again = await second.call(*ADD)
                assert again["_meta"]["moot/pending"]["handle"] == handle
                await until(lambda: len(alice.proposals.open()) == 1)
                await alice.approve(handle)
                done = await second.call("moot_status", {"handle": handle, "wait_seconds": 30})
                assert words(done).startswith(f"{handle}: approved by alice, answered by files.\n")
                assert words(done).endswith("carried out at most once.\nline 1")
                assert writes == ["pay 7"]


async def test_what_was_done_is_told_even_if_its_result_is_gone(tmp_path: Path) -> None:
    """The gateway remembers that it was done; a result that nobody kept is not made up."""
    async with lab(tmp_path) as gateway:
        url = gateway.gateway.url
        async with files_and_alice(url) as (_, writes, alice):
            async with mcp_process(url, tmp_path, "--decision-seconds", "0.1") as first:
                handle = (await first.call(*ADD))["_meta"]["moot/pending"]["handle"]
                await first.end(signal.SIGKILL)
            await alice.approve(handle)
        await gateway.restart(signal.SIGTERM)
        async with files_and_alice(url) as (_, more, alice), mcp_process(url, tmp_path) as second:
            for result in (await second.call(*ADD), await second.call("moot_status", {"handle": handle})):
                assert not result.get("isError")
                answer = words(result)
                assert "line 1" in answer or "was done while nobody here was connected" in answer
            assert (writes, more, alice.proposals.open()) == (["pay 7"], [], [])


async def test_without_a_file_what_is_open_comes_from_the_gateway(tmp_path: Path) -> None:
    fast = ("--decision-seconds", "0.1", "--calls-file", "none")
    async with lab(tmp_path) as gateway, files_and_alice(gateway.gateway.url) as (_, writes, alice):
        async with mcp_process(gateway.gateway.url, tmp_path, *fast) as first:
            handle = (await first.call(*ADD))["_meta"]["moot/pending"]["handle"]
        async with mcp_process(gateway.gateway.url, tmp_path, *fast) as second:
            assert (await second.call(*ADD))["_meta"]["moot/pending"]["handle"] == handle
            await until(lambda: len(alice.proposals.open()) == 1)
        await alice.approve(handle)
        async with mcp_process(gateway.gateway.url, tmp_path, *fast) as third:
            answer = words(await third.call("moot_status", {"handle": handle}))
            assert "tools/call append was proposed at" in answer
            assert "is fulfilled by alice, outcome done." in answer
            assert writes == ["pay 7"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_whose_time_is_up_gets_the_result_when_it_calls_again(
    tmp_path: Path, mode: Any
) -> None:
    """As the official SDK does it: it cancels its request, or disconnects."""
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served)
        async with shown.client(mode) as client:

            async def give_up() -> None:
                with pytest.raises(MCPError, match="imed out"):
                    await client.call_tool(*CALL, read_timeout_seconds=0.5)

            await call_until_proposed(alice, give_up)
            seen = await first_proposal(alice)
            (pending,) = shown.backend.pending_calls._calls
            await until(lambda: pending.waiting == 0)
            await alice.approve(seen)
            assert kept["b"] == "new"
            kept["b"] = "changed since"
            result = await client.call_tool(*CALL)
            assert "It was not done again.\nwrote b" in text_of(result)
            assert kept["b"] == "changed since"


async def call_until_proposed(alice: JoinedSpace, give_up: Callable[[], Awaitable[None]]) -> None:
    """On a busy machine a client may stop waiting before its call was seen; repeating it is safe."""
    async with bounded():
        while not alice.proposals.open():
            await give_up()


async def test_over_stdio_the_sdk_times_out_and_the_proposal_stays(tmp_path: Path) -> None:
    async with lab(tmp_path) as gateway, files_and_alice(gateway.gateway.url) as (_, writes, alice):
        arguments = ["-m", "moot.cli", "mcp", "--gateway", gateway.gateway.url, "--space", "lab"]
        arguments += ["--token-file", str(token_file(tmp_path, "guest"))]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=arguments,
            env={"XDG_STATE_HOME": str(tmp_path / "state")},
        )
        async with Client(parameters, mode="legacy") as client:

            async def give_up() -> None:
                with pytest.raises(MCPError, match="imed out"):
                    await client.call_tool(*ADD, read_timeout_seconds=1)

            await call_until_proposed(alice, give_up)
            # Answered after the cancellation has been processed.
            assert "append of files" in text_of(await client.call_tool("moot_status", {}))
        seen = await first_proposal(alice)
        await alice.approve(seen)
        async with Client(parameters, mode="legacy") as client:
            assert "line 1" in text_of(await client.call_tool(*ADD))
        assert writes == ["pay 7"]


async def test_the_typescript_sdk_times_out_and_a_new_client_gets_the_result(tmp_path: Path) -> None:
    async with lab(tmp_path) as gateway, files_and_alice(gateway.gateway.url) as (_, writes, alice):

        async def call(timeout_ms: int) -> dict[str, str]:
            arguments = ["-m", "moot.cli", "mcp", "--gateway", gateway.gateway.url, "--space", "lab"]
            arguments += ["--token-file", str(token_file(tmp_path, "guest"))]
            asked = {
                "modules": str(MODULES),
                "command": sys.executable,
                "args": arguments,
                "env": {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path / "state")},
                "name": ADD[0],
                "toolArguments": ADD[1],
                "timeout": timeout_ms,
            }
            script = str(Path(__file__).with_name("typescript_client.mjs"))
            client = await asyncio.create_subprocess_exec(
                str(NODE), script, json.dumps(asked), stdout=asyncio.subprocess.PIPE
            )
            async with bounded():
                output, _ = await client.communicate()
            outcome: dict[str, str] = json.loads(output)
            return outcome

        async def give_up() -> None:
            assert "Request timed out" in (await call(1_000))["error"]

        await call_until_proposed(alice, give_up)
        seen = await first_proposal(alice)
        await alice.approve(seen)
        answer = (await call(60_000))["text"]
        assert answer.endswith("It was not done again.\nline 1")
        assert (writes, alice.proposals.open()) == (["pay 7"], [])


async def test_a_client_that_ends_before_the_gateway_has_answered_leaves_its_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have it while the proposer still waits for its echo."""
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, calls=CallsFile(tmp_path / "calls.json"))
        waiting = asyncio.Event()

        async def never(_sent: Any) -> Any:
            waiting.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(shown.space._sender, "wait_for_echo", never)
        params = {"name": CALL[0], "arguments": CALL[1]}
        call = asyncio.ensure_future(shown.backend.perform(BackendCall("tools/call", params)))
        async with bounded():
            await waiting.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        seen = await first_proposal(alice)
        monkeypatch.undo()
        pending = await until_told(lambda: shown.backend.pending(seen.id))
        assert pending is not None
        await alice.approve(seen)
        async with bounded():
            await pending.finished.wait()
        assert pending.result()["content"][0]["text"] == "wrote b"


async def test_a_call_is_answered_whose_space_ends_as_soon_as_it_is_proposed(tmp_path: Path) -> None:
    """The task that follows it has not had its first step; a client may poll for the call."""
    file = CallsFile(tmp_path / "calls.json")
    async with served_space(tmp_path, GUEST) as served:
        offer_files(await served.join("files"))
        backend = SpaceBackend(await served.join("guest"), space_name="lab", calls=file)
        await backend.__aenter__()
        await backend.offers("tools")
        pending = await backend.perform(BackendCall("tools/call", {"name": CALL[0], "arguments": CALL[1]}))
        await backend.__aexit__()
        assert isinstance(pending, PendingCall)
        assert pending.finished.is_set()
        assert "may still be open" in pending.result()["content"][0]["text"]
        assert [each.handle for each in file.load()] == [pending.handle]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("choice", ["approve", "reject"])
async def test_the_person_at_the_client_decides_in_their_own_name(
    tmp_path: Path, mode: Any, choice: str
) -> None:
    person = Person(choice)
    async with served_space(tmp_path, GUEST) as served:
        deciding = PersonDecisions(served.gateway.url, "lab", "t-bob")
        kept, alice, shown = await set_up(served, person=deciding)
        async with shown.client(mode, elicitation_callback=person) as client:
            result = await client.call_tool(*CALL)
        assert 'The call: write_file with {"path":"b","text":"new"}' in person.asked[0]
        if choice == "approve":
            assert (text_of(result), kept["b"]) == ("wrote b", "new")
            (seen,) = alice.proposals
            assert seen.fulfilled_by == "bob"
        else:
            assert (result.is_error, "bob: disagree" in text_of(result), "b" in kept) == (True, True, False)


@pytest.mark.parametrize(
    ("token", "told"),
    [("t-files", "could not be approved from here"), ("t-guest", "proposing member itself")],
)
async def test_a_person_without_the_right_approves_nothing(tmp_path: Path, token: str, told: str) -> None:
    person = Person("approve")
    limits = msgspec.structs.replace(HASTY, answer_seconds=1)
    async with served_space(tmp_path, GUEST) as served:
        deciding = PersonDecisions(served.gateway.url, "lab", token)
        kept, alice, shown = await set_up(served, person=deciding, limits=limits)
        async with shown.client("legacy", elicitation_callback=person) as client:
            result = await client.call_tool(*CALL)
        assert (text_of(result).startswith("PENDING"), told in text_of(result)) == (True, True)
        await until(lambda: len(alice.proposals.open()) == 1)
        assert "b" not in kept


async def test_without_the_persons_token_no_dialog_offers_to_approve(tmp_path: Path) -> None:
    schemas: list[Any] = []

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        schemas.append(params.requested_schema)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    limits = msgspec.structs.replace(HASTY, answer_seconds=0.5)
    async with served_space(tmp_path, GUEST) as served:
        kept, alice, shown = await set_up(served, limits=limits)
        async with shown.client("legacy", elicitation_callback=answer) as client:
            assert text_of(await client.call_tool(*CALL)).startswith("PENDING")
        assert schemas[0]["properties"]["decision"]["enum"] == ["wait", "withdraw"]
        await until(lambda: len(alice.proposals.open()) == 1)
        assert "b" not in kept


async def test_a_waiting_person_reads_the_exact_call_who_decides_and_where(tmp_path: Path) -> None:
    people = GUEST | {"carol": [LISTS], "dave": [{"kind": "mcp/request", "payload": {"method": "tools/*"}}]}
    async with served_space(tmp_path, people) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        shown.backend.pending_calls._text.console = "http://gate.example"
        async with shown.client() as client:
            result = await client.call_tool("write_file", {"path": "b", "text": "zero\u200bwidth"})
            (seen,) = alice.proposals.open()
            answer = text_of(result)
            assert "\u200b" not in answer
            assert 'The call: write_file with {"path":"b","text":"zero' in answer
            assert "It can be approved by alice." in answer
            assert f"http://gate.example/#/lab/approvals/{seen.id}" in answer
            assert f"moot approve {seen.id}" in answer
            assert result.meta is not None
            about = result.meta["moot/pending"]
            assert about["arguments"] == {"path": "b", "text": "zero\u200bwidth"}
            assert about["can_be_approved_by"] == ["alice"]
            await served.join("carol")
            dave = await served.join("dave")
            await shown.space.roster.wait_for("dave", timeout_seconds=HANG_SECONDS)
            status = text_of(await client.call_tool("moot_status", {"handle": seen.id}))
            assert "It can be approved by alice, dave." in status
            await alice.close()
            await dave.close()
            await until(lambda: not {"alice", "dave"} & set(shown.space.roster))
            status = text_of(await client.call_tool("moot_status", {"handle": seen.id}))
            assert "Nobody who can approve it is in the space now" in status
