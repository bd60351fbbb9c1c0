"""Every example runs as its page says: `moot up` on its folder, and the story comes out."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.participant import connect
from moot.xprotocol.relay.relay_server import open_relay
from moot.xprotocol.relay.relay_settings import RelaySettings
from tests.up.moot_up import MootUp, environment, moot_up
from tests.waiting import until
from tests.warm_start import warm_programs

EXAMPLES = Path(__file__).parent.parent / "examples"


@asynccontextmanager
async def running(tmp_path: Path, name: str, *options: str) -> AsyncIterator[MootUp]:
    """A copy of an example, so that what it writes stays out of the repository."""
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".moot", "out", "__pycache__"))
    async with moot_up(folder, *options) as up:
        yield up


def journal_of(up: MootUp, space: str) -> str:
    """Everything that was said in a space so far."""
    return "".join(path.read_text("utf-8") for path in (up.data / "spaces" / space / "journal").iterdir())


def test_the_readme_of_the_examples_lists_them_all() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    page = (EXAMPLES / "README.md").read_text("utf-8")
    assert len(folders) == 6
    assert all(f"| [{name}](" in page for name in folders)


def test_the_tool_member_has_ten_lines_of_code() -> None:
    text = (EXAMPLES / "tool-member/adder.py").read_text("utf-8")
    code = [line for line in text.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= 10


async def test_the_tool_member_adds(tmp_path: Path) -> None:
    async with running(tmp_path, "tool-member") as up:
        await up.wait_for_state("adder", "running", joined=True)
        async with connect(up.url, "sums", up.token("you")) as you:
            assert (await you.call("adder", "add", {"a": 1, "b": 2})).structured == {"result": 3}


@pytest.mark.requirement("MEW-9.4-1")
async def test_delegated_fulfilment_plays_by_itself(tmp_path: Path) -> None:
    """MEW 9.4: proposer, human, orchestrator, worker; the last proposals are fulfilled by a rule."""
    async with running(tmp_path, "delegated-fulfilment") as up:
        await up.wait_for_state("proposer", "ended", restarts=0)
        out = up.folder / "out"
        reports = sorted(path.name for path in (out / "reports").iterdir())
        assert reports == ["monday.md", "tuesday.md", "wednesday.md"]
        assert not (out / "secrets.txt").exists()
        answer = journal_of(up, "newsroom")
        assert "secrets.txt: human said no (unsafe): nobody needs secrets.txt" in answer
        assert answer.count("fulfilled, the human said so") == 1
        assert answer.count("fulfilled, the rule says so") == 2
        assert "orchestrator had it done, worker said: 28 characters written for orchestrator" in answer


async def test_trust_is_earned_and_lost(tmp_path: Path) -> None:
    """Approvals, a suggestion, a rule that decides, an objection; what was rejected never passes."""
    path = f"{warm_programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = tmp_path / "earning-trust"
    shutil.copytree(EXAMPLES / "earning-trust", folder, ignore=shutil.ignore_patterns(".moot", "out"))
    async with moot_up(folder, environ=environment(PATH=path)) as up:
        await up.wait_for_state("agent", "ended", restarts=0)
        answer = journal_of(up, "newsroom")
        rules = (up.data / "trust" / "newsroom" / "rules.yaml").read_text("utf-8")
    assert "private/diary.md: alice said no (inappropriate)" in answer
    assert "reports/day-10.md: alice had it done" in answer
    assert "error rate up to" in answer
    # One in twenty is left to her as a check, so not all of them.
    assert any(f"reports/day-{day}.md: approver had it done" in answer for day in range(20, 25))
    assert "the rule is suspended: alice complained: " in answer
    assert "reports/day-25.md: alice had it done" in answer
    assert "accepted_by: alice" in rules
    written = {file.name for file in (folder / "out" / "reports").iterdir()}
    assert written == {f"day-{day}.md" for day in range(10, 26)}
    assert not (folder / "out" / "private").exists()


@pytest.mark.requirement("MEW-3.10.3-4")
async def test_the_aggregator_gets_every_frame_and_the_bystander_none(tmp_path: Path) -> None:
    async with running(tmp_path, "stream-aggregator") as up:
        for number in (1, 2, 3):
            await up.wait_for_state(f"sensor-{number}", "ended", restarts=0)
        wanted = ("3 streams, 300 readings, mean 22.0", "I saw 3 streams and 0 frames")
        await until(lambda: all(words in journal_of(up, "plant") for words in wanted))


async def test_mew_and_mcpx_members_work_together(tmp_path: Path) -> None:
    async with running(tmp_path, "mixed-dialects") as up:
        await up.wait_for_state("apprentice", "ended", restarts=0)
        answer = journal_of(up, "border")
        assert "six times seven is 42" in answer
        assert "done for apprentice: 72" in answer
        assert "clerk let me know that eight times nine is 72" in answer
        # Both were spoken, each by whom the configuration says.
        assert '"dialect":"mcpx"' in answer
        assert '"mcpx/v0.1"' in answer
        assert '"mew/v0.4"' in answer


async def test_two_organisations_work_together_with_approval_on_both_sides(tmp_path: Path) -> None:
    """Signed, sealed events between two spaces; capabilities and people decide on either side."""
    folder = tmp_path / "two-orgs"
    shutil.copytree(EXAMPLES / "two-orgs", folder, ignore=shutil.ignore_patterns(".moot", "adapter.*"))
    path = f"{warm_programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    async with open_relay(RelaySettings(data=tmp_path / "relay", port=0)) as relay:
        prepare = [sys.executable, str(folder / "prepare.py"), "--relay", relay.url]
        preparing = await asyncio.create_subprocess_exec(*prepare, env={**os.environ, "PATH": path})
        assert await preparing.wait() == 0
        async with (
            moot_up(folder / "beta", environ=environment(PATH=path)) as beta,
            moot_up(folder / "acme", environ=environment(PATH=path)) as acme,
        ):
            await acme.wait_for_state("buyer", "ended", restarts=0)
            answer, there = journal_of(acme, "acme"), journal_of(beta, "warehouse")
    # Acme's person, then Beta's right to look.
    assert "get_stock {'part': 'bolt'}: alice let me; beta says: 2000 pieces of bolt" in answer
    # Both people.
    assert "500 pieces of bolt are reserved, 1500 are left" in answer
    # Acme's person says no: nothing leaves the house.
    assert "'count': 5000}: alice said no: we need no more than 1,000" in answer
    assert not re.search(r"\b5000\b", there)
    # Beta's person says no: the buyer hears it.
    assert "bob: disagree (no more than 600 at a time)" in answer
    # The relay has carried it all, and read nothing.
    kept = b"".join(file.read_bytes() for file in (tmp_path / "relay").iterdir())
    assert b"org.beta.warehouse.get_stock" in kept
    assert b"bolt" not in kept
