"""Checks untrusted host names (SSRF, DNS rebinding) and connects to exactly the address that was checked.

Discovery follows addresses that somebody else wrote: a host name, a relay, a catalog. Without a check, they
could make us connect to machines behind our own firewall, or to the cloud's metadata service. Checking the
name is not enough: its owner controls what it resolves to, and may answer differently the second time. So a
name is resolved once, every address must be public, and the socket is opened to one of those.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from moot.errors import MootError, Unreachable

# Each address is tried for its share of the time.
MAX_ADDRESSES: Final = 8
# RFC 6052: IPv4 inside IPv6, for a translator.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Host and port; every address that the name has.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class ForbiddenAddress(MootError):
    """A name that resolves to a private address; the text says how to allow it."""


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Resolve with the system's resolver; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def is_public(text: str) -> bool:
    """Whether an address is public, in any notation."""
    try:
        # A zone (`fe80::1%eth0`) is of link-local addresses only.
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if "%" in text:
        return False
    return all(
        each.is_global and not each.is_multicast and not each.is_reserved
        for each in _effective_addresses(address)
    )


def is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _effective_addresses(address: Address) -> list[Address]:
    """The address and whatever IPv4 address it carries."""
    if not isinstance(address, ipaddress.IPv6Address):
        return [address]
    # `::ffff:8.8.8.8` and `64:ff9b::8.8.8.8` are not global themselves, but what they stand for is.
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    addresses: list[Address] = [address]
    if address.sixtofour is not None:
        addresses.append(address.sixtofour)
    if address.teredo is not None:
        addresses += address.teredo
    return addresses


async def allowed_addresses(
    host: str, port: int, *, allow_private: bool, resolve: Resolve = system_resolve
) -> list[str]:
    """The addresses of this name; raises ForbiddenAddress, and Unreachable when it has none.

    One private address among public ones refuses all: such a mix is a sign of DNS rebinding.
    """
    try:
        found = list(await resolve(host, port))[:MAX_ADDRESSES]
    except (OSError, UnicodeError) as fault:
        raise Unreachable(f"the name {host} cannot be resolved: {fault}") from None
    if not found:
        raise Unreachable(f"the name {host} has no address")
    if not allow_private:
        for each in found:
            if not is_public(each):
                raise ForbiddenAddress(
                    f"{host} resolves to {each}, which is not a public address. If this endpoint is "
                    "in your own network, set allow_private_addresses: true for its source"
                )
    return found


async def connect_checked(
    host: str, port: int, *, timeout_seconds: float, allow_private: bool, resolve: Resolve = system_resolve
) -> socket.socket:
    """A TCP connection to an address of `host` that was checked; raises ForbiddenAddress, Unreachable."""
    loop = asyncio.get_running_loop()
    fault: OSError | None = None
    try:
        async with asyncio.timeout(timeout_seconds):
            found = await allowed_addresses(host, port, allow_private=allow_private, resolve=resolve)
            for each in found:
                family = socket.AF_INET6 if ":" in each else socket.AF_INET
                connection = socket.socket(family, socket.SOCK_STREAM)
                try:
                    connection.setblocking(False)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    async with asyncio.timeout(timeout_seconds / len(found)):
                        await loop.sock_connect(connection, (each, port))
                except BaseException as trouble:
                    connection.close()
                    if not isinstance(trouble, OSError):
                        raise
                    # TimeoutError is an OSError: try the next address.
                    fault = trouble
                else:
                    return connection
    except TimeoutError:
        raise Unreachable(
            f"{host}:{port} cannot be reached: no answer within {timeout_seconds:g} s"
        ) from None
    why = fault.strerror or str(fault) or f"no answer within {timeout_seconds:g} s" if fault else "no address"
    raise Unreachable(f"{host}:{port} cannot be reached: {why}")
