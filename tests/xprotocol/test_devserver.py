"""The DevServer as a newcomer starts it (XP 10): as a process, with MCP clients of others."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp import Client, StdioServerParameters
from moot.cli.devserver import main
from moot.protocol.operation import Json
from tests.waiting import HANG_SECONDS, bounded, until, until_told
from tests.warm_start import WarmProcess, start_moot, warm_programs
from tests.xprotocol.adapter.adapter_environment import SERVER, NotesServer, notes_server

FREE_PORTS = ["--relay-port", "0", "--port", "0", "--mcp-port", "0"]


@dataclass
class Running:
    """A DevServer in a process of its own, and what it has printed."""

    process: asyncio.subprocess.Process | WarmProcess
    lines: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip("\n"))
            self.news.set()
        self.news.set()

    async def line(self, pattern: str) -> re.Match[str]:
        async with bounded():
            while True:
                for line in self.lines:
                    if found := re.search(pattern, line):
                        return found
                if self.process.returncode is not None:
                    raise AssertionError(f"ended: {self.lines}")
                self.news.clear()
                await self.news.wait()

    async def stopped(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with bounded():
            return await self.process.wait()


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}


@asynccontextmanager
async def devserver(tmp_path: Path, *words: str, **constants: Json) -> AsyncIterator[Running]:
    """`constants` are those of the adapter."""
    with (tmp_path / "devserver.log").open("wb") as log:
        process = await start_moot(
            *FREE_PORTS,
            *words,
            program="xprotocol-devserver",
            environ=environment(tmp_path),
            cwd=tmp_path,
            stderr=log,
            constants={f"moot.xprotocol.adapter.adapter.{name}": each for name, each in constants.items()},
        )
    running = Running(process)
    reading = asyncio.create_task(running.read())
    try:
        await running.line(r'^\{"mcpServers"')
        yield running
    finally:
        if process.returncode is None:
            await running.stopped()
        await reading


def inline(server: NotesServer) -> list[str]:
    return ["--mcp-command", f"{sys.executable} {SERVER} {server.folder}", "--namespace", server.namespace]


def proxy(tmp_path: Path, folder: Path, *words: str) -> StdioServerParameters:
    """As an MCP client starts it: in a folder of its own."""
    folder.mkdir(exist_ok=True)
    return StdioServerParameters(
        command=str(warm_programs() / "xprotocol-devserver"),
        args=["--mcp-proxy", *words],
        cwd=folder,
        env=environment(tmp_path),
    )


async def names_of(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def until_named(client: Client, name: str) -> None:
    async def is_named() -> bool:
        return name in await names_of(client)

    await until_told(is_named)


@pytest.mark.requirement(
    "XP-0-6",
    "XP-2.3-4",
    "XP-10-1",
    "XP-10-2",
    "XP-10-3",
    "XP-10-4",
    "XP-10-6",
    "XP-10-8",
    "XP-10-9",
    "XP-10-10",
    "XP-10-11",
    "XP-10-12",
    "XP-10-13",
    "XP-11.2-5",
)
async def test_one_command_brings_a_server_to_an_mcp_client_across_a_relay(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    async with devserver(tmp_path, *inline(server)) as running:
        # In CPU, not by the clock: machines are shared. What it starts and waits for is counted, too.
        assert _cpu_seconds(running.process.pid) < 5
        await running.line(r"^✓ XProtocol DevServer started$")
        key = (await running.line(r"^✓ Adapter key: (ed25519:\S{43})$"))[1]
        relay = (await running.line(r"^✓ Local relay: ws://localhost:(\d+)$"))[1]
        await running.line(r"^✓ Wrapped MCP server: com\.acme\.desk \(12 tools\)$")
        page = (await running.line(r"^✓ Schema catalog: (http://localhost:\d+/\S+)$"))[1]
        await running.line("not use it in production")
        pasted = json.loads((await running.line(r'^\{"mcpServers".*'))[0])["mcpServers"]["xprotocol"]
        assert pasted == {"command": "xprotocol-devserver", "args": ["--mcp-proxy"]}

        found = await asyncio.to_thread(_fetched, page)
        assert found["public_key"] == key
        assert found["endpoint"].endswith(f":{relay}")
        assert _listens_on(running.process.pid) == {"127.0.0.1"}

        # From another folder: the one that runs is found all the same.
        async with Client(proxy(tmp_path, tmp_path / "elsewhere")) as client:
            await until_named(client, "com_acme_desk_read_note")
            result = await client.call_tool("com_acme_desk_read_note", {"name": "one"})
            assert "first words" in str(result.content)
        await running.line(r"com\.acme\.desk\.read_note +client → adapter")
        await running.line(r"com\.acme\.desk\.read_note\.result +adapter → client")
        assert not [line for line in running.lines if "first words" in line]
        assert await running.stopped() == 0
    # What it keeps of events is SQLite, with no plaintext in it.
    kept = list((tmp_path / ".moot" / "devserver" / "relay").iterdir())
    assert any(file.read_bytes().startswith(b"SQLite format 3") for file in kept)
    assert not [file for file in kept if b"first words" in file.read_bytes()]


async def test_payloads_are_shown_when_asked_for_and_fresh_forgets(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    async with devserver(tmp_path, *inline(server), "--payloads") as running:
        key = (await running.line(r"^✓ Adapter key: (\S+)$"))[1]
        async with Client(proxy(tmp_path, tmp_path)) as client:
            await until_named(client, "com_acme_desk_read_note")
            await client.call_tool("com_acme_desk_read_note", {"name": "one"})
        await running.line("first words")
    async with devserver(tmp_path, *inline(server)) as running:
        assert (await running.line(r"^✓ Adapter key: (\S+)$"))[1] == key
    async with devserver(tmp_path, *inline(server), "--fresh") as running:
        assert (await running.line(r"^✓ Adapter key: (\S+)$"))[1] != key


@pytest.mark.requirement("XP-10-5", "XP-10-7")
async def test_an_edited_file_changes_a_running_devserver(tmp_path: Path) -> None:
    first, second = notes_server(tmp_path), notes_server(tmp_path, "other", "com.acme.other")
    file = tmp_path / "xprotocol-mcp-adapter.yml"
    # As for production: its relay and its key are not used here.
    document: dict[str, Any] = {
        "identity": {"key_file": "~/none.key", "display_name": "Acme"},
        "relay": {"urls": ["wss://relay.example.org"]},
        "mcp_sources": [first.source],
        "mcp_server": {"transport": "stdio"},
    }
    file.write_text(yaml.safe_dump(document))
    async with (
        devserver(tmp_path, "--config", str(file)) as running,
        Client(proxy(tmp_path, tmp_path / "elsewhere")) as client,
    ):
        await until_named(client, "com_acme_desk_read_note")
        assert "com_acme_other_read_note" not in await names_of(client)
        document["mcp_sources"].append(second.source)
        file.write_text(yaml.safe_dump(document))
        await until_named(client, "com_acme_other_read_note")
        result = await client.call_tool("com_acme_other_read_note", {"name": "one"})
        assert "first words" in str(result.content)
        # A mistake is told and changes nothing.
        file.write_text("identity: [")
        await _until_logged(tmp_path / "devserver.log", "configuration not reloaded")
        assert "com_acme_other_read_note" in await names_of(client)
        assert running.process.returncode is None


async def test_a_proxy_alone_starts_what_ran_last(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    async with devserver(tmp_path, *inline(server)):
        pass
    async with Client(proxy(tmp_path, tmp_path / "elsewhere", *FREE_PORTS)) as client:
        await until_named(client, "com_acme_desk_read_note")
        result = await client.call_tool("com_acme_desk_read_note", {"name": "one"})
        assert "first words" in str(result.content)


async def test_a_server_that_is_late_is_told_of_when_it_is_there(tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    slow, go = tmp_path / "slow.sh", tmp_path / "go"
    wait = f"until [ -e {go} ]; do sleep 0.1; done"
    slow.write_text(f"#!/bin/sh\n{wait}\nexec {sys.executable} {SERVER} {server.folder}\n")
    slow.chmod(0o755)
    words = ["--mcp-command", str(slow), "--namespace", server.namespace]
    async with devserver(tmp_path, *words, _FIRST_REFRESH_SECONDS=0.5) as running:
        await running.line(r"^… Wrapped MCP server: com\.acme\.desk is still starting$")
        go.touch()
        await running.line(r"^✓ Wrapped MCP server: com\.acme\.desk \(12 tools\)$")


def test_mistakes_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main([]) == 2
    assert "--mcp-command" in capsys.readouterr().err
    assert main(["--host", "0.0.0.0", "--mcp-command", "x", "--namespace", "com.x"]) == 2  # noqa: S104
    assert "--i-know" in capsys.readouterr().err
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis").write_text("years of work")
    assert main(["--fresh", "--data", "papers", "--mcp-command", "x", "--namespace", "com.x"]) == 2
    assert (tmp_path / "papers" / "thesis").exists()
    with pytest.raises(SystemExit) as left:
        main(["--mcp-command", "x"])
    assert left.value.code == 2


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=HANG_SECONDS) as answer:  # noqa: S310  # our own page
        return json.loads(answer.read())


def _listens_on(pid: int) -> set[str]:
    """The addresses that a process listens on, IPv4 alone."""
    sockets = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address = bytes.fromhex(fields[1].partition(":")[0])[::-1]
                found.add(".".join(map(str, address)))
    return found


async def _until_logged(file: Path, words: str) -> None:
    await until(lambda: words in file.read_text())
