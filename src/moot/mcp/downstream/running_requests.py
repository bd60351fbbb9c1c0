"""Requests that are being answered on one connection: counted, cancelled, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from moot.errors import McpError
from moot.mcp.downstream.backend import OfferCounts
from moot.mcp.downstream.rpc import NOT_DONE, RequestId, RpcRequest, error_of, result_of
from moot.mcp.eras import INTERNAL_ERROR, INVALID_REQUEST, JsonObject

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# None: the request was cancelled, and nothing is owed.
Reply = Callable[[JsonObject | None], None]


class RunningRequests:
    """The requests of one connection. Their tasks are `spawn`ed: they live at most as long as the face."""

    def __init__(self, spawn: Spawn, counts: OfferCounts, *, limit: int) -> None:
        self._spawn = spawn
        self._counts = counts
        self._limit = limit
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, request: RpcRequest, answering: Coroutine[Any, Any, JsonObject], reply: Reply) -> None:
        """Answer in the background; `reply` is called once, with the response or with None."""
        self._counts.requests += 1
        refusal = None
        if request.id in self._tasks:
            refusal = McpError(INVALID_REQUEST, "this id names a request that is still being answered")
        elif len(self._tasks) >= self._limit:
            refusal = McpError(NOT_DONE, f"busy: {self._limit} requests at once; wait for some of them")
        if refusal is not None:
            answering.close()
            self._counts.faults += 1
            reply(error_of(request.id, refusal))
            return
        task = self._spawn(self._answer(request, answering, reply))
        self._tasks[request.id] = task

    def cancel(self, id: RequestId) -> None:
        """The client does not want it any more. Unknown and finished ones are no mistake (MCP: races)."""
        task = self._tasks.get(id)
        if task is not None:
            self._counts.cancelled += 1
            task.cancel()

    def cancel_all(self) -> None:
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def _answer(
        self, request: RpcRequest, answering: Coroutine[Any, Any, JsonObject], reply: Reply
    ) -> None:
        message: JsonObject | None = None
        try:
            message = result_of(request.id, await answering)
        except asyncio.CancelledError:
            # By the client or by the end of the connection: either way the task is over now.
            pass
        except McpError as fault:
            self._counts.faults += 1
            message = error_of(request.id, fault)
        except Exception:
            # A request's task: the client gets no detail.
            log.exception("a request could not be answered", extra={"method": request.method[:64]})
            self._counts.faults += 1
            message = error_of(request.id, McpError(INTERNAL_ERROR, "internal error; the log says why"))
        finally:
            self._tasks.pop(request.id, None)
        reply(message)
