"""Damage of the newest segment after a crash: no kick, withdrawal or rejection is undone."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from moot.config import load
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.gateway.hosting.space_repair import carry_out_repair, plan_repair
from moot.space.space import Space
from tests.gateway.running_gateway import (
    CALL,
    GatewayUnderTest,
    fields,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Finished, served, started

PEOPLE = participants(alice=["*"], bob=["chat", "mcp/proposal", "mcp/withdraw"], mallory=["chat"])
SECTOR = 512


def newest(folder: Path) -> Path:
    return max((folder / "data" / "spaces" / "lab" / "journal").glob("*.jsonl"))


async def post(gateway: GatewayUnderTest, who: str, envelope: object) -> None:
    answer = await gateway.post(who, envelope)
    assert answer.status_code == 200, answer.text


async def killed_space(folder: Path, *acts: str, chats: int = 0) -> Path:
    """A gateway that was killed right after these acts, and chats behind them, were acknowledged."""
    file = write_config(folder, gateway_settings({"lab": space_settings(PEOPLE)}))
    gateway = await started(file)
    for id in ("withdrawn", "rejected"):
        await post(gateway, "bob", fields("mcp/proposal", CALL, id=id, to=["alice"]))
    for act in acts:
        match act:
            case "withdraw":
                await post(gateway, "bob", fields("mcp/withdraw", about=["withdrawn"]))
            case "reject":
                await post(gateway, "alice", fields("mcp/reject", {"reason": "no"}, about=["rejected"]))
            case "kick":
                await post(gateway, "alice", fields("space/kick", {"participant_id": "mallory"}))
    for number in range(chats):
        await post(gateway, "alice", fields("chat", {"text": f"{number}"}))
    await gateway.end(signal.SIGKILL)
    await gateway.close()
    return file


def undone(space: Space) -> list[str]:
    """What somebody could do again."""
    state = space.state
    found = [each.id for each in state.ledger.all_open() if each.id == "withdrawn"]
    found += [each.id for each in state.ledger.all_open() if each.id == "rejected" and not each.rejected_by]
    mallory = next(each for each in state.roster if each.name == "mallory")
    return found + ([] if mallory.kicked else ["kick"])


async def start(file: Path) -> list[str]:
    gateway = Gateway(load(file, environ={}))
    await gateway.start()
    try:
        return undone(gateway.directory.hosts["lab"].space)
    finally:
        await gateway.stop()


async def test_one_zero_byte_before_acknowledged_posts_stops_the_start(tmp_path: Path) -> None:
    file = await killed_space(tmp_path, chats=30)
    path = newest(tmp_path)
    text = bytearray(path.read_bytes())
    text[len(text) // 2] = 0
    path.write_bytes(text)
    with pytest.raises(Finished) as ended:
        await started(file)
    assert "moot journal repair --data" in ended.value.stderr
    assert path.read_bytes() == text
    assert not list(path.parent.glob("*.torn"))


@pytest.mark.parametrize("act", ["withdraw", "reject", "kick"])
async def test_an_act_whose_record_is_lost_at_the_very_end_is_missed(tmp_path: Path, act: str) -> None:
    """It was acknowledged just before the kill, and its record alone is cut off or changed."""
    file = await killed_space(tmp_path, act)
    path = newest(tmp_path)
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for text in (whole[:-last], whole[:-9], whole[:-30] + b"\0" + whole[-29:], whole[:-last] + bytes(last)):
        path.write_bytes(text)
        with pytest.raises(UsageError, match="moot journal repair"):
            await start(file)


async def test_a_power_cut_behind_the_last_act_needs_nobody(tmp_path: Path) -> None:
    file = await killed_space(tmp_path, "withdraw", "reject", "kick")
    with newest(tmp_path).open("ab") as journal:
        journal.write(b'{"n":99,"t":17' + bytes(SECTOR))
    async with served(file) as gateway:
        assert (await gateway.http.get("/health")).json()["status"] == "ok"
        assert await gateway.status("/ws?space=lab", token="t-mallory") == 401


def damage(path: Path, rng: random.Random) -> str:
    """Do one kind of damage to a file at a random place."""
    text = bytearray(path.read_bytes())
    place = rng.randrange(len(text))
    kind = rng.choice(["zero byte", "zero sector", "flipped bit", "cut", "swapped sectors", "removed bytes"])
    sector = place - place % SECTOR
    match kind:
        case "zero byte":
            text[place] = 0
        case "zero sector":
            text[sector : sector + SECTOR] = bytes(len(text[sector : sector + SECTOR]))
        case "flipped bit":
            text[place] ^= 1 << rng.randrange(8)
        case "cut":
            del text[place:]
        case "swapped sectors":
            other = rng.randrange(len(text) // SECTOR) * SECTOR
            sector = min(sector, (len(text) // SECTOR - 1) * SECTOR)
            here, there = bytes(text[sector : sector + SECTOR]), bytes(text[other : other + SECTOR])
            text[sector : sector + SECTOR], text[other : other + SECTOR] = there, here
        case "removed bytes":
            del text[place : place + rng.randrange(1, 200)]
    path.write_bytes(text)
    return f"{kind} at {place}"


async def test_whatever_is_damaged_wherever_no_act_is_undone(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    file = await killed_space(tmp_path / "whole", "withdraw", "reject", "kick", chats=8)
    outcomes: Counter[str] = Counter()
    for seed in range(60):
        copy = tmp_path / f"{seed}"
        shutil.copytree(file.parent, copy)
        what = damage(newest(copy), random.Random(seed))
        try:
            assert await start(copy / file.name) == [], what
            outcomes["started"] += 1
        except UsageError as refusal:
            outcomes["refused" if "moot journal repair" in str(refusal) else str(refusal)] += 1
            plan = plan_repair(copy / "data", "lab")
            assert plan.problems, what
            carry_out_repair(plan)
        shutil.rmtree(copy)
    assert outcomes.keys() == {"started", "refused"}
    assert outcomes["refused"] > outcomes["started"]
