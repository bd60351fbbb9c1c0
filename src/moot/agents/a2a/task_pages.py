"""`ListTasks`: which of a caller's tasks are asked for, newest first and page by page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from a2a.server.context import ServerCallContext
from a2a.types import ListTasksRequest, ListTasksResponse, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import apply_history_length, decode_page_token, encode_page_token

from moot.agents.a2a.task_book import ServedTask

_PAGE_SIZE: Final = 50


def check_status(params: ListTasksRequest, context: ServerCallContext) -> None:
    """Refuse a status that does not exist: the SDK makes no filter of it, and all tasks would be listed."""
    if context.state.get("method") == "ListTasks":
        given = (json.loads(context.state["body"]).get("params") or {}).get("status")
    else:
        given = context.state["query"].get("status")
    is_unknown = not params.status and given not in (None, "", 0, "0", "TASK_STATE_UNSPECIFIED")
    if is_unknown or params.status not in TaskState.values():
        raise InvalidParamsError(f"there is no such status; it is one of {', '.join(TaskState.keys()[1:])}")


def page_of(served: Iterable[ServedTask], params: ListTasksRequest) -> ListTasksResponse:
    """The page that is asked for; raises InvalidParamsError for one behind a task that is gone."""
    found = list(served)
    if params.context_id:
        found = [each for each in found if each.task.context_id == params.context_id]
    if params.status:
        found = [each for each in found if each.task.status.state == params.status]
    if params.HasField("status_timestamp_after"):
        after = params.status_timestamp_after.ToNanoseconds()
        found = [each for each in found if each.task.status.timestamp.ToNanoseconds() >= after]
    found.sort(key=lambda each: (each.task.status.timestamp.ToNanoseconds(), each.task.id), reverse=True)
    start = 0
    if params.page_token:
        last = decode_page_token(params.page_token)
        at = next((number for number, each in enumerate(found) if each.task.id == last), None)
        if at is None:
            raise InvalidParamsError("this page token is not valid any more: begin again")
        start = at + 1
    size = params.page_size or _PAGE_SIZE
    page = found[start : start + size]
    tasks = []
    for each in page:
        task = apply_history_length(each.snapshot(), params)
        if not params.include_artifacts:
            task.ClearField("artifacts")
        tasks.append(task)
    more = start + size < len(found)
    return ListTasksResponse(
        tasks=tasks,
        page_size=size,
        total_size=len(found),
        next_page_token=encode_page_token(page[-1].task.id) if more else "",
    )
