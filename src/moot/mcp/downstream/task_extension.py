"""The Tasks extension (`io.modelcontextprotocol/tasks`): pending calls that a client follows by polling.

A call becomes a task when its decision takes longer than a client should hang. The task is the pending call
under the same handle. If the tool then needs input, the task says so, takes it by `tasks/update`, and the
call is made once more with it, which may need a decision of its own.

    working ──► completed | failed | cancelled
       ▲ │
       │ ▼
    input_required
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from moot.errors import McpError
from moot.mcp.downstream.backend import Backend, BackendCall, PendingCall
from moot.mcp.downstream.client_channel import TASKS
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.rpc import MISSING_CAPABILITY
from moot.mcp.eras import INTERNAL_ERROR, INVALID_PARAMS, JsonObject, is_input_required
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# Forgotten oldest first; each is small, and its client may still come back for it.
MOST_TASKS = 1_000


class McpTask:
    """One call that is followed by polling."""

    def __init__(self, pending: PendingCall) -> None:
        self.id = pending.handle
        self.created = pending.created
        self.lives_seconds = pending.lives_seconds
        self.pending = pending
        self.answers: JsonObject = {}
        self.keys = itertools.count(1)
        # Keys must never repeat within a task, so a tool's own are renamed: ours → the tool's.
        self.asked: dict[str, str] = {}
        self.again: asyncio.Task[None] | None = None
        self.fault: McpError | None = None
        self.watchers: list[Callable[[McpTask], None]] = []
        self._result: JsonObject | None = None

    def follow(self, pending: PendingCall) -> None:
        self.pending = pending
        self._result = None
        pending.watchers.append(self._changed)

    def finish(self, result: JsonObject) -> None:
        self._result = result
        self._changed(self.pending)

    def result(self) -> JsonObject:
        """Raises McpError; only when the call is finished."""
        if self.fault is not None:
            raise self.fault
        return self._result if self._result is not None else self.pending.result()

    @property
    def finished(self) -> bool:
        return self.again is None and (
            self.fault is not None or self._result is not None or self.pending.finished.is_set()
        )

    def _changed(self, _: PendingCall) -> None:
        for watcher in tuple(self.watchers):
            watcher(self)


class McpTasks:
    """All tasks of a face."""

    def __init__(self, backend: Backend, limits: McpServerLimits, spawn: Spawn) -> None:
        self._backend = backend
        self._limits = limits
        self._spawn = spawn
        self._tasks: dict[str, McpTask] = {}

    def make(self, pending: PendingCall) -> JsonObject:
        """The result of a call that goes on as a task."""
        task = McpTask(pending)
        task.follow(pending)
        while len(self._tasks) >= MOST_TASKS:
            del self._tasks[next(iter(self._tasks))]
        self._tasks[task.id] = task
        return {**self._seed(task, "working"), "resultType": "task"}

    def get(self, id: str) -> McpTask | None:
        task = self._tasks.get(id)
        if task is not None and time.time() > task.created + task.lives_seconds and task.finished:
            del self._tasks[id]
            return None
        return task

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """`tasks/get`, `tasks/update`, `tasks/cancel`; raises McpError for an unknown task."""
        id = params.get("taskId")
        if not isinstance(id, str):
            raise McpError(INVALID_PARAMS, '"taskId" must be a string')
        task = self.get(id)
        if task is None:
            # Perhaps a task that a tool server made; the backend knows whose, or refuses.
            answer = await self._backend.perform(BackendCall(method, params))
            if isinstance(answer, PendingCall):
                await answer.withdraw("a task cannot be asked for by proposal")
                raise McpError(INVALID_PARAMS, "this caller may not ask for that task")
            return answer
        if method == "tasks/get":
            return self.shown(task)
        if method == "tasks/cancel":
            if task.again is not None:
                task.again.cancel()
            await task.pending.withdraw("cancelled by the client")
        else:
            self._update(task, params.get("inputResponses"))
        return {}

    def shown(self, task: McpTask) -> JsonObject:
        """The task as `tasks/get` and `notifications/tasks` show it."""
        if not task.finished:
            return self._seed(task, "working")
        try:
            result = task.result()
        except McpError as fault:
            error: JsonObject = {"code": fault.code, "message": fault.message}
            if fault.data is not None:
                error["data"] = fault.data
            return self._seed(task, "failed") | {"error": error}
        if is_input_required(result):
            return self._seed(task, "input_required") | {"inputRequests": self._questions(task, result)}
        if task.pending.withdrawn:
            return self._seed(task, "cancelled")
        return self._seed(task, "completed") | {"result": {"resultType": "complete", **result}}

    def _seed(self, task: McpTask, status: str) -> JsonObject:
        return {
            "taskId": task.id,
            "status": status,
            "statusMessage": task.pending.note,
            "createdAt": _moment(task.created),
            "lastUpdatedAt": _moment(task.pending.updated),
            "ttlMs": int(task.lives_seconds * 1000),
            "pollIntervalMs": int(self._limits.task_poll_seconds * 1000),
        }

    def _questions(self, task: McpTask, result: JsonObject) -> JsonObject:
        requests: Json = result.get("inputRequests")
        requests = requests if isinstance(requests, dict) else {}
        ours = {theirs: key for key, theirs in task.asked.items()}
        for theirs in requests:
            if theirs not in ours:
                ours[theirs] = f"input-{next(task.keys)}"
                task.asked[ours[theirs]] = theirs
        return {ours[theirs]: request for theirs, request in requests.items() if theirs not in task.answers}

    def _update(self, task: McpTask, responses: Json) -> None:
        if not isinstance(responses, dict):
            raise McpError(INVALID_PARAMS, '"inputResponses" must be an object')
        try:
            result = task.result() if task.finished else None
        except McpError:
            return
        if result is None or not is_input_required(result):
            # Late or unasked answers are no mistake.
            return
        outstanding = self._questions(task, result)
        task.answers |= {task.asked[key]: value for key, value in responses.items() if key in outstanding}
        if all(task.asked[key] in task.answers for key in outstanding):
            task.again = self._spawn(self._repeat(task, result))

    async def _repeat(self, task: McpTask, result: JsonObject) -> None:
        """Make the call once more, with what the tool wanted to know."""
        call = task.pending.call
        params = {**call.params, "inputResponses": task.answers}
        if isinstance(result.get("requestState"), str):
            params["requestState"] = result["requestState"]
        task.answers = {}
        # Answered keys must not come back for another question, so they are forgotten for good.
        task.asked = {}
        try:
            answer = await self._backend.perform(BackendCall(call.method, params))
            task.again = None
            if isinstance(answer, PendingCall):
                task.follow(answer)
            else:
                task.finish(answer)
        except asyncio.CancelledError:
            task.fault = McpError(INTERNAL_ERROR, "cancelled")
        except McpError as fault:
            task.fault = fault
        except Exception:
            log.exception("a task could not go on")
            task.fault = McpError(INTERNAL_ERROR, "internal error; the log says why")
        finally:
            task.again = None


def missing_tasks() -> McpError:
    """What a client hears that uses tasks without having said that it can."""
    data: JsonObject = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return McpError(MISSING_CAPABILITY, f"Missing required client capability: {TASKS}", data)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
