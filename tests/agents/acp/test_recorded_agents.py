"""Recordings of real agents, played to `moot acp`: each asks in its own way, and gets the same answers.

They were made by `make acp-agents` with the programs from npm; see tests/agents/acp/recordings/README.md.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from moot.participant import connect
from tests.agents.acp.agent_space import RIGHTS, AgentSpace, settings_for
from tests.agents.acp.test_schema import judge
from tests.gateway.running_gateway import participants, running_gateway
from tests.participant.watched_agent import running_member
from tests.waiting import until

RECORDINGS = Path(__file__).with_name("recordings")
PLAYER = Path(__file__).with_name("replayed_agent.py")
# The program that was recorded, and the variable by which it signs in.
AGENTS = {
    "claude": ("claude-agent-acp", "ANTHROPIC_API_KEY"),
    "codex": ("codex-acp", "OPENAI_API_KEY"),
    "opencode": ("opencode", "OPENAI_API_KEY"),
    "gemini": ("gemini", "GEMINI_API_KEY"),
    "qwen": ("qwen", "OPENAI_API_KEY"),
}
# Folders of whoever recorded it, keys that were used, addresses.
_OF_A_MACHINE = re.compile(r"/(?:root|home|Users|tmp/moot|work)\b|none-at-all|sk-none|127\.0\.0\.1")
VERIFIED = "verified at the start: asks before writing a file and before running a command"


def recording(name: str) -> list[dict[str, Any]]:
    lines = (RECORDINGS / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_recording_is_played_and_holds_nothing_of_a_machine() -> None:
    assert {each.stem for each in RECORDINGS.glob("*.jsonl")} == set(AGENTS)
    for name in AGENTS:
        text = (RECORDINGS / f"{name}.jsonl").read_text()
        assert _OF_A_MACHINE.findall(text) == [], name


@pytest.mark.parametrize("name", AGENTS)
async def test_a_real_agent_asks_is_allowed_once_and_is_told_why_not(tmp_path: Path, name: str) -> None:
    program, key = AGENTS[name]
    work = tmp_path / "work"
    argv = (sys.executable, "-I", "-S", str(PLAYER), str(RECORDINGS / f"{name}.jsonl"), str(work), program)
    (tmp_path / "gateway").mkdir()
    everybody = participants(alice=["*"], agent=RIGHTS)
    async with running_gateway(tmp_path / "gateway", everybody) as gateway, AsyncExitStack() as stack:
        env = {key: "a-key-of-nobody"}
        settings = settings_for(gateway.url, tmp_path, argv=argv, env=env, probe=True)
        alice = await stack.enter_async_context(connect(gateway.url, "lab", "t-alice"))
        space = AgentSpace(gateway, tmp_path, settings, alice, stack)
        await stack.enter_async_context(running_member(space.member, settings))
        assert space.member.agent.asks == VERIFIED
        await space.ask("Create notes.txt")
        first = (await space.proposal()).payload["params"]
        assert first["name"] == "edit"
        (change,) = first["arguments"]["changes"]
        assert change["path"] == str(work / "notes.txt")
        assert change["new_text"].rstrip("\n") == "probe"
        # A new file has no old text; two agents say that it was empty.
        assert not change["old_text"]
        assert "missing" not in first["arguments"]
        assert "outside_folder" not in first["arguments"]
        outcome = await alice.approve((await space.proposal()).id)
        assert not outcome.is_error
        assert outcome.text.startswith(f"The agent reports: edit: {work}/notes.txt (completed)")
        await space.wait_for("chat", "Finished.")
        await space.idle()
        await space.ask("Create other.txt")
        second = await space.proposal(2)
        assert second.payload["params"]["arguments"]["changes"][0]["path"] == str(work / "other.txt")
        await alice.reject(second.id, "unsafe", explanation="not on Sundays")
        # The player ends when it gets another answer than the one it knows, and waits for the prompt with the
        # reason: then all was said.
        await until((tmp_path / "played").exists, lambda: space.member.agent.process.end_reason)
        await space.idle()
        assert space.member.agent.process.end_reason == ""
        assert len(space.of("mcp/proposal")) == 2


@pytest.mark.parametrize("name", AGENTS)
def test_what_we_said_then_is_valid_and_never_for_ever(name: str) -> None:
    """The schema of the SDK judges our part of the recording; no option that outlives the call was chosen."""
    lines = recording(name)
    judged = {judge(line["message"]) for line in lines if line["from"] == "client"}
    assert {"initialize", "session/new", "session/prompt", "permission"} <= judged
    kinds = {
        (line["message"]["id"], option["optionId"]): option["kind"]
        for line in lines
        if line["from"] == "agent" and line["message"].get("method") == "session/request_permission"
        for option in line["message"]["params"]["options"]
    }
    chosen = [
        kinds[line["message"]["id"], outcome["optionId"]]
        for line in lines
        if line["from"] == "client" and (outcome := line["message"].get("result", {}).get("outcome"))
    ]
    # The probe is refused twice, then one edit is approved and one rejected.
    assert chosen == ["reject_once", "reject_once", "allow_once", "reject_once"]
