"""The order in which gateways of a cluster are tried for a space: the same for all who have their addresses.

Each address has a number for each shard, drawn from both (rendezvous hashing), and the highest is the first.
So the members of a space meet at one gateway; without it they meet at the next, and no other shard moves.
The console has the same in `gateways.js`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

_WORD: Final = 0xFFFFFFFF
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def order_addresses(addresses: Iterable[str], shard: int) -> list[str]:
    """The addresses of gateways, the one that a shard's members go to first."""
    return sorted(addresses, key=lambda address: score(shard, normal_address(address)), reverse=True)


def normal_address(address: str) -> str:
    """One spelling of an address: ws:// and http:// mean the same gateway, and a slash at the end nothing."""
    parts = urlsplit(address.strip())
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))
    return f"{scheme}://{host}{parts.path.rstrip('/').removesuffix('/ws')}"


def score(shard: int, name: str) -> int:
    """Of one address or name: FNV-1a, and MurmurHash3's last mixing, so that similar ones go apart."""
    hash = 0x811C9DC5
    for byte in f"{shard} {name}".encode():
        hash = (hash ^ byte) * 0x01000193 & _WORD
    hash = (hash ^ hash >> 16) * 0x85EBCA6B & _WORD
    hash = (hash ^ hash >> 13) * 0xC2B2AE35 & _WORD
    return hash ^ hash >> 16
