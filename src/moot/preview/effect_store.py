"""Effects on disk: what was seen, what it holds, and whether it was applied. For one server, in one folder.

HASH/effect.json    the effect, whose hash is the name of the folder
HASH/about.json     for which proposal, and what was told of it
HASH/contents/…     every touched file, before and after, by its own hash
HASH/status         told, applied or undone: replaced as a whole, it is what counts after a crash
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from moot.preview.call_effect import CallEffect, read_effect
from moot.private_files import sync_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically

# What one bridge keeps: the last ones can be taken back.
MAX_KEPT: Final = 100
MAX_KEPT_BYTES: Final = 512 << 20

EffectStatus = Literal["told", "applied", "undone"]


class AboutEffect(msgspec.Struct, frozen=True):
    """What belongs to an effect and is not part of it."""

    proposal: str
    result: Json
    # As it was told.
    report: dict[str, Json]
    at: float


@dataclass(slots=True)
class StoredEffect:
    """One effect that is on disk."""

    folder: Path
    effect: CallEffect
    about: AboutEffect
    status: EffectStatus

    @property
    def hash(self) -> str:
        return self.folder.name

    def content(self, sha256: str) -> bytes:
        return (self.folder / "contents" / sha256).read_bytes()

    def set_status(self, status: EffectStatus) -> None:
        """Returns when it is on disk; raises OSError."""
        write_atomically(self.folder / "status", status.encode())
        sync_folder(self.folder)
        self.status = status


class EffectStore:
    """All effects of one server, oldest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, StoredEffect] = {}

    def load(self) -> None:
        """Read what an earlier run has kept; what is broken is left out."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = []
        for each in self.folder.iterdir():
            if each.name.startswith(".new-"):
                shutil.rmtree(each, ignore_errors=True)
            elif each.is_dir():
                with suppress(OSError, ValueError):
                    found.append(_read(each))
        self._known = {each.hash: each for each in sorted(found, key=lambda stored: stored.about.at)}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, hash: str) -> StoredEffect | None:
        return self._known.get(hash)

    def of(self, proposal: str) -> StoredEffect | None:
        """The last one that was told of a proposal."""
        return next(
            (each for each in reversed(self._known.values()) if each.about.proposal == proposal), None
        )

    def save(self, effect: CallEffect, contents: Mapping[str, bytes], about: AboutEffect) -> StoredEffect:
        """Keep one more; raises OSError."""
        scratch = self.folder / f".new-{secrets.token_hex(8)}"
        (scratch / "contents").mkdir(mode=0o700, parents=True)
        try:
            named = {
                state.sha256 for each in effect.changes for state in (each.before, each.after) if state
            } - {""}
            files = {scratch / "contents" / name: contents[name] for name in named}
            files |= {
                scratch / "effect.json": effect.encoded(),
                scratch / "about.json": msgspec.json.encode(about),
                scratch / "status": b"told",
            }
            for file, data in files.items():
                with open(file, "xb", opener=_private) as opened:
                    opened.write(data)
                    opened.flush()
                    os.fsync(opened.fileno())
            folder = self.folder / effect.hash
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        stored = StoredEffect(folder, effect, about, "told")
        self._known[stored.hash] = stored
        self._make_room(stored)
        return stored

    def drop(self, stored: StoredEffect) -> None:
        self._known.pop(stored.hash, None)
        shutil.rmtree(stored.folder, ignore_errors=True)

    def _make_room(self, newest: StoredEffect) -> None:
        sizes = {each.hash: _size(each) for each in self._known.values()}
        for each in list(self._known.values()):
            if len(self._known) <= MAX_KEPT and sum(sizes[name] for name in self._known) <= MAX_KEPT_BYTES:
                return
            if each is not newest:
                self.drop(each)


def _read(folder: Path) -> StoredEffect:
    effect = read_effect((folder / "effect.json").read_bytes())
    about = msgspec.json.decode((folder / "about.json").read_bytes(), type=AboutEffect)
    status: EffectStatus = msgspec.convert((folder / "status").read_text("ascii"), EffectStatus)
    if effect.hash != folder.name:
        raise ValueError("not as it was written")
    return StoredEffect(folder, effect, about, status)


def _size(stored: StoredEffect) -> int:
    states = {
        state.sha256: state.size
        for each in stored.effect.changes
        for state in (each.before, each.after)
        if state is not None
    }
    return sum(states.values())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
