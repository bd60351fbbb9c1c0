"""A client of the handshake era (2024-11-05 to 2025-11-25): `initialize`, a session, requests both ways.

    session = HandshakeSession(server, running, send)
    session.receive_message(message)        # never waits; answers go out through `send(message, about)`

`about` is the id of the request that a message belongs to, or None: over HTTP they use different streams.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import Final, Literal

from moot.errors import McpError
from moot.mcp.downstream.backend import Change, ListChanged
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.rpc import (
    CANCELLED,
    NOT_DONE,
    Message,
    RequestId,
    RpcNotification,
    RpcRequest,
    RpcResponse,
    error_of,
    id_of,
    notification_of,
    request_of,
    result_of,
)
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.downstream.stateless import MAX_SUBSCRIPTIONS
from moot.mcp.eras import BATCH_VERSION, HANDSHAKE_VERSION, HANDSHAKE_VERSIONS, LOG_LEVELS, JsonObject
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

# A request to a handshake client (elicitation, sampling, roots): people think.
ASK_SECONDS: Final = 600.0

Send = Callable[[JsonObject, RequestId | None], None]

_INITIALIZE_FIRST: Final = (
    "send initialize first (2025-11-25 and before), or carry the protocol version and client capabilities in "
    "params._meta (2026-07-28)"
)


# The name that Python's SDK gives unless its user chooses one. Its versions before 2 do not cancel a request
# whose time is up.
_SILENT_CLIENT: Final = "mcp"
_TIMEOUT: Final = re.compile(r"time[sd]?[ _-]?out|deadline", re.IGNORECASE)


class HandshakeSession:
    """One client, from `initialize` to the end of its connection."""

    def __init__(
        self,
        server: McpServer,
        running: RunningRequests,
        send: Send,
        *,
        always_answers: bool = False,
        is_read: Callable[[RequestId], bool] = lambda _id: True,
    ) -> None:
        """`is_read`: whether an answer to this request would reach its client now."""
        self._server = server
        self.is_read = is_read
        # Over HTTP a stream ends with a response, even if the request was cancelled.
        self._always_answers = always_answers
        self._running = running
        self._send = send
        self._pending: dict[RequestId, asyncio.Future[JsonObject]] = {}
        self._numbers = itertools.count(1)
        self._subscribed: set[str] = set()
        self._unwatch: Callable[[], None] | None = None
        self.version = HANDSHAKE_VERSION
        self.capabilities: JsonObject = {}
        self.may_give_up_silently = False
        self.log_level: str | None = None
        self.initialized = False

    @property
    def takes_batches(self) -> bool:
        return self.initialized and self.version == BATCH_VERSION

    def receive_message(self, message: Message) -> None:
        if isinstance(message, RpcRequest):
            self._request(message)
        elif isinstance(message, RpcNotification):
            self._notification(message)
        else:
            self._response(message)

    def close(self) -> None:
        """The client is gone: cancel its requests and subscriptions."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        self._running.cancel_all()
        for future in self._pending.values():
            future.cancel()
        self._pending.clear()
        if self._subscribed and not self._server.is_ending:
            self._server.spawn(self._unsubscribe_all())

    async def _unsubscribe_all(self) -> None:
        while self._subscribed:
            await self._server.backend.unsubscribe(self._subscribed.pop())

    # From the client

    def _request(self, request: RpcRequest) -> None:
        if request.method == "initialize":
            # At once: a client may send its next request without waiting for the answer.
            self._send(self._initialize(request), request.id)
            return
        if not self.initialized and request.method != "ping":
            self._send(error_of(request.id, McpError(INVALID_PARAMS, _INITIALIZE_FIRST)), request.id)
            return

        def reply(message: JsonObject | None) -> None:
            if message is None and self._always_answers:
                message = error_of(request.id, McpError(CANCELLED, "Request cancelled"))
            if message is not None:
                self._send(message, request.id)

        self._running.start(request, self._answer(request), reply)

    def _initialize(self, request: RpcRequest) -> JsonObject:
        version, capabilities = request.params.get("protocolVersion"), request.params.get("capabilities")
        if not isinstance(version, str) or not isinstance(capabilities, dict):
            why = 'initialize needs "protocolVersion" and "capabilities"'
            return error_of(request.id, McpError(INVALID_PARAMS, why))
        self.version = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSION
        self.capabilities = capabilities
        info: Json = request.params.get("clientInfo")
        self.may_give_up_silently = isinstance(info, dict) and info.get("name") == _SILENT_CLIENT
        self.initialized = True
        about = self._server.backend.about
        result: JsonObject = {
            "protocolVersion": self.version,
            "capabilities": self._server.capabilities("handshake"),
            "serverInfo": about.info,
        }
        if about.instructions:
            result["instructions"] = about.instructions
        return result_of(request.id, result)

    async def _answer(self, request: RpcRequest) -> JsonObject:
        match request.method:
            case "ping":
                return {}
            case "logging/setLevel":
                level = request.params.get("level")
                if level not in LOG_LEVELS:
                    raise McpError(INVALID_PARAMS, f'"level" is one of {", ".join(LOG_LEVELS)}')
                self.log_level = level
                return {}
            case "resources/subscribe" | "resources/unsubscribe":
                await self._change_subscription(request)
                return {}
        return await self._server.answer(request, HandshakeRequest(self, request.id))

    async def _change_subscription(self, request: RpcRequest) -> None:
        uri = request.params.get("uri")
        if not isinstance(uri, str) or not uri:
            raise McpError(INVALID_PARAMS, '"uri" must be a non-empty string')
        if request.method == "resources/subscribe":
            if uri in self._subscribed:
                return
            most = MAX_SUBSCRIPTIONS
            if len(self._subscribed) >= most:
                raise McpError(NOT_DONE, f"{most} resources at once; unsubscribe from some of them")
            await self._server.backend.subscribe(uri)
            self._subscribed.add(uri)
        elif uri in self._subscribed:
            self._subscribed.discard(uri)
            await self._server.backend.unsubscribe(uri)

    def _notification(self, notification: RpcNotification) -> None:
        if notification.method == "notifications/cancelled":
            id = id_of(notification.params.get("requestId"))
            if id is not None:
                reason: Json = notification.params.get("reason")
                self._running.cancel(id, "time is up" if _is_timeout(reason) else "call unwanted")
        elif (
            notification.method == "notifications/initialized" and self._unwatch is None and self.initialized
        ):
            # Only now may a server send notifications of its own.
            self._unwatch = self._server.backend.watch(self._on_change)

    def _response(self, response: RpcResponse) -> None:
        future = self._pending.pop(response.id, None)
        if future is None or future.done():
            return
        if response.result is not None:
            future.set_result(response.result)
        elif response.error is not None:
            error = response.error
            code = error.get("code")
            message = str(error.get("message", "refused without a reason"))
            future.set_exception(
                McpError(code if isinstance(code, int) else NOT_DONE, message, error.get("data"))
            )

    # To the client

    def _on_change(self, change: Change) -> None:
        if isinstance(change, ListChanged):
            self._send(notification_of(f"notifications/{change.what}/list_changed"), None)
        elif change.uri in self._subscribed:
            self._send(notification_of("notifications/resources/updated", {"uri": change.uri}), None)

    async def ask(self, method: str, params: JsonObject, about: RequestId) -> JsonObject:
        id = f"moot-{next(self._numbers)}"
        future = asyncio.get_running_loop().create_future()
        self._pending[id] = future
        try:
            self._send(request_of(id, method, params), about)
            async with asyncio.timeout(ASK_SECONDS):
                answer: JsonObject = await future
                return answer
        except TimeoutError:
            self._send(_cancelled(id, "no answer in time"), about)
            raise McpError(NOT_DONE, f"no answer in {ASK_SECONDS:g} s") from None
        except asyncio.CancelledError:
            if id in self._pending:
                self._send(_cancelled(id, "not needed any more"), about)
            raise
        finally:
            self._pending.pop(id, None)

    def notify(self, method: str, params: JsonObject, about: RequestId) -> None:
        self._send(notification_of(method, params), about)


class HandshakeRequest:
    """The client of one request of a session."""

    __slots__ = ("_id", "_session")

    era: Final[Literal["handshake"]] = "handshake"

    def __init__(self, session: HandshakeSession, id: RequestId) -> None:
        self._session = session
        self._id = id

    @property
    def capabilities(self) -> JsonObject:
        return self._session.capabilities

    @property
    def log_level(self) -> str | None:
        return self._session.log_level

    @property
    def is_read(self) -> bool:
        return self._session.is_read(self._id)

    @property
    def may_give_up_silently(self) -> bool:
        return self._session.may_give_up_silently

    def notify(self, method: str, params: JsonObject) -> None:
        self._session.notify(method, params, self._id)

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        return await self._session.ask(method, params, self._id)


def _is_timeout(reason: Json) -> bool:
    """Whether a client cancels because it waited too long: it stops waiting, and may want the call still.

    The SDKs cancel by themselves then, with reasons such as "Request timed out" (TypeScript), "timed out
    after 60s" (Python), "context deadline exceeded" (Go) and "request timeout" (Rust).
    """
    return isinstance(reason, str) and _TIMEOUT.search(reason) is not None


def _cancelled(id: RequestId, reason: str) -> JsonObject:
    return notification_of("notifications/cancelled", {"requestId": id, "reason": reason})
