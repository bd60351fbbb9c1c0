"""Where values came from is the same after a restart of gateway and approver."""

from __future__ import annotations

from pathlib import Path

from moot.cli import main
from moot.participant import Outcome, connect
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.up.moot_up import MootUp, moot_up
from tests.waiting import HANG_SECONDS, until


async def test_after_a_restart_of_everything_a_call_has_the_same_origins(tmp_path: Path) -> None:
    assert main(["init", "filesystem", str(tmp_path), "--space", "lab"]) == 0
    rules = tmp_path / ".moot/trust/lab/rules.yaml"
    rules.write_text(rules.read_text().replace("effect: destroys", "effect: writes"))
    found = []
    for number in ("one", "two"):
        async with moot_up(tmp_path, "--without", "agent") as up:
            await up.wait_for_state("files", "running", joined=True)
            await up.wait_for_state("approver", "running", joined=True)
            if number == "one":
                async with connect(up.url, "lab", up.token("you")) as you:
                    asked = {"text": 'write "quiet" into plan-1200.md and plan-3400.md', "format": "plain"}
                    await you.send("chat", asked, to="agent", confirm=True)
            name = {"one": "plan-1200.md", "two": "plan-3400.md"}[number]
            found.append(await _origins(up, name))
    assert found[0] == found[1]
    assert [each["text"] for each in found[0]["arguments"]] == ["nobody said “x-99.md”", "you said this"]


async def _origins(up: MootUp, name: str) -> Json:
    """What a person is told of one more call, and that a call with what they said runs."""
    told: list[Envelope] = []
    async with (
        connect(up.url, "lab", up.token("you")) as you,
        connect(up.url, "lab", up.token("agent")) as agent,
    ):
        you.on("moot/origins")(told.append)
        said: Outcome = await agent.call(
            "files", "write_file", {"path": name, "text": "quiet"}, timeout_seconds=HANG_SECONDS
        )
        assert said.by == "approver"
        made = await agent.propose(
            "files", "tools/call", {"name": "write_file", "arguments": {"path": "x-99.md", "text": "quiet"}}
        )
        await until(lambda: any(made.id in each.correlation_id for each in told))
    payload = next(dict(each.payload) for each in told if made.id in each.correlation_id)
    for each in payload["arguments"]:
        each["text"] = each.pop("text_to", {}).get("you", each["text"])
        each.pop("at", None)
    return payload
