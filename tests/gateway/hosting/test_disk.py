"""While the journal cannot be written (D-85): audited acts wait, stopping somebody works, and it heals."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from moot.protocol.operation import Json
from moot.store.journal_reader import read_records, verify
from tests.gateway.disk import no_room_on_disk
from tests.gateway.running_gateway import (
    CALL,
    GatewayUnderTest,
    fields,
    gateway_settings,
    healthy,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import command, served, started

PEOPLE = participants(
    alice=["*"],
    agent=["chat", "mcp/proposal", "mcp/request", "mcp/withdraw"],
    bob=["chat", "mcp/request"],
    carol=["chat"],
    dora=["chat"],
)
GRANT: Json = {"recipient": "carol", "capabilities": [{"kind": "mcp/request"}]}


def settings(**gateway: Json) -> Json:
    return gateway_settings({"lab": space_settings(PEOPLE)}, **gateway)


def journal_of(folder: Path) -> Path:
    return folder / "data" / "spaces" / "lab" / "journal"


def size_of(folder: Path) -> int:
    return max(journal_of(folder).glob("*.jsonl")).stat().st_size


async def degrade(gateway: GatewayUnderTest) -> None:
    """Say something that finds no room, and wait until the gateway has noticed."""
    answer = await gateway.post("alice", {"kind": "chat", "id": "no-room", "payload": {"text": "no room"}})
    assert (answer.status_code, answer.json()["error"]) == (503, "outcome_unknown"), answer.text
    assert answer.json()["id"] == "no-room"
    await healthy(gateway, "degraded")


@pytest.mark.parametrize("journal", ["on", "strict"])
async def test_a_full_disk_refuses_what_must_be_audited_and_lets_stopping_work(
    tmp_path: Path, journal: str
) -> None:
    async with served(write_config(tmp_path, settings(journal=journal))) as gateway:
        alice, agent, bob, carol, dora = [
            await gateway.join(name) for name in ("alice", "agent", "bob", "carol", "dora")
        ]
        for id in ("p1", "p2"):
            assert await agent.refused("mcp/proposal", CALL, id=id) is None
        assert await alice.refused("capability/grant", GRANT, id="g1") is None
        assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200
        gateway.limit_file_size(size_of(tmp_path))
        await degrade(gateway)
        # Chat and presence go on; a strict space delivers them when they are on disk.
        await carol.fence()
        await bob.say("chat", {"text": "can you hear me"}, id="during")
        await dora.leave()
        if journal == "on":
            await carol.hear(lambda each: each["id"] == "during")
            await carol.hear(lambda each: each["payload"].get("event") == "leave")
        # What must be audited is refused, on both ways.
        for kind, payload in (
            ("mcp/request", CALL),
            ("mcp/proposal", CALL),
            ("capability/grant", GRANT),
            ("space/invite", {"participant_id": "zoe"}),
        ):
            assert await alice.refused(kind, payload) == "unavailable"
            answer = await gateway.post("alice", fields(kind, payload))
            assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        # An administrator widens nothing either, but may take away.
        wider: Json = {"add": [{"kind": "mcp/*"}]}
        answer = await gateway.admin("POST", "participants/dora/capabilities", wider)
        assert answer.status_code == 503, answer.text
        narrower: Json = {"remove": [{"kind": "chat"}]}
        answer = await gateway.admin("POST", "participants/dora/capabilities", narrower)
        assert (answer.status_code, answer.json()["on_disk"]) == (202, False), answer.text
        # What shrinks rights works, and at once.
        assert await alice.refused("mcp/reject", about=["p1"]) is None
        assert await agent.refused("mcp/withdraw", about=["p2"]) is None
        assert await alice.refused("reasoning/cancel", {"reason": "stop"}) is None
        assert await alice.refused("participant/pause", {}, to=["agent"]) is None
        assert await agent.refused("chat") == "participant_paused"
        assert await alice.refused("capability/revoke", {"recipient": "carol", "grant_id": "g1"}) is None
        assert await carol.refused("mcp/request", CALL) == "capability_violation"
        assert await alice.refused("space/kick", {"participant_id": "bob"}) is None
        assert (await bob.closed())[0] == 4003
        assert await gateway.status("/ws?space=lab", token="t-bob") == 401
        if journal == "strict":
            await carol.fence()
            received = [each.get("id") for each in carol.received]
            assert not {"no-room", "during"} & set(received), received
        # Over HTTP too: stopping somebody is always possible. It is not promised to be kept, so 202.
        for kind, payload in (
            ("participant/pause", {}),
            ("capability/revoke", {"recipient": "carol", "capabilities": [{"kind": "mcp/*"}]}),
            ("participant/shutdown", {}),
        ):
            to = {} if kind == "capability/revoke" else {"to": ["carol"]}
            answer = await gateway.post("alice", fields(kind, payload) | to)
            assert (answer.status_code, answer.json()["on_disk"]) == (202, False), (kind, answer.text)
        # Room again: it heals by itself, and what was kept in memory is written.
        gateway.limit_file_size(None)
        await healthy(gateway, "ok")
        # What was told to be unknown was kept, and is delivered once, when it is on disk.
        await alice.fence()
        assert [each["id"] for each in alice.received].count("no-room") == 1
        assert [each["id"] for each in alice.received].count("during") == 1
        assert await alice.refused("mcp/request", CALL, to=["carol"]) is None
        assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200
    assert verify(journal_of(tmp_path)).ok
    accepted = [each.kind for each in read_records(journal_of(tmp_path)) if each.text("out") == "accepted"]
    for kind in ("mcp/reject", "mcp/withdraw", "participant/pause", "capability/revoke", "space/kick"):
        assert kind in accepted, kind
    async with served(tmp_path / "moot.yaml") as again:
        assert await again.status("/ws?space=lab", token="t-bob") == 401
        agent = await again.join("agent")
        assert await agent.refused("chat") == "participant_paused"


async def test_a_gateway_that_is_stopped_while_the_disk_is_full_ends_and_starts_again(
    tmp_path: Path,
) -> None:
    file = write_config(tmp_path, settings())
    gateway = await started(file)
    alice = await gateway.join("alice")
    assert await alice.refused("capability/grant", GRANT, id="g1") is None
    assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200
    gateway.limit_file_size(size_of(tmp_path))
    await degrade(gateway)
    await gateway.close()
    code, _ = await gateway.end(signal.SIGTERM)
    assert code == 1, gateway.stderr()
    assert "Traceback" not in gateway.stderr()
    assert verify(journal_of(tmp_path)).ok
    async with served(file) as again:
        carol = await again.join("carol")
        assert await carol.refused("mcp/request", CALL, to=["alice"]) is None


async def test_a_disk_that_fails_again_and_again_leaves_a_whole_chain(tmp_path: Path) -> None:
    """Also cut in the middle of a line; nothing is written twice."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        for number in range(3):
            with no_room_on_disk(gateway.journal()):
                for each in range(10):
                    await alice.say("chat", {"text": "x" * 100}, id=f"c-{number}-{each}")
                await alice.fence()
                await healthy(gateway, "degraded")
            await healthy(gateway, "ok")
    assert verify(journal_of(tmp_path)).ok
    ids = [each.id for each in read_records(journal_of(tmp_path)) if each.kind == "chat"]
    assert ids == [f"c-{number}-{each}" for number in range(3) for each in range(10)]


async def test_a_data_folder_that_cannot_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    file = write_config(tmp_path, settings(data="file/below"))
    code, output = await command("serve", str(file), cwd=tmp_path)
    assert code == 2
    assert output.splitlines()[-1].startswith("moot: ")
    assert "Traceback" not in output
