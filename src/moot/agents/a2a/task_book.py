"""The tasks of all callers: their state, who follows them, and their files.

Each task is one file, written at every change, before anybody is told. So a restart knows every task that a
caller was told of. What was under way then goes on where the space can still tell what came of it
(`task_tracker`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from moot.agents.a2a.agent_client import ENDED
from moot.participant.connection.envelope_writer import new_id
from moot.resilience.atomic_file import write_atomically
from moot.resilience.steady_clock import SteadyClock

# Tasks that are kept: an ended one makes room.
MAX_TASKS: Final = 1_000
# Messages and artifacts that a task keeps, the latest; one artifact.
MAX_HISTORY_MESSAGES: Final = 100
# A task without an end is ended after this, as long as a proposal lasts; and an ended one is kept.
TASK_SECONDS: Final = 86_400.0
KEEP_SECONDS: Final = 86_400.0
MAX_HISTORY_BYTES: Final = 1 << 20
MAX_ARTIFACTS: Final = 100
MAX_ARTIFACT_BYTES: Final = 256 << 10
# Events that a stream may be behind before it is cut.
MAX_WAITING_EVENTS: Final = 1_000

log = logging.getLogger(__name__)

_MAX_FILE_BYTES: Final = 64 << 20

TaskEvent = TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class TaskFileRecord(msgspec.Struct, kw_only=True):
    """The content of a task's file."""

    version: int = 1
    owner: str
    member: str
    task: dict[str, Any]
    updated: float
    began: float
    chat_ids: list[str] = []
    answered: list[str] = []
    message_ids: list[str] = []
    proposal_id: str = ""
    request_id: str = ""
    push: list[dict[str, Any]] = []
    # Targets that speak 0.3.
    old_push: list[str] = []


@dataclass(slots=True, eq=False)
class ServedTask:
    """One task of a caller."""

    task: Task
    owner: str
    member: str
    updated: float
    began: float
    # The chats that it consists of, those that were answered, and the caller's ids of its messages.
    chat_ids: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    # A call of a tool instead: its proposal, or its request where no approval is needed.
    proposal_id: str = ""
    request_id: str = ""
    push: dict[str, TaskPushNotificationConfig] = field(default_factory=dict)
    old_push: set[str] = field(default_factory=set)
    # Reasoning of the member about it, and proposals that have to be decided before it goes on.
    reasoning: set[str] = field(default_factory=set)
    pending: dict[str, str] = field(default_factory=dict)
    watchers: set[asyncio.Queue[TaskEvent | None]] = field(default_factory=set)
    version: int = 0

    @property
    def is_over(self) -> bool:
        return self.task.status.state in ENDED

    def snapshot(self) -> Task:
        copy = Task()
        copy.CopyFrom(self.task)
        return copy


class TaskBook:
    """All tasks. `on_event` is told of each change after it was written."""

    def __init__(self, folder: Path, max_open_tasks: int) -> None:
        self.on_event: Callable[[ServedTask, TaskEvent], None] | None = None
        self.clock = SteadyClock()
        self._folder = folder
        self._max_open_tasks = max_open_tasks
        self._tasks: dict[str, ServedTask] = {}
        self._by_chat: dict[str, ServedTask] = {}
        self._by_proposal: dict[str, ServedTask] = {}
        self._by_message: dict[tuple[str, str, str], ServedTask] = {}
        self._read_all()

    # Looking up

    def __iter__(self) -> Iterator[ServedTask]:
        return iter(list(self._tasks.values()))

    def get(self, id: str, owner: str, member: str) -> ServedTask:
        """A task of this caller with this member; raises TaskNotFoundError, also for those of others."""
        served = self._tasks.get(id)
        if served is None or served.owner != owner or served.member != member:
            raise TaskNotFoundError
        return served

    def of_chat(self, id: str) -> ServedTask | None:
        return self._by_chat.get(id)

    def of_proposal(self, id: str) -> ServedTask | None:
        return self._by_proposal.get(id)

    def of_message(self, owner: str, member: str, message_id: str) -> ServedTask | None:
        """The task that a message has made or gone to, if it came before."""
        return self._by_message.get((owner, member, message_id))

    def open_of(self, owner: str) -> int:
        return sum(not each.is_over for each in self._tasks.values() if each.owner == owner)

    # Changes

    def create(self, owner: str, member: str, context_id: str) -> ServedTask:
        """A new task; raises UnsupportedOperationError."""
        most = self._max_open_tasks
        if self.open_of(owner) >= most:
            raise UnsupportedOperationError(f"{most} tasks are open already (max_open_tasks): end one first")
        self.prune()
        if len(self._tasks) >= MAX_TASKS:
            ended = self._most_dispensable()
            if ended is None:
                raise UnsupportedOperationError(f"there are {MAX_TASKS} open tasks: try again later")
            self._remove(ended)
        id = new_id()
        task = Task(id=id, context_id=context_id or new_id())
        task.status.CopyFrom(self._status(TaskState.TASK_STATE_SUBMITTED, None))
        served = self._tasks[id] = ServedTask(task, owner, member, self.clock(), self.clock())
        return served

    def _most_dispensable(self) -> ServedTask | None:
        """The oldest ended task of whoever has the most tasks: nobody pushes the results of others out."""
        held = Counter(each.owner for each in self)
        return min(
            (each for each in self if each.is_over),
            key=lambda each: (-held[each.owner], each.updated),
            default=None,
        )

    def add_message(self, served: ServedTask, message: Message) -> None:
        """A message of the caller."""
        kept = Message()
        kept.CopyFrom(message)
        kept.task_id, kept.context_id = served.task.id, served.task.context_id
        self._add_history(served, kept)
        served.message_ids.append(message.message_id)
        self._by_message[served.owner, served.member, message.message_id] = served

    def take_back(self, served: ServedTask, chat_id: str = "") -> None:
        """Forget the newest message and its chat, and a task that has no other: it was refused."""
        message = served.message_ids.pop()
        self._by_message.pop((served.owner, served.member, message), None)
        del served.task.history[-1]
        if chat_id in served.chat_ids:
            served.chat_ids.remove(chat_id)
            self._by_chat.pop(chat_id, None)
        if not served.message_ids:
            self._remove(served)

    def drop_push(self, owner: str) -> None:
        """Tell this caller's targets nothing more: it was removed."""
        for served in self:
            if served.owner == owner and served.push:
                served.push.clear()
                served.old_push.clear()
                try:
                    self.save(served)
                except OSError as fault:
                    log.error("a task cannot be written", extra={"why": fault.strerror})

    def add_chat(self, served: ServedTask, chat_id: str) -> None:
        served.chat_ids.append(chat_id)
        self._by_chat[chat_id] = served

    def set_proposal(self, served: ServedTask, id: str) -> None:
        served.proposal_id = id
        self._by_proposal[id] = served

    def save(self, served: ServedTask) -> None:
        """Write it down; raises OSError."""
        served.updated = self.clock()
        record = TaskFileRecord(
            owner=served.owner,
            member=served.member,
            task=MessageToDict(served.task),
            updated=served.updated,
            began=served.began,
            chat_ids=served.chat_ids,
            answered=served.answered,
            message_ids=served.message_ids,
            proposal_id=served.proposal_id,
            request_id=served.request_id,
            push=[MessageToDict(each) for each in served.push.values()],
            old_push=sorted(served.old_push),
        )
        write_atomically(self._path(served), msgspec.json.encode(record))

    def set_state(self, served: ServedTask, state: TaskState, text: str = "", *, id: str = "") -> None:
        """Change the state and tell everybody; what has ended stays as it is."""
        if served.is_over or (served.task.status.state == state and not text):
            return
        message = self._message(served, text, id) if text else None
        served.task.status.CopyFrom(self._status(state, message))
        if message is not None:
            self._add_history(served, message)
        event = TaskStatusUpdateEvent(
            task_id=served.task.id, context_id=served.task.context_id, status=served.task.status
        )
        self._publish(served, event)

    def add_artifact(self, served: ServedTask, parts: list[Part], *, id: str, name: str) -> None:
        """A result; what is too large is left out, and says so."""
        if served.is_over or any(each.artifact_id == id for each in served.task.artifacts):
            return
        artifact = Artifact(artifact_id=id, name=name, parts=parts)
        if artifact.ByteSize() > MAX_ARTIFACT_BYTES:
            text = f"[left out: larger than {MAX_ARTIFACT_BYTES} bytes]"
            artifact = Artifact(artifact_id=id, name=name, parts=[Part(text=text)])
        if len(served.task.artifacts) >= MAX_ARTIFACTS:
            return
        served.task.artifacts.append(artifact)
        event = TaskArtifactUpdateEvent(
            task_id=served.task.id, context_id=served.task.context_id, artifact=artifact, last_chunk=True
        )
        self._publish(served, event)

    def _publish(self, served: ServedTask, event: TaskEvent) -> None:
        served.version += 1
        try:
            self.save(served)
        except OSError as fault:
            # It goes on in memory; a restart would not know how far it came.
            log.error("a task cannot be written", extra={"why": fault.strerror, "task": served.task.id})
        for queue in tuple(served.watchers):
            if queue.full():
                # It is behind: cut, and the caller can subscribe again.
                served.watchers.discard(queue)
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)
        if self.on_event is not None:
            self.on_event(served, event)

    def _status(self, state: TaskState, message: Message | None) -> TaskStatus:
        status = TaskStatus(state=state, message=message)
        # Milliseconds, as the protocol has them.
        status.timestamp.FromMilliseconds(int(self.clock() * 1_000))
        return status

    def _message(self, served: ServedTask, text: str, id: str) -> Message:
        return Message(
            message_id=id or new_id(),
            role=Role.ROLE_AGENT,
            task_id=served.task.id,
            context_id=served.task.context_id,
            parts=[Part(text=text)],
        )

    def _add_history(self, served: ServedTask, message: Message) -> None:
        history = served.task.history
        history.append(message)
        size = sum(each.ByteSize() for each in history)
        while len(history) > 1 and (len(history) > MAX_HISTORY_MESSAGES or size > MAX_HISTORY_BYTES):
            size -= history[0].ByteSize()
            del history[0]

    # Following

    async def follow(self, served: ServedTask) -> AsyncGenerator[Task | TaskEvent, None]:
        """The task as it is, then every change, until its end."""
        queue: asyncio.Queue[TaskEvent | None] = asyncio.Queue(MAX_WAITING_EVENTS)
        served.watchers.add(queue)
        try:
            is_over = served.is_over
            yield served.snapshot()
            while not is_over:
                event = await queue.get()
                if event is None:
                    return
                yield event
                is_over = isinstance(event, TaskStatusUpdateEvent) and event.status.state in ENDED
        finally:
            served.watchers.discard(queue)

    # Files

    def prune(self) -> None:
        """Remove what ended long ago."""
        before = self.clock() - KEEP_SECONDS
        for served in self:
            if served.is_over and served.updated < before and not served.watchers:
                self._remove(served)

    def _remove(self, served: ServedTask) -> None:
        self._tasks.pop(served.task.id, None)
        for chat in served.chat_ids:
            self._by_chat.pop(chat, None)
        self._by_proposal.pop(served.proposal_id, None)
        for message in served.message_ids:
            self._by_message.pop((served.owner, served.member, message), None)
        with suppress(OSError):
            self._path(served).unlink(missing_ok=True)

    def _path(self, served: ServedTask) -> Path:
        return self._folder / f"{served.task.id}.json"

    def _read_all(self) -> None:
        for path in sorted(self._folder.glob("*.json")):
            try:
                with path.open("rb") as opened:
                    record = msgspec.json.decode(opened.read(_MAX_FILE_BYTES), type=TaskFileRecord)
                task = ParseDict(record.task, Task(), ignore_unknown_fields=True)
                push = [ParseDict(each, TaskPushNotificationConfig()) for each in record.push]
            except (OSError, msgspec.MsgspecError, ParseError) as fault:
                log.warning("a task cannot be read", extra={"file": path.name, "why": str(fault)[:200]})
                continue
            if task.id != path.stem:
                continue
            served = ServedTask(
                task,
                record.owner,
                record.member,
                record.updated,
                record.began,
                chat_ids=record.chat_ids,
                answered=record.answered,
                message_ids=record.message_ids,
                proposal_id=record.proposal_id,
                request_id=record.request_id,
                push={each.id: each for each in push},
                old_push=set(record.old_push),
            )
            self._tasks[task.id] = served
            for chat in served.chat_ids:
                self._by_chat[chat] = served
            for message in served.message_ids:
                self._by_message[served.owner, served.member, message] = served
            if served.proposal_id:
                self._by_proposal[served.proposal_id] = served
