"""Snapshots of a shard: every gateway hashes its state at one place, one of them stores it, all compare."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from moot import __version__
from moot.errors import UsageError
from moot.gateway.cluster.cluster_shard import Shard, StoredSnapshot, hash_states
from moot.gateway.cluster.nats.batch import LoggedInput
from moot.gateway.cluster.nats.nats_connection import NATS_FAULTS, ClusterConnection
from moot.gateway.cluster.nats.snapshot_store import SnapshotStore
from moot.gateway.cluster.shared_input import encode_shared_input
from moot.gateway.created_spaces import EndedSpace
from moot.gateway.hosting.saved_history import SavedHistory, save_histories
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet

log = logging.getLogger(__name__)


class ShardSnapshots:
    """Takes, stores, loads and compares snapshots. A gateway whose state differs ends."""

    def __init__(
        self,
        gateway: str,
        connection: ClusterConnection,
        store: SnapshotStore,
        tasks: TaskSet,
        *,
        keep_log: bool,
        copied_until: Callable[[str, str], float],
    ) -> None:
        self._gateway = gateway
        self._connection = connection
        self._store = store
        self._tasks = tasks
        self._keep_log = keep_log
        # Up to which time of the log this gateway's own journal of a space has it.
        self._copied_until = copied_until

    async def load(
        self, shard: Shard, first: int, configured: Collection[str]
    ) -> tuple[int, dict[str, dict[str, Any]]]:
        """Begin a shard at its latest snapshot: the position behind it and the states of the spaces.

        Where the log is kept, a gateway whose journals would have a gap begins with the first message of it,
        unless another version wrote some of it, which may have decided otherwise.
        """
        found = await self._store.load(shard.index)
        if found is None or found.fields["stream"] != shard.identity:
            return 0, {}
        fields = found.fields
        is_whole = self._keep_log and first <= 1 and set(fields.get("versions", [""])) <= {__version__}
        shard.dropped = set(fields.get("dropped", ()))
        # Of a space that was dropped and made anew, the log begins with another one.
        is_whole = is_whole and shard.dropped.isdisjoint(configured)
        if is_whole and any(
            self._copied_until(name, shard.identity) < fields["time"] for name in fields["spaces"]
        ):
            log.info("reading the whole log", extra={"shard": shard.index})
            return 0, {}
        if fields["version"] != __version__:
            log.info("snapshot of another version", extra={"version": fields["version"]})
        shard.table.load(fields["gateways"])
        shard.clock.advance(fields["time"])
        shard.snapshots, shard.purgeable = fields["number"], found.position
        shard.stored = StoredSnapshot(found.position, fields["time"])
        shard.versions = set(fields.get("versions", [fields["version"]]))
        shard.records = {name: (id, count) for name, (id, count) in fields.get("records", {}).items()}
        shard.likes = dict(fields.get("likes", {}))
        shard.ended = msgspec.convert(fields.get("ended", {}), dict[str, EndedSpace])
        # Up to 0.3 none were kept.
        shard.histories = {name: SavedHistory(fields["time"]) for name in fields["spaces"]}
        shard.histories |= msgspec.json.decode(found.histories, type=dict[str, SavedHistory])
        return found.position, fields["spaces"]

    def take(self, shard: Shard, sequence: int) -> None:
        """Every gateway hashes its state here; one of them stores it and tells the others its hashes."""
        shard.counted = 0
        shard.snapshots += 1
        states = shard.save_states()
        shard.hashes = hash_states(states)
        shard.hashed_at = sequence
        if shard.table.first != self._gateway or shard.unknown or not shard.log.writer.epoch:
            return
        fields: dict[str, Json] = {
            "version": __version__,
            "versions": sorted(shard.versions),
            "stream": shard.identity,
            "number": shard.snapshots,
            "time": shard.clock.latest,
            "gateways": shard.table.save(),
            "spaces": states,
            "dropped": sorted(shard.dropped),
            "records": {name: [each.records.id, each.records.count] for name, each in shard.orders.items()},
            "likes": dict(shard.likes),
            "ended": msgspec.to_builtins(shard.ended),
        }
        histories = {name: each.journaled.delivery.history for name, each in shard.orders.items()}
        fields["histories"] = save_histories(histories, shard.clock.latest)
        hashes: dict[str, Json] = {"position": sequence, "hashes": dict(shard.hashes)}
        self._tasks.start(self._store_one(shard, sequence, fields, hashes))

    async def _store_one(
        self, shard: Shard, sequence: int, fields: dict[str, Json], hashes: dict[str, Json]
    ) -> None:
        try:
            await self._store.save(shard.index, shard.snapshots, sequence, fields)
            raw = encode_shared_input("", "snapshot", hashes)
            shard.log.writer.append(LoggedInput(encode_shared_input("", "snapshot", {}), raw))
            if shard.purgeable and not self._keep_log:
                await self._connection.context.purge_stream(shard.stream, seq=shard.purgeable + 1)
            shard.purgeable = sequence
        except NATS_FAULTS as fault:
            log.warning("snapshot not stored", extra={"shard": shard.index, "why": repr(fault)})

    def compare(self, shard: Shard, gateway: str, theirs: dict[str, Any]) -> None:
        """A gateway has stored a snapshot and told its hashes: if ours differ, this one must not go on."""
        shard.stored = StoredSnapshot(theirs["position"], shard.clock.latest)
        if theirs["position"] != shard.hashed_at:
            # Taken before we came, or already behind the next one.
            return
        differ = [name for name, hash in theirs["hashes"].items() if shard.hashes.get(name, hash) != hash]
        if differ:
            shard.log.fail(
                UsageError(
                    f"the state of {', '.join(differ)} differs from that of gateway {gateway} at message "
                    f"{shard.hashed_at} of shard {shard.index}: this gateway stops serving. Start it again: "
                    "it begins at the cluster's snapshot"
                )
            )
