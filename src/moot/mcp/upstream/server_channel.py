"""One connection to a server that is kept up, and the calls that run over it.

A server that speaks both eras of MCP has two of them, see `moot.mcp.upstream.mcp_client`. What the server
sends besides answers goes to the owner of the channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from moot.errors import McpError
from moot.mcp.eras import HEADER_MISMATCH, TIMED_OUT, Era, JsonObject
from moot.mcp.list_pages import list_pages
from moot.mcp.upstream.call_runner import CallCounts, CallRunner, OutgoingCall
from moot.mcp.upstream.connection import RpcConnection, ServerRequest, TaskProgress
from moot.mcp.upstream.server_session import ServerInfo, ServerSession
from moot.mcp.upstream.server_settings import Server, UpstreamOptions
from moot.mcp.upstream.supervision import Supervisor
from moot.mcp.upstream.suspended_calls import SuspendedCalls
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from moot.mcp.upstream.server_session import ServerSession

# Pages of one list: a server that always has another page ends here.
MAX_PAGES: Final = 100

log = logging.getLogger(__name__)


class ChannelOwner(Protocol):
    """Takes what happens on a channel besides its calls."""

    def on_channel_up(
        self, channel: ServerChannel, session: ServerSession, *, again: bool
    ) -> Coroutine[Any, Any, None]:
        """A run begins; the returned coroutine runs as long as it lasts."""

    def on_channel_down(self, channel: ServerChannel, reason: str) -> None: ...

    def on_channel_notification(self, method: str, params: JsonObject) -> None:
        """Any notification that belongs to no call."""


class ServerChannel:
    """A supervised connection; `only_era` rules out the other era."""

    def __init__(
        self, server: Server, options: UpstreamOptions, owner: ChannelOwner, *, only_era: Era | None = None
    ) -> None:
        self.counts = CallCounts()
        self.supervisor = Supervisor(server, options, self, self.counts, only_era=only_era)
        self.suspended = SuspendedCalls(options)
        self.calls = CallRunner(options, self.suspended, self.counts, on_timeout=self.supervisor.check_health)
        # Tools that run only as tasks of 2025-11-25.
        self._task_tools: frozenset[str] = frozenset()
        self._owner = owner
        self._label = server.label
        self._limits = options.limits

    @property
    def info(self) -> ServerInfo | None:
        """What the server said about itself in the present run; None while it is not up."""
        session = self.supervisor.session
        return None if session is None else session.info

    async def run(self) -> None:
        """Keep the connection up until cancelled, or until the server refuses the only era."""
        await self.supervisor.run()

    async def run_call(self, session: ServerSession, call: OutgoingCall) -> JsonObject:
        """The result of a call; raises McpError."""
        headers = session.headers
        if session.info.era == "handshake":
            return await self._run_handshake_call(session, call)
        if headers is None:
            return await self.calls.run(session, call)
        # A tool's definition says which arguments are repeated in headers.
        if call.method == "tools/call" and not headers.knows(call.params.get("name")):
            await self.list_tools(session)
        try:
            result = await self.calls.run(session, call)
        except McpError as fault:
            if fault.code != HEADER_MISMATCH or call.method != "tools/call":
                raise
            await self.list_tools(session)
            return await self.calls.run(session, call)
        if call.method == "tools/list":
            headers.learn(result.get("tools"))
        return result

    async def _run_handshake_call(self, session: ServerSession, call: OutgoingCall) -> JsonObject:
        if call.method == "tools/list":
            result = await self.calls.run(session, call)
            self._task_tools |= task_tools(result.get("tools"))
            return result
        if call.method == "tools/call" and self._task_tools and needs_task(call.params, self._task_tools):
            return await run_as_task(self.calls, session, call)
        return await self.calls.run(session, call)

    async def list_tools(self, session: ServerSession) -> list[JsonObject]:
        """All tools as this connection shows them; raises McpError."""

        async def request(params: JsonObject) -> JsonObject:
            return await self.run_call(session, OutgoingCall("tools/list", params))

        return await list_pages(request, "tools/list", max_pages=MAX_PAGES, source=self._label)

    async def request_about(self, session: ServerSession, method: str, uri: str) -> JsonObject:
        """A request of our own about a resource."""
        call = OutgoingCall(method, {"uri": uri}, seconds=self._limits.health_seconds)
        return await self.calls.run(session, call)

    # From the connection (MessageHandler)

    def on_request(self, connection: RpcConnection, request: ServerRequest) -> None:
        info = self.supervisor.server_info
        if info is not None and info.era == "stateless":
            connection.refuse(request, METHOD_NOT_FOUND, "a server sends no requests in this version of MCP")
        else:
            self.suspended.on_request(connection, request)

    def on_request_cancelled(self, request_id: Json) -> None:
        if self.supervisor.session is not None:
            self.suspended.on_request_cancelled(self.supervisor.session.connection.exchanges, request_id)

    def on_notification(self, method: str, params: JsonObject) -> None:
        if method == "notifications/message":
            session = self.supervisor.session
            self.calls.forward_log_message(None if session is None else session.connection, params)
        else:
            self._owner.on_channel_notification(method, params)

    def on_invalid_message(self, fault: str) -> None:
        self.counts.invalid_messages += 1
        level = logging.WARNING if self.counts.invalid_messages == 1 else logging.DEBUG
        log.log(level, "not an MCP message", extra={"server": self._label, "fault": fault})

    # From the supervisor (LifecycleListener)

    def on_up(self, session: ServerSession, *, again: bool) -> Coroutine[Any, Any, None]:
        self.calls.reset()
        self.suspended.begin()
        self._task_tools = frozenset()
        return self._owner.on_channel_up(self, session, again=again)

    def on_down(self, reason: str) -> None:
        self._owner.on_channel_down(self, reason)

    def on_connection_lost(self, connection: RpcConnection) -> None:
        self.suspended.on_connection_lost(connection)


# Tools that run only as tasks of MCP 2025-11-25, called like any other tool.
#
# Such a tool answers its call at once with a task, and `tasks/result` waits for the result; requests for
# input come while that waits. Hardly any client knows these tasks, and 2026-07-28 has others. So the bridge
# makes the task and waits for it, and its caller notices nothing. Who asks for a task itself gets it.


def task_tools(tools: object) -> frozenset[str]:
    """The names of those tools in a list that run only as tasks."""
    return frozenset(
        tool["name"]
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and isinstance(tool.get("execution"), dict)
        and tool["execution"].get("taskSupport") == "required"
    )


def needs_task(params: JsonObject, names: frozenset[str]) -> bool:
    """Whether a tool call has to become a task: not if it is one, or continues one that waits for input."""
    return params.get("name") in names and "task" not in params and "requestState" not in params


async def run_as_task(calls: CallRunner, session: ServerSession, call: OutgoingCall) -> JsonObject:
    """Call a tool as a task; returns its result, or `input_required`. Raises McpError.

    Cancelling cancels the task. Its progress reaches the caller as for any other call.
    """
    progress = TaskProgress()
    try:
        made = await calls.run(
            session, call._replace(params={**call.params, "task": {}}, task_progress=progress)
        )
    except BaseException:
        session.connection.end_progress(progress)
        raise
    task = made.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("taskId"), str):
        # It ran at once.
        session.connection.end_progress(progress)
        return made
    named: JsonObject = {"taskId": task["taskId"]}
    try:
        waiting = call._replace(
            method="tasks/result", params=named, tool_call=call.params, task_progress=progress
        )
        return await calls.run(session, waiting)
    except asyncio.CancelledError:
        _cancel(session, named)
        raise
    except McpError as fault:
        if fault.code == TIMED_OUT:
            _cancel(session, named)
        raise


def _cancel(session: ServerSession, named: JsonObject) -> None:
    try:
        session.connection.start("tasks/cancel", named)
    except McpError:
        # The server is gone, and its tasks with it.
        return
