"""A gateway's place in its cluster: it appends the inputs of its members to the log, applies what the log
brings to the spaces, and knows when it is cut off.

    start:  connect ─▶ snapshot ─▶ read up to the end of the log ─▶ say "started" ─▶ serve
    later:  heartbeat back within a second      serves
            not for frame_stale_seconds         no frames of streams
            not for unavailable_seconds         what waits is refused, and nothing new is taken
            not for stale_seconds               connections are closed: their members go elsewhere
            what cannot be mended in place      the process ends, and its next start begins at a snapshot

`LogApplier` carries out what the log brings, `ShardSnapshots` takes and compares snapshots.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from moot import __version__
from moot.config.cluster_config import ClusterConfig
from moot.errors import Unavailable, UsageError
from moot.gateway.cluster.cluster_frames import ClusterFrames
from moot.gateway.cluster.cluster_shard import Shard, StoredSnapshot, comparable_config
from moot.gateway.cluster.cluster_status import ClusterStatus
from moot.gateway.cluster.log_applier import LogApplier, OpenSpace
from moot.gateway.cluster.nats.batch import LogBatch, LoggedInput
from moot.gateway.cluster.nats.gateway_table import decide_alike, default_name
from moot.gateway.cluster.nats.log_barrier import LogBarrier
from moot.gateway.cluster.nats.log_writer import PendingInput
from moot.gateway.cluster.nats.nats_connection import (
    NATS_FAULTS,
    ClusterConnection,
    connect,
    snapshots_bucket,
    use_snapshots,
    use_stream,
)
from moot.gateway.cluster.nats.shared_log import SharedLog
from moot.gateway.cluster.nats.snapshot_store import SnapshotStore
from moot.gateway.cluster.nats.stream_health import wait_led
from moot.gateway.cluster.shard_snapshots import ShardSnapshots
from moot.gateway.cluster.shared_input import encode_shared_input
from moot.gateway.created_spaces import EndedSpace, explain_ended
from moot.gateway.hosting.input_order import Outcome, Tell
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from moot.space.config import SessionId, SpaceConfig
from moot.space.config_json import save_config
from moot.space.effects import Token
from moot.space.space import Space

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25
# Between two looks for a heartbeat of others, at a start.
_SIGN_SECONDS: Final = 0.05
# At the end: what members did last is written within this.
_LAST_WRITES_SECONDS: Final = 2.0
# Inputs that wait to be written; more are refused as unavailable.
MAX_PENDING_BYTES: Final = 16 << 20


class ClusterNode:
    """One gateway among others. `open_space` opens a space with this gateway's own files."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        port: int,
        configs: Mapping[str, SpaceConfig],
        open_space: OpenSpace,
        initial_state: Callable[[str], Awaitable[dict[str, Json] | None]],
        copied_until: Callable[[str, str], float],
        close_sockets: Callable[[str], None],
        made_here: Callable[[Shard], Mapping[str, str]],
        config_like: Callable[[str, str], SpaceConfig],
        end_space: Callable[[str, EndedSpace], None],
    ) -> None:
        """`made_here`: spaces of this gateway's folder that were made at run time, and after which one each;
        `config_like` is their configuration. `end_space` closes one that was archived or deleted."""
        self._made_here = made_here
        self._config_like = config_like
        self._end_space = end_space
        self.config = config
        self.name = config.gateway or default_name(port)
        gone_beats = max(2, round(config.gone_seconds / config.heartbeat_seconds))
        self.shards = [
            Shard(index, f"{config.name}-log-{index}", gone_beats) for index in range(config.shards)
        ]
        # Those whose log this gateway reads.
        self._opened: list[Shard] = []
        self._configs = configs
        self._open_space = open_space
        self._initial_state = initial_state
        self._copied_until = copied_until
        self._close_sockets = close_sockets
        self.connection: ClusterConnection | None = None
        self.frames = ClusterFrames(config, self.name, self.shards, self.shard_of)
        self._tasks = TaskSet("cluster")
        self.barrier = LogBarrier(
            lambda: [shard.log for shard in self.shards],
            lambda: self.config.unavailable_seconds,
            self._tasks,
        )
        self._sessions = 0
        self.is_stale = False
        # By the clock of the loop: the log is not waited for any longer.
        self.stop_by = math.inf
        # Done when this gateway cannot go on: why.
        self.failed: asyncio.Future[UsageError] = asyncio.get_running_loop().create_future()
        # What differed between this gateway's file and what the cluster goes by, and the latter: by space.
        self._differing: dict[str, tuple[list[str], SpaceConfig]] = {}
        self.status = ClusterStatus(self)

    # Starting and stopping

    async def start(self) -> None:
        """Be one of the cluster's gateways. Raises UsageError when that cannot be."""
        config = self.config
        self.connection = connection = await connect(config, self.name, self._retry_now, self._fail)
        store = await use_snapshots(connection, config)
        snapshots = ShardSnapshots(
            self.name,
            connection,
            SnapshotStore(store, connection, snapshots_bucket(config)),
            self._tasks,
            self._fail,
            keep_log=config.keep_log,
            copied_until=self._copied_until,
        )
        applier = LogApplier(config, self._configs, self._open_space, snapshots, self._fail, self._end_space)
        for shard in self.shards:
            await self._open_shard(connection, shard, snapshots, applier)
        await self.frames.start(connection, self._tasks)
        await asyncio.gather(*(self._find_silent(shard) for shard in self.shards))
        for shard in self.shards:
            self._check_versions(shard)
        before = [known.epoch for shard in self.shards if (known := shard.table.known.get(self.name))]
        for shard in self.shards:
            # One number for all: session ids tell it.
            await shard.log.begin(max(before, default=0) + 1)
        await asyncio.gather(*(self._announce(shard) for shard in self.shards))
        # Without it this gateway would not know that it is cut off.
        self._tasks.start(self.shards[0].log.guard(self._watch()))
        # Only now: whoever answers serves.
        await self.status.start(connection)

    async def _open_shard(
        self,
        connection: ClusterConnection,
        shard: Shard,
        snapshots: ShardSnapshots,
        applier: LogApplier,
    ) -> None:
        name = shard.stream
        subject = f"{self.config.name}.log.{shard.index}"
        info = await use_stream(connection, self.config, name, f"{subject}.*", secrets.token_hex(8))
        shard.identity = (info.config.metadata or {}).get("moot_stream", "")
        # Behind the leader's end nothing was acknowledged; another server may know less of it.
        info = await wait_led(connection, name, self.config.connect_seconds)
        position, states = await snapshots.load(shard, info.state.first_seq, self._configs)
        for space, ended in shard.ended.items():
            # It may have happened while this gateway was away.
            self._end_space(space, ended)
        for space, state in states.items():
            applier.open_space(shard, space, state)

        def apply(sequence: int, at: float, batch: LogBatch, own: Sequence[PendingInput]) -> None:
            applier.apply(shard, sequence, at, batch, own)
            self.frames.release()

        shard.log = SharedLog(
            connection,
            self.config,
            stream=name,
            subject=f"{subject}.{self.name}",
            gateway=self.name,
            position=position,
            on_batch=apply,
        )
        self._opened.append(shard)
        shard.log.failed.add_done_callback(lambda done: self._fail(done.result()))
        await shard.log.catch_up(info.state.last_seq)
        self._check_failed()
        shard.check_journals()

    def _check_failed(self) -> None:
        if self.failed.done():
            raise self.failed.result()

    async def _find_silent(self, shard: Shard) -> None:
        """Wait for a sign of life of those that the log says to live; who gives none is silent.

        They may have ended without a word, all at once: then nobody was left to say that they are gone.
        """
        said = {name: (known.epoch, known.beat_at) for name, known in shard.table.others_of(self.name)}
        until = time.monotonic() + self.config.gone_seconds
        while said and time.monotonic() < until:
            await asyncio.sleep(_SIGN_SECONDS)
            self._check_failed()
            living = {name: (known.epoch, known.beat_at) for name, known in shard.table.others_of(self.name)}
            said = {name: seen for name, seen in said.items() if living.get(name) == seen}
        shard.silent = {name: epoch for name, (epoch, _) in said.items()}
        if said:
            log.warning(
                "gateways that did not say that they stop give no sign of life",
                extra={"gateways": sorted(said), "shard": shard.index},
            )

    def _check_versions(self, shard: Shard) -> None:
        """Raises UsageError where a gateway lives whose version might decide otherwise."""
        for name, known in shard.others_of(self.name):
            if known.version and not decide_alike(known.version, __version__):
                raise UsageError(
                    f"gateway {name} of this cluster runs Moot {known.version}, and this is {__version__}: "
                    "stop the others first, a cluster runs one version or patch releases of one series"
                )

    async def _announce(self, shard: Shard) -> None:
        """Say that we are here, and make the spaces that are new; done when the log brought it back."""
        others: list[str] = []

        def note_others(_outcome: Outcome) -> None:
            # Of several that start together, the first in the log is alone.
            others.extend(name for name, known in shard.others_of(self.name) if known.version)

        self._append(shard, "", "started", {"who": __version__}, note_others)
        missing = [
            name for name in self._configs if self.shard_of(name) is shard and name not in shard.orders
        ]
        for name in missing:
            if (ended := shard.ended.get(name)) is not None:
                raise UsageError(f"{explain_ended(name, ended)}: take it out of this gateway's file")
            state = await self._initial_state(name)
            if state is None:
                state = Space(self._configs[name]).save() | {"config": save_config(self._configs[name])}
            self._append(shard, name, "create", {"state": state}, None)
        for name, like in self._made_here(shard).items():
            if (state := await self._initial_state(name)) is not None:
                self._append(shard, name, "create", {"state": state, "like": like}, None)
        created: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append(shard, "", "announced", {}, lambda _outcome: created.set_result(None))
        while not created.done():
            self._check_start(shard)
            await asyncio.wait(
                (created, shard.log.failed),
                timeout=self.config.stale_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        self._check_failed()
        if not shard.orders.keys() >= set(missing):
            raise UsageError("this gateway was silent for too long during its start: start it again")
        if not shard.stored.position:
            shard.stored = StoredSnapshot(0, shard.clock.latest)
        # Once more: one that started together with us was not there before.
        self._check_versions(shard)
        self._compare_configs(shard, others)

    def _check_start(self, shard: Shard) -> None:
        """Raises UsageError when what a start waits for does not come."""
        if shard.log.failed.done():
            raise shard.log.failed.result()
        if refusal := shard.log.writer.refusal:
            raise UsageError(f"NATS does not take messages of {shard.stream}: {refusal}")

    def _compare_configs(self, shard: Shard, others: list[str]) -> None:
        """A gateway that is alone brings its file and its address with it; others are told what differs."""
        made = {
            name: self._config_like(name, like)
            for name, like in shard.likes.items()
            if name in shard.orders and like in self._configs
        }
        for name, config in (made | dict(self._configs)).items():
            order = shard.orders.get(name)
            if order is None:
                continue
            cluster = order.space.state.config
            ours, theirs = comparable_config(config), comparable_config(cluster)
            if ours == theirs and (others or config.connection_url == cluster.connection_url):
                continue
            if not others:
                self._append(shard, name, "reload", {"config": save_config(config)}, None)
                continue
            differ = [key for key in ours if ours[key] != theirs.get(key)]
            self._differing[name] = (differ, cluster)
            log.warning(
                "this configuration differs: the cluster's is in force, reload to change it everywhere",
                extra={"space": name, "differs": differ, "others": others},
            )

    async def stop(self) -> None:
        """Write what members did last, say that we stop, and leave."""
        for shard in self._opened:
            if shard.log.writer.epoch:
                self._append(shard, "", "stopped", {}, None)
        until = min(self.stop_by, asyncio.get_running_loop().time() + _LAST_WRITES_SECONDS)
        try:
            async with asyncio.timeout_at(until):
                while not (self.failed.done() or all(shard.log.writer.is_idle for shard in self._opened)):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("stopped without the log: the other gateways find out by themselves")
        await self._tasks.close()
        for shard in self._opened:
            await shard.log.stop()

    async def disconnect(self) -> None:
        """Leave NATS, after `stop`. One that does not answer is not waited for longer than a second."""
        if self.connection is not None:
            # Its client writes a last word also into a connection that is closed.
            with suppress(*NATS_FAULTS):
                await asyncio.wait_for(self.connection.client.close(), 1)

    # What hosts ask

    @property
    def is_first(self) -> bool:
        return self.shards[0].table.first == self.name

    @property
    def differences(self) -> list[str]:
        """What this gateway's file said otherwise than the cluster; a reload since then has settled it."""
        return [
            f"space {name}: {', '.join(differ)}"
            for name, (differ, config) in self._differing.items()
            if (order := self.shard_of(name).orders.get(name)) and order.space.state.config is config
        ]

    def shard_of(self, space: str) -> Shard:
        return self.shards[zlib.crc32(space.encode()) % len(self.shards)]

    def serves(self, space: str) -> bool:
        """Whether this gateway knows that space, if there is one of that name; now it serves all shards."""
        return self.shard_of(space).index < len(self.shards)

    def new_session(self) -> SessionId:
        self._sessions += 1
        return SessionId(f"{self.name}.{self.shards[0].log.writer.epoch}-{self._sessions:x}")

    def submit(
        self,
        shard: Shard,
        space: str,
        input: str,
        facts: dict[str, Json],
        tell: Tell | None,
        *,
        raw: bytes = b"",
        secret: Token | None = None,
    ) -> None:
        """Append an input to the log, with the bytes of an envelope, and with a fresh token that only this
        gateway knows. Raises Unavailable when it cannot be reached and somebody waits."""
        if tell is not None:
            self.check_available(shard, len(raw))
        if secret is not None:
            facts = facts | {"tokens": [secret.hash]}
        pending = self._append(shard, space, input, facts, tell, raw)
        if secret is not None and secret.secret is not None:
            pending.secrets = (secret.secret,)

    def submit_encoded(self, shard: Shard, input: LoggedInput, tell: Tell) -> None:
        """`submit` for what is encoded already, as nearly all inputs are. Raises Unavailable as well."""
        self.check_available(shard, len(input.raw))
        shard.log.writer.append(input, tell)

    def _append(
        self,
        shard: Shard,
        space: str,
        input: str,
        facts: dict[str, Json],
        tell: Tell | None,
        raw: bytes = b"",
    ) -> PendingInput:
        return shard.log.writer.append(LoggedInput(encode_shared_input(space, input, facts), raw), tell)

    def check_current(self, shard: Shard) -> None:
        """Raises Unavailable while what is known of its spaces here may be old."""
        if self.failed.done() or shard.log.age_seconds > self.config.unavailable_seconds:
            raise Unavailable("this gateway does not reach the log of its cluster: try again, or another one")

    def check_available(self, shard: Shard, size: int = 0) -> None:
        """Raises Unavailable while the log cannot be reached, or takes no more of this size."""
        self.check_current(shard)
        if shard.log.writer.queued_bytes + size > MAX_PENDING_BYTES:
            raise Unavailable("16 MiB wait to be written to the cluster's log already: try again later")

    # Being cut off

    @property
    def age_seconds(self) -> float:
        """Since when, at most, nothing is known of a part of the log."""
        return max(shard.log.age_seconds for shard in self.shards)

    @property
    def is_unavailable(self) -> bool:
        """Whether messages to a space and reads of it are refused."""
        return self.failed.done() or self.age_seconds > self.config.unavailable_seconds

    async def _watch(self) -> None:
        look_seconds = min(_LOOK_SECONDS, self.config.frame_stale_seconds / 4)
        moved_at = time.monotonic()
        while True:
            await asyncio.sleep(look_seconds)
            self.frames.prove_fresh()
            for shard in self.shards:
                for pending in shard.log.writer.withdraw_older(self.config.unavailable_seconds):
                    if pending.on_done is not None:
                        pending.on_done(
                            Unavailable("this gateway does not reach the log of its cluster: not done")
                        )
            if (
                min(self.age_seconds, time.monotonic() - moved_at) > self.config.unavailable_seconds
                and self.connection is not None
                and len(self.config.servers) > 1
            ):
                # A server that is cut off from the others answers pings, and nothing else.
                log.info("the log does not answer: trying another NATS server")
                moved_at = time.monotonic()
                await self.connection.client.force_reconnect()
            stale = self.failed.done() or self.age_seconds > self.config.stale_seconds
            if stale and not self.is_stale:
                log.error("cut off from the cluster's log", extra={"seconds": round(self.age_seconds, 1)})
                self.give_up_waiting()
                self.is_stale = True
                self._close_sockets("this gateway is cut off from its cluster: connect to another one")
            elif self.is_stale and not stale:
                log.info("back in the cluster")
                self.is_stale = False

    def give_up_waiting(self) -> None:
        """Tell who waits for what is on its way that nobody knows what becomes of it."""
        for shard in self._opened:
            shard.log.writer.give_up_waiting()

    def _fail(self, why: UsageError) -> None:
        if not self.failed.done():
            log.error("this gateway cannot go on", extra={"why": str(why)})
            self.failed.set_result(why)

    def _retry_now(self) -> None:
        for shard in self._opened:
            shard.log.writer.retry_now()
            shard.log.reader.retry_now()
