"""JSON-RPC with a server, message by message, as servers that are not careful write it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moot.mcp.eras import JsonObject
from moot.mcp.upstream.connection import RpcConnection, ServerRequest
from moot.mcp.upstream.transport import TransportName
from moot.protocol.operation import Json
from moot.protocol.strict_json import parse


class RecordedMessages:
    """A transport that keeps what is sent, and a handler that keeps what belongs to no exchange."""

    name: TransportName = "stdio"
    refusal = None

    def __init__(self) -> None:
        self.sent: list[JsonObject] = []
        self.requests: list[ServerRequest] = []
        self.cancelled: list[Json] = []
        self.invalid: list[str] = []

    def send(self, message: JsonObject, headers: Mapping[str, str] | None = None) -> None:
        self.sent.append(message)

    def pause_reading(self, seconds: float) -> None: ...

    def on_request(self, connection: RpcConnection, request: ServerRequest) -> None:
        self.requests.append(request)

    def on_request_cancelled(self, request_id: Json) -> None:
        self.cancelled.append(request_id)

    def on_notification(self, method: str, params: JsonObject) -> None: ...

    def on_invalid_message(self, fault: str) -> None:
        self.invalid.append(fault)


def connected() -> tuple[RecordedMessages, RpcConnection]:
    recorded = RecordedMessages()
    connection = RpcConnection(recorded)
    connection.bind(recorded)
    return recorded, connection


@pytest.mark.parametrize("id", ["1", "1.0", '"1"', "1e0"])
async def test_a_response_counts_however_its_number_is_written(id: str) -> None:
    _, connection = connected()
    exchange = connection.start("tools/list", {})
    connection.on_message(parse(b'{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}' % id.encode()))
    assert exchange.outcome.done()
    assert await exchange.outcome == {"tools": []}


@pytest.mark.parametrize("id", [True, 1.5, None, "one", [1], 1e300])
async def test_a_response_with_another_id_is_no_response(id: Json) -> None:
    recorded, connection = connected()
    exchange = connection.start("tools/list", {})
    connection.on_message({"jsonrpc": "2.0", "id": id, "result": {}})
    assert not exchange.outcome.done()
    assert recorded.invalid == ["a response to no request"]


async def test_an_error_that_is_null_is_none() -> None:
    _, connection = connected()
    exchange = connection.start("tools/list", {})
    connection.on_message({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}, "error": None})
    assert await exchange.outcome == {"tools": []}


async def test_a_request_of_the_server_has_a_whole_number_as_id() -> None:
    recorded, connection = connected()
    connection.on_message({"jsonrpc": "2.0", "id": 7.0, "method": "roots/list"})
    connection.on_message(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7.0}}
    )
    connection.on_message({"jsonrpc": "2.0", "id": True, "method": "roots/list"})
    (request,) = recorded.requests
    assert (repr(request.id), repr(recorded.cancelled)) == ("7", "[7]")
    assert recorded.invalid == ["a request whose id is neither a string nor a number"]
