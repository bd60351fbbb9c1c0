"""The certificate and key of a server: checked whole before they are used, and taken over while it runs.

Every new connection gets the context that is current then (`tls_acceptor`); open connections keep theirs. So
a renewed certificate drops nobody, and a pair that cannot be used changes nothing: the one before it stays.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from moot.errors import UsageError
from moot.private_files import read_secret

log = logging.getLogger(__name__)

# A chain of certificates, or a key: some KiB. A wrong file is not read whole.
_MAX_FILE_BYTES: Final = 1 << 20
# Renewal is usually tried 30 days ahead; two weeks before the end somebody has to look.
_WARN_SECONDS: Final = 14 * 86_400.0
_WARN_EVERY_SECONDS: Final = 86_400.0
CHECK_SECONDS: Final = 60.0
_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server's certificate and key are."""

    # In PEM, the server's own certificate first.
    certificate: Path
    key: Path
    # Authorities of client certificates; with it, nobody connects without one of theirs.
    client_ca: Path | None = None
    # How the settings are called in messages.
    setting: str = "gateway.tls"


class ServerTls:
    """The current TLS context of a server."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises UsageError, with what to do, when the files cannot be used."""
        self.files = files
        self._seen = _signature(files)
        # `fingerprint`: SHA-256 of the certificate, in hex.
        self.context, self.expires_at, self.fingerprint = _load(files)
        self._warn_from = 0.0
        self._warn(time.time())

    def reload(self) -> None:
        """Take the files over as they are now; raises UsageError and keeps the earlier ones otherwise."""
        self._seen = _signature(self.files)
        self.context, self.expires_at, self.fingerprint = _load(self.files)
        self._warn_from = 0.0
        log.info("certificate taken over", extra={"expires": _day(self.expires_at)})

    async def watch(self) -> None:
        """Reload whenever a file has changed, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check()

    def check(self) -> None:
        """Reload if a file has changed since. Files that do not fit are told once, and kept an eye on."""
        if _signature(self.files) != self._seen:
            try:
                self.reload()
            except UsageError as fault:
                # A renewal replaces one file after the other: the next change is looked at again.
                log.error("certificate not taken over", extra={"why": str(fault)})
        self._warn(time.time())

    def _warn(self, now: float) -> None:
        if _expires_soon(self.expires_at, now) and now >= self._warn_from:
            self._warn_from = now + _WARN_EVERY_SECONDS
            log.warning("the certificate expires soon", extra={"expires": _day(self.expires_at)})


def check_files(files: TlsFiles) -> list[str]:
    """What to note about files that a server could use; raises UsageError when it could not. Logs nothing."""
    _, expires_at, _ = _load(files)
    if not _expires_soon(expires_at, time.time()):
        return []
    return [f"{files.setting}.certificate: {files.certificate} expires on {_day(expires_at)}: renew it"]


@asynccontextmanager
async def watch_files(tls: ServerTls | None) -> AsyncIterator[None]:
    """Take over files that are renewed while the block runs; nothing to do without TLS."""
    watching = None if tls is None else asyncio.create_task(tls.watch())
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()


def _signature(files: TlsFiles) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes when a file is replaced or written to; None for one that is not there."""
    return tuple(_stat(path) for path in (files.certificate, files.key, files.client_ca) if path is not None)


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _load(files: TlsFiles) -> tuple[ssl.SSLContext, float, str]:
    """A context, when its certificate expires, and the hash of that; raises UsageError."""
    name = files.setting
    certificate = _read(files.certificate, f"{name}.certificate")
    try:
        key = read_secret(files.key, max_bytes=_MAX_FILE_BYTES, what="the key of this server")
    except OSError as fault:
        raise UsageError(f"{name}.key: {files.key} cannot be read: {fault.strerror}") from None
    except UsageError as fault:
        raise UsageError(f"{name}.key: {fault}") from None
    if b"PRIVATE KEY-----" not in key:
        raise UsageError(f"{name}.key: {files.key} holds no private key in PEM")
    if b"ENCRYPTED" in key:
        # OpenSSL would ask for its password at the terminal, and a service has none.
        raise UsageError(
            f"{name}.key: {files.key} is locked with a password, and nobody is there to type it:"
            " write it without one, for this user alone (`openssl pkey -in KEY -out NEW`, `chmod 600 NEW`)"
        )
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise UsageError(f"{name}.certificate: {files.certificate} holds no certificate in PEM")
    context = _context(files)
    expires_at, fingerprint = _check_handshake(_context(files), certificate, files)
    if files.client_ca is not None:
        _read(files.client_ca, f"{name}.client_ca")
        try:
            context.load_verify_locations(files.client_ca)
        except (ssl.SSLError, OSError):
            raise UsageError(f"{name}.client_ca: {files.client_ca} holds no certificate in PEM") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context, expires_at, fingerprint


def _read(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(_MAX_FILE_BYTES)
    except OSError as fault:
        raise UsageError(f"{name}: {path} cannot be read: {fault.strerror}") from None


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # One protocol is spoken here; whoever offers HTTP/2 as well is told.
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key)
    except ssl.SSLError as fault:
        if fault.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"{files.setting}: the key {files.key} belongs to another certificate, not to"
                f" {files.certificate}"
            ) from None
        why = fault.reason or "it is no PEM"
        raise UsageError(
            f"{files.setting}: {files.certificate} and {files.key} cannot be used: {why}"
        ) from None
    except OSError as fault:
        raise UsageError(
            f"{files.setting}: the certificate or key cannot be read: {fault.strerror}"
        ) from None
    return context


def _check_handshake(server: ssl.SSLContext, certificate: bytes, files: TlsFiles) -> tuple[float, str]:
    """Connect to ourselves in memory, as a client that trusts this very certificate: when that expires, and
    its hash.

    So it is known before anybody comes that both fit together and that the time is right.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # The certificate itself is the end of the chain: who signed it is the client's concern.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=certificate.decode("ascii", "ignore"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    # Each end takes two turns; more are never needed.
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as fault:
                raise UsageError(
                    f"{files.setting}.certificate: {_why_not(fault, files.certificate)}"
                ) from None
            except ssl.SSLError as fault:
                raise UsageError(
                    f"{files.setting}: no connection can be made with {files.certificate}: {fault.reason}"
                ) from None
    shown = ends[0].getpeercert() or {}
    fingerprint = hashlib.sha256(ends[0].getpeercert(True) or b"").hexdigest()
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"]))), fingerprint


def _why_not(fault: ssl.SSLCertVerificationError, path: Path) -> str:
    if fault.verify_code == _EXPIRED:
        return f"{path} has expired: renew it; browsers and members would refuse to connect"
    if fault.verify_code == _NOT_YET_VALID:
        return f"{path} is not valid yet: check the clock of this machine"
    return f"{path} cannot be used by a server: {fault.verify_message}"


def _expires_soon(expires_at: float, now: float) -> bool:
    return expires_at - now < _WARN_SECONDS


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
