"""`moot review` as people run it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from moot.cli import main
from moot.protocol.operation import Json
from tests.agents.model.endpoint import endpoint
from tests.agents.review.test_reviewer import REVIEW, says
from tests.participant.gateway_with_members import GatewayWithMembers, gateway_with
from tests.waiting import until
from tests.warm_start import warm_command


def arguments_for(folder: Path, gateway: str, model: str, *more: str) -> list[str]:
    token = folder / "review.token"
    token.write_text("t-review\n")
    token.chmod(0o600)
    place = ["--gateway", gateway, "--space", "lab", "--token-file", str(token)]
    return ["review", *place, "--base-url", model, "--model", "scripted", *more]


async def start(
    folder: Path, party: GatewayWithMembers, model: str, *more: str
) -> asyncio.subprocess.Process:
    arguments = arguments_for(folder, party.url, model, *more)
    return await asyncio.create_subprocess_exec(
        *warm_command(), *arguments,
        env={**os.environ, "THE_KEY": "sk-review-0123456789", "XDG_STATE_HOME": str(folder / "state")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_a_process_joins_says_no_and_leaves_on_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "guidance.txt").write_text("Nothing outside of a/.")
    agent: Json = ["mcp/proposal", "mcp/withdraw"]
    async with (
        endpoint(says("no")) as model,
        gateway_with(
            tmp_path, alice=["*"], files=["mcp/response"], agent=agent, review=list(REVIEW)
        ) as party,
    ):
        alice, proposer, _ = [await party.join(name) for name in ("alice", "agent", "files")]
        options = ["--guidance", str(tmp_path / "guidance.txt"), "--api-key-env", "THE_KEY"]
        child = await start(tmp_path, party, model.url, *options)
        try:
            params: dict[str, Json] = {"name": "write_file", "arguments": {"path": "/etc/passwd"}}
            made = await proposer.propose("files", "tools/call", params)
            await until(lambda: (seen := alice.proposals.get(made.id)) is not None and bool(seen.opinions))
            assert "Nothing outside of a/." in model.asked[0]["messages"][0]["content"]
            assert model.headers[0]["authorization"] == "Bearer sk-review-0123456789"
        finally:
            child.send_signal(signal.SIGINT)
            output, errors = await child.communicate()
        assert child.returncode == 0, errors
        assert b"it only says what it thinks: it was not started with --reject" in output
        assert b"sk-review" not in output + errors


async def test_a_member_that_may_call_tools_gives_no_second_opinion(tmp_path: Path) -> None:
    rights: Sequence[Json] = (*REVIEW, "mcp/request")
    async with gateway_with(tmp_path, review=list(rights)) as party:
        child = await start(tmp_path, party, "http://127.0.0.1:9/v1")
        _, errors = await child.communicate()
        assert child.returncode == 2
        assert b"may call tools, and a second opinion must not" in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--guidance", "no/such/file"], "cannot be read"),
        (["--tokens-per-day", "0"], "--tokens-per-day is a number above 0"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments_for(tmp_path, "http://localhost:1", "http://localhost:1/v1", *arguments)
    assert main(given) == 2
    assert words in capsys.readouterr().err
