"""One stream of a cluster's log on this gateway: its place in it, and the spaces whose inputs are in it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from moot.errors import UsageError
from moot.gateway.cluster.log_order import LogOrder
from moot.gateway.cluster.nats.batch import InputParts
from moot.gateway.cluster.nats.gateway_table import GatewayTable, KnownGateway
from moot.gateway.cluster.nats.log_reader import LOST_MESSAGES
from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.gateway.created_spaces import EndedSpace
from moot.gateway.hosting.saved_history import SavedHistory
from moot.protocol.operation import Json
from moot.space.config import SpaceConfig
from moot.space.config_json import save_config
from moot.space.state_hash import hash_state


class LogClock:
    """The log's time: when its latest message was stored, by the clock of NATS. It never goes back."""

    def __init__(self) -> None:
        self.latest = 0.0
        self._heard_at = time.monotonic()

    def __call__(self) -> float:
        return self.latest

    def advance(self, stored_at: float) -> float:
        """A message of the log was stored then. No two messages have the same time.

        Always whole microseconds: a gateway that begins at a snapshot goes on from the same number.
        """
        self.latest = max(round(self.latest + 1e-6, 6), round(stored_at, 6))
        self._heard_at = time.monotonic()
        return self.latest

    def seconds_until(self, moment: float) -> float:
        """How long it takes about until a message would have this time."""
        return moment - self.latest - (time.monotonic() - self._heard_at)


ShardState = Literal["not served", "starting", "served", "stopping"]


class StoredSnapshot(NamedTuple):
    """Where in the log a snapshot was taken, and the log's time when it was stored."""

    position: int
    time: float


class Shard:
    """One stream of the log, and the spaces whose inputs are in it.

    Each time that a gateway begins to serve it there is a new one; `ShardService` says how.
    """

    def __init__(self, index: int, stream: str, gone_beats: int) -> None:
        self.index = index
        # Its name in NATS.
        self.stream = stream
        self.state: ShardState = "not served"
        # By `time.monotonic`.
        self.served_since = 0.0
        self.table = GatewayTable(gone_beats)
        self.clock = LogClock()
        self.parts = InputParts()
        # The spaces that this gateway serves.
        self.orders: dict[str, LogOrder] = {}
        # Which space each is, and how many records of it there were when this gateway began with it.
        self.records: dict[str, tuple[str, int]] = {}
        # What members were sent before the snapshot at which this gateway began, of spaces to be opened.
        self.histories: dict[str, SavedHistory] = {}
        # Random bits of the message that is applied, which only the log has.
        self.seed = b""
        # Spaces that are in the log and not in this gateway's configuration.
        self.unknown: set[str] = set()
        # Spaces that operators have dropped; one of the same name may have been made since.
        self.dropped: set[str] = set()
        # Spaces that were made while gateways ran, and after which, and those of them that have ended.
        self.likes: dict[str, str] = {}
        self.ended: dict[str, EndedSpace] = {}
        # Of the common shard: epochs of gateways that the log says to live, and that gave no sign of life at
        # our start.
        self.silent: dict[str, int] = {}
        # Not before it is starting.
        self.log: SharedLog
        # Which stream it is: one that was made anew under the same name has another.
        self.identity = ""
        # Versions of Moot whose gateways have written to it.
        self.versions: set[str] = set()
        # Messages and inputs since the last snapshot, and how many snapshots there were.
        self.counted = 0
        self.snapshots = 0
        self.purgeable = 0
        # The latest that this gateway knows of.
        self.stored = StoredSnapshot(0, 0.0)
        # Hashes of our states where the latest snapshot was due, by space.
        self.hashes: dict[str, str] = {}
        self.hashed_at = 0
        # The same where an operator last asked for them.
        self.compared: dict[str, str] = {}
        self.compared_at = 0

    def others_of(self, name: str) -> Iterator[tuple[str, KnownGateway]]:
        """The other gateways that live, as far as is known here."""
        for other, known in self.table.others_of(name):
            if self.silent.get(other) != known.epoch:
                yield other, known

    def save_states(self) -> dict[str, dict[str, Json]]:
        """The states of its spaces as they are now, by name."""
        return {
            name: order.space.save() | {"config": save_config(order.space.state.config)}
            for name, order in self.orders.items()
        }

    def check_journals(self) -> None:
        """All of the log is read. Raises UsageError when a journal of this gateway goes on behind its end."""
        for name, order in self.orders.items():
            if order.copied_until > self.clock.latest:
                raise UsageError(
                    f"this gateway's journal of space {name!r} has messages that are not in the log "
                    f"{self.stream}: {LOST_MESSAGES}"
                )

    def compare(self) -> None:
        """Hash the states here, for an operator: beside those of snapshots, which decide who may go on."""
        self.compared = hash_states(self.save_states())
        self.compared_at = self.log.position


def hash_states(states: dict[str, dict[str, Json]]) -> dict[str, str]:
    return {name: hash_state(state) for name, state in states.items()}


def comparable_config(config: SpaceConfig) -> dict[str, Json]:
    """What gateways have alike; the address is each one's own."""
    saved = save_config(config)
    saved.pop("connection_url", None)
    return dict(json.loads(msgspec.json.encode(saved)))
