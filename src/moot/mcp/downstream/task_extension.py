"""The Tasks extension (`io.modelcontextprotocol/tasks`): pending calls that a client follows by polling.

A call becomes a task when its decision takes longer than a client should wait. The task is the pending call
under the same handle. If the tool then needs input, the task says so, gets it by `tasks/update`, and the
call is repeated with it, which may need another decision.

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
from typing import Any, Final

from moot.errors import McpError
from moot.mcp.downstream.backend import Backend, BackendCall, PendingCall
from moot.mcp.downstream.client_channel import TASKS
from moot.mcp.downstream.rpc import MISSING_CAPABILITY
from moot.mcp.eras import JsonObject, is_input_required
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_PARAMS

# How often a client should ask for the state of a task.
TASK_POLL_SECONDS: Final = 2.0

log = logging.getLogger(__name__)

METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# Dropped oldest first; each is small, and its client may still come back for it.
MAX_TASKS = 1_000


class McpTask:
    """One call that its client polls."""

    def __init__(self, pending: PendingCall) -> None:
        self.id = pending.handle
        self.created = pending.created
        self._created_at = time.monotonic() - pending.age_seconds
        self.kept_seconds = pending.kept_seconds
        self.pending = pending
        self.answers: JsonObject = {}
        self.keys = itertools.count(1)
        # Keys must never repeat within a task, so a tool's own are renamed: ours → the tool's.
        self.input_keys: dict[str, str] = {}
        self.repetition: asyncio.Task[None] | None = None
        self.fault: McpError | None = None
        self.watchers: list[Callable[[McpTask], None]] = []
        self._result: JsonObject | None = None

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._created_at

    def follow(self, pending: PendingCall) -> None:
        self.pending = pending
        pending.is_task = True
        self._result = None
        pending.watchers.append(self._notify_watchers)

    def finish(self, result: JsonObject) -> None:
        self._result = result
        self._notify_watchers(self.pending)

    def fail(self, fault: McpError) -> None:
        """The repeated call has failed."""
        self.fault, self.repetition = fault, None
        self._notify_watchers(self.pending)

    def result(self) -> JsonObject:
        """The result; raises McpError. Only when the call is finished."""
        if self.fault is not None:
            raise self.fault
        return self._result if self._result is not None else self.pending.result()

    @property
    def finished(self) -> bool:
        return self.repetition is None and (
            self.fault is not None or self._result is not None or self.pending.finished.is_set()
        )

    def _notify_watchers(self, _: PendingCall) -> None:
        for watcher in tuple(self.watchers):
            watcher(self)


class McpTasks:
    """All tasks of a server."""

    def __init__(self, backend: Backend, spawn: Spawn) -> None:
        self._backend = backend
        self._spawn = spawn
        self._tasks: LatestDict[str, McpTask] = LatestDict(MAX_TASKS)

    def create(self, pending: PendingCall) -> JsonObject:
        """The result of a call that continues as a task; a repeated call is the same task."""
        task = self.get(pending.handle)
        if task is None:
            task = McpTask(pending)
            task.follow(pending)
            self._tasks[task.id] = task
        return {**self._status_fields(task, "working"), "resultType": "task"}

    def get(self, id: str) -> McpTask | None:
        task = self._tasks.get(id)
        if task is not None and task.age_seconds > task.kept_seconds and task.finished:
            del self._tasks[id]
            return None
        return task

    async def find(self, id: str) -> McpTask | None:
        """The task with this id; one of an earlier run is found by its pending call."""
        task = self.get(id)
        if task is None and (pending := await self._backend.pending(id)) is not None:
            self.create(pending)
            task = self.get(id)
        return task

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """`tasks/get`, `tasks/update`, `tasks/cancel`; raises McpError for an unknown task."""
        id = params.get("taskId")
        if not isinstance(id, str):
            raise McpError(INVALID_PARAMS, '"taskId" must be a string')
        task = await self.find(id)
        if task is None:
            # Perhaps a task of a tool server; the backend knows whose, or refuses.
            answer = await self._backend.perform(BackendCall(method, params))
            if isinstance(answer, PendingCall):
                await answer.withdraw("a task cannot be looked up by a proposal")
                raise McpError(INVALID_PARAMS, "this caller may not look up that task")
            return answer
        if method == "tasks/get":
            return self.to_json(task)
        if method == "tasks/cancel":
            if task.repetition is not None:
                task.repetition.cancel()
            await task.pending.withdraw("cancelled by the client")
        else:
            self._update(task, params.get("inputResponses"))
        return {}

    def to_json(self, task: McpTask) -> JsonObject:
        """The task as `tasks/get` and `notifications/tasks` show it."""
        if not task.finished:
            return self._status_fields(task, "working")
        try:
            result = task.result()
        except McpError as fault:
            error: JsonObject = {"code": fault.code, "message": fault.message}
            if fault.data is not None:
                error["data"] = fault.data
            return self._status_fields(task, "failed") | {"error": error}
        if is_input_required(result):
            return self._status_fields(task, "input_required") | {
                "inputRequests": self._input_requests(task, result)
            }
        if task.pending.withdrawn:
            return self._status_fields(task, "cancelled")
        return self._status_fields(task, "completed") | {"result": {"resultType": "complete", **result}}

    def _status_fields(self, task: McpTask, status: str) -> JsonObject:
        return {
            "taskId": task.id,
            "status": status,
            "statusMessage": task.pending.status_text(),
            "createdAt": _timestamp(task.created),
            "lastUpdatedAt": _timestamp(task.pending.updated),
            "ttlMs": int(task.kept_seconds * 1000),
            "pollIntervalMs": int(TASK_POLL_SECONDS * 1000),
        }

    def _input_requests(self, task: McpTask, result: JsonObject) -> JsonObject:
        requests: Json = result.get("inputRequests")
        requests = requests if isinstance(requests, dict) else {}
        ours = {theirs: key for key, theirs in task.input_keys.items()}
        for theirs in requests:
            if theirs not in ours:
                ours[theirs] = f"input-{next(task.keys)}"
                task.input_keys[ours[theirs]] = theirs
        return {ours[theirs]: request for theirs, request in requests.items() if theirs not in task.answers}

    def _update(self, task: McpTask, responses: Json) -> None:
        if not isinstance(responses, dict):
            raise McpError(INVALID_PARAMS, '"inputResponses" must be an object')
        try:
            result = task.result() if task.finished else None
        except McpError:
            return
        if result is None or not is_input_required(result):
            # Late or unneeded answers are ignored.
            return
        outstanding = self._input_requests(task, result)
        task.answers |= {
            task.input_keys[key]: value for key, value in responses.items() if key in outstanding
        }
        if all(task.input_keys[key] in task.answers for key in outstanding):
            task.repetition = self._spawn(self._repeat(task, result))
            # Not in `_repeat`: what is cancelled before its first step never gets there.
            task.repetition.add_done_callback(
                lambda done: task.fail(McpError(INTERNAL_ERROR, "cancelled")) if done.cancelled() else None
            )

    async def _repeat(self, task: McpTask, result: JsonObject) -> None:
        """Repeat the call with the input that the tool requested."""
        call = task.pending.call
        params = {**call.params, "inputResponses": task.answers}
        if isinstance(result.get("requestState"), str):
            params["requestState"] = result["requestState"]
        task.answers = {}
        # Answered keys must not be used for another request.
        task.input_keys = {}
        try:
            answer = await self._backend.perform(BackendCall(call.method, params))
            task.repetition = None
            if isinstance(answer, PendingCall):
                task.follow(answer)
            else:
                task.finish(answer)
        except McpError as fault:
            task.fail(fault)
        except Exception:
            log.exception("a task could not continue")
            task.fail(McpError(INTERNAL_ERROR, "internal error; the log says why"))


def missing_tasks() -> McpError:
    """The error for a client that uses tasks without having declared them."""
    data: JsonObject = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return McpError(MISSING_CAPABILITY, f"Missing required client capability: {TASKS}", data)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
