"""What outlives a restart of a joined agent: its conversations, the chats without an answer, open questions.

A chat is written down before the agent gets it, and with the agent's task as soon as that has a name. So
whoever starts the member again follows the same task, and sends no message twice. The secret makes the ids of
our envelopes: an answer that was delivered before has the same id, and is not delivered again.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from moot.resilience.atomic_file import RecordFile

_MAX_BYTES: Final = 4 << 20


class ForwardedChat(msgspec.Struct, frozen=True):
    """A chat that is to be answered."""

    id: str
    sender: str
    # Whether the agent was sent it, and the task that it named then.
    started: bool = False
    task_id: str = ""


class Question(msgspec.Struct, frozen=True):
    """The agent waits for an answer, which goes to the same task."""

    task_id: str
    context_id: str
    # Who was asked, and in which chat of ours.
    member: str
    chat_id: str


class TaskRecord(msgspec.Struct, kw_only=True):
    """The content of the file."""

    version: int = 1
    secret: str = ""
    card_digest: str = ""
    # The conversation with everybody (""), or with each member.
    contexts: dict[str, str] = {}
    open_chats: list[ForwardedChat] = []
    questions: list[Question] = []


class TaskFile:
    """The record on disk. It must be written before an agent acts, so a failure is an error."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path, TaskRecord, max_bytes=_MAX_BYTES, what="the tasks")
        self.record = self._file.record
        if not self.record.secret:
            self.record.secret = token_hex(32)
            self.write()

    def id_of(self, what: str) -> str:
        """The same id for the same thing in every run, which nobody else can guess."""
        return hmac.digest(self.record.secret.encode(), what.encode(), hashlib.sha256)[:16].hex()

    def add(self, chat: ForwardedChat) -> None:
        """Write a chat down, that it was sent, or its task."""
        self.record.open_chats = [*(each for each in self.record.open_chats if each.id != chat.id), chat]
        self.write()

    def remove(self, id: str) -> None:
        self.record.open_chats = [each for each in self.record.open_chats if each.id != id]
        self.write()

    def ask(self, question: Question, max_questions: int) -> None:
        others = [each for each in self.record.questions if each.task_id != question.task_id]
        self.record.questions = [*others, question][-max_questions:]
        self.write()

    def take_question(self, member: str, about: tuple[str, ...]) -> Question | None:
        """The question that a chat answers: the one it refers to, or the last one to who wrote it."""
        questions = self.record.questions
        found = next((each for each in questions if each.chat_id in about), None)
        if found is None and not about:
            found = next((each for each in reversed(questions) if each.member == member), None)
        if found is not None:
            self.record.questions = [each for each in questions if each is not found]
            self.write()
        return found

    def write(self) -> None:
        """Write the record; raises UsageError if that fails."""
        self._file.write()
