"""Erasing, holding and retention where several gateways have a copy: one tree, and each says what is gone."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.evidence.log_files import LogReader
from moot.evidence.log_keys import read_keys
from moot.store.journal_erasure import find_erasures
from moot.store.journal_reader import read_records
from moot.store.journal_segments import chain_start, segments_of
from moot.store.record_chain import shared_number
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_cluster_log import reader_of, wait_signed
from tests.gateway.running_gateway import LocalGateway, participants

PEOPLE = participants(agent=["mcp/proposal", "chat"], ana=["*"], host=[])
CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "pay", "arguments": {"iban": "DE00-X"}}}


async def decide(a: LocalGateway, b: LocalGateway) -> None:
    """A chat, and a call that was approved and answered, by members at two gateways."""
    agent, ana, host = await a.join("agent"), await b.join("ana"), await b.join("host")
    assert await agent.refused("chat", {"text": "my iban is DE00-X"}, id="c1") is None
    assert await agent.refused("mcp/proposal", CALL, to=["host"], id="p1") is None
    await ana.hear(lambda each: each["id"] == "p1")
    body = {"jsonrpc": "2.0", "id": 1}
    assert await ana.refused("mcp/request", body | CALL, to=["host"], about=["p1"], id="r1") is None
    answer = body | {"result": {"content": [{"type": "text", "text": "paid DE00-X"}]}}
    assert await host.refused("mcp/response", answer, to=["ana"], about=["r1"]) is None
    assert await ana.refused("chat", {"text": "thanks"}, id="c2") is None


def text_of(data: Path) -> bytes:
    return b"".join(each.path.read_bytes() for each in segments_of(data / "spaces" / "lab" / "journal"))


def say_of(data: Path, folder: Path) -> tuple[int, str]:
    """An archive for an auditor, and what its own verifier says, with Python and the log's key alone."""
    folder.mkdir()
    packed = folder / "lab.tar.gz"
    assert main(["journal", "archive", str(packed), "--data", str(data)]) == 0
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    keys = read_keys(data)
    assert keys is not None
    key = str(keys.verifiers(LogReader(data / "spaces" / "lab" / "log").about.origin)[0])
    run = [sys.executable, "-I", str(folder / "lab" / "verify.py"), key]
    done = subprocess.run(run, check=False, capture_output=True, text=True)  # noqa: S603
    return done.returncode, done.stdout


def erased_in(gateway: LocalGateway) -> list[int]:
    """By the numbers that all gateways have."""
    numbers = find_erasures(gateway.journal()).numbers
    found = [shared_number(each.line) for each in read_records(gateway.journal()) if each.number in numbers]
    return [each for each in found if each]


async def test_what_was_erased_at_each_gateway_is_gone_and_the_cluster_has_one_tree(
    start: StartGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start("b", PEOPLE) as b:
        async with start("a", PEOPLE) as a:
            await decide(a, b)
            signed = await wait_signed(a, b)
        # While one of them is stopped, and before it erases: what it does not have must not count as copied.
        ana = await b.join("ana")
        assert await ana.refused("chat", {"text": "meanwhile"}, id="c3") is None
        erase(a.gateway.config.data, tmp_path, capsys)
        async with start("a", PEOPLE) as a:
            assert await ana.refused("chat", {"text": "and on"}, id="c4") is None
            await wait_signed(a, b)
            said = [each.id for each in read_records(a.journal()) if each.kind == "chat"]
            assert said == ["c1", "c2", "c3", "c4"]
    erase(b.gateway.config.data, tmp_path, capsys)
    async with start("a", PEOPLE) as a, start("b", PEOPLE) as b:
        assert await (await b.join("ana")).refused("chat", {"text": "still here"}, id="c5") is None
        after = await wait_signed(a, b)
        assert (after.origin, after.size > signed.size) == (signed.origin, True)
        assert erased_in(a) == erased_in(b)
        assert len(erased_in(a)) == 4


def erase(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Erase what the agent wrote; journal and log hold, and an auditor is told the same."""
    assert b"DE00-X" in text_of(data)
    capsys.readouterr()
    command = ["journal", "erase", "--data", str(data), "--who", "agent", "--why", "request 17", "--yes"]
    assert main(command) == 0, capsys.readouterr().out
    assert b"DE00-X" not in text_of(data) + (data / "moot.sqlite").read_bytes()
    assert main(["journal", "verify", "--data", str(data)]) == 0
    assert "of them were erased" in capsys.readouterr().out
    code, said = say_of(data, tmp_path / f"audit-{data.parent.name}")
    assert code == 0
    # And a refusal, which is in no log of a cluster.
    assert "4 of them were erased" in said
    # Who decided what is still known; what was said is not.
    capsys.readouterr()
    assert main(["proposal", "history", "--data", str(data), "--json"]) == 0
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["tool"], found["decided_by"], found["outcome"]) == ("pay", "ana", "done")
    assert found["arguments"] == {}


async def test_one_gateway_may_hold_what_another_one_no_longer_keeps(
    start: StartGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old segments go at one gateway by its settings; the one that is held keeps all, and erases nothing."""
    small: dict[str, Any] = {
        "journal": {"segment_bytes": 2_000, "retain_segments": 1},
        "snapshot_records": 10,
    }
    async with start("a", PEOPLE, **small) as a, start("b", PEOPLE, **small) as b:
        held = a.gateway.config.data
        assert main(["journal", "hold", "--data", str(held), "--why", "case 4"]) == 0
        ana = await b.join("ana")
        # Segments go behind snapshots, and what the log is not signed for yet stays.
        for number in itertools.count():
            await ana.ask("chat", {"text": f"{number} DE00-X"}, id=f"c{number}")
            if chain_start(b.journal()).number > 5:
                break
        signed = await wait_signed(a, b)
        assert chain_start(a.journal()).number == 1
        assert reader_of(b).root(signed.size) == reader_of(a).root(signed.size) == signed.root
        other = b.gateway.config.data
    capsys.readouterr()
    erase = ["journal", "erase", "c1", "--data", str(held), "--why", "x", "--yes"]
    assert main(erase) == 2
    assert "case 4" in capsys.readouterr().err
    for data, is_whole in ((held, True), (other, False)):
        assert main(["journal", "verify", "--data", str(data)]) == 0
        first = next(shared_number(each.line) for each in read_records(data / "spaces/lab/journal"))
        code, said = say_of(data, tmp_path / f"audit-{data.parent.name}")
        assert code == 0
        gone = "were signed for and are not in this archive"
        assert (gone in said) is not is_whole
        if not is_whole:
            assert f"to {first - 1} {gone}" in said
    async with start("a", PEOPLE, **small) as a, start("b", PEOPLE, **small) as b:
        assert await (await b.join("ana")).refused("chat", {"text": "on"}, id="last") is None
        assert (await wait_signed(a, b)).size > signed.size
