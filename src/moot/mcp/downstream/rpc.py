"""JSON-RPC 2.0 as MCP uses it: one object a message, an id is a string or an integer and never null.
One version, 2025-03-26, has batches.

Values stay plain JSON from end to end, so unknown fields are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moot.errors import InvalidJson, McpError
from moot.mcp.eras import JsonObject
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_REQUEST, PARSE_ERROR

# Messages of one batch (2025-03-26).
MAX_BATCH_MESSAGES: Final = 64
# One message from a client: values of 32 MiB, and what JSON and base64 add to them.
MESSAGE_BYTES: Final = 48 << 20
# Bytes that a client has not read, before its stream is given up: some results of that size.
UNREAD_BYTES: Final = 128 << 20

RequestId = str | int

# Outside the range that JSON-RPC and MCP reserve, as MCP requires of custom codes.
NOT_ALLOWED: Final = -31003
NOT_DONE: Final = -31009
# What the SDKs answer on HTTP for a request that its client cancelled: the stream has to end with a response.
CANCELLED: Final = -32800
MISSING_CAPABILITY: Final = -32021
# Handshake era for "no such resource"; the stateless era uses invalid params.
RESOURCE_NOT_FOUND: Final = -32002

# Up to here every whole number is a float of its own.
_MAX_EXACT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class RpcRequest:
    id: RequestId
    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class RpcNotification:
    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class RpcResponse:
    """The client's response to a request of ours; exactly one of `result` and `error` is set."""

    id: RequestId
    result: JsonObject | None
    error: JsonObject | None


Message = RpcRequest | RpcNotification | RpcResponse


class InvalidRpcMessage(McpError):
    """Not a JSON-RPC message; `id` is the id to answer under, if it could be read."""

    def __init__(self, code: int, message: str, id: RequestId | None = None) -> None:
        super().__init__(code, message)
        self.id = id


def parse_message(raw: bytes) -> Message:
    """Parse one message; raises InvalidRpcMessage."""
    return message_of(parse_value(raw))


def parse_value(raw: bytes) -> Json:
    """Parse what is a message or a batch; raises InvalidRpcMessage."""
    try:
        return strict_json.parse(raw)
    except InvalidJson as fault:
        raise InvalidRpcMessage(PARSE_ERROR, f"Parse error: {fault.message}") from None


def batch_of(values: list[Json]) -> list[Message]:
    """The messages of a batch, all or none; raises InvalidRpcMessage.

    Only 2025-03-26 has batches. An id may come once, and `initialize` stands alone there.
    """
    if not 0 < len(values) <= MAX_BATCH_MESSAGES:
        raise InvalidRpcMessage(
            INVALID_REQUEST, f"Invalid request: a batch has 1 to {MAX_BATCH_MESSAGES} messages"
        )
    messages = [message_of(value) for value in values]
    requests = [message for message in messages if isinstance(message, RpcRequest)]
    if any(request.method == "initialize" for request in requests):
        raise InvalidRpcMessage(INVALID_REQUEST, "Invalid request: initialize is not part of a batch")
    if len({request.id for request in requests}) < len(requests):
        raise InvalidRpcMessage(INVALID_REQUEST, "Invalid request: two requests of a batch have the same id")
    return messages


def message_of(value: Json) -> Message:
    """The message that a JSON value is; raises InvalidRpcMessage."""
    if value.__class__ is not dict:
        what = "a batch: send messages one by one" if value.__class__ is list else "not an object"
        raise InvalidRpcMessage(INVALID_REQUEST, f"Invalid request: {what}")
    known = id_of(value.get("id"))
    if value.get("jsonrpc") != "2.0":
        raise InvalidRpcMessage(INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"', known)
    method = value.get("method")
    if method is None:
        return _response(value, known)
    if method.__class__ is not str or not method:
        raise InvalidRpcMessage(INVALID_REQUEST, 'Invalid request: "method" must be a string', known)
    params = value.get("params")
    if params is None:
        params = {}
    elif params.__class__ is not dict:
        raise InvalidRpcMessage(INVALID_REQUEST, 'Invalid request: "params" must be an object', known)
    if "id" not in value:
        return RpcNotification(method, params)
    if known is None:
        raise InvalidRpcMessage(INVALID_REQUEST, 'Invalid request: "id" must be a string or an integer')
    return RpcRequest(known, method, params)


def _response(value: JsonObject, id: RequestId | None) -> RpcResponse:
    result, error = value.get("result"), value.get("error")
    if id is None or (result is None) == (error is None):
        raise InvalidRpcMessage(
            INVALID_REQUEST, "Invalid request: neither a method nor a response to one", id
        )
    if (result if error is None else error).__class__ is not dict:
        raise InvalidRpcMessage(INVALID_REQUEST, "Invalid request: a result or an error is an object", id)
    return RpcResponse(id, result, error)


def id_of(value: Json) -> RequestId | None:
    """The id that a JSON value is, if it is one. `true` is none, though Python takes it for 1.

    Some languages know only floats and write 1.0: that is the same number. Above 2**53 it may not be.
    """
    if value.__class__ is float and value.is_integer() and abs(value) <= _MAX_EXACT:
        return int(value)
    return value if value.__class__ is str or value.__class__ is int else None


def result_of(id: RequestId, result: Mapping[str, Json]) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_of(id: RequestId | None, fault: McpError) -> JsonObject:
    error: JsonObject = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def request_of(id: RequestId, method: str, params: Mapping[str, Json]) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification_of(method: str, params: Mapping[str, Json] | None = None) -> JsonObject:
    message: JsonObject = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return message
