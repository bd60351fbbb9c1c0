"""Disks that fail, forget or hang under a gateway in a process of its own: 200 is a promise (D-97)."""

from __future__ import annotations

import asyncio
import errno
import random
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.protocol.operation import Json
from moot.store.journal_reader import read_records, verify
from tests.gateway.disk import everything_under
from tests.gateway.fault_shim import HANGS, FaultShim, cut_power
from tests.gateway.running_gateway import (
    CALL,
    Client,
    GatewayUnderTest,
    about_of,
    fields,
    gateway_settings,
    healthy,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Finished, served, started
from tests.waiting import HANG_SECONDS, bounded, until, until_told

PEOPLE = participants(alice=["*"], bob=["*"], carol=["chat"])
GRANT: Json = {"recipient": "carol", "capabilities": [{"kind": "mcp/request"}]}


def config(folder: Path, mode: str, **journal: Json) -> Path:
    settings: Json = {"mode": mode, "sync_timeout_seconds": 0.2} | journal
    return write_config(folder, gateway_settings({"lab": space_settings(PEOPLE)}, journal=settings))


def journal_of(folder: Path) -> Path:
    return folder / "data" / "spaces" / "lab" / "journal"


def accepted_ids(folder: Path) -> list[str]:
    assert verify(journal_of(folder)).ok
    records = read_records(journal_of(folder))
    return [each.id for each in records if each.text("out") == "accepted" and each.id]


def error_of(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json().get("error")


async def ids_of(gateway: GatewayUnderTest, id: str) -> list[str]:
    return [each["id"] for each in (await gateway.poll("alice", id=id))["messages"]]


@pytest.mark.parametrize("fault", ["fsync", "full", "write", "hang"])
@pytest.mark.parametrize("mode", ["on", "strict"])
async def test_a_post_that_waits_when_the_journal_fails_is_unknown_and_then_can_be_looked_up(
    tmp_path: Path, mode: str, fault: str
) -> None:
    shim = FaultShim(tmp_path)
    shim.set(forgets=1)
    async with served(config(tmp_path, mode), environ=shim.environ) as gateway:
        alice = await gateway.join("alice")
        assert (await gateway.post("bob", fields("chat", id="before"))).status_code == 200
        match fault:
            case "fsync":
                shim.set(sync_fault=errno.EIO)
            case "full":
                shim.set(write_room=40)
            case "write":
                shim.set(write_room=40, write_fault=errno.EIO)
            case "hang":
                shim.set(sync_fault=HANGS)
        answer = await gateway.post("bob", fields("chat", id="lost?"))
        assert error_of(answer) == (503, "outcome_unknown")
        assert answer.json()["id"] == "lost?"
        await healthy(gateway, "degraded")
        assert (await gateway.http.get("/readyz")).status_code == 503
        # Nobody has heard it, and nobody is told that it is there.
        await alice.fence()
        assert "lost?" not in [each["id"] for each in alice.received]
        assert await ids_of(gateway, "lost?") == []
        assert error_of(await gateway.post("bob", fields("chat"))) == (503, "unavailable")
        shim.heal()
        await healthy(gateway, "ok")
        await alice.hear(lambda each: each["id"] == "lost?")
        assert await ids_of(gateway, "lost?") == ["lost?"]
        assert error_of(await gateway.post("bob", fields("chat", id="lost?"))) == (409, "duplicate_id")
        assert (await gateway.post("bob", fields("chat", id="after"))).status_code == 200
    assert [id for id in accepted_ids(tmp_path) if id in ("before", "lost?", "after")] == [
        "before",
        "lost?",
        "after",
    ]


@pytest.mark.parametrize("mode", ["on", "strict"])
async def test_a_grant_is_withheld_until_it_is_on_disk_and_a_kick_is_not(tmp_path: Path, mode: str) -> None:
    shim = FaultShim(tmp_path)
    async with served(config(tmp_path, mode), environ=shim.environ) as gateway:
        alice, bob, carol = [await gateway.join(name) for name in ("alice", "bob", "carol")]
        shim.set(sync_fault=HANGS)
        await alice.say("capability/grant", GRANT, id="g1")
        # Behind it, and so waiting as well: until the gateway knows that the disk does not answer.
        await alice.say("chat", id="c1")
        await alice.say("mcp/request", CALL, id="r1", to=["bob"])
        await alice.say("space/kick", {"participant_id": "bob"}, id="k1")
        assert (await bob.closed())[0] == 4003
        await healthy(gateway, "degraded")
        await alice.hear(lambda each: each["id"] == "k1")
        await carol.fence()
        received = [each["id"] for each in carol.received]
        assert "k1" in received
        assert ("c1" in received) == (mode == "on")
        assert not {"g1", "r1"} & set(received)
        assert carol.kinds().count("system/welcome") == 1
        # Whoever joins meanwhile gets in, also to a strict space: stopping somebody is always possible.
        again = await gateway.join("alice")
        assert await again.refused("participant/pause", {}, to=["carol"]) is None
        shim.heal()
        await carol.hear(lambda each: each["id"] == "g1")
        await carol.hear(lambda each: each["id"] == "r1")
        await healthy(gateway, "ok")
        assert carol.kinds().count("system/welcome") == 2
    assert {"g1", "c1", "r1", "k1"} <= set(accepted_ids(tmp_path))


def warned(client: Client) -> list[str]:
    """What a client was told to be in effect and not on disk."""
    errors = [each for each in client.received if each["kind"] == "system/error"]
    return [id for each in errors if each["payload"]["error"] == "not_on_disk" for id in about_of(each)]


@pytest.mark.parametrize("fault", [errno.EIO, HANGS])
async def test_who_takes_rights_away_over_a_socket_is_told_that_it_is_not_on_disk(
    tmp_path: Path, fault: int
) -> None:
    """Also who did it just before the gateway knew that the disk fails; and then it does not end with 0."""
    shim = FaultShim(tmp_path)
    gateway = await started(config(tmp_path, "on"), environ=shim.environ)
    alice, bob = await gateway.join("alice"), await gateway.join("bob")
    assert await alice.refused("mcp/proposal", CALL, id="p1", to=["bob"]) is None
    assert (await gateway.post("alice", fields("chat"))).status_code == 200
    shim.set(sync_fault=fault)
    await alice.say("mcp/withdraw", about=["p1"], id="w1")
    await bob.say("space/kick", {"participant_id": "carol"}, id="k1")
    await healthy(gateway, "degraded")
    assert await alice.refused("participant/pause", {}, to=["bob"], id="pause") is None
    await alice.hear(lambda each: "pause" in about_of(each) and each["kind"] == "system/error")
    await until(lambda: warned(bob) == ["k1"])
    assert warned(alice) == ["w1", "pause"]
    told = next(each for each in bob.received if "k1" in about_of(each))
    assert told["payload"]["on_disk"] is False
    assert "a restart before it can would undo this" in told["payload"]["message"]
    await gateway.close()
    code, _ = await gateway.end(signal.SIGTERM)
    assert code == 1
    (line,) = [line for line in gateway.stderr().splitlines() if line.startswith("moot: ")]
    assert "not on disk, in lab (" in line
    assert "Traceback" not in gateway.stderr()


async def test_who_takes_rights_away_is_not_warned_while_the_disk_works(tmp_path: Path) -> None:
    shim = FaultShim(tmp_path)
    async with served(config(tmp_path, "on"), environ=shim.environ) as gateway:
        alice = await gateway.join("alice")
        assert await alice.refused("space/kick", {"participant_id": "carol"}, id="k1") is None
        assert (await gateway.post("alice", fields("chat"))).status_code == 200
        shim.set(sync_fault=errno.EIO)
        await alice.say("chat")
        await healthy(gateway, "degraded")
        await alice.fence()
        assert warned(alice) == []
        shim.heal()
        await healthy(gateway, "ok")
    assert gateway.process.returncode == 0


@pytest.mark.parametrize("mode", ["on", "strict"])
async def test_nobody_acts_on_a_grant_or_a_resume_that_is_not_on_disk(tmp_path: Path, mode: str) -> None:
    """0021: whoever knows of it all the same is refused, before and after the fault is noticed."""
    people = PEOPLE | participants(dora=["stream/*"])
    settings = gateway_settings(
        {"lab": space_settings(people)}, journal={"mode": mode, "sync_timeout_seconds": 1.0}
    )
    shim = FaultShim(tmp_path)
    async with served(write_config(tmp_path, settings), environ=shim.environ) as gateway:
        alice, bob, carol, dora = [await gateway.join(name) for name in ("alice", "bob", "carol", "dora")]
        assert await alice.refused("participant/pause", {}, to=["carol"], id="pause") is None
        assert await dora.refused("chat") == "capability_violation"
        shim.set(sync_fault=HANGS)
        grant: Json = {"recipient": "dora", "capabilities": [{"kind": "chat"}, {"kind": "space/kick"}]}
        await alice.say("capability/grant", grant, id="g1")
        await alice.say("participant/resume", {}, to=["carol"], about=["pause"], id="resume")
        await until(lambda: b'"id":"resume"' in everything_under(journal_of(tmp_path)))

        async def act() -> None:
            assert await dora.refused("chat", {"text": "too early"}) == "unavailable"
            assert await dora.refused("space/kick", {"participant_id": "bob"}) == "unavailable"
            assert await carol.refused("chat", {"text": "too early"}) == "unavailable"

        await act()
        await healthy(gateway, "degraded")
        await act()
        await alice.say("participant/pause", {}, to=["bob"], id="pause2")
        refused = await alice.refused("participant/resume", {}, to=["bob"], about=["pause2"])
        assert refused == "unavailable"
        assert error_of(await gateway.post("dora", fields("chat"))) == (503, "unavailable")
        await bob.fence()
        texts = [each["payload"].get("text") for each in bob.received if each["kind"] == "chat"]
        assert "too early" not in texts
        shim.heal()
        await healthy(gateway, "ok")
        await dora.hear(lambda each: each["id"] == "g1")
        assert await dora.refused("chat", {"text": "now"}) is None
        assert await carol.refused("chat", {"text": "now"}) is None


async def test_a_disk_that_fails_beside_the_journal_gives_no_rights_back_and_is_made_up_for(
    tmp_path: Path,
) -> None:
    """EIO when snapshots, positions and tokens are written: each in turn, and then after a restart."""
    shim = FaultShim(tmp_path)
    people = PEOPLE | {"dora": {"capabilities": [{"kind": "chat"}]}}
    file = write_config(
        tmp_path,
        gateway_settings({"lab": space_settings(people)}, snapshot_records=10, journal={"mode": "on"}),
    )
    position = tmp_path / "data" / "spaces" / "lab" / "position.json"
    tokens = tmp_path / "data" / "tokens"
    metric = 'moot_snapshots_saved{space="lab"} '

    async def says(gateway: GatewayUnderTest, value: str) -> bool:
        return metric + value in (await gateway.http.get("/metrics")).text

    def fail_writing(what: str) -> None:
        shim.heal()
        shim.aim(what)
        shim.set(write_room=0, write_fault=errno.EIO)

    # A token that is cut short could be guessed: none is made.
    fail_writing("/tokens/")
    shim.set(write_room=7)
    with pytest.raises(Finished) as ended:
        await started(file, environ=shim.environ)
    assert (ended.value.code, "Input/output error" in ended.value.stderr) == (2, True)
    assert not list(tokens.glob("*.token"))
    shim.heal()
    async with served(file, environ=shim.environ) as gateway:
        alice = await gateway.join("alice")
        fail_writing("moot.sqlite")
        for number in range(12):
            assert (await gateway.post("bob", fields("chat", id=f"c{number}"))).status_code == 200
        await until_told(lambda: says(gateway, "0.0"))
        # The journal has all of it, so that nobody has to wait.
        await healthy(gateway, "ok")
        before = position.read_bytes()
        assert (await gateway.post("alice", fields("capability/grant", GRANT, id="g1"))).status_code == 200
        await until(lambda: position.read_bytes() != before)
        fail_writing("position.json")
        before = position.read_bytes()
        kick: Json = {"participant_id": "carol"}
        failed = shim.get("writes_failed")
        assert (await gateway.post("alice", fields("space/kick", kick, id="k1"))).status_code == 200
        await until(lambda: shim.get("writes_failed") > failed)
        assert position.read_bytes() == before
        shim.heal()
        # Though nobody changes rights again.
        await until(lambda: position.read_bytes() != before)
        for number in range(12):
            assert (await gateway.post("bob", fields("chat", id=f"d{number}"))).status_code == 200
        await until_told(lambda: says(gateway, "1.0"))
        fail_writing("/tokens/")
        rotated = (await gateway.admin("POST", "participants/dora/token", {})).json()
        assert "valid until the gateway starts again" in rotated["message"]
        assert not (tokens / "dora.token").exists()
        dora = await gateway.open("/ws?space=lab", token=rotated["token"])
        await dora.hear("system/welcome")
        shim.heal()
        assert await alice.refused("chat", {"text": "still here"}) is None
    assert {"c11", "g1", "k1", "d11"} <= set(accepted_ids(tmp_path))
    async with served(file, environ=shim.environ) as gateway:
        assert await gateway.status("/ws?space=lab", token="t-carol") == 401
        assert await gateway.status("/ws?space=lab", token=rotated["token"]) == 401
        assert await gateway.status("/ws?space=lab", token=(tokens / "dora.token").read_text().strip()) == 101


async def test_a_slow_disk_at_the_end_of_many_spaces_loses_nothing(tmp_path: Path) -> None:
    """Each has a snapshot and a position to write. How long they may take: test_database.py."""
    shim = FaultShim(tmp_path)
    spaces = {f"s{number}": space_settings(PEOPLE) for number in range(12)}
    gateway = await started(write_config(tmp_path, gateway_settings(spaces)), environ=shim.environ)
    for name in spaces:
        assert (await gateway.post("bob", fields("chat", id=f"in-{name}"), space=name)).status_code == 200
    await gateway.close()
    shim.aim("/data/")
    shim.set(sync_delay=15_000)
    code, _ = await gateway.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in gateway.stderr()
    for name in spaces:
        journal = tmp_path / "data" / "spaces" / name / "journal"
        assert verify(journal).ok
        assert f"in-{name}" in [each.id for each in read_records(journal)]


async def test_a_hanging_fsync_shows_in_log_and_metrics_and_lets_the_gateway_stop(tmp_path: Path) -> None:
    """SIGTERM has 5 seconds; what was not written is told."""
    shim = FaultShim(tmp_path)
    gateway = await started(config(tmp_path, "on"), environ=shim.environ)
    assert (await gateway.post("alice", fields("chat", id="safe"))).status_code == 200
    shim.set(sync_fault=HANGS)
    assert error_of(await gateway.post("alice", fields("chat", id="not"))) == (503, "outcome_unknown")
    await healthy(gateway, "degraded")
    metrics = (await gateway.http.get("/metrics")).text
    assert 'moot_journal_writable{space="lab"} 0' in metrics
    running = [line for line in metrics.splitlines() if line.startswith("moot_journal_sync_running_seconds{")]
    assert float(running[0].split()[-1]) >= 0.2
    assert "an fsync has not returned for" in gateway.stderr()
    await gateway.close()
    code, seconds = await gateway.end(signal.SIGTERM)
    assert code == 1, gateway.stderr()
    assert seconds < HANG_SECONDS  # the shares of 5 seconds: test_serve.py
    assert "journal closed before all of it was on disk" in gateway.stderr()
    assert "Traceback" not in gateway.stderr()


async def test_a_gateway_stops_in_time_though_the_disk_hangs_only_then_and_for_thirty_spaces(
    tmp_path: Path,
) -> None:
    shim = FaultShim(tmp_path)
    spaces = {f"lab-{number}": space_settings(PEOPLE) for number in range(30)}
    file = write_config(tmp_path, gateway_settings(spaces))
    gateway = await started(file, environ=shim.environ)
    clients = [await gateway.join("alice", space=name) for name in spaces]
    shim.set(sync_fault=HANGS)
    for client in clients:
        await client.say("chat")
    # Also a snapshot that came due meanwhile hangs.
    await until(lambda: shim.get("syncs_hanging") >= len(spaces))
    code, seconds = await gateway.end(signal.SIGTERM)
    await gateway.close()
    assert code == 1, gateway.stderr()
    assert seconds < HANG_SECONDS  # the shares of 5 seconds: test_serve.py
    assert gateway.stderr().count("journal closed before all of it was on disk") == len(spaces)


@pytest.mark.parametrize("fault", [errno.EIO, HANGS])
async def test_without_a_journal_200_means_that_the_state_is_saved(tmp_path: Path, fault: int) -> None:
    shim = FaultShim(tmp_path)
    shim.set(database=1)
    async with served(config(tmp_path, "off"), environ=shim.environ) as gateway:
        alice = await gateway.join("alice")
        assert (await gateway.post("bob", fields("chat", id="before"))).status_code == 200
        shim.set(sync_fault=fault)
        assert error_of(await gateway.post("bob", fields("chat", id="lost?"))) == (503, "outcome_unknown")
        await healthy(gateway, "degraded")
        await alice.fence()
        assert "lost?" not in [each["id"] for each in alice.received]
        assert await alice.refused("mcp/request", CALL) == "unavailable"
        answer = await gateway.post("alice", fields("participant/pause", to=["carol"]))
        assert (answer.status_code, answer.json()["on_disk"]) == (202, False)
        shim.heal()
        await alice.hear(lambda each: each["id"] == "lost?")
        await healthy(gateway, "ok")
        assert (await gateway.post("bob", fields("chat", id="after"))).status_code == 200


async def test_without_a_journal_a_database_that_hangs_lets_the_gateway_stop(tmp_path: Path) -> None:
    shim = FaultShim(tmp_path)
    shim.set(database=1)
    gateway = await started(config(tmp_path, "off"), environ=shim.environ)
    shim.set(sync_fault=HANGS)
    assert error_of(await gateway.post("alice", fields("chat"))) == (503, "outcome_unknown")
    await gateway.close()
    code, seconds = await gateway.end(signal.SIGTERM)
    assert code == 1, gateway.stderr()
    assert seconds < HANG_SECONDS  # the shares of 5 seconds: test_serve.py
    assert "last snapshot not saved" in gateway.stderr()


@pytest.mark.parametrize("mode", ["on", "strict"])
async def test_what_was_acknowledged_survives_faults_at_any_step_and_a_power_cut_after_them(
    tmp_path: Path, mode: str
) -> None:
    """The n-th fsync or byte fails, the kernel forgets what it had, and then the power goes."""
    drawn = random.Random(16)
    promised: set[str] = set()
    shim = FaultShim(tmp_path)
    shim.set(forgets=1)
    file = config(tmp_path, mode, segment_bytes=3_000)
    for turn in range(4):
        gateway = await started(file, environ=shim.environ)
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        if turn % 2:
            shim.set(sync_passes=drawn.randrange(4), sync_fault=errno.EIO)
        else:
            shim.set(write_room=drawn.randrange(2_000))
        failed = False
        for number in range(60):
            id = f"{turn}-{number}"
            await alice.say("chat", {"text": "x" * 50}, id=f"ws-{id}")
            answer = await gateway.post("bob", fields("chat", id=id))
            assert answer.status_code == 200 or error_of(answer) in (
                (503, "outcome_unknown"),
                (503, "unavailable"),
            ), answer.text
            promised |= {id} if answer.status_code == 200 else set()
            if answer.status_code != 200 and not failed:
                failed = True
                await healthy(gateway, "degraded")
                shim.heal()
                if turn < 2:
                    await healthy(gateway, "ok")
        assert failed
        async with bounded():
            gateway.process.send_signal(signal.SIGKILL)
            await gateway.end(signal.SIGKILL)
        await asyncio.gather(alice.closed(), bob.closed())
        await gateway.close()
        if mode == "strict":
            promised |= {each["id"] for each in bob.received if each["kind"] == "chat"}
        shim.heal()
        cut_power(journal_of(tmp_path))
    async with served(file, environ=shim.environ):
        pass
    found = accepted_ids(tmp_path)
    assert promised <= set(found), promised - set(found)
    assert len(found) == len(set(found))
