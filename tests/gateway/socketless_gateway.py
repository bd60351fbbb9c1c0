"""Gateways without sockets, and two of them side by side: one with the fast path and one without.

    async with socketless_gateway(folder, settings) as one:
        alice = one.join("alice")
        alice.say(chat("alice", "c-1"))
        await one.rest()
        assert one.host.fast_paths.accepted == 0     # the next one would take the fast path

A `SocketlessSession` is in the place of a WebSocket: messages go in whole, and what is written to it is kept.
`seen` writes down all that can be seen of a gateway, line by line, so that two of them can be compared. It
hides what a gateway draws by chance or reads off a clock, and nothing else: clients in these tests sign their
envelopes in the year 2001, so that every later moment is a gateway's own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from moot.config import load
from moot.errors import Refused, UsageError
from moot.gateway.app import Gateway
from moot.gateway.hosting import fast_path
from moot.gateway.hosting.delivery import encode_entry
from moot.gateway.hosting.journal_durability import JournalDurability
from moot.gateway.hosting.message_refusals import ErrorReplyLimiter
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.hosting.space_records import replay
from moot.net.upgrade_request import RelayedUpgrade, Upgrade, UpgradeRefusal
from moot.net.websocket_frame import CLOSE
from moot.net.websocket_server import Handler, ServerSocket, WebSocketServer
from moot.protocol.operation import Json
from moot.space.config import SpaceConfig
from moot.space.space import Space
from moot.space.state_hash import hash_state
from moot.store.journal_reader import read_records, verify
from tests.config.former_constants import use_constants_of
from tests.gateway.running_gateway import write_config

SECOND: Final = "2001-09-09T01:46:40"


def encode(fields: Json) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def members(sender: str, id: str, kind: str = "chat", payload: Json = None, **more: Json) -> dict[str, Json]:
    """A whole envelope; `more` adds members or puts others in their place."""
    answer = {"protocol": "mew/v0.4", "id": id, "ts": SECOND + ".123Z", "from": sender, "kind": kind}
    return answer | {"payload": {"text": f"this is {id}"} if payload is None else payload} | more


def chat(sender: str, id: str, **more: Json) -> bytes:
    """An ordinary message, which takes the fast path if that is open."""
    return encode(members(sender, id, **more))


def _nested(levels: int) -> Json:
    value: Json = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def _without(member: str) -> Callable[[str, str, str], bytes]:
    return lambda me, own, taken: encode({k: v for k, v in members(me, own).items() if k != member})


def _with(**more: Json) -> Callable[[str, str, str], bytes]:
    return lambda me, own, taken: chat(me, own, **more)


def _changed(old: bytes, new: bytes) -> Callable[[str, str, str], bytes]:
    return lambda me, own, taken: chat(me, own).replace(old, new)


# Messages by (who says it, an id of its own, an id that may be taken): each is ordinary but for one thing.
ODD: Final[tuple[Callable[[str, str, str], bytes], ...]] = (
    lambda me, own, taken: chat(me, "e-1"),
    lambda me, own, taken: chat(me, taken),
    lambda me, own, taken: chat("alice", own),
    lambda me, own, taken: chat(me, own + "é"),
    lambda me, own, taken: chat(me, own + " \x7f"),
    lambda me, own, taken: chat(me, own + "x" * 20),
    lambda me, own, taken: chat(me, own + "x" * 250),
    lambda me, own, taken: chat(me, ""),
    lambda me, own, taken: encode(members(me, own) | {"id": 7}),
    lambda me, own, taken: encode(dict(sorted(members(me, own).items()))),
    lambda me, own, taken: chat(me, own).replace(b",", b" ,\t").replace(b":{", b": {") + b"\r ",
    lambda me, own, taken: b" " + chat(me, own),
    lambda me, own, taken: chat(me, own)[:-1],
    lambda me, own, taken: chat(me, own)[:-30],
    lambda me, own, taken: chat(me, own) + b"}",
    lambda me, own, taken: chat(me, own)[:-1] + b',"id":"twice"}',
    lambda me, own, taken: b"",
    lambda me, own, taken: b"#nobody#frame",
    *(_without(member) for member in members("", "")),
    *(_with(kind=kind) for kind in ("x/vendor", "x/vendor", "", "", "system/welcome", "stream/open", "Chat")),
    *(_with(ts=SECOND[:-2] + ts) for ts in ("00", "00.Z", "00.000000000Z", "00z", "00+01:00", "60Z", "41Z")),
    _with(ts="2001-02-30T00:00:00Z"),
    _with(protocol="mew/v0.3"),
    _with(context="sub/context"),
    _with(context=None),
    _with(vendor={"a": 1}),
    _with(correlation_id="e-1"),
    _with(correlation_id=[]),
    _with(correlation_id=[str(number) for number in range(40)]),
    _with(correlation_id=["é" * 200]),
    _with(to="alice"),
    _with(to=["x"] * 3),
    _with(to=[""]),
    _with(to=["a\n"]),
    *(_with(payload={"text": "x" * size}) for size in (1, 126, 500, 65_000, 70_000)),
    *(_with(payload=_nested(levels)) for levels in (10, 30, 63, 64)),
    _with(payload={"a": [1, -0.5, 1e300, None, {"b": {"c": "é \n \x7f \u2028"}}], "n": 2**70, "m": -0.0}),
    _with(payload={str(number): number for number in range(30)}),
    _with(payload=[1]),
    _changed(b',"', b',\n"'),
    _changed(b'"chat"', b'"ch\\u0061t"'),
    _changed(b'"text"', b'"te\\u0078t"'),
    _changed(b"this", b"\\u0074his \\ud83d\\ude00 \\/"),
    _changed(b"this", b"\\ud83d"),
    _changed(b"this", b"\t"),
    _changed(b'{"text"', b'{"text":1,"text"'),
    _changed(b'{"text":', b'{"number":01,"text":'),
    _changed(b'{"text":', b'{"number":1E400,"text":'),
    _changed(b'{"text":', b'{"number":NaN,"text":'),
)


class Wire(asyncio.Transport):
    """A transport that keeps what is written; whoever is told to close is gone in the next tick."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed: tuple[int, bytes] | None = None
        self.connection: ServerSocket | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data[0] == 0x80 | CLOSE:
            self.closed = (int.from_bytes(data[2:4], "big"), bytes(data[4:]))
            asyncio.get_running_loop().call_soon(self.hang_up)
            return
        self.written += data

    def hang_up(self) -> None:
        if self.connection is not None:
            gone, self.connection = self.connection, None
            gone.connection_lost(None)


class SocketlessSession:
    """One session, seen from its member's side."""

    def __init__(self, name: str, handler: Handler) -> None:
        self.name = name
        self.wire = Wire()
        self._handler = handler
        # Frames are not what is tested here, so messages go to the handler itself.
        self._connection = ServerSocket(WebSocketServer(lambda _: handler, ping_seconds=0))
        self._connection._transport = self.wire
        self.wire.connection = self._connection
        self._connection._open(handler, self.wire)

    @property
    def here(self) -> bool:
        return not self._connection.is_closing

    def say(self, data: bytes, binary: bool = False) -> None:
        """One message; whoever was told to go is not read any more, as over a socket."""
        if self.here:
            self._handler.received(data, binary)

    def leave(self) -> None:
        self.wire.hang_up()

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Opcode and payload of all that was written so far."""
        data, at = bytes(self.wire.written), 0
        while at < len(data):
            size, start = data[at + 1], at + 2
            if size >= 126:
                start = at + (4 if size == 126 else 10)
                size = int.from_bytes(data[at + 2 : start], "big")
            yield data[at] & 0x0F, data[start : start + size]
            at = start + size

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(text) for opcode, text in self.frames() if opcode == 1 and text[:1] == b"{"]

    def last_refusal(self) -> dict[str, Any]:
        """What the last error said."""
        payload: dict[str, Any] = [e for e in self.messages() if e["kind"] == "system/error"][-1]["payload"]
        return payload

    def ids(self, kind: str = "chat") -> list[str]:
        return [each["id"] for each in self.messages() if each["kind"] == kind]


class SocketlessGateway:
    """A gateway with one space, `lab`, and all sessions that it ever had."""

    def __init__(self, file: Path, *, with_fast_path: bool = True) -> None:
        self.file = file
        self.sessions: list[SocketlessSession] = []
        # Tokens that members were given since the configuration was read.
        self.tokens: dict[str, str] = {}
        # What came of steps that are answered otherwise than by a message.
        self.notes: list[str] = []
        self._with_fast_path = with_fast_path
        self._first_config: SpaceConfig | None = None
        self.gateway: Gateway

    async def open(self) -> None:
        use_constants_of(self.file)
        self.gateway = Gateway(load(self.file, environ={}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast_path, "COMPILED", self._with_fast_path and fast_path.COMPILED)
            await self.gateway.start()
        self._first_config = self._first_config or self.host.space.state.config
        # How often a mistake is answered depends on the clock, and nothing here does.
        self.host.applier.frames.error_replies = ErrorReplyLimiter(1e6)

    async def close(self) -> None:
        """All leave in the order in which they came, then the gateway stops."""
        for session in self.sessions:
            session.leave()
        await self.rest()
        await self.gateway.stop()

    @property
    def host(self) -> SpaceHost:
        return self.gateway.directory.hosts["lab"]

    @property
    def journal(self) -> Path:
        return self.gateway.config.data / "spaces" / "lab" / "journal"

    def try_join(self, name: str, query: str = "", *, token: str = "") -> SocketlessSession | int:
        """A new session, or the HTTP status that says why not."""
        headers = {
            "host": f"127.0.0.1:{self.gateway.port}",
            "authorization": f"Bearer {token or self.tokens.get(name, f't-{name}')}",
        }
        assert self.gateway._upgrade_handler is not None
        answer = self.gateway._upgrade_handler.admit(Upgrade(f"/ws?space=lab{query}", headers, "here"))
        assert not isinstance(answer, asyncio.Future)
        if isinstance(answer, UpgradeRefusal):
            return answer.status
        assert not isinstance(answer, RelayedUpgrade)
        session = SocketlessSession(name, answer)
        self.sessions.append(session)
        return session

    def join(self, name: str, query: str = "", *, token: str = "") -> SocketlessSession:
        session = self.try_join(name, query, token=token)
        assert isinstance(session, SocketlessSession), session
        return session

    async def tick(self) -> None:
        await asyncio.sleep(0)

    async def rest(self) -> None:
        """What waits for the disk is out, and what is written has been."""
        durability = self.host.journaled.durability
        assert isinstance(durability, JournalDurability)
        while durability.pending:
            await self.durable()
        # Close, hang up, leave, and the write of that.
        for _ in range(4):
            await self.tick()

    async def durable(self) -> None:
        """All records are on disk, or a snapshot is where there are none."""
        if not self.host.journal.is_written:
            await self.host.journaled.save_snapshot()
            return
        done = asyncio.Event()
        self.host.journal.when_durable(self.host.journal.next_number - 1, done.set)
        await done.wait()

    def reload(self, settings: Json) -> None:
        self.file.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
        self.gateway.reload(load(self.file, environ={}))

    # What can be seen

    async def seen(self) -> list[str]:
        """Everything, line by line; equal for two gateways in which the same happened."""
        await self.rest()
        lines = [*self._records(), *self._state(), *self._history(), *self._frames(), *self.notes]
        host = self.host
        lines += [f"received {host.received}", f"delivered {host.delivered}"]
        lines += [f"refused {sorted(host.refusals.counts.items())}", f"next {host.journal.next_number}"]
        lines.append(f"silent {host.refusals.suppressed}")
        return hidden(lines)

    def check_replay(self) -> None:
        """The whole journal, from its first record on, gives the very state that there is."""
        host = self.host
        if not host.journal.is_written:
            return
        assert self._first_config is not None
        again = Space(self._first_config)
        for number, record in enumerate(read_records(self.journal), 1):
            assert record.number == number
            try:
                replay(again, record.line, self._first_config)
            except (Refused, UsageError) as fault:
                raise AssertionError(f"record {number} cannot be replayed: {record.line!r}") from fault
        found, live = again.save(), host.space.save()
        differing = [table for table in live if table != "window" and found[table] != live[table]]
        assert not differing, [(table, found[table], live[table]) for table in differing]
        assert hash_state(found) == hash_state(live)

    def records(self) -> list[dict[str, Any]]:
        return [record.fields for record in read_records(self.journal)]

    def _records(self) -> Iterator[str]:
        if not self.host.journal.is_written:
            return
        for record in read_records(self.journal):
            # The seal depends on what was written together, which is the disk's to say; the salt is random.
            fields = {key: value for key, value in record.fields.items() if key not in ("t", "h", "s", "raw")}
            yield f"record {json.dumps(fields)} {record.envelope!r}"
        verdict = verify(self.journal)
        assert verdict.ok, verdict

    def _state(self) -> Iterator[str]:
        saved: dict[str, Any] = self.host.space.save()
        window = saved["window"]
        # Which of the entries share one record is no part of the state.
        records = window.pop("records")
        window["rows"] = [records[row] for row in window["rows"]]
        window["pinned"] = {id: records[row] for id, row in window["pinned"].items()}
        for table, content in saved.items():
            yield f"state {table} {json.dumps(content)}"

    def _history(self) -> Iterator[str]:
        history = self.host.delivery.history
        numbers = {id(received): number for number, received in enumerate(history.entries)}
        for received in history.entries:
            # A notice is as long as the digits of a wait that it names.
            size = received.size if isinstance(received.message, bytes) else ""
            yield f"history {size} {encode_entry(received, 'mew')!r} {encode_entry(received, 'mcpx')!r}"
        for name in self.host.space.state.roster.members:
            polled = [numbers[id(received)] for received in history.since(history.visible_since(name), name)]
            yield f"polled by {name} {polled}"

    def _frames(self) -> Iterator[str]:
        for number, session in enumerate(self.sessions):
            yield f"session {number} {session.name}"
            for opcode, text in session.frames():
                yield f"frame {opcode} {text!r}"
            yield f"end {session.wire.closed}"


_DRAWN = re.compile(
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})|(?P<hash>\b[0-9a-f]{64}\b)"
    r"|\b[0-9a-f]{11}-(?P<session>\d+)\b|(?<=\"token\":\")(?P<token>[\w-]{43})"
    r"|(?P<moment>20[2-9]\d-\d\d-\d\dT[\d:.]+Z|\b1[5-9]\d{8}(?:\.\d+)?\b)"
    r"|(?<=127\.0\.0\.1:)(?P<port>\d+)|(?<=retry_after\":)(?P<wait>[\d.]+)"
    r"|(?<=try again in )(?P<words>[\d.]+)"
)


def hidden(lines: Sequence[str]) -> list[str]:
    """These lines with a name for each thing that was drawn, the same one wherever it comes up again."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        what = found.lastgroup or ""
        if what == "session":
            return f"session-{found['session']}"
        if what in ("moment", "port", "wait", "words"):
            return what
        return names.setdefault(found[0], f"{what}-{len(names)}")

    # What many were told is looked at once, and what is long is mostly the same letter.
    known = {line: _DRAWN.sub(name, line.replace("x" * 1_000, "X")) for line in dict.fromkeys(lines)}
    return [known[line] for line in lines]


@asynccontextmanager
async def socketless_gateway(
    folder: Path, settings: Json, *, with_fast_path: bool = True
) -> AsyncIterator[SocketlessGateway]:
    """One gateway, stopped when the block ends."""
    folder.mkdir(exist_ok=True)
    one = SocketlessGateway(write_config(folder, settings), with_fast_path=with_fast_path)
    await one.open()
    try:
        yield one
    finally:
        await one.close()


async def check_same(fast: SocketlessGateway, slow: SocketlessGateway, when: str) -> None:
    """Raises with the first line in which two gateways differ, and the lines before it."""
    lines, others = await fast.seen(), await slow.seen()
    for at, (line, other) in enumerate(zip_longest(lines, others, fillvalue="nothing")):
        if line != other:
            before = "\n".join(each[:300] for each in lines[max(0, at - 3) : at])
            same = next(n for n, (a, b) in enumerate(zip_longest(line, other)) if a != b)
            cut = slice(max(0, same - 300), same + 600)
            raise AssertionError(f"{when}\n{before}\nfast: {line[cut]}\nslow: {other[cut]}")
