"""A web server of a few fixed pages, with or without TLS, and a name server of a few records, on loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moot.net.address_check import Resolve

HOST = "weather.example"


def head(status: int, *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *headers]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


class Pages:
    """`at` may be changed at any time: path → JSON, or the very bytes of the answer."""

    def __init__(self) -> None:
        self.at: dict[str, Any] = {}
        self.port = 0
        self.asked: list[str] = []
        self.hosts: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = asked.split(" ", 2)[1]
            self.asked.append(path)
            self.hosts += [line[6:] for line in asked.split("\r\n") if line.lower().startswith("host: ")]
            page = self.at.get(path)
            if page is None:
                page = head(404, length=0)
            elif not isinstance(page, bytes):
                body = orjson.dumps(page)
                page = head(200, "Content-Type: application/json", length=len(body)) + body
            writer.write(page)
            await writer.drain()
            if not page.endswith(b"<hangs>"):
                writer.close()
            else:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving_pages(tls: ssl.SSLContext | None = None) -> AsyncIterator[Pages]:
    pages = Pages()
    server = await asyncio.start_server(pages.handle, "127.0.0.1", 0, ssl=tls)
    pages.port = server.sockets[0].getsockname()[1]
    try:
        yield pages
    finally:
        server.close()


def certified(folder: Path, host: str = HOST) -> tuple[ssl.SSLContext, Path]:
    """A certificate of our own for one host; the server's context, and the file that clients trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / f"{host}.pem", folder / f"{host}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, secret)
    return context, certificate


def leading(*addresses: str) -> Resolve:
    """Every name leads there."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


class NameServer(asyncio.DatagramProtocol):
    """Answers TXT questions from `texts`, and with `rcode` when that is set."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.rcode = dns.rcode.NOERROR
        self.asked: list[str] = []
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, address: Any) -> None:
        query = dns.message.from_wire(data)
        name = query.question[0].name
        self.asked.append(name.to_text())
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        answer.set_rcode(self.rcode)
        texts = self.texts.get(name.to_text().rstrip("."))
        if texts is None and self.rcode == dns.rcode.NOERROR:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif texts:
            quoted = [
                " ".join(f'"{text[at : at + 200]}"' for at in range(0, len(text), 200)) for text in texts
            ]
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *quoted))
        assert self._transport is not None
        self._transport.sendto(answer.to_wire(), address)


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()


@asynccontextmanager
async def tls_before(port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """What a proxy does before a relay: TLS on a port of its own, passed on as it comes."""

    async def pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection("127.0.0.1", port)
        both = [asyncio.create_task(pour(reader, before)), asyncio.create_task(pour(behind, writer))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for end in (writer, before):
                end.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def no_lookup(_name: str) -> Sequence[str]:
    """A lookup that finds nothing, to use the well-known document alone."""
    return []
