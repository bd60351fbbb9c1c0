"""The connection to NATS, with an error that says what to do for each way in which it can be wrong."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, ObjectStoreConfig, StorageType, StreamConfig, StreamInfo
from nats.js.client import JetStreamContext
from nats.js.object_store import ObjectStore

from moot.config.cluster_config import ClusterConfig
from moot.errors import UsageError
from moot.gateway.cluster.nats.secure_client import RECONNECT_SECONDS, SecureClient, tls_context
from moot.resilience.task_set import check_cancelled

log = logging.getLogger(__name__)

T = TypeVar("T")

# Whatever a request to NATS may raise. RuntimeError: uvloop has it for a write into a connection that was
# just closed, and NATS' client passes it on.
NATS_FAULTS: Final = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError, RuntimeError)
# Earlier ones are known to lose what they acknowledged.
MIN_SERVER_VERSION: Final = (2, 14, 3)
# A stopped server is noticed after two of them.
_PING_SECONDS: Final = 0.5
# A start that reaches no server for so long fails: servers that start as well elect their leaders first.
CONNECT_SECONDS: Final = 30.0
_REQUEST_SECONDS: Final = 3.0
# While JetStream elects a leader, up to 9 s, it answers nothing, not even later. So it is asked again soon;
# each time it has longer, since a server may only be slow.
TRY_SECONDS: Final = (0.5, 1.0, *[_REQUEST_SECONDS] * 8)
_TRIES: Final = len(TRY_SECONDS)
# JetStream's own codes.
_NO_PEERS: Final = frozenset({10005, 10074})
_OVERLAP: Final = 10065
_NAME_IN_USE: Final = 10058
_NO_STORAGE: Final = frozenset({10023, 10028, 10047})
_ALIKE: Final = ("serves", "shards", "heartbeat_seconds", "gone_seconds", "snapshot_inputs", "keep_log")
# What clusters have that were made before there were these settings.
_BEFORE: Final = {"moot_keep_log": "False", "moot_serves": "all"}


class ClusterConnection(NamedTuple):
    """A connection whose server can keep the log."""

    client: SecureClient
    context: JetStreamContext
    max_payload_bytes: int


async def connect(
    config: ClusterConfig,
    name: str,
    on_reconnected: Callable[[], None],
    on_closed: Callable[[UsageError], None] = lambda _why: None,
) -> ClusterConnection:
    """Raises UsageError when no server answers, lets us in, is new enough and has JetStream.

    `on_closed`: a server has ended the connection for good, as when credentials have expired.
    """
    faults: list[str] = []
    is_connected = False
    client = SecureClient()
    client.config = config
    client.needs_tls = bool(config.tls_ca_file or config.tls_certificate_file) or any(
        each.startswith("tls://") for each in config.servers
    )

    async def note_fault(fault: Exception) -> None:
        faults.append(str(fault) or type(fault).__name__)
        del faults[:-8]
        log.debug("nats", extra={"fault": faults[-1]})
        if not is_connected:
            # After each attempt: the client tries for ever, and may have lost the end of its time.
            check_cancelled()

    async def note_reconnected() -> None:
        log.info("connected to NATS again", extra={"server": client.connected_url.netloc})  # type: ignore[union-attr]
        on_reconnected()

    async def note_closed() -> None:
        if client.is_leaving:
            return
        why = str(client.last_error or "") or "it did not say why"
        on_closed(UsageError(f"NATS has ended the connection of this gateway for good: {why}"))

    options = _secrets_of(config)
    where = ", ".join(_without_secrets(each) for each in config.servers)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.connect(
                list(config.servers),
                name=f"moot {name}",
                error_cb=note_fault,
                reconnected_cb=note_reconnected,
                closed_cb=note_closed,
                connect_timeout=2,
                reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]  # it sleeps for so long
                max_reconnect_attempts=-1,
                ping_interval=_PING_SECONDS,  # type: ignore[arg-type]  # it sleeps for so long
                max_outstanding_pings=2,
                **options,
            )
            is_connected = True
    except (nats.errors.Error, OSError, TimeoutError, ValueError) as fault:
        # A server or a gateway that is slow is not one that refuses.
        with_reason = " ".join([*faults, str(fault)]).lower().replace("authentication timeout", "")
        await _give_up(client)
        if "authorization" in with_reason or "authentication" in with_reason:
            raise UsageError(
                f"NATS at {where} refuses these credentials: check gateway.cluster.credentials_file"
            ) from None
        why = faults[-1] if faults else str(fault) or "no answer"
        if "alert" in with_reason and ("certificate" in with_reason or "unknown ca" in with_reason):
            # An alert is what the server says.
            raise UsageError(
                f"NATS at {where} wants a certificate of this gateway that it trusts ({why}): check "
                "gateway.cluster.tls_certificate_file and tls_key_file"
            ) from None
        if "certificate" in with_reason:
            raise UsageError(
                f"the certificate of NATS at {where} is not trusted ({why}): check "
                "gateway.cluster.tls_ca_file"
            ) from None
        if "secure connection required" in with_reason:
            raise UsageError(
                f"NATS at {where} does not speak TLS, and gateway.cluster asks for it (tls:// or tls_ca_file)"
            ) from None
        raise UsageError(
            f"no NATS server can be reached at {where} ({why}): start one, or check gateway.cluster.servers"
        ) from None
    try:
        _check_version(client, where)
        context = client.jetstream(timeout=_REQUEST_SECONDS)
        await _check_jetstream(client, context, where)
    except BaseException:
        await _give_up(client)
        raise
    return ClusterConnection(client, context, client.max_payload)


def _secrets_of(config: ClusterConfig) -> dict[str, Any]:
    """Options of the client. Raises UsageError where a file cannot be used."""
    options: dict[str, Any] = {}
    if config.credentials_file is not None:
        try:
            text = config.credentials_file.read_text("ascii")
        except (OSError, UnicodeDecodeError) as fault:
            raise UsageError(f"gateway.cluster.credentials_file cannot be read: {fault}") from None
        if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
            raise UsageError(
                f"gateway.cluster.credentials_file {config.credentials_file} is no .creds file of NATS: "
                "it holds no user and its key"
            )
        options["user_credentials"] = str(config.credentials_file)
    if config.tls_ca_file is not None or config.tls_certificate_file is not None:
        options["tls"] = tls_context(config)
    return options


async def use_stream(
    connection: ClusterConnection, config: ClusterConfig, stream: str, subjects: str, identity: str
) -> StreamInfo:
    """The stream of this cluster, made if it is not there; raises UsageError when it is another's."""
    context = connection.context
    meta = {"moot_cluster": config.name, "moot_stream": identity} | _agreed(config)
    wanted = StreamConfig(
        name=stream,
        subjects=[subjects],
        storage=StorageType.FILE,
        num_replicas=config.replicas,
        discard=DiscardPolicy.NEW,
        duplicate_window=120,
        deny_delete=True,
        metadata=meta,
    )
    info = await _find_or_make(
        lambda: context.stream_info(stream), lambda: context.add_stream(wanted), config, stream
    )
    found = info.config.metadata or {}
    if found.get("moot_cluster") != config.name:
        raise UsageError(
            f"NATS has a stream {stream} that is not of the Moot cluster {config.name!r}: "
            "give this cluster another name (gateway.cluster.name)"
        )
    for key, value in _agreed(config).items():
        made_with = found.get(key, _BEFORE.get(key))
        if made_with != value:
            setting = key.removeprefix("moot_")
            raise UsageError(
                f"cluster {config.name} was made with gateway.cluster.{setting} {made_with}, and this "
                f"gateway has {value}: all gateways must have the same, and it cannot change"
            )
    if info.config.num_replicas != config.replicas:
        raise UsageError(
            f"NATS keeps {info.config.num_replicas} copies of {stream}, and gateway.cluster.replicas says "
            f"{config.replicas}: change one of them (nats stream edit {stream} --replicas {config.replicas})"
        )
    return info


def _agreed(config: ClusterConfig) -> dict[str, str]:
    """What all gateways must have alike, or they would come to different states."""
    return {f"moot_{name}": str(getattr(config, name)) for name in _ALIKE}


def snapshots_bucket(config: ClusterConfig) -> str:
    return f"{config.name}-snapshots"


async def use_snapshots(connection: ClusterConnection, config: ClusterConfig) -> ObjectStore:
    """The bucket in which the cluster's snapshots are."""
    bucket = snapshots_bucket(config)
    context = connection.context
    wanted = ObjectStoreConfig(bucket=bucket, replicas=config.replicas, storage=StorageType.FILE)
    return await _find_or_make(
        lambda: context.object_store(bucket),
        lambda: context.create_object_store(bucket, wanted),
        config,
        f"OBJ_{bucket}",
    )


async def _find_or_make(
    find: Callable[[], Awaitable[T]], make: Callable[[], Awaitable[T]], config: ClusterConfig, stream: str
) -> T:
    """What there is, or a new one. Raises UsageError when it cannot be made.

    Servers that were just started know a moment later how many they are. And where gateways start together,
    a stream that another one is making (with an identity of its own) can neither be found yet nor made.
    """
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return await retry(find)
        except nats.js.errors.NotFoundError:
            log.debug("made now", extra={"stream": stream})
        try:
            return await retry(make)
        except nats.js.errors.APIError as fault:
            if fault.err_code not in (*_NO_PEERS, _NAME_IN_USE) or time.monotonic() > until:
                raise _stream_fault(fault, config, stream) from None
        await asyncio.sleep(RECONNECT_SECONDS)


async def retry(ask: Callable[[], Awaitable[T]], *, times: Sequence[float | None] = TRY_SECONDS) -> T:
    """JetStream answers nothing while it elects a leader. `times`: for each try; None: it ends by itself."""
    for left, seconds in zip(range(len(times), 0, -1), times, strict=True):
        try:
            async with asyncio.timeout(seconds):
                return await ask()
        except (
            TimeoutError,
            nats.errors.NoRespondersError,
            nats.js.errors.ServiceUnavailableError,
            nats.js.errors.NoStreamResponseError,
        ):
            if left == 1:
                raise UsageError(
                    "JetStream does not answer: too few NATS servers run to agree on anything"
                ) from None
            await asyncio.sleep(0.5)
    raise AssertionError("_TRIES is positive")


def _stream_fault(fault: nats.js.errors.APIError, config: ClusterConfig, stream: str) -> UsageError:
    if fault.err_code in _NO_PEERS:
        return UsageError(
            f"NATS cannot keep {config.replicas} copies of {stream}: run {config.replicas} servers as a NATS "
            "cluster, or set gateway.cluster.replicas to 1 to try without"
        )
    if fault.err_code == _OVERLAP:
        return UsageError(
            f"another stream in NATS takes the subjects of {stream}: give this cluster another name "
            "(gateway.cluster.name)"
        )
    if fault.err_code in _NO_STORAGE:
        return UsageError(f"NATS has no room for {stream}: {fault.description}")
    return UsageError(f"NATS does not make the stream {stream}: {fault.description} ({fault.err_code})")


def server_version(client: Client) -> str:
    """Of the server that a client is connected to."""
    version = client.connected_server_version
    return f"{version.major}.{version.minor}.{version.patch}"


def _check_version(client: Client, where: str) -> None:
    version = client.connected_server_version
    if (version.major, version.minor, version.patch) < MIN_SERVER_VERSION:
        needed = ".".join(map(str, MIN_SERVER_VERSION))
        raise UsageError(
            f"the NATS server at {where} is version {server_version(client)}: {needed} or later is "
            "needed, earlier ones can lose what they acknowledged"
        )


async def _check_jetstream(client: Client, context: JetStreamContext, where: str) -> None:
    """Raises UsageError. If JetStream is off, as after a full disk, the next server is tried."""
    until = time.monotonic() + CONNECT_SECONDS
    for left in itertools.count(_TRIES, -1):
        try:
            await context.account_info()
            return
        except nats.errors.TimeoutError:
            # Servers that were just started, or that elect a leader, answer a little later.
            if left <= 1:
                raise UsageError(
                    f"JetStream at {where} does not answer: too few NATS servers run to agree on anything"
                ) from None
        except (
            nats.errors.NoRespondersError,
            nats.js.errors.ServiceUnavailableError,
            nats.js.errors.NotFoundError,
        ):
            if time.monotonic() > until:
                raise UsageError(
                    f"the NATS server at {where} has no JetStream for this account: start it with "
                    "--jetstream, enable it in the account, or start it again if its disk was full"
                ) from None
            await client.force_reconnect()
            await asyncio.sleep(2 * RECONNECT_SECONDS)
        except nats.js.errors.APIError as fault:
            raise UsageError(f"JetStream at {where}: {fault.description}") from None


async def _give_up(client: Client) -> None:
    closing: Coroutine[Any, Any, None] = client.close()
    try:
        await asyncio.wait_for(closing, 1)
    except (nats.errors.Error, TimeoutError, OSError):
        log.debug("nats connection not closed")


def _without_secrets(address: str) -> str:
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
