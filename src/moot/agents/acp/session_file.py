"""What outlives a restart: the session of the agent, and the chats that have no answer yet.

A chat is written down before the agent is prompted with it, and removed when its turn has ended. Whoever
starts the member again learns from it which turns were cut off. They are told, and nothing is repeated: what
the agent had done by then is not known here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from moot.resilience.atomic_file import RecordFile

_MAX_BYTES: Final = 1 << 20


class OpenChat(msgspec.Struct, frozen=True):
    """A chat that is to be answered."""

    id: str
    sender: str
    # Whether the agent was prompted with it.
    started: bool = False


class SessionRecord(msgspec.Struct, kw_only=True):
    """The content of the file."""

    version: int = 1
    session: str = ""
    folder: str = ""
    agent: str = ""
    open_chats: list[OpenChat] = []


class SessionFile:
    """The record on disk. It must be written before an agent acts, so a failure is an error."""

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path, SessionRecord, max_bytes=_MAX_BYTES, what="the session")
        self.record = self._file.record

    def set_session(self, session: str, folder: str, agent: str) -> None:
        self.record.session, self.record.folder, self.record.agent = session, folder, agent
        self._file.write()

    def add(self, chat: OpenChat) -> None:
        """Write a chat down, or that the agent is prompted with it."""
        self.record.open_chats = [*self._others(chat.id), chat]
        self._file.write()

    def remove(self, id: str) -> None:
        left = self._others(id)
        if len(left) != len(self.record.open_chats):
            self.record.open_chats = left
            self._file.write()

    def take_open(self) -> list[OpenChat]:
        """The chats of the last run that were not answered; they are removed."""
        found = self.record.open_chats
        if found:
            self.record.open_chats = []
            self._file.write()
        return found

    def _others(self, id: str) -> list[OpenChat]:
        return [each for each in self.record.open_chats if each.id != id]
