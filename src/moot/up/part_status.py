"""How one part of a running space is doing, and when to try again what failed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from moot.protocol.operation import Json

Kind = Literal["gateway", "server", "member", "person"]
# starting: begun, not there yet. running: at work. waiting: it failed and is begun again soon.
# ended: by itself, and that is all right. idle: not started unless asked for. stopping: on its way out.
State = Literal["starting", "running", "waiting", "ended", "idle", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """One row of the status view. `words` may hold what a process wrote: escape it before it is shown."""

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
    words: str = ""

    def as_json(self) -> dict[str, Json]:
        return {
            "space": self.space,
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "joined": self.joined,
            "words": self.words,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How long to wait before a member is started again: doubled each time, back to the first when steady."""

    # A crash at once is noticed by the eye; half a second later it is back.
    first_seconds: float = 0.5
    # A member that cannot start costs two starts a minute, and is there soon after it is mended.
    most_seconds: float = 30.0
    # Whoever worked for a minute failed for another reason than the last time.
    steady_seconds: float = 60.0


class RestartDelay:
    """The pauses of one member."""

    def __init__(self, patience: RestartPolicy, draw: Callable[[], float] = random.random) -> None:
        self._patience = patience
        self._draw = draw
        self._next = patience.first_seconds

    def after(self, worked_seconds: float) -> float:
        """How long to wait now, after a life of so many seconds."""
        if worked_seconds >= self._patience.steady_seconds:
            self._next = self._patience.first_seconds
        step = self._next
        self._next = min(step * 2, self._patience.most_seconds)
        # Half to whole, so that members that failed together do not start as one.
        return step * (0.5 + 0.5 * self._draw())


DEFAULT_PATIENCE: Final = RestartPolicy()
