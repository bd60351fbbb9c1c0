"""The members of a space meet at one gateway of several, in whatever order each was given the addresses."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import AsyncExitStack

import httpx

from moot.net.address_order import order_addresses
from moot.participant import connect
from moot.participant.joined_space import JoinedSpace
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.cluster.test_shards import LAB, SHARDS, SPACES, node
from tests.gateway.running_gateway import LocalGateway, space_settings
from tests.waiting import HANG_SECONDS, bounded, until

MANY: dict[str, Json] = {f"s{number}": space_settings(PEOPLE) for number in range(10)}


async def started(
    stack: AsyncExitStack, start: StartGateway, *names: str, spaces: Json = SPACES
) -> list[LocalGateway]:
    return [await stack.enter_async_context(start(name, cluster=SHARDS, spaces=spaces)) for name in names]


def gateway_of(member: JoinedSpace) -> str:
    return member._session.link.url


async def test_all_members_of_a_space_are_at_one_gateway_and_the_spaces_are_spread(
    start: StartGateway,
) -> None:
    async with bounded(), AsyncExitStack() as stack:
        gateways = await started(stack, start, "a", "b", "c", spaces=MANY)
        urls = [each.url for each in gateways]
        orders = itertools.cycle(itertools.permutations(urls))
        for space in MANY:
            preferred = order_addresses(urls, node(gateways[0]).shard_of(space).index)[0]
            for name in PEOPLE:
                given = ",".join(next(orders))
                member = await stack.enter_async_context(connect(given, space, f"t-{name}"))
                assert gateway_of(member) == preferred
            sessions = Counter(
                url
                for url, each in zip(urls, gateways, strict=True)
                for _ in each.gateway.directory.hosts[space].delivery.sessions
            )
            assert sessions == {preferred: len(PEOPLE)}


async def test_nobody_sees_a_member_come_twice(start: StartGateway) -> None:
    async with bounded(), AsyncExitStack() as stack:
        gateways = await started(stack, start, "a", "b")
        watcher = await gateways[0].join("carol")
        for order in itertools.permutations(each.url for each in gateways):
            async with connect(",".join(order), "lab", "t-alice"):
                assert (await watcher.hear("system/presence"))["payload"]["event"] == "join"
            assert (await watcher.hear("system/presence"))["payload"]["event"] == "leave"


async def test_who_loses_the_second_gateway_goes_back_to_the_first(start: StartGateway) -> None:
    async with bounded(), AsyncExitStack() as stack:
        gateways = await started(stack, start, "a", "b", "c")
        by_url = {each.url: each for each in gateways}
        order = order_addresses(by_url, LAB)
        alice = await stack.enter_async_context(connect(",".join(by_url), "lab", "t-alice"))
        for left, expected in ((order[0], order[1]), (order[1], order[0])):
            await node(by_url[left]).leave(LAB)
            await until(lambda expected=expected: gateway_of(alice) == expected)  # type: ignore[misc]
            await alice.ready(HANG_SECONDS)
            await node(by_url[left]).serve(LAB)


async def test_a_gateway_that_is_silent_is_not_asked_again_before_the_others(start: StartGateway) -> None:
    async with bounded(), AsyncExitStack() as stack:
        (a,) = await started(stack, start, "a")
        # Nobody is at these ports, which are a quarter or so of all first places.
        nobody = [f"http://127.0.0.1:{port}" for port in range(1, 4)]
        alice = await stack.enter_async_context(connect(",".join([*nobody, a.url]), "lab", "t-alice"))
        assert (gateway_of(alice), alice._session.link._urls[0]) == (a.url, a.url)


async def test_a_gateway_tells_the_shard_of_a_space_and_whether_it_serves_it(start: StartGateway) -> None:
    async with bounded(), AsyncExitStack() as stack:
        a, b = await started(stack, start, "a", "b")

        async def ready(space: str) -> tuple[int, Json]:
            answer = await a.http.get("/readyz", params={"space": space})
            return answer.status_code, answer.json()

        assert await ready("lab") == (200, {"status": "ready", "shard": LAB})
        assert await ready("other") == (200, {"status": "ready", "shard": 0})
        assert await ready("") == (200, {"status": "ready"})
        assert await shards_told(a) == {"lab": LAB, "other": 0}
        await node(a).leave(LAB)
        status, body = await ready("lab")
        assert (status, body["status"], body["shard"]) == (503, "not_served", LAB)
        assert (await ready("other"))[0] == 200
        assert await shards_told(b) == {"lab": LAB, "other": 0}


async def test_where_all_is_one_shard_the_order_that_was_given_stands(start: StartGateway) -> None:
    async with bounded(), start("a") as a, start("b") as b:
        assert (await a.http.get("/readyz", params={"space": "lab"})).json() == {"status": "ready"}
        for first, second in ((a, b), (b, a)):
            async with connect(f"{first.url},{second.url}", "lab", "t-alice") as alice:
                assert gateway_of(alice) == first.url


async def shards_told(gateway: LocalGateway) -> dict[str, int]:
    answer: httpx.Response = await gateway.http.get("/spaces", headers={"Authorization": "Bearer t-alice"})
    return {each["name"]: each["shard"] for each in answer.json()["spaces"]}
