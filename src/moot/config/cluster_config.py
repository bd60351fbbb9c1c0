"""`gateway.cluster`: several gateways that serve the same spaces, on one log that NATS JetStream keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from moot.config.section_reader import WEB_ADDRESS, WORD

Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
WebAddress = Annotated[str, msgspec.Meta(pattern=WEB_ADDRESS, max_length=2048)]
# By default, where gateways share their shards. So many shards that each of several gets its part; and who
# takes over what a killed one served applies the inputs since the last snapshot, calls at 0.2 ms each.
SHARED_DEFAULTS: Final = {"shards": 16, "snapshot_inputs": 2_500}
Word = Annotated[str, msgspec.Meta(pattern=WORD)]


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.cluster`. Without this section a gateway is alone and needs nothing but its files."""

    # Addresses of NATS servers, as nats://10.0.0.1:4222 or tls://…; one that answers is enough.
    servers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    # Streams and subjects in NATS begin with it; all gateways of a cluster have the same.
    name: Word = "moot"
    # This gateway's own name, another for each; by default the name of the machine and the port.
    gateway: Word | None = None
    # Copies of the log that NATS keeps: 3 survive the loss of one server, 1 is for trying.
    replicas: Annotated[int, msgspec.Meta(ge=1, le=3)] = 3
    # Who serves a space: every gateway of the cluster (all), or one of them, so that they share the work
    # (shared). Like the next five settings it cannot change later.
    serves: Literal["all", "shared"] = "all"
    # Streams that the spaces are spread over; with `serves: shared` it is 16 unless it is given.
    shards: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    # Each gateway writes a heartbeat into the log so often.
    heartbeat_seconds: Seconds = 1
    # A gateway is gone after so long without a heartbeat of it: longer than NATS elects a leader.
    gone_seconds: Seconds = 12
    # Inputs and messages of a shard between two snapshots; the log behind the one before is trimmed. With
    # `serves: shared` it is 2,500 unless it is given.
    snapshot_inputs: Positive = 20_000
    # The log is never trimmed, so that a gateway that comes later has the whole history; NATS has to hold it.
    keep_log: bool = False
    # Where browsers reach each gateway, as https://a.example.org: the console goes to the next one by itself.
    addresses: Annotated[tuple[WebAddress, ...], msgspec.Meta(max_length=64)] = ()
    # A file with the credentials of a NATS user (.creds).
    credentials_file: Path | None = None
    # Certificates of authorities to trust for tls:// addresses; without it the system's.
    tls_ca_file: Path | None = None
    # This gateway's certificate in PEM, where NATS asks for one (verify: true); read anew at each connection.
    tls_certificate_file: Path | None = None
    # Its private key in PEM, without a password and for this user alone.
    tls_key_file: Path | None = None
    # An input that could not be handed to NATS for so long is refused as unavailable.
    unavailable_seconds: Seconds = 5
    # Cut off from the log for so long, a gateway closes its connections: longer than an election.
    stale_seconds: Seconds = 15
    # Large values of all spaces in NATS: set it to less than half of the smallest disk, so the log has room.
    max_content_bytes: Positive = 16 << 30

    @property
    def hosts(self) -> frozenset[str]:
        """The values of Host that `addresses` stand for, in lower case."""
        return frozenset(origin.partition("://")[2] for origin in self.origins)

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the pages at `addresses`, in lower case, as browsers write them."""
        return frozenset(_origin(address) for address in self.addresses)


def _origin(address: str) -> str:
    parts = urlsplit(address.lower())
    default = ":80" if parts.scheme == "http" else ":443"
    return f"{parts.scheme}://{parts.netloc.removesuffix(default)}"
