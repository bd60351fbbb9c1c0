"""An address as it is counted where strangers are limited."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import Final

# A network at somebody's home: whoever has one has all of its addresses (RFC 6177).
_IPV6_PREFIX_BITS: Final = 64


def peer_address(transport: asyncio.BaseTransport) -> str:
    """Where a connection comes from."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


def plain_address(address: str) -> str:
    """Of a mapped IPv4 address that one, without a zone; anything else as it is."""
    found = address.partition("%")[0]
    return found[7:] if found.lower().startswith("::ffff:") and "." in found else found


def network_of(address: str) -> str:
    """Of IPv6 the network, of a mapped IPv4 address that one, of IPv4 the address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(int(found) >> (128 - _IPV6_PREFIX_BITS))
