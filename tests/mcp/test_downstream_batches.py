"""Batches of 2025-03-26: that version says that a server MUST take them, no other version has them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from moot.mcp.downstream.http_access import HttpAccessDenied
from moot.mcp.downstream.rpc import Message, RpcRequest
from tests.mcp.example_http_server import ServedExample
from tests.mcp.test_downstream_http import HELLO, TYPES, body, events, http
from tests.mcp.test_downstream_stdio import pipes

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(id: Any, tool: str = "echo") -> dict[str, Any]:
    return body("tools/call", {"name": tool, "arguments": {"text": str(id)}}, id=id)


async def opened_as(version: str, example: ServedExample, client: httpx.AsyncClient) -> dict[str, str]:
    hello = body("initialize", HELLO | {"protocolVersion": version})
    answer = await client.post(example.url, json=hello, headers=TYPES)
    assert answer.json()["result"]["protocolVersion"] == version
    return TYPES | {"mcp-session-id": answer.headers["mcp-session-id"]}


async def test_a_batch_over_http_is_answered_in_one_stream() -> None:
    async with http() as (example, client):
        headers = await opened_as("2025-03-26", example, client)
        answer = await client.post(example.url, json=[INITIALIZED], headers=headers)
        assert answer.status_code == 202
        batch = [call("a"), INITIALIZED, call("b", "fail"), body("ping", id=3)]
        async with client.stream("POST", example.url, json=batch, headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream"
            # A first event without data, then one for each request; the stream ends by itself.
            answers = [json.loads(each["data"]) for each in (await events(response, 99))[1:]]
        by_id = {each["id"]: each for each in answers}
        assert len(answers) == 3
        assert by_id["a"]["result"]["content"][0]["text"] == "a"
        assert by_id["b"]["error"]["code"] == -32050
        assert by_id[3]["result"] == {}
        # One request alone is answered as it would be without a batch.
        answer = await client.post(example.url, json=[call("c")], headers=headers)
        assert answer.json()["id"] == "c"


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [call(1), call(1)],
        [call(1), {"jsonrpc": "2.0"}],
        [call(1), [call(2)]],
        [call(1), body("initialize", HELLO, id=2)],
        [call(id) for id in range(5)],
    ],
)
async def test_nothing_of_a_batch_with_a_fault_runs(
    batch: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`max_batch_messages`."""
    monkeypatch.setattr("moot.mcp.downstream.rpc.MAX_BATCH_MESSAGES", 4)
    async with http() as (example, client):
        headers = await opened_as("2025-03-26", example, client)
        requests = example.server.counts.requests
        answer = await client.post(example.url, json=batch, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
        assert example.server.counts.requests == requests


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_other_versions_have_no_batches(version: str) -> None:
    async with http() as (example, client):
        headers = await opened_as(version, example, client)
        answer = await client.post(example.url, json=[call(1)], headers=headers)
        assert answer.status_code == 400
        assert "send messages one by one" in answer.text


async def test_a_message_of_a_batch_that_is_not_allowed_stops_all_of_it() -> None:
    """As with scopes of a token, see `moot.bridges.people`."""

    def check(_scope: Any, message: Message) -> None:
        if isinstance(message, RpcRequest) and message.id == "b":
            raise HttpAccessDenied(403, "not with this token")

    async with http() as (example, client):
        headers = await opened_as("2025-03-26", example, client)
        example.http._check = check
        requests = example.server.counts.requests
        answer = await client.post(example.url, json=[call("a"), call("b")], headers=headers)
        assert answer.status_code == 403
        assert example.server.counts.requests == requests


async def test_a_batch_over_pipes_is_answered_one_by_one() -> None:
    async with pipes() as client:
        client.say(json.dumps([call(1)]).encode())
        assert "send messages one by one" in (await client.hear())["error"]["message"]
        await client.ask("initialize", HELLO | {"protocolVersion": "2025-03-26"})
        client.say(json.dumps([INITIALIZED, call("a"), call("b", "fail")]).encode())
        answers = {each["id"]: each for each in [await client.hear(), await client.hear()]}
        assert answers["a"]["result"]["content"][0]["text"] == "a"
        assert answers["b"]["error"]["code"] == -32050
