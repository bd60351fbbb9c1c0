"""Spaces that are in no file: made while the gateway runs, by an operator or by whoever joined them first.

What this gateway knows of them stands in their folders, so that it outlives a restart and any change of the
configuration:

    like     the space of the configuration after which it was made
    ended    archived or deleted, by whom and when; of a deleted one nothing else is left

A name is used once. Whoever had rights in a space that has ended would be taken for a member of the next one.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from moot.config.connect_settings import LIKE_FILE
from moot.errors import InvalidOperation, UsageError
from moot.gateway.hosting.space_host import SpaceHost
from moot.private_files import sync_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically

_ENDED_FILE: Final = "ended"
# In the folder of a space: of which cluster's log its journal is a copy.
CLUSTER_FILE: Final = "cluster"
# What stays of a deleted space: its name is not used again.
_KEPT_FILES: Final = frozenset({_ENDED_FILE, CLUSTER_FILE})

End = Literal["archived", "deleted"]


class EndedSpace(msgspec.Struct, frozen=True):
    """How a space ended, by whom and when."""

    ended: End
    by: str
    at: str


class SpaceOperations(Protocol):
    """What operators do about spaces. All raise Refused."""

    async def create_space(self, name: str, like: str | None, by: str) -> str:
        """Make a space after one of the configuration; returns after which."""
        ...

    async def end_space(self, name: str, how: End, by: str) -> None:
        """Close a space for good; one that is deleted leaves nothing but its name."""
        ...

    def describe_spaces(self) -> list[dict[str, Json]]:
        """All spaces of this gateway, those that have ended too."""
        ...


class CreatedSpaces:
    """The marks in the folders of one gateway."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Name → the space after which it was made.
        self.models: dict[str, str] = {}
        self.ended: dict[str, EndedSpace] = {}
        for mark in sorted(folder.glob(f"*/{LIKE_FILE}")):
            self.models[mark.parent.name] = mark.read_text("utf-8")
        for mark in sorted(folder.glob(f"*/{_ENDED_FILE}")):
            try:
                self.ended[mark.parent.name] = msgspec.json.decode(mark.read_bytes(), type=EndedSpace)
            except msgspec.MsgspecError as fault:
                raise UsageError(f"{mark} is damaged: {fault}. Restore it from a copy") from None
            self.models.pop(mark.parent.name, None)

    def note_created(self, name: str, model: str) -> None:
        """On disk when this returns: without it the space would be gone after a power cut. Raises OSError."""
        folder = self._folder / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(folder / LIKE_FILE, model.encode())
        sync_folder(folder)
        sync_folder(folder.parent)
        self.models[name] = model

    def note_configured(self, name: str) -> None:
        """The file has it now, with people of its own: it is no longer one of these. Raises OSError."""
        if self.models.pop(name, None) is not None:
            (self._folder / name / LIKE_FILE).unlink()

    def check_may_end(self, name: str, how: End, configured: Container[str]) -> None:
        """Raises InvalidOperation."""
        if name in configured:
            raise InvalidOperation(
                f"space {name!r} is in the file of this gateway: nothing was changed. Take it out of there"
            )
        ended = self.ended.get(name)
        if ended is None and name not in self.models:
            raise InvalidOperation(
                f"this gateway made no space {name[:64]!r}; `moot space list` names those it has made"
            )
        if ended is not None and how == "archived":
            raise InvalidOperation(f"space {name!r} was {ended.ended} on {ended.at[:10]}")

    def note_ended(self, name: str, ended: EndedSpace) -> None:
        """On disk when this returns, before anything of it is removed. Raises OSError."""
        folder, before = self._folder / name, self.ended.get(name)
        write_atomically(folder / _ENDED_FILE, msgspec.json.encode(ended))
        try:
            sync_folder(folder)
        except OSError:
            # Or the next start would end, and remove, what whoever asked was told is as before.
            if before is None:
                (folder / _ENDED_FILE).unlink()
            else:
                write_atomically(folder / _ENDED_FILE, msgspec.json.encode(before))
            raise
        self.ended[name] = ended
        self.models.pop(name, None)

    def has_files(self, name: str) -> bool:
        """Whether anything is left of a space but the marks that keep its name."""
        folder = self._folder / name
        return folder.exists() and any(each.name not in _KEPT_FILES for each in folder.iterdir())

    def remove_files(self, name: str) -> None:
        """Remove what is left of a space that was deleted. Blocks; raises OSError."""
        for each in (self._folder / name).iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.name not in _KEPT_FILES:
                each.unlink()


def describe(
    hosts: Mapping[str, SpaceHost], models: Mapping[str, str], ended: Mapping[str, EndedSpace]
) -> list[dict[str, Json]]:
    """The spaces that are open, then those that have ended."""
    found: list[dict[str, Json]] = [
        {
            "name": name,
            "state": "open",
            "like": models.get(name),
            "connections": len(host.space.state.roster.sessions),
        }
        for name, host in sorted(hosts.items())
    ]
    for name, each in sorted(ended.items()):
        found.append({"name": name, "state": each.ended, "by": each.by, "at": each.at})
    return found


def explain_ended(name: str, ended: EndedSpace) -> str:
    """For whoever wants a space of a name that was used."""
    return f"space {name!r} was {ended.ended} by {ended.by} on {ended.at[:10]}, and a name is used once"
