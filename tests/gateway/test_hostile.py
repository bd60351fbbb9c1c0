"""Malformed and hostile input over both ways: clear errors, no traceback, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import websockets

from moot.errors import Refused
from moot.protocol.operation import Json
from tests.gateway.raw import raw_client
from tests.gateway.running_gateway import (
    CALL,
    LocalGateway,
    SharedGateway,
    fields,
    gateway_settings,
    participants,
    refusal_in,
    running_gateway,
    space_settings,
    write_config,
)

PEOPLE: Final = participants(alice=["*"], bob=["*"], mallory=["*"])
MESSAGES: Final = 60


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    limits = {"messages_per_second": 0, "bytes_per_second": 0}
    spaces = {"lab": space_settings(PEOPLE, limits=limits)}
    shared_gateway = SharedGateway(tmp_path_factory.mktemp("hostile"), spaces, max_connections_per_address=0)
    yield shared_gateway
    shared_gateway.close()


@asynccontextmanager
async def bystanders(gateway: LocalGateway) -> AsyncIterator[None]:
    """alice talks to bob meanwhile; he hears every word in order, and so does she."""
    alice, bob = await gateway.join("alice"), await gateway.join("bob")
    is_over = asyncio.Event()
    answer: list[str] = []

    async def talk() -> None:
        while not is_over.is_set() or len(answer) < MESSAGES:
            answer.append(await alice.say("chat", {"text": f"word {len(answer)}"}))
            await asyncio.sleep(0.003)

    talking = asyncio.create_task(talk())
    try:
        yield
    finally:
        is_over.set()
        await talking
    await alice.fence()
    await bob.fence()
    for client in (alice, bob):
        assert [each["id"] for each in client.received if is_chat_of(each, "alice")] == answer


def walk(of: type[Refused]) -> Iterator[type[Refused]]:
    for each in of.__subclasses__():
        yield each
        yield from walk(each)


def is_chat_of(message: Any, name: str) -> bool:
    return isinstance(message, dict) and message["kind"] == "chat" and message["from"] == name


# Without kick, pause and shutdown: who may do those would rightly silence the bystanders.
VALID: Final[list[dict[str, Json]]] = [
    {
        "protocol": "mew/v0.4",
        "id": "ID",
        "ts": "2026-01-01T00:00:00Z",
        "from": "mallory",
        "to": ["alice"],
        "kind": "mcp/request",
        "correlation_id": ["x"],
        "context": "a/b",
        "payload": CALL,
    },
    fields("chat", {"text": "hi", "format": "plain"}, id="ID", to=["bob"]),
    fields("mcp/proposal", CALL, id="ID"),
    fields("mcp/response", {"result": {"content": [{"type": "text", "text": "x"}]}}, id="ID", about=["y"]),
    fields("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "chat"}]}, id="ID"),
    fields("capability/revoke", {"recipient": "bob", "grant_id": "g"}, id="ID"),
    fields("space/invite", {"participant_id": "zoe", "initial_capabilities": [{"kind": "chat"}]}, id="ID"),
    fields("participant/request-status", {"fields": ["tokens"]}, id="ID", to=["bob"]),
    fields("stream/request", {"direction": "upload", "target": ["bob"]}, id="ID"),
    fields("stream/grant-write", {"stream_id": "stream-1", "participant_id": "bob"}, id="ID"),
    fields("reasoning/thought", {"message": "hm"}, id="ID"),
]  # fmt: skip
ODD: Final[list[Json]] = [
    None, True, False, 0, -1, 1.5, 10**30, -(10**400), 1e308, "", "x", "x" * 3000, "\0", "\u202e", "a\nb",
    "é" * 100, [], [[]], [None], ["alice", 7], {}, {"kind": "*"}, {"a": {"b": {"c": []}}}, ["x"] * 2000, "*",
    "/(a+)+$/", "$..x", "../..", "system:gateway",
]  # fmt: skip


def mutated(random: random.Random, number: int) -> bytes:
    """A valid envelope with one to three things wrong, as values or as bytes."""
    envelope = orjson.loads(orjson.dumps(random.choice(VALID)))
    envelope["id"] = f"m-{number}"
    for _ in range(random.randint(0, 2)):
        place = random.choice([envelope, envelope.get("payload", {})])
        if isinstance(place, dict) and place:
            name = random.choice([*place, "extra", "__proto__", "protocol"])
            place[name] = deepcopy(random.choice([*ODD, envelope.get("payload")]))
            if random.random() < 0.2:
                del place[name]
    raw = bytearray(json.dumps(envelope).encode())
    for _ in range(random.choice([0, 0, 1, 1, 2, 8])):
        spot = random.randrange(len(raw) + 1)
        match random.randrange(6):
            case 0:
                raw[spot:spot] = bytes([random.randrange(256)])
            case 1:
                del raw[spot : spot + random.randint(1, 12)]
            case 2:
                raw[spot : spot + 1] = random.choice(
                    [b"\\", b'"', b"{", b"]", b"\xff", b"\xed\xa0\x80", b"\\ud800"]
                )
            case 3:
                raw[spot:spot] = raw[max(0, spot - 20) : spot]
            case 4:
                raw[spot:spot] = random.choice(
                    [b"NaN", b"1e999", b"-0", b'"a":1,"a":2,', b"[" * 80, b"\xef\xbb\xbf"]
                )
            case _:
                del raw[spot:]
        raw = raw or bytearray(b" ")
    return bytes(raw)


CODES: Final = frozenset(each.code for each in walk(Refused)) | {"revoke_incomplete"}


async def test_a_thousand_mutations_over_a_socket_get_clear_answers_and_hurt_nobody(
    shared_gateway: SharedGateway,
) -> None:
    """Seeded; text that is no UTF-8 goes as binary, since as text it would end the connection."""
    async with bystanders(shared_gateway.gateway):
        mallory = await shared_gateway.gateway.join("mallory")
        chance = random.Random(20_260_101)
        for number in range(1000):
            raw = mutated(chance, number)
            await mallory.send(raw if not _is_utf8(raw) or chance.random() < 0.3 else raw.decode())
            if number % 50 == 0:
                await mallory.fence()
        await mallory.fence()
        errors = [each for each in mallory.received if isinstance(each, dict) and refusal_in(each)]
        assert {refusal_in(each) for each in errors} <= CODES
        assert all(each["payload"]["message"] for each in errors)
        assert {"invalid_json", "invalid_envelope"} <= {refusal_in(each) for each in errors}
        assert (await mallory.ask("chat", {"text": "well"}))["from"] == "mallory"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


async def test_a_thousand_mutations_over_http_get_clear_answers_and_hurt_nobody(
    shared_gateway: SharedGateway,
) -> None:
    async with bystanders(shared_gateway.gateway):
        chance = random.Random(20_260_102)
        statuses: Counter[int] = Counter()

        async def post(raws: list[bytes]) -> None:
            async with raw_client(shared_gateway.gateway.port) as client:
                for raw in raws:
                    status, answer = await client.post("/participants/mallory/messages", "t-mallory", raw)
                    statuses[status] += 1
                    assert status in (200, 400, 403, 404, 409, 429), answer
                    assert {"error", "status"} & answer.keys(), answer

        raws = [mutated(chance, 10_000 + number) for number in range(1000)]
        await asyncio.gather(*(post(raws[start::16]) for start in range(16)))
        assert statuses[400] > 200
        assert statuses[200] > 100


HUGE: Final = 1 << 20
NESTED: dict[str, Callable[[], bytes]] = {
    "deep object": lambda: b'{"kind":"chat","payload":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "deep list": lambda: b'{"kind":"chat","payload":{"a":' + b"[" * 300_000 + b"]" * 300_000 + b"}}",
    "unclosed": lambda: b"[" * 500_000,
    "long key": lambda: b'{"kind":"chat","payload":{"%b":1}}' % (b"k" * 900_000),
    "many keys": lambda: orjson.dumps({"kind": "chat", "payload": {str(n): n for n in range(60_000)}}),
    "many recipients": lambda: orjson.dumps({"kind": "chat", "to": ["bob"] * 100_000}),
    "many correlations": lambda: orjson.dumps({"kind": "chat", "correlation_id": ["x"] * 100_000}),
    "long number": lambda: b'{"kind":"chat","payload":{"n":%b}}' % (b"9" * 500_000),
    "long float": lambda: b'{"kind":"chat","payload":{"n":1.%b}}' % (b"9" * 500_000),
    "long kind": lambda: orjson.dumps({"kind": "x/" + "y" * 500_000}),
    "long id": lambda: orjson.dumps({"kind": "chat", "id": "y" * 500_000}),
    "escapes": lambda: b'{"kind":"chat","payload":{"t":"' + b"\\u0041" * 150_000 + b'"}}',
    "just too large": lambda: b'{"kind":"chat","payload":{"t":"%b"}}' % (b"x" * HUGE),
    "spaces": lambda: b" " * 900_000,
}


@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED)
async def test_huge_and_deep_messages_are_answered_quickly_on_both_ways(
    shared_gateway: SharedGateway, make: Callable[[], bytes]
) -> None:
    raw = make()
    async with bystanders(shared_gateway.gateway):
        mallory = await shared_gateway.gateway.join("mallory", "&echo=0")
        # Of this process, which is the gateway too: what others do on the machine does not count.
        start = time.process_time()
        await mallory.send(raw.decode())
        refusals = {refusal_in(each) for each in await mallory.fence() if not is_chat_of(each, "alice")}
        answer = await shared_gateway.gateway.post("mallory", raw)
        assert time.process_time() - start < 5
        assert answer.status_code in (200, 400, 413)
        code = answer.json().get("error")
        assert refusals - {None} == ({code} if code else set())


async def test_a_body_beyond_the_limit_is_413_without_being_read(shared_gateway: SharedGateway) -> None:
    async with bystanders(shared_gateway.gateway):
        answer = await shared_gateway.gateway.post("mallory", b'"' + b"x" * (3 << 20) + b'"')
        assert (answer.status_code, answer.json()["error"]) == (413, "denied")


async def test_a_flood_is_told_when_to_come_back_and_the_others_lose_nothing(tmp_path: Path) -> None:
    """Over both ways: one member's flood uses up one member's share."""
    async with running_gateway(tmp_path, PEOPLE, rules={"limits": {"messages_per_second": 30}}) as gateway:
        mallory = await gateway.join("mallory")
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        start = time.monotonic()
        for number in range(1000):
            await mallory.send({"id": f"f-{number}", "kind": "chat", "payload": {}})
            if number % 40 == 0:
                # Within alice's own share, in the middle of the flood.
                assert await alice.refused("chat", {"text": "calm"}) is None
        answers = [each for each in await mallory.fence() if refusal_in(each)]
        assert {refusal_in(each) for each in answers} == {"rate_limited"}
        # A second's share each second, and another at the beginning.
        assert 1000 - len(answers) <= 30 * (time.monotonic() - start + 1) + 1
        for each in answers:
            assert 0 < each["payload"]["retry_after"] < 2
            assert each["correlation_id"][0].startswith("f-")
        await alice.fence()
        received = [each["id"] for each in await bob.fence() if is_chat_of(each, "alice")]
        assert len(received) == 25


async def test_a_flood_of_posts_is_told_when_to_come_back(tmp_path: Path) -> None:
    """Who waits as long as told is not refused again."""
    async with running_gateway(tmp_path, PEOPLE, rules={"limits": {"messages_per_second": 2}}) as gateway:
        host, now = gateway.gateway.directory.hosts["lab"], time.time()
        host.journaled.clock = lambda: now
        answers = [await gateway.post("mallory", fields("chat")) for _ in range(12)]
        refused = [answer for answer in answers if answer.status_code == 429]
        # A second's worth at once.
        assert len(refused) == 10
        for answer in refused:
            assert answer.json()["error"] == "rate_limited"
            assert int(answer.headers["retry-after"]) >= 1
            assert 0 < answer.json()["retry_after"] <= 1
        later = now + refused[-1].json()["retry_after"]
        host.journaled.clock = lambda: later
        assert (await gateway.post("mallory", fields("chat"))).status_code == 200


async def test_a_flood_of_bytes_is_limited_too(tmp_path: Path) -> None:
    limits: Json = {"messages_per_second": 0, "bytes_per_second": 10_000}
    async with running_gateway(tmp_path, PEOPLE, rules={"limits": limits}) as gateway:
        mallory = await gateway.join("mallory", "&echo=0")
        start = time.monotonic()
        for _ in range(10):
            await mallory.say("chat", {"text": "x" * 50_000})
        answers = [each for each in await mallory.fence() if refusal_in(each)]
        assert {each["payload"]["limit"] for each in answers} == {"bytes_per_second"}
        # One more while no more than a second's worth is owed; each of them is five seconds' worth.
        assert 10 - len(answers) <= 1 + (time.monotonic() - start + 1) / 5


async def test_a_flood_of_rubbish_is_not_answered_for_ever(tmp_path: Path) -> None:
    """`errors_per_second`: a client in a loop costs neither answers nor the journal's disk."""
    async with running_gateway(tmp_path, PEOPLE, errors_per_second=10) as gateway:
        mallory, alice = await gateway.join("mallory"), await gateway.join("alice")
        start = time.monotonic()
        for _ in range(2000):
            await mallory.send("{")
        assert await alice.refused("chat", {"text": "unimpressed"}) is None
        received = await mallory.fence()
        most = 10 * (time.monotonic() - start + 2) + 10
        answers = [each for each in received if refusal_in(each) == "invalid_json"]
        assert 1 <= len(answers) <= most
        assert (await gateway.post("alice", fields("chat"))).status_code == 200
        journal = b"".join(path.read_bytes() for path in gateway.journal().glob("*.jsonl"))
        assert journal.count(b'"invalid_json"') <= most + 1
        # It is not cut off for it, and can do better.
        assert (await mallory.ask("chat"))["from"] == "mallory"


async def test_stream_errors_come_once_a_second_and_stream(shared_gateway: SharedGateway) -> None:
    """D-36."""
    alice, mallory = await shared_gateway.gateway.join("alice"), await shared_gateway.gateway.join("mallory")
    streams = []
    for _ in range(2):
        await alice.say("stream/request", {"direction": "upload"})
        streams.append((await alice.hear("stream/open"))["payload"]["stream_id"])
    await mallory.fence()
    start = time.monotonic()
    for stream in streams * 50:
        await mallory.send(f"#{stream}#not mine")
    errors = [each["payload"] for each in await mallory.fence()]
    assert {each["error"] for each in errors} == {"unauthorized_stream_write"}
    assert {each["stream_id"] for each in errors} == set(streams)
    assert len(errors) <= len(streams) * (time.monotonic() - start + 2)


async def test_many_connections_that_talk_rubbish_at_once(shared_gateway: SharedGateway) -> None:
    """Before joining: each is told so and closed; the bystanders do not notice."""
    chance = random.Random(7)
    async with bystanders(shared_gateway.gateway):

        async def try_once() -> int | None:
            client = await shared_gateway.gateway.open("/")
            await client.send(bytes(chance.randrange(256) for _ in range(chance.randrange(1, 300))))
            return (await client.closed())[0]

        for _ in range(5):
            codes = await asyncio.gather(*(try_once() for _ in range(20)))
            assert set(codes) == {1008}


async def test_a_kicked_member_that_keeps_talking_is_out_and_unheard(tmp_path: Path) -> None:
    """Also in the milliseconds in which the kick waits for the disk."""
    async with running_gateway(tmp_path, PEOPLE, rules={"limits": {"messages_per_second": 0}}) as gateway:
        alice, mallory = await gateway.join("alice"), await gateway.join("mallory")

        kick = await alice.say("space/kick", {"participant_id": "mallory"})
        with suppress(websockets.ConnectionClosed):
            for _ in range(500):
                await mallory.send(b'{"kind":"chat","payload":{}}')
        await alice.hear(lambda each: each["id"] == kick)
        assert (await mallory.closed())[0] == 4003
        assert not any(is_chat_of(each, "mallory") for each in await alice.fence())
        assert (await alice.ask("chat"))["from"] == "alice"


async def test_numbers_that_few_readers_know_do_not_stop_the_gateway(tmp_path: Path) -> None:
    """What is kept of a peer's words goes into snapshots: also integers beyond 64 bits."""
    huge = 10**30
    file = write_config(
        tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, snapshot_records=5, port=0)
    )
    for _ in range(2):
        async with running_gateway(tmp_path, file=file) as gateway:
            mallory, alice = await gateway.join("mallory"), await gateway.join("alice")
            request = f'{{"kind":"stream/request","payload":{{"direction":"upload","size":{huge}}}}}'
            await mallory.send(request)
            await mallory.hear("stream/open")
            capability = {"kind": "mcp/request", "payload": {"params": {"n": huge}}}
            grant = fields("capability/grant", {"recipient": "bob", "capabilities": [capability]})
            await alice.send(json.dumps(grant))
            assert not any(refusal_in(each) for each in await alice.fence())
            changed = await gateway.http.post(
                "/admin/participants/bob/capabilities",
                content=json.dumps({"add": [capability]}),
                headers={"Authorization": "Bearer t-root", "Content-Type": "application/json"},
            )
            assert changed.status_code == 200, changed.text
            for _ in range(20):
                assert await alice.refused("chat", {"n": 1}) is None
            newcomer = await gateway.join("bob")
            assert str(huge) in json.dumps(newcomer.received)
