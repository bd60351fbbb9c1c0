"""Members of the SDK that know all gateways of a cluster, and how long they are away when one is killed."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from moot.errors import MootError
from moot.participant import JoinedSpace, connect

_RETRY_SECONDS = 0.1
# A move before a kill may be noticed behind it.
_MOVED_SECONDS = 30.0


class Kill(NamedTuple):
    """Which gateway, and when."""

    url: str
    at: float


class RoamingMembers:
    """`back_seconds`: how long each was away that was at a gateway when it was killed."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)
        # Where shards are shared, a space has one gateway, and whoever is relayed to it loses it as well.
        self.are_relayed = False
        # How long each loss of a connection lasted, by what went wrong meanwhile.
        self.fault = ""
        self.pauses: defaultdict[str, list[float]] = defaultdict(list)
        self._kill: Kill | None = None
        # When a gateway last left a shard, perhaps.
        self._moved: dict[str, float] = {}
        self.back_seconds: list[float] = []
        # Of those that were at another gateway: nothing of a kill may interrupt them.
        self.interrupted: list[str] = []
        self._at: dict[str, str] = {}
        self._spaces: dict[str, JoinedSpace] = {}

    def note_kill(self, url: str) -> None:
        """A gateway is about to be killed; until `forget_kill` whoever comes back is counted."""
        self._at = {name: each._session.link.url for name, each in self._spaces.items()}
        self._kill = Kill(url, time.monotonic())

    def note_move(self, url: str) -> None:
        """A gateway leaves a shard, perhaps: whoever is there is rightly interrupted."""
        self._moved[url] = time.monotonic()

    async def forget_kill(self) -> None:
        """Wait until all are back, and count no longer."""
        lost = [name for name, url in self._at.items() if self._kill is not None and url == self._kill.url]
        for name in lost:
            if (space := self._spaces.get(name)) is not None:
                await space.ready(300)
        self._kill = None

    async def run(self, name: str, first: int) -> None:
        """Be there as this member, at first at the gateway of this number, until cancelled."""
        urls = ",".join(self._urls[first:] + self._urls[:first])
        while True:
            try:
                async with connect(urls, "lab", f"t-{name}") as space:
                    space.on_reconnected(lambda: self._note_back(name))
                    self._spaces[name] = space
                    await space.stay()
            except MootError:
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                self._spaces.pop(name, None)

    def _note_back(self, name: str) -> None:
        if (space := self._spaces.get(name)) is not None:
            self.pauses[self.fault].append(time.time() - space._session._lost_at)
        if self._kill is None or name not in self._at:
            return
        was_at = self._at.pop(name)
        if was_at == self._kill.url:
            self.back_seconds.append(time.monotonic() - self._kill.at)
        elif not self.are_relayed and self._moved.get(was_at, 0.0) < self._kill.at - _MOVED_SECONDS:
            self.interrupted.append(name)
