"""What 0.1 wrote still opens: a folder of a space, and those of a relay and two adapters, made by 0.1 itself.

In the space `newsroom` alice rejected one proposal and approved five; a rule came of these and decided a
sixth; bob and agent got a grant each, mallory was kicked, bob is paused, and one proposal is open. `moot up`
and the approver were then killed (SIGKILL), between two snapshots and with a second journal segment begun.
"""

from __future__ import annotations

import json
import os
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from moot.participant import JoinedSpace, SeenProposal, connect
from moot.protocol.operation import Json
from moot.trust.approver.tool_watcher import digests_of
from moot.up.servers import commands
from moot.up.servers import files as file_server
from moot.up.servers.folder import Folder
from moot.xprotocol.event_store.event_query import EventQuery
from moot.xprotocol.event_store.event_store import EventStore
from tests.gateway.fault_shim import FaultShim
from tests.gateway.served import command, served
from tests.up.moot_up import environment, moot_up
from tests.waiting import bounded, until

ARCHIVE = Path(__file__).parent / "data" / "written-by-0.1.tar.gz"
KILLED_AT = datetime(2026, 11, 15, 23, 15, tzinfo=UTC)
PEOPLE: Json = {
    "alice": {"capabilities": [{"kind": "*"}]},
    "agent": {"capabilities": [{"kind": "chat"}, {"kind": "mcp/proposal"}, {"kind": "mcp/withdraw"}]},
    "approver": {"capabilities": [{"kind": ["mcp/*", "chat", "trust/*"]}]},
    "bob": {"capabilities": [{"kind": "chat"}, {"kind": "mcp/*"}]},
    "mallory": {"capabilities": [{"kind": "chat"}]},
    "files": {"capabilities": [{"kind": "mcp/response"}, {"kind": "chat"}]},
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The folders as 0.1 left them."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for folder, _, files in os.walk(tmp_path):
        for name in files:
            (Path(folder) / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def in_those_days(tmp_path: Path) -> dict[str, str]:
    """An environment for processes: their clock shows the minutes after 0.1 was killed.

    The open proposal expires a day later, and the rule after three months.
    """
    shim = FaultShim(tmp_path)
    shim.set(clock_shift=int((KILLED_AT.timestamp() - time.time() + 60) * 1e9))
    return shim.environ


def token_of(written: Path, name: str) -> str:
    return (written / "space" / "tokens" / f"{name}.token").read_text("ascii").strip()


@pytest.fixture
def config(written: Path) -> Path:
    file = written / "moot.yaml"
    spaces = {"newsroom": {"participants": PEOPLE}}
    file.write_text(yaml.safe_dump({"gateway": {"data": "space"}, "spaces": spaces}), "utf-8")
    return file


async def test_the_journal_of_a_space_is_whole_and_can_be_read(written: Path) -> None:
    code, output = await command("journal", "verify", "--data", str(written / "space"), cwd=written)
    assert code == 0, output
    assert "86 records" in output
    code, output = await command(
        "journal", "search", "--text", "open.md", "--data", str(written / "space"), cwd=written
    )
    assert code == 0, output
    assert "other/open.md" in output


async def test_a_gateway_goes_on_where_0_1_was_killed(
    written: Path, config: Path, in_those_days: dict[str, str]
) -> None:
    """Tokens open, rights are as they were, and what was open can be decided."""
    async with served(config, environ=in_those_days) as gateway:
        refused = await gateway.http.get(
            "/participants/mallory/messages",
            headers={"Authorization": f"Bearer {token_of(written, 'mallory')}"},
        )
        assert refused.status_code in {401, 403}, "kicked stays kicked"
        alice = await gateway.open("/ws?space=newsroom", token=token_of(written, "alice"))
        await alice.hear("system/welcome")
        agent = await gateway.open("/ws?space=newsroom", token=token_of(written, "agent"))
        welcome = await agent.hear("system/welcome")
        granted = [each for each in welcome["payload"]["you"]["capabilities"] if each.get("to") == ["files"]]
        assert [each["payload"]["params"]["name"] for each in granted] == ["read_file"]
        bob = await gateway.open("/ws?space=newsroom", token=token_of(written, "bob"))
        await bob.hear("system/welcome")
        assert (await bob.ask("chat", {"text": "may I?"}))["payload"]["error"] == "participant_paused"
        files = await gateway.open("/ws?space=newsroom", token=token_of(written, "files"))
        await files.hear("system/welcome")
        polled = await gateway.http.get(
            "/participants/alice/messages",
            params={"since": 0},
            headers={"Authorization": f"Bearer {token_of(written, 'alice')}"},
        )
        proposals = [each for each in polled.json()["messages"] if each["kind"] == "mcp/proposal"]
        assert proposals[-1]["payload"]["params"]["arguments"]["path"] == "other/open.md"
        await alice.say(
            "mcp/request", proposals[-1]["payload"], to=["files"], correlation_id=[proposals[-1]["id"]]
        )
        asked = await files.hear("mcp/request")
        assert asked["correlation_id"] == [proposals[-1]["id"]]
    code, output = await command("journal", "verify", "--data", str(written / "space"), cwd=written)
    assert code == 0, output


async def test_every_decision_is_still_counted(written: Path, in_those_days: dict[str, str]) -> None:
    history = ("proposal", "history", "--data", str(written / "space"))
    code, output = await command(*history, "--json", cwd=written, environ=in_those_days)
    assert code == 0, output
    decided = [json.loads(line)["status"] for line in output.splitlines()]
    assert sorted(decided) == ["fulfilled"] * 6 + ["open", "rejected"]
    # For people it is called as in `moot proposals`.
    code, output = await command(*history, "--how", "pending", cwd=written, environ=in_those_days)
    headings, row, *_ = output.splitlines()
    assert (code, headings.split()[3], row.split().count("pending")) == (0, "DECISION", 1)
    assert "other/open.md" in output


async def test_an_accepted_rule_goes_on_deciding(written: Path, in_those_days: dict[str, str]) -> None:
    """`moot up` in the old folder, with the approver's state as it was."""
    (written / "space").rename(written / ".moot")
    (written / "shared").mkdir()
    # Its clock is days ahead of the gateway's: what it is told of when it starts is open for all that.
    started = {"command": "moot", "args": ["rules", "run", "--check", "0"]}
    people = PEOPLE | {"approver": PEOPLE["approver"] | started}
    del people["files"]
    servers = {"files": {"command": "python3", "args": ["-m", "moot.up.servers.files", "${FOLDER}/shared"]}}
    space = {"default_participant": "alice", "participants": people, "mcp_servers": servers}
    (written / "moot.yaml").write_text(yaml.safe_dump({"spaces": {"newsroom": space}}), "utf-8")
    async with moot_up(written, environ=environment() | in_those_days) as up:
        await up.wait_for_state("approver", "running", joined=True)
        await up.wait_for_state("files", "running", joined=True)
        async with connect(up.url, "newsroom", up.token("agent")) as agent:
            outcome = await agent.call("files", "write_file", {"path": "reports/day-16.md", "text": "quiet"})
        assert (outcome.how, outcome.by) == ("fulfilled", "approver")
        assert (written / "shared" / "reports" / "day-16.md").read_text("utf-8") == "quiet"


async def test_the_tools_that_come_with_moot_are_defined_as_in_0_1(tmp_path: Path) -> None:
    """A definition is pinned: with another word in it rules are suspended and the tool is withheld."""
    listed = [
        *await file_server.server_of(Folder(tmp_path)).offers("tools"),
        *await commands.server_of(tmp_path).offers("tools"),
    ]
    assert {tool["name"]: digests_of(tool).listed for tool in listed} == {
        "list_files": "b6de9afd9edc341e0cfb47b6599de8135ef6000780d5d953282f25dc8dddaeee",
        "read_file": "d327451471b963a8b3292d6477fc6c5790723921694629c42f94aed160e620aa",
        "search_files": "af00a3e2a1b9341eccd3c5f5d5810daa1f65a0c7f239a8bae7e032d23f181efa",
        "write_file": "8956e5918213b2d4b9bd9f5b73769012bb1c1c784934f783f88d26569bd4938e",
        "edit_file": "32e4b298b793cc9c784b4398a57e8cdb31064e0b5b888ce26668be2aba9dab2a",
        "run": "dc1bca69a4fab470fe8fe278b137f0b0e64e897cc966788ba70c536f32ba33a2",
    }


@pytest.mark.parametrize("folder", ["relay", "acme-store", "beta-store"])
async def test_stores_of_events_open(written: Path, folder: str) -> None:
    # Of the time when these were written: what expired since then is removed at the start.
    store = EventStore.open(written / "adapters" / folder, now=0.0)
    try:
        found = [event async for event in store.find(EventQuery())]
    finally:
        await store.close()
    assert len(found) == {"relay": 6, "acme-store": 1, "beta-store": 1}[folder]
    assert all(json.loads(event.raw)["kind"] for event in found)


async def test_a_space_that_0_1_generated_runs_with_its_own_agent(tmp_path: Path) -> None:
    """What `moot init filesystem` of 0.1 wrote: the agent proposes, hears why not, and goes on."""
    data = Path(__file__).parent / "data"
    (tmp_path / "moot.yaml").write_text((data / "space-by-0.1.yaml").read_text("utf-8"))
    (tmp_path / "agent.py").write_text((data / "agent-by-0.1.txt").read_text("utf-8"))
    (tmp_path / "shared").mkdir()
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("files", "running", joined=True)
        async with connect(up.url, "lab", up.token("you")) as you:
            coming = you.envelopes()
            first = await proposal_of(you, "hello.md")
            await you.reject(first, "unsafe", explanation="not yet")
            await proposal_of(you, "todo.md")
            async with bounded():
                async for heard in coming:
                    if getattr(heard, "kind", "") == "chat" and "You said: not yet" in str(heard):
                        break
        assert "Traceback" not in up.log("agent")
        assert up.now["agent"]["restarts"] == 0


async def proposal_of(you: JoinedSpace, path: str) -> SeenProposal:
    """The proposal to write this file, made before we came or later."""

    def found() -> SeenProposal | None:
        return next((each for each in you.proposals if each.params["arguments"]["path"] == path), None)

    seen = await until(found)
    assert seen is not None
    return seen
