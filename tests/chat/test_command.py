"""`moot chat` as people run it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from moot.cli import main
from tests.bridges.served_space import HOST, PROPOSER
from tests.chat.test_slack import said, wire_slack
from tests.gateway.running_gateway import participants, running_gateway
from tests.waiting import bounded
from tests.warm_start import start_moot


def secret(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(f"{text}\n")
    file.chmod(0o600)
    return str(file)


def place(folder: Path, gateway: str, name: str) -> list[str]:
    return [
        "--gateway",
        gateway,
        "--space",
        "lab",
        "--token-file",
        secret(folder, f"{name}.token", f"t-{name}"),
    ]


async def test_a_process_binds_ends_on_ctrl_c_and_says_no_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = participants(ana=["*"], agent=PROPOSER, files=HOST, bot=["moot/bind"])
    async with wire_slack() as slack, running_gateway(tmp_path, people) as gateway:
        words = ["chat", "slack", "--api", slack.url, "--bot-token-file", secret(tmp_path, "b", "xoxb-1")]
        words += ["--app-token-file", secret(tmp_path, "a", "xapp-1"), *place(tmp_path, gateway.url, "bot")]
        environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
        with (tmp_path / "errors").open("wb") as errors:
            child = await start_moot(*words, environ=environ, cwd=tmp_path, stderr=errors)
        try:
            async with bounded():
                while slack.socket is None:
                    await asyncio.sleep(0.05)
            bind = ["chat", "bind", *place(tmp_path, gateway.url, "ana")]
            assert await asyncio.to_thread(main, bind) == 0
            line = capsys.readouterr().out.split("\n")[0]
            assert line.startswith("bind ")
            await slack.socket.send(
                f'{{"envelope_id": "e", "type": "events_api", "payload": {json.dumps(said(line))}}}'
            )
            await slack.see("now decides as ana")
            # A second one for the same bot would take each act twice.
            again = await start_moot(*words, environ=environ, cwd=tmp_path, stderr=asyncio.subprocess.STDOUT)
            output, _ = await again.communicate()
            assert b"served by another `moot chat` already" in output
        finally:
            child.send_signal(signal.SIGINT)
            output, _ = await child.communicate()
        assert await child.wait() == 0
        assert b"moot in x shows what waits in lab on Slack; 0 accounts bound" in output
        heard = output + (tmp_path / "errors").read_bytes()
        assert not [each for each in (b"xoxb-1", b"xapp-1", b"t-bot", b"ticket=") if each in heard]


async def test_a_member_without_moot_bind_is_told(tmp_path: Path) -> None:
    people = participants(bot=["chat"])
    async with wire_slack() as slack, running_gateway(tmp_path, people) as gateway:
        words = ["chat", "slack", "--api", slack.url, "--bot-token-file", secret(tmp_path, "b", "xoxb-1")]
        words += ["--app-token-file", secret(tmp_path, "a", "xapp-1"), *place(tmp_path, gateway.url, "bot")]
        environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
        child = await start_moot(*words, environ=environ, cwd=tmp_path, stderr=asyncio.subprocess.STDOUT)
        output, _ = await child.communicate()
        assert b"bot may not bind accounts" in output
        assert await child.wait() == 2


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["matrix", "--homeserver", "http://matrix.example.org"], "without encryption; use https"),
        (["matrix", "--homeserver", "matrix.example.org"], "an address such as"),
        (["slack"], "say how acts come"),
        (["telegram", "--api", "ftp://x"], "an address such as"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "chat",
        *words,
        "--bot-token-file",
        secret(tmp_path, "b", "t"),
        *place(tmp_path, "http://localhost:1", "x"),
    ]
    assert main(given) == 2
    assert part in capsys.readouterr().err


def test_a_bot_token_that_others_can_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = secret(tmp_path, "b", "t")
    Path(token).chmod(0o644)
    given = ["chat", "telegram", "--bot-token-file", token, *place(tmp_path, "http://localhost:1", "x")]
    assert main(given) != 0
    assert "others" in capsys.readouterr().err
