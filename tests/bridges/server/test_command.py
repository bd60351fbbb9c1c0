"""`moot bridge` as a command: it joins, it says what is wrong, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.bridges.server.bridge_runner import bridged
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.cli import main
from moot.cli.bridge import headers_of
from moot.errors import UsageError
from moot.mcp.upstream import UpstreamOptions
from moot.protocol.close_codes import REMOVED
from tests.bridges.bridged_space import bridged_space, call
from tests.mcp.upstreams import QUICK, SERVERS, is_alive, script, serve_workshop, value_of, wait_until_gone
from tests.waiting import HANG_SECONDS, bounded, until
from tests.warm_start import warm_command

ODD = (sys.executable, str(SERVERS / "odd.py"))


@asynccontextmanager
async def command(folder: Path, *arguments: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process, once it has said that it joined."""
    process = await asyncio.create_subprocess_exec(
        *warm_command(),
        "bridge",
        *arguments,
        cwd=folder,
        env=os.environ | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def token_file(folder: Path, name: str = "host") -> str:
    file = folder / f"{name}.token"
    file.write_text(f"t-{name}\n")
    file.chmod(0o600)
    return str(file)


async def printed_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with bounded():
        return (await process.stdout.readline()).decode()


async def test_a_server_joins_by_one_command_and_a_signal_ends_it_all(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        options = ("--gateway", space.gateway.url, "--space", "lab", "--token-file", token_file(tmp_path))
        listed = ("--env", "LISTED=1", "--env", "HANDED_ON")
        async with command(
            tmp_path, *options, *listed, "--", *ODD, "--version", "2025-03-26", HANDED_ON="2", SECRET="3"
        ) as process:
            line = await printed_line(process)
            assert line.endswith(" is host in lab\n")
            answer = value_of(await call(alice, "told"))
            assert answer["env"]["LISTED"] == "1"
            assert answer["env"]["HANDED_ON"] == "2"
            assert "SECRET" not in answer["env"]
            process.send_signal(signal.SIGTERM)
            async with bounded():
                assert await process.wait() == 0
        await wait_until_gone(answer["pid"])
        await until(lambda: "host" not in alice.roster)
    assert (tmp_path / ".moot" / "pins.json").exists()


async def test_a_server_at_a_url_joins(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space, serve_workshop("streamable-http") as url:
        alice = await space.join("alice")
        options = ("--gateway", space.gateway.url, "--token-file", token_file(tmp_path), "--url", url)
        async with command(tmp_path, *options) as process:
            assert url in await printed_line(process)
            assert (await alice.call("host", "add", {"a": 1, "b": 2})).structured == {"result": 3}


async def test_a_member_that_is_kicked_stops_its_server_and_says_so(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        options = (
            "--gateway",
            space.gateway.url,
            "--token-file",
            token_file(tmp_path),
            "--pins",
            "p/pins.json",
        )
        async with command(tmp_path, *options, "--", *ODD) as process:
            await printed_line(process)
            pid = value_of(await call(alice, "told"))["pid"]
            await alice.admin.kick("host")
            assert (await printed_line(process)).startswith("left the space: 4003")
            async with bounded():
                assert await process.wait() == 1
        await wait_until_gone(pid)
    assert (tmp_path / "p" / "pins.json").exists()


async def test_a_member_that_is_shut_down_ends_well(tmp_path: Path) -> None:
    """MEW 3.9.10."""
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        options = ("--gateway", space.gateway.url, "--token-file", token_file(tmp_path))
        async with command(tmp_path, *options, "--", *ODD) as process:
            await printed_line(process)
            await alice.send("participant/shutdown", {"reason": "done"}, to="host")
            assert (await printed_line(process)).startswith("left the space: 4002")
            async with bounded():
                assert await process.wait() == 0


async def test_serving_in_process_tells_how_it_ended(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        alice = await space.join("alice")
        settings = BridgeSettings(
            server=script("odd"),
            gateway=space.gateway.url,
            space="lab",
            token="t-host",
            upstream=UpstreamOptions(limits=QUICK),
        )
        async with bridged(settings) as member:
            await alice.roster.wait_for("host", timeout_seconds=HANG_SECONDS)
            pid = value_of(await call(alice, "told"))["pid"]
            await alice.admin.kick("host")
            ending = await member.space.stay()
        assert ending.code == REMOVED
        assert not is_alive(pid)


async def test_a_server_that_does_not_start_is_shown_with_its_last_words_made_harmless(
    tmp_path: Path,
) -> None:
    async with bridged_space(tmp_path) as space:
        options = ("--gateway", space.gateway.url, "--token-file", token_file(tmp_path))
        async with command(tmp_path, *options, "--", *ODD, "--die-at-start", "5") as process:
            assert process.stderr is not None
            shown = (await process.stderr.read()).decode()
            assert await process.wait() == 1
    (kept,) = (tmp_path / ".moot" / "stderr").iterdir()
    assert kept.read_text() == "cannot open \x1b[31mthe door\x1b[0m\n"
    assert "moot: the MCP server ended with exit code 5" in shown
    assert "  | cannot open \\x1b[31mthe door" in shown
    assert "Traceback" not in shown


async def test_a_token_that_is_not_taken_is_told_without_a_traceback(tmp_path: Path) -> None:
    async with bridged_space(tmp_path) as space:
        options = (
            "--gateway",
            space.gateway.url,
            "--space",
            "lab",
            "--token-file",
            token_file(tmp_path, "nobody"),
        )
        async with command(tmp_path, *options, "--", *ODD) as process:
            assert process.stderr is not None
            shown = (await process.stderr.read()).decode()
            assert await process.wait() == 5
    assert "token" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either --url URL or, after --, the command"),
        (("--url", "http://x/mcp", "--", "cmd"), "give either --url URL or, after --, the command"),
        (("--url", "ftp://x"), "start with http:// or https://"),
        (("--env", "=x", "--", "cmd"), "write NAME=VALUE"),
        (("--env", "NO_SUCH_VARIABLE_HERE", "--", "cmd"), "no such variable to pass on"),
        (("--bearer-file", "x", "--", "cmd"), "--bearer-file goes with --url"),
        (("--header", "X=env:HOME", "--", "cmd"), "--header goes with --url"),
        (("--client-id", "x", "--", "cmd"), "--client-id goes with --url"),
        (("--credentials", "requester", "--", "cmd"), "--credentials goes with --url"),
        (("--url", "http://x/mcp", "--header", "X=secret"), "write NAME=file:PATH or NAME=env:VARIABLE"),
        (("--url", "http://x/mcp", "--header", "X=env:NO_SUCH_VARIABLE_HERE"), "there is no variable"),
        (
            ("--url", "http://x/mcp", "--header", "Authorization=env:HOME", "--client-id", "x"),
            "needs no client",
        ),
        (("--url", "http://x/mcp", "--grant", "client_credentials"), "needs --client-id and"),
        (("--call-seconds", "0", "--", "cmd"), "--call-seconds must be more than 0"),
        (("--", "no-such-program-at-all"), "no such program"),
    ],
)
def test_a_mistake_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    options = ["bridge", "--gateway", "http://127.0.0.1:9", "--token-file", token_file(tmp_path)]
    code = main([*options, "--pins", str(tmp_path / "pins.json"), *arguments])
    # No such program: it was tried, and failed.
    assert code == (1 if says == "no such program" else 2)
    shown = capsys.readouterr().err
    assert says in shown
    assert "secret" not in shown.replace("so that no secret is seen", "").replace("--client-secret-file", "")


def test_headers_come_from_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCS_TEAM", "red")
    file = tmp_path / "key"
    file.write_text("k-1\n")
    file.chmod(0o600)
    assert headers_of([f"X-Key=file:{file}", "X-Team=env:DOCS_TEAM"]) == {"X-Key": "k-1", "X-Team": "red"}
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        headers_of([f"X-Key=file:{file}"])


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bridge", "--help"])
    shown = capsys.readouterr().out
    assert "-- npx -y @modelcontextprotocol/server-filesystem" in shown
    assert "withheld until" in shown
