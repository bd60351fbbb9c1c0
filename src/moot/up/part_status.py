"""The status of one part of a running space: the gateway, a member process, a bridged server, a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from moot.protocol.operation import Json

# The end of a traceback.
LAST_LINES: Final = 5

Kind = Literal["gateway", "nats", "server", "member", "person"]
# starting: started, not ready yet. running: at work. waiting: it failed and is restarted soon.
# ended: it ended and is not restarted. idle: not started unless asked for. stopping: being stopped.
State = Literal["starting", "running", "waiting", "ended", "idle", "stopping"]


class PartStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the status view. `message` may hold what a process wrote: escape it before it is shown."""

    space: str
    name: str
    kind: Kind
    state: State
    pid: int | None = None
    # When this state began, on the loop's clock.
    since: float = 0.0
    restarts: int = 0
    # Whether the gateway sees it in the space.
    joined: bool = False
    message: str = ""
    # The last lines that a part wrote which failed, and the file with all of them.
    output: tuple[str, ...] = ()
    log_file: Path | None = None

    def as_json(self) -> dict[str, Json]:
        return {
            "space": self.space,
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "joined": self.joined,
            "words": self.message,
        }


class PartState:
    """The state of a part that is started again and again. `on_change` is called on every change."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.starts = 0
        self.change("starting")

    @property
    def restarts(self) -> int:
        return max(0, self.starts - 1)

    def start(self) -> None:
        self.starts += 1
        self.change("starting")

    def change(self, state: State, message: str = "") -> None:
        self.state: State = state
        self.message = message
        self.since = asyncio.get_running_loop().time()
        self._on_change()

    def wait_for_restart(self, reason: str, seconds: float) -> None:
        self.change("waiting", f"{reason}; restart in {seconds:.1f} s")
