"""A server that does not come up: whoever started the adapter sees why, and nobody else what it wrote."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from moot.errors import MootError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_loader import control_path, load_settings
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from tests.waiting import HANG_SECONDS, bounded, until_told
from tests.xprotocol.adapter.adapter_environment import notes_server
from tests.xprotocol.adapter.command_runner import run_program, start_adapter
from tests.xprotocol.adapter.test_adapter_commands import config
from tests.xprotocol.test_devserver import devserver

SECRET = "s3cret-of-the-database"
# Fails as programs do, and says a secret as some do. A shell, since it is there at once.
DIES = """\
echo "opening the database with $DATABASE_PASSWORD" >&2
printf '\\033[31mno such table: notes\\033[0m\\n' >&2
exit 7
"""
HANGS = """\
echo "waiting for a lock that nobody gives back" >&2
exec sleep 600
"""
# How long a server may take to greet. On a slow machine a first try may end otherwise than it should, and
# the next one does not: tests wait for what they want to see.
START_SECONDS = 3


def source(name: str, command: str, *args: str, **more: Json) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "name": name,
        "transport": "stdio",
        "command": command,
        "args": list(args),
        "xprotocol_namespace": f"com.acme.{name}",
    }
    return entry | more


def sources(folder: Path) -> list[Json]:
    (folder / "dies.sh").write_text(DIES)
    (folder / "hangs.sh").write_text(HANGS)
    return [
        source("dies", "/bin/sh", str(folder / "dies.sh"), env={"DATABASE_PASSWORD": SECRET}),
        source("hangs", "/bin/sh", str(folder / "hangs.sh")),
        source("missing", str(folder / "no-such-program")),
    ]


def check_said(text: str, prefix: str = "") -> None:
    """What a person at the terminal reads about the three."""
    lines = text.splitlines()
    assert f"{prefix}  | opening the database with [hidden]" in lines
    assert any(line.startswith(f"{prefix}  | ") and "no such table: notes" in line for line in lines)
    assert f"{prefix}  | waiting for a lock that nobody gives back" in lines
    assert any("exit code 7" in line for line in lines)
    assert any("did not finish the handshake within 3 s" in line for line in lines)
    assert any("no-such-program" in line for line in lines)
    assert SECRET not in text
    assert "\x1b" not in text


async def page(address: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(address, timeout=HANG_SECONDS) as answer:  # noqa: S310  # our own page
            return str(answer.read().decode())

    return await asyncio.to_thread(read)


async def all_failed(control: Path) -> dict[str, Any]:
    """The status, once the adapter is there and each server has failed in its own way."""
    wanted = ("exit code 7", "did not finish the handshake", "cannot be started")

    async def look() -> dict[str, Any] | None:
        with suppress(MootError):
            status = await send_control_request(control, "status")
            found = [each["trouble"] for each in status["sources"]]
            answer = all(words in trouble for words, trouble in zip(wanted, found, strict=True))
            return status if answer and all(each["stderr"] for each in status["sources"][:2]) else None
        return None

    status = await until_told(look)
    assert status is not None
    return status


@pytest.fixture
def file(tmp_path: Path) -> Path:
    logging = {"output": str(tmp_path / "adapter.log")}
    limits = {"upstream_start_seconds": START_SECONDS}
    return config(tmp_path, mcp_sources=sources(tmp_path), logging=logging, limits=limits)


async def stopped(child: asyncio.subprocess.Process) -> str:
    """End an adapter as people do, so that it ends the server that hangs; what it said on stderr since."""
    child.terminate()
    async with bounded():
        return (await child.communicate())[1].decode()


async def test_start_says_why_servers_failed_and_what_they_wrote_last(file: Path) -> None:
    async with start_adapter("--config", file) as child:
        assert child.stderr is not None
        answer, wanted = "", ("  | waiting for a lock", "no such table", "source missing is down")
        async with bounded():
            while not ("exit code 7" in answer and all(words in answer for words in wanted)):
                line = (await child.stderr.readline()).decode()
                assert line, answer
                answer += line
        answer += await stopped(child)
    check_said(answer, "xprotocol-adapter: ")


async def test_status_shows_it_to_the_operator_and_the_pages_do_not(file: Path, tmp_path: Path) -> None:
    control = load_settings(file, environ={}).control
    async with start_adapter("--config", file) as child:
        status = await all_failed(control)
        check_said((await asyncio.to_thread(run_program, "status", "--control", control)).out)
        pages = [
            await page(status["well_known"] + path)
            for path in ("/health", "/.well-known/xprotocol-endpoint", "/xp/schemas", "/metrics")
        ]
        await stopped(child)
    for text in (*pages, (tmp_path / "adapter.log").read_text()):
        assert "database with" not in text
        assert "no such table" not in text
        assert "nobody gives back" not in text
    assert json.loads(pages[0])["problems"].count("source dies is down") == 1


async def test_a_devserver_shows_it_where_it_was_started(tmp_path: Path) -> None:
    document = {"mcp_sources": sources(tmp_path), "limits": {"upstream_start_seconds": START_SECONDS}}
    file = tmp_path / "adapter.yml"
    file.write_text(json.dumps(document))
    async with devserver(tmp_path, "--config", str(file), "--data", str(tmp_path / "dev")) as running:
        await running.line(r"✗ Wrapped MCP server: com\.acme\.dies is down: .*exit code 7")
        await running.line(r"✗ Wrapped MCP server: com\.acme\.hangs is down: .*did not finish the handshake")
        await running.line(r"✗ Wrapped MCP server: com\.acme\.missing is down: cannot be started")
        await running.line(r"^  \| waiting for a lock")
        check_said("\n".join(running.lines))
        status = await send_control_request(control_path(tmp_path / "dev" / "adapter"), "status")
        assert [bool(each["stderr"]) for each in status["sources"]] == [True, True, False]


async def test_a_server_that_comes_up_is_not_quoted(tmp_path: Path) -> None:
    file = config(tmp_path, notes_server(tmp_path))
    control = load_settings(file, environ={}).control
    async with start_adapter("--config", file) as child:
        assert child.stderr is not None
        async with bounded():
            await child.stderr.readuntil(b"running: key")
        status = await send_control_request(control, "status")
        assert [(each["state"], each["stderr"]) for each in status["sources"]] == [("up", [])]
