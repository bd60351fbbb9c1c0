"""Which gateways live, told from the log alone, so that every gateway knows the same at the same place.

Each gateway writes a heartbeat every second. One is gone when another has written `gone_beats` since it last
wrote anything. Heartbeats are counted, not clocks: while the log elects a leader nobody's get in, and nobody
is gone for that; and a clock that is set means nothing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Final

import msgspec

# Which releases of Moot can serve one cluster together, so that it can be upgraded one gateway at a time.

_RELEASE: Final = re.compile(r"(\d+\.\d+)\.\d+", re.ASCII)


def decide_alike(one: str, other: str) -> bool:
    """Whether gateways of these two versions decide alike.

    Patch releases of one series do, by promise; snapshots compare states, so one that breaks it is noticed.
    What is no release (`0.2.0.dev0`) can be anything: it is alike to itself only.
    """
    if one == other:
        return True
    first, second = _RELEASE.fullmatch(one), _RELEASE.fullmatch(other)
    return first is not None and second is not None and first[1] == second[1]


class KnownGateway(msgspec.Struct):
    """One gateway as the log tells of it."""

    epoch: int
    version: str = ""
    is_alive: bool = True
    # The log's time of its last heartbeat.
    beat_at: float = 0.0
    # Heartbeats of others since it last wrote, by their names.
    missed: dict[str, int] = {}


class GatewayTable:
    """The gateways of a cluster, by name."""

    def __init__(self, gone_beats: int) -> None:
        self.gone_beats = gone_beats
        self.known: dict[str, KnownGateway] = {}

    def note_batch(self, name: str, epoch: int) -> bool:
        """A gateway wrote something; False if a later process of that name has begun: it does not count."""
        known = self.known.get(name)
        if known is None or known.epoch < epoch:
            self.known[name] = KnownGateway(epoch)
            return True
        if known.epoch > epoch:
            return False
        known.is_alive = True
        known.missed.clear()
        return True

    def earliest_time(self, name: str, epoch: int, heartbeat_seconds: float) -> float:
        """The log's time is this at least when this gateway writes a heartbeat.

        Should the clock of NATS be set back, then time still passes, and what was granted for an hour does
        not last for two. A little less than what has passed, so that two that came late together do not
        let the log's time run ahead for good.
        """
        known = self.known.get(name)
        if known is None or known.epoch != epoch or not known.beat_at:
            return 0.0
        return known.beat_at + 0.9 * heartbeat_seconds

    def note_beat(self, name: str, time: float) -> list[str]:
        """A gateway wrote a heartbeat, at this time of the log; returns the others that are gone by now."""
        gone = []
        self.known[name].beat_at = time
        for other, known in self.known.items():
            if other == name or not known.is_alive:
                continue
            missed = known.missed[name] = known.missed.get(name, 0) + 1
            if missed >= self.gone_beats:
                known.is_alive = False
                known.missed.clear()
                gone.append(other)
        return gone

    def note_stop(self, name: str) -> None:
        """A gateway said that it stops."""
        if name in self.known:
            self.known[name].is_alive = False

    def living(self) -> list[str]:
        return sorted(name for name, known in self.known.items() if known.is_alive)

    @property
    def first(self) -> str | None:
        """The gateway that does what one of them has to do."""
        return next(iter(self.living()), None)

    def others_of(self, name: str) -> Iterator[tuple[str, KnownGateway]]:
        return ((other, known) for other, known in self.known.items() if other != name and known.is_alive)

    def save(self) -> dict[str, object]:
        return {name: msgspec.to_builtins(known) for name, known in self.known.items()}

    def load(self, saved: object) -> None:
        self.known = msgspec.convert(saved, dict[str, KnownGateway])


def default_name(port: int) -> str:
    """The machine's name and the port, as one word of a NATS subject."""
    host = "".join(each if each.isalnum() and each.isascii() else "-" for each in socket.gethostname())
    return f"{host[:48] or 'gateway'}-{port}"
