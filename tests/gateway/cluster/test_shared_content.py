"""Large values in a cluster: any gateway keeps them, and any other gives them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from nats.js.api import StreamState

from moot.gateway.cluster.nats import shared_content
from moot.gateway.http import content_routes
from moot.participant import connect
from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway, space_settings
from tests.waiting import HANG_SECONDS, until, until_told

LARGE = "0123456789" * 300_000


async def send(
    gateway: LocalGateway, data: bytes, *, who: str = "alice", space: str = "lab"
) -> httpx.Response:
    headers = {"Authorization": f"Bearer t-{who}"}
    return await gateway.http.post(f"/spaces/{space}/content", content=data, headers=headers)


async def fetch(
    gateway: LocalGateway, data: bytes, *, who: str = "bob", space: str = "lab"
) -> httpx.Response:
    headers = {"Authorization": f"Bearer t-{who}"}
    digest = sha256(data).hexdigest()
    return await gateway.http.get(f"/spaces/{space}/content/{digest}", headers=headers)


async def test_large_arguments_and_results_pass_between_members_of_two_gateways(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b, AsyncExitStack() as stack:
        alice = await stack.enter_async_context(connect(a.url, "lab", "t-alice"))
        bob = await stack.enter_async_context(connect(b.url, "lab", "t-bob"))
        taken: list[int] = []

        @alice.tool
        def double(text: str) -> str:
            taken.append(len(text))
            return text + text

        await bob.roster.wait_for("alice")
        proposal = await bob.propose("alice", "tools/call", {"name": "double", "arguments": {"text": LARGE}})
        seen = await until(lambda: alice.proposals.get(proposal.id))
        assert seen is not None
        shown = seen.params["arguments"]["text"][CONTENT_KEY]
        assert (shown["sha256"], shown["bytes"]) == (sha256(LARGE.encode()).hexdigest(), len(LARGE))
        assert (await bob.call("alice", "double", {"text": LARGE})).text == LARGE + LARGE
        assert taken == [len(LARGE)]


async def test_a_value_is_there_when_the_gateway_that_took_it_is_gone(start: StartGateway) -> None:
    values = [b"", b"x", b"y" * shared_content._PART_BYTES, LARGE.encode()]
    async with start("b") as b:
        async with start("a") as a:
            for data in values:
                answer = await send(a, data)
                assert (answer.status_code, answer.json()["bytes"]) == (201, len(data))
        for data in values:
            answer = await fetch(b, data)
            assert (answer.status_code, answer.content) == (200, data)
            assert answer.headers["content-security-policy"] == "sandbox"


async def test_only_members_of_the_space_send_and_fetch(start: StartGateway) -> None:
    spaces: Json = {"lab": space_settings(PEOPLE), "other": space_settings(participants(dave=["*"]))}
    async with start("a", spaces=spaces) as a, start("b", spaces=spaces) as b:
        assert (await send(a, b"secret", who="dave")).status_code == 403
        assert (await send(a, b"secret")).status_code == 201
        assert (await fetch(b, b"secret", who="dave")).status_code == 403
        assert (await fetch(b, b"secret", who="dave", space="other")).status_code == 404
        assert (await fetch(b, b"another")).status_code == 404
        assert (await fetch(b, b"secret")).content == b"secret"
        alice, bob = await a.join("alice"), await b.join("bob")
        await alice.ask("space/kick", {"participant_id": "bob"})
        await bob.closed()
        assert (await fetch(b, b"secret")).status_code == 401


async def test_a_space_keeps_what_its_limits_allow_and_the_rest_makes_room(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_content, "_PART_BYTES", 100)
    monkeypatch.setattr(shared_content, "_RENEW_SECONDS", 0.0)
    limits: dict[str, Json] = {"max_content_bytes": 400, "max_space_content_bytes": 1_000}
    async with start("a", **limits) as a, start("b", **limits) as b:
        one, two, three, four = (letter * 400 for letter in (b"1", b"2", b"3", b"4"))
        answer = await send(a, b"x" * 401)
        assert answer.status_code == 413
        assert "at most 400 bytes" in answer.json()["message"]
        assert (await send(a, one)).status_code == 201
        assert (await send(b, two)).status_code == 201
        # Used again: the other is now the one that nobody used for longest.
        assert (await fetch(b, one)).content == one
        assert (await send(a, three)).status_code == 201
        assert [(await fetch(a, data)).status_code for data in (two, one, three)] == [404, 200, 200]
        # Sent again, it is kept once.
        assert (await send(b, one)).status_code == 201
        assert (await send(b, four)).status_code == 201
        assert [(await fetch(a, data)).status_code for data in (three, one, four)] == [404, 200, 200]
        assert (await fetch(b, one)).content == one
        assert await _messages(a) == 8, "nothing is left of those that made room"


async def test_of_a_value_that_makes_room_while_it_is_sent_nothing_is_left(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first part is what is counted: the others would stay for ever."""
    monkeypatch.setattr(shared_content, "_PART_BYTES", 20)
    limits: dict[str, Json] = {"max_content_bytes": 20_000, "max_space_content_bytes": 20_000}
    async with start("a", **limits) as a, start("b", **limits) as b:
        assert (await send(b, b"before")).status_code == 201
        sending = asyncio.create_task(send(a, b"3" * 20_000))
        await until_told(partial(has_parts, a, 20))
        assert (await send(b, b"x")).status_code == 201
        assert not sending.done()
        answer = await sending
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert await _messages(a) == 1


async def test_all_spaces_together_leave_room_for_the_log(
    start: StartGateway, settings: dict[str, Json]
) -> None:
    settings["max_content_bytes"] = 3_000
    spaces: Json = {"lab": space_settings(PEOPLE), "other": space_settings(PEOPLE)}
    async with start("a", spaces=spaces) as a:
        assert (await send(a, b"1" * 1_000)).status_code == 201
        assert (await send(a, b"2" * 1_000)).status_code == 201
        refused = await send(a, b"3" * 1_000, space="other")
        assert refused.status_code == 507
        assert "gateway.cluster.max_content_bytes" in refused.json()["message"]
        assert (await send(a, b"4" * 3_001)).status_code == 507
        # A space that has some makes room among its own, and only for what fits then.
        assert (await send(a, b"3" * 1_000)).status_code == 201
        assert [(await fetch(a, each * 1_000)).status_code for each in (b"1", b"2", b"3")] == [404, 200, 200]


async def test_fetching_a_value_that_was_used_lately_writes_nothing(start: StartGateway) -> None:
    async with start("a") as a:
        assert (await send(a, b"x")).status_code == 201
        written = (await _state(a)).last_seq
        for _ in range(5):
            assert (await fetch(a, b"x")).content == b"x"
        assert (await _state(a)).last_seq == written


async def test_a_member_that_fetches_too_often_is_told_to_wait(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_routes, "_FETCH_BURST", 2.0)
    monkeypatch.setattr(content_routes, "_FETCHES_PER_SECOND", 1 / HANG_SECONDS)
    async with start("a") as a:
        assert (await send(a, b"x")).status_code == 201
        assert [(await fetch(a, b"x")).status_code for _ in range(3)] == [200, 200, 429]
        assert (await fetch(a, b"x", who="carol")).status_code == 200


async def test_small_values_are_counted_too(start: StartGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_content, "_MAX_VALUES", 2)
    async with start("a") as a:
        for data in (b"1", b"2", b"3"):
            assert (await send(a, data)).status_code == 201
        assert [(await fetch(a, data)).status_code for data in (b"1", b"2", b"3")] == [404, 200, 200]


async def test_while_nats_cannot_be_reached_the_answer_is_503(
    own_nats: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of the SDK try again then."""
    cluster: dict[str, Json] = {"servers": own_nats.addresses, "replicas": 1, "shards": 1}
    cluster |= {"unavailable_seconds": 200, "stale_seconds": 300}
    async with running_gateway(tmp_path, PEOPLE, cluster=cluster) as a:
        assert (await send(a, b"before")).status_code == 201
        own_nats.kill(0)
        with monkeypatch.context() as patch:
            patch.setattr(shared_content, "_SECONDS", 0.2)
            for answer in (await send(a, b"lost"), await fetch(a, b"before")):
                assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        own_nats.start(0)
        own_nats.wait_healthy()
        assert (await fetch(a, b"before")).content == b"before"
        assert (await send(a, b"after")).status_code == 201


async def _messages(gateway: LocalGateway) -> int:
    """How many parts of values there are."""
    return (await _state(gateway)).messages


async def _state(gateway: LocalGateway) -> StreamState:
    node = gateway.gateway.node
    assert node is not None
    assert node.connection is not None
    return (await node.connection.context.stream_info(f"{node.config.name}-content")).state


async def has_parts(gateway: LocalGateway, count: int) -> bool:
    return await _messages(gateway) >= count
