"""A member that came to a gateway which does not serve its space is passed on to one that does.

The head of the request is sent with the address that it came from, signed; then bytes are passed both ways.
A request that was relayed is never relayed again. If none of those that tell to serve a space can be
reached, its shard is taken over, and the request waits until somebody serves it, this gateway or another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import orjson

from moot.config.gateway_config import is_wildcard
from moot.errors import Unavailable
from moot.gateway.cluster.relay_claims import RelayClaims, Values
from moot.net.counted_address import plain_address
from moot.net.http_protocol import RELAYED_HEADER
from moot.net.relay_connection import NotTried, RelayAddress, RelayEnd, RequestHead, open_connection
from moot.net.server_tls import ServerTls
from moot.net.upgrade_request import RelayedUpgrade, Upgrade, UpgradeRefusal
from moot.net.websocket_server import Decision

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode

log = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.BaseProtocol)

# At a time, WebSockets and requests together; each has two sockets.
MAX_RELAYS: Final = 4_096
# Beside `unavailable_seconds`, for which a request may wait: MCP breaks its silence every 15 s.
SILENCE_SECONDS: Final = 60.0
# Gateways that are tried for one request, of those that tell to serve its space.
_MAX_TRIES: Final = 2
_NATS_PORT: Final = 4222
_STOPPING: Final = "this gateway is stopping: try another one"
_REACHES_NONE: Final = (
    "this gateway does not serve that space now, and reaches none that does: try again, or another one"
)


class GatewayRelay:
    """Opens connections to the other gateways of a cluster, and tells them how this one is reached."""

    def __init__(
        self,
        node: ClusterNode,
        *,
        other_names: Mapping[str, str],
        host: str,
        port: int,
        origin: Callable[[], str],
        tls: ServerTls | None,
    ) -> None:
        """`other_names`: what spaces are called, too. `host`, `port`, `tls`: of this gateway's own port."""
        self._other_names = other_names
        self.claims = RelayClaims(lambda: node.common.clock.latest)
        self._node = node
        self._host, self._port, self._origin, self._tls = host, port, origin, tls
        self._source = ""
        self._is_reachable = False
        self._is_closed = False
        self._open: set[asyncio.Transport] = set()
        # Requests for which nobody is found yet, each until its time is up.
        self._waiting: set[asyncio.Timeout] = set()
        self._deciding: set[asyncio.Task[Decision]] = set()

    async def start(self, values: Values) -> None:
        """Done when this gateway relays, and others may relay to it."""
        await self.claims.load(values)
        self._source = await _reachable_host(self._node.config.servers)
        if is_wildcard(self._host):
            self._host = self._source
        self._is_reachable = True

    @property
    def own_address(self) -> RelayAddress | None:
        """How the other gateways reach this one; None as long as it would not believe them."""
        if not self._is_reachable:
            return None
        certificate = "" if self._tls is None else self._tls.fingerprint
        return RelayAddress(self._host, self._port, self._origin(), certificate, self._source)

    def is_gateway(self, address: str) -> bool:
        """Whether another gateway that lives may relay from there."""
        plain = plain_address(address)
        return self._is_reachable and any(plain in (each.host, each.source) for each in self._node.gateways)

    @property
    def wait_seconds(self) -> float:
        """How long a request waits until a gateway is found that serves its space."""
        return self._node.config.unavailable_seconds

    @property
    def silence_seconds(self) -> float:
        """How long another gateway may say nothing while it answers."""
        return SILENCE_SECONDS + self._node.config.unavailable_seconds

    @property
    def connections(self) -> int:
        return len(self._waiting) + len(self._open)

    def space_of(self, space: str | None, upgrade: Upgrade) -> str | None:
        """The space for which a WebSocket is relayed; None where this gateway answers itself."""
        return self.relayed_space(
            space, is_relayed=RELAYED_HEADER.decode() in upgrade.headers, peer=upgrade.peer
        )

    def relayed_space(self, space: str | None, *, is_relayed: bool, peer: str) -> str | None:
        """The same of any request. Members of our own process are known nowhere else."""
        if not space or not peer or is_relayed:
            return None
        name = self._other_names.get(space, space)
        return None if self._node.serves(name) else name

    async def open(
        self, space: str, head: RequestHead, peer: str, make_protocol: Callable[[], P]
    ) -> tuple[asyncio.Transport, P] | None:
        """A connection to a gateway that serves the space, with the head sent; it has to be closed by
        `release`. None if this gateway serves it by now. Raises Unavailable."""
        if self._is_closed:
            raise Unavailable(_STOPPING)
        if self.connections >= MAX_RELAYS:
            raise Unavailable(f"{MAX_RELAYS} connections are relayed here already: try another gateway")
        try:
            async with asyncio.timeout(self.wait_seconds) as waiting:
                self._waiting.add(waiting)
                try:
                    while not self._node.serves(space):
                        # It may be while a gateway that is gone is tried.
                        moved = self._node.moved
                        if (opened := await self._try_open(space, head, peer, make_protocol)) is not None:
                            return opened
                        await moved.wait()
                    return None
                finally:
                    self._waiting.discard(waiting)
        except TimeoutError:
            raise Unavailable(_STOPPING if self._is_closed else _REACHES_NONE) from None

    async def _try_open(
        self, space: str, head: RequestHead, peer: str, make_protocol: Callable[[], P]
    ) -> tuple[asyncio.Transport, P] | None:
        """None if none of those that tell to serve it can be reached."""
        index = self._node.shard_of(space).index
        found = self._node.relay_addresses(index)
        own = self._tls.files if self._tls is not None and self._tls.files.client_ca is not None else None
        for address in tuple(found.values())[:_MAX_TRIES]:
            encoded = self._encode(head, peer, address)
            try:
                transport, protocol = await open_connection(
                    address, make_protocol, None if own is None else (own.certificate, own.key)
                )
            except OSError as fault:
                where = f"{address.host}:{address.port}"
                log.warning("no relay", extra={"space": space, "gateway": where, "fault": repr(fault)})
                if isinstance(fault, NotTried):
                    return None
                continue
            if self._is_closed:
                transport.abort()
                raise Unavailable(_STOPPING)
            self._open.add(transport)
            transport.write(encoded)
            return transport, protocol
        if found:
            self._node.note_unreachable(index, tuple(found)[:_MAX_TRIES])
        return None

    def release(self, transport: asyncio.Transport) -> None:
        self._open.discard(transport)
        transport.abort()

    def upgrade(
        self, upgrade: Upgrade, space: str, decide: Callable[[Upgrade], Decision | asyncio.Future[Decision]]
    ) -> asyncio.Future[Decision]:
        """What becomes of a WebSocket that is relayed; `decide`: if it is served here by then."""
        task = asyncio.create_task(self._upgrade(upgrade, space, decide))
        self._deciding.add(task)
        task.add_done_callback(self._deciding.discard)
        return task

    async def _upgrade(
        self, upgrade: Upgrade, space: str, decide: Callable[[Upgrade], Decision | asyncio.Future[Decision]]
    ) -> Decision:
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in upgrade.headers.items()
        ]
        head = RequestHead("GET", upgrade.path.encode("latin-1"), headers)
        try:
            opened = await self.open(space, head, upgrade.peer, RelayEnd)
        except Unavailable as refusal:
            return UpgradeRefusal(503, orjson.dumps({"error": refusal.message}), {"Retry-After": "1"})
        if opened is None:
            decision = decide(upgrade)
            return await decision if isinstance(decision, asyncio.Future) else decision
        transport, far = opened
        far.wait()

        def take_over(near: asyncio.Transport, on_lost: Callable[[], None]) -> None:
            def lost() -> None:
                self._open.discard(transport)
                on_lost()

            far.join(near, lost)

        return RelayedUpgrade(take_over, lambda: self.release(transport))

    def close(self) -> None:
        """Drop what is relayed, and relay no more: this gateway stops, and its members go to another one."""
        self._is_closed = True
        for waiting in self._waiting:
            if not waiting.expired():
                waiting.reschedule(0)
        for task in self._deciding:
            task.cancel()
        for transport in tuple(self._open):
            self.release(transport)

    def _encode(self, head: RequestHead, peer: str, to: RelayAddress) -> bytes:
        """The head as the other gateway reads it: by its own names, which were checked here by ours."""
        given = dict(head.headers)
        host = given.get(b"host", b"")
        is_same_origin = given.get(b"origin", b"").partition(b"://")[2].lower() == host.lower()
        parts = [head.method.encode(), b" ", head.target, b" HTTP/1.1\r\n"]
        for name, value in head.headers:
            if name == b"host":
                value = to.origin.partition("://")[2].encode()
            elif name == b"origin" and is_same_origin:
                value = to.origin.encode()
            parts += [name, b": ", value, b"\r\n"]
        parts += [RELAYED_HEADER, b": ", self.claims.sign(peer, head.method, head.target), b"\r\n\r\n"]
        return b"".join(parts)


async def _reachable_host(servers: Iterable[str]) -> str:
    """By which address of this machine others reach it: the one that it reaches the servers of NATS from."""
    loop, found = asyncio.get_running_loop(), "127.0.0.1"
    for server in servers:
        parts = urlsplit(server)
        try:
            # Nothing is sent: the system chooses the address, and that is all.
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=(parts.hostname or "", parts.port or _NATS_PORT)
            )
        except OSError:
            continue
        found = str(transport.get_extra_info("sockname")[0])
        transport.close()
        if not ip_address(found.partition("%")[0]).is_loopback:
            break
    return found
