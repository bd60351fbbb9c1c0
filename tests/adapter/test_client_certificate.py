"""An MCP server behind TLS that asks for a certificate, and one of another authority (XP 8.2)."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moot.adapter.inspecting import inspect
from moot.adapter.settings import AdapterLimits
from moot.mcp.downstream.doors import Doors
from moot.mcp.downstream.face import Face
from moot.mcp.downstream.http import HttpFace
from moot.mcp.downstream.limits import FaceLimits
from moot.net.port import bound, served
from tests.adapter.test_settings_sources import source
from tests.mcp.shop import Shop

PASSWORD = "open-sesame-for-the-key"


class Authority:
    """Makes certificates; the first is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        builder = self._builder(self.name, self.key.public_key())
        made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, password: str | None = None) -> tuple[Path, Path]:
        """A certificate and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = self._builder(subject, key.public_key()).add_extension(here, critical=False)
        certificate, secret = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            locked = serialization.BestAvailableEncryption(password.encode())
        secret.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return certificate, secret

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )


@asynccontextmanager
async def shop_behind_tls(authority: Authority) -> AsyncIterator[str]:
    """A shop that only talks to whoever shows a certificate of the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.load_cert_chain(*authority.issue("shop"))
    context.verify_mode = ssl.CERT_REQUIRED
    inner = bound("127.0.0.1", 0)
    inner_port = inner.getsockname()[1]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shop_reader, shop_writer = await asyncio.open_connection("127.0.0.1", inner_port)
        await asyncio.gather(carry(reader, shop_writer), carry(shop_reader, writer))

    door = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = door.sockets[0].getsockname()[1]
    async with Face(Shop(), FaceLimits()) as face:
        http = HttpFace(face, Doors.of(port))
        try:
            async with served(http, inner):
                yield f"https://127.0.0.1:{port}/mcp"
        finally:
            http.close()
            door.close()


@pytest.mark.requirement("XP-8.2-1")
async def test_a_client_certificate_opens_a_server_that_asks_for_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    other = Authority(tmp_path, "other")
    certificate, key = authority.issue("adapter", PASSWORD)
    stranger, stranger_key = other.issue("stranger")
    async with shop_behind_tls(authority) as url:

        async def outcome(auth: dict[str, Any] | None, ca_file: Path | None = authority.file) -> Any:
            entry: dict[str, Any] = {
                "name": "shop",
                "transport": "http",
                "url": url,
                "xprotocol_namespace": "com.acme.shop",
            }
            entry |= {"auth": auth} if auth is not None else {}
            entry |= {"ca_file": str(ca_file)} if ca_file is not None else {}
            found = source(tmp_path, entry, {"KEY_PASSWORD": PASSWORD})
            limits = AdapterLimits(upstream_start_seconds=10)
            (seen,) = await inspect([found], limits=limits, environ={})
            return seen

        ours: dict[str, Any] = {
            "type": "client_certificate",
            "cert_file": str(certificate),
            "key_file": str(key),
            "password_env": "KEY_PASSWORD",
        }
        good = await outcome(ours)
        assert good.fault is None
        assert good.tools > 0
        theirs = ours | {"cert_file": str(stranger), "key_file": str(stranger_key)}
        del theirs["password_env"]
        for auth, ca_file in ((None, authority.file), (theirs, authority.file), (ours, None)):
            bad = await outcome(auth, ca_file)
            assert bad.fault is not None
            assert PASSWORD not in bad.fault
