"""The server over HTTP as bytes: who is let in, which era it is, what streams carry and how they go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from moot.mcp.downstream.backend import ListChanged
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.rpc import RpcRequest
from moot.mcp.downstream.running_requests import RunningRequests
from tests.mcp.example_http_server import ServedExample, serve_example
from tests.waiting import HANG_SECONDS, until

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
TYPES = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def body(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def stateless(method: str, params: Any = None, /, **headers: str) -> dict[str, Any]:
    """What httpx needs to post a stateless request."""
    params = params or {}
    answer = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    named = params.get("name") or params.get("uri")
    if named:
        answer["mcp-name"] = named
    return {"json": body(method, {**params, "_meta": dict(META)}), "headers": TYPES | answer | headers}


@asynccontextmanager
async def http(
    limits: McpServerLimits | None = None, **more: Any
) -> AsyncIterator[tuple[ServedExample, httpx.AsyncClient]]:
    async with serve_example(limits, **more) as example, httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        yield example, client


async def opened(example: ServedExample, client: httpx.AsyncClient) -> dict[str, str]:
    """Shake hands; the headers of a session."""
    answer = await client.post(example.url, json=body("initialize", HELLO), headers=TYPES)
    assert answer.status_code == 200
    headers = TYPES | {
        "mcp-session-id": answer.headers["mcp-session-id"],
        "mcp-protocol-version": "2025-11-25",
    }
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await client.post(example.url, json=done, headers=headers)).status_code == 202
    return headers


async def events(response: httpx.Response, count: int) -> list[dict[str, str]]:
    """The next events of a stream."""
    found: list[dict[str, str]] = []
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            if set(event) != {""}:
                found.append(event)
            event = {}
            if len(found) == count:
                break
    return found


# Who is let in (D-84)


STRANGERS: list[tuple[dict[str, str], int]] = [
    ({"host": "evil.example:1"}, 421),
    ({"host": "127.0.0.1"}, 421),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"content-type": "text/plain"}, 415),
    ({"accept": "application/json"}, 406),
    ({"accept": "text/html"}, 406),
    ({"accept": "*/*"}, 200),
    ({"accept": "application/*, text/*;q=0.5"}, 200),
]


async def test_strangers_are_turned_away_before_anything_is_read() -> None:
    async with http() as (example, client):
        for headers, status in STRANGERS:
            answer = await client.post(example.url, **stateless("tools/list", **headers))
            assert answer.status_code == status, headers
            assert status == 200 or answer.json()["error"]["code"] == -32600


async def test_our_own_pages_and_loopback_names_are_let_in() -> None:
    async with http() as (example, client):
        for host in (f"127.0.0.1:{example.port}", f"localhost:{example.port}", f"[::1]:{example.port}"):
            both = {"host": host, "origin": f"http://{host}"}
            assert (await client.post(example.url, **stateless("tools/list", **both))).status_code == 200


async def test_a_token_is_asked_for_and_compared() -> None:
    async with http(token="a-token-of-some-length") as (example, client):
        for header, status in (
            (None, 401),
            ("Bearer wrong", 401),
            ("Basic a-token-of-some-length", 401),
            ("Bearer a-token-of-some-length", 200),
            ("bearer a-token-of-some-length", 200),
        ):
            headers = {} if header is None else {"authorization": header}
            answer = await client.post(example.url, **stateless("tools/list", **headers))
            assert answer.status_code == status
            assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)
        assert (await client.get(example.url.replace("/mcp", "/sse"))).status_code == 401


async def test_a_body_has_a_limit_whether_or_not_it_says_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.rpc.MESSAGE_BYTES", 1000)
    async with http() as (example, client):
        long = b" " * 1001

        async def dripping() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b" " * 100

        for content in (long, dripping()):
            answer = await client.post(example.url, content=content, headers=TYPES)
            assert answer.status_code == 413


ELSEWHERE = [
    ("GET", "/", 404),
    ("POST", "/other", 404),
    ("PUT", "/mcp", 405),
    ("OPTIONS", "/mcp", 405),
    ("POST", "/sse", 404),
    ("GET", "/messages", 404),
    ("POST", "/messages?session_id=x", 404),
]


async def test_there_is_nothing_else_here() -> None:
    async with http() as (example, client):
        for method, path, status in ELSEWHERE:
            url = f"http://127.0.0.1:{example.port}{path}"
            answer = await client.request(method, url, headers=TYPES, content=b"{}")
            assert answer.status_code == status, (method, path)


# The stateless era


ERRORS: list[tuple[str, dict[str, Any], dict[str, str], int | None, int]] = [
    ("tools/list", {}, {"mcp-protocol-version": "2025-11-25"}, -32020, 400),
    ("tools/list", {}, {"mcp-method": "tools/call"}, -32020, 400),
    ("tools/list", {}, {"mcp-method": ""}, -32020, 400),
    ("tools/call", {"name": "echo"}, {"mcp-name": "fail"}, -32020, 400),
    ("tools/call", {"name": "echo"}, {"mcp-name": "=?base64?!?="}, -32020, 400),
    ("tools/call", {"name": "echo"}, {"mcp-name": "=?base64?ZWNobw==?="}, None, 200),
    ("resources/read", {"uri": "note://one"}, {"mcp-name": "note://two"}, -32020, 400),
    ("tools/burn", {}, {}, -32601, 404),
    ("tools/call", {"name": "fail"}, {}, -32050, 200),
    ("tools/call", {"name": "ask_name"}, {}, -32021, 400),
    ("resources/read", {"uri": "gone://x"}, {}, -32602, 400),
]


async def test_headers_repeat_the_body_and_errors_have_a_status() -> None:
    async with http() as (example, client):
        for method, params, headers, code, status in ERRORS:
            answer = await client.post(example.url, **stateless(method, params, **headers))
            assert answer.status_code == status, (method, headers)
            assert answer.headers["content-type"] == "application/json"
            assert "mcp-session-id" not in answer.headers
            assert answer.json()["id"] == 1
            assert answer.json().get("error", {}).get("code") == code


async def test_a_missing_or_doubled_header_is_a_mismatch() -> None:
    async with http() as (example, client):
        post = stateless("tools/list")
        del post["headers"]["mcp-protocol-version"]
        assert (await client.post(example.url, **post)).json()["error"]["code"] == -32020
        post = stateless("tools/list")
        post["headers"] = [*post["headers"].items(), ("mcp-method", "tools/list")]
        assert (await client.post(example.url, **post)).json()["error"]["code"] == -32020


async def test_an_unknown_version_is_told_what_is_spoken_here() -> None:
    async with http() as (example, client):
        meta = META | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
        headers = TYPES | {"mcp-protocol-version": "2099-01-01", "mcp-method": "server/discover"}
        answer = await client.post(
            example.url, json=body("server/discover", {"_meta": meta}), headers=headers
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await client.post(example.url, json=note, headers=headers)).status_code == 400
        headers["mcp-protocol-version"] = "2026-07-28"
        assert (await client.post(example.url, json=note, headers=headers)).status_code == 202
        response = {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert (await client.post(example.url, json=response, headers=headers)).status_code == 400
        for method in ("GET", "DELETE"):
            assert (await client.request(method, example.url, headers=headers)).status_code == 405


async def test_arguments_that_a_tool_wants_repeated_as_headers_are_compared() -> None:
    async with http() as (example, client):
        params = {"name": "routed", "arguments": {"region": "eu"}}
        for headers, code in (
            ({"mcp-param-region": "eu"}, None),
            ({"mcp-param-region": "=?base64?ZXU=?="}, None),
            ({"mcp-param-region": "us"}, -32020),
            ({}, -32020),
        ):
            answer = await client.post(example.url, **stateless("tools/call", params, **headers))
            assert answer.json().get("error", {}).get("code") == code


async def test_discovery_says_what_is_here_and_how_long_that_is_good() -> None:
    async with http() as (example, client):
        result = (await client.post(example.url, **stateless("server/discover"))).json()["result"]
        assert result["supportedVersions"] == ["2026-07-28"]
        assert result["instructions"] == "Ask for anything."
        assert result["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "shop"
        for method, params in (("tools/list", {}), ("resources/read", {"uri": "note://one"})):
            made = (await client.post(example.url, **stateless(method, params))).json()["result"]
            assert (made["resultType"], made["ttlMs"], made["cacheScope"]) == ("complete", 0, "private")


async def test_what_happens_on_the_way_makes_a_stream_and_a_stream_carries_no_ids() -> None:
    async with http() as (example, client):
        post = stateless("tools/call", {"name": "shout"})
        post["json"]["params"]["_meta"] = META | {"progressToken": 7}
        answer = await client.post(example.url, **post)
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"
        data = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        messages = [json.loads(line.removeprefix("data: ")) for line in data]
        assert [each.get("method", "response") for each in messages] == ["notifications/progress"] * 2 + [
            "response"
        ]
        assert messages[0]["params"]["x-vendor"] == 1
        assert "id: " not in answer.text


async def test_hanging_up_cancels_and_a_long_silence_becomes_a_stream_that_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.downstream.response_streams.KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.05)
    async with http() as (example, client):
        async with client.stream(
            "POST", example.url, **stateless("tools/call", {"name": "hang"})
        ) as response:
            assert response.headers["content-type"] == "text/event-stream"
            async for line in response.aiter_lines():
                assert line == ": still here"
                break
        await example.backend.until(lambda: example.backend.given_up == 1)


# The handshake era


async def test_a_session_is_opened_used_and_ended() -> None:
    async with http() as (example, client):
        headers = await opened(example, client)
        assert (await client.post(example.url, json=body("tools/list"), headers=headers)).status_code == 200
        assert (await client.request("DELETE", example.url, headers=headers)).status_code == 200
        gone = await client.post(example.url, json=body("tools/list"), headers=headers)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, -32600)
        assert (await client.post(example.url, json=body("tools/list"), headers=TYPES)).status_code == 400
        assert len(example.http.sessions) == 0


async def test_a_tool_that_requires_tasks_of_2025_11_25_is_listed_as_one_that_can_be_called() -> None:
    """The SDKs' clients refuse to call it otherwise, and we have no such tasks."""
    execution = {"taskSupport": "required", "vendor": 1}
    async with http() as (example, client):
        example.backend.tools = [{"name": "long", "inputSchema": {"type": "object"}, "execution": execution}]
        headers = await opened(example, client)
        answer = await client.post(example.url, json=body("tools/list"), headers=headers)
        (tool,) = answer.json()["result"]["tools"]
        assert tool["execution"] == {"vendor": 1}


async def test_a_handshake_that_fails_leaves_no_session() -> None:
    async with http() as (example, client):
        answer = await client.post(example.url, json=body("initialize", {}), headers=TYPES)
        assert answer.json()["error"]["code"] == -32602
        assert len(example.http.sessions) == 0


async def test_sessions_have_a_limit_and_the_one_that_was_idle_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`max_sessions`. Many clients never send a DELETE."""
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.01)
    async with http(McpServerLimits(max_sessions=2)) as (example, client):
        first = await opened(example, client)
        second = await opened(example, client)
        ping = body("ping", id="p")
        assert (await client.post(example.url, json=ping, headers=first)).status_code == 200
        third = await opened(example, client)
        assert (await client.post(example.url, json=ping, headers=second)).status_code == 404
        assert (await client.post(example.url, json=ping, headers=first)).status_code == 200
        # Sessions at work stay: a call runs in one, the other listens.
        hang = body("tools/call", {"name": "hang"}, id="h")
        async with (
            client.stream("POST", example.url, json=hang, headers=first),
            client.stream("GET", example.url, headers=third),
        ):
            answer = await client.post(example.url, json=body("initialize", HELLO), headers=TYPES)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
            assert len(example.http.sessions) == 2


async def test_a_session_with_a_result_that_nobody_got_makes_room_last() -> None:
    """It may be the only word on what was done."""
    async with http(McpServerLimits(max_sessions=2)) as (example, client):
        first, second = [await opened(example, client) for _ in range(2)]
        session = example.http.sessions.get(first["mcp-session-id"])
        assert session is not None
        stream = session.open("c")
        # The client was told an event id, and lost its connection.
        stream.begin_ids()
        session.receive_message(RpcRequest("c", "ping", {}))
        await until(lambda: stream.is_awaited)
        ping = body("ping", id="p")
        assert (await client.post(example.url, json=ping, headers=second)).status_code == 200
        await opened(example, client)
        assert (await client.post(example.url, json=ping, headers=second)).status_code == 404
        assert example.http.sessions.get(first["mcp-session-id"]) is session


async def test_a_session_that_nobody_uses_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http() as (example, client):
        await opened(example, client)
        # As if it had been idle for long enough.
        monkeypatch.setattr("moot.mcp.downstream.sessions.SESSION_SECONDS", 1e-9)
        await opened(example, client)
        assert len(example.http.sessions) == 1


async def test_an_id_that_is_being_answered_is_refused_and_cancelling_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.01)
    async with http() as (example, client):
        headers = await opened(example, client)
        hang = body("tools/call", {"name": "hang"}, id="h")
        async with client.stream("POST", example.url, json=hang, headers=headers) as response:
            assert (await client.post(example.url, json=hang, headers=headers)).status_code == 400
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "h"}}
            await client.post(example.url, json=note, headers=headers)
            _priming, last = await events(response, 2)
            assert json.loads(last["data"])["error"]["code"] == -32800
        assert (await client.post(example.url, json=body("ping", id="h"), headers=headers)).status_code == 200


async def test_an_answer_after_a_long_silence_is_sent_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.01)
    async with http() as (example, client):
        headers = await opened(example, client)
        call = body("tools/call", {"name": "decide"}, id="d")
        # Its headers are here, so it is a stream, in which nothing has come yet.
        async with client.stream("POST", example.url, json=call, headers=headers) as response:
            await example.backend.until(lambda: example.backend.decisions)
            example.backend.decisions[0].approve()
            assert (await response.aread()).count(b"done as agreed") == 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_lost_its_stream_reads_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MCP 2025-11-25: a first event without data gives an id to come back with."""
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.01)
    async with http() as (example, client):
        headers = await opened(example, client)
        call = body("tools/call", {"name": "decide"}, id="d")
        async with client.stream("POST", example.url, json=call, headers=headers) as response:
            (priming,) = await events(response, 1)
            assert (priming["data"], priming["retry"]) == ("", "1000")
        await example.backend.until(lambda: example.backend.decisions)
        # The connection is gone, the call is not: hanging up is no cancelling in this era.
        example.backend.decisions[0].approve()
        again = headers | {"last-event-id": priming["id"]}
        async with client.stream("GET", example.url, headers=again) as response:
            _, answer = await events(response, 2)
            assert json.loads(answer["data"])["result"]["content"][0]["text"] == "done as agreed"
        async with client.stream(
            "GET", example.url, headers=headers | {"last-event-id": answer["id"]}
        ) as rest:
            assert [each["data"] for each in await events(rest, 9)] == [""]
        for nonsense in ("x", "99-1", "1-x", "", "0-" + "9" * 4500):
            answered = await client.get(example.url, headers=headers | {"last-event-id": nonsense})
            # 404 would say that the session has ended.
            assert answered.status_code == 400
            assert "what became of the request is not known" in answered.text


async def test_a_result_that_was_not_sent_is_kept_longer_than_those_that_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`max_kept_streams`."""
    monkeypatch.setattr("moot.mcp.downstream.sessions.MAX_KEPT_STREAMS", 3)
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.01)
    async with http() as (example, client):
        headers = await opened(example, client)
        call = body("tools/call", {"name": "decide"}, id="d")
        async with client.stream("POST", example.url, json=call, headers=headers) as response:
            (priming,) = await events(response, 1)
        await example.backend.until(lambda: example.backend.decisions)
        (session,) = [example.http.sessions.get(headers["mcp-session-id"])]
        assert session is not None
        await until(lambda: session.open_responses == 0)
        example.backend.decisions[0].approve()
        await until(lambda: "d" not in session.pending_ids)
        for id in range(10):
            await client.post(example.url, json=body("ping", id=id), headers=headers)
        again = headers | {"last-event-id": priming["id"]}
        async with client.stream("GET", example.url, headers=again) as response:
            _, answer = await events(response, 2)
            assert json.loads(answer["data"])["result"]["content"][0]["text"] == "done as agreed"
        await until(lambda: session.open_responses == 0)
        # Now it was sent, and goes with the others.
        for id in range(10):
            await client.post(example.url, json=body("ping", id=id), headers=headers)
        assert (await client.get(example.url, headers=again)).status_code == 400


async def test_true_is_no_request_id_to_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.response_streams.SILENCE_SECONDS", 0.01)
    async with http() as (example, client):
        headers = await opened(example, client)
        hang = body("tools/call", {"name": "hang"}, id=1)
        async with client.stream("POST", example.url, json=hang, headers=headers) as response:
            for id, answered in ((True, False), (1, True)):
                params = {"requestId": id}
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                await client.post(example.url, json=note, headers=headers)
                # The next request is answered after whatever the notification did.
                await client.post(example.url, json=body("ping", id="p"), headers=headers)
                assert (example.backend.given_up == 1) is answered
            await events(response, 2)


async def test_what_the_server_says_at_large_waits_for_a_reader_and_the_newest_reader_gets_it() -> None:
    async with http() as (example, client):
        headers = await opened(example, client)
        example.backend.tell(ListChanged("tools"))
        async with client.stream("GET", example.url, headers=headers) as first:
            _, received = await events(first, 2)
            assert json.loads(received["data"])["method"] == "notifications/tools/list_changed"
            async with client.stream("GET", example.url, headers=headers) as second:
                example.backend.tell(ListChanged("prompts"))
                _, received = await events(second, 2)
                assert json.loads(received["data"])["method"] == "notifications/prompts/list_changed"
        assert (await client.get(example.url, headers=headers | {"accept": "text/html"})).status_code == 406


async def test_what_nobody_reads_is_kept_up_to_a_number_and_the_newest_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.mcp.downstream.rpc.UNREAD_BYTES", 2_000)
    monkeypatch.setattr("moot.mcp.downstream.response_streams.MAX_KEPT_EVENTS", 5)
    async with http() as (example, client):
        headers = await opened(example, client)
        for _ in range(500):
            example.backend.tell(ListChanged("tools"))
        example.backend.tell(ListChanged("prompts"))
        async with client.stream("GET", example.url, headers=headers) as response:
            received = await events(response, 6)
            assert "prompts/list_changed" in received[-1]["data"]


async def test_what_is_no_message_is_answered_with_what_is_wrong() -> None:
    async with http() as (example, client):
        for content, code in ((b"nonsense", -32700), (b"[]", -32600), (b'{"jsonrpc":"2.0"}', -32600)):
            answer = await client.post(example.url, content=content, headers=TYPES)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
            assert answer.json()["id"] is None


async def test_a_request_id_is_the_same_number_with_a_point() -> None:
    async with http() as (example, client):
        headers = await opened(example, client)
        for id, answered in (("1.0", 1), ("2e0", 2)):
            content = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % id.encode()
            answer = await client.post(example.url, content=content, headers=headers)
            assert (answer.status_code, answer.json()["id"]) == (200, answered)
        for id in ("1.5", "1e300", "true", "null"):
            content = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % id.encode()
            assert (await client.post(example.url, content=content, headers=headers)).status_code == 400


async def test_what_a_client_accepts_may_be_on_several_lines() -> None:
    """RFC 9110 5.3."""
    async with http() as (example, client):
        accepts = [("accept", "application/json"), ("accept", "text/event-stream")]
        for lines, status in ((accepts, 200), (accepts[::-1], 200), (accepts[:1] * 2, 406)):
            headers = [("content-type", "application/json"), *lines]
            answer = await client.post(example.url, json=body("initialize", HELLO), headers=headers)
            assert answer.status_code == status


async def test_closing_the_face_ends_every_stream() -> None:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        async with serve_example() as example:
            headers = await opened(example, client)
            reading = asyncio.create_task(client.get(example.url, headers=headers))
            listening = asyncio.create_task(
                client.post(example.url, **stateless("subscriptions/listen", {"notifications": {}}))
            )
            await example.backend.until(lambda: example.backend.listeners == 2)
        done = await asyncio.gather(reading, listening, return_exceptions=True)
        assert len(done) == 2


async def test_a_request_that_the_servers_end_takes_before_it_began_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that is cancelled before its first step runs nothing, not even what tells the client."""
    async with http() as (example, client):
        server = example.server
        spawn = server.spawn

        def spawn_and_end(work: Any) -> Any:
            task = spawn(work)
            server.is_ending = True
            task.cancel()
            return task

        monkeypatch.setattr(server, "spawn", spawn_and_end)
        for expected in ("what became of the request is not known", "nothing was done"):
            answer = await client.post(example.url, **stateless("tools/list"))
            assert expected in answer.json()["error"]["message"]
        server.is_ending = False


async def test_a_request_that_is_cancelled_before_it_began_has_an_end() -> None:
    replies: list[Any] = []

    async def answer() -> dict[str, Any]:
        return {}

    async with http() as (example, _):
        running = RunningRequests(example.server.spawn, example.server.counts, max_requests=1)
        running.start(RpcRequest(1, "ping", {}), answer(), replies.append)
        running.cancel(1)
        await until(lambda: replies)
        assert (replies, len(running)) == ([None], 0)
