"""From nothing to an approved change: `moot init`, `moot up`, and the commands that a person types."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

from moot.cli import main
from moot.participant import MissedMessages, SeenProposal, connect
from moot.protocol.envelope import Envelope
from tests.agents.model.endpoint import call, endpoint
from tests.up.moot_up import environment, moot_up, run_moot, write_config
from tests.waiting import HANG_SECONDS, bounded, until


async def wait_for_text(coming: AsyncIterator[Envelope | MissedMessages], sender: str, words: str) -> str:
    """The next chat of a member that holds these words."""
    async with bounded():
        async for item in coming:
            if isinstance(item, Envelope) and (item.sender, item.kind) == (sender, "chat"):
                text = str(item.payload["text"])
                if words in text:
                    return text
    raise AssertionError("the connection ended")


async def test_the_filesystem_template_works_without_a_language_model(tmp_path: Path) -> None:
    """An agent proposes, you approve: the file is there. You reject: it is not."""
    assert main(["init", "filesystem", str(tmp_path), "--space", "lab"]) == 0
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("agent", "running", joined=True)
        await up.wait_for_state("files", "running", joined=True)
        await up.until(lambda: {"open_proposals": 1} in up.changes)
        code, output = await run_moot(tmp_path, "proposals", "--json")
        (proposal,) = json.loads(output)
        assert proposal["params"]["arguments"]["path"] == "hello.md"
        assert not (tmp_path / "shared/hello.md").exists()
        code, output = await run_moot(tmp_path, "approve", proposal["id"][:8])
        assert (code, "created hello.md: 53 bytes" in output) == (0, True)
        assert "because you agreed to it" in (tmp_path / "shared/hello.md").read_text()
        # The next one is not wanted.
        async with connect(up.url, "lab", up.token("you")) as you:
            coming = you.envelopes()
            wanted = ("--kind", "mcp/proposal", "--count", "2", "--json")
            code, output = await run_moot(tmp_path, "tail", "-n", "9", *wanted)
            second = json.loads(output.splitlines()[-1])
            assert second["payload"]["params"]["arguments"]["path"] == "todo.md"
            await you.reject(second["id"], "unsafe", explanation="too tidy")
            assert (
                await wait_for_text(coming, "agent", "too tidy")
                == "All right, no todo.md. You said: too tidy"
            )
        assert not (tmp_path / "shared/todo.md").exists()
        # The agent reads by itself, and nobody gets out of the folder.
        code, output = await run_moot(tmp_path, "call", "files", "read_file", "path=../moot.yaml")
        assert (code, "leads outside of the shared folder" in output) == (1, True)
    # What was approved starts the server again, and nobody is told that it has failed.
    assert "waiting" not in {each["state"] for each in up.changes if each.get("name") == "files"}


async def test_the_approver_of_a_template_says_what_is_missing_and_then_suggests_a_rule(
    tmp_path: Path,
) -> None:
    """As README says, in README's own space: nothing has to be added to it."""
    assert main(["init", "filesystem", str(tmp_path), "--space", "lab"]) == 0
    async with moot_up(tmp_path, "--without", "agent") as up:
        await up.wait_for_state("files", "running", joined=True)
        await up.wait_for_state("approver", "running", joined=True)
        code, output = await run_moot(tmp_path, "rules", "list")
        assert (code, "by-origin  active" in output) == (0, True)
        code, output = await run_moot(tmp_path, "rules", "run")
        assert (code, "you is a person here" in output, "--as approver" in output) == (2, True, True)
        async with (
            connect(up.url, "lab", up.token("you")) as you,
            connect(up.url, "lab", up.token("agent")) as agent,
        ):
            coming = you.envelopes()

            @you.on_proposal
            async def approve(seen: SeenProposal) -> None:
                await you.approve(seen)

            async def write(day: int) -> None:
                report = {"path": f"reports/day-{day}.md", "text": "quiet"}
                await agent.call("files", "write_file", report, timeout_seconds=HANG_SECONDS)

            for day in (10, 11, 12):
                await write(day)
            missing = "not suggested: write_file on files by agent: 3 of 10 decisions of this kind so far"
            await until(lambda: missing in up.log("approver"))
            code, output = await run_moot(tmp_path, "rules", "suggestions")
            assert (code, output) == (0, f"nothing is suggested\n{missing}\n")
            for day in range(13, 20):
                await write(day)
            async with bounded():
                while (heard := await anext(coming)) and getattr(heard, "kind", "") != "trust/suggestion":
                    pass
        code, output = await run_moot(tmp_path, "rules", "suggestions")
        assert (code, "reports/day-<2 digits>.md" in output, "not suggested" in output) == (0, True, False)


async def test_the_servers_of_the_coder_template_work_and_share_no_token(tmp_path: Path) -> None:
    """Without a key for the model: the agent is left out, the rest runs."""
    assert main(["init", "coder", str(tmp_path), "--space", "lab"]) == 0
    (tmp_path / "main.py").write_text("print('hello')\n")
    async with moot_up(tmp_path, "--without", "coder") as up:
        await up.wait_for_state("files", "running", joined=True)
        await up.wait_for_state("commands", "running", joined=True)
        async with connect(up.url, "lab", up.token("you")) as you:
            listed = (await you.call("files", "list_files")).text.split("\n")
            assert listed == ["coder.md", "main.py", "up.err"]
            ran = await you.call("commands", "run", {"command": ["python3", "main.py"]})
            assert ran.text == "ended with exit code 0\nhello\n"
            outcome = await you.perform(
                "files", "tools/call", {"name": "read_file", "arguments": {"path": ".moot/tokens/you.token"}}
            )
            assert outcome.is_error
            assert up.token("you") not in outcome.text


async def test_a_server_that_dies_leaves_the_space_alone_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "flaky.sh").write_text(
        "test -e mended && exec python3 -m moot.up.servers.files shared\nexit 9\n"
    )
    write_config(
        tmp_path,
        """
        spaces:
          lab:
            participants:
              you: {capabilities: [{kind: "*"}]}
              steady: {capabilities: [chat], command: sleep, args: ["1000"]}
            mcp_servers:
              flaky: {command: sh, args: [flaky.sh]}
        """,
    )
    async with moot_up(tmp_path) as up:
        pid = (await up.wait_for_state("steady", "running"))["pid"]
        await up.until(lambda: up.now.get("flaky", {}).get("state") == "waiting")
        (tmp_path / "mended").touch()
        await up.wait_for_state("flaky", "running", joined=True)
        async with connect(up.url, "lab", up.token("you")) as you:
            assert (await you.call("flaky", "list_files", timeout_seconds=HANG_SECONDS)).text == "(empty)"
        assert up.now["steady"]["pid"] == pid


async def test_the_coder_proposes_what_its_model_wants_and_you_decide(tmp_path: Path) -> None:
    """With `moot agent` and a local endpoint: the key reaches it, and nothing is written without consent."""
    request = call("write_file", path="plan.md", text="step one\n")
    async with endpoint(request, "It is written.") as model:
        words = ("--space", "lab", "--base-url", model.url, "--model", "m", "--key-env", "THE_KEY")
        assert main(["init", "coder", str(tmp_path), *words]) == 0
        async with moot_up(tmp_path, environ=environment(THE_KEY="k-123")) as up:
            for name in ("files", "commands", "coder"):
                await up.wait_for_state(name, "running", joined=True)
            async with connect(up.url, "lab", up.token("you")) as you:
                proposals = you.proposals.incoming()
                coming = you.envelopes()
                await you.chat("write a plan", to="coder")
                async with bounded():
                    seen = await anext(proposals)
                assert isinstance(seen, SeenProposal)
                assert seen.params["arguments"] == {"path": "plan.md", "text": "step one\n"}
                assert not (tmp_path / "plan.md").exists()
                await you.approve(seen)
                assert await wait_for_text(coming, "coder", "It is written.")
        assert (tmp_path / "plan.md").read_text() == "step one\n"
        assert model.headers[0]["authorization"] == "Bearer k-123"
        assert "careful programmer" in str(model.asked[0]["messages"])
        assert "k-123" not in up.log("coder")
