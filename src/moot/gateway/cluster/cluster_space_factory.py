"""Opening spaces that other gateways serve, too: their state comes from the cluster's log, and this gateway's
own folder holds a copy of the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from moot.config.cluster_config import ClusterConfig
from moot.config.configuration import Configuration
from moot.errors import UsageError
from moot.gateway.access import SpaceDirectory
from moot.gateway.cluster.cluster_node import ClusterNode
from moot.gateway.cluster.cluster_shard import Shard
from moot.gateway.cluster.log_applier import explain_dropped
from moot.gateway.cluster.log_order import LogOrder
from moot.gateway.hosting.durability import CarriedOut, PendingEffects
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.hosting.space_records import recorded_time
from moot.gateway.hosting.space_restore import restore_space
from moot.gateway.space_factory import CLUSTER_FILE, SpaceFactory
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.space.config_json import save_config
from moot.space.effects import Mail
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal_reader import last_records
from moot.store.open_journal import open_journal
from moot.store.position_marker import read_marker


class LogDurability:
    """Effects go out at once: whatever comes out of the log is kept, by NATS."""

    unsaved = None
    sends_at_once = True
    withholds = False
    lost_records = 0

    def __init__(self, journaled: JournaledSpace) -> None:
        self._journaled = journaled

    def check(self) -> None:
        """It was kept before it was applied."""

    def carry_out(self, entry: PendingEffects) -> None:
        if entry.waits:
            # Also in the copy soon: should a power cut take the end of the log, a right must not come back.
            self._journaled.journal.when_durable(entry.number, _nobody_waits)
        entry.finish(self._journaled.delivery, on_disk=True)

    def release(self) -> None:
        """Nothing waits."""

    def tell_unsaved(self) -> None:
        """Nothing is unsaved."""

    def report_health(self, writable: bool) -> None:
        """The files of one gateway are its own affair: the space goes on by the log."""
        log.log(
            logging.INFO if writable else logging.ERROR,
            "the local journal is written again" if writable else "the local journal cannot be written",
            extra={"space": self._journaled.name},
        )

    async def wait_noted(self, number: int, done: CarriedOut) -> None:
        """The log itself knows of every record."""

    def stop(self) -> None:
        """Nobody waits."""


log = logging.getLogger(__name__)

_COPIED_RECORDS: Final = 64
# A disk that does not answer at the end has this long: what the copy lacks is in the log, which has used
# its own share of the 5 s of a stop.
_CLOSE_SECONDS: Final = 1.0
# NATS has each input on disk before it is applied: what a power cut takes from the copy here is read from
# the log again. An fsync for each message cost as much as applying it.
_SYNC_SECONDS: Final = 1.0


def _nobody_waits() -> None:
    """It was carried out when it came."""


class ClusterSpaceFactory(SpaceFactory):
    """Opens the spaces of one gateway of a cluster."""

    def __init__(
        self,
        configuration: Configuration,
        directory: SpaceDirectory,
        database: Database,
        *,
        url: str,
        on_mail: Callable[[Mail, str], None],
        cluster: ClusterConfig,
        port: int,
        close_sockets: Callable[[str], None],
    ) -> None:
        super().__init__(configuration, directory, database, url=url, on_mail=on_mail)
        self._opened: dict[str, SpaceHost] = {}
        if configuration.gateway.auto_create_spaces:
            raise UsageError(
                "gateway.auto_create_spaces: not in a cluster, whose gateways have the same spaces; name them"
            )
        self.node = ClusterNode(
            cluster,
            port=port,
            configs={
                name: self._space_config(name, settings) for name, settings in configuration.spaces.items()
            },
            open_space=self._open_space,
            initial_state=self._initial_state,
            copied_until=self._copied_until,
            close_sockets=close_sockets,
        )

    async def open_all(self) -> None:
        await self.node.start()
        self._directory.guest_prefix = f"{self.node.name}-{self.node.shards[0].log.writer.epoch}-"
        for name, settings in self._configuration.spaces.items():
            host = self._opened[name]
            self._add_to_directory(name, host, settings)
            self._add_outputs(host, settings)
            log.info("space open", extra={"space": name, "position": self.node.shard_of(name).log.position})

    async def close(self) -> None:
        try:
            await self.node.stop()
        finally:
            # Whatever NATS does, the journals go to disk; those of a start that failed are not served yet.
            served = self._directory.hosts
            unserved = (host.stop() for name, host in self._opened.items() if name not in served)
            await asyncio.gather(super().close(), *unserved, self.node.disconnect())

    def _open_space(self, name: str, space: Space, shard: Shard, is_ours: bool) -> LogOrder:
        options = self._options(name, self._configuration.spaces[name])
        options = msgspec.structs.replace(options, clock=shard.clock, fast_path=False)
        folder = self._folder(name)
        copied_until = self._copied_until(name, shard.identity, is_ours)
        journal = open_journal(options.folder, options.journal, sync_seconds=_SYNC_SECONDS)
        journal.clock = shard.clock
        journal.close_seconds = _CLOSE_SECONDS
        write_atomically(folder / CLUSTER_FILE, shard.identity.encode())
        applier = self._applier(options, space, journal, LogDurability)
        order = LogOrder(applier, self.node, shard, copied_until)
        host = self._opened[name] = SpaceHost(applier, order)
        order.on_reloaded = partial(self._directory.end_excluded, host)
        marker = read_marker(folder)
        host.journaled.snapshots.generation = 0 if marker is None else marker.snapshot
        if shard.clock.latest > copied_until:
            # What lies between is not in this gateway's copy; from here on it tells everything again.
            host.record_state("a gateway of a cluster begins here")
        return order

    def _send_mail(self, mail: Mail, space: str) -> None:
        if mail.token.secret is not None:
            # Only the gateway that took the invitation in knows the token.
            super()._send_mail(mail, space)

    def _copied_until(self, name: str, identity: str, is_ours: bool = False) -> float:
        """Up to which time of the log the local journal has it. Raises UsageError when it is of another."""
        folder = self._folder(name)
        if not (folder / "journal").exists():
            return 0.0
        mark = folder / CLUSTER_FILE
        if mark.exists() and mark.read_text() == identity:
            return max(
                (recorded_time(each.line) for each in last_records(folder / "journal", _COPIED_RECORDS)),
                default=0.0,
            )
        if is_ours:
            return 0.0
        raise UsageError(
            f"{folder} holds a space {name!r} of its own, and the cluster has one of that name with another "
            "past: move that folder away if the cluster's is the right one"
        )

    async def _initial_state(self, name: str) -> dict[str, Json] | None:
        """What this gateway's files know of a space that the log does not have yet; everybody has left."""
        folder = self._folder(name)
        if not (folder / "journal").exists():
            return None
        mark = folder / CLUSTER_FILE
        if mark.exists() and mark.read_text() == self.node.shard_of(name).identity:
            # What was revoked there since this copy was made would be allowed again.
            raise UsageError(explain_dropped(name))
        settings = self._configuration.spaces[name]
        options, config = self._options(name, settings), self._space_config(name, settings)
        restored = await restore_space(options, config, self._database)
        await restored.journal.close()
        space, mint = restored.space, FreshMint()
        space.restart(restored.latest, mint)
        # From here on the log keeps what happens, whatever the disk was like.
        space.health(journal_writable=True)
        space.reload(config, restored.latest, mint)
        log.info("the space of this gateway's files becomes the cluster's", extra={"space": name})
        return space.save() | {"config": save_config(config)}
