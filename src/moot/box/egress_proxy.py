"""The only way out of a box: a proxy for HTTP that runs outside, on sockets that are inside.

A program that knows proxies says where it wants to go (CONNECT, or a whole address in the request line). Any
other program connects to the name, which leads to an address of the box's own for each listed host. Either
way the name is looked up here, must be on the list and lead to a public address; what was looked up is what
is connected to, so that no second answer of a name server counts. Each attempt is reported, with its outcome.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec

from moot.box.host_rules import HostRules, canonical_host
from moot.errors import MootError, UsageError
from moot.net.address_check import MAX_ADDRESSES, Resolve, is_public, system_resolve

log = logging.getLogger(__name__)

# As long as browsers wait for a name and a connection.
CONNECT_SECONDS: Final = 20.0
HEAD_SECONDS: Final = 10.0
HEAD_BYTES: Final = 16 << 10
# Open at once: npm opens a few dozen.
MAX_CONNECTIONS: Final = 128
_CHUNK: Final = 64 << 10
NOT_LISTED: Final = "it is not on the list of hosts (network) of its box"

# Host, port, head.
FillHead = Callable[[str, int, bytes], Awaitable[bytes]]


class EgressFact(msgspec.Struct, frozen=True):
    """One attempt to connect; `refusal` is why it was not made, None if it was."""

    host: str
    port: int
    refusal: str | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EgressRefused(MootError):
    """A connection that a box does not allow; the text says why."""


class EgressProxy:
    """Serves the sockets of one box until closed."""

    def __init__(
        self,
        rules: Callable[[], HostRules],
        report: Callable[[EgressFact], None],
        *,
        resolve: Resolve = system_resolve,
        fill_head: FillHead | None = None,
    ) -> None:
        """`fill_head` puts in what the server does not know, in heads of plain HTTP."""
        self._rules = rules
        self._report = report
        self._resolve = resolve
        self._fill_head = fill_head
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, proxy: socket.socket, direct: Mapping[socket.socket, tuple[str, int]]) -> None:
        """Answer on the proxy's own socket, and on those that stand for one host and port each."""
        for listening, target in {proxy: None, **direct}.items():
            server = await asyncio.start_server(self._accept(target), sock=listening, limit=HEAD_BYTES)
            self._servers.append(server)

    def close(self) -> None:
        """End it with the box, whose programs nobody answers any more."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a host that the box allows; reported. Raises EgressRefused, OSError."""
        host = canonical_host(host)
        try:
            addresses = await self._addresses(host, port)
        except EgressRefused as refused:
            self._report(EgressFact(host, port, str(refused)))
            raise
        except OSError:
            # Tried, and not found.
            self._report(EgressFact(host, port))
            raise
        self._report(EgressFact(host, port))
        fault: OSError = OSError("no address")
        for each in addresses:
            try:
                async with asyncio.timeout(CONNECT_SECONDS / len(addresses)):
                    return await asyncio.open_connection(each, port)
            except OSError as trouble:
                fault = trouble
        raise fault

    async def _addresses(self, host: str, port: int) -> list[str]:
        rules = self._rules()
        if not rules.allows(host, port):
            raise EgressRefused(NOT_LISTED)
        async with asyncio.timeout(CONNECT_SECONDS):
            try:
                found = list(await self._resolve(host, port))[:MAX_ADDRESSES]
            except (OSError, UnicodeError) as fault:
                raise OSError(f"{host} cannot be looked up: {fault}") from None
        for each in found:
            # One among public ones refuses all: such a mix is how a name is turned against its reader.
            if not is_public(each) and not rules.names_address(each, port):
                raise EgressRefused(
                    f"it leads to {each}, a private address, which the list does not name itself"
                )
        return found

    def _accept(
        self, target: tuple[str, int] | None
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._tasks) >= MAX_CONNECTIONS:
                writer.transport.abort()
                return
            task = asyncio.get_running_loop().create_task(self._serve_one(reader, writer, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accept

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int] | None
    ) -> None:
        try:
            if target is None:
                await self._serve_proxied(reader, writer)
            else:
                upstream = await self.connect(*target)
                await _join((reader, writer), upstream)
        except (OSError, EgressRefused, EOFError, asyncio.LimitOverrunError, ValueError) as fault:
            log.debug("connection of a box ended", extra={"reason": str(fault)})
        finally:
            writer.transport.abort()

    async def _serve_proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            method, target, rest = _request(head)
            if self._fill_head is not None and rest:
                rest = await self._fill_head(canonical_host(target[0]), target[1], rest)
            upstream = await self.connect(*target)
        except ValueError:
            await _answer(writer, "400 Bad Request", "This is a proxy for CONNECT and for http:// addresses.")
            return
        except (EgressRefused, UsageError) as refused:
            await _answer(writer, "403 Forbidden", f"Refused by the box: {refused}.")
            return
        except OSError as fault:
            await _answer(writer, "502 Bad Gateway", f"The host cannot be reached: {fault}.")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream[1].write(rest)
        await _join((reader, writer), upstream)


def _request(head: bytes) -> tuple[str, tuple[str, int], bytes]:
    """The method, where to connect to, and the head to send there; raises ValueError."""
    line, *fields = head.decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    if method == "CONNECT":
        parts = urlsplit(f"//{target}")
        if parts.hostname is None or parts.port is None or parts.username is not None:
            raise ValueError(target)
        return method, (parts.hostname, parts.port), b""
    parts = urlsplit(target)
    if parts.scheme != "http" or parts.hostname is None or parts.username is not None:
        raise ValueError(target)
    # One request a connection, to the host that it names: the next one is looked at again.
    dropped = ("connection:", "proxy-", "host:", "keep-alive:")
    kept = [each for each in fields if each and not each.lower().startswith(dropped)]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{method} {path} {version}", f"Host: {parts.netloc}", "Connection: close", *kept, "", ""]
    return method, (parts.hostname, parts.port or 80), "\r\n".join(lines).encode("latin-1")


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body)
    with suppress(OSError):
        await writer.drain()
        writer.write_eof()
        writer.close()
        await writer.wait_closed()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _join(inner: _Streams, outer: _Streams) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(inner[0], outer[1]))
            group.create_task(_copy(outer[0], inner[1]))
    except* OSError:
        pass
    finally:
        outer[1].transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
