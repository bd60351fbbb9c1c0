"""A gateway's place in its cluster: it appends the inputs of its members to the log, applies what the log
brings to the spaces, and knows when it is cut off.

    start:  connect ─▶ snapshot ─▶ read up to the end of the log ─▶ say "started" ─▶ serve
    later:  heartbeat back within a second      serves
            not for frame_stale_seconds         no frames of streams
            not for unavailable_seconds         what waits is refused, and nothing new is taken
            not for stale_seconds               connections are closed: their members go elsewhere
            what cannot be mended in place      the process ends, and its next start begins at a snapshot

Whatever a gateway does by itself (who is gone, which deadlines have come, when a snapshot is due) follows
from the log alone, so that all of them do it at the same place.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import socket
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from moot import __version__
from moot.cluster.batch import Batch, LoggedInput
from moot.cluster.frame_relay import FrameHead, FrameRelay
from moot.cluster.gateway_table import GatewayTable
from moot.cluster.log_writer import PendingInput
from moot.cluster.nats_connection import NATS_FAULTS, ClusterConnection, connect, use_snapshots, use_stream
from moot.cluster.shared_log import SharedLog
from moot.cluster.snapshot_store import SnapshotStore
from moot.config.cluster_config import ClusterConfig
from moot.errors import OutcomeUnknown, Unavailable, UsageError
from moot.gateway.cluster_status import ClusterStatus
from moot.gateway.clustered_host import ClusteredHost, encode_shared_input, read_shared_input
from moot.gateway.clustered_space import LogClock
from moot.gateway.mint import FreshMint
from moot.protocol.frames import Frame
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from moot.space.config import SessionId, SpaceConfig
from moot.space.config_json import load_config, save_config
from moot.space.effects import Token
from moot.space.space import Space
from moot.space.state_hash import hash_state

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25
# At the end: what members did last is written within this.
_LAST_WRITES_SECONDS: Final = 2.0

# Name, space, shard, and whether this gateway has brought the state with it.
MakeHost = Callable[[str, Space, "Shard", bool], ClusteredHost]


class Shard:
    """One stream of the log, and the spaces whose inputs are in it."""

    def __init__(self, index: int, stream: str, gone_beats: int) -> None:
        self.index = index
        # Its name in NATS.
        self.stream = stream
        self.table = GatewayTable(gone_beats)
        self.clock = LogClock()
        self.hosts: dict[str, ClusteredHost] = {}
        # Spaces that are in the log and not in this gateway's configuration.
        self.unknown: set[str] = set()
        self.log: SharedLog
        # Which stream it is: one that was made anew under the same name has another.
        self.identity = ""
        # Messages and inputs since the last snapshot, and how many snapshots there were.
        self.counted = 0
        self.snapshots = 0
        self.purgeable = 0
        # Hashes of our states where the latest snapshot was due, by space.
        self.hashes: dict[str, str] = {}
        self.hashed_at = 0
        # The same where an operator last asked for them.
        self.compared: dict[str, str] = {}
        self.compared_at = 0


class ClusterNode:
    """One gateway among others. `make_host` opens a space with this gateway's own files."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        port: int,
        configs: Mapping[str, SpaceConfig],
        make_host: MakeHost,
        initial_state: Callable[[str], Awaitable[dict[str, Json] | None]],
        close_sockets: Callable[[str], None],
    ) -> None:
        self.config = config
        self.name = config.gateway or default_name(port)
        gone_beats = max(2, round(config.gone_seconds / config.heartbeat_seconds))
        self.shards = [
            Shard(index, f"{config.name}-log-{index}", gone_beats) for index in range(config.shards)
        ]
        self._configs = configs
        self._make_host = make_host
        self._initial_state = initial_state
        self._close_sockets = close_sockets
        self._connection: ClusterConnection | None = None
        self._snapshots: SnapshotStore | None = None
        self._frames: FrameRelay | None = None
        self._tasks = TaskSet("cluster")
        self._sessions = 0
        self.is_stale = False
        # Done when this gateway cannot go on: why.
        self.failed: asyncio.Future[UsageError] = asyncio.get_running_loop().create_future()
        self._outgoing_frames: asyncio.Queue[tuple[FrameHead, bytes]] = asyncio.Queue(1_000)
        # What differed between this gateway's file and what the cluster goes by, and the latter: by space.
        self._differing: dict[str, tuple[list[str], SpaceConfig]] = {}
        self.status = ClusterStatus(self)

    # Starting and stopping

    async def start(self) -> None:
        """Be one of the cluster's gateways. Raises UsageError when that cannot be."""
        config = self.config
        self._connection = connection = await connect(config, self.name, self._retry_writes)
        self._snapshots = SnapshotStore(await use_snapshots(connection, config))
        for shard in self.shards:
            await self._open_shard(connection, shard)
        self._frames = FrameRelay(
            connection.client,
            f"{config.name}.frames",
            self.name,
            position_of=lambda space: self.shard_of(space).log.position,
            deliver=self._deliver_frame,
        )
        await self._frames.start()
        for shard in self.shards:
            self._check_versions(shard)
        before = [known.epoch for shard in self.shards if (known := shard.table.known.get(self.name))]
        for shard in self.shards:
            # One number for all: session ids tell it.
            await shard.log.begin(max(before, default=0) + 1)
        await asyncio.gather(*(self._announce(shard) for shard in self.shards))
        self._tasks.start(self._watch())
        self._tasks.start(self._send_frames())
        # Only now: whoever answers serves.
        await self.status.start(connection)

    async def _open_shard(self, connection: ClusterConnection, shard: Shard) -> None:
        name = shard.stream
        subject = f"{self.config.name}.log.{shard.index}"
        info = await use_stream(connection, self.config, name, f"{subject}.*", secrets.token_hex(8))
        shard.identity = (info.config.metadata or {}).get("moot_stream", "")
        snapshot = await self._load_snapshot(shard)
        position = snapshot if snapshot is not None else 0
        shard.log = SharedLog(
            connection,
            self.config,
            stream=name,
            subject=f"{subject}.{self.name}",
            gateway=self.name,
            position=position,
            on_batch=lambda sequence, at, batch, own: self._apply(shard, sequence, at, batch, own),
        )
        await shard.log.catch_up(info.state.last_seq)
        self._check_failed()

    def _check_failed(self) -> None:
        if self.failed.done():
            raise self.failed.result()

    async def _load_snapshot(self, shard: Shard) -> int | None:
        assert self._snapshots is not None  # noqa: S101  # set before any shard is opened
        found = await self._snapshots.load(shard.index)
        if found is None or found.fields["stream"] != shard.identity:
            return None
        if found.fields["version"] != __version__:
            log.info("snapshot of another version", extra={"version": found.fields["version"]})
        fields = found.fields
        shard.table.load(fields["gateways"])
        shard.clock.advance(fields["time"])
        shard.snapshots, shard.purgeable = fields["number"], found.position
        for name, state in fields["spaces"].items():
            self._open_space(shard, name, state)
        return found.position

    def _check_versions(self, shard: Shard) -> None:
        """Raises UsageError where a gateway of another version lives: they might decide otherwise."""
        for name, known in shard.table.others_of(self.name):
            if known.version and known.version != __version__:
                raise UsageError(
                    f"gateway {name} of this cluster runs Moot {known.version}, and this is {__version__}: "
                    "stop the others first, all gateways of a cluster run one version"
                )

    async def _announce(self, shard: Shard) -> None:
        """Say that we are here, and make the spaces that are new; done when the log brought it back."""
        started: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        others = [name for name, _ in shard.table.others_of(self.name)]
        facts: dict[str, Json] = {"who": __version__}
        self._append(shard, "", "started", facts, lambda outcome: _settle(started, outcome))
        missing = [name for name in self._configs if self.shard_of(name) is shard and name not in shard.hosts]
        for name in missing:
            state = await self._initial_state(name)
            if state is None:
                state = Space(self._configs[name]).save() | {"config": save_config(self._configs[name])}
            self._append(shard, name, "create", {"state": state}, None)
        created: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._append(shard, "", "announced", {}, lambda outcome: _settle(created, outcome))
        waiting = asyncio.gather(started, created)
        await asyncio.wait((waiting, shard.log.failed), return_when=asyncio.FIRST_COMPLETED)
        if shard.log.failed.done():
            waiting.cancel()
            raise shard.log.failed.result()
        self._check_failed()
        self._compare_configs(shard, others)

    def _compare_configs(self, shard: Shard, others: list[str]) -> None:
        """A gateway that is alone brings its file with it; others are told what differs."""
        for name, config in self._configs.items():
            host = shard.hosts.get(name)
            if host is None:
                continue
            ours, theirs = _comparable(config), _comparable(host.space.state.config)
            if ours == theirs:
                continue
            if not others:
                self._append(shard, name, "reload", {"config": save_config(config)}, None)
                continue
            differ = [key for key in ours if ours[key] != theirs.get(key)]
            self._differing[name] = (differ, host.space.state.config)
            log.warning(
                "this configuration differs: the cluster's is in force, reload to change it everywhere",
                extra={"space": name, "differs": differ, "others": others},
            )

    async def stop(self) -> None:
        """Write what members did last, say that we stop, and leave."""
        for shard in self.shards:
            if hasattr(shard, "log") and shard.log.writer.epoch:
                self._append(shard, "", "stopped", {}, None)
        try:
            async with asyncio.timeout(_LAST_WRITES_SECONDS):
                while not self.failed.done() and any(
                    not shard.log.writer.is_idle for shard in self.shards if hasattr(shard, "log")
                ):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("stopped without the log: the other gateways find out by themselves")
        await self._tasks.close()
        for shard in self.shards:
            if hasattr(shard, "log"):
                await shard.log.stop()
        if self._connection is not None:
            # Its client writes a last word also into a connection that is closed.
            with suppress(*NATS_FAULTS, RuntimeError):
                await asyncio.wait_for(self._connection.client.close(), 1)

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
            if self.shard_of(name).hosts[name].space.state.config is config
        ]

    def shard_of(self, space: str) -> Shard:
        return self.shards[zlib.crc32(space.encode()) % len(self.shards)]

    def new_session(self) -> str:
        self._sessions += 1
        return f"{self.name}.{self.shards[0].log.writer.epoch}-{self._sessions:x}"

    def max_bytes(self, space: str) -> int:
        return self.shard_of(space).log.writer.max_bytes

    def submit(
        self, space: str, input: str, facts: dict[str, Json], on_done: Callable[[object], None] | None
    ) -> None:
        secret = FreshMint().token() if input == "restore" else None
        self.submit_raw(space, input, facts, b"", on_done, secret)

    def submit_raw(
        self,
        space: str,
        input: str,
        facts: dict[str, Json],
        raw: bytes,
        on_done: Callable[[object], None] | None,
        secret: Token | None = None,
    ) -> None:
        shard = self.shard_of(space)
        if on_done is not None:
            self._check_available(shard, len(raw))
        if secret is not None:
            facts = facts | {"tokens": [secret.hash]}
        pending = self._append(shard, space, input, facts, on_done, raw)
        if secret is not None and secret.secret is not None:
            pending.secrets = (secret.secret,)

    def _append(
        self,
        shard: Shard,
        space: str,
        input: str,
        facts: dict[str, Json],
        on_done: Callable[[object], None] | None,
        raw: bytes = b"",
    ) -> PendingInput:
        head = encode_shared_input(space, input, facts)
        if len(head) + len(raw) > shard.log.writer.max_bytes:
            raise UsageError(
                f"{input} of space {space} has {len(head) + len(raw)} bytes, and NATS takes "
                f"{shard.log.writer.max_bytes} in a message: raise its max_payload"
            )
        return shard.log.writer.append(LoggedInput(head, raw), on_done)

    def _check_available(self, shard: Shard, size: int) -> None:
        if self.failed.done() or shard.log.age_seconds > self.config.unavailable_seconds:
            raise Unavailable("this gateway does not reach the log of its cluster: try again, or another one")
        if shard.log.writer.queued_bytes + size > self.config.max_pending_bytes:
            raise Unavailable("more waits to be written to the cluster's log than max_pending_bytes allows")

    def request_hashes(self, shard: Shard, id: str, on_done: Callable[[object], None]) -> None:
        """Let every gateway hash its states at one message of the log. Raises Unavailable."""
        self._check_available(shard, 0)
        self._append(shard, "", "compare", {"who": id}, on_done)

    def check_frames(self, space: str) -> None:
        if (
            self.shard_of(space).log.age_seconds
            > self.config.heartbeat_seconds + self.config.frame_stale_seconds
        ):
            raise Unavailable("this gateway may be cut off from its cluster, and frames are not kept")

    def send_frame(self, space: str, session: str, frame: Frame) -> None:
        head = FrameHead(self.name, space, session, self.shard_of(space).log.position, frame.binary)
        with suppress(asyncio.QueueFull):
            self._outgoing_frames.put_nowait((head, frame.raw))

    async def _send_frames(self) -> None:
        while True:
            head, raw = await self._outgoing_frames.get()
            if self._frames is not None:
                await self._frames.send(head, raw)

    def _deliver_frame(self, head: FrameHead, raw: bytes) -> None:
        host = self.shard_of(head.space).hosts.get(head.space)
        if host is None:
            return
        try:
            self.check_frames(head.space)
        except Unavailable:
            return
        host.take_frame(SessionId(head.session), raw, head.binary)

    # What the log brings

    def _apply(
        self, shard: Shard, sequence: int, at: float, batch: Batch, own: Sequence[PendingInput]
    ) -> None:
        head = batch.head
        if head.beat:
            seconds = self.config.heartbeat_seconds
            at = max(at, shard.table.earliest_time(head.gateway, head.epoch, seconds))
        now = shard.clock.advance(at)
        known = shard.table.known.get(head.gateway)
        is_restart = known is not None and known.epoch < head.epoch
        if not shard.table.note_batch(head.gateway, head.epoch):
            return
        if is_restart:
            self._drop_sessions(shard, head.gateway, head.epoch, head.seed)
        if head.beat:
            for gone in shard.table.note_beat(head.gateway, now):
                log.warning("gateway gone", extra={"gateway": gone, "shard": shard.index})
                self._drop_sessions(shard, gone, None, head.seed)
            for host in shard.hosts.values():
                host.perform_expiry(_seed(head.seed, f"expire {host.name}"))
        for index, input in enumerate(batch.inputs):
            pending = own[index] if index < len(own) else None
            self._apply_input(shard, head.gateway, input, _seed(head.seed, str(index)), pending)
        shard.counted += 1 + len(batch.inputs)
        if shard.counted >= self.config.snapshot_inputs:
            self._take_snapshot(shard, sequence)
        if self._frames is not None:
            self._frames.release()

    def _apply_input(
        self, shard: Shard, gateway: str, input: LoggedInput, seed: bytes, pending: PendingInput | None
    ) -> None:
        outcome: object = None
        try:
            stored = read_shared_input(input.head)
            host = shard.hosts.get(stored.space)
            if not stored.space:
                self._apply_own_input(shard, gateway, stored.input, stored.who, input)
            elif stored.input == "create":
                if host is None:
                    state = strictly_decoded(bytes(stored.state))
                    self._open_space(shard, stored.space, state, is_ours=pending is not None)
            elif host is not None:
                host.perform_expiry(seed + b"expire")
                secret = None
                if pending is not None and pending.secrets:
                    secret = Token(stored.tokens[0], pending.secrets[0])
                outcome = host.perform(stored, input, seed, secret)
        except Exception as fault:
            # All gateways meet it; should it be one alone, then its state differs and it finds out.
            log.exception("an input of the log could not be applied", extra={"gateway": gateway})
            outcome = fault
        if pending is not None and pending.on_done is not None:
            pending.on_done(outcome)

    def _apply_own_input(self, shard: Shard, gateway: str, input: str, who: str, logged: LoggedInput) -> None:
        """What a gateway says of itself."""
        if input == "started":
            shard.table.known[gateway].version = who
        elif input == "stopped":
            self._drop_sessions(shard, gateway, None, hashlib.sha256(logged.head).hexdigest())
            shard.table.note_stop(gateway)
        elif input == "snapshot":
            self._compare_snapshot(shard, gateway, strictly_decoded(logged.raw))
        elif input == "compare" and shard.log.writer.epoch:
            # Beside those of snapshots, which decide whether a gateway may go on. Nobody waits for those that
            # were asked for before our start.
            shard.compared = _hash_states(_save_states(shard))
            shard.compared_at = shard.log.position

    def _drop_sessions(self, shard: Shard, gateway: str, before: int | None, seed: str) -> None:
        """Let the sessions leave that a gateway held, those of processes before this epoch or all."""
        for host in shard.hosts.values():
            lost = [
                session
                for session in host.space.state.roster.sessions
                if (found := _gateway_of(session)) is not None
                and found[0] == gateway
                and (before is None or found[1] < before)
            ]
            if lost:
                host.perform_gone(lost, _seed(seed, f"gone {gateway} {host.name}"))

    def _open_space(self, shard: Shard, name: str, state: dict[str, Any], *, is_ours: bool = False) -> None:
        if name not in self._configs:
            # Its inputs are passed over; a gateway whose configuration has it serves it.
            if name not in shard.unknown:
                log.warning("the cluster has a space that is not configured here", extra={"space": name})
            shard.unknown.add(name)
            return
        state = dict(state)
        config = load_config(state.pop("config"))
        try:
            shard.hosts[name] = self._make_host(name, Space(config, saved=state), shard, is_ours)
        except UsageError as fault:
            self._fail(fault)

    # Snapshots

    def _take_snapshot(self, shard: Shard, sequence: int) -> None:
        """Every gateway hashes its state here; one of them stores it and tells the others its hashes."""
        shard.counted = 0
        shard.snapshots += 1
        states = _save_states(shard)
        shard.hashes = _hash_states(states)
        shard.hashed_at = sequence
        if shard.table.first != self.name or shard.unknown or not shard.log.writer.epoch:
            return
        fields: dict[str, Json] = {
            "version": __version__,
            "stream": shard.identity,
            "number": shard.snapshots,
            "time": shard.clock.latest,
            "gateways": shard.table.save(),
            "spaces": states,
        }
        hashes: dict[str, Json] = {"position": sequence, "hashes": dict(shard.hashes)}
        self._tasks.start(self._store_snapshot(shard, sequence, fields, hashes))

    async def _store_snapshot(
        self, shard: Shard, sequence: int, fields: dict[str, Json], hashes: dict[str, Json]
    ) -> None:
        assert self._snapshots is not None  # noqa: S101  # started
        assert self._connection is not None  # noqa: S101  # started
        try:
            await self._snapshots.save(shard.index, shard.snapshots, sequence, fields)
            raw = encode_shared_input("", "snapshot", hashes)
            shard.log.writer.append(LoggedInput(encode_shared_input("", "snapshot", {}), raw))
            if shard.purgeable:
                await self._connection.context.purge_stream(shard.stream, seq=shard.purgeable + 1)
            shard.purgeable = sequence
        except NATS_FAULTS as fault:
            log.warning("snapshot not stored", extra={"shard": shard.index, "why": repr(fault)})

    def _compare_snapshot(self, shard: Shard, gateway: str, told: dict[str, Any]) -> None:
        if told["position"] != shard.hashed_at:
            # Taken before we came, or already behind the next one.
            return
        differ = [name for name, hash in told["hashes"].items() if shard.hashes.get(name, hash) != hash]
        if differ:
            self._fail(
                UsageError(
                    f"the state of {', '.join(differ)} differs from that of gateway {gateway} at message "
                    f"{told['position']} of shard {shard.index}: this gateway stops serving. Start it again: "
                    "it begins at the cluster's snapshot"
                )
            )

    # Being cut off

    @property
    def age_seconds(self) -> float:
        """Since when, at most, nothing is known of a part of the log."""
        return max(shard.log.age_seconds for shard in self.shards)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for shard in self.shards:
                if shard.log.failed.done():
                    self._fail(shard.log.failed.result())
                for pending in shard.log.writer.withdraw_older(self.config.unavailable_seconds):
                    if pending.on_done is not None:
                        pending.on_done(
                            Unavailable("this gateway does not reach the log of its cluster: not done")
                        )
            stale = self.failed.done() or self.age_seconds > self.config.stale_seconds
            if stale and not self.is_stale:
                log.error("cut off from the cluster's log", extra={"seconds": round(self.age_seconds, 1)})
                self._give_up_waiting()
                self.is_stale = True
                self._close_sockets("this gateway is cut off from its cluster: connect to another one")
            elif self.is_stale and not stale:
                log.info("back in the cluster")
                self.is_stale = False

    def _give_up_waiting(self) -> None:
        """Tell who waits for what is on its way that nobody knows what becomes of it."""
        for shard in self.shards:
            for batch in shard.log.writer.unread.values():
                for pending in batch:
                    if pending.on_done is not None:
                        pending.on_done(
                            OutcomeUnknown(
                                "the cluster's log did not answer in time, so the outcome is not known: look "
                                "for its id before you send it again, or send it again with the same id"
                            )
                        )
                        pending.on_done = None

    def _fail(self, why: UsageError) -> None:
        if not self.failed.done():
            log.error("this gateway cannot go on", extra={"why": str(why)})
            self.failed.set_result(why)

    def _retry_writes(self) -> None:
        for shard in self.shards:
            if hasattr(shard, "log"):
                shard.log.writer.retry_now()


def _save_states(shard: Shard) -> dict[str, dict[str, Json]]:
    return {
        name: host.space.save() | {"config": save_config(host.space.state.config)}
        for name, host in shard.hosts.items()
    }


def _hash_states(states: Mapping[str, dict[str, Json]]) -> dict[str, str]:
    return {name: hash_state(state) for name, state in states.items()}


def default_name(port: int) -> str:
    """The machine's name and the port, as one word of a NATS subject."""
    host = "".join(each if each.isalnum() and each.isascii() else "-" for each in socket.gethostname())
    return f"{host[:48] or 'gateway'}-{port}"


def strictly_decoded(data: bytes) -> dict[str, Any]:
    decoded = json.loads(data)  # integers of any size
    if not isinstance(decoded, dict):
        raise UsageError("an input of the log that no gateway wrote")
    return decoded


def _comparable(config: SpaceConfig) -> dict[str, Json]:
    # Its address is each gateway's own.
    saved = save_config(config)
    saved.pop("connection_url", None)
    return dict(json.loads(msgspec.json.encode(saved)))


def _gateway_of(session: str) -> tuple[str, int] | None:
    """The gateway that held a session, and the epoch of its process."""
    gateway, dot, rest = session.partition(".")
    epoch = rest.partition("-")[0]
    return (gateway, int(epoch)) if dot and epoch.isdigit() else None


def _seed(seed: str, part: str) -> bytes:
    return f"{seed}/{part}".encode()


def _settle(done: asyncio.Future[object], outcome: object) -> None:
    if not done.done():
        done.set_result(outcome)
