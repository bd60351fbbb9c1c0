"""From `xp://host` to a key and the relays where it is reached (XP 7.3; xp1, Discovery).

    TXT _xprotocol.host  ┐
                         ├→ one key, or nothing → pinned on first use → the announce of that very key
    /.well-known/…       ┘

TLS authenticates the well-known document, so it has to exist. A DNS record is looked up as well, and has to
name the same key if there is one. Their content (a relay, a catalog) was written by a stranger and is
followed only within `FetchPolicy`: no redirects, no private addresses, bounded bytes and seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import urlsplit

from moot.errors import InvalidKey, MootError, UsageError
from moot.net.address_check import is_loopback
from moot.protocol.operation import Json
from moot.xprotocol.endpoint.dns_records import EndpointRecord, Lookup, NoDnsAnswer, find_record
from moot.xprotocol.endpoint.document_fetch import BadDocument, FetchPolicy, check_url, fetch_json
from moot.xprotocol.events.relay_auth import relay_address
from moot.xprotocol.identity.keys import sealing_point, verify_key
from moot.xprotocol.translation.announcement import DISCOVERY_VERSION

SCHEME: Final = "xp"
WELL_KNOWN_PATH: Final = "/.well-known/xprotocol-endpoint"
# Names, keys, three addresses and a list of sources.
MAX_DOCUMENT_BYTES: Final = 64 << 10
# RFC 1035.
MAX_HOST_CHARS: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?", re.ASCII)


class Disagreement(MootError):
    """DNS and the well-known document name different keys; neither is trusted."""


@dataclass(frozen=True, slots=True)
class EndpointName:
    """A parsed `xp://host` or `xp://host:port`."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return f"{SCHEME}://{self.authority}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        return self.host == "localhost" or is_loopback(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredEndpoint:
    """An endpoint that was found. `notes` are for people: what was looked for and not found."""

    name: EndpointName
    key: str
    encryption_key: str | None
    relays: tuple[str, ...]
    schema_url: str | None
    has_record: bool = False
    notes: tuple[str, ...] = ()


def parse_endpoint(text: str) -> EndpointName:
    """Parse `xp://host` or `xp://host:port`; raises UsageError."""
    invalid = UsageError(f"{text[:200]!r} is not an endpoint such as xp://weather.example.com")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise invalid from None
    extra = parts.path.rstrip("/") or parts.query or parts.fragment
    if parts.scheme != SCHEME or not parts.hostname or extra or "@" in parts.netloc or port == 0:
        raise invalid
    host = parts.hostname.rstrip(".")
    if "[" in parts.netloc:
        # An IPv6 address; without a zone, which is only valid on one machine.
        try:
            host = str(IPv6Address("" if "%" in host else host))
        except ValueError:
            raise invalid from None
    else:
        try:
            # RFC 5891: a name in any script has one spelling in ASCII.
            host = host if host.isascii() else host.encode("idna").decode("ascii")
        except UnicodeError:
            raise invalid from None
        if len(host) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in host.split(".")):
            raise invalid
    return EndpointName(host, port)


def well_known_url(name: EndpointName, policy: FetchPolicy) -> str:
    """Plain HTTP for loopback, if that is allowed; HTTPS everywhere else."""
    scheme = "http" if name.is_local and policy.allow_private else "https"
    return f"{scheme}://{name.authority}{WELL_KNOWN_PATH}"


async def discover(endpoint: str, policy: FetchPolicy, lookup: Lookup) -> DiscoveredEndpoint:
    """Discover an endpoint; nothing is stored here (`known_endpoints` does that).

    Raises UsageError for a bad name, and ForbiddenAddress, Unreachable, BadDocument, BadRecord, Disagreement.
    """
    name = parse_endpoint(endpoint)
    notes: list[str] = []
    record: EndpointRecord | None = None
    # An address has no records, and localhost no name server.
    if not name.is_local and ":" not in name.host and not name.host.replace(".", "").isdecimal():
        try:
            record = await find_record(name.host, lookup)
        except NoDnsAnswer as fault:
            notes.append(str(fault))
    url = _document_url(name, record, policy)
    document = await fetch_json(url, policy, max_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(document, dict):
        raise BadDocument(f"{url} is not a JSON object")
    return _combine(name, document, record, policy, url, notes)


def _document_url(name: EndpointName, record: EndpointRecord | None, policy: FetchPolicy) -> str:
    if record is None or record.well_known is None:
        return well_known_url(name, policy)
    parts = check_url(record.well_known, policy)
    if parts.hostname != name.host:
        # DNS is not authenticated: it may not move the document, which is.
        raise Disagreement(
            f"the TXT record of {name} puts the well-known document at another host ({parts.hostname})"
        )
    return record.well_known


def _combine(
    name: EndpointName,
    document: Mapping[str, Json],
    record: EndpointRecord | None,
    policy: FetchPolicy,
    url: str,
    notes: list[str],
) -> DiscoveredEndpoint:
    if document.get("version") != DISCOVERY_VERSION:
        raise BadDocument(f"{url}: version is not {DISCOVERY_VERSION!r}, the only supported one")
    key, sealing = _text(document, "public_key", url), document.get("encryption_key")
    try:
        verify_key(key)
        if sealing is not None:
            sealing_point(_text(document, "encryption_key", url))
    except InvalidKey as fault:
        raise BadDocument(f"{url}: {fault}") from None
    if record is not None and record.key != key:
        raise Disagreement(
            f"DNS says that {name} is {record.key}, its well-known document says {key}: ask its operator, "
            "or configure the key itself with key: and relay:"
        )
    if record is not None and record.encryption_key not in (None, sealing):
        raise Disagreement(f"DNS and the well-known document of {name} have different encryption keys")
    relays = [_relay(_text(document, "endpoint", url), policy, url)]
    if record is not None and record.relay is not None:
        relays.insert(0, _relay(record.relay, policy, f"the TXT record of {name}"))
    return DiscoveredEndpoint(
        name=name,
        key=key,
        encryption_key=sealing,
        relays=tuple(dict.fromkeys(relays)),
        schema_url=_schema_url(name, document.get("schema_url"), policy, notes),
        has_record=record is not None,
        notes=tuple(notes),
    )


def _relay(url: str, policy: FetchPolicy, where: str) -> str:
    try:
        address = relay_address(url)
    except UsageError as fault:
        raise BadDocument(f"{where}: {fault}") from None
    if not address.startswith("wss://") and not policy.allow_private:
        raise BadDocument(f"{where}: the relay {url[:200]!r} has to begin with wss://")
    return url


def _schema_url(name: EndpointName, url: Json, policy: FetchPolicy, notes: list[str]) -> str | None:
    if not isinstance(url, str) or not url:
        return None
    try:
        if check_url(url, policy).hostname != name.host:
            raise BadDocument(f"schema_url leads away from {name.host}")
    except BadDocument as fault:
        # Not fatal: the endpoint itself can be asked for its catalog.
        notes.append(f"schema_url is not used: {fault}")
        return None
    return url


def _text(document: Mapping[str, Json], member: str, url: str) -> str:
    value = document.get(member)
    if not isinstance(value, str) or len(value) > 2_048:
        raise BadDocument(f"{url}: {member} is missing, or not text")
    return value
