"""What is larger than one message of NATS: a space, its configuration, an envelope, a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from moot.config import load
from moot.protocol.operation import Json
from moot.space.state_hash import hash_state
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import Client, LocalGateway, participants, write_config
from tests.waiting import until

MANY = PEOPLE | participants(**{f"member{number}": ["chat", "mcp/*"] for number in range(600)})
MAX_PAYLOAD = 64 << 10


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    servers = NatsServers(tmp_path_factory.mktemp("nats"), extra=f"max_payload: {MAX_PAYLOAD}")
    yield servers
    servers.close()


async def test_a_space_and_a_reload_that_do_not_fit_into_a_message_are_the_same_at_all_gateways(
    start: StartGateway, tmp_path: Path
) -> None:
    async with start("a", MANY) as a, start("b", MANY) as b:
        assert len(MANY) * 200 > MAX_PAYLOAD
        alice, member = await a.join("alice"), await b.join("member599")
        await member.ask("chat", {"text": "hello"})
        await alice.hear("chat")
        file = tmp_path / "a" / "moot.yaml"
        settings = yaml.safe_load(file.read_text("utf-8"))
        later = participants(**{f"later{number}": ["chat"] for number in range(600)})
        settings["spaces"]["lab"]["participants"] |= later
        a.gateway.reload(load(write_config(file.parent, settings), environ={}))
        await until(lambda: "later599" in b.gateway.directory.hosts["lab"].space.state.roster.members)
        assert await b.status("/ws?space=lab", token="t-later599") == 101
        await _same_states(alice, a, b)


async def test_an_envelope_that_does_not_fit_into_a_message_has_one_place_in_the_order(
    start: StartGateway,
) -> None:
    """Snapshots are due meanwhile, and whoever begins at one has it, too."""
    cluster: Json = {"snapshot_inputs": 20}
    async with start("a", cluster=cluster) as a, start("b", cluster=cluster) as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        for number in range(12):
            await alice.say("chat", {"text": f"{number}" + "x" * 4 * MAX_PAYLOAD})
            for quick in range(6):
                await bob.say("chat", {"text": f"{number}.{quick}"})
        await alice.fence()
        await bob.fence()
        await until(lambda: alice.kinds().count("chat") == bob.kinds().count("chat") == 84)
        heard = [[m["id"] for m in each.received if m["kind"] == "chat"] for each in (alice, bob)]
        assert heard[0] == heard[1]
        large: dict[str, Json] = {"id": "p", "kind": "chat", "payload": {"text": "y" * 4 * MAX_PAYLOAD}}
        answer = await b.post("carol", large, space="lab")
        assert answer.status_code == 200, answer.text
        assert a.gateway.node is not None
        shard = a.gateway.node.shards[0]
        await until(lambda: shard.stored.position > 0)
        async with start("c", cluster=cluster) as c:
            await _same_states(alice, a, b, c)
            for each in (a, b, c):
                assert each.gateway.node is not None
                assert each.gateway.node.shards[0].snapshots > 2
                assert not each.gateway.node.failed.done(), "its snapshots are those of the others"


async def _same_states(alice: Client, *gateways: LocalGateway) -> None:
    await alice.fence()
    spaces = [each.gateway.directory.hosts["lab"].space for each in gateways]
    await until(lambda: len({hash_state(space.save()) for space in spaces}) == 1)
