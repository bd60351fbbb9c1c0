"""The DNS TXT record by which an adapter is found (XP 3.1 `publish_dns`; xp1, Discovery), for a zone file."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.endpoint.discovery import WELL_KNOWN_PATH
from moot.xprotocol.endpoint.dns_records import RECORD_NAME, EndpointRecord, record_text
from moot.xprotocol.identity.keys import Identity

# RFC 1035: one character-string has at most 255 bytes; a record is several of them, read as one.
STRING_BYTES: Final = 255
# An hour: long enough to be cached, short enough for a change.
TTL_SECONDS: Final = 3_600
# Placeholder where no domain is configured.
NO_DOMAIN: Final = "YOUR-DOMAIN"


def record_of(settings: AdapterSettings, identity: Identity) -> EndpointRecord:
    """The record: both keys, the preferred relay, and where the well-known document is, if configured."""
    discovery = settings.discovery
    well_known = None
    if discovery.public_url is not None and urlsplit(discovery.public_url).hostname == discovery.domain:
        # At another host it would be refused: DNS may not move the one place that TLS vouches for.
        well_known = f"{discovery.public_url.rstrip('/')}{WELL_KNOWN_PATH}"
    relay = settings.relay.urls[0] if settings.relay.urls else None
    return EndpointRecord(identity.key.text, identity.enc_key.text, relay, well_known)


def record_name(domain: str | None) -> str:
    """The full name of the record of a host."""
    return f"{RECORD_NAME}.{domain or NO_DOMAIN}"


def zone_line(domain: str | None, record: EndpointRecord) -> str:
    """The record as one line of a zone file."""
    text = record_text(record)
    pieces = [text[start : start + STRING_BYTES] for start in range(0, len(text), STRING_BYTES)]
    quoted = " ".join('"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"' for piece in pieces)
    return f"{record_name(domain)}. {TTL_SECONDS} IN TXT {quoted}"
