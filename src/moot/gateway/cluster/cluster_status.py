"""The state of a cluster, for its operators: told by any of its gateways, with what is wrong in sentences.

What a gateway says of itself is asked for, what the log knows of it is known here. A gateway that does not
answer is said not to answer, and whatever NATS does not tell is null: nothing is guessed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from moot import __version__
from moot.errors import InvalidOperation, MootError, Unavailable
from moot.gateway.cluster.nats.nats_connection import ClusterConnection, server_version
from moot.gateway.cluster.nats.status_exchange import GatewayState, GatewayStatus, ShardStatus, StatusExchange
from moot.gateway.cluster.nats.stream_health import StreamHealth, ask_stream
from moot.gateway.hosting.input_order import wait_applied
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode
    from moot.gateway.cluster.cluster_shard import Shard

# Gateways and JetStream answer within milliseconds, or not at all.
_ANSWER_SECONDS: Final = 1.0
# Until all have read the log up to where states are compared.
_COMPARE_SECONDS: Final = 3.0
_COMPARE_AGAIN_SECONDS: Final = 0.05
# Of gateway.cluster, what each gateway goes by on its own.
_SETTINGS: Final = (
    "unavailable_seconds",
    "stale_seconds",
)

Streams = dict[int, StreamHealth | None]
Statuses = dict[str, GatewayStatus]


class ClusterStatus:
    """Tells of one gateway, and asks the others."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._connection: ClusterConnection | None = None
        self._exchange: StatusExchange | None = None
        # One question at a time, whoever asks.
        self._turn = asyncio.Lock()
        # Removes what else is kept for a space that was dropped.
        self.on_dropped: Callable[[str], Awaitable[None]] | None = None

    async def start(self, connection: ClusterConnection) -> None:
        """Answer the other gateways from now on."""
        node = self._node
        self._connection = connection
        self._exchange = StatusExchange(
            connection.client, f"{node.config.name}.status", node.name, self.describe_own
        )
        await self._exchange.start()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.client.is_connected

    def describe_own(self, space: str = "") -> GatewayStatus:
        """This gateway as it sees itself, and one space if it is asked about."""
        node = self._node
        return GatewayStatus(
            gateway=node.name,
            version=__version__,
            epoch=node.common.log.writer.epoch,
            state=self._own_state(),
            shards=[_describe_shard(shard) for shard in node.served],
            differences=node.differences,
            unknown_spaces=sorted(name for shard in node.shards for name in shard.unknown),
            settings={name: getattr(node.config, name) for name in _SETTINGS},
            failure=str(node.failed.result()) if node.failed.done() else "",
            unwritten_journals=sorted(
                name
                for shard in node.shards
                for name, order in shard.orders.items()
                if not order.journaled.journal.writable
            ),
            has_in_file=space in node.configs if space else None,
            begins=[shard.index for shard in node.shards if shard.state == "starting"],
            refuses=[] if node.sharing is None else sorted(node.sharing.refuses),
        )

    def _own_state(self) -> GatewayState:
        node = self._node
        if node.failed.done():
            return "failed"
        if node.is_stale:
            return "cut off"
        return "unavailable" if node.is_unavailable else "serving"

    async def report(self, *, compare: bool = False) -> dict[str, Json]:
        """What is known of the cluster now. `compare` hashes all states at one place of the log."""
        async with self._turn:
            problems: list[str] = []
            compared: dict[int, int] = {}
            if compare:
                try:
                    compared = await self._hash_states()
                except MootError as fault:
                    problems.append(f"the states could not be compared: {fault}")
            # First: what is written meanwhile is not called a lag.
            streams = await self._ask_streams()
            statuses = await self._ask_gateways(compared)
        node = self._node
        missing = [name for name in self._living() if name not in statuses]
        problems += [
            *(
                stream_problems(streams)
                if self.is_connected
                else [f"gateway {node.name} is not connected to NATS"]
            ),
            *_gateway_problems(statuses.values()),
            *(
                f"gateway {name} writes to the log, and did not answer within {_ANSWER_SECONDS:g} s"
                for name in missing
            ),
            *self._shard_problems(statuses.values()),
            *_space_problems(statuses.values()),
            *_setting_problems(statuses.values()),
            *_state_problems(statuses.values(), compared),
        ]
        silent = sorted(self._known() - statuses.keys())
        return {
            "cluster": node.config.name,
            "answered_by": node.name,
            "nats": self._describe_nats(streams, statuses),
            "gateways": [
                *(_describe_gateway(status, streams) for status in statuses.values()),
                *(self._describe_silent(name, is_alive=name in missing) for name in silent),
            ],
            "problems": problems,
        }

    def _shard_problems(self, statuses: Iterable[GatewayStatus]) -> Iterator[str]:
        """What members of some spaces notice."""
        served = {each.shard for status in statuses for each in status.shards}
        served |= {index for status in statuses for index in status.begins}
        for shard in self._node.shards:
            if shard.index not in served:
                yield (
                    f"no gateway serves shard {shard.index}, and its members wait: let one serve it (moot "
                    f"cluster serve GATEWAY {shard.index})"
                )

    async def move(self, index: int, wanted: str | None, *, serve: bool) -> dict[str, Json]:
        """Let this gateway begin or end to serve one shard; which it serves then. Raises Refused."""
        node = self._node
        if wanted not in (None, node.name):
            raise InvalidOperation(f"this is gateway {node.name}: ask the other one at its own address")
        if node.sharing is not None:
            is_changed = await (node.sharing.accept(index) if serve else node.sharing.refuse(index))
        else:
            is_changed = await (node.serve(index) if serve else node.leave(index))
        return {
            "gateway": node.name,
            "changed": is_changed,
            "serves": [shard.index for shard in node.served],
            "shards": len(node.shards),
        }

    async def drop_space(self, name: str, by: str) -> list[str]:
        """Let the cluster forget a space that no gateway has in its file; who could not be asked, being gone.

        Again for one that was dropped, it removes what may be left of it.
        Raises InvalidOperation where one has it, or may have it, and Unavailable.
        """
        async with self._turn:
            node = self._node
            shard = node.shard_of(name)
            node.check_current(shard)
            if name not in shard.unknown | shard.orders.keys():
                if name in shard.dropped and self.on_dropped is not None:
                    # What is kept of it could perhaps not be removed then.
                    await self.on_dropped(name)
                    return []
                raise InvalidOperation(f"the log of this cluster has no space {name[:64]!r}")
            statuses = await self._ask_gateways({}, name)
            if silent := [each for each in self._living() if each not in statuses]:
                raise InvalidOperation(
                    f"gateway {', '.join(silent)} did not answer, and may have space {name!r} in its file: "
                    "nothing was changed"
                )
            asked = [
                f"{status.gateway}.{each.epoch}"
                for status in statuses.values()
                for each in status.shards
                if each.shard == shard.index
            ]
            if having := [each.gateway for each in statuses.values() if _has_space(each, shard, name)]:
                raise InvalidOperation(
                    f"gateway {', '.join(having)} has space {name!r} in its file: nothing was changed. Take "
                    "it out of the file and start that gateway again first"
                )
            # All forget it, if nobody has come meanwhile.
            await self._wait_applied(shard, "drop", {"by": by, "keys": asked}, space=name)
            if self.on_dropped is not None:
                await self.on_dropped(name)
            return sorted(self._known() - statuses.keys())

    async def forget_content(self, name: str) -> None:
        """Remove large values of a space that was deleted."""
        if self.on_dropped is not None:
            await self.on_dropped(name)

    async def _hash_states(self) -> dict[int, int]:
        """Let all gateways hash their states at one message of each shard; returns which, by shard."""
        node = self._node
        if node.sharing is None and not node.serves_all:
            raise Unavailable("this gateway does not serve all shards: ask one that does")
        done = await asyncio.gather(*(self._hash_shard(shard) for shard in node.served))
        return dict(done)

    async def _hash_shard(self, shard: Shard) -> tuple[int, int]:
        id = secrets.token_hex(8)
        await self._wait_applied(shard, "compare", {"who": id})
        return shard.index, shard.compared_at

    async def _wait_applied(self, shard: Shard, input: str, facts: dict[str, Json], space: str = "") -> None:
        """Wait until an input is applied here; raises what it was refused with, or Unavailable."""
        applied = wait_applied(lambda tell: self._node.submit(shard, space, input, facts, tell))
        try:
            await asyncio.wait_for(applied, _COMPARE_SECONDS)
        except TimeoutError:
            raise Unavailable("the cluster's log did not answer in time") from None

    async def _ask_gateways(self, compared: dict[int, int], space: str = "") -> Statuses:
        """What gateways say; again until they have come to where states are compared, or for a while."""
        assert self._exchange is not None  # noqa: S101  # started
        until = asyncio.get_running_loop().time() + _COMPARE_SECONDS
        while True:
            living = set(self._living())
            ours = {self._node.name}
            gone = self._known() - living - ours
            found = await self._exchange.ask(living - ours, gone, _ANSWER_SECONDS, space)
            # Ours last, and not what somebody says in our name.
            found[self._node.name] = self.describe_own(space)
            behind = any(
                shard.position < compared.get(shard.shard, 0)
                for status in found.values()
                for shard in status.shards
            )
            if not behind or asyncio.get_running_loop().time() > until:
                return dict(sorted(found.items()))
            await asyncio.sleep(_COMPARE_AGAIN_SECONDS)

    async def _ask_streams(self) -> Streams:
        assert self._connection is not None  # noqa: S101  # started
        connection, shards = self._connection, self._node.shards
        asking = (ask_stream(connection, shard.stream, _ANSWER_SECONDS) for shard in shards)
        found = await asyncio.gather(*asking)
        return {shard.index: health for shard, health in zip(shards, found, strict=True)}

    def _living(self) -> list[str]:
        return sorted({name for shard in self._node.served for name in shard.table.living()})

    def _known(self) -> set[str]:
        return {name for shard in self._node.served for name in shard.table.known}

    def _describe_nats(self, streams: Streams, statuses: Statuses) -> dict[str, Json]:
        client = None if self._connection is None else self._connection.client
        url = None if client is None or not self.is_connected else client.connected_url
        return {
            "connected": self.is_connected,
            # Without what may stand before the host: a password.
            "server": None if url is None else f"{url.hostname}:{url.port}",
            "version": None if client is None or url is None else server_version(client),
            "streams": [
                _describe_stream(shard, streams[shard.index], self._node.config.replicas)
                | self._describe_service(shard.index, statuses)
                for shard in self._node.shards
            ],
        }

    def _describe_service(self, index: int, statuses: Statuses) -> dict[str, Json]:
        """Who serves a shard, and who shall where gateways share them: what differs is moving."""
        sharing = self._node.sharing
        return {
            "served_by": [
                name for name, each in statuses.items() if any(one.shard == index for one in each.shards)
            ],
            "begins_at": [name for name, each in statuses.items() if index in each.begins],
            "share_of": None if sharing is None or index == 0 else sharing.server_of(index),
        }

    def _describe_silent(self, name: str, *, is_alive: bool) -> dict[str, Json]:
        """A gateway that did not answer, by what the log tells of it."""
        known = [(shard, shard.table.known[name]) for shard in self._node.served if name in shard.table.known]
        ages = [
            max(0.0, shard.clock.latest - each.beat_at) + shard.log.age_seconds
            for shard, each in known
            if each.beat_at
        ]
        return {
            "name": name,
            "state": "no answer" if is_alive else "gone",
            "version": next((each.version for _, each in known if each.version), None),
            "epoch": max(each.epoch for _, each in known),
            "heartbeat_age_seconds": round(min(ages), 1) if ages else None,
            "shards": [],
            "differences": [],
            "unknown_spaces": [],
            "settings": {},
            "failure": "",
            "unwritten_journals": [],
        }


def _has_space(status: GatewayStatus, shard: Shard, name: str) -> bool:
    """Whether a gateway has a space: in its file, or because it was made while gateways ran."""
    if status.has_in_file is not False:
        # Or it did not say.
        return True
    is_served = any(each.shard == shard.index for each in status.shards)
    return is_served and name not in status.unknown_spaces


def _describe_shard(shard: Shard) -> ShardStatus:
    writer = shard.log.writer
    is_compared = shard.compared_at > shard.hashed_at
    return ShardStatus(
        shard=shard.index,
        epoch=writer.epoch,
        position=shard.log.position,
        age_seconds=round(shard.log.age_seconds, 3),
        pending_inputs=writer.pending_inputs,
        pending_bytes=writer.queued_bytes,
        hashed_at=shard.compared_at if is_compared else shard.hashed_at,
        hashes=shard.compared if is_compared else shard.hashes,
        refusal=writer.refusal,
    )


def _describe_gateway(status: GatewayStatus, streams: Streams) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(status)
    # Only for `drop_space`.
    del fields["has_in_file"]
    shards: list[dict[str, Json]] = fields["shards"]
    for shard in shards:
        info = streams.get(shard["shard"])
        shard["lag"] = None if info is None else max(0, info.last - shard["position"])
    age = max((each.age_seconds for each in status.shards), default=0.0)
    return {"name": fields.pop("gateway"), **fields, "heartbeat_age_seconds": round(age, 1)}


def _describe_stream(shard: Shard, health: StreamHealth | None, wanted: int) -> dict[str, Json]:
    fields: dict[str, Json] = {"shard": shard.index, "stream": shard.stream, "answers": health is not None}
    return fields if health is None else fields | {"copies": wanted} | msgspec.to_builtins(health)


def stream_problems(streams: Streams) -> Iterator[str]:
    """What is wrong with the log in NATS: nobody answers for it, or not all copies are current."""
    if silent := [str(index) for index, info in streams.items() if info is None]:
        yield (
            f"JetStream does not answer for shard {', '.join(silent)}: it elects a leader, or too few NATS "
            "servers run"
        )
    late: dict[str, list[str]] = defaultdict(list)
    for index, info in streams.items():
        for server in info.late_servers if info is not None else ():
            late[server].append(str(index))
    for name, shards in sorted(late.items()):
        yield f"NATS server {name} is away or behind (shard {', '.join(shards)})"


def _gateway_problems(statuses: Iterable[GatewayStatus]) -> Iterator[str]:
    for status in statuses:
        if status.state != "serving":
            age = max((each.age_seconds for each in status.shards), default=0.0)
            why = status.failure or f"its heartbeat has not come back for {age:.1f} s"
            if refusals := sorted({each.refusal for each in status.shards if each.refusal}):
                why += f"; NATS does not take its messages: {', '.join(refusals)}"
            yield f"gateway {status.gateway} is {status.state}: {why}"
        if unwritten := ", ".join(status.unwritten_journals):
            yield (
                f"gateway {status.gateway} cannot write its journal of {unwritten}: its disk is full or "
                "fails. It serves by the log, and its history may have a gap: free its disk"
            )
        for difference in status.differences:
            yield f"gateway {status.gateway} started with another configuration: {difference}"


def _space_problems(statuses: Collection[GatewayStatus]) -> Iterator[str]:
    """Spaces that are in the log and not in files. While one is, no snapshot is stored that lacks it."""
    lacking: dict[str, list[str]] = defaultdict(list)
    for status in statuses:
        for name in status.unknown_spaces:
            lacking[name].append(status.gateway)
    for name, gateways in sorted(lacking.items()):
        if len(gateways) == len(statuses):
            yield (
                f"space {name} is in the log and in no gateway's file, so its part of the log is neither "
                "saved in snapshots nor trimmed: put it back into the files, or drop it (moot cluster "
                f"drop-space {name})"
            )
        else:
            yield (
                f"gateway {', '.join(gateways)} has no space {name} in its file, and others have: put it "
                "back, or take it out of all files"
            )


def _setting_problems(statuses: Iterable[GatewayStatus]) -> Iterator[str]:
    given: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for status in statuses:
        for name, value in status.settings.items():
            given[name][value].append(status.gateway)
    for name, values in given.items():
        if len(values) > 1:
            words = "; ".join(f"{', '.join(sorted(who))}: {value:g}" for value, who in values.items())
            yield f"gateway.cluster.{name} differs: {words}"


def _state_problems(statuses: Iterable[GatewayStatus], compared: dict[int, int]) -> Iterator[str]:
    """Where states were hashed at the same message and differ, and who did not come to be compared."""
    found: dict[tuple[int, int, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for status in statuses:
        for shard in status.shards:
            if shard.hashed_at < compared.get(shard.shard, 0):
                yield f"gateway {status.gateway} could not be compared: it is behind in shard {shard.shard}"
            for space, hash in shard.hashes.items():
                found[shard.shard, shard.hashed_at, space][hash].append(status.gateway)
    for (index, position, space), hashes in sorted(found.items()):
        if len(hashes) > 1:
            words = "; ".join(f"{', '.join(sorted(who))}: {hash[:12]}" for hash, who in hashes.items())
            yield f"the state of {space} differs behind message {position} of shard {index}: {words}"
