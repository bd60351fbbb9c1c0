"""Secrets of a bridged server: used by calls that name them, and read by nobody."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from moot.box.egress_proxy import EgressProxy
from moot.box.host_rules import read_rules
from moot.bridges.server.call_secrets import CallSecrets
from moot.config.secrets.secret_config import SecretConfig, read_secrets
from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.protocol.operation import Json
from tests.bridges.bridged_space import bridged_space, call
from tests.mcp.upstreams import text_of
from tests.rows import for_each_row
from tests.waiting import until

_SERVER = Path(__file__).parents[2] / "box" / "reaching_server.py"
_VALUE = '/s3cr\u00e9t+value/with "quotes" & more=='


async def _secrets(folder: Path, value: str = _VALUE) -> CallSecrets:
    made = CallSecrets({"KEY": SecretConfig(env="OURS", tools=("reach",))}, folder, {"OURS": value})
    filled = await made.fill_call({"name": "reach", "arguments": {"a": ["x {{secret:KEY}} y"]}})
    assert filled["arguments"] == {"a": [f"x {value} y"]}
    return made


async def test_a_value_is_masked_in_every_encoding_in_which_tools_echo(tmp_path: Path) -> None:
    secrets = await _secrets(tmp_path)
    plain = _VALUE.encode()
    for text in (_VALUE, _VALUE[::-1]):
        for written in (
            text,
            text.upper(),
            quote(text, safe=""),
            quote(text, safe="").lower(),
            json.dumps(text),
            json.dumps(text, ensure_ascii=False),
            text.encode().hex(),
            text.encode().hex().upper(),
            base64.b64encode(text.encode()).decode(),
            base64.urlsafe_b64encode(text.encode()).decode(),
        ):
            shown = secrets.mask({"k": [f"before {written} after"], written: 1})
            assert "{{secret:KEY}}" in str(shown), written
            assert written not in str(shown)
    # Inside of something longer, at each of the three places where base64 may begin.
    for before in (b"", b"u", b"us", b"user:"):
        shown = str(secrets.mask(base64.b64encode(before + plain + b":tail").decode()))
        assert "{{secret:KEY}}" in shown
        assert base64.b64encode(plain).decode()[4:-6] not in shown
    assert secrets.mask({"other": [1, None, "text"]}) == {"other": [1, None, "text"]}


async def test_a_call_uses_a_secret_and_nobody_reads_it(tmp_path: Path) -> None:
    kept = tmp_path / "elsewhere" / "key"
    kept.parent.mkdir()
    kept.touch(mode=0o600)
    kept.write_text(f"{_VALUE}\n")
    listed = {
        "KEY": SecretConfig(file=str(kept), tools=("reach",)),
        "OTHER": SecretConfig(env="OTHER", tools=("another",)),
        "VARIABLE": SecretConfig(command=(sys.executable, "-c", "print('printed-value-77')")),
    }
    secrets = CallSecrets(listed, tmp_path, {"OTHER": "x" * 20})
    command = Command(argv=(sys.executable, str(_SERVER)), env={"TOLD": "{{secret:VARIABLE}}"})
    folder = tmp_path / "space"
    folder.mkdir()
    async with bridged_space(folder) as space:
        alice = await space.join("alice")
        server = StdioServer(command=command, stderr_file=folder / "stderr.log")
        host = await space.bridge(server, secrets=secrets)
        # The server got it: it says which file it did not find.
        answer = await call(alice, "reach", {"where": "{{secret:KEY}}"})
        assert "No such file" in text_of(answer)
        assert "{{secret:KEY}}" in text_of(answer)
        assert "printed-value" not in str(await call(alice, "reach", {"where": "/proc/self/environ"}))
        # What it is not bound to does not get it, nor does anybody learn whether there is one.
        for name in ("OTHER", "VARIABLE", "MISSING"):
            with pytest.raises(McpError, match=f"the secret {name} is not for this tool"):
                await call(alice, "reach", {"where": f"{{{{secret:{name}}}}}"})
        assert "{{secret:KEY}}" in "\n".join(host.upstream.stderr.last_lines())
    found = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert b"{{secret:KEY}}" in found
    for value in (_VALUE, "printed-value-77"):
        for form in (
            value,
            value[::-1],
            json.dumps(value)[1:-1],
            quote(value, safe=""),
            value.encode().hex(),
        ):
            assert form.encode() not in found


async def test_a_secret_is_used_by_who_has_the_right_to(tmp_path: Path) -> None:
    """Decision 0273: the right to a tool is not the right to its secrets, and who approves needs both."""
    secrets = CallSecrets({"KEY": SecretConfig(env="OURS", tools=("reach",))}, tmp_path, {"OURS": _VALUE})
    tool = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
    use = {"kind": "mcp/request", "payload": {"method": "moot/use-secret", "params": {"name": "KEY"}}}
    people = {"agent": [tool, "mcp/proposal", "mcp/withdraw"], "trusted": [tool, use]}
    async with bridged_space(tmp_path, people) as space:
        alice, agent, trusted = [await space.join(name) for name in ("alice", "agent", "trusted")]
        command = Command(argv=(sys.executable, str(_SERVER)))
        await space.bridge(StdioServer(command=command), secrets=secrets)
        named: JsonObject = {"where": "{{secret:KEY}}"}
        with pytest.raises(McpError, match="may not use the secret KEY"):
            await call(agent, "reach", named)
        assert "No such file" in text_of(await call(trusted, "reach", named))
        asked = await agent.propose("host", "tools/call", {"name": "reach", "arguments": named})
        await until(lambda: alice.proposals.get(asked.id) is not None)
        await alice.approve(asked.id)
        assert "No such file" in str(await asked.outcome())


async def test_a_header_gets_a_value_on_the_way_out_and_the_server_never_has_it(tmp_path: Path) -> None:
    """Over plain HTTP, by the proxy of the box."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 Reached\r\n\r\n")
        writer.close()

    service = await asyncio.start_server(answer, "127.0.0.1", 0)
    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    here, there = (f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (service, other))
    secret = SecretConfig(env="OURS", hosts=(here,))
    secrets = CallSecrets({"KEY": secret}, tmp_path, {"OURS": "header-value-91"})
    command = Command(argv=("server",), env={"API_KEY": "{{secret:KEY}}"})
    filled = await secrets.fill_server(StdioServer(command=command))
    assert isinstance(filled, StdioServer)
    assert filled.command.env == {"API_KEY": "{{secret:KEY}}"}
    given: JsonObject = {"name": "t", "arguments": {"k": "{{secret:KEY}}"}}
    assert await secrets.fill_call(given) == given
    with pytest.raises(UsageError, match="need a box"):
        secrets.check_box(has_box=False)

    rules = read_rules((here, there))
    proxy = EgressProxy(lambda: rules, lambda _fact: None, fill_head=secrets.fill_head)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    address = listening.getsockname()
    await proxy.serve(listening, {})
    async with service, other:
        for target, expected in ((here, b"204 Reached"), (there, b"403 Forbidden")):
            reader, writer = await asyncio.open_connection(*address)
            head = f"GET http://{target}/ HTTP/1.1\r\nAuthorization: Bearer {{{{secret:KEY}}}}\r\n\r\n"
            writer.write(head.encode())
            assert expected in await reader.readline()
            writer.close()
    proxy.close()
    assert len(heard) == 1
    assert b"Authorization: Bearer header-value-91\r\n" in heard[0]


async def test_a_secret_without_a_value_is_told_by_its_name_alone(tmp_path: Path) -> None:
    for secret in (
        SecretConfig(env="UNSET", tools=("reach",)),
        SecretConfig(command=("false",), tools=("reach",)),
    ):
        secrets = CallSecrets({"KEY": secret}, tmp_path, {"PATH": "/usr/bin:/bin"})
        with pytest.raises(McpError, match="secret KEY"):
            await secrets.fill_call({"name": "reach", "arguments": {"a": "{{secret:KEY}}"}})


@for_each_row(
    "given, words",
    [
        ({"KEY": {}}, "one of env, keyring, file and command"),
        ({"KEY": {"env": "A", "file": "b"}}, "one of env, keyring, file and command"),
        ({"a key": {"env": "A"}}, "letters, digits"),
        ({"KEY": {"keyring": "service"}}, "SERVICE/USER"),
        ({"KEY": {"env": "A", "hosts": ["*"]}}, "exact names"),
        ({"KEY": {"env": "A", "hosts": ["a.test"], "tools": ["t"]}}, "without tools"),
        ({"KEY": {"value": "x"}}, "secrets.KEY.value"),
    ],
)
def test_a_wrong_secret_is_refused_with_what_to_write(given: Json, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_secrets(given, "secrets")
