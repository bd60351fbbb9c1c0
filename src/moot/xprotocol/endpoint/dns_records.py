"""The DNS record of an endpoint: TXT at `_xprotocol.<host>` (xp1, Discovery).

    _xprotocol.weather.example. TXT "v=xp1; k=ed25519:…; e=x25519:…; r=wss://relay.example; w=https://…"

A forged answer looks like a real one, so the record alone proves nothing: it must agree with the well-known
document, which TLS authenticates. It adds a second channel that an attacker has to control.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from moot.errors import InvalidKey, MootError, UsageError
from moot.xprotocol.events.relay_auth import relay_address
from moot.xprotocol.identity.keys import sealing_point, verify_key

RECORD_NAME: Final = "_xprotocol"
VERSION_TAG: Final = "v=xp1"
# Two keys and two addresses fit.
MAX_RECORD_CHARS: Final = 1_024
# There may be records of other versions and other services.
MAX_RECORDS: Final = 32
LOOKUP_SECONDS: Final = 5.0

# A full name → the texts of its TXT records. Raises NoDnsAnswer.
Lookup = Callable[[str], Awaitable[Sequence[str]]]


class NoDnsAnswer(MootError):
    """The name servers did not answer, which is not the same as having no record."""


class BadRecord(MootError):
    """There is an invalid record; the text says what to change."""


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """The content of a record; missing members are None."""

    key: str
    encryption_key: str | None = None
    relay: str | None = None
    well_known: str | None = None


def record_text(record: EndpointRecord) -> str:
    """The record as it is published."""
    members = (
        ("k", record.key),
        ("e", record.encryption_key),
        ("r", record.relay),
        ("w", record.well_known),
    )
    return "; ".join([VERSION_TAG, *(f"{tag}={value}" for tag, value in members if value is not None)])


def read_record(text: str) -> EndpointRecord:
    """Raises BadRecord."""
    if len(text) > MAX_RECORD_CHARS or not text.isascii() or not text.isprintable():
        raise BadRecord(f"the TXT record has at most {MAX_RECORD_CHARS} printable ASCII characters")
    tags: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        tag, is_tag, value = part.partition("=")
        if not is_tag or tag.strip() in tags:
            raise BadRecord(f"{part[:40]!r} in the TXT record: each part is written tag=value, once")
        tags[tag.strip()] = value.strip()
    if "k" not in tags:
        raise BadRecord("the TXT record has no k=ed25519:…, the endpoint's key")
    try:
        verify_key(tags["k"])
        if "e" in tags:
            sealing_point(tags["e"])
        if "r" in tags:
            relay_address(tags["r"])
    except (InvalidKey, UsageError) as fault:
        raise BadRecord(f"the TXT record: {fault}") from None
    return EndpointRecord(tags["k"], tags.get("e"), tags.get("r"), tags.get("w"))


async def find_record(host: str, lookup: Lookup) -> EndpointRecord | None:
    """The one record of a host, or None; raises BadRecord and NoDnsAnswer."""
    texts = await lookup(f"{RECORD_NAME}.{host}")
    own_records = [text for text in texts[:MAX_RECORDS] if text.partition(";")[0].strip() == VERSION_TAG]
    if len(own_records) > 1:
        raise BadRecord(f"{RECORD_NAME}.{host} has {len(own_records)} TXT records of {VERSION_TAG}; keep one")
    return read_record(own_records[0]) if own_records else None


def dns_lookup(
    nameservers: Sequence[str] | None = None, *, port: int = 53, seconds: float = LOOKUP_SECONDS
) -> Lookup:
    """A lookup by dnspython with the system's name servers, or those given."""

    async def lookup(name: str) -> Sequence[str]:
        # Imported late: it is slow, and few sources are configured by xp://.
        import dns.asyncresolver
        import dns.exception
        import dns.resolver

        try:
            resolver = dns.asyncresolver.Resolver(configure=nameservers is None)
            if nameservers is not None:
                resolver.nameservers = list(nameservers)
                resolver.port = port
            async with asyncio.timeout(seconds + 1):
                # No search list: the name is complete.
                answer = await resolver.resolve(f"{name}.", "TXT", lifetime=seconds, search=False)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return []
        except (dns.exception.DNSException, OSError) as fault:
            raise NoDnsAnswer(f"no name server answered for {name}: {type(fault).__name__}") from None
        return [b"".join(each.strings).decode("latin-1") for each in answer]

    return lookup
