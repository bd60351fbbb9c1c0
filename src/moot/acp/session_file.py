"""What outlives a restart: the session of the agent, and the chats that have no answer yet.

A chat is written down before the agent is prompted with it, and removed when its turn has ended. Whoever
starts the member again learns from it which turns were cut off. They are told, and nothing is repeated: what
the agent had done by then is not known here.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

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
        self._path = path
        self.record = self._read()

    def _read(self) -> SessionRecord:
        try:
            with self._path.open("rb") as opened:
                return msgspec.json.decode(opened.read(_MAX_BYTES), type=SessionRecord)
        except FileNotFoundError:
            return SessionRecord()
        except (OSError, msgspec.MsgspecError) as fault:
            log.warning("the session of the last run is not known", extra={"why": str(fault)})
            return SessionRecord()

    def set_session(self, session: str, folder: str, agent: str) -> None:
        self.record.session, self.record.folder, self.record.agent = session, folder, agent
        self._write()

    def add(self, chat: OpenChat) -> None:
        """Write a chat down, or that the agent is prompted with it."""
        self.record.open_chats = [*self._others(chat.id), chat]
        self._write()

    def remove(self, id: str) -> None:
        left = self._others(id)
        if len(left) != len(self.record.open_chats):
            self.record.open_chats = left
            self._write()

    def take_open(self) -> list[OpenChat]:
        """The chats of the last run that were not answered; they are removed."""
        found = self.record.open_chats
        if found:
            self.record.open_chats = []
            self._write()
        return found

    def _others(self, id: str) -> list[OpenChat]:
        return [each for each in self.record.open_chats if each.id != id]

    def _write(self) -> None:
        try:
            write_atomically(self._path, msgspec.json.encode(self.record))
        except OSError as fault:
            raise UsageError(f"{self._path} cannot be written: {fault.strerror}") from None
