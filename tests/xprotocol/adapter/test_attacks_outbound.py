"""Direction 2 under attack: endpoints, hosts and relays that lie, and clients that ask too much."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml

from moot.errors import McpError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.adapter import Adapter
from moot.xprotocol.adapter.config.config_loader import read_settings
from moot.xprotocol.events.event_composer import compose, reply
from moot.xprotocol.events.events import DirectedEvent
from tests.waiting import HANG_SECONDS
from tests.xprotocol.adapter.outbound_environment import (
    OutboundEnvironment,
    open_outbound,
    outbound_environment,
    source,
)
from tests.xprotocol.adapter.stub_endpoint import ALL, stub_endpoint
from tests.xprotocol.endpoint.hostile_relay import hostile_relay
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE, signed_by
from tests.xprotocol.relay.raw_client import relay_in

PLACES = (
    "127.0.0.1:{port}", "2130706433:{port}", "0x7f000001:{port}", "0177.0.0.1:{port}", "127.1:{port}",
    "0.0.0.0:{port}", "0:{port}", "[::1]:{port}", "[::]:{port}", "[::ffff:127.0.0.1]:{port}",
    "[::ffff:7f00:1]:{port}", "[64:ff9b::7f00:1]:{port}", "[::127.0.0.1]:{port}", "[fe80::1]:{port}",
    "localhost:{port}", "localhost.:{port}", "LOCALHOST:{port}", "①②⑦.0.0.1:{port}", "127。0。0。1:{port}",
    "169.254.169.254", "[fd00:ec2::254]", "user@127.0.0.1:{port}", "127.0.0.1:{port}/x",
    "127.0.0.1:{port}#@x", "127.0.0.1%00.example:{port}", "a\\@127.0.0.1:{port}",
)  # fmt: skip


async def test_no_spelling_of_a_private_address_is_ever_connected_to(tmp_path: Path) -> None:
    """A whole adapter whose sources lead home by name; somebody listens there, and hears nothing."""
    received: list[bytes] = []

    async def canary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1_000))
        writer.close()

    homes = [await asyncio.start_server(canary, "127.0.0.1", 0)]
    port = homes[0].sockets[0].getsockname()[1]
    if socket.has_ipv6:
        with suppress(OSError):
            homes.append(await asyncio.start_server(canary, "::1", port))
    async with relay_in(tmp_path / "relay") as relay:
        refused, sources = 0, []
        for n, place in enumerate(PLACES):
            one: dict[str, Json] = {"name": f"s{n}", "endpoint": f"xp://{place.format(port=port)}"}
            if read_settings(written(tmp_path, relay.url, [one]), environ={}).problems:
                refused += 1
            else:
                sources.append(one)
        loaded = read_settings(written(tmp_path, relay.url, sources), environ={})
        assert loaded.settings is not None
        assert refused >= 5
        async with Adapter(loaded.settings, environ={}) as adapter:
            await adapter.outbound.wait_settled(HANG_SECONDS)
            for each in adapter.outbound.health():
                assert each["state"] != "up", each
                assert each.get("fault") or each.get("trouble") or each.get("reason"), each
    for home in homes:
        home.close()
    assert received == []


def written(folder: Path, relay: str, sources: list[dict[str, Json]]) -> Path:
    file = folder / "adapter.yml"
    document: dict[str, Json] = {
        "identity": {"key_file": str(folder / "keys" / "adapter.key")},
        "relay": {"urls": [relay]},
        "discovery": {"well_known_port": 0},
        "mcp_server": {"transport": "none"},
        "xprotocol_sources": sources,
    }
    file.write_text(yaml.safe_dump(document, allow_unicode=True))
    return file


async def test_a_relay_between_that_repeats_reorders_and_forges_mixes_up_no_answers(tmp_path: Path) -> None:
    random = Random(11)
    held: list[bytes] = []

    def mangled(from_relay: bool, message: bytes) -> list[bytes]:
        if not from_relay or not message.startswith(b'["EVENT"'):
            return [message]
        out = [message.replace(b'"kind":"weather', b'"kind":"leather', 1), message]
        out += [message] * random.randrange(3)
        if random.random() < 0.3:
            held.append(out.pop())
        elif held:
            out.append(held.pop(0))
        return out

    async with (
        hostile_relay(tmp_path / "relay") as (relay, proxy),
        stub_endpoint(relay.url, BOB, caller=ALICE) as far,
        open_outbound(proxy.url, source(proxy.url)) as outward,
    ):
        await outward.wait_settled(HANG_SECONDS)
        proxy.mangle = mangled
        environment = OutboundEnvironment(relay, far, outward, [])
        before = len(far.served)
        places = [f"Place {n}" for n in range(20)]
        results = await asyncio.gather(
            *(environment.call("weather_current_get", location=place) for place in places)
        )
        assert [each["content"][0]["text"] for each in results] == [f"{p}: 17°C" for p in places]
        assert len(far.served) == before + 20


async def test_answers_of_others_and_to_others_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bob's endpoint is silent; everybody else answers for him, in every way they can."""
    with caplog.at_level(logging.WARNING):
        async with outbound_environment(tmp_path, call_timeout_seconds=2) as out:
            forged: dict[str, Json] = {"content": "forged"}
            old: list[DirectedEvent] = []

            async def others(request: DirectedEvent, kind: str, _payload: Json) -> None:
                for liar in (EVE, CAROL):
                    await say(reply(liar, request, kind, forged, now=request.timestamp))
                    # Somebody else's name over it, which the relay would refuse: straight to the ear.
                    made = reply(liar, request, kind, forged, now=request.timestamp)
                    out.outward.caller.receive(signed_by(liar, made.covered | {"sender": BOB.key.text}))
                # Bob himself, but about another request, and in another conversation.
                for about, conversation in (("0" * 64, request.correlation_id), (request.id, "another")):
                    await say(
                        compose(
                            BOB,
                            kind,
                            forged,
                            recipient=request.sender,
                            enc_key=request.sender_enc_key,
                            now=request.timestamp,
                            in_reply_to=about,
                            correlation_id=conversation,
                        )
                    )
                old.append(request)
                if len(old) > 1:
                    # A true answer to an earlier request.
                    await say(reply(BOB, old[0], kind, forged, now=request.timestamp))

            async def say(signed: Any) -> None:
                await out.far.relays.publish(signed)

            out.far.answer = others
            for _ in range(2):
                with pytest.raises(McpError) as caught:
                    await out.call("weather_current_get", location="Bern")
                assert caught.value.code == -32603
                assert "forged" not in str(caught.value)
            out.far.answer = None
            (place,) = out.outward.sources
            place.settings = msgspec.structs.replace(place.settings, call_timeout_seconds=HANG_SECONDS)
            fine = await out.call("weather_current_get", location="Bern")
            assert fine["content"][0]["text"] == "Bern: 17°C"
            assert out.outward.caller.pending_count == 0
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_following_all_that_can_be_followed_leaves_room_for_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template stands for any number of resources; a client that follows them must not stop the others."""
    monkeypatch.setattr("moot.xprotocol.adapter.outbound.outbound.MAX_OUTBOUND_CALLS", 8)
    async with (
        relay_in(tmp_path / "relay") as relay,
        stub_endpoint(relay.url, BOB, *ALL, caller=ALICE) as far,
        open_outbound(relay.url, source(relay.url)) as outward,
    ):
        await outward.wait_settled(HANG_SECONDS)
        environment = OutboundEnvironment(relay, far, outward, [])
        for n in range(20):
            await outward.backend.subscribe(f"weather://stations/s{n}")
        result = await environment.call("weather_current_get", location="Bern")
        assert result["content"][0]["text"] == "Bern: 17°C"
        for n in range(20):
            await outward.backend.unsubscribe(f"weather://stations/s{n}")
        assert outward.caller.pending_count == 0


async def test_an_endpoint_that_answers_with_anything_at_all_ends_in_a_result_or_an_error(
    tmp_path: Path,
) -> None:
    deep: Json = "x"
    for _ in range(50):
        deep = {"a": deep}
    answers: list[Json] = [
        None, 1, "x", [], {}, deep, {"content": None}, {"content": [1]}, {"content": {"a": 1}},
        {"content": "x", "encoding": "base64"}, {"content": "%%", "encoding": "base64"},
        {"content": "x" * 600_000}, {"isError": "yes"}, {"content": "\x1b[2J", "mimeType": 7},
        {"structuredContent": [1]}, {"content": "x", "isError": True, "extra": deep},
    ]  # fmt: skip
    async with outbound_environment(tmp_path) as out:
        answer: Json = None

        async def lying(_event: DirectedEvent, _payload: dict[str, Json]) -> Json:
            return answer

        out.far.handlers["weather.current.get"] = lying
        for answer in answers:
            result: Json = {"content": []}
            fault: McpError | None = None
            try:
                result = await out.call("weather_current_get", location="Bern")
            except McpError as refusal:
                fault = refusal
            assert all(item["type"] for item in result["content"]), answer
            assert fault is None or fault.code in (-32600, -32602, -32603), answer
            assert len(str(fault)) < 1_000
