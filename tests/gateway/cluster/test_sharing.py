"""A cluster with `serves: shared` divides its shards by itself while gateways come, end, die or are cut off:
nothing is lost, doubled or swapped, and no shard is left to nobody."""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import msgspec
import pytest

from moot.cli.gateway.cluster import service_of
from moot.config.cluster_config import ClusterConfig
from moot.errors import InvalidOperation, UsageError
from moot.gateway.cluster import cluster_status, shard_shares, shard_sharing
from moot.gateway.cluster.nats import served_exchange, status_exchange
from moot.gateway.cluster.shard_shares import server_of
from moot.gateway.cluster.shard_sharing import ShardSharing, place_of
from moot.gateway.created_spaces import CLUSTER_FILE
from moot.net.address_order import normal_address, order_addresses
from moot.participant import connect
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from tests.gateway.cluster.conftest import PEOPLE, StartGateway, set_bounds
from tests.gateway.cluster.histories import faults_of
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.cluster.test_shards import chats, get, node, refused, report
from tests.gateway.cluster.test_start_together import die
from tests.gateway.running_gateway import LocalGateway, fresh_id, running_gateway, space_settings
from tests.gateway.running_gateway import fields as envelope
from tests.waiting import HANG_SECONDS, bounded, until

# Of two gateways a has the first six of its shards and b the rest; `lab` is in the seventh.
COUNT = 10
SHARED: dict[str, Json] = {"serves": "shared", "shards": COUNT, "snapshot_inputs": 100}
LAB = 1 + zlib.crc32(b"lab") % (COUNT - 1)
SPACES: dict[str, Json] = {name: space_settings(PEOPLE) for name in ("lab", "s1", "s2", "s3", "s4", "s5")}


@pytest.fixture(autouse=True)
def _soon_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_shares, "STEADY_SECONDS", 0.5)
    # However slow the machine, whoever stops is waited for.
    monkeypatch.setattr(shard_sharing, "HAND_OVER_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(cluster_status, "_ANSWER_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(status_exchange, "_GONE_SECONDS", 0.1)


def serving(*gateways: LocalGateway) -> dict[int, list[str]]:
    """Who serves each shard now."""
    return {
        index: [node(each).name for each in gateways if node(each).shards[index].state == "served"]
        for index in range(COUNT)
    }


def shared_by(*gateways: LocalGateway) -> Callable[[], bool]:
    """Whether each serves its share, and nothing else."""
    places = {node(each).name: node(each).name for each in gateways}
    wanted = {index: [str(server_of(index, places))] for index in range(1, COUNT)}
    return lambda: serving(*gateways) == wanted | {0: list(places)}


def sharing(gateway: LocalGateway) -> ShardSharing:
    found = node(gateway).sharing
    assert found is not None
    return found


class Talk:
    """Members who talk by HTTP at whichever gateway runs, and one of the SDK; what was acknowledged."""

    def __init__(self) -> None:
        self.gateways: dict[str, LocalGateway] = {}
        self.acknowledged: list[str] = []

    async def _talk(self, start: int) -> None:
        while True:
            id = fresh_id()
            for number in itertools.count(start):
                running = list(self.gateways.values())
                gateway = running[number % len(running)]
                # One that has just ended takes nothing more.
                with suppress(httpx.HTTPError, RuntimeError):
                    said = envelope("chat", {"text": id}, id=id)
                    answer = await gateway.post("alice", said, space="lab")
                    if answer.status_code == 200 or answer.json()["error"] == "duplicate_id":
                        break
                    assert answer.status_code >= 500, answer.text
                await asyncio.sleep(0.01)
            self.acknowledged.append(id)

    async def more(self) -> None:
        """Wait until members were acknowledged some more."""
        before = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) > before + 20)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        talking = [asyncio.create_task(self._talk(start)) for start in range(3)]
        try:
            yield
        finally:
            for task in talking:
                task.cancel()
            ended = await asyncio.gather(*talking, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    def faults(self, *folders: Path) -> list[str]:
        journals = [chats(folder) for folder in folders]
        merged = sorted(itertools.chain(*journals), key=lambda each: each["t"])
        histories = {"log": list(dict.fromkeys(each["id"] for each in merged))}
        histories |= {f"journal {n}": [each["id"] for each in found] for n, found in enumerate(journals)}
        return faults_of(histories, self.acknowledged, whole="log")


async def test_gateways_that_come_and_end_move_their_shares_under_load_and_nothing_is_lost(
    start: StartGateway, tmp_path: Path
) -> None:
    talk = Talk()
    async with bounded(), AsyncExitStack() as stack:

        async def come(name: str) -> tuple[LocalGateway, AsyncExitStack]:
            own = await stack.enter_async_context(AsyncExitStack())
            gateway = await own.enter_async_context(start(name, cluster=SHARED, spaces=SPACES))
            talk.gateways[name] = gateway
            return gateway, own

        a, _ = await come("a")
        assert serving(a) == {index: ["a"] for index in range(COUNT)}, "who is alone serves all"
        async with talk.running(), connect(a.url, "lab", "t-bob") as bob:
            b, of_b = await come("b")
            await until(shared_by(a, b))
            assert serving(a, b)[LAB] == ["b"], "they talk in a shard that moves"
            await talk.more()
            c, _ = await come("c")
            await until(shared_by(a, b, c))
            await talk.more()
            assert (await report(a, compare="true"))["problems"] == []
            # It ends when others serve its share, and then nobody asks it any more.
            del talk.gateways["b"]
            await of_b.aclose()
            assert all(serving(a, c).values()), "nobody was left without a gateway"
            await until(shared_by(a, c))
            await talk.more()
            await bob.ready(HANG_SECONDS)
            await bob.chat("still here")
        assert (await report(c, compare="true"))["problems"] == []
    assert talk.faults(*(tmp_path / name for name in "abc")) == []


async def test_nobody_leaves_a_shard_before_the_one_that_comes_serves_it(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(), start("a", cluster=SHARED, spaces=SPACES) as a:
        async with start("b", cluster=SHARED, spaces=SPACES) as b:
            # b has begun with its share before it takes anybody in; a serves all of it until it is told.
            share = {index for index in range(1, COUNT) if server_of(index, {"a": "a", "b": "b"}) == "b"}
            assert {shard.index for shard in node(b).served} == share | {0}
            await until(shared_by(a, b))
            # To one that the shard's log does not know nothing is left, whatever it told.
            mine = next(index for index in range(1, COUNT) if index not in share)
            with pytest.raises(InvalidOperation, match="no other gateway serves"):
                await node(a).leave(mine, "b")
        await until(lambda: all(serving(a).values()))


async def test_one_that_was_killed_is_followed_by_those_that_are_next(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(), AsyncExitStack() as stack:
        a, b, c = [
            await stack.enter_async_context(start(name, cluster=SHARED, spaces=SPACES)) for name in "abc"
        ]
        await until(shared_by(a, b, c))
        die(b)
        # It says nothing more, and hands nothing over.
        monkeypatch.setattr(node(b)._exchange, "_client", SimpleNamespace(is_connected=False))
        node(b).is_started = False
        await until(shared_by(a, c))
        await (a if "a" in serving(a, c)[LAB] else c).join("alice")


async def test_who_reaches_none_of_those_that_serve_a_shard_serves_it_for_a_while(
    start: StartGateway,
) -> None:
    async with bounded(), AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(start(name, cluster=SHARED)) for name in "ab"]
        await until(shared_by(a, b))
        elsewhere = [index for index in range(1, COUNT) if serving(a, b)[index] == ["b"]]
        node(a).note_unreachable(elsewhere[0], ["b"])
        await until(lambda: all(serving(a, b)[index] == ["a", "b"] for index in elsewhere))
        # It still tells that it serves.
        await until(shared_by(a, b))


async def test_who_is_to_be_relayed_to_one_that_was_killed_waits_for_those_that_are_next(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request tells all of them; nobody waits until the dead one has told nothing for long."""
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", HANG_SECONDS)
    async with bounded(), AsyncExitStack() as stack:
        a, b, c = [
            await stack.enter_async_context(start(name, cluster=SHARED, spaces=SPACES)) for name in "abc"
        ]
        await until(shared_by(a, b, c))
        dead = next(each for each in (a, b, c) if serving(a, b, c)[LAB] == [node(each).name])
        first, second = (each for each in (a, b, c) if each is not dead)
        await until(lambda: node(first).relay_addresses(LAB) and node(second).relay_addresses(LAB))
        die(dead)
        monkeypatch.setattr(node(dead)._exchange, "_client", SimpleNamespace(is_connected=False))
        node(dead).is_started = False
        await dead.gateway._listener.stop()  # type: ignore[union-attr]  # it runs
        for each in (first, second):
            said = await each.post("alice", envelope("chat", {"text": "here"}), space="lab")
            assert said.status_code == 200, said.text
        # Each begins with its part of the share, and with nothing else.
        await until(shared_by(first, second))


async def test_one_that_does_not_reach_nats_moves_nothing(
    nats: NatsServers, start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        bounded(),
        proxied(nats) as (proxy, address),
        start("a", cluster=SHARED) as a,
        start("b", cluster=SHARED | {"servers": [address]}) as b,
    ):
        await until(shared_by(a, b))
        before = {shard.index for shard in node(b).served}
        proxy.part()
        await until(lambda: not node(b)._exchange.sharers())
        assert not any(sharing(b)._moves())
        # Nor with the smaller part of NATS, where it hears itself alone.
        with monkeypatch.context() as alone:
            alone.setattr(
                node(b)._exchange, "sharers", lambda: {"b": shard_shares.Sharer("b", time.monotonic(), {})}
            )
            assert sharing(b)._moves().begin
            set_bounds(b, unavailable_seconds=0.2)
            assert not await sharing(b)._reaches_log()
            assert {shard.index for shard in node(b).served} == before
            set_bounds(b, unavailable_seconds=HANG_SECONDS)
        # The others serve its share meanwhile, and it is there again.
        await until(lambda: serving(a)[LAB] == ["a"] and all(serving(a).values()))
        proxy.heal()
        await until(shared_by(a, b))


async def test_operators_empty_a_gateway_and_it_stays_empty_while_another_one_is_there(
    start: StartGateway,
) -> None:
    async with bounded(), start("a", cluster=SHARED) as a:
        async with start("b", cluster=SHARED) as b:
            await until(shared_by(a, b))
            mine = [index for index in range(1, COUNT) if serving(a, b)[index] == ["a"]]
            for index in mine:
                answer = await a.admin("DELETE", f"cluster/shards/{index}", gateway="a")
                assert answer.json()["changed"]
            assert answer.json()["serves"] == [0]
            assert "every gateway serves shard 0" in await refused(a, "DELETE", "0")
            assert all(serving(b).values())
            told = await report(b)
            assert told["problems"] == []
            assert [each["share_of"] for each in told["nats"]["streams"][1:]] == ["b"] * (COUNT - 1)
            assert (await a.admin("POST", f"cluster/shards/{mine[0]}")).json()["changed"]
            await until(lambda: serving(a, b)[mine[0]] == ["a"])
        # Nobody else is left.
        await until(lambda: all(serving(a).values()))


async def test_what_no_other_gateway_begins_with_is_served_on(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(), start("a", cluster=SHARED) as a:
        monkeypatch.setattr(shard_sharing, "HAND_OVER_SECONDS", 0.1)
        assert "no other gateway has begun with shard 2" in await refused(a, "DELETE", "2")
        assert serving(a)[2] == ["a"]
        assert not sharing(a).refuses


async def test_if_its_gateway_cannot_serve_a_shard_the_next_one_does(
    start: StartGateway, tmp_path: Path
) -> None:
    async with bounded(), AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(start(name, cluster=SHARED)) for name in "ab"]
        await until(shared_by(a, b))
        # It served alone, and somebody put the folder of another space there since.
        mark = tmp_path / "a" / "data" / "spaces" / "lab" / CLUSTER_FILE
        before = mark.read_bytes()
        mark.write_text("another")
        node(a).note_unreachable(LAB, ["b"])
        await until(lambda: LAB in sharing(a).refuses)
        assert serving(a, b)[LAB] == ["b"], "the one that can serves on"
        mark.write_bytes(before)


async def test_on_a_new_log_nobody_goes_on_with_a_copy_that_may_be_old(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path
) -> None:
    """NATS has lost everything: another gateway may have served the space last, and removed somebody."""
    after = SHARED | {"name": f"{settings['name']}-after"}
    async with bounded():
        async with start("a", cluster=SHARED) as a:
            alice = await a.join("alice")
            await alice.ask("space/kick", {"participant_id": "bob"})
        with pytest.raises(UsageError, match="another gateway may have served later"):
            async with start("a", cluster=after):
                pass
        # An operator has looked which one is the newest.
        (tmp_path / "a" / "data" / "spaces" / "lab" / CLUSTER_FILE).unlink()
        async with start("a", cluster=after) as a:
            assert (await get(a, "/spaces/lab/history", "t-bob")).status_code == 401
            assert (await get(a, "/spaces/lab/history", "t-alice")).status_code == 200


async def test_all_gateways_of_a_cluster_agree_on_who_serves(
    start: StartGateway, settings: dict[str, Json], tmp_path: Path
) -> None:
    for made, given in (("shared", "all"), ("all", "shared")):
        cluster: dict[str, Json] = settings | {"name": f"{settings['name']}-{made}", "shards": 4}
        async with start("a", cluster=cluster | {"serves": made}):
            folder = tmp_path / f"b-{made}"
            folder.mkdir()
            with pytest.raises(
                UsageError, match=f"gateway.cluster.serves {made}, and this gateway has {given}"
            ):
                async with running_gateway(
                    folder, PEOPLE, cluster=cluster | {"serves": given, "gateway": "b"}
                ):
                    pass


@pytest.mark.parametrize(
    ("served_by", "begins_at", "share_of", "shown"),
    [
        (["a"], [], "a", "a"),
        (["a", "b"], [], None, "a, b"),
        (["a"], ["b"], "b", "a → b"),
        (["a"], [], "b", "a → b"),
        (["a", "b"], [], "b", "a → b"),
        ([], ["b"], "b", "– → b"),
        ([], [], None, "–"),
    ],
)
def test_the_status_of_a_cluster_says_who_serves_and_to_whom_it_moves(
    served_by: list[str], begins_at: list[str], share_of: str | None, shown: str
) -> None:
    stream = {"served_by": served_by, "begins_at": begins_at, "share_of": share_of}
    assert service_of(stream) == shown
    assert service_of({}) == "–"


def test_members_and_gateways_draw_from_the_same_address_where_it_begins_with_the_gateways_name() -> None:
    addresses = ("https://A.example:8443/", "https://b.example", "http://10.0.0.1:8080")
    config = ClusterConfig(servers=("nats://n",), addresses=addresses)
    places = {name: place_of(config, name) for name in ("a", "b", "c")}
    assert places == {"a": "https://a.example:8443", "b": "https://b.example", "c": "c"}
    for shard in range(1, 16):
        first = order_addresses(addresses[:2], shard)[0]
        server = server_of(shard, {"a": places["a"], "b": places["b"]})
        assert normal_address(first) == places[str(server)]


def test_what_is_told_of_a_shard_has_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steady is who has told it each time, and fresh who has told within three seconds."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    exchange = served_exchange.ServedExchange(None, "", lambda: None)  # type: ignore[arg-type, return-value]

    def told(*shards: int) -> None:
        exchange.note(served_exchange.ServedShards("b", frozenset(shards)))

    told(1, 2)
    now = 102.0
    told(2, 3)
    assert exchange.sharers()["b"].serves == {2: 100.0, 3: 102.0}
    now = 105.5
    assert exchange.sharers() == {}
    told(2)
    assert exchange.sharers()["b"].serves == {2: 105.5}
    # Whoever somebody fails to reach is believed again later.
    exchange.note(served_exchange.ServedShards("c", frozenset(), lost=frozenset({"b", "z"})))
    told(2)
    assert exchange.sharers().keys() == {"c"}
    now = 108.6
    told(2)
    exchange.note_lost("b")
    assert exchange.sharers() == {}
    now = 111.7
    # What it told before says nothing of a process that is started there since.
    assert exchange.gateways_of(2) == []
    told(2)
    assert exchange.gateways_of(2) == ["b"]


def test_gateways_that_are_gone_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each start has another name."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(served_exchange, "_MAX_GATEWAYS", 2)
    exchange = served_exchange.ServedExchange(None, "", lambda: None)  # type: ignore[arg-type, return-value]
    for name in "abc":
        exchange.note(served_exchange.ServedShards(name, frozenset({1})))
    assert exchange.sharers().keys() == {"a", "b"}
    now = 110.0
    exchange.note_lost("b")
    exchange.note(served_exchange.ServedShards("c", frozenset({1})))
    assert exchange.sharers().keys() == {"c"}


async def test_who_was_not_reached_while_nobody_could_be_told_is_not_called_lost_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway that was cut off reached nobody: others would take over what is served all the time."""
    monkeypatch.setattr(served_exchange, "_TELL_SECONDS", 0.01)
    monkeypatch.setattr(served_exchange, "FRESH_SECONDS", 0.0)
    told: asyncio.Queue[bytes] = asyncio.Queue()

    async def publish(_subject: str, data: bytes) -> None:
        told.put_nowait(data)

    async def subscribe(_subject: str, **_: object) -> None: ...

    client = SimpleNamespace(is_connected=False, publish=publish, subscribe=subscribe)
    own = served_exchange.ServedShards("a", frozenset())
    exchange = served_exchange.ServedExchange(client, "", lambda: own)  # type: ignore[arg-type]
    exchange.note(served_exchange.ServedShards("b", frozenset({1})))
    tasks = TaskSet("told")
    await exchange.start(tasks)
    exchange.note_lost("b")
    await asyncio.sleep(0)
    client.is_connected = True
    async with bounded():
        assert msgspec.json.decode(await told.get(), type=served_exchange.ServedShards) == own
    await tasks.close()
