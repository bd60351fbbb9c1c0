"""Calls over a real relay, and what a relay or a stranger can do to them: delay, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from moot.errors import OutboxFull, TimedOut, Unreachable, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.endpoint.endpoint_caller import (
    UPDATES_BURST,
    CalledEndpoint,
    CallProofs,
    EndpointCaller,
    EndpointFault,
    fault_of,
)
from moot.xprotocol.endpoint.event_listener import EventListener
from moot.xprotocol.endpoint.relay_client import RelayClient
from moot.xprotocol.events.access_rights import grant
from moot.xprotocol.events.event_composer import compose, publish, reply
from moot.xprotocol.events.events import ANNOUNCE, DirectedEvent
from moot.xprotocol.events.faults import Fault
from moot.xprotocol.identity.keys import Identity
from tests.waiting import HANG_SECONDS, until
from tests.xprotocol.adapter.stub_endpoint import (
    CURRENT,
    SECRET,
    STATIONS,
    StubEndpoint,
    quick_relay_client,
    stub_endpoint,
)
from tests.xprotocol.endpoint.hostile_relay import hostile_relay
from tests.xprotocol.endpoint.relay_proxy import Proxy
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE
from tests.xprotocol.relay.raw_client import relay_in

BERN = {"location": "Bern"}
PEER = CalledEndpoint(BOB.key.text, BOB.enc_key.text)


@dataclass
class CallerAndEndpoint:
    """Somebody who calls, and the endpoint that is called."""

    caller: EndpointCaller
    relays: RelayClient
    far: StubEndpoint
    url: str

    async def ask(
        self, kind: str = CURRENT.kind, payload: Json = BERN, within: float = HANG_SECONDS, **more: Any
    ) -> Json:
        return await self.caller.call(PEER, kind, payload, relays=self.relays, timeout_seconds=within, **more)


@asynccontextmanager
async def caller_and_endpoint(
    url: str, far_url: str | None = None, **more: Any
) -> AsyncIterator[CallerAndEndpoint]:
    async with (
        stub_endpoint(far_url or url, BOB, caller=ALICE) as far,
        quick_relay_client([url], ALICE) as relays,
        EndpointCaller(ALICE, **more) as caller,
        EventListener(relays, caller) as hearing,
    ):
        hearing.add(BOB.key.text, lambda _signed: None)
        await hearing.wait_ready(HANG_SECONDS)
        yield CallerAndEndpoint(caller, relays, far, url)


@pytest.mark.requirement("XP-5.2-4", "XP-2.2-11")
async def test_a_call_goes_out_by_the_relay_and_its_answer_comes_back(tmp_path: Path) -> None:
    """XP 5.2; what the relay keeps of both is unreadable to it."""
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:
        assert (await d.ask())["content"] == "Bern: 17°C"
        assert d.far.served[0].payload == BERN
        assert d.far.served[0].event.sender == ALICE.key.text
        answers = await asyncio.gather(*(d.ask(payload={"location": f"L{n}"}) for n in range(50)))
        assert [each["content"] for each in answers] == [f"L{n}: 17°C" for n in range(50)]
        assert d.caller.pending_count == 0
        kept = await relay.store.get(d.far.served[0].event.id)
        assert kept is not None
        assert b"Bern" not in kept


async def test_an_endpoints_refusal_is_raised_with_its_code(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:
        for kind, payload, code in (
            (SECRET.kind, {}, "AUTHORIZATION_INSUFFICIENT"),
            (CURRENT.kind, {"location": 7}, "SCHEMA_VIOLATION"),
            ("weather.nothing", {}, "NOT_FOUND"),
        ):
            with pytest.raises(EndpointFault) as caught:
                await d.ask(kind, payload)
            assert caught.value.fault.code == code
        assert len(d.far.served) == 0


async def test_grants_and_delegations_go_along(tmp_path: Path) -> None:
    """D-59: what proves a right travels inside the sealed payload, and the tool does not see it."""
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:
        d.far.access.clear()
        with pytest.raises(EndpointFault, match="AUTHORIZATION_INSUFFICIENT"):
            await d.ask()
        now = time.time()
        given = grant(BOB, ALICE.key.text, ["weather.read"], ends=int(now) + 600, now=now)
        proofs = CallProofs((orjson.loads(given.raw),))
        assert (await d.ask(credentials=proofs))["content"] == "Bern: 17°C"
        assert d.far.served[-1].payload == BERN


async def _forge(far: StubEndpoint, request: DirectedEvent, kind: str, payload: Json, how: str) -> None:
    """Everything but the right answer."""
    now = time.time()
    evil = {"content": "evil"}
    options: dict[str, Any] = {
        "recipient": request.sender,
        "enc_key": request.sender_enc_key,
        "now": now,
        "correlation_id": request.correlation_id,
        "in_reply_to": request.id,
    }
    signer: Identity = far.identity
    match how:
        case "another key":
            signer = EVE
        case "another correlation":
            options["correlation_id"] = "c-2"
        case "no correlation":
            options["correlation_id"] = None
        case "another request":
            options["in_reply_to"] = "0" * 64
        case "no request":
            options["in_reply_to"] = None
        case "another kind":
            kind = "weather.forecast.get.result"
        case "expired":
            options |= {"now": now - 3_000, "ttl": 60}
        case "for somebody else":
            options |= {"recipient": CAROL.key.text, "enc_key": CAROL.enc_key.text}
        case "sealed for somebody else":
            options |= {"enc_key": CAROL.enc_key.text}
        case "an error by another key":
            signer, kind, evil = (
                EVE,
                "xp.error",
                {"code": "NOT_FOUND", "message": "evil", "in_reply_to": request.id},
            )
    await far.relays.publish(compose(signer, kind, evil, **options))


@pytest.mark.requirement("XP-5.2-5")
@pytest.mark.parametrize(
    "how",
    [
        "another key",
        "another correlation",
        "no correlation",
        "another request",
        "no request",
        "another kind",
        "for somebody else",
        "sealed for somebody else",
        "an error by another key",
    ],
)
async def test_only_the_right_answer_is_one(tmp_path: Path, how: str) -> None:
    """A forgery before it changes nothing, and the answer itself still counts."""
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:

        async def answer(request: DirectedEvent, kind: str, payload: Json) -> None:
            await _forge(d.far, request, kind, payload, how)
            await d.far.relays.publish(reply(BOB, request, kind, payload, now=time.time()))

        d.far.answer = answer
        assert (await d.ask())["content"] == "Bern: 17°C"


async def test_an_expired_answer_is_none_even_if_the_relay_keeps_it(tmp_path: Path) -> None:
    async with hostile_relay(tmp_path) as (relay, proxy), caller_and_endpoint(proxy.url, relay.url) as d:
        request: list[DirectedEvent] = []

        async def answer(asked: DirectedEvent, kind: str, payload: Json) -> None:
            request.append(asked)
            old = compose(
                BOB,
                kind,
                payload,
                recipient=asked.sender,
                enc_key=asked.sender_enc_key,
                now=time.time() - 4_000,
                ttl=60,
                correlation_id=asked.correlation_id,
                in_reply_to=asked.id,
            )
            # A relay would refuse it; a hostile one hands it over.
            for one in proxy.connections:
                await one.send(b'["EVENT","s1",' + old.raw + b"]", text=True)

        d.far.answer = answer
        asking = asyncio.create_task(d.ask())
        await until(lambda: d.caller.dropped.get("expired", 0) >= 1)
        assert request
        assert not asking.done()
        asking.cancel()


@pytest.mark.parametrize("trick", ["repeats", "reorders", "delays", "cuts", "garbage", "tampers first"])
async def test_a_relay_that_misbehaves_costs_time_and_nothing_else(tmp_path: Path, trick: str) -> None:
    async with hostile_relay(tmp_path) as (relay, proxy), caller_and_endpoint(proxy.url, relay.url) as d:
        _misbehave(proxy, trick)
        answers = await asyncio.gather(
            *(d.ask(payload={"location": f"L{n}"}, within=HANG_SECONDS) for n in range(10))
        )
        assert [each["content"] for each in answers] == [f"L{n}: 17°C" for n in range(10)]
        # Each was carried out once, whatever the relay told how often.
        assert sorted(each.payload["location"] for each in d.far.served) == [f"L{n}" for n in range(10)]
        assert d.caller.pending_count == 0


def _misbehave(proxy: Proxy, trick: str) -> None:
    held: list[bytes] = []
    cut: list[bool] = []

    def mangle(from_relay: bool, message: bytes) -> list[bytes]:
        is_event = from_relay and message.startswith(b'["EVENT"')
        if not is_event:
            return [message]
        match trick:
            case "repeats":
                return [message] * 5
            case "reorders":
                held.append(message)
                if len(held) < 10:
                    return []
                return held[::-1]
            case "delays":
                asyncio.get_running_loop().call_later(0.3, _say_all, proxy, message)
                return []
            case "cuts":
                if not cut:
                    cut.append(True)
                    asyncio.get_running_loop().create_task(proxy.cut())
                    return []
                return [message]
            case "garbage":
                return [b"[]", b'["EVENT","s1",{}]', b'["EVENT","s9",null]', b'["OK","x",true,""]', message]
            case "tampers first":
                start = message.index(b'"payload":"') + 20
                return [message[:start] + b"AAAA" + message[start + 4 :], message]
        return [message]

    proxy.mangle = mangle


@pytest.mark.parametrize("withheld", ["answers", "requests", "the OK and the request"])
async def test_a_relay_that_withholds_ends_the_call_in_time_and_says_so(
    tmp_path: Path, withheld: str
) -> None:
    async with hostile_relay(tmp_path) as (relay, proxy), caller_and_endpoint(proxy.url, relay.url) as d:

        def mangle(from_relay: bool, message: bytes) -> list[bytes]:
            event = message.startswith(b'["EVENT"')
            if withheld == "answers":
                return [] if from_relay and event else [message]
            if not from_relay and event:
                known = orjson.loads(message)[1]["id"]
                if withheld == "requests":
                    # It says OK and keeps it to itself.
                    asyncio.get_running_loop().call_soon(
                        _say_all, proxy, orjson.dumps(["OK", known, True, ""])
                    )
                return []
            return [message]

        proxy.mangle = mangle
        with pytest.raises(TimedOut, match=r"did not answer within 1 s"):
            await d.ask(within=1)
        assert d.caller.pending_count == 0


def _say_all(proxy: Proxy, message: bytes) -> None:
    async def say() -> None:
        for one in list(proxy.connections):
            await one.send(message, text=True)

    asyncio.get_running_loop().create_task(say())


async def test_without_a_relay_a_call_ends_in_time_and_is_not_sent_when_one_is_back(tmp_path: Path) -> None:
    """Nobody waits for it any more, so nobody must act on it."""
    async with relay_in(tmp_path / "a") as relay:
        url, port = relay.url, relay.port
    async with quick_relay_client([url], ALICE) as relays, EndpointCaller(ALICE) as caller:
        with pytest.raises((TimedOut, Unreachable)):
            await caller.call(PEER, CURRENT.kind, BERN, relays=relays, timeout_seconds=0.5)
        async with relay_in(tmp_path / "a", port=port) as relay:
            await relays.wait_connected(HANG_SECONDS)
            await relays.publish(publish(ALICE, ANNOUNCE, {}, now=time.time()))
            assert relay.store.stats().events == 1


async def test_cancelled_calls_leave_nothing_behind_and_late_answers_are_dropped(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:
        release = asyncio.Event()

        async def answer(request: DirectedEvent, kind: str, payload: Json) -> None:
            await release.wait()
            await d.far.relays.publish(reply(BOB, request, kind, payload, now=time.time()))

        d.far.answer = answer
        calls = [asyncio.create_task(d.ask()) for _ in range(5)]
        await until(lambda: len(d.far.served) == 5)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert d.caller.pending_count == 0
        release.set()
        d.far.answer = None
        assert (await d.ask())["content"] == "Bern: 17°C"
        await until(lambda: d.caller.dropped.get("answer", 0) == 5)


async def test_calls_at_once_are_bounded_and_what_cannot_be_sent_is_said_so(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url, max_calls=3) as d:

        async def never(_request: DirectedEvent, _kind: str, _payload: Json) -> None:
            await asyncio.Event().wait()

        d.far.answer = never
        calls = [asyncio.create_task(d.ask()) for _ in range(3)]
        await until(lambda: d.caller.pending_count == 3)
        with pytest.raises(OutboxFull, match="at most 3 may be"):
            await d.ask()
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(UsageError, match="1048576 is the most"):
            await d.ask(payload={"location": "x" * (2 << 20)})
        assert d.caller.pending_count == 0


async def test_a_replayed_update_is_told_once_and_a_flood_of_them_not_at_all(tmp_path: Path) -> None:
    # A clock that stands still makes no room for more.
    now = time.time()
    async with (
        hostile_relay(tmp_path) as (relay, proxy),
        caller_and_endpoint(proxy.url, relay.url, clock=lambda: now) as d,
    ):
        received: list[Json] = []
        following = await d.caller.follow(
            PEER,
            STATIONS.kind,
            {"uri": "weather://stations/bern"},
            updated_kind="weather.resource.updated",
            on_update=received.append,
            relays=d.relays,
            timeout_seconds=HANG_SECONDS,
        )
        assert following.contents["contents"][0]["text"] == "17"
        proxy.mangle = lambda from_relay, message: [message] * (3 if from_relay else 1)
        await d.far.change(21)
        await until(lambda: received)
        await d.ask()
        assert [each["contents"][0]["text"] for each in received] == ["21"]
        proxy.mangle = lambda _from_relay, message: [message]
        for n in range(150):
            await d.far.change(n)
        await d.ask()
        assert len(received) == UPDATES_BURST
        following.close()
        before = len(received)
        await d.far.change(99)
        await d.ask()
        assert len(received) == before


async def test_an_update_by_another_key_or_of_another_conversation_is_none(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:
        received: list[Json] = []
        following = await d.caller.follow(
            PEER,
            STATIONS.kind,
            {"uri": "weather://stations/bern"},
            updated_kind="weather.resource.updated",
            on_update=received.append,
            relays=d.relays,
            timeout_seconds=HANG_SECONDS,
        )
        (request,) = d.far.followers.values()
        right: dict[str, Any] = {
            "kind": "weather.resource.updated",
            "correlation_id": request.correlation_id,
            "in_reply_to": following.id,
        }
        # As a hostile relay would hand them over.
        for signer, wrong in (
            (EVE, {}),
            (BOB, {"correlation_id": "c-2"}),
            (BOB, {"in_reply_to": "0" * 64}),
            (BOB, {"in_reply_to": None}),
            (BOB, {"kind": "weather.other.updated"}),
        ):
            options = right | wrong
            forged = compose(
                signer,
                options.pop("kind"),
                {"uri": "x", "contents": []},
                recipient=ALICE.key.text,
                enc_key=ALICE.enc_key.text,
                now=time.time(),
                **options,
            )
            d.caller.receive(forged.raw)
        assert received == []
        await d.far.change(5)
        await until(lambda: received)
        assert len(received) == 1


async def test_a_revoked_endpoint_is_neither_asked_nor_believed(tmp_path: Path) -> None:
    revoked: set[str] = set()
    async with (
        relay_in(tmp_path) as relay,
        caller_and_endpoint(relay.url, is_revoked=lambda key, _: key in revoked) as d,
    ):

        async def answer(request: DirectedEvent, kind: str, payload: Json) -> None:
            revoked.add(BOB.key.text)
            await d.far.relays.publish(reply(BOB, request, kind, payload, now=time.time()))

        d.far.answer = answer
        asking = asyncio.create_task(d.ask())
        await until(lambda: d.caller.dropped)
        assert not asking.done()
        asking.cancel()
        with pytest.raises(EndpointFault, match="revoked"):
            await d.ask()
        assert len(d.far.served) == 1


async def test_errors_of_strangers_are_read_within_bounds(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay, caller_and_endpoint(relay.url) as d:
        report: list[Json] = [
            {"code": "RATE_LIMITED", "message": "later", "retry_after": 2.5},
            {"code": "RATE_LIMITED", "message": "later", "retry_after": -1},
            {"code": "X" * 500, "message": "\x1b[2J token=abcdefghijkl " + "y" * 9_000},
            {"message": "no code"},
            ["no", "object"],
        ]
        faults: list[Fault] = []
        for payload in report:

            async def answer(request: DirectedEvent, _kind: str, _payload: Json, say: Json = payload) -> None:
                await d.far.relays.publish(reply(BOB, request, "xp.error", say, now=time.time()))

            d.far.answer = answer
            with pytest.raises(EndpointFault) as caught:
                await d.ask()
            faults.append(fault_of(caught.value))
        assert [(each.code[:12], each.retry_after) for each in faults] == [
            ("RATE_LIMITED", 2.5),
            ("RATE_LIMITED", None),
            ("XXXXXXXXXXXX", None),
            ("INTERNAL", None),
            ("INTERNAL", None),
        ]
        assert len(faults[2].code) == 64
        assert "abcdefghijkl" not in faults[2].message
        assert "\x1b" not in faults[2].message
        assert len(faults[2].message) <= 1_000
