"""A small world for adapters: a relay in this process, MCP servers as processes, and somebody who calls.

async with world(tmp_path, desk(tmp_path)) as here:
    answer = await here.alice.ask("com.acme.desk.read_note", {"name": "one"})
    answer.kind, answer.payload
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from moot.errors import UnverifiedEvent
from moot.protocol.operation import Json
from moot.xprotocol.adapter.adapter import Adapter
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.config.config_loader import load_settings
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.event_composer import compose, open_payload
from moot.xprotocol.events.events import (
    ANNOUNCE,
    DirectedEvent,
    PublicEvent,
    Signed,
    SignedDirected,
    SignedPublic,
    decode,
    verify_event,
)
from moot.xprotocol.identity.keys import Identity
from moot.xprotocol.relay.relay_server import RelayServer
from tests.waiting import HANG_SECONDS, bounded
from tests.xprotocol.people import person
from tests.xprotocol.relay.raw_client import relay_in

SERVER = Path(__file__).parent / "servers" / "notes_server.py"
NAMESPACE = "com.acme.desk"
READ, WRITE, EXECUTE = (f"{NAMESPACE}.{word}" for word in ("read", "write", "execute"))
quick_relay_client = partial(RelayClient, reconnect_interval_seconds=0.05)

OBJECT: dict[str, Json] = {"type": "object"}


def tool(name: str, description: str = "", schema: Json = None, **more: Json) -> dict[str, Json]:
    """A tool that is described well enough to be published without a remark."""
    words = name.replace("_", " ")
    about = description or f"{words.capitalize()} at the desk. Use this when you need to {words} there."
    return {"name": name, "description": about, "inputSchema": schema or OBJECT} | more


def named(*names: str, **types: str) -> dict[str, Json]:
    """An object schema with these texts required."""
    properties = {name: {"type": "string"} for name in names} | {n: {"type": t} for n, t in types.items()}
    return {"type": "object", "properties": properties, "required": list(names)}


SUM = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
TOOLS: list[dict[str, Json]] = [
    tool("read_note", schema=named("name")),
    tool("write_note", schema=named("name", "text")),
    tool("run_hang"),
    tool("run_die"),
    tool("get_environment"),
    tool("run_fail"),
    tool("run_failing"),
    tool("get_long"),
    tool("get_sum", schema=named(a="number", b="number"), outputSchema=SUM),
    tool("get_lie", outputSchema=SUM),
    tool("get_nonsense"),
    tool("run_slow"),
]


@dataclass
class NotesServer:
    """The folder of one `desk` server, and its entry in a configuration."""

    folder: Path
    name: str = "desk"
    namespace: str = NAMESPACE
    options: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "notes").mkdir(parents=True, exist_ok=True)
        self.note("one", "first words")
        self.list_tools(TOOLS)

    def note(self, name: str, words: str) -> None:
        whole = self.folder / ".note"
        whole.write_text(words)
        whole.replace(self.folder / "notes" / name)

    def let_go(self, name: str) -> None:
        """`run_slow` with this `until` goes on."""
        (self.folder / name).touch()

    def list_tools(self, tools: list[dict[str, Json]]) -> None:
        whole = self.folder / ".tools.json"
        whole.write_text(json.dumps(tools))
        whole.replace(self.folder / "tools.json")

    def requests(self, method: str = "tools/call") -> list[Json]:
        """What the server was asked: the params of each."""
        log = self.folder / "requests.jsonl"
        # Without the line that is being written.
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        return [entry["params"] for entry in map(json.loads, lines) if entry["method"] == method]

    @property
    def source(self) -> dict[str, Json]:
        arguments = self.options.get("flags", [])
        return {
            "name": self.name,
            "transport": "stdio",
            "command": f"{sys.executable} {SERVER}",
            "args": [str(self.folder), *arguments],
            "xprotocol_namespace": self.namespace,
        } | {name: value for name, value in self.options.items() if name != "flags"}


def notes_server(
    tmp_path: Path, name: str = "desk", namespace: str = NAMESPACE, **options: Json
) -> NotesServer:
    return NotesServer(tmp_path / f"{name}.folder", name, namespace, options)


@dataclass(frozen=True)
class Answer:
    """An event that answers one of ours, opened."""

    event: DirectedEvent
    payload: Any
    raw: bytes

    @property
    def kind(self) -> str:
        return self.event.kind

    @property
    def code(self) -> str | None:
        """Of an xp.error."""
        code = self.payload.get("code") if self.event.kind == "xp.error" else None
        return code if isinstance(code, str) else None


class RemoteCaller:
    """Somebody with a key and a relay, who sends what a test wants and reads what comes back."""

    def __init__(
        self, identity: Identity, relays: RelayClient, adapter_key: Callable[[], tuple[str, str]]
    ) -> None:
        self.identity = identity
        self.key = identity.key.text
        self.relays = relays
        self._adapter = adapter_key
        self._heard: list[Answer] = []
        self._news = asyncio.Event()
        self.forged = 0

    def event(self, kind: str, payload: Json, **more: Any) -> SignedDirected:
        """A request to the adapter, as an honest caller makes it."""
        options: dict[str, Any] = {"now": time.time()} | more
        if "recipient" not in options or "enc_key" not in options:
            key, enc_key = self._adapter()
            options = {"recipient": key, "enc_key": enc_key} | options
        return compose(self.identity, kind, payload, **options)

    async def send(self, signed: Signed) -> None:
        await self.relays.publish(signed, timeout_seconds=HANG_SECONDS)

    async def ask(self, kind: str, payload: Json, **more: Any) -> Answer:
        """Send a request and wait for its answer."""
        signed = self.event(kind, payload, **more)
        await self.send(signed)
        return await self.answer(signed)

    async def answer(self, request: SignedDirected, *, place: int = 0) -> Answer:
        """The answer to a request, or a later one to the same."""
        return await self.until(lambda received: _nth(received, request.event.id, place))

    async def until(self, find: Callable[[list[Answer]], Answer | None]) -> Answer:
        async with bounded():
            while (found := find(self._heard)) is None:
                self._news.clear()
                await self._news.wait()
        return found

    @property
    def received(self) -> list[Answer]:
        return list(self._heard)

    async def listen(self) -> None:
        async with self.relays.subscribe([{"recipients": [self.key]}]) as events:
            async for raw in events:
                # XP 11.1: what the adapter sends is signed, and sealed for us. All else is a relay's doing.
                try:
                    signed = decode(raw)
                    verify_event(signed)
                except UnverifiedEvent:
                    self.forged += 1
                    continue
                if not isinstance(signed, SignedDirected) or signed.event.recipient != self.key:
                    continue
                self._heard.append(Answer(signed.event, open_payload(signed, self.identity), raw))
                self._news.set()


def _nth(received: list[Answer], request_id: str, place: int) -> Answer | None:
    found = [each for each in received if each.event.in_reply_to == request_id]
    return found[place] if len(found) > place else None


class AdapterEnvironment:
    """Everything that runs in one test."""

    def __init__(self, folder: Path, relay: RelayServer, document: dict[str, Json]) -> None:
        self.folder = folder
        self.relay = relay
        # Where everybody reaches it.
        self.url = relay.url
        self.document = document
        self.environ: dict[str, str] = {"PATH": "/usr/bin:/bin"}
        self._stack = AsyncExitStack()
        self._adapter: Adapter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.alice: RemoteCaller
        self.public: list[PublicEvent] = []
        self._news = asyncio.Event()

    @property
    def adapter(self) -> Adapter:
        assert self._adapter is not None
        return self._adapter

    @property
    def file(self) -> Path:
        return self.folder / "adapter.yml"

    def write(self) -> Path:
        """The document as a file, replaced as a whole."""
        whole = self.folder / ".adapter.yml"
        whole.write_text(yaml.safe_dump(self.document))
        whole.replace(self.file)
        return self.file

    def settings(self) -> AdapterSettings:
        return load_settings(self.write(), environ=self.environ)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Adapter]:
        """The adapter as the document says it."""
        async with Adapter(self.settings(), environ=self.environ) as adapter:
            self._adapter = adapter
            try:
                yield adapter
            finally:
                self._adapter = None

    async def somebody(self, name: str) -> RemoteCaller:
        identity = person(name)
        relays = await self._stack.enter_async_context(quick_relay_client([self.url], identity))

        def adapter_key() -> tuple[str, str]:
            return self.adapter.key, self.adapter.identity.enc_key.text

        found = RemoteCaller(identity, relays, adapter_key)
        self._tasks.append(asyncio.create_task(found.listen()))
        return found

    # What everybody on the relay can see

    async def hear_public(self) -> None:
        async with self.alice.relays.subscribe([{"kinds": [ANNOUNCE]}]) as events:
            async for raw in events:
                signed = decode(raw)
                assert isinstance(signed, SignedPublic)
                verify_event(signed)
                self.public.append(signed.event)
                self._news.set()

    async def announce(self, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> PublicEvent:
        """The first announce whose payload is as wanted."""
        async with bounded():
            while True:
                for event in self.public:
                    if wanted(event.payload):
                        return event
                self._news.clear()
                await self._news.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


@asynccontextmanager
async def adapter_environment(
    tmp_path: Path, *desks: NotesServer, **document: Json
) -> AsyncIterator[AdapterEnvironment]:
    """A relay, people and a configuration, but no adapter yet. Alice may do everything at the desks."""
    async with (
        relay_in(tmp_path / "relay") as relay,
        environment_on_relay(tmp_path, relay, relay.url, *desks) as environment,
    ):
        environment.document = merged(environment.document, document)
        yield environment


@asynccontextmanager
async def environment_on_relay(
    tmp_path: Path, relay: RelayServer, url: str, *desks: NotesServer
) -> AsyncIterator[AdapterEnvironment]:
    """An empty world on a relay that is there already, and is reached at `url`."""
    alice = person("alice")
    whole: dict[str, Json] = {
        "identity": {"key_file": str(tmp_path / "keys" / "adapter.key"), "display_name": "Test adapter"},
        "relay": {"urls": [url], "reconnect_interval_seconds": 0.1},
        "mcp_sources": [each.source for each in desks],
        "access": {alice.key.text: [f"{each.namespace}.*" for each in desks]},
        "discovery": {"well_known_port": 0},
    }
    environment = AdapterEnvironment(tmp_path, relay, whole)
    environment.url = url
    environment.alice = await environment.somebody("alice")
    environment._tasks.append(asyncio.create_task(environment.hear_public()))
    try:
        yield environment
    finally:
        await environment.close()


@asynccontextmanager
async def running_adapter(
    tmp_path: Path, *desks: NotesServer, **document: Json
) -> AsyncIterator[AdapterEnvironment]:
    """The same with the adapter running; sections of `document` are merged into the usual ones."""
    async with adapter_environment(tmp_path, *desks, **document) as environment, environment.running():
        yield environment


def merged(base: dict[str, Json], over: dict[str, Json]) -> dict[str, Json]:
    """Sections of both; members of `over` win, and None takes a section away."""
    made = dict(base)
    for name, value in over.items():
        before = made.get(name)
        made[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return {name: value for name, value in made.items() if value is not None}
