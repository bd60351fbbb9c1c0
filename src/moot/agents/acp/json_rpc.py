"""JSON-RPC 2.0 in lines, both ways: requests of ours wait for answers, those of the peer get one answer.

By hand and not by the SDK of the protocol: that drops updates that it does not know and fails on reasons to
stop that it does not know, while people must see what an agent does also when it is newer than we are.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from moot.errors import MootError
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_REQUEST
from moot.protocol.strict_json import nests_deeper

log = logging.getLogger(__name__)

AUTH_REQUIRED: Final = -32000
REQUEST_CANCELLED: Final = -32800
CANCEL_REQUEST: Final = "$/cancel_request"
# Requests of the peer that wait for an answer; an agent has a few, a flood is refused.
_MAX_OPEN_REQUESTS: Final = 256
# Nesting of one message: real ones have about ten levels, and what comes after us walks through all of them.
_MAX_DEPTH: Final = 64


class PeerError(MootError):
    """The peer answered with an error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class PeerGone(MootError):
    """The peer has ended, reads nothing, or did not answer in time."""


@dataclass(slots=True, eq=False)
class IncomingCall:
    """A request of the peer. The first answer counts; later ones do nothing."""

    method: str
    params: Mapping[str, Any]
    id: str | int | None
    _peer: JsonRpcPeer = field(repr=False)
    is_answered: bool = False
    # Called when the peer does not want an answer any more.
    on_cancel: Callable[[], None] | None = None

    def respond(self, result: Json) -> bool:
        """Answer; False if it was answered before. Raises PeerGone if the peer cannot get it."""
        return self._answer({"result": result})

    def fail(self, code: int, message: str) -> bool:
        return self._answer({"error": {"code": code, "message": message}})

    def _answer(self, body: dict[str, Json]) -> bool:
        if self.is_answered:
            return False
        self.is_answered = True
        self._peer.forget(self)
        self._peer.send({"jsonrpc": "2.0", "id": self.id, **body})
        return True


class JsonRpcPeer:
    """One end of a connection. `write` takes a line and raises PeerGone when nobody reads it."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        on_request: Callable[[IncomingCall], None],
        on_notification: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._write = write
        self._on_request = on_request
        self._on_notification = on_notification
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._open: dict[str | int, IncomingCall] = {}
        self._ended = ""
        # Lines that were no message, and answers that nobody waits for.
        self.ignored = 0

    def send(self, message: Mapping[str, Json]) -> None:
        if self._ended:
            raise PeerGone(self._ended)
        self._write(orjson.dumps(message))

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(
        self, method: str, params: Mapping[str, Json], timeout_seconds: float | None = None
    ) -> dict[str, Any]:
        """The result; raises PeerError, or PeerGone without an answer. A result that is no object is empty.

        Cancelling it tells the peer that nobody waits any more.
        """
        id = next(self._ids)
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            async with asyncio.timeout(timeout_seconds):
                result = await future
        except TimeoutError:
            raise PeerGone(f"it did not answer {method} within {timeout_seconds:g} s") from None
        except asyncio.CancelledError:
            with suppress(PeerGone):
                self.notify(CANCEL_REQUEST, {"requestId": id})
            raise
        finally:
            del self._waiting[id]
        return result if isinstance(result, dict) else {}

    def feed(self, line: bytes) -> None:
        """Take one line of the peer, whatever is in it."""
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            self.ignored += 1
            log.debug("a line is no JSON", extra={"bytes": len(line)})
            return
        # Batches are not part of ACP.
        if not isinstance(message, dict):
            self.ignored += 1
            return
        # Most messages have too few brackets to be deep.
        if line.count(b"[") + line.count(b"{") > _MAX_DEPTH and nests_deeper(message, _MAX_DEPTH):
            self.ignored += 1
            log.warning("a message is nested too deep")
            if not isinstance(id := message.get("id"), str | int) or "method" not in message:
                return
            message = {"method": "", "id": id}
        method, id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            self._resolve(message)
            return
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        if "id" not in message:
            if method == CANCEL_REQUEST:
                self._cancel(given.get("requestId"))
            else:
                self._on_notification(method, given)
            return
        if id is not None and (isinstance(id, bool) or not isinstance(id, str | int)):
            self.ignored += 1
            return
        call = IncomingCall(method, given, id, self)
        if id is None or id in self._open or len(self._open) >= _MAX_OPEN_REQUESTS:
            why = "too many requests are open" if id not in self._open else "this id is in use"
            with suppress(PeerGone):
                call.fail(INVALID_REQUEST, why if id is not None else "a request needs an id")
            return
        self._open[id] = call
        self._on_request(call)

    def end(self, reason: str) -> None:
        """Nothing comes any more: whoever waits gets PeerGone."""
        if self._ended:
            return
        self._ended = reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerGone(reason))
        for call in list(self._open.values()):
            call.is_answered = True
            if call.on_cancel is not None:
                call.on_cancel()
        self._open.clear()

    def forget(self, call: IncomingCall) -> None:
        if call.id is not None and self._open.get(call.id) is call:
            del self._open[call.id]

    def _resolve(self, message: dict[str, Any]) -> None:
        id = message.get("id")
        future = self._waiting.get(id) if isinstance(id, int) and not isinstance(id, bool) else None
        if future is None or future.done():
            self.ignored += 1
            return
        error = message.get("error")
        if isinstance(error, dict):
            code, text = error.get("code"), error.get("message")
            future.set_exception(
                PeerError(
                    code if isinstance(code, int) else INTERNAL_ERROR,
                    text if isinstance(text, str) else "an error without a message",
                    error.get("data"),
                )
            )
        else:
            future.set_result(message.get("result"))

    def _cancel(self, id: Json) -> None:
        call = self._open.get(id) if isinstance(id, str | int) else None
        if call is None:
            return
        with suppress(PeerGone):
            call.fail(REQUEST_CANCELLED, "cancelled")
        if call.on_cancel is not None:
            call.on_cancel()
