"""One boxed run whose writing stays in memory: its folders are overlays, and are read after its end."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from moot.box import overlay_mounts
from moot.box.box_plan import BoxPlan
from moot.errors import UsageError

# In memory: what a call writes before it is looked at, in bytes and in files.
OVERLAY_BYTES: Final = 256 << 20
OVERLAY_FILES: Final = 20_000


class FolderOverlay:
    """The overlays of one run. `uppers`: by folder, an open one with what was changed there."""

    def __init__(self, scratch: Path) -> None:
        """`scratch`: an empty folder."""
        self._scratch = scratch
        self.uppers: dict[Path, int] = {}
        self._folders: list[Path] = []
        self._ours: socket.socket | None = None

    def wrap(self, plan: BoxPlan, command: Sequence[str]) -> tuple[list[str], socket.socket]:
        """The command with overlays over all that it may change, and a socket that it inherits; raises
        UsageError for a file that cannot be overlaid."""
        written = sorted({*plan.write.values(), *(() if plan.home is None else (plan.home.resolve(),))})
        for each in written:
            if not each.is_dir():
                raise UsageError(f"its box: write: {each.name} is a file, which cannot be previewed")
        home = None if plan.home is None else plan.home.resolve()
        # One inside of another is part of it, but for the home, which is no folder of the operator's.
        self._folders = [
            each
            for each in written
            if each == home or not any(each != other and each.is_relative_to(other) for other in written)
        ]
        self._ours, theirs = socket.socketpair()
        program = [sys.executable, "-I", "-S", overlay_mounts.__file__, str(theirs.fileno())]
        limits = [str(self._scratch), str(OVERLAY_BYTES), str(OVERLAY_FILES)]
        return [*program, *limits, json.dumps([str(each) for each in self._folders]), "--", *command], theirs

    def receive_folders(self) -> None:
        """Take over what holds the changes, from a run that has begun; raises OSError."""
        if self._ours is None:
            return
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, len(self._folders), socket.MSG_DONTWAIT)
        self.uppers = dict(zip(self._folders, descriptors, strict=True))

    def close(self) -> None:
        if self._ours is not None:
            self._ours.close()
        for each in self.uppers.values():
            with suppress(OSError):
                os.close(each)
        self.uppers = {}
