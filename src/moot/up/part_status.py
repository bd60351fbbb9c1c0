"""How one part of a running space is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
