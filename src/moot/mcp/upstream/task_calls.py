"""Tools that run only as tasks of MCP 2025-11-25, called like any other tool.

Such a tool answers its call at once with a task, and `tasks/result` waits for the result; requests for input
come while that waits. Hardly any client knows these tasks, and 2026-07-28 has others. So the bridge makes
the task and waits for it, and its caller notices nothing. Who asks for a task itself gets it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from moot.errors import McpError
from moot.mcp.eras import TIMED_OUT, JsonObject
from moot.mcp.upstream.connection import TaskProgress

if TYPE_CHECKING:
    from moot.mcp.upstream.call_runner import CallRunner, OutgoingCall
    from moot.mcp.upstream.server_session import ServerSession


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
