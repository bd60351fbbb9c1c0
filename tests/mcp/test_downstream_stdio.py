"""The server over pipes: one message a line, nothing else on stdout, and a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.mcp.downstream import stdio_server
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.rpc import InvalidRpcMessage, Message, parse_message
from tests.mcp.example_backend import ExampleBackend
from tests.waiting import bounded

ROOT = Path(__file__).resolve().parents[2]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Pipes:
    """A client at the other end of two pipes, in the same process."""

    def __init__(
        self, backend: ExampleBackend, server: McpServer, to: int, reader: asyncio.StreamReader
    ) -> None:
        self.backend = backend
        self.server = server
        self._to = to
        self._reader = reader
        self._ids = 0

    def say(self, line: bytes | dict[str, Any]) -> None:
        os.write(self._to, (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    async def hear(self) -> dict[str, Any]:
        async with bounded():
            line = await self._reader.readline()
        received: dict[str, Any] = json.loads(line)
        return received

    async def ask(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        self._ids += 1
        self.say({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}} | more)
        return await self.hear()

    async def open(self) -> None:
        await self.ask("initialize", HELLO)
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def hang_up(self) -> None:
        os.close(self._to)


@asynccontextmanager
async def pipes(limits: McpServerLimits | None = None) -> AsyncIterator[Pipes]:
    ours, theirs = os.pipe(), os.pipe()
    backend, stop = ExampleBackend(), asyncio.Event()
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(theirs[0], "rb", buffering=0)
    )
    async with McpServer(backend, limits or McpServerLimits()) as server:
        serving = asyncio.create_task(stdio_server.serve(server, stop=stop, stdin=ours[0], stdout=theirs[1]))
        client = Pipes(backend, server, ours[1], reader)
        try:
            yield client
        finally:
            stop.set()
            await serving
            transport.close()
            for descriptor in (ours[0], theirs[1]):
                os.close(descriptor)


async def test_what_is_no_message_is_answered_and_the_next_one_served() -> None:
    async with pipes() as client:
        for line, code in (
            (b"nonsense", -32700),
            (b'{"a":1,"a":2}', -32700),
            (b"[]", -32600),
            (b"7", -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
            (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
            (b'{"jsonrpc":"2.0","id":1}', -32600),
            (b"[" * 5000, -32700),
        ):
            client.say(line)
            assert (await client.hear())["error"]["code"] == code, line
        client.say(b"   ")
        assert await client.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_lines_longer_than_allowed_are_refused_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.rpc.MESSAGE_BYTES", 1000)
    async with pipes() as client:
        client.say(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 40_000 + b'"}')
        assert "at most 1000 bytes" in (await client.hear())["error"]["message"]
        assert (await client.ask("ping"))["result"] == {}
        client.say(b" " * 1001)
        assert "at most 1000 bytes" in (await client.hear())["error"]["message"]


async def test_a_message_in_pieces_and_several_at_once_are_read_alike() -> None:
    async with pipes() as client:
        await client.open()
        line = json.dumps({"jsonrpc": "2.0", "id": "a", "method": "ping"}).encode()
        for byte in line:
            os.write(client._to, bytes([byte]))
        client.say(b"\n" + line.replace(b'"a"', b'"b"') + b"\n" + line.replace(b'"a"', b'"c"'))
        assert [(await client.hear())["id"] for _ in range(3)] == ["a", "b", "c"]


async def test_before_the_handshake_only_ping_and_the_stateless_era_are_served() -> None:
    async with pipes() as client:
        assert (await client.ask("tools/list"))["error"]["code"] == -32602
        assert (await client.ask("ping"))["result"] == {}
        assert (await client.ask("tools/list", {"_meta": META}))["result"]["resultType"] == "complete"
        assert "initialize needs" in (await client.ask("initialize", {}))["error"]["message"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
        ("x", "2025-11-25"),
    ],
)
async def test_the_handshake_settles_on_a_version(asked: str, given: str) -> None:
    async with pipes() as client:
        result = (await client.ask("initialize", HELLO | {"protocolVersion": asked}))["result"]
        assert result["protocolVersion"] == given
        assert result["serverInfo"] == {"name": "shop", "version": "1.2.3"}
        assert result["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }


async def test_no_field_and_no_digit_is_lost_either_way() -> None:
    """Of arguments, results and descriptions alike; integers of any size."""
    big = 123456789012345678901234567890
    async with pipes() as client:
        await client.open()
        tools = (await client.ask("tools/list"))["result"]["tools"]
        assert tools[0]["x-vendor"] == {"kept": True}
        arguments = {"text": "é\u2028", "n": big, "f": 1e300, "x": {"y": [None, True]}}
        answer = await client.ask("tools/call", {"name": "echo", "arguments": arguments, "vendor": big})
        assert answer["result"]["structuredContent"] == arguments
        assert answer["result"]["vendor"] == [1, None]
        assert client.backend.calls[-1].params["vendor"] == big
        progress = {"name": "shout", "_meta": {"progressToken": "p"}}
        received = await client.ask("tools/call", progress)
        assert received["params"] == {"progressToken": "p", "progress": 1, "total": 2, "x-vendor": 1}


async def test_what_serves_a_call_goes_on_and_what_is_the_eras_own_does_not() -> None:
    async with pipes() as client:
        capabilities: dict[str, Any] = {"sampling": {}, "extensions": {"x": {}}}
        meta = META | {"io.modelcontextprotocol/clientCapabilities": capabilities, "trace": "1"}
        meta["io.modelcontextprotocol/clientInfo"] = {"name": "c", "version": "1"}
        await client.ask("tools/call", {"name": "echo", "_meta": meta})
        sent = client.backend.calls[-1].params["_meta"]
        assert sent == {"io.modelcontextprotocol/clientCapabilities": capabilities, "trace": "1"}
        hello = HELLO | {"capabilities": {"roots": {"listChanged": True}, "experimental": {}}}
        await client.ask("initialize", hello)
        await client.ask("tools/call", {"name": "echo"})
        assert client.backend.calls[-1].params["_meta"] == {
            "io.modelcontextprotocol/clientCapabilities": {"roots": {"listChanged": True}},
            "io.modelcontextprotocol/logLevel": "info",
            "moot/client-era": "handshake",
        }


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_cancelled_request_gets_no_answer(era: str) -> None:
    async with pipes() as client:
        await client.open()
        params: dict[str, Any] = {"name": "hang"} | ({"_meta": META} if era == "stateless" else {})
        client.say({"jsonrpc": "2.0", "id": "h", "method": "tools/call", "params": params})
        await client.backend.until(lambda: client.backend.calls)
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "h"}})
        await client.backend.until(lambda: client.backend.given_up)
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "h"}})
        assert (await client.ask("ping"))["id"] == 2


async def test_an_id_in_use_and_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.running_requests.MAX_REQUESTS", 2)
    async with pipes() as client:
        await client.open()
        hang = {"jsonrpc": "2.0", "id": "h", "method": "tools/call", "params": {"name": "hang"}}
        client.say(hang)
        client.say(hang)
        assert "still being answered" in (await client.hear())["error"]["message"]
        client.say(hang | {"id": "i"})
        client.say(hang | {"id": "j"})
        answer = await client.hear()
        assert (answer["id"], "2 requests at once" in answer["error"]["message"]) == ("j", True)


async def test_what_breaks_behind_the_face_tells_the_client_nothing_but_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pipes() as client:
        await client.open()
        error = (await client.ask("tools/call", {"name": "broken"}))["error"]
        assert error == {"code": -32603, "message": "internal error; the log says why"}
    assert "a request could not be answered" in caplog.text


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("tools/call", {}, '"name"'),
        ("tools/call", {"name": "echo", "arguments": []}, '"arguments"'),
        ("tools/call", {"name": "echo", "inputResponses": 7}, '"inputResponses"'),
        ("tools/call", {"name": "echo", "requestState": 7}, '"requestState"'),
        ("resources/read", {"uri": 7}, '"uri"'),
        ("prompts/get", {"name": ""}, '"name"'),
        ("completion/complete", {"ref": {}}, '"argument"'),
        ("completion/complete", {"ref": {"type": "ref/resource"}, "argument": {}}, '"uri"'),
        ("tools/list", {"cursor": "x"}, "one page"),
        ("logging/setLevel", {"level": "loud"}, '"level"'),
        ("resources/subscribe", {}, '"uri"'),
    ],
)
async def test_params_of_a_wrong_shape_are_invalid_params(method: str, params: Any, words: str) -> None:
    async with pipes() as client:
        await client.open()
        error = (await client.ask(method, params))["error"]
        assert error["code"] == -32602
        assert words in error["message"]


async def test_a_method_that_nobody_knows_is_not_found_in_either_era() -> None:
    async with pipes() as client:
        await client.open()
        for params in ({}, {"_meta": META}):
            assert (await client.ask("tools/burn", params))["error"]["code"] == -32601
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
            assert (await client.ask(method, {"_meta": META}))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, -32602),
        (META | {"io.modelcontextprotocol/protocolVersion": 7}, -32602),
        (META | {"io.modelcontextprotocol/clientCapabilities": []}, -32602),
        (META | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}, -32022),
    ],
)
async def test_a_stateless_request_says_what_it_must(meta: dict[str, Any], code: int) -> None:
    async with pipes() as client:
        error = (await client.ask("server/discover", {"_meta": meta}))["error"]
        assert error["code"] == code
        if code == -32022:
            assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


async def test_a_listen_stream_over_stdio_is_acknowledged_first_and_ends_when_cancelled() -> None:
    async with pipes() as client:
        wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://one", 7]}}
        received = await client.ask("subscriptions/listen", wanted | {"_meta": META})
        meta = {"io.modelcontextprotocol/subscriptionId": 1}
        assert received["method"] == "notifications/subscriptions/acknowledged"
        assert received["params"] == {
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]},
            "_meta": meta,
        }
        client.backend.tools.append({"name": "change", "inputSchema": {"type": "object"}})
        changed = await client.ask("tools/call", {"name": "change", "_meta": META})
        others = [changed, await client.hear(), await client.hear()]
        answer = sorted(each.get("method", "result") for each in others)
        assert answer == ["notifications/resources/updated", "notifications/tools/list_changed", "result"]
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await client.backend.until(lambda: not client.backend.listeners and not client.backend.subscribed)


async def test_there_is_a_limit_to_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.stateless.MAX_LISTENERS", 1)
    async with pipes() as client:
        wanted = {"notifications": {}, "_meta": META}
        await client.ask("subscriptions/listen", wanted)
        assert "1 listen streams" in (await client.ask("subscriptions/listen", wanted))["error"]["message"]
        nonsense = await client.ask("subscriptions/listen", {"_meta": META})
        assert nonsense["error"]["code"] == -32602
        tasks = {"notifications": {"taskIds": ["x"]}, "_meta": META}
        assert (await client.ask("subscriptions/listen", tasks))["error"]["code"] == -32021


async def test_a_client_that_does_not_read_does_not_fill_our_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.rpc.UNREAD_BYTES", 100_000)
    async with pipes() as client:
        await client.open()
        text = "x" * 50_000
        call = {"method": "tools/call", "params": {"name": "echo", "arguments": {"text": text}}}
        try:
            os.set_blocking(client._to, False)
            for number in range(200):
                client.say({"jsonrpc": "2.0", "id": f"n{number}"} | call)
        except BlockingIOError:
            # We stopped reading because it does not; that is as good as giving up.
            pass
        # Time enough for all of them, if it took them; a slow machine takes fewer.
        await asyncio.sleep(0.1)
        assert client.server.counts.requests < 200


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_members = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": _json,
        "method": st.sampled_from(["ping", "tools/call", "initialize", 7, ""]),
        "params": _json,
        "result": _json,
        "error": _json,
    },
)


@given(st.binary(max_size=200) | _members.map(lambda value: json.dumps(value).encode()))
def test_whatever_bytes_come_they_are_a_message_or_a_bad_one(raw: bytes) -> None:
    received: Message | InvalidRpcMessage
    try:
        received = parse_message(raw)
    except InvalidRpcMessage as fault:
        received = fault
    if isinstance(received, InvalidRpcMessage):
        assert received.code in (-32700, -32600)


# As a process


async def _process(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.mcp.example_backend",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )


def _line(id: int, method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"


async def test_nothing_but_messages_comes_out_even_when_somebody_prints() -> None:
    process = await _process("--chatty")
    call = {"name": "print", "_meta": META}
    output, errors = await process.communicate(
        _line(1, "tools/call", call) + _line(2, "tools/list", {"_meta": META})
    )
    messages = [json.loads(line) for line in output.splitlines()]
    assert [message["id"] for message in messages] == [1, 2]
    assert b"this must not reach the client" in errors
    assert b"nor this" in errors
    assert process.returncode == 0


async def test_the_end_of_input_ends_it_after_what_was_asked_is_answered() -> None:
    process = await _process()
    lines = b"".join(_line(number, "tools/list", {"_meta": META}) for number in range(50))
    output, errors = await process.communicate(
        lines + _line(99, "tools/call", {"name": "hang", "_meta": META})
    )
    assert [json.loads(line)["id"] for line in output.splitlines()] == list(range(50))
    assert (errors, process.returncode) == (b"", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_without_a_word(number: signal.Signals) -> None:
    process = await _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_line(1, "tools/list", {"_meta": META}))
    await process.stdout.readline()
    process.send_signal(number)
    async with bounded():
        output, errors = await process.communicate()
    assert (output, errors, process.returncode) == (b"", b"", 0)


async def test_requests_from_a_file_are_answered_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(_line(1, "tools/list", {"_meta": META}))
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.mcp.example_backend", stdin=source, stdout=sink, cwd=ROOT
        )
        async with bounded():
            assert await process.wait() == 0
    assert json.loads((tmp_path / "out").read_bytes())["id"] == 1
