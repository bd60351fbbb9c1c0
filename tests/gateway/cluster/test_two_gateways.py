"""Members of one space on two gateways."""

from __future__ import annotations

from pathlib import Path

import yaml

from moot.config import load
from moot.protocol.operation import Json
from moot.space.config import Name
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import CALL, LocalGateway, participants, write_config
from tests.waiting import until


async def test_members_on_two_gateways_hear_each_other_in_one_order(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        for number in range(20):
            await alice.say("chat", {"text": f"a{number}"})
            await bob.say("chat", {"text": f"b{number}"})
        await alice.fence()
        await bob.fence()
        await until(lambda: alice.kinds().count("chat") == bob.kinds().count("chat") == 40)
        heard = [[m["id"] for m in each.received if m["kind"] == "chat"] for each in (alice, bob)]
        assert heard[0] == heard[1]
        texts = [m["payload"]["text"] for m in alice.received if m["kind"] == "chat"]
        assert [text for text in texts if text[0] == "a"] == [f"a{number}" for number in range(20)]


async def test_a_proposal_is_approved_on_the_other_gateway_and_done_once(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob, carol = await a.join("alice"), await b.join("bob"), await b.join("carol")
        proposal = await alice.say("mcp/proposal", CALL, to=["carol"])
        await bob.hear(lambda m: m["id"] == proposal)
        first = await bob.ask("mcp/request", CALL, to=["carol"], about=[proposal])
        assert first["kind"] == "mcp/request"
        assert await alice.refused("mcp/request", CALL, to=["carol"], about=[proposal]) == "proposal_settled"
        await carol.fence()
        assert carol.kinds().count("mcp/request") == 1


async def test_a_post_is_answered_by_the_gateway_that_took_it(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        bob = await b.join("bob")
        said = {"id": "p1", "kind": "chat", "payload": {"text": "hi"}}
        answer = await a.post("alice", said, space="lab")
        assert answer.status_code == 200, answer.text
        assert (await bob.hear("chat"))["id"] == "p1"
        again = await b.post("alice", said, space="lab")
        assert again.status_code != 200
        assert again.json()["error"] == "duplicate_id"
        assert [m["id"] for m in (await b.poll("carol", since="0"))["messages"] if m["kind"] == "chat"] == [
            "p1"
        ]


async def test_who_is_invited_on_one_gateway_joins_on_the_other(start: StartGateway) -> None:
    """The token is known to the inviter's gateway alone; the others have its hash."""
    async with start("a") as a, start("b") as b:
        alice = await a.join("alice")
        token = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        await until(lambda: "zoe" in b.gateway.directory.hosts["lab"].space.state.roster.members)
        zoe = await b.open("/ws?space=lab", token=token)
        assert (await zoe.hear("system/welcome"))["payload"]["you"]["id"] == "zoe"
        answer = await b.admin("POST", "participants/zoe/token", {}, space="lab")
        assert answer.status_code == 200, answer.text
        assert (await zoe.closed())[0] == 4003
        await until(lambda: _credentials(a, "zoe") == _credentials(b, "zoe"))
        assert await a.status("/ws?space=lab", token=token) == 401
        assert await a.status("/ws?space=lab", token=answer.json()["token"]) == 101


async def test_who_is_kicked_on_one_gateway_is_gone_from_the_other(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        await alice.ask("space/kick", {"participant_id": "bob"})
        assert (await bob.closed())[0] == 4003
        assert await b.status("/ws?space=lab", token="t-bob") == 401
        restored = await b.admin("POST", "participants/bob/restore", {}, space="lab")
        assert await b.status("/ws?space=lab", token=restored.json()["token"]) == 101


async def test_a_refused_join_is_told_so_on_its_own_gateway(start: StartGateway) -> None:
    rules = {"limits": {"max_sessions_per_member": 1}}
    async with start("a", rules=rules) as a, start("b", rules=rules) as b:
        await a.join("alice")
        # Counted at each gateway: those of one that was killed must not keep anybody out.
        await b.join("alice")
        second = await b.open("/ws?space=lab", token="t-alice")
        refusal = await second.hear("system/error")
        assert refusal["payload"]["error"] == "resource_limit"
        assert (await second.closed())[0] == 1013


async def test_frames_of_streams_reach_the_other_gateway_in_order(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        await alice.say("stream/request", {"direction": "upload"})
        stream = (await alice.hear("stream/open"))["payload"]["stream_id"]
        sent = [f"#{stream}#{number}" for number in range(50)]
        for frame in sent:
            await alice.send(frame)
        assert [await bob.hear_frame() for _ in sent] == sent
        await bob.send(f"#{stream}#not mine")
        assert (await bob.hear("system/error"))["payload"]["error"] == "unauthorized_stream_write"


async def test_a_pause_ends_by_the_time_of_the_log(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        # On a busy machine the time may be up before bob speaks: once more then, with more of it.
        for seconds in (1, 10, 100):
            await alice.ask("participant/pause", {"timeout_seconds": seconds}, to=["bob"])
            await bob.hear("participant/pause")
            refused = await bob.refused("chat", {"text": "no"})
            if refused is not None:
                break
        assert refused == "participant_paused"
        members = [each.gateway.directory.hosts["lab"].space.state.roster.members for each in (a, b)]
        await until(lambda: all(each["bob"].pause is None for each in members))  # type: ignore[index]
        assert await bob.refused("chat", {"text": "yes"}) is None


async def test_a_reload_on_one_gateway_holds_for_all(start: StartGateway, tmp_path: Path) -> None:
    async with start("a") as a, start("b") as b:
        dave = participants(alice=["*"], bob=["chat"], dave=["*"])
        file = write_config(tmp_path / "a", _with_people(tmp_path / "a" / "moot.yaml", dave))
        a.gateway.reload(load(file, environ={}))
        await until(lambda: "dave" in b.gateway.directory.hosts["lab"].space.state.roster.members)
        await b.join("dave")
        assert await b.status("/ws?space=lab", token="t-carol") == 401


async def test_another_configuration_is_named_and_does_not_overrule(start: StartGateway) -> None:
    async with start("a") as a, start("b", participants(alice=["chat"], eve=["*"])) as b:
        assert b.gateway.node is not None
        assert b.gateway.node.differences == ["space lab: participants"]
        assert await b.status("/ws?space=lab", token="t-eve") == 401
        assert await b.status("/ws?space=lab", token="t-bob") == 101
        await a.join("alice")
    # Alone, a gateway brings its file with it, as one without a cluster does at its start.
    async with start("c", participants(alice=["chat"], eve=["*"])) as c:
        await until(lambda: "eve" in c.gateway.directory.hosts["lab"].space.state.roster.members)
        await c.join("eve")


def _credentials(gateway: LocalGateway, name: str) -> tuple[str, ...]:
    return gateway.gateway.directory.hosts["lab"].space.state.roster.members[Name(name)].credentials


def _with_people(file: Path, people: Json) -> Json:
    settings = yaml.safe_load(file.read_text())
    settings["spaces"]["lab"]["participants"] = people
    return settings


async def test_the_last_vote_makes_the_call_once_on_all_gateways(start: StartGateway) -> None:
    """Also if two come at once: the log has one order, and every gateway comes to the same call."""
    people = participants(alice=["*"], bob=["*"], carol=[], dave=["*"])
    rules: Json = {"quorum": [{"approvals_needed": 2}]}
    async with start("a", people, rules=rules) as a, start("b", people, rules=rules) as b:
        alice, bob, carol = await a.join("alice"), await b.join("bob"), await b.join("carol")
        assert await alice.refused("mcp/request", CALL, to=["carol"]) == "approval_required"
        proposal = await alice.say("mcp/proposal", CALL, to=["carol"])
        await bob.hear(lambda m: m["id"] == proposal)
        assert await bob.refused("moot/approve", {}, about=[proposal]) is None
        vote = {"kind": "moot/approve", "correlation_id": [proposal], "payload": {}}
        assert (await a.post("dave", vote, space="lab")).status_code == 200
        request = await carol.hear("mcp/request")
        assert request["from"] == "dave"
        assert await bob.refused("moot/approve", {}, about=[proposal]) == "proposal_settled"
        await carol.fence()
        assert carol.kinds().count("mcp/request") == 1
        await alice.hear(lambda m: m["id"] == request["id"])
