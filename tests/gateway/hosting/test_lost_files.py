"""Losing a file gives no rights back (D-98): a real gateway, real files, and what is left of them."""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets

from moot.cli import main
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.store.database import stored_marker, stored_snapshots
from moot.store.journal_reader import read_records
from moot.store.position_marker import read_marker
from tests.gateway.running_gateway import (
    GatewayUnderTest,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import Finished, command, served, started
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded, until

PEOPLE = participants(alice=["*"], bob=["chat"], mallory=["chat"], carol=["chat"])
SNAPSHOT_RECORDS = 12


def data_of(folder: Path) -> Path:
    return folder / "data"


def journal_of(folder: Path) -> Path:
    return data_of(folder) / "spaces" / "lab" / "journal"


def segments(folder: Path) -> list[Path]:
    return sorted(journal_of(folder).glob("*.jsonl"))


async def tell(gateway: GatewayUnderTest, count: int, size: int = 200) -> None:
    alice = await gateway.join("alice")
    for number in range(count):
        assert await alice.refused("chat", {"text": f"{number} " + "x" * size}) is None
    await alice.leave()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(decide(tmp_path_factory.mktemp("original")))


@pytest.fixture
def decided(tmp_path: Path, original: Path) -> Path:
    """A space of several segments in which mallory was kicked and a grant to bob revoked, then killed."""
    shutil.copytree(original.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / original.name


async def decide(tmp_path: Path, **gateway: Json) -> Path:
    settings: dict[str, Json] = {"journal": {"segment_bytes": 3_000}, "snapshot_records": SNAPSHOT_RECORDS}
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, **(settings | gateway)))
    running = await started(file)
    alice = await running.join("alice")
    await tell(running, 10)
    grant: Json = {"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]}
    assert await alice.refused("capability/grant", grant, id="g1") is None
    await tell(running, 10)
    assert await alice.refused("capability/revoke", {"recipient": "bob", "grant_id": "g1"}) is None
    assert await alice.refused("space/kick", {"participant_id": "mallory"}) is None
    # Now: where few segments are kept, its record may be removed soon.
    kick = kick_number(tmp_path)
    await tell(running, 10)
    assert (await running.post("alice", {"kind": "chat", "payload": {}})).status_code == 200
    if (settings | gateway)["snapshot_records"] == SNAPSHOT_RECORDS:
        # Written beside everything else: a gateway on a busy machine may be killed before.
        await until(lambda: last_snapshot(tmp_path) > kick)
    await until(lambda: noted_in_both(tmp_path) >= kick)
    await running.close()
    await running.end(signal.SIGKILL)
    return file


def kick_number(folder: Path) -> int:
    return next(r.number for r in read_records(journal_of(folder)) if r.text("kind") == "space/kick")


def noted_in_both(folder: Path) -> int:
    """How far the space had come by the file and by its copy."""
    copies = read_marker(journal_of(folder).parent), stored_marker(data_of(folder) / "moot.sqlite", "lab")
    return min(0 if each is None else each.record for each in copies)


def last_snapshot(folder: Path) -> int:
    return max((one.position for one in stored_snapshots(data_of(folder) / "moot.sqlite", "lab")), default=0)


async def rights_in(gateway: GatewayUnderTest) -> tuple[int, bool]:
    """How mallory is answered, and whether bob may send requests."""
    status = await gateway.status("/ws?space=lab", token="t-mallory")
    bob = await gateway.join("bob")
    refusal = await bob.refused("mcp/request", {"method": "tools/list"}, to=["alice"])
    return status, refusal is None


async def check_not_wider(gateway: GatewayUnderTest) -> None:
    assert await rights_in(gateway) == (401, False)


class Processes:
    """Gateway and commands as people run them, each in a process of its own."""

    def serve(self, file: Path) -> AbstractAsyncContextManager[GatewayUnderTest]:
        return served(file)

    async def refusal(self, file: Path) -> str:
        """What a gateway says that does not start."""
        with pytest.raises(Finished) as ended:
            await started(file)
        assert ended.value.code not in (0, None)
        assert "Traceback" not in ended.value.stderr
        (answer,) = [line for line in ended.value.stderr.splitlines() if line.startswith("moot: ")]
        return answer

    async def journal(self, file: Path, act: str, *more: str) -> tuple[int, str]:
        """`moot journal ACT`; its exit code and what it printed."""
        return await command("journal", act, "--data", str(data_of(file.parent)), *more, cwd=file.parent)


class InProcess(Processes):
    """The same code without new interpreters: ten starts in a story are most of its time."""

    def serve(self, file: Path) -> AbstractAsyncContextManager[GatewayUnderTest]:
        return running_gateway(file.parent, file=file)

    async def refusal(self, file: Path) -> str:
        with pytest.raises(UsageError) as refused:
            async with self.serve(file):
                pass
        return str(refused.value)

    async def journal(self, file: Path, act: str, *more: str) -> tuple[int, str]:
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            code = await asyncio.to_thread(main, ["journal", act, "--data", str(data_of(file.parent)), *more])
        return code, printed.getvalue()


PROCESSES = Processes()
HERE = InProcess()


async def refuses(file: Path, run: Processes = PROCESSES) -> str:
    """The gateway does not start, and `verify` says that something is wrong; returns what is said."""
    code, output = await run.journal(file, "verify")
    assert code == 1, output
    error = await run.refusal(file)
    assert "moot journal repair --data " in error
    assert "--space lab" in error
    return error


async def repaired(file: Path, run: Processes = PROCESSES) -> str:
    code, output = await run.journal(file, "repair", "--space", "lab", "--yes")
    assert code == 0, output
    return output


def cut(path: Path, size: int) -> None:
    with path.open("rb+") as file:
        file.truncate(size)


def remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def empty(paths: list[Path]) -> None:
    for path in paths:
        cut(path, 0)


def flip(path: Path, place: int) -> None:
    text = bytearray(path.read_bytes())
    text[place] ^= 0x01
    path.write_bytes(text)


def damage_newest_snapshot(folder: Path) -> None:
    with closing(sqlite3.connect(data_of(folder) / "moot.sqlite")) as look, look:
        look.execute(
            "UPDATE snapshots SET state = x'00' WHERE position = (SELECT max(position) FROM snapshots)"
        )


LOSSES: dict[str, Callable[[Path], Any]] = {
    "first segment removed": lambda folder: segments(folder)[0].unlink(),
    "middle segment removed": lambda folder: segments(folder)[2].unlink(),
    "last segments removed": lambda folder: remove(segments(folder)[-3:]),
    "all segments removed": lambda folder: remove(segments(folder)),
    "journal removed": lambda folder: shutil.rmtree(journal_of(folder)),
    "space folder removed": lambda folder: shutil.rmtree(journal_of(folder).parent),
    "first segment emptied": lambda folder: cut(segments(folder)[0], 0),
    "last segments emptied": lambda folder: empty(segments(folder)[-3:]),
    "first segment cut": lambda folder: cut(segments(folder)[0], 700),
    "middle segment cut": lambda folder: cut(segments(folder)[2], 700),
    "first segment damaged": lambda folder: flip(segments(folder)[0], 1_000),
    "middle segment damaged": lambda folder: flip(segments(folder)[2], 1_000),
    "seal damaged": lambda folder: flip(segments(folder)[1], segments(folder)[1].stat().st_size - 20),
    "marker damaged": lambda folder: (journal_of(folder).parent / "position.json").write_bytes(b"{"),
}


IN_PROCESSES = ("middle segment removed", "journal removed", "marker damaged")


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_file_stops_the_start_and_repair_gives_no_rights_back(decided: Path, loss: str) -> None:
    folder = decided.parent
    run = PROCESSES if loss in IN_PROCESSES else HERE
    before = {path.name: path.read_bytes() for path in segments(folder)}
    LOSSES[loss](folder)
    output = await refuses(decided, run)
    # One line that names a file and two positions.
    assert re.search(r"record.* \d+.* record \d+|position\.json", output), output
    assert str(data_of(folder)) in output
    code, printed = await run.journal(decided, "repair", "--space", "lab")
    assert code == 2
    assert "--yes" in printed
    await refuses(decided, run)
    left = {path.name: path.read_bytes() for path in segments(folder)}
    printed = await repaired(decided, run)
    assert "Given up: " in printed
    # Whatever was there is still somewhere.
    (aside,) = journal_of(folder).parent.glob("journal.damaged-*")
    assert {path.name: path.read_bytes() for path in sorted(aside.glob("*.jsonl"))} == left
    assert left.keys() <= before.keys()
    code, printed = await run.journal(decided, "verify")
    assert code == 0, printed
    async with run.serve(decided) as gateway:
        await check_not_wider(gateway)
    records = [record for record in read_records(journal_of(folder)) if record.text("in") == "repair"]
    assert len(records) == 1
    assert records[0].fields["known"]
    # Also when the snapshots are lost after that: the record of the repair knows the state.
    (data_of(folder) / "moot.sqlite").unlink()
    async with run.serve(decided) as gateway:
        await check_not_wider(gateway)


async def test_the_end_behind_the_last_snapshot_is_missed_as_well(tmp_path: Path) -> None:
    """A kick that no snapshot knows of yet, and whole lines cut off, as no torn end looks."""
    file = await decide(tmp_path, snapshot_records=100_000)
    kick = next(r for r in read_records(journal_of(tmp_path)) if r.text("kind") == "space/kick")
    assert all(
        one.position < kick.number for one in stored_snapshots(data_of(tmp_path) / "moot.sqlite", "lab")
    )
    for path in segments(tmp_path):
        if int(path.stem) > kick.number:
            path.unlink()
    cut(segments(tmp_path)[-1], kick.place.offset)
    output = await refuses(file)
    assert f"ends with record {kick.number - 1}" in output
    # Its position is written down in two places: one of them may be lost together with the end.
    marker = journal_of(tmp_path).parent / "position.json"
    kept = marker.read_bytes()
    marker.unlink()
    output = await refuses(file, HERE)
    assert f"ends with record {kick.number - 1}" in output
    assert "moot.sqlite" in output
    marker.write_bytes(kept)
    with closing(sqlite3.connect(data_of(tmp_path) / "moot.sqlite")) as look, look:
        look.execute("DELETE FROM positions")
    await refuses(file, HERE)
    marker.unlink()
    with closing(sqlite3.connect(data_of(tmp_path) / "moot.sqlite")) as look, look:
        look.execute("INSERT INTO positions VALUES ('lab', ?)", (kept,))
    await repaired(file, HERE)
    async with HERE.serve(file) as gateway:
        # The repair knows of the end of the journal only that it is lost: its numbers are used again.
        assert await gateway.status("/ws?space=lab", token="t-alice") == 101


async def test_losing_the_snapshots_costs_nothing_while_the_journal_is_whole(decided: Path) -> None:
    for name in ("moot.sqlite", "moot.sqlite-wal", "moot.sqlite-shm"):
        (data_of(decided.parent) / name).unlink(missing_ok=True)
    async with HERE.serve(decided) as gateway:
        await check_not_wider(gateway)


async def test_a_kick_survives_lost_snapshots_when_the_kicker_is_gone_from_the_file(decided: Path) -> None:
    """The journal knows under which rules it was accepted."""
    others = participants(root=["*"], bob=["chat"], mallory=["chat"], carol=["chat"])
    settings = gateway_settings({"lab": space_settings(others)}, journal={"segment_bytes": 3_000})
    write_config(decided.parent, settings)
    (data_of(decided.parent) / "moot.sqlite").unlink()
    async with HERE.serve(decided) as gateway:
        assert await gateway.status("/ws?space=lab", token="t-mallory") == 401


async def test_the_index_can_be_lost_or_damaged(decided: Path) -> None:
    index = journal_of(decided.parent).parent / "index.db"
    code, output = await HERE.journal(decided, "search", "--kind", "space/kick")
    assert code == 0
    assert "mallory" in output
    for spoil in (lambda: index.write_bytes(b"garbage" * 999), index.unlink):
        spoil()
        async with HERE.serve(decided) as gateway:
            await check_not_wider(gateway)
        assert (await HERE.journal(decided, "search", "--kind", "space/kick"))[1] == output


async def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_journal(decided: Path) -> None:
    damage_newest_snapshot(decided.parent)
    code, output = await HERE.journal(decided, "verify")
    assert code == 1
    assert "is damaged" in output
    async with HERE.serve(decided) as gateway:
        await check_not_wider(gateway)


async def test_a_damaged_snapshot_and_a_cut_journal_are_not_an_older_state(decided: Path) -> None:
    damage_newest_snapshot(decided.parent)
    for path in segments(decided.parent)[3:]:
        path.unlink()
    await refuses(decided, HERE)


async def test_retention_is_no_loss_but_losing_its_snapshot_is(tmp_path: Path) -> None:
    file = await decide(tmp_path, journal={"segment_bytes": 3_000, "retain_segments": 1})
    async with HERE.serve(file) as gateway:
        await tell(gateway, 30)
        await until(lambda: not (journal_of(tmp_path) / "000000000001.jsonl").exists())
    code, output = await HERE.journal(file, "verify")
    assert code == 0, output
    async with HERE.serve(file) as gateway:
        await check_not_wider(gateway)
    kept = (data_of(tmp_path) / "moot.sqlite").read_bytes()
    (data_of(tmp_path) / "moot.sqlite").unlink()
    printed = await refuses(file, HERE)
    assert "begins with record" in printed
    (data_of(tmp_path) / "moot.sqlite").write_bytes(kept)
    (journal_of(tmp_path) / "removed.json").unlink()
    assert "removed.json" in await refuses(file, HERE)
    await repaired(file, HERE)
    async with HERE.serve(file) as gateway:
        await check_not_wider(gateway)


async def test_a_torn_end_and_a_kill_are_no_loss(decided: Path) -> None:
    with segments(decided.parent)[-1].open("ab") as file:
        file.write(b'{"n":9999,"t":17')
    async with HERE.serve(decided) as gateway:
        await check_not_wider(gateway)


@pytest.mark.parametrize("lost", ["older snapshot", "no snapshot", "nothing at all"])
async def test_without_a_journal_a_lost_snapshot_stops_the_start(tmp_path: Path, lost: str) -> None:
    file = await decide(tmp_path, journal="on")
    settings = gateway_settings({"lab": space_settings(PEOPLE)}, journal="off")
    write_config(tmp_path, settings)
    older = (data_of(tmp_path) / "moot.sqlite").read_bytes()
    async with HERE.serve(file) as gateway:
        alice = await gateway.join("alice")
        assert await alice.refused("space/kick", {"participant_id": "carol"}) is None
    async with HERE.serve(file) as gateway:
        await check_not_wider(gateway)
        assert await gateway.status("/ws?space=lab", token="t-carol") == 401
    if lost == "nothing at all":
        # Back to a journal: the state of that time is in it now.
        write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, journal="on"))
        async with HERE.serve(file):
            pass
        (data_of(tmp_path) / "moot.sqlite").unlink()
        async with HERE.serve(file) as gateway:
            await check_not_wider(gateway)
            assert await gateway.status("/ws?space=lab", token="t-carol") == 401
        return
    (data_of(tmp_path) / "moot.sqlite").unlink()
    if lost == "older snapshot":
        (data_of(tmp_path) / "moot.sqlite").write_bytes(older)
    assert "and the journal was off" in await HERE.refusal(file)
    output = await repaired(file, HERE)
    assert "Not known: " in output
    async with HERE.serve(file) as gateway:
        await check_not_wider(gateway)


async def test_health_is_not_ok_before_every_space_is_open(decided: Path) -> None:
    """Whoever asks while a start is being refused is never told that all is well."""
    segments(decided.parent)[0].unlink()
    answer: list[object] = []
    with held_port() as port:
        starting = asyncio.create_task(started(decided, "--port", str(port)))
        async with bounded(), httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
            while not starting.done():
                try:
                    answer.append((await client.get(f"http://127.0.0.1:{port}/health")).json().get("status"))
                except httpx.HTTPError:
                    await asyncio.sleep(0.001)
        with pytest.raises(Finished):
            await starting
    assert "ok" not in answer


async def test_a_space_created_by_joining_is_not_made_anew_when_its_folder_is_lost(tmp_path: Path) -> None:
    settings = gateway_settings({"lab": space_settings(PEOPLE)}, auto_create_spaces="lab")
    file = write_config(tmp_path, settings)
    async with served(file) as gateway:
        alice = await gateway.join("alice", space="garden")
        assert await alice.refused("space/kick", {"participant_id": "mallory"}) is None
    shutil.rmtree(data_of(tmp_path) / "spaces" / "garden")
    async with served(file) as gateway:
        with pytest.raises(websockets.InvalidStatus):
            await gateway.open("/ws?space=garden", token="t-mallory")
