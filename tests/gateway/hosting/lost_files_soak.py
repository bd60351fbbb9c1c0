"""Files cut, emptied, changed, removed at random: rights are as they were, or the start is refused (D-98)."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson

from moot.config import load
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.gateway.hosting.space_records import load_state
from moot.gateway.hosting.space_repair import carry_out_repair, plan_repair
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.space import Space
from moot.store.database import stored_snapshots
from moot.store.journal_reader import verify
from moot.store.journal_salvage import salvage
from tests.gateway.running_gateway import fields, gateway_settings, participants, space_settings, write_config
from tests.gateway.socketless_gateway import SocketlessGateway, SocketlessSession
from tests.waiting import until

NAMES = [f"m{number}" for number in range(8)]
GRANTED: list[Json] = [{"kind": "mcp/proposal"}]
PEOPLE = participants(alice=["*"], **{name: ["chat", "mcp/request"] for name in NAMES})


def say(session: SocketlessSession, kind: str, payload: Json, id: str | None = None) -> None:
    session.say(orjson.dumps(fields(kind, payload, id=id)))


async def history(folder: Path, seed: int) -> Path:
    """A space with kicks, revocations and narrowed rights among chat, ended by a stop or not at all."""
    rng = random.Random(seed)
    settings = gateway_settings(
        {"lab": space_settings(PEOPLE)},
        journal={"segment_bytes": rng.choice([2_000, 8_000, 1 << 20])},
        snapshot_records=rng.choice([5, 17, 1_000]),
    )
    gateway = SocketlessGateway(write_config(folder, settings))
    await gateway.open()
    alice = gateway.join("alice")
    kicked = rng.sample(NAMES, 3)
    for number in range(40):
        act, name = rng.randrange(6), rng.choice(NAMES)
        if act == 0:
            say(alice, "capability/grant", {"recipient": name, "capabilities": GRANTED}, f"g{number}")
        elif act == 1:
            say(alice, "capability/revoke", {"recipient": name, "capabilities": GRANTED})
        elif act == 2 and kicked and number > 10:
            say(alice, "space/kick", {"participant_id": kicked.pop()})
        elif act == 3:
            if gateway.host.space.state.roster.resolve(name) is not None:
                narrowed = read_capabilities([{"kind": "mcp/request"}])
                await gateway.host.rights.change_capabilities(name, (), narrowed, "root")
        else:
            say(alice, "chat", {"text": "x" * rng.randrange(300)})
        if rng.random() < 0.4:
            await gateway.rest()
    await gateway.rest()
    await gateway.durable()
    if rng.random() < 0.5:
        # As a kill leaves it: no snapshot at the end.
        await until(lambda: not gateway.host.journaled.snapshots.is_marking)
        shutil.copytree(folder, folder.with_name("killed"))
        await gateway.close()
        shutil.rmtree(folder)
        folder.with_name("killed").rename(folder)
    else:
        await gateway.close()
    return gateway.file


def rights_of(space: Space) -> dict[str, set[str]]:
    """What each member may do; whoever was removed may do nothing."""
    return {
        member.name: {str(right.original) for right in member.rights.capabilities}
        for member in space.state.roster
        if not member.kicked
    }


def damage(folder: Path, rng: random.Random) -> str:
    """Do one bad thing to one file of the space."""
    space = folder / "data" / "spaces" / "lab"
    database = folder / "data" / "moot.sqlite"
    files = [*sorted((space / "journal").glob("*.jsonl")), space / "position.json", database]
    path = rng.choice(files)
    act = rng.choice(["remove", "cut", "flip", "empty", "remove journal", "damage snapshot", "cut line"])
    if act == "remove journal":
        shutil.rmtree(space / "journal", ignore_errors=True)
    elif act == "damage snapshot":
        with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as look, look:
            newest = "(SELECT max(position) FROM snapshots)"
            look.execute(f"UPDATE snapshots SET state = x'00' WHERE position = {newest}")  # noqa: S608
    elif act == "remove":
        path.unlink(missing_ok=True)
    elif not path.exists():
        return f"{path.name}: gone already"
    elif act == "empty":
        path.write_bytes(b"")
    elif act == "cut line" and path.suffix == ".jsonl":
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: rng.randrange(len(lines) or 1)]))
    elif path.stat().st_size:
        text = bytearray(path.read_bytes())
        place = rng.randrange(len(text))
        if act == "flip":
            text[place] ^= 1 << rng.randrange(8)
        else:
            del text[place:]
        path.write_bytes(text)
    return f"{path.name}: {act}"


def widest_known(file: Path) -> dict[str, set[str]]:
    """The most that the files still say anybody may do: the newest whole snapshot, and the acts behind it."""
    data = file.parent / "data"
    position, rights = 0, rights_of(Space(load(file, environ={}).spaces["lab"].config))
    with suppress(UsageError):
        for one in stored_snapshots(data / "moot.sqlite", "lab"):
            if one.state is not None:
                position, rights = one.position, rights_of(load_state(one.state).space)
    for line in salvage(data / "spaces" / "lab" / "journal"):
        if line.number > position:
            apply_act(rights, orjson.loads(line.line), certain=line.verified)
    return rights


def apply_act(rights: dict[str, set[str]], record: dict[str, Any], *, certain: bool) -> None:
    """What one record means, by nothing but its text; a line that may have been changed takes nothing."""
    if record.get("out", "accepted") != "accepted":
        # Refused: it gave nothing and took nothing, whatever it asked for.
        return
    raw = record.get("raw") or {}
    kind, payload = raw.get("kind"), raw.get("payload", {})
    if kind == "capability/grant":
        rights.setdefault(payload["recipient"], set()).add(str(GRANTED[0]))
    elif kind == "capability/revoke" and certain:
        rights.get(payload["recipient"], set()).discard(str(GRANTED[0]))
    elif kind == "space/kick" and certain:
        rights.pop(payload["participant_id"], None)
    elif record["in"] == "capabilities" and certain and record["who"] in rights:
        rights[record["who"]] = {right for right in rights[record["who"]] if "mcp/request" not in right}


async def start(file: Path) -> dict[str, set[str]]:
    gateway = Gateway(load(file, environ={}))
    await gateway.start()
    try:
        return rights_of(gateway.directory.hosts["lab"].space)
    finally:
        await gateway.stop()


def check_not_wider(rights: dict[str, set[str]], than: dict[str, set[str]], what: str) -> None:
    for name, held in rights.items():
        assert held <= than.get(name, set()), f"{what}: {name} holds {held - than.get(name, set())} again"


async def lose_files(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    """Damage copies of one history in so many ways; how many started, how many were refused and repaired."""
    (folder / "whole").mkdir(parents=True)
    file = await history(folder / "whole", seed)
    # A start stores snapshots, which the history must not have.
    shutil.copytree(file.parent, folder / "started")
    truth = await start(folder / "started" / file.name)
    assert set(NAMES) - truth.keys(), "somebody was kicked"
    outcomes = {"started": 0, "refused": 0}
    for round in range(rounds):
        rng = random.Random(f"{seed} {round}")
        copy = folder / f"round{round}"
        shutil.copytree(file.parent, copy)
        done = [damage(copy, rng) for _ in range(rng.choice([1, 1, 1, 2, 2]))]
        if rng.random() < 0.2:
            (copy / "data" / "spaces" / "lab" / "position.json").unlink(missing_ok=True)
            done.append("position.json: remove")
        what = f"seed {seed} round {round}: {', '.join(done)}"
        known = widest_known(copy / file.name)
        try:
            # After one loss there is a witness left, and while the database is whole; otherwise perhaps none.
            is_witnessed = len(done) == 1 or not any("moot.sqlite" in each for each in done)
            check_not_wider(await start(copy / file.name), truth if is_witnessed else known, what)
            outcomes["started"] += 1
        except UsageError as refusal:
            outcomes["refused"] += 1
            await check_repair(copy / file.name, str(refusal), known, what)
        # A slow disk may still be at work for the gateway that has stopped.
        shutil.rmtree(copy, ignore_errors=True)
    return outcomes


async def check_repair(file: Path, answer: str, known: dict[str, set[str]], what: str) -> None:
    """What was refused can be repaired, and gives back nothing that any file knows to be gone."""
    assert "moot journal repair" in answer or "move it away" in answer, answer
    plan = plan_repair(file.parent / "data", "lab")
    assert plan.problems, f"{what}: {answer}"
    carry_out_repair(plan)
    check_not_wider(await start(file), known, what)
    assert verify(file.parent / "data" / "spaces" / "lab" / "journal").ok


def run_lost_files(cases: int, seed: int) -> str:
    """For `make soak`."""
    total = {"started": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        for part in range(0, cases, 50):
            count = min(50, cases - part)
            found = asyncio.run(lose_files(Path(folder) / str(part), count, seed + part))
            total = {name: total[name] + found[name] for name in total}
    started, refused = total["started"], total["refused"]
    return f"{cases} losses: {started} starts with no wider rights, {refused} refused and repaired"
