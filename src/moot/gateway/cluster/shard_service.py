"""How a gateway begins and ends to serve one shard of the log: at its start and its stop, and in between.

    start:  newest snapshot ─▶ the log behind it ─▶ "started" in that log ─▶ its spaces are served
    stop:   connections to its spaces close ─▶ what was sent is written ─▶ "stopped" ─▶ its spaces are let go

A gateway that does not serve a shard has never started there. The first shard is the common one: every
gateway serves it for as long as it runs, so it tells who lives, of which version, and who came alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from moot import __version__
from moot.errors import UsageError
from moot.gateway.cluster.cluster_shard import Shard, StoredSnapshot, comparable_config
from moot.gateway.cluster.log_applier import LogApplier
from moot.gateway.cluster.nats import nats_connection
from moot.gateway.cluster.nats.batch import LogBatch, LoggedInput
from moot.gateway.cluster.nats.gateway_table import decide_alike
from moot.gateway.cluster.nats.log_writer import PendingInput
from moot.gateway.cluster.nats.nats_connection import ClusterConnection, use_stream
from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.gateway.cluster.nats.stream_health import wait_led
from moot.gateway.cluster.shard_snapshots import ShardSnapshots
from moot.gateway.cluster.shared_input import encode_shared_input
from moot.gateway.created_spaces import explain_ended
from moot.gateway.hosting.input_order import Outcome
from moot.space.config_json import save_config
from moot.space.space import Space

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode
    from moot.gateway.cluster.cluster_space_factory import ClusterSpaceFactory

log = logging.getLogger(__name__)

# Between two looks for a heartbeat of others, at a start.
_SIGN_SECONDS: Final = 0.05


class ShardService:
    """Starts and stops single shards of one gateway."""

    def __init__(
        self,
        node: ClusterNode,
        spaces: ClusterSpaceFactory,
        connection: ClusterConnection,
        snapshots: ShardSnapshots,
    ) -> None:
        self._node = node
        self._config = node.config
        self._spaces = spaces
        self._connection = connection
        self._snapshots = snapshots
        self._applier = LogApplier(node.config, node.configs, spaces, snapshots)
        # Gateways that lived when this one came: it brings its file with it if there were none.
        self.others: list[str] = []

    async def start(self, shard: Shard) -> None:
        """Serve a shard. Raises UsageError when that cannot be: then it has to be stopped."""
        await self._open(shard)
        if shard is self._node.common:
            await self._find_silent(shard)
            self._check_versions(shard)
        known = shard.table.known.get(self._node.name)
        await shard.log.begin(1 if known is None else known.epoch + 1)
        await self._announce(shard)
        shard.state, shard.served_since = "served", time.monotonic()
        self._spaces.serve(shard)

    async def stop(self, shard: Shard, until: float) -> None:
        """Serve a shard no longer; what its members did last is written until then, by the loop's clock."""
        was_served, shard.state = shard.state == "served", "stopping"
        self._spaces.let_go(shard)
        try:
            if shard.log.writer.epoch and not await shard.log.end(_own_input("stopped"), until):
                log.warning(
                    "stopped without the log: the other gateways find out by themselves",
                    extra={"shard": shard.index},
                )
        finally:
            await shard.log.stop()
            # Whatever NATS does, the journals go to disk.
            try:
                await self._spaces.close_spaces(shard, was_served=was_served)
            finally:
                shard.state = "not served"

    async def _open(self, shard: Shard) -> None:
        """Read the log to its end, from the newest snapshot."""
        node, connection, config, name = self._node, self._connection, self._config, shard.stream
        subject = f"{config.name}.log.{shard.index}"
        info = await use_stream(connection, config, name, f"{subject}.*", secrets.token_hex(8))
        shard.identity = (info.config.metadata or {}).get("moot_stream", "")
        # Behind the leader's end nothing was acknowledged; another server may know less of it.
        info = await wait_led(connection, name, nats_connection.CONNECT_SECONDS)
        position, states = await self._snapshots.load(shard, info.state.first_seq, node.configs)

        def apply(sequence: int, at: float, batch: LogBatch, own: Sequence[PendingInput]) -> None:
            self._applier.apply(shard, sequence, at, batch, own)
            node.frames.release()

        shard.log = SharedLog(
            connection,
            config,
            stream=name,
            subject=f"{subject}.{node.name}",
            gateway=node.name,
            position=position,
            on_batch=apply,
        )
        shard.log.failed.add_done_callback(lambda done: node.note_failed(shard, done.result()))
        shard.state = "starting"
        for space, ended in shard.ended.items():
            # It may have happened while this gateway was away.
            self._spaces.note_ended(space, ended)
        for space, state in states.items():
            self._applier.open_space(shard, space, state)
        await shard.log.catch_up(info.state.last_seq)
        self._check_failed(shard)
        shard.check_journals()

    def _check_failed(self, shard: Shard) -> None:
        for failed in (shard.log.failed, self._node.failed):
            if failed.done():
                raise failed.result()

    async def _find_silent(self, shard: Shard) -> None:
        """Wait for a sign of life of those that the log says to live; who gives none is silent.

        They may have ended without a word, all at once: then nobody was left to say that they are gone.
        """
        said = {name: (known.epoch, known.beat_at) for name, known in shard.others_of(self._node.name)}
        until = time.monotonic() + self._config.gone_seconds
        while said and time.monotonic() < until:
            await asyncio.sleep(_SIGN_SECONDS)
            self._check_failed(shard)
            living = {name: (known.epoch, known.beat_at) for name, known in shard.others_of(self._node.name)}
            said = {name: seen for name, seen in said.items() if living.get(name) == seen}
        shard.silent = {name: epoch for name, (epoch, _) in said.items()}
        if said:
            log.warning(
                "gateways that did not say that they stop give no sign of life",
                extra={"gateways": sorted(said), "shard": shard.index},
            )

    def _check_versions(self, shard: Shard) -> None:
        """Raises UsageError where a gateway lives whose version might decide otherwise."""
        for name, known in shard.others_of(self._node.name):
            if known.version and not decide_alike(known.version, __version__):
                raise UsageError(
                    f"gateway {name} of this cluster runs Moot {known.version}, and this is {__version__}: "
                    "stop the others first, a cluster runs one version or patch releases of one series"
                )

    async def _announce(self, shard: Shard) -> None:
        """Say that we are here, and make the spaces that are new; done when the log brought it back."""
        node, is_common = self._node, shard is self._node.common

        def note_others(_outcome: Outcome) -> None:
            # Of several that start together, the first in the log is alone.
            if is_common:
                self.others = [name for name, known in shard.others_of(node.name) if known.version]

        shard.log.writer.append(_own_input("started", who=__version__), note_others)
        missing = [name for name in node.configs if node.shard_of(name) is shard and name not in shard.orders]
        for name in missing:
            if (ended := shard.ended.get(name)) is not None:
                raise UsageError(f"{explain_ended(name, ended)}: take it out of this gateway's file")
            state = await self._spaces.initial_state(name)
            if state is None:
                state = Space(node.configs[name]).save() | {"config": save_config(node.configs[name])}
            node.append(shard, name, "create", {"state": state}, None)
        for name, like in self._spaces.made_here(shard).items():
            if (state := await self._spaces.initial_state(name)) is not None:
                node.append(shard, name, "create", {"state": state, "like": like}, None)
        created: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shard.log.writer.append(_own_input("announced"), lambda _outcome: created.set_result(None))
        while not created.done():
            self._check_failed(shard)
            if refusal := shard.log.writer.refusal:
                raise UsageError(f"NATS does not take messages of {shard.stream}: {refusal}")
            await asyncio.wait(
                (created, shard.log.failed),
                timeout=self._config.stale_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        self._check_failed(shard)
        if not shard.orders.keys() >= set(missing):
            raise UsageError("this gateway was silent for too long during its start: start it again")
        if not shard.stored.position:
            shard.stored = StoredSnapshot(0, shard.clock.latest)
        if is_common:
            # Once more: one that started together with us was not there before.
            self._check_versions(shard)
        self._compare_configs(shard)

    def _compare_configs(self, shard: Shard) -> None:
        """A gateway that comes alone brings its file and its address with it; others are told what differs,
        and so is one that runs: what it does not serve was perhaps reloaded by others."""
        node = self._node
        is_alone = not (self.others or node.is_started)
        made = {
            name: self._spaces.config_like(name, like)
            for name, like in shard.likes.items()
            if name in shard.orders and like in node.configs
        }
        for name, config in (made | dict(node.configs)).items():
            order = shard.orders.get(name)
            if order is None:
                continue
            cluster = order.space.state.config
            ours, theirs = comparable_config(config), comparable_config(cluster)
            if ours == theirs and (not is_alone or config.connection_url == cluster.connection_url):
                continue
            if is_alone:
                node.append(shard, name, "reload", {"config": save_config(config)}, None)
                continue
            differ = [key for key in ours if ours[key] != theirs.get(key)]
            node.differing[name] = (differ, cluster)
            log.warning(
                "this configuration differs: the cluster's is in force, reload to change it everywhere",
                extra={"space": name, "differs": differ, "others": self.others},
            )


def _own_input(input: str, **facts: str) -> LoggedInput:
    """What a gateway says of itself."""
    return LoggedInput(encode_shared_input("", input, dict(facts)), b"")
