"""The requests that one connection is answering: bounded, cancellable, each in its own task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from moot.errors import McpError
from moot.mcp.downstream.backend import McpServerCounts
from moot.mcp.downstream.rpc import NOT_DONE, RequestId, RpcRequest, error_of, result_of
from moot.mcp.eras import JsonObject
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_REQUEST

# Requests of one connection that are being answered at the same time.
MAX_REQUESTS: Final = 256

log = logging.getLogger(__name__)

# Why a client cancels a request: it gives up the call, or its time for an answer is over.
WhyCancelled = Literal["call unwanted", "time is up"]

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# None: the request was cancelled, so there is no response.
Reply = Callable[[JsonObject | None], None]

# By the task that answers the request. The message of a cancellation does not always say it: where something
# else has just cancelled the same task, such as a time limit in it, that one's message is delivered.
_why: Final[WeakKeyDictionary[asyncio.Task[Any], WhyCancelled]] = WeakKeyDictionary()


def why_cancelled() -> WhyCancelled | None:
    """What the client said who cancelled the request that is answered in this task."""
    task = asyncio.current_task()
    return None if task is None else _why.get(task)


class RunningRequests:
    """The requests of one connection. `spawn` makes their tasks, which end at the latest with the server."""

    def __init__(self, spawn: Spawn, counts: McpServerCounts, *, max_requests: int | None = None) -> None:
        self._spawn = spawn
        self._counts = counts
        self._max_requests = MAX_REQUESTS if max_requests is None else max_requests
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, request: RpcRequest, answer: Coroutine[Any, Any, JsonObject], reply: Reply) -> None:
        """Await `answer` in the background; `reply` is called once, with the response or None."""
        self._counts.requests += 1
        refusal = None
        if request.id in self._tasks:
            refusal = McpError(INVALID_REQUEST, "this id names a request that is still being answered")
        elif len(self._tasks) >= self._max_requests:
            refusal = McpError(
                NOT_DONE, f"busy: {self._max_requests} requests at once; wait for some of them"
            )
        if refusal is not None:
            answer.close()
            reply(error_of(request.id, refusal))
            return
        try:
            task = self._spawn(self._send_answer(request, answer, reply))
        except McpError as fault:
            answer.close()
            reply(error_of(request.id, fault))
            return
        self._tasks[request.id] = task

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                # Before its first step: `_answer` has never run.
                answer.close()
                self._tasks.pop(request.id, None)
                reply(None)

        task.add_done_callback(ended)

    def cancel(self, id: RequestId, why: WhyCancelled | None = None) -> None:
        """Nobody waits for it any more. Unknown and finished ones are ignored (MCP: races)."""
        task = self._tasks.get(id)
        if task is not None:
            if why is not None:
                _why[task] = why
            task.cancel()

    def cancel_all(self) -> None:
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def _send_answer(
        self, request: RpcRequest, answer: Coroutine[Any, Any, JsonObject], reply: Reply
    ) -> None:
        message: JsonObject | None = None
        try:
            message = result_of(request.id, await answer)
        except asyncio.CancelledError:
            # By the client or by the end of the connection: either way the task is over now.
            pass
        except McpError as fault:
            message = error_of(request.id, fault)
        except Exception:
            # A request's task: the client gets no detail.
            log.exception("a request could not be answered", extra={"method": request.method[:64]})
            message = error_of(request.id, McpError(INTERNAL_ERROR, "internal error; the log says why"))
        finally:
            self._tasks.pop(request.id, None)
        reply(message)
