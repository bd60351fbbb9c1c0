"""A small real HTTP server that notifications are sent to: it keeps what comes, and answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moot.protocol.operation import Json
from tests.waiting import until

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes, no less").decode()


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def verify(self, secret: str = SECRET) -> None:
        """As the documentation says: HMAC-SHA256 over id, timestamp and body."""
        key = (
            base64.b64decode(secret.removeprefix("whsec_"))
            if secret.startswith("whsec_")
            else secret.encode()
        )
        id, timestamp = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        signed = hmac.new(key, f"{id}.{timestamp}.".encode() + self.body, hashlib.sha256).digest()
        assert self.headers["webhook-signature"] == "v1," + base64.b64encode(signed).decode()


@dataclass
class Receiver:
    """Answers `status` with `headers`; while `hangs`, it reads and says nothing."""

    port: int = 0
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    requests: list[Received] = field(default_factory=list)
    scheme: str = "http"
    connections: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/in/s3cr3t-path"

    @property
    def taken(self) -> list[Received]:
        return self.requests

    async def has(self, count: int) -> list[Received]:
        """Wait until so many requests came."""
        await until(lambda: len(self.requests) >= count, lambda: f"{len(self.requests)} came")
        return self.requests

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append(Received(line.split(" ")[1], headers, body))
            if self.hangs:
                await reader.read()
                return
            more = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\n{more}\r\n".encode())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(
    *, port: int = 0, tls: ssl.SSLContext | None = None, **behaviour: Any
) -> AsyncIterator[Receiver]:
    made = Receiver(**behaviour, scheme="https" if tls else "http")
    server = await asyncio.start_server(made._talk, "127.0.0.1", port, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def private_file(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text + "\n", "utf-8")
    file.chmod(0o600)
    return str(file)


def webhook(folder: Path, url: str, name: str = "phone", **more: Json) -> dict[str, Json]:
    """The settings of a webhook for maria, who is told at once unless something else is said."""
    return {
        "participant": "maria",
        "type": "webhook",
        "url_file": private_file(folder, f"{name}.url", url),
        "secret_file": private_file(folder, f"{name}.secret", SECRET),
        "after_seconds": 0,
    } | more


def notifications(**receivers: Json) -> dict[str, Json]:
    """Quick ones: looks often, and tries again soon."""
    return {
        "receivers": receivers,
        "scan_seconds": 0.02,
        "retry_first_seconds": 0.02,
        "max_retry_seconds": 0.05,
    }
