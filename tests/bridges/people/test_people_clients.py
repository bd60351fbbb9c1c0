"""The official SDKs' own OAuth clients at `moot mcp --people`, against a provider that others wrote."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from moot.cli import main
from moot.participant import connect
from moot.protocol.operation import Json
from tests.bridges.people.oauth_clients import WRITE, Storage, python_client, typescript_client
from tests.bridges.people.people_space import CALL, LISTS, READ
from tests.bridges.served_space import HOST, offer_files, text_of
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.foreign_provider import AUDIENCE, foreign_provider, new_browser
from tests.gateway.sign_in.oidc_provider import person
from tests.gateway.sign_in.test_sign_in import has_keys
from tests.ports import held_port
from tests.rows import for_each_row
from tests.waiting import bounded, until
from tests.warm_start import warm_command


@asynccontextmanager
async def people_process(folder: Path) -> AsyncIterator[tuple[LocalGateway, str]]:
    """A gateway, the provider, and `moot mcp --people` as a process; its address."""
    (folder / "provider").mkdir()
    (folder / "mcp.token").write_text("t-mcp")
    (folder / "mcp.token").chmod(0o600)
    with held_port() as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with foreign_provider(folder / "provider", servers=[url]) as issuer:
            entry: Json = {
                "space": "lab",
                "server": "mcp",
                "resource": url,
                "read_scope": READ,
                "call_scope": CALL,
            }
            rule = person(match={"groups": "staff"}, capabilities=["*"])
            oidc: Json = {"issuer": issuer, "audience": AUDIENCE, "people": [rule], "mcp": entry}
            people = participants(root=["*"], files=HOST, mcp=LISTS)
            async with running_gateway(folder, people, oidc=oidc) as gateway:
                await until(lambda: has_keys(gateway))
                where = [
                    "--gateway",
                    gateway.url,
                    "--space",
                    "lab",
                    "--token-file",
                    str(folder / "mcp.token"),
                ]
                errors = (folder / "stderr").open("wb")
                process = await asyncio.create_subprocess_exec(
                    *(*warm_command(), "mcp", "--people", *where),
                    *("--http", f"127.0.0.1:{port}"),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
                )
                errors.close()
                assert process.stdout is not None
                try:
                    async with bounded():
                        assert b"MCP for people" in await process.stdout.readline(), (
                            folder / "stderr"
                        ).read_text()
                    yield gateway, url
                finally:
                    process.terminate()
                    await process.wait()
                assert (folder / "stderr").read_bytes() == b""


def asked_for(opened: list[str]) -> list[list[str]]:
    return [parse_qs(urlsplit(address).query)["scope"][0].split() for address in opened]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_official_clients_sign_in_read_and_step_up_to_call(tmp_path: Path, mode: str) -> None:
    """Python in both eras, and both TypeScript SDKs, with a client that the provider knows."""
    async with people_process(tmp_path) as (people, url), connect(people.url, "lab", "t-files") as files:
        kept = offer_files(files)
        opened: list[str] = []
        storage = Storage("editor")
        async with (
            new_browser("ana") as browser,
            python_client(url, mode, storage, browser, opened) as client,
        ):
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"moot_chat", "write_file"} <= names
            assert storage.tokens is not None
            assert (storage.tokens.scope or "").split() == [READ]
            assert text_of(await client.call_tool("write_file", WRITE)) == "wrote b"
            assert [set(scopes) & {READ, CALL} for scopes in asked_for(opened)] == [{READ}, {READ, CALL}]
        assert kept["b"] == "new"
        del kept["b"]
        sdk = "1" if mode == "legacy" else "2"
        async with new_browser("bob") as browser, typescript_client(sdk, url, browser) as typescript:
            found = await typescript.result()
        assert found["text"] == "wrote b"
        assert "write_file" in found["tools"]
        assert found["resources"] == [url, url]
        assert [READ in scope and CALL in scope for scope in found["scopes"]] == [False, True]
        assert kept["b"] == "new"
        members = people.gateway.directory.hosts["lab"].space.state.roster.members
        assert {"ana", "bob"} <= set(members)


@for_each_row(
    ("options", "words"),
    [
        ([], "--http HOST:PORT"),
        (["--http", "127.0.0.1:0", "--http-token-file", "x"], "--http-token-file"),
        (["--http", "127.0.0.1:0", "--person-token-file", "x"], "--person-token-file"),
        (["--http", "127.0.0.1:0", "--names-file", "x"], "--names-file"),
        (["--http", "127.0.0.1:0", "--max-people", "0"], "--max-people"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["mcp", "--people", "--gateway", "http://127.0.0.1:1", *options]) == 2
    assert words in capsys.readouterr().err
