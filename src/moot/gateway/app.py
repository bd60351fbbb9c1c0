"""A whole gateway: spaces, access, HTTP and WebSockets on one port, from start to stop.

gateway = Gateway(configuration)
await gateway.start()        # listens; gateway.port is the port that was bound
await gateway.stop()         # members are told, journals are on disk
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from moot import __version__
from moot.config.configuration import Configuration
from moot.config.gateway_config import GatewayConfig, TlsConfig, is_loopback
from moot.config.oidc_reader import without_people
from moot.errors import MootError, NotOnDisk, Unreachable, UsageError
from moot.evidence.log_keys import use_keys
from moot.evidence.witness_policy import read_policy
from moot.gateway.access import SpaceDirectory
from moot.gateway.access_limiter import AccessLimiter
from moot.gateway.cluster.cluster_metrics import watch_cluster
from moot.gateway.evidence.log_keeper import LogKeeper
from moot.gateway.evidence.witness_client import WitnessClient
from moot.gateway.evidence.witness_service import WitnessService
from moot.gateway.gateway_addresses import GatewayAddresses
from moot.gateway.gateway_metrics import GatewayMeasures
from moot.gateway.host_origin_policy import HostOriginPolicy
from moot.gateway.hosting import fast_path
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_routes import Endpoints
from moot.gateway.http.mounted_apps import MountedApps
from moot.gateway.mailer import Mailer
from moot.gateway.notifications.notifier import Notifier
from moot.gateway.part_settings import max_message_bytes, tls_files
from moot.gateway.readiness import Readiness
from moot.gateway.sign_in.passkey_service import PasskeyService
from moot.gateway.sign_in.sign_in_links import LinkStore, MemoryLinks, SignInLinks
from moot.gateway.sign_in.sign_in_service import SignInService
from moot.gateway.sign_in.token_rotation import TokenRotation
from moot.gateway.space_factory import SpaceFactory
from moot.gateway.websocket_handler import UpgradeHandler
from moot.net.http_listener import HttpListener, bind_socket
from moot.net.http_protocol import ConnectionLimiter
from moot.net.server_tls import ServerTls
from moot.net.websocket_server import WebSocketServer
from moot.private_files import use_folder
from moot.protocol.close_codes import GOING_AWAY, TRY_AGAIN
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from moot.store.database import Database

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode
    from moot.gateway.cluster.nats.shared_content import SharedContent

log = logging.getLogger(__name__)

# Members are told and sockets closed within this; then the journals are flushed (all within 5 s).
_GOODBYE_SECONDS = 1.0
# In a cluster, who still waits for the log after this is told that the outcome is not known.
_ANSWERS_SECONDS = 0.5
# There the log has until then, counted from the beginning, and at most what `cluster_node` gives it.
_LOG_SECONDS = 3.0
# A database that does not answer is left alone after this.
_DATABASE_SECONDS = 0.5
# One that answers may use what is left of the 5 s.
_STOP_SECONDS = 4.5


class Gateway:
    """Everything between a configuration and an open port."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.config: GatewayConfig = configuration.gateway
        self.addresses = GatewayAddresses(self.config)
        self.directory = SpaceDirectory()
        self.readiness = Readiness(self.directory)
        self.measures = GatewayMeasures()
        self.rotation = TokenRotation(configuration)
        self._database: Database | None = None
        self._space_factory: SpaceFactory | None = None
        self._listener: HttpListener | None = None
        self._upgrade_handler: UpgradeHandler | None = None
        self._websockets: WebSocketServer | None = None
        self.sign_in: SignInService | None = None
        self._tls: ServerTls | None = None
        # Set while it runs: who serves `gateway.mcp`.
        self.mounted: MountedApps | None = None
        self._local: socket.socket | None = None
        self._tasks = TaskSet("gateway")
        self.notifier = Notifier(self.config, self.directory)
        self.logs = LogKeeper(self.config, self.directory)
        self._witnesses: WitnessClient | None = None
        # Its place in a cluster, if it has one.
        self.node: ClusterNode | None = None
        self._shared_content: SharedContent | None = None
        self._link_store: LinkStore | None = None
        self._mailer = Mailer(self.config.smtp)
        most = self.config.max_minted_token_seconds
        self._passkeys = PasskeyService(self.directory, max_token_seconds=most)

    @property
    def port(self) -> int:
        return self.addresses.port

    @property
    def url(self) -> str:
        return self.addresses.url

    async def make_sign_in_link(self, token: str) -> str:
        """The console's address with a code that signs the holder of this token in, once and for minutes.

        Raises Unavailable in a cluster whose log cannot be reached.
        """
        return f"{self.addresses.console_url}/#sign-in={await self._sign_in_links.create(token)}"

    async def start(self) -> None:
        """Listen, and bring every space back to where it was. Raises UsageError when that cannot be.

        Probes are answered from the first moment on, everything else when all spaces are open.
        """
        tls = self.config.tls
        if tls is not None:
            self._tls = ServerTls(tls_files(tls))
        listening = bind_socket(self.config.host, self.config.port, port_name="--port")
        self.addresses.port = listening.getsockname()[1]
        if tls is not None:
            try:
                self._local = bind_socket("127.0.0.1", tls.local_port, port_name="gateway.tls.local_port")
                self.addresses.local_port = self._local.getsockname()[1]
            except MootError:
                listening.close()
                raise
        elif not is_loopback(self.config.host):
            # Said at every start, in the log too: whoever reads that is seldom who wrote the configuration.
            log.warning(
                "reached from other machines without TLS",
                extra={"host": self.config.host, "administrators": len(self.config.admin_tokens)},
            )
        try:
            use_folder(self.config.data)
        except UsageError:
            listening.close()
            if self._local is not None:
                self._local.close()
            raise
        try:
            log.info("fast path", extra={"compiled": fast_path.COMPILED})
            await self._open(listening)
        except BaseException:
            await self.stop()
            listening.close()
            raise
        self.readiness.phase = "running"

    async def _open(self, listening: socket.socket) -> None:
        self._database = database = Database.open(self.config.data / "moot.sqlite")
        self._space_factory = factory = self._make_factory(database)
        self.directory.admin_tokens = self.config.admin_tokens
        if self.config.oidc:
            self.sign_in = SignInService(self.config.oidc, self.directory.hosts, self.directory.others)
            self.sign_in.serves_all = self.directory.serves_all
            self.directory.sign_in = self.sign_in
            self.sign_in.start()
        origin_policy = HostOriginPolicy(self.addresses.hosts, self.addresses.origins)
        access_limiter = AccessLimiter(self.config)
        self.directory.has_guessed = access_limiter.has_guessed
        node = self.node
        relay = None if node is None else node.relay
        self._upgrade_handler = UpgradeHandler(
            self.directory, origin_policy, self.config, self.readiness, access_limiter, relay
        )
        limiter = ConnectionLimiter(
            max_per_address=self.config.max_connections_per_address,
            max_connections=self.config.max_connections,
        )
        if relay is not None:
            limiter.read_claim = relay.claims.read
            limiter.is_gateway = relay.is_gateway
        self._websockets = WebSocketServer(
            self._upgrade_handler.admit,
            limiter.release,
            limiter.address_of,
            max_message_bytes=max_message_bytes(self.configuration),
        )
        self._sign_in_links = SignInLinks(
            clock=time.monotonic if node is None else lambda: node.shards[0].clock.latest,
            store=self._link_store or MemoryLinks(),
        )
        endpoints = Endpoints(
            self.directory,
            origin_policy,
            self.config,
            access_limiter=access_limiter,
            readiness=self.readiness,
            rotation=self.rotation,
            sign_in_links=self._sign_in_links,
            passkeys=self._passkeys,
            devices=self.notifier.devices,
            sign_in=self.sign_in,
            metrics=self.metrics,
            connections=self.connections,
            cluster=None if self.node is None else self.node.status,
            spaces=factory,
            shared_content=self._shared_content,
            relay=relay,
            logs=self.logs,
            witness=self._make_witness(),
            version=__version__,
        )
        spaces = {each.path: each.space for each in self.config.mcp}
        self.mounted = MountedApps(endpoints.application(), spaces, endpoints.relayed_app)
        self._listener = HttpListener(self.mounted, limiter, websockets=self._websockets, tls=self._tls)
        await self._listener.listen(listening, local=self._local)
        if self._tls is not None:
            self._tasks.start(self._tls.watch())
        await factory.open_all()
        self.logs.on_opened = lambda host: self.measures.watch_log(host, self.logs)
        self.logs.start()
        self._ask_witnesses()
        factory.on_created = self.measures.watch_space
        factory.on_ended = self._forget_space
        factory.on_left = partial(self._forget_space, is_ended=False)
        self.measures.watch_connections(limiter)
        self.measures.watch_access(access_limiter)
        if self.node is not None:
            watch_cluster(self.measures.registry, self.node)
        for host in self.directory.hosts.values():
            self.measures.watch_space(host)
        self.measures.watch_notifications(self.notifier)
        await self.notifier.start()

    async def _forget_space(self, host: SpaceHost, *, is_ended: bool = True) -> None:
        await self.logs.close(host, is_last=is_ended)
        self.measures.forget_space(host)

    def _make_witness(self) -> WitnessService | None:
        """What cosigns for the logs of others, if the configuration names some."""
        known, data = self.config.journal.witness_for, self.config.data
        return WitnessService(data, known, use_keys(data).witness()) if known else None

    def _ask_witnesses(self) -> None:
        journal = self.config.journal
        if self.logs.is_on and (journal.witnesses or journal.anchor):
            policy = None if journal.witnesses is None else read_policy(journal.witnesses)
            self._witnesses = WitnessClient(self.logs, policy, journal.anchor)

    def _make_factory(self, database: Database) -> SpaceFactory:
        configuration, cluster = self.configuration, self.config.cluster
        if cluster is None:
            return SpaceFactory(
                configuration,
                self.directory,
                database,
                url=self.addresses.shared_url,
                on_mail=self._mailer.send,
            )
        if find_spec("nats") is None:
            raise UsageError(
                "gateway.cluster needs the extra 'cluster': pip install '.[cluster]' in the clone of Moot"
            )
        # Only here: a gateway that is alone needs no NATS client.
        from moot.gateway.cluster.cluster_space_factory import ClusterSpaceFactory
        from moot.gateway.cluster.gateway_relay import GatewayRelay
        from moot.gateway.cluster.nats.log_exchange import LogExchange
        from moot.gateway.cluster.nats.shared_content import SharedContent
        from moot.gateway.cluster.nats.shared_values import SharedLinks, SharedValues

        factory = ClusterSpaceFactory(
            configuration,
            self.directory,
            database,
            url=self.addresses.shared_url,
            on_mail=self._mailer.send,
            cluster=cluster,
            port=self.addresses.port,
            close_sockets=self._close_sockets,
        )
        self.node = node = factory.node
        self._shared_content = SharedContent(cluster, lambda: node.connection)
        node.status.on_dropped = self._shared_content.forget
        self.notifier.shared = shared = SharedValues(cluster, lambda: node.connection)
        self._passkeys.shared = shared
        self.logs.exchange = LogExchange(cluster, node.name, lambda: node.connection)
        self.logs.records_of = factory.records_of
        self._link_store = SharedLinks(cluster, lambda: node.connection)
        self.readiness.is_cut_off = lambda: node.is_stale or node.failed.done()
        self.readiness.is_unavailable = lambda: node.is_unavailable
        self.directory.when_current = node.barrier.call_when_passed
        self.directory.serves = node.serves
        self.directory.serves_all = lambda: node.serves_all
        if cluster.shards > 1:
            self.directory.shard_of = lambda space: node.shard_of(space).index
            node.relay = GatewayRelay(
                node,
                other_names=self.directory.other_names,
                host=self.config.host,
                port=self.addresses.port,
                origin=lambda: self.addresses.own_origin,
                tls=self._tls,
            )
        return factory

    async def wait_failed(self) -> UsageError:
        """Wait until this gateway cannot go on, which only happens in a cluster; returns why."""
        if self.node is None:
            await asyncio.Event().wait()
        assert self.node is not None  # noqa: S101  # the line above waits for ever
        return await asyncio.shield(self.node.failed)

    def _close_sockets(self, reason: str) -> None:
        for one in list(self._upgrade_handler.sockets if self._upgrade_handler is not None else ()):
            one.close(TRY_AGAIN, reason)

    def reload(self, configuration: Configuration) -> list[str]:
        """Take over participants, capabilities and rules of spaces that run; returns what needs a restart."""
        notes = [] if self._space_factory is None else self._space_factory.reload(configuration)
        self.directory.admin_tokens = configuration.gateway.admin_tokens
        self.rotation.configure(configuration)
        notes += self._reload_tls(configuration.gateway.tls)
        oidc = configuration.gateway.oidc
        if without_people(oidc) != without_people(self.config.oidc):
            notes.append("gateway.oidc is another: restart to take it over; its rules are in effect")
        if self.sign_in is not None:
            self._tasks.start(self.sign_in.reload(oidc))
        notes += [
            f"gateway.{field} is another: restart to take it over"
            for field in self.config.__struct_fields__
            if field not in ("admin_tokens", "tls", "oidc")
            and getattr(self.config, field) != getattr(configuration.gateway, field)
        ]
        return notes

    def _reload_tls(self, tls: TlsConfig | None) -> list[str]:
        """Take certificate and key over, under other names too; the earlier ones stay if they do not fit."""
        before = self.config.tls
        if tls is None or before is None or self._tls is None:
            return [] if tls == before else ["gateway.tls is another: restart to take it over"]
        kept = self._tls.files
        self._tls.files = tls_files(tls)
        try:
            self._tls.reload()
        except UsageError as fault:
            self._tls.files = kept
            return [f"the certificate stays as it was: {fault}"]
        if tls.local_port != before.local_port:
            return ["gateway.tls is another: restart to take it over"]
        return []

    async def open_own(self, _host: str, _port: int) -> socket.socket:
        """A connection from this very process, which no limit for addresses counts."""
        if self._listener is None:
            raise Unreachable("the gateway does not run")
        return await self._listener.connect_own()

    def admits(self, space: str, name: str, token_hash: str) -> bool:
        """Whether a token lets this participant in; one of the configuration may be void by now.

        Where the space is not known here, it may: whoever serves it decides.
        """
        host = self.directory.hosts.get(space)
        if host is None:
            return not self.directory.serves(space)
        return host.space.find_token_owner(token_hash) == name

    async def stop(self) -> None:
        """Tell members, close sockets, flush journals."""
        if self.node is not None:
            await self.node.hand_over()
        self.readiness.phase = "stopping"
        now = asyncio.get_running_loop().time()
        if self._database is not None:
            self._database.stop_by = now + _STOP_SECONDS
        if self.node is not None:
            self.node.stop_by = now + _LOG_SECONDS
        # Together with the rest: a receiver that does not answer holds up nothing.
        notified = asyncio.gather(self.notifier.stop())
        sockets = self._upgrade_handler.sockets if self._upgrade_handler is not None else set()
        for one in list(sockets):
            one.close(GOING_AWAY, "the gateway is stopping")
        if self.node is not None and self.node.relay is not None:
            self.node.relay.close()
        await self._tasks.close()
        if self.sign_in is not None:
            await self.sign_in.stop()
        if self.node is not None:
            # Before requests that wait are cut off without a word.
            asyncio.get_running_loop().call_later(_ANSWERS_SECONDS, self.node.give_up_waiting)
        if self._listener is not None:
            self._listener.should_exit = True
            if self._websockets is not None:
                await self._websockets.wait_closed(_GOODBYE_SECONDS)
            await self._listener.stop()
        if self._websockets is not None:
            # Who came while the port was still open.
            await self._websockets.wait_closed(0)
        if self._space_factory is not None:
            await asyncio.gather(self._space_factory.close(), self._mailer.close())
            await self.logs.stop()
        if self._witnesses is not None:
            await self._witnesses.close()
        await notified
        if self._database is not None:
            await self._close_database(self._database)

    def check_on_disk(self) -> None:
        """After `stop`: raises NotOnDisk if something that was accepted is not on disk."""
        lost = {name: host.journaled.durability.lost_records for name, host in self.directory.hosts.items()}
        told = [f"{name} ({count} records)" for name, count in lost.items() if count > 0]
        if told:
            raise NotOnDisk(
                f"stopped with changes that are not on disk, in {', '.join(told)}: the next start does not "
                f"know of them, and what they took away is allowed again. Free the disk at {self.config.data}"
            )

    async def _close_database(self, database: Database) -> None:
        try:
            await database.close(_DATABASE_SECONDS)
        except TimeoutError as fault:
            # Its thread ends with the process. Journals are on disk or have said that they are not.
            log.error("database not closed", extra={"why": str(fault)})

    def connections(self) -> list[dict[str, Json]]:
        """MEW 10.1: one entry a connection."""
        return [
            {
                "connection_id": session.id,
                "participant_id": session.member.id,
                "space": host.name,
                "dialect": session.dialect,
                "capabilities": [c.original for c in session.rights.capabilities],
                "connected_at": rfc3339(host.connected_at(session.id)),
            }
            for host in self.directory.hosts.values()
            for session in host.space.state.roster.sessions.values()
        ]

    def metrics(self) -> str:
        """Figures as Prometheus reads them."""
        return self.measures.exposition()
