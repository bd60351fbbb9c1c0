"""`moot agent` as people run it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from moot.cli import main
from tests.agents.model.endpoint import call, endpoint
from tests.agents.model.test_agent import TRUSTED
from tests.participant.gateway_with_members import TOOL_HOST, ReceivedEnvelopes, gateway_with
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command


async def test_a_process_joins_answers_and_leaves_on_ctrl_c(tmp_path: Path) -> None:
    token = tmp_path / "agent.token"
    token.write_text("t-agent\n")
    token.chmod(0o600)
    async with (
        endpoint(call("add", a=20, b=22), "42, of course, other-secret-7.") as model,
        gateway_with(tmp_path, alice=["*"], calculator=TOOL_HOST, agent=TRUSTED) as gateway,
    ):
        alice, calculator = await gateway.join("alice"), await gateway.join("calculator")

        @calculator.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        received = ReceivedEnvelopes(alice)
        place = ["--gateway", gateway.url, "--space", "lab", "--token-file", str(token)]
        child = await asyncio.create_subprocess_exec(
            *warm_command(), "agent", *place, "--base-url", model.url, "--model", "scripted",
            "--api-key-env", "THE_KEY", "--header", "X-Title: Moot: a test",
            "--header-env", "api-key=OTHER_KEY", "--log-level", "debug",
            env={**os.environ, "THE_KEY": "sk-1", "OTHER_KEY": "other-secret-7"},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await alice.roster.wait_for("agent", timeout_seconds=HANG_SECONDS)
            await alice.chat("agent: 20 + 22?")
            reply = await received.wait(lambda e: e.kind == "chat" and e.sender == "agent")
            assert reply.payload["text"] == "42, of course, [key withheld]."
            assert model.headers[0]["authorization"] == "Bearer sk-1"
            assert model.headers[0]["x-title"] == "Moot: a test"
            assert model.headers[0]["api-key"] == "other-secret-7"
        finally:
            child.send_signal(signal.SIGINT)
            _, errors = await child.communicate()
        assert child.returncode == 0
        assert b"Traceback" not in errors
        assert b"sk-1" not in errors
        assert b"other-secret" not in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--api-key-env", "NOT_SET_ANYWHERE"], "the variable NOT_SET_ANYWHERE is not set"),
        (["--base-url", "localhost:1"], "starts with http:// or https://"),
        (["--base-url", "https://me:secret@example.org/v1"], "--base-url holds no key"),
        (["--base-url", "https://example.org/v1?key=secret"], "--base-url holds no key"),
        (["--header", "X-Title"], '--header is "NAME: VALUE"'),
        (["--header", "X Title: Moot"], '--header is "NAME: VALUE"'),
        (["--header", "X-Title: a\r\nHost: b"], '--header is "NAME: VALUE"'),
        (["--header", "Authorization: Bearer sk-1"], "use --header-env Authorization=VARIABLE"),
        (["--header", "x-api-key: sk-1"], "use --header-env x-api-key=VARIABLE"),
        (["--header-env", "api-key"], "--header-env is NAME=VARIABLE"),
        (["--header-env", "api-key=NOT_SET_ANYWHERE"], "the variable NOT_SET_ANYWHERE is not set"),
        (["--cost-per-day", "5"], "--cost-per-day needs --prices"),
        (["--cost-per-day", "nan", "--prices", "1/2"], "--cost-per-day is a number above 0"),
        (["--prices", "1"], "--prices is IN/OUT"),
        (["--prices", "nan/1"], "--prices is IN/OUT"),
        (["--tokens-per-day", "0"], "--tokens-per-day is a number above 0"),
        (["--max-steps", "0"], "--max-steps is a number above 0"),
        (["--instructions", "no/such/file"], "cannot be read"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "t"
    token.write_text("t")
    token.chmod(0o600)
    place = [
        "--gateway",
        "http://127.0.0.1:9",
        "--token-file",
        str(token),
        "--base-url",
        "http://x",
        "--model",
        "m",
    ]
    assert main(["agent", *place, *arguments]) == 2
    assert words in capsys.readouterr().err
