"""`moot a2a serve` and `moot a2a join` as people start them: the one joins what the other publishes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from moot.cli import main
from moot.cli.agents import a2a
from moot.cli.process.exit_codes import EXIT_USAGE
from moot.participant import connect
from moot.protocol.envelope import Envelope
from tests.agents.a2a.served_space import CALLER, CODER, LIST, write_config
from tests.gateway.running_gateway import participants, running_gateway
from tests.waiting import HANG_SECONDS, bounded, until


@asynccontextmanager
async def command(
    folder: Path, member: str, *arguments: str, ready: str, constants: Mapping[str, float] | None = None
) -> AsyncIterator[str]:
    """The command while the block runs, killed at its end; its line that says that it is ready."""
    tried = json.dumps({f"moot.agents.a2a.{path}": value for path, value in (constants or {}).items()})
    program = ("tests.gateway.moot_with_constants", "moot.cli") if constants else ("moot.cli",)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *program, "a2a", *arguments, "--as", member,
        "--state", str(folder / f"state-{member}"), "--log-level", "error",
        stdout=asyncio.subprocess.PIPE, cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TRIED_CONSTANTS": tried},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with bounded():
            async for line in process.stdout:
                if ready in line.decode():
                    break
        yield line.decode()
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_a_published_member_joins_again_and_kills_neither_repeat_nor_lose(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    everybody = participants(alice=["*"], coder=CODER, acme=CALLER, a2a=[LIST], twin=CODER)
    async with (
        running_gateway(tmp_path / "gateway", everybody) as gateway,
        connect(gateway.url, "lab", "t-alice") as alice,
        connect(gateway.url, "lab", "t-coder") as coder,
    ):
        write_config(tmp_path, gateway, everybody)
        received: list[Envelope] = []
        alice.on("*")(received.append)

        def chats(sender: str, text: str) -> list[Envelope]:
            return [
                each
                for each in received
                if each.kind == "chat" and each.sender == sender and text in str(each.payload["text"])
            ]

        serve = ("serve", "--publish", "coder", "--port", "0")
        key = tmp_path / "acme.key"
        key.write_text("t-acme")
        key.chmod(0o600)
        async with command(tmp_path, "a2a", *serve, ready="is published at") as answer:
            card = answer.split()[-1]
            join = ("join", card, "--agent-token-file", str(key))
            async with command(tmp_path, "twin", *join, ready="Joined lab as twin"):
                await alice.chat("What now?", to="twin")
                question = (await until(lambda: chats("acme", "What now?")))[0]
                tasks = tmp_path / "state-twin" / "tasks.json"
                await until(lambda: re.search('"task_id":"[0-9a-f]', tasks.read_text()))
            # Killed, and answered meanwhile.
            await coder.chat("Rest.", about=question.id)
            async with command(tmp_path, "twin", *join, ready="Joined lab as twin"):
                await until(lambda: chats("twin", "Rest."))
                await alice.chat("And now?", to="twin")
                second = (await until(lambda: chats("acme", "And now?")))[0]
                await coder.chat("Sleep.", about=second.id)
                await until(lambda: chats("twin", "Sleep."))
        assert len(chats("acme", "")) == 2
        assert len(chats("twin", "Rest.")) == 1


async def test_limits_and_the_public_address_are_options(tmp_path: Path, port: int) -> None:
    (tmp_path / "gateway").mkdir()
    everybody = participants(coder=CODER, acme=CALLER, a2a=[LIST])
    async with running_gateway(tmp_path / "gateway", everybody) as gateway:
        write_config(tmp_path, gateway, everybody)
        public = "https://agents.example.com/lab"
        given = ("--port", str(port), "--limit", "max_requests_per_minute=1")
        serve = ("serve", "--publish", "coder", *given, "--public-url", f"{public}/")
        async with command(tmp_path, "a2a", *serve, ready="Cards are signed") as line:
            assert line.split()[-1] == f"{public}/.well-known/jwks.json"
            url = f"http://127.0.0.1:{port}/.well-known/agent-card.json"
            async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
                card = (await http.get(url)).json()
                assert card["supportedInterfaces"][0]["url"] == f"{public}/coder/"
                rpc, headers = f"http://127.0.0.1:{port}/coder/", {"Authorization": "Bearer t-acme"}
                statuses = [(await http.post(rpc, json={}, headers=headers)).status_code for _ in range(2)]
                assert statuses[0] != 429 == statuses[1]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--limit", "max_cards=1"), "no such limit. There are: max_requests_per_minute, max_open_tasks"),
        (("--limit", "max_open_tasks=many"), "a whole number above 0, as max_open_tasks=20"),
        (("--limit", "max_open_tasks=0"), "a whole number above 0"),
        (("--host", "0.0.0.0"), "--public-url https://HOST:PORT"),  # noqa: S104
        (("--public-url", "agents.example.com"), "--public-url: must be a URL"),
    ],
)
def test_an_option_that_cannot_be_meant_says_what_can(
    given: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["a2a", "serve", "--publish", "coder", "--as", "a2a", *given]) == EXIT_USAGE
    assert text in capsys.readouterr().err


def test_a_limit_that_is_no_setting_any_more_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    join, serve = a2a._FORMER_OF_JOIN, a2a._FORMER_OF_SERVE
    a2a._tell_former([f"{name}=1" for name in join])
    assert a2a._limits([f"{name}=1" for name in serve]) == {}
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == [*join, *serve]
    assert "--limit max_skills is not a setting any more: it is 100" in lines
