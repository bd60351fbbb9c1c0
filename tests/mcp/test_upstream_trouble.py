"""A server that hangs, dies, floods or talks nonsense: its caller hears of it, everyone else goes on."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from moot.errors import McpError
from moot.mcp.eras import TIMED_OUT, UNREACHABLE, JsonObject
from moot.mcp.stdio_child import LINE_BYTES
from moot.mcp.upstream import (
    HttpServer,
    StartFailed,
    UpstreamCallbacks,
    UpstreamOptions,
    open_upstream,
)
from moot.net.http_listener import bind_socket
from moot.protocol.large_content import MAX_CONTENT_BYTES
from moot.protocol.rpc_codes import INTERNAL_ERROR, PARSE_ERROR
from moot.resilience import restart_loop
from moot.resilience.child_process import CERTIFICATES, PROXIES
from tests.mcp.upstreams import (
    QUICK,
    RecordedEvents,
    call,
    is_alive,
    open_ready,
    script,
    text_of,
    value_of,
    wait_until_gone,
)
from tests.waiting import HANG_SECONDS, bounded, until


async def test_a_server_that_dies_fails_its_calls_at_once_and_is_back_for_the_next() -> None:
    received = RecordedEvents()
    async with open_ready(script("odd"), received=received) as server:
        others = [asyncio.create_task(call(server, "hang", {"seconds": 30})) for _ in range(3)]
        first = value_of(await call(server, "told"))["pid"]
        for task in (asyncio.create_task(call(server, "die", {"code": 3})), *others):
            with pytest.raises(McpError) as caught:
                await task
            assert caught.value.code == UNREACHABLE
            assert "ended with exit code 3" in caught.value.message
            assert "effect is not known" in caught.value.message
        second = value_of(await call(server, "told"))["pid"]
        assert first != second
        assert server.stderr.last_lines()[-1] == "last words on stderr"
    assert received.downs == ["ended with exit code 3"]
    assert len(received.ups) == 2
    # Another life may have other tools.
    assert received.changed == ["tools", "resources"]


async def test_watched_resources_are_watched_again_after_a_restart() -> None:
    received = RecordedEvents()
    async with open_ready(script("odd"), received=received) as server:
        await server.watch("odd://a", "alice")
        with pytest.raises(McpError):
            await call(server, "die")
        await call(server, "update", {"uri": "odd://a"})
        assert value_of(await call(server, "told"))["subscribed"] == ["odd://a"]
    assert [who for _, who in received.updated] == [("alice",)]


async def test_a_call_that_waited_for_input_is_told_of_the_end_of_its_server() -> None:
    async with open_ready(script("odd")) as server:
        asked = await call(server, "ask_name", owner="alice")
        with pytest.raises(McpError):
            await call(server, "die", owner="bob")
        with pytest.raises(McpError) as caught:
            await call(server, "ask_name", also={"requestState": asked["requestState"]}, owner="alice")
    assert "ended with exit code 3" in caught.value.message


async def test_a_call_that_hangs_times_out_is_cancelled_and_the_rest_of_the_server_goes_on() -> None:
    async with open_ready(script("odd")) as server:
        with pytest.raises(McpError) as caught:
            await call(server, "hang", timeout=0.1)
        assert caught.value.code == TIMED_OUT
        assert "did not answer tools/call within 0.1 s" in caught.value.message
        answer = value_of(await call(server, "told"))
        assert [each["reason"] for each in answer["cancelled"]] == ["timed out"]
        # It answered the question whether it lives, so it was not ended.
        assert server.counts.starts == 1


async def test_signs_of_progress_keep_a_long_call_alive() -> None:
    async with open_ready(script("odd")) as server:
        # A machine that has no time for the server makes the pauses longer: then all of it, and more slowly.
        for slower in (1, 2, 4, 8, 16, 32):
            arguments = {"steps": 8, "pause": 0.1 * slower}
            try:
                done = await call(
                    server, "progress", arguments, timeout=0.4 * slower, meta={"progressToken": slower}
                )
            except McpError:
                continue
            assert text_of(done) == "done"
            return
        pytest.fail("it timed out in spite of its signs of progress")


async def test_a_server_that_hangs_altogether_is_ended_and_started_again() -> None:
    received = RecordedEvents()
    async with open_ready(
        script("odd"), received=received, limits=replace(QUICK, health_seconds=0.5)
    ) as server:
        pid = value_of(await call(server, "told"))["pid"]
        with pytest.raises(McpError):
            await call(server, "freeze", timeout=0.1)
        await received.until(lambda: len(received.ups) == 2)
        assert text_of(await call(server, "sleep")) == "slept"
        await wait_until_gone(pid)
    assert received.downs == ["answered nothing for 0.5 s and was ended"]


@pytest.mark.parametrize(
    ("tool", "code", "says"),
    [
        ("garbage", PARSE_ERROR, "not JSON"),
        ("garbage_last", PARSE_ERROR, "not JSON"),
        ("duplicate", PARSE_ERROR, "duplicate key"),
        ("deep", PARSE_ERROR, "nested deeper"),
        ("nothing", INTERNAL_ERROR, "neither a result object nor an error"),
        ("wrong_type", INTERNAL_ERROR, "neither a result object nor an error"),
        ("strange_error", INTERNAL_ERROR, "an error that cannot be read"),
    ],
)
async def test_an_answer_that_is_none_is_told_as_such(tool: str, code: int, says: str) -> None:
    async with open_ready(script("odd")) as server:
        with pytest.raises(McpError) as caught:
            await call(server, tool)
        assert caught.value.code == code
        assert says in caught.value.message
        assert text_of(await call(server, "sleep")) == "slept"
        assert server.counts.starts == 1


async def test_an_answer_that_is_too_long_is_told_as_such_and_costs_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.stdio_child.LINE_BYTES", 100_000)
    async with open_ready(script("odd"), limits=QUICK) as server:
        assert len(text_of(await call(server, "huge", {"size": 90_000}))) == 90_000
        for size in (100_000, 5_000_000):
            result = await call(server, "huge", {"size": size})
            # It has answered, so it ran.
            assert text_of(result).startswith("The tool ran. Its result of ")
            assert "isError" not in result


def test_a_line_holds_the_largest_value_as_text_and_as_structured_content() -> None:
    assert LINE_BYTES >= 2.5 * MAX_CONTENT_BYTES


async def test_what_a_server_prints_besides_its_messages_is_skipped() -> None:
    async with open_ready(script("odd", "--greeting", "Welcome to the odd server!")) as server:
        assert text_of(await call(server, "junk", {"lines": 50})) == "after the junk"
        assert text_of(await call(server, "stranger")) == "mine"
        assert server.counts.invalid_messages > 50


async def test_a_flood_of_notifications_neither_stops_calls_nor_takes_our_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.upstream.connection.UNSOLICITED_PER_SECOND", 200)
    async with open_ready(script("odd"), limits=QUICK) as server:
        assert text_of(await call(server, "flood", {"count": 300}, meta={"progressToken": "t"})) == "done"
        flood = asyncio.create_task(call(server, "flood", {}, timeout=HANG_SECONDS))
        await asyncio.sleep(0.3)
        begun, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(1.0)
        spent = (time.process_time() - cpu) / (time.monotonic() - begun)
        # A flood costs the server its time: what we spend on it is a small part of a core. A machine that is
        # busy leaves us even less.
        assert spent < 0.3
        flood.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flood


@pytest.mark.parametrize("tool", ["flood_lines", "flood_one_line"])
async def test_endless_output_is_bounded_and_ends_with_the_server(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.mcp.stdio_child.LINE_BYTES", 100_000)
    limits = replace(QUICK, health_seconds=0.3)
    received = RecordedEvents()
    async with open_ready(script("odd"), limits=limits, received=received) as server:
        pid = value_of(await call(server, "told"))["pid"]
        with pytest.raises(McpError) as caught:
            await call(server, tool, timeout=0.3)
        assert caught.value.code == TIMED_OUT
        await received.until(lambda: len(received.ups) == 2)
        assert text_of(await call(server, "sleep")) == "slept"
        await wait_until_gone(pid)


async def test_a_server_that_reads_nothing_is_told_of_before_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.stdio_child.UNREAD_BYTES", 1 << 20)
    monkeypatch.setattr("moot.mcp.stdio_child.EXIT_SECONDS", 0.2)
    limits = replace(QUICK, max_calls=1_000)
    async with open_ready(script("odd"), limits=limits) as server:
        calls = [asyncio.create_task(call(server, "freeze", timeout=2))]
        calls += [
            asyncio.create_task(call(server, "echo", {"x": "y" * 100_000}, timeout=2)) for _ in range(200)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        answer = {str(each) for each in outcomes if isinstance(each, McpError)}
        assert any("does not read" in each for each in answer), answer


async def test_too_many_calls_at_once_are_refused_and_the_others_answered() -> None:
    async with open_ready(script("odd"), limits=replace(QUICK, max_calls=4)) as server:
        calls = [asyncio.create_task(call(server, "sleep", {"seconds": 0.2})) for _ in range(6)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, McpError)]
    assert len(refused) == 2
    assert "busy with 4 calls" in str(refused[0])


# Starting and stopping


async def test_a_server_that_cannot_start_says_so_with_the_end_of_its_stderr() -> None:
    async with open_upstream(script("odd", "--die-at-start", "5"), UpstreamOptions(limits=QUICK)) as server:
        with pytest.raises(StartFailed) as caught:
            await server.wait_until_ready()
        assert "ended with exit code 5" in str(caught.value)
        assert caught.value.stderr_lines == ["cannot open \x1b[31mthe door\x1b[0m"]
    missing = script("odd")
    missing = replace(missing, command=replace(missing.command, argv=("no-such-program-anywhere",)))
    async with open_upstream(missing, UpstreamOptions(limits=QUICK)) as server:
        with pytest.raises(StartFailed, match="no such program"):
            await server.wait_until_ready()


async def test_who_waits_for_a_server_that_is_stopped_before_it_was_up_is_told() -> None:
    with bind_socket("127.0.0.1", 0) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        limits = replace(QUICK, start_seconds=HANG_SECONDS)
        async with open_upstream(HttpServer(url=url), UpstreamOptions(limits=limits)) as server:
            waiting = asyncio.create_task(server.wait_until_ready())
            await until(lambda: server.counts.starts)
        async with bounded():
            with pytest.raises(StartFailed, match="was stopped"):
                await waiting


async def test_while_a_server_is_down_callers_wait_a_little_and_are_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restart_loop, "FIRST_SECONDS", 3_600.0)
    monkeypatch.setattr(restart_loop, "MAX_SECONDS", 3_600.0)
    limits = replace(QUICK, reconnect_wait_seconds=0.2)
    async with open_upstream(script("odd", "--die-at-start", "5"), UpstreamOptions(limits=limits)) as server:
        with pytest.raises(StartFailed):
            await server.wait_until_ready()
        with pytest.raises(McpError) as caught:
            await call(server, "echo")
    assert caught.value.code == UNREACHABLE
    assert "ended with exit code 5; it is being restarted, try later" in caught.value.message


async def test_starting_again_waits_longer_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_loop, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(restart_loop, "MAX_SECONDS", 0.2)
    received = RecordedEvents()
    begun = time.monotonic()
    async with open_upstream(
        script("odd", "--die-at-start", "1"), UpstreamOptions(limits=QUICK), received.callbacks()
    ) as server:
        await received.until(lambda: len(received.downs) == 4)
        # Half of 0.05, 0.1 and 0.2 at least; timers may be a bit early.
        assert time.monotonic() - begun >= 0.16
        assert server.state == "down"
    once = script("odd", "--die-once", str(tmp_path / "died"))
    async with open_upstream(once, UpstreamOptions(limits=QUICK)) as server:
        assert text_of(await call(server, "sleep")) == "slept"
        assert server.counts.starts == 2


async def test_stopping_ends_the_server_and_everything_it_started() -> None:
    async with open_ready(script("odd", "--linger")) as server:
        pid = value_of(await call(server, "told"))["pid"]
        grandchild = int(text_of(await call(server, "spawn")))
        assert is_alive(pid)
        assert is_alive(grandchild)
    assert not is_alive(pid)
    await wait_until_gone(grandchild)
    with pytest.raises(McpError, match="was stopped"):
        await call(server, "echo")


async def test_a_grandchild_does_not_outlive_a_server_that_died() -> None:
    received = RecordedEvents()
    async with open_ready(script("odd"), received=received) as server:
        grandchild = int(text_of(await call(server, "spawn")))
        with pytest.raises(McpError, match="exit code 3"):
            await call(server, "die")
        await received.until(lambda: len(received.ups) == 2)
        await wait_until_gone(grandchild)


async def test_a_child_has_only_the_variables_that_were_listed_and_harmless_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-87: secrets of the one who starts a server are none of the server's business."""
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("LANG", "() { echo code; }")
    for name in (*CERTIFICATES, *PROXIES):
        monkeypatch.delenv(name, raising=False)
    async with open_ready(script("odd", env={"LISTED": "yes"})) as server:
        answer = value_of(await call(server, "told"))
    assert answer["env"]["LISTED"] == "yes"
    assert "SECRET_TOKEN" not in answer["env"]
    assert "LANG" not in answer["env"]
    allowed = {
        "HOME",
        "LC_ALL",
        "LC_CTYPE",
        "LISTED",
        "LOGNAME",
        "MOOT_STARTED_BY",
        "PATH",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
    }
    assert set(answer["env"]) <= allowed


async def test_stderr_is_kept_in_memory_and_in_a_file_and_both_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "odd.log"
    async with open_ready(replace(script("odd"), stderr_file=file)) as server:
        await call(server, "flood_stderr", {"count": 50})
        with pytest.raises(McpError):
            await call(server, "die")
        lines = server.stderr.last_lines(1_000)
    assert lines[-1] == "last words on stderr"
    assert sum(map(len, lines)) <= 64 << 10
    assert file.read_bytes().endswith(b"last words on stderr\n")
    assert file.stat().st_size <= 1 << 20
    assert (tmp_path / "logs" / "odd.log.1").stat().st_size <= 1 << 20


async def test_leaving_a_session_over_http_does_not_wait_for_a_server_that_has_stopped_answering() -> None:
    """The SDK ends a session with a DELETE; without a bound of ours it would wait for the answer for ever."""
    asked_to_end, over = asyncio.Event(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while (head := (await reader.readuntil(b"\r\n\r\n")).decode().lower()).startswith("post"):
                body = json.loads(
                    await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
                )
                writer.write(_answer_in_a_session(body))
            if head.startswith("delete"):
                asked_to_end.set()
            await over.wait()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        async with bounded(), open_ready(HttpServer(url=url)):
            pass
        assert asked_to_end.is_set()
    finally:
        over.set()
        server.close()


@pytest.mark.parametrize("version", ["0.1.0", None, 7])
async def test_a_server_that_names_no_version_of_mcp_is_spoken_to_in_the_oldest(version: object) -> None:
    """As example servers do. A date that is not known is still no agreement."""
    server = script("names_a_version", json.dumps(version))
    async with bounded(), open_ready(server) as upstream:
        assert (await upstream.wait_until_ready()).version == "2024-11-05"


async def test_a_version_from_the_future_is_no_agreement() -> None:
    server = script("names_a_version", '"2031-01-01"')
    async with bounded(), open_upstream(server, UpstreamOptions(), UpstreamCallbacks()) as upstream:
        with pytest.raises(StartFailed, match="wants protocol version '2031-01-01'"):
            await upstream.wait_until_ready()


def _answer_in_a_session(asked: JsonObject) -> bytes:
    """What a small server over HTTP says to `initialize`, and to nothing else."""
    if "id" not in asked:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    answer: JsonObject = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        info = {"name": "small", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
    else:
        answer["error"] = {"code": -32601, "message": "not known here"}
    text = json.dumps(answer).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s1\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
