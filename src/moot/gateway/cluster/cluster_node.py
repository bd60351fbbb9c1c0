"""A gateway's place in its cluster: it appends the inputs of its members to the log, applies what the log
brings to the spaces, and knows when it is cut off.

    start:  connect ─▶ serve the common shard ─▶ serve all the others, or those of its share
    later:  heartbeat back within a second      serves
            not for FRAME_STALE_SECONDS         no frames of streams
            not for unavailable_seconds         what waits is refused, and nothing new is taken
            not for stale_seconds               connections are closed: their members go elsewhere
            what cannot be mended in place      the process ends, and its next start begins at a snapshot
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from moot.config.cluster_config import ClusterConfig
from moot.errors import InvalidOperation, InvalidRequest, Unavailable, UsageError
from moot.gateway.cluster import cluster_frames
from moot.gateway.cluster.cluster_frames import ClusterFrames
from moot.gateway.cluster.cluster_shard import Shard
from moot.gateway.cluster.cluster_status import ClusterStatus
from moot.gateway.cluster.nats.batch import LoggedInput
from moot.gateway.cluster.nats.gateway_table import default_name
from moot.gateway.cluster.nats.log_barrier import LogBarrier
from moot.gateway.cluster.nats.log_writer import PendingInput
from moot.gateway.cluster.nats.nats_connection import (
    NATS_FAULTS,
    ClusterConnection,
    connect,
    snapshots_bucket,
    use_snapshots,
)
from moot.gateway.cluster.nats.served_exchange import ServedExchange, ServedShards
from moot.gateway.cluster.nats.shared_values import SharedValues
from moot.gateway.cluster.nats.snapshot_store import SnapshotStore
from moot.gateway.cluster.shard_service import ShardService
from moot.gateway.cluster.shard_sharing import ShardSharing, place_of
from moot.gateway.cluster.shard_snapshots import ShardSnapshots
from moot.gateway.cluster.shard_takeover import ShardTakeover
from moot.gateway.cluster.shared_input import encode_shared_input
from moot.gateway.hosting.input_order import Tell
from moot.net.address_order import score
from moot.net.relay_connection import RelayAddress
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet, end_tasks
from moot.space.config import SessionId, SpaceConfig
from moot.space.effects import Token

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_space_factory import ClusterSpaceFactory
    from moot.gateway.cluster.gateway_relay import GatewayRelay

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25
# At the end: what members did last is written within this.
_LAST_WRITES_SECONDS: Final = 2.0
# Inputs that wait to be written; more are refused as unavailable.
MAX_PENDING_BYTES: Final = 16 << 20


class ClusterNode:
    """One gateway among others. `spaces` opens spaces with this gateway's own files."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        port: int,
        configs: dict[str, SpaceConfig],
        spaces: ClusterSpaceFactory,
        close_sockets: Callable[[str], None],
    ) -> None:
        self.config = config
        self.name = config.gateway or default_name(port)
        self.shards = [self._new_shard(index) for index in range(config.shards)]
        # What this gateway's file says of its spaces.
        self.configs = configs
        self._spaces = spaces
        self._close_sockets = close_sockets
        self.connection: ClusterConnection | None = None
        self.frames = ClusterFrames(config, self.name, self.shards, self.shard_of)
        self._tasks = TaskSet("cluster")
        self.barrier = LogBarrier(
            lambda: [shard.log for shard in self.served],
            lambda: self.config.unavailable_seconds,
            self._tasks,
        )
        self._sessions = 0
        # Whether it serves all that it serves from its start on.
        self.is_started = False
        self.is_stale = False
        # By the clock of the loop: the log is not waited for any longer.
        self.stop_by = math.inf
        # Done when this gateway cannot go on: why.
        self.failed: asyncio.Future[UsageError] = asyncio.get_running_loop().create_future()
        # What differed between this gateway's file and what the cluster goes by, and the latter: by space.
        self.differing: dict[str, tuple[list[str], SpaceConfig]] = {}
        self.status = ClusterStatus(self)
        self._service: ShardService
        self._exchange: ServedExchange
        # What lets it serve shards by itself: its share of them, or those that nobody serves.
        self.sharing: ShardSharing | None = None
        self._shard_takeover: ShardTakeover | ShardSharing
        self._takeover: list[asyncio.Task[None]] = []
        # What passes members on whose space is not served here, where there are several shards.
        self.relay: GatewayRelay | None = None
        # A shard begins or ends at a time.
        self._turns = [asyncio.Lock() for _ in self.shards]
        self._moving: list[asyncio.Task[bool]] = []
        # Told of each shard that is served from now on, and of each that is not.
        self.on_served: Callable[[Shard], None] = lambda _shard: None
        self.on_left: Callable[[Shard], None] = lambda _shard: None

    def _new_shard(self, index: int) -> Shard:
        gone_beats = max(2, round(self.config.gone_seconds / self.config.heartbeat_seconds))
        return Shard(index, f"{self.config.name}-log-{index}", gone_beats)

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
            keep_log=config.keep_log,
            copied_until=self._spaces.copied_until,
        )
        self._service = ShardService(self, self._spaces, connection, snapshots)
        await self.frames.start(connection, self._tasks)
        self._exchange = ServedExchange(connection.client, f"{config.name}.served", self._tell_served)
        if config.serves == "shared":
            self.sharing = ShardSharing(self, self._exchange)
        await self._service.start(self.common)
        # From here on others take it for one that lives, and wait for its word.
        await self._exchange.start(self._tasks)
        wanted = list(range(1, len(self.shards)))
        if self.sharing is not None and self._service.others:
            # Who comes alone brings its file with it, into all shards.
            wanted = await self.sharing.own_share()
        started = (self._service.start(self.shards[index]) for index in wanted)
        for outcome in await asyncio.gather(*started, return_exceptions=True):
            if outcome is not None:
                raise outcome
        self.is_started = True
        # Without it this gateway would not know that it is cut off.
        self._tasks.start(self.common.log.guard(self._watch()))
        self._exchange.tell_now()
        self._shard_takeover = self.sharing or ShardTakeover(self, self._exchange)
        self._takeover = [asyncio.create_task(self.common.log.guard(self._shard_takeover.run()))]
        if self.relay is not None:
            self._tasks.start(self._start_relay(self.relay))
        # Only now: whoever answers serves.
        await self.status.start(connection)

    def _tell_served(self) -> ServedShards:
        sharing = self.sharing
        return ServedShards(
            self.name,
            frozenset(shard.index for shard in self.served),
            None if self.relay is None else self.relay.own_address,
            place=place_of(self.config, self.name),
            refuses=frozenset() if sharing is None else sharing.refuses,
            is_leaving=sharing is not None and sharing.is_leaving,
            is_coming=not self.is_started,
        )

    async def _start_relay(self, relay: GatewayRelay) -> None:
        await relay.start(SharedValues(self.config, lambda: self.connection))
        self._exchange.tell_now()

    async def stop(self) -> None:
        """Write what members did last, say that we stop, and leave."""
        await end_tasks(self._takeover)
        await end_tasks(self._moving)
        now = asyncio.get_running_loop().time()
        until = now if self.failed.done() else min(self.stop_by, now + _LAST_WRITES_SECONDS)
        opened = [shard for shard in self.shards if shard.state != "not served"]
        await asyncio.gather(*(self._service.stop(shard, until) for shard in opened))
        await self._tasks.close()

    async def hand_over(self) -> None:
        """This gateway is about to stop: others serve its share first, should there be any."""
        if self.sharing is not None and self.is_started and not self.is_unavailable:
            await self.sharing.hand_over()

    async def serve(self, index: int) -> bool:
        """Serve a shard from now on; whether it was not served. Raises Refused."""
        return await self._move(index, self._serve)

    async def leave(self, index: int, successor: str | None = None) -> bool:
        """Serve it no longer, for another one does: this, if it is named. Whether it was. Raises Refused."""
        return await self._move(index, partial(self._leave, successor))

    async def _move(self, index: int, move: Callable[[Shard], Awaitable[bool]]) -> bool:
        if not 0 <= index < len(self.shards):
            raise InvalidRequest(f"the shards of this cluster are 0 to {len(self.shards) - 1}")

        async def take_turn() -> bool:
            async with self._turns[index]:
                return await move(self.shards[index])

        task = asyncio.create_task(take_turn())
        self._moving.append(task)
        task.add_done_callback(self._moving.remove)
        # Whoever asked may not wait, and nothing ends half-way for that.
        await asyncio.wait([task])
        if task.cancelled():
            raise Unavailable("this gateway is stopping")
        return task.result()

    async def _serve(self, shard: Shard) -> bool:
        if shard.state == "served":
            return False
        self.check_current(self.common)
        try:
            await self._service.start(shard)
        except (UsageError, *NATS_FAULTS) as fault:
            log.error("shard not served", extra={"shard": shard.index, "why": str(fault)})
            raise InvalidOperation(f"shard {shard.index} is not served here: {fault}") from None
        finally:
            if shard not in self.served:
                await self._end(shard)
        log.info("shard served", extra={"shard": shard.index, "position": shard.log.position})
        self.on_served(shard)
        self._exchange.note_change()
        return True

    async def _leave(self, successor: str | None, shard: Shard) -> bool:
        if shard is self.common:
            raise InvalidOperation("every gateway serves shard 0, which tells who lives: stop this gateway")
        if shard.state != "served":
            return False
        self.check_current(shard)
        # One that has just begun to serve may not be known here yet.
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.unavailable_seconds):
                await shard.log.wait_known(time.monotonic())
        self.check_current(shard)
        others = [name for name, _ in shard.table.others_of(self.name)]
        if not others or successor not in (None, *others):
            raise InvalidOperation(
                f"no other gateway serves shard {shard.index}, and its members would find nobody: let "
                "another one serve it first"
            )
        self.on_left(shard)
        await self._end(shard)
        log.info("shard left", extra={"shard": shard.index})
        return True

    async def _end(self, shard: Shard) -> None:
        if shard.state != "not served":
            await self._service.stop(shard, asyncio.get_running_loop().time() + _LAST_WRITES_SECONDS)
        self.shards[shard.index] = self._new_shard(shard.index)
        self._exchange.note_change()

    async def disconnect(self) -> None:
        """Leave NATS, after `stop`. One that does not answer is not waited for longer than a second."""
        if self.connection is not None:
            # Its client writes a last word also into a connection that is closed.
            with suppress(*NATS_FAULTS):
                await asyncio.wait_for(self.connection.client.close(), 1)

    # What hosts ask

    @property
    def common(self) -> Shard:
        """The shard that every gateway serves for as long as it runs."""
        return self.shards[0]

    def told_to_serve(self, index: int) -> list[str]:
        """Other gateways that have told so a moment ago."""
        return [name for name in self._exchange.gateways_of(index) if name != self.name]

    def relay_addresses(self, index: int) -> dict[str, RelayAddress]:
        """How gateways are reached that live and tell to serve this shard: for all the same one first."""
        living = [name for name, _ in self.common.others_of(self.name)]
        living.sort(key=lambda name: (score(index, self._exchange.place_of(name)), name), reverse=True)
        found = ((name, self._exchange.address_of(name, index)) for name in living)
        return {name: address for name, address in found if address is not None}

    @property
    def gateways(self) -> list[RelayAddress]:
        """How those that live are reached, as far as they have told it."""
        told = (self._exchange.told_address(name) for name, _ in self.common.others_of(self.name))
        return [address for address in told if address is not None]

    def note_unreachable(self, index: int, gateways: Iterable[str]) -> None:
        """None of these gateways answers, which tell to serve this shard: it is taken over."""
        self._shard_takeover.note_unreachable(index, gateways)

    @property
    def moved(self) -> asyncio.Event:
        """The next time that another gateway tells something, or this one serves something else."""
        return self._exchange.moved

    @property
    def served(self) -> list[Shard]:
        return [shard for shard in self.shards if shard.state == "served"]

    @property
    def differences(self) -> list[str]:
        """What this gateway's file said otherwise than the cluster; a reload since then has settled it."""
        return [
            f"space {name}: {', '.join(differ)}"
            for name, (differ, config) in self.differing.items()
            if (order := self.shard_of(name).orders.get(name)) and order.space.state.config is config
        ]

    def shard_of(self, space: str) -> Shard:
        # Of shards that are shared, the common one has no spaces.
        first = int(self.config.serves == "shared")
        return self.shards[first + zlib.crc32(space.encode()) % (len(self.shards) - first)]

    def serves(self, space: str) -> bool:
        """Whether this gateway knows that space, if there is one of that name."""
        return self.shard_of(space).state == "served"

    @property
    def serves_all(self) -> bool:
        return all(shard.state == "served" for shard in self.shards)

    def new_session(self, shard: Shard) -> SessionId:
        self._sessions += 1
        return SessionId(f"{self.name}.{shard.log.writer.epoch}-{self._sessions:x}")

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
        pending = self.append(shard, space, input, facts, tell, raw)
        if secret is not None and secret.secret is not None:
            pending.secrets = (secret.secret,)

    def submit_encoded(self, shard: Shard, input: LoggedInput, tell: Tell) -> None:
        """`submit` for what is encoded already, as nearly all inputs are. Raises Unavailable as well."""
        self.check_available(shard, len(input.raw))
        shard.log.writer.append(input, tell)

    def append(
        self,
        shard: Shard,
        space: str,
        input: str,
        facts: dict[str, Json],
        tell: Tell | None,
        raw: bytes = b"",
    ) -> PendingInput:
        """`submit` for what nobody may refuse."""
        return shard.log.writer.append(LoggedInput(encode_shared_input(space, input, facts), raw), tell)

    def check_current(self, shard: Shard) -> None:
        """Raises Unavailable while what is known of its spaces here may be old."""
        if shard.state != "served":
            raise Unavailable("this gateway does not serve that space: try again, or another one")
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
        return max((shard.log.age_seconds for shard in self.served), default=0.0)

    @property
    def is_unavailable(self) -> bool:
        """Whether messages to a space and reads of it are refused."""
        return self.failed.done() or self.age_seconds > self.config.unavailable_seconds

    async def _watch(self) -> None:
        look_seconds = min(_LOOK_SECONDS, cluster_frames.FRAME_STALE_SECONDS / 4)
        moved_at = time.monotonic()
        while True:
            await asyncio.sleep(look_seconds)
            self.frames.prove_fresh()
            for shard in self.served:
                shard.log.writer.refuse_older(self.config.unavailable_seconds)
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
        for shard in self.shards:
            if shard.state != "not served":
                shard.log.writer.give_up_waiting()

    def note_failed(self, shard: Shard, why: UsageError) -> None:
        """The log of a shard cannot be followed: one that is starting or stopping says so itself."""
        if shard.state == "served":
            self._fail(why)

    def _fail(self, why: UsageError) -> None:
        if not self.failed.done():
            log.error("this gateway cannot go on", extra={"why": str(why)})
            self.failed.set_result(why)

    def _retry_now(self) -> None:
        for shard in self.shards:
            if shard.state != "not served":
                shard.log.writer.retry_now()
                shard.log.reader.retry_now()
