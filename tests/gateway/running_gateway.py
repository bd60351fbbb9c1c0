"""A gateway in one's hand: started from settings, with clients that remember all they heard.

    async with running_gateway(tmp_path, participants(alice=["*"], bob=["chat"])) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await bob.say("chat", {"text": "hi"})
        await alice.hear("chat")

Every wait has a bound. `fence` tells that nothing more is under way to a client: the gateway keeps one order
per space, so what was said before the fence was heard before its answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import httpx
import uvloop
import websockets
import yaml
from websockets.asyncio.client import ClientConnection, connect

from moot.config import load
from moot.gateway.app import Gateway
from moot.protocol.operation import Json
from tests.config.former_constants import former_constants
from tests.waiting import HANG_SECONDS, bounded, until, until_told

P = ParamSpec("P")

ROOT = "t-root"
ALL_DIALECTS = ["mew", "mcpx", "m3p"]
CALL: dict[str, Json] = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "a"}}}

_numbers = itertools.count(1)
# Loading the certificates of the world takes 40 ms for every client, and nothing here is encrypted.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def fresh_id() -> str:
    return f"e-{next(_numbers)}"


def participants(**rights: Sequence[Json] | Mapping[str, Json]) -> dict[str, Json]:
    """Participants with the token `t-NAME` each; a list is their capabilities, a mapping their settings."""
    return {
        name: {"tokens": [f"t-{name}"]}
        | (
            dict(given)
            if isinstance(given, Mapping)
            else {"capabilities": [{"kind": each} if isinstance(each, str) else each for each in given]}
        )
        for name, given in rights.items()
    }


class Closed(Exception):
    """The connection ended while somebody waited for a message."""

    def __init__(self, code: int | None, reason: str | None) -> None:
        super().__init__(f"closed {code} {reason}")
        self.code = code
        self.reason = reason


class Client:
    """One WebSocket. `heard` is all that came, in order: envelopes parsed, stream frames as they are."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.received: list[Any] = []
        self._news = asyncio.Condition()
        self._next = 0
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                message = await self.socket.recv()
                is_frame = isinstance(message, bytes) or message.startswith("#")
                async with self._news:
                    self.received.append(message if is_frame else json.loads(message))
                    self._news.notify_all()
        except websockets.ConnectionClosed:
            async with self._news:
                self._news.notify_all()

    # Speaking

    async def send(self, message: Json) -> None:
        """Bytes and text as they are, anything else as JSON."""
        raw = message if isinstance(message, bytes | str) else json.dumps(message)
        await self.socket.send(raw)

    async def say(
        self,
        kind: str,
        payload: Json = None,
        *,
        id: str | None = None,
        to: Sequence[str] = (),
        about: Sequence[str] = (),
        **more: Json,
    ) -> str:
        """Send an envelope; returns its id."""
        answer = fields(kind, payload, id=id, to=to, about=about) | more
        await self.send(answer)
        return str(answer["id"])

    async def ask(self, kind: str, payload: Json = None, **more: Any) -> dict[str, Any]:
        """Send an envelope and wait for what comes of it: its echo, or the answer about it."""
        id = await self.say(kind, payload, **more)
        answer: dict[str, Any] = await self.hear(lambda each: each["id"] == id or id in about_of(each))
        return answer

    async def refused(self, kind: str, payload: Json = None, **more: Any) -> str | None:
        """The code that the answer refuses with, None when it was accepted."""
        return refusal_in(await self.ask(kind, payload, **more))

    # Hearing

    async def hear(self, what: str | Callable[[dict[str, Any]], bool] | None = None) -> Any:
        """The next message of this kind (or for which this holds); those before it are passed over."""
        while True:
            message = await self.next()
            if isinstance(message, str | bytes):
                continue
            if what is None or (message["kind"] == what if isinstance(what, str) else what(message)):
                return message

    async def hear_frame(self) -> str | bytes:
        """The next stream frame."""
        while True:
            message = await self.next()
            if isinstance(message, str | bytes):
                return message

    async def next(self) -> Any:
        """The next message, whatever it is; raises Closed when none will come."""
        async with bounded(), self._news:
            await self._news.wait_for(lambda: self._next < len(self.received) or self._reader.done())
        if self._next == len(self.received):
            raise Closed(self.socket.close_code, self.socket.close_reason)
        self._next += 1
        return self.received[self._next - 1]

    async def fence(self) -> list[Any]:
        """Everything that was heard since the last `fence` or `hear`, and nothing is left on its way."""
        id = fresh_id()
        # Refused whoever sends it and whatever they hold, so every member can ask.
        dotted = any(
            isinstance(each, dict) and each["kind"] == "system.welcome" for each in self.received[:1]
        )
        await self.send({"id": id, "kind": "system.fence" if dotted else "system/fence", "payload": {}})
        start = self._next
        await self.hear(lambda message: id in about_of(message))
        return self.received[start : self._next - 1]

    def kinds(self) -> list[str]:
        return [message["kind"] for message in self.received if isinstance(message, dict)]

    # Ending

    async def closed(self) -> tuple[int | None, str | None]:
        """Wait until the gateway has ended this connection."""
        async with bounded():
            await self.socket.wait_closed()
            await self._reader
        return self.socket.close_code, self.socket.close_reason

    async def leave(self) -> None:
        await self.socket.close()
        await self._reader


def fields(
    kind: str,
    payload: Json = None,
    *,
    id: str | None = None,
    to: Sequence[str] = (),
    about: Sequence[str] = (),
) -> dict[str, Json]:
    """An envelope as a client that leaves the rest to the gateway writes it."""
    answer: dict[str, Json] = {"id": id or fresh_id(), "kind": kind, "payload": payload or {}}
    if to:
        answer["to"] = list(to)
    if about:
        answer["correlation_id"] = list(about)
    return answer


def about_of(message: Mapping[str, Any]) -> list[str]:
    """What a message correlates to, in any dialect."""
    about = message.get("correlation_id", [])
    return [about] if isinstance(about, str) else about


def refusal_in(message: Mapping[str, Any]) -> str | None:
    is_error = message["kind"] in ("system/error", "system.error")
    return str(message["payload"]["error"]) if is_error else None


class GatewayUnderTest:
    """A gateway seen from outside: its HTTP client, and the clients that joined it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.ws = url.replace("http://", "ws://")
        self.http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=HANG_SECONDS, verify=_NO_TLS)
        self._clients: list[Client] = []

    async def open(
        self,
        where: str = "/ws",
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] | None = None,
    ) -> Client:
        """A WebSocket at this path and query; raises websockets.InvalidStatus when there is none."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        socket = await connect(
            self.ws + where,
            additional_headers=sent,
            subprotocols=[websockets.Subprotocol(name) for name in subprotocols or ()] or None,
            proxy=None,
            compression=None,
            ping_interval=None,
            open_timeout=HANG_SECONDS,
            max_size=None,
            max_queue=None,
        )
        client = Client(socket)
        self._clients.append(client)
        return client

    async def join(self, name: str, query: str = "", *, space: str = "lab") -> Client:
        """Come in with a header; the welcome and one's own presence are heard already."""
        client = await self.open(f"/ws?space={space}{query}", token=f"t-{name}")
        await client.fence()
        return client

    async def status(self, where: str, **options: Any) -> int:
        """The HTTP status with which an upgrade is refused."""
        try:
            await self.open(where, **options)
        except websockets.InvalidStatus as refusal:
            return refusal.response.status_code
        return 101

    async def post(
        self, name: str, envelope: Json, *, token: str | None = None, **params: str
    ) -> httpx.Response:
        body = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
        headers = {"Authorization": f"Bearer {token or f't-{name}'}", "Content-Type": "application/json"}
        where = f"/participants/{name}/messages"
        return await self.http.post(where, content=body, headers=headers, params=params)

    async def poll(self, name: str, **params: str) -> Any:
        headers = {"Authorization": f"Bearer t-{name}"}
        answer = await self.http.get(f"/participants/{name}/messages", headers=headers, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def admin(self, method: str, where: str, body: Json = None, **params: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {ROOT}"}
        json = body if method == "POST" else None
        return await self.http.request(method, f"/admin/{where}", json=json, headers=headers, params=params)

    async def close(self) -> None:
        for client in self._clients:
            await client.leave()
        await self.http.aclose()


class LocalGateway(GatewayUnderTest):
    """A gateway on this very loop."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        super().__init__(gateway.url)
        self.gateway = gateway
        self.folder = folder

    def journal(self, space: str = "lab") -> Path:
        return self.gateway.config.data / "spaces" / space / "journal"

    async def clear(self) -> None:
        """All clients leave, and the gateway has noticed."""
        clients, self._clients = self._clients, []
        for client in clients:
            await client.leave()
        await until(lambda: not (clients and self.gateway.connections()))


# libyaml's is ten times quicker; an unusual build of PyYAML may be without.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def write_config(folder: Path, settings: Json, name: str = "moot.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.dump(settings, Dumper=_DUMPER, sort_keys=False), "utf-8")
    path.chmod(0o600)
    return path


def space_settings(people: Json, **rules: Json) -> dict[str, Json]:
    return {"dialects": ALL_DIALECTS, "participants": people} | rules


def gateway_settings(spaces: Mapping[str, Json], **gateway: Json) -> dict[str, Json]:
    common: dict[str, Json] = {
        "port": 0,
        "data": "data",
        "admin_tokens": {"root": {"token": ROOT}},
        # A browser on a busy machine connects, and asks much later.
        "header_seconds": HANG_SECONDS,
    }
    # A busy machine's disk may take long, and is no failed one.
    given = gateway.get("journal", {})
    mode = given if isinstance(given, dict) else {"mode": given}
    journal = {"sync_timeout_seconds": HANG_SECONDS} | mode
    return {"gateway": common | gateway | {"journal": journal}, "spaces": dict(spaces)}


@asynccontextmanager
async def running_gateway(
    folder: Path,
    people: Json | None = None,
    *,
    rules: Mapping[str, Json] | None = None,
    spaces: Mapping[str, Json] | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    **gateway: Json,
) -> AsyncIterator[LocalGateway]:
    """A gateway with one space `lab` of these people under these rules, or with the spaces given.

    What was a setting once is a constant now; its value in the file holds while this gateway runs.
    """
    environ = environ or {}
    if file is None:
        chosen = spaces or {"lab": space_settings(people or participants(alice=["*"]), **(rules or {}))}
        file = write_config(folder, gateway_settings(chosen, **gateway))
        configuration = load(file, environ=environ)
    else:
        configuration = load(file, environ=environ, port=0)
    async with AsyncExitStack() as stack:
        stack.enter_context(former_constants(file))
        running = Gateway(configuration)
        await running.start()
        stack.push_async_callback(running.stop)
        server = LocalGateway(running, folder)
        stack.push_async_callback(server.close)
        yield server


class SharedGateway:
    """One gateway for all tests of a module, on a loop that turns only while one of them runs."""

    def __init__(self, folder: Path, spaces: Mapping[str, Json], **gateway: Json) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._lab = running_gateway(folder, spaces=spaces, **gateway)
        self.gateway = self._runner.run(self._lab.__aenter__())

    def run_test(self, test: Coroutine[Any, Any, None]) -> None:
        """One test; whoever it let in has left when it is over."""

        async def run() -> None:
            try:
                await test
            finally:
                await self.gateway.clear()

        self._runner.run(run())

    def close(self) -> None:
        self._runner.run(self._lab.__aexit__(None, None, None))
        self._runner.close()


async def healthy(gateway: GatewayUnderTest, status: str) -> None:
    """Wait until /health says so."""

    async def says_so() -> bool:
        return bool((await gateway.http.get("/health")).json()["status"] == status)

    await until_told(says_so)
