"""One task of a foreign agent, as it is told to the space.

    message, artifact           chat that answers the one who asked
    status while it works       reasoning/thought
    input or authorisation      chat: a question, whose answer goes to the same task
    the end                     chat, if there is anything to say

Events may come twice: a connection that was lost begins again with the whole task. So each thing has an id of
its own, made of what it is, and the gateway delivers an id once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from a2a.types import Artifact, Message, Role, StreamResponse, Task, TaskState, TaskStatus

from moot.agents.a2a.agent_client import SETTLED, AgentTooMuch, state_word
from moot.agents.a2a.message_parts import artifact_text, cut, parts_text, texts_of
from moot.agents.secret_filter import SecretFilter
from moot.participant import JoinedSpace, Reasoning
from moot.participant.programs.repeated_send import deliver

# How often the agent may tell its status in one task, and how many artifacts it may make.
MAX_STATUS_UPDATES: Final = 1_000
MAX_ARTIFACTS: Final = 100
# What the agent may say in one task; beyond that it is cancelled.
MAX_TASK_CHARS: Final = 500_000
# One chat or thought; longer ones are sent in parts. What is shown of data that is no text.
MAX_TEXT_CHARS: Final = 16_000
MAX_DATA_CHARS: Final = 4_000

_NEEDS: Final = {
    TaskState.TASK_STATE_INPUT_REQUIRED: "The agent needs an answer to go on: reply to this message.",
    TaskState.TASK_STATE_AUTH_REQUIRED: (
        "The agent wants to be authorised before it goes on. Reply to this message when that is done."
    ),
}


class TaskTurn:
    """What comes of one chat to the agent."""

    def __init__(
        self,
        space: JoinedSpace,
        secrets: SecretFilter,
        *,
        chat_id: str,
        sender: str,
        id_of: Callable[[str], str],
        on_task: Callable[[str, str], None],
        task_id: str = "",
    ) -> None:
        """`on_task` is told the ids of the task and of its conversation, before anything else is done."""
        self.chat_id = chat_id
        self.sender = sender
        self.task_id = task_id
        self.context_id = ""
        self.state = 0
        # The chat that asks for an answer, once there is one.
        self.question_id = ""
        self.reasoning: Reasoning | None = None
        self.chats = 0
        # Events of other tasks than ours.
        self.refused = 0
        self._space = space
        self._secrets = secrets
        self._id_of = id_of
        self._on_task = on_task
        self._artifacts: dict[str, Artifact] = {}
        self._said: set[str] = set()
        self._chars = 0
        self._status_updates = 0

    async def handle_event(self, event: StreamResponse) -> None:
        """One event of the agent; raises AgentTooMuch when it is too much."""
        match event.WhichOneof("payload"):
            case "message":
                self._note_ids("", event.message.context_id)
                await self._say_message(event.message)
            case "task":
                await self._take_task(event.task)
            case "status_update":
                update = event.status_update
                if self._is_ours(update.task_id):
                    self._note_ids(update.task_id, update.context_id)
                    await self._take_status(update.status)
            case "artifact_update":
                change = event.artifact_update
                if self._is_ours(change.task_id):
                    self._note_ids(change.task_id, change.context_id)
                    self._take_artifact(change.artifact, append=change.append)
                    if change.last_chunk:
                        await self._say_artifact(change.artifact.artifact_id)

    def _is_ours(self, task_id: str) -> bool:
        if self.task_id and task_id != self.task_id:
            self.refused += 1
            return False
        return True

    def _note_ids(self, task_id: str, context_id: str) -> None:
        is_new = (task_id and not self.task_id) or (context_id and not self.context_id)
        self.task_id, self.context_id = self.task_id or task_id, self.context_id or context_id
        if is_new:
            self._on_task(self.task_id, self.context_id)

    async def _take_task(self, task: Task) -> None:
        if not self._is_ours(task.id):
            return
        self._note_ids(task.id, task.context_id)
        for artifact in task.artifacts:
            self._take_artifact(artifact, append=False)
        await self._take_status(task.status)
        if task.status.state in SETTLED and not self.chats:
            # Some agents answer in the history alone.
            for message in task.history:
                if message.role == Role.ROLE_AGENT:
                    await self._say_message(message)

    def _take_artifact(self, artifact: Artifact, *, append: bool) -> None:
        known = self._artifacts.get(artifact.artifact_id)
        if known is None or not append:
            if known is None and len(self._artifacts) >= MAX_ARTIFACTS:
                raise AgentTooMuch(f"it made more than {MAX_ARTIFACTS} artifacts in one task")
            known = self._artifacts[artifact.artifact_id] = Artifact()
            known.CopyFrom(artifact)
        else:
            # Pieces of one text are one text.
            parts = list(artifact.parts)
            if parts and known.parts and known.parts[-1].text and parts[0].text:
                known.parts[-1].text += parts.pop(0).text
            known.parts.extend(parts)
        self._check_chars(sum(texts_of(each.parts) for each in self._artifacts.values()))

    def _check_chars(self, more: int) -> None:
        if self._chars + more > MAX_TASK_CHARS:
            raise AgentTooMuch(f"it said more than {MAX_TASK_CHARS} characters")

    async def _take_status(self, status: TaskStatus) -> None:
        self.state = int(status.state)
        if status.state not in SETTLED:
            if status.HasField("message"):
                await self._think(parts_text(status.message.parts, MAX_DATA_CHARS))
            return
        for id in list(self._artifacts):
            await self._say_artifact(id)
        if need := _NEEDS.get(status.state):
            text = parts_text(status.message.parts, MAX_DATA_CHARS)
            key = f"question/{self._about}/{status.message.message_id}/{_digest(text)}"
            await self._say(key, f"{text}\n\n({need})" if text else need)
            self.question_id = self._id_of(f"{key}/0")
            return
        if status.HasField("message"):
            await self._say_message(status.message)
        if status.state != TaskState.TASK_STATE_COMPLETED:
            await self._say(f"end/{self._about}", f"(The agent ended this as {state_word(status.state)}.)")

    @property
    def _about(self) -> str:
        """Ids of messages and artifacts are the agent's: unique within a task, or not even that."""
        return self.task_id or self.chat_id

    async def _think(self, text: str) -> None:
        self._status_updates += 1
        if not text or self._status_updates > MAX_STATUS_UPDATES:
            return
        reasoning = self.reasoning
        if reasoning is None or reasoning.cancelled.is_set() or f"thought/{text}" in self._said:
            return
        self._said.add(f"thought/{text}")
        self._chars += len(text)
        self._check_chars(0)
        for part in cut(self._secrets.clean(text), MAX_TEXT_CHARS):
            await deliver(self._space, "reasoning/thought", {"message": part}, context=reasoning.context)

    async def _say_message(self, message: Message) -> None:
        text = parts_text(message.parts, MAX_DATA_CHARS)
        await self._say(f"message/{self._about}/{message.message_id}/{_digest(text)}", text)

    async def _say_artifact(self, id: str) -> None:
        text = artifact_text(self._artifacts[id], MAX_DATA_CHARS)
        await self._say(f"artifact/{self._about}/{id}/{_digest(text)}", text)

    async def _say(self, key: str, text: str) -> None:
        if key in self._said or not text.strip():
            return
        self._said.add(key)
        self._chars += 0 if key.startswith("artifact/") else len(text)
        self._check_chars(0)
        self.chats += 1
        for number, part in enumerate(cut(self._secrets.clean(text), MAX_TEXT_CHARS)):
            await self.chat(part, key=f"{key}/{number}")

    async def chat(self, text: str, *, key: str = "") -> None:
        """A chat that answers whoever asked; with a `key`, once in all runs."""
        to = (self.sender,) if self.sender in self._space.roster else ()
        id = self._id_of(key) if key else ""
        await deliver(self._space, "chat", {"text": text}, id=id, to=to, about=self.chat_id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
