"""`xprotocol-adapter` at a shell: start, status, schemas, test-mcp, dns (XP Appendix A)."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import stat
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from moot.cli.adapter.start import set_up_logging
from moot.errors import MootError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_loader import load_settings
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from moot.xprotocol.endpoint.dns_records import read_record
from moot.xprotocol.identity import keyfile
from tests.waiting import HANG_SECONDS, bounded, until_told
from tests.xprotocol.adapter.adapter_environment import NotesServer, notes_server, tool
from tests.xprotocol.adapter.command_runner import Shell, run_program, start_adapter
from tests.xprotocol.adapter.test_settings import MINIMAL, written
from tests.xprotocol.people import ALICE
from tests.xprotocol.relay.raw_client import relay_in

DEAD = f"{sys.executable} -c 'import sys; sys.exit(\"the database is on holiday\")'"


def config(folder: Path, *desks: NotesServer, **sections: Any) -> Path:
    document = {
        "identity": {"key_file": str(folder / "keys" / "adapter.key"), "display_name": "Desk adapter"},
        "relay": {"urls": ["ws://127.0.0.1:1"], "reconnect_interval_seconds": 0.1},
        "mcp_sources": [each.source for each in desks],
        "discovery": {"well_known_port": 0},
    }
    return written(folder, document | sections)


# Help and mistakes


def test_help_teaches_every_command_with_examples(shell: Shell) -> None:
    top = shell("--help")
    assert top.code == 0
    for name in (
        "keygen", "register", "start", "validate", "schemas", "test-mcp", "status", "revoke", "dns",
        "trust-chain", "reload",
    ):  # fmt: skip
        assert name in top.out
        output = shell(name, "--help")
        assert output.code == 0
        assert f"xprotocol-adapter {name}" in output.out
        assert "examples:" in output.out


@pytest.mark.parametrize(
    "words", [(), ("dance",), ("keygen", "--loud"), ("register",), ("start", "--port", "much"), ("revoke",)]
)
def test_a_wrong_call_is_2(shell: Shell, words: tuple[str, ...]) -> None:
    output = shell(*words)
    assert output.code == 2
    assert "usage: " in output.err


def test_a_fault_is_json_where_json_was_asked_for(shell: Shell, tmp_path: Path) -> None:
    output = shell("schemas", "--config", tmp_path / "none.yml", "--json")
    assert output.code == 1
    assert output.json["ok"] is False
    assert "cannot be read" in output.json["error"]


# Schemas and test-mcp


@pytest.mark.requirement("XP-A-5")
def test_schemas_prints_every_wrapped_kind_and_as_json_a_list_of_contracts(
    shell: Shell, tmp_path: Path
) -> None:
    notes, forms = notes_server(tmp_path), notes_server(tmp_path, "forms", "com.acme.forms")
    notes.list_tools([tool("read_note"), tool("delete_note")])
    forms.list_tools([tool("create_form")])
    file = config(tmp_path, notes, forms)
    kinds = ["com.acme.desk.delete_note", "com.acme.desk.read_note", "com.acme.forms.create_form"]
    output = shell("schemas", "--config", file)
    assert output.code == 0
    for kind in kinds:
        assert f"{kind}  1.0.0  needs " in output.out
    contracts = shell("schemas", "--config", file, "--json").json
    assert isinstance(contracts, list)
    by_kind = {contract["kind"]: contract for contract in contracts}
    assert set(kinds) <= set(by_kind)
    read = by_kind["com.acme.desk.read_note"]
    assert read["auth"]["required_capability"] == "com.acme.desk.read"
    assert read["source"]["mcp_server"] == "desk"
    assert read["gbnf_grammar"]
    only = shell("schemas", "--config", file, "--source", "forms", "--json").json
    assert {contract["source"]["mcp_server"] for contract in only} == {"forms"}


def test_schemas_without_one_server_still_shows_the_others_and_fails(shell: Shell, tmp_path: Path) -> None:
    server = notes_server(tmp_path)
    broken = MINIMAL["mcp_sources"][0] | {"command": DEAD}
    output = shell("schemas", "--config", config(tmp_path, mcp_sources=[server.source, broken]), "--json")
    assert output.code == 1
    assert output.json
    assert "mine: " in output.err


@pytest.mark.requirement("XP-A-6")
def test_test_mcp_is_0_for_a_server_that_answers_and_1_for_one_that_does_not(
    shell: Shell, tmp_path: Path
) -> None:
    server = notes_server(tmp_path)
    broken = MINIMAL["mcp_sources"][0] | {"name": "broken", "command": DEAD}
    file = config(tmp_path, mcp_sources=[server.source, broken], relay={"urls": ["not a relay"]})
    good = shell("test-mcp", "--config", file, "--source", "desk")
    assert good.code == 0
    assert "desk: ok in " in good.out
    bad = shell("test-mcp", "--config", file, "--source", "broken")
    assert bad.code == 1
    assert "broken: failed: " in bad.err
    assert "the database is on holiday" in bad.err
    both = shell("test-mcp", "--config", file, "--json")
    assert both.code == 1
    assert [(each["name"], each["ok"]) for each in both.json] == [("desk", True), ("broken", False)]
    assert both.json[0]["tools"] == 12
    unknown = shell("test-mcp", "--config", file, "--source", "nobody")
    assert unknown.code == 1
    assert "known sources: desk, broken" in unknown.err


def test_test_mcp_shows_no_secret_that_a_server_repeats(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret-of-the-shop")
    command = f'{sys.executable} -c \'import os, sys; sys.exit("bad token " + os.environ["SHOP_TOKEN"])\''
    source = MINIMAL["mcp_sources"][0] | {"command": command, "pass_env": ["SHOP_TOKEN"]}
    output = shell("test-mcp", "--config", config(tmp_path, mcp_sources=[source]))
    assert output.code == 1
    assert "bad token" in output.err
    assert "s3cret" not in output.err


# DNS


def test_dns_prints_one_record_that_discovery_reads(shell: Shell, tmp_path: Path) -> None:
    keyfile.create(tmp_path / "keys" / "adapter.key", ALICE)
    discovery = {"domain": "tools.acme.com", "public_url": "https://tools.acme.com:8443"}
    file = config(tmp_path, relay={"urls": ["wss://relay.acme.com"]}, discovery=discovery)
    output = shell("dns", "--config", file)
    assert output.code == 0
    name, _, _, kind, text = output.out.strip().split(" ", 4)
    assert (name, kind) == ("_xprotocol.tools.acme.com.", "TXT")
    strings = text[1:-1].split('" "')
    assert all(len(each) <= 255 for each in strings)
    record = read_record("".join(strings))
    assert (record.key, record.encryption_key) == (ALICE.key.text, ALICE.enc_key.text)
    assert record.relay == "wss://relay.acme.com"
    assert record.well_known == "https://tools.acme.com:8443/.well-known/xprotocol-endpoint"
    assert (
        shell("dns", "--config", file, "--domain", "x.example", "--json").json["name"]
        == "_xprotocol.x.example"
    )
    assert shell("dns", "--config", config(tmp_path)).code == 2


# Start and status


async def running(file: Path) -> dict[str, Any]:
    """How the adapter says it does, once it is up."""
    control = load_settings(file, environ={}).control

    async def status() -> dict[str, Any] | None:
        try:
            return await send_control_request(control, "status")
        except MootError:
            # Not there yet, or still starting.
            return None

    found = await until_told(status)
    assert found is not None
    return found


async def said_by(child: asyncio.subprocess.Process) -> tuple[str, str]:
    out, err = await asyncio.wait_for(child.communicate(), HANG_SECONDS)
    return out.decode(), err.decode()


@pytest.mark.requirement("XP-A-7", "XP-A-3", "XP-3.1-2", "XP-3.2-1")
async def test_start_runs_until_it_is_told_to_stop_and_status_tells_which(
    shell: Shell, tmp_path: Path
) -> None:
    """The smallest configuration; its key is made on the first start."""
    async with relay_in(tmp_path / "relay") as relay:
        file = config(tmp_path, notes_server(tmp_path), relay={"urls": [relay.url]})
        stopped = await asyncio.to_thread(shell, "status", "--config", file)
        assert stopped.code == 1
        assert stopped.out.startswith("stopped")
        async with start_adapter("--config", file, cold=True) as child:
            status = await running(file)
            assert child.stderr is not None
            assert f"running: key {status['key']}" in (await child.stderr.readline()).decode()
            key_file = tmp_path / "keys" / "adapter.key"
            assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
            assert status["key"] == keyfile.load(key_file).key.text
            up = await asyncio.to_thread(shell, "status", "--config", file, "--json")
            assert up.code == 0
            assert (up.json["running"], up.json["pid"]) == (True, child.pid)
            assert [each["name"] for each in up.json["sources"]] == ["desk"]
            words = await asyncio.to_thread(shell, "status", "--config", file)
            assert words.out.startswith("running     ok, for ")
            assert "source      desk up, 12 tools, com.acme.desk" in words.out

            async def has_announced() -> bool:
                return (await running(file))["announced"] is not None

            await until_told(has_announced)
            child.send_signal(signal.SIGTERM)
            await said_by(child)
            assert child.returncode == 0
        gone = await asyncio.to_thread(shell, "status", "--config", file, "--json")
        assert (gone.code, gone.json["running"]) == (1, False)


async def test_a_second_adapter_with_the_same_data_is_refused(tmp_path: Path) -> None:
    file = config(tmp_path, notes_server(tmp_path))
    async with start_adapter("--config", file):
        await running(file)
        async with start_adapter("--config", file) as second:
            _, err = await said_by(second)
            assert second.returncode == 1
            assert "is running already" in err


@pytest.mark.requirement("XP-3.1-47")
def test_start_refuses_a_file_with_a_problem_and_says_all_of_it(tmp_path: Path) -> None:
    file = config(tmp_path, relay={"urls": ["https://no.example"]}, surprise=1)
    output = run_program("start", "--config", file)
    assert output.code == 1
    assert "surprise: unknown key" in output.err
    assert "relay.urls[0]" in output.err
    assert "Traceback" not in output.err


@pytest.mark.requirement("XP-A-3", "XP-3.1-38", "XP-3.1-39", "XP-3.1-40")
async def test_port_is_where_mcp_clients_connect_when_the_transport_is_sse(tmp_path: Path, port: int) -> None:
    """D-72: it stands for sse_port; with stdio no port is opened."""
    endpoints = [{"name": "far", "endpoint": "xp://far.invalid"}]
    file = config(tmp_path, mcp_server={"transport": "sse", "sse_port": 1}, xprotocol_sources=endpoints)
    async with start_adapter("--config", file, "--port", str(port)):
        status = await running(file)
        assert str(status["mcp"]).startswith(f"http://127.0.0.1:{port}")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.2", port)
    file = config(tmp_path, mcp_server={"transport": "stdio"}, xprotocol_sources=endpoints)
    async with start_adapter("--config", file, "--port", str(port)) as child:
        await running(file)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)
        assert child.stdin is not None
        child.stdin.close()
        _, err = await said_by(child)
        assert "--port is not used" in err
        # MCP: a server over stdio ends when its client has gone.
        assert child.returncode == 0


@pytest.mark.requirement("XP-3.1-41")
async def test_publish_dns_prints_the_record_at_the_start(tmp_path: Path) -> None:
    file = config(
        tmp_path,
        notes_server(tmp_path),
        discovery={"well_known_port": 0, "publish_dns": True, "domain": "tools.acme.com"},
    )
    async with start_adapter("--config", file) as child:
        status = await running(file)
        child.send_signal(signal.SIGINT)
        _, err = await said_by(child)
        assert child.returncode == 0
        (line,) = [line for line in err.split("\n") if line.startswith("_xprotocol.tools.acme.com. ")]
        assert f"k={status['key']}" in line


async def test_sighup_has_the_configuration_read_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path,
) -> None:
    one, two = notes_server(tmp_path), notes_server(tmp_path, "two", "com.acme.two")
    lines = {"output": "stderr", "format": "json"}
    file = config(tmp_path, one, logging=lines)
    control = load_settings(file, environ={}).control
    async with start_adapter("--config", file) as child:
        assert [each["name"] for each in (await running(file))["sources"]] == ["desk"]
        file.write_text("surprise: 1\n")
        child.send_signal(signal.SIGHUP)
        assert child.stderr is not None
        async with bounded():
            # Of whoever heard the signal; the file is watched as well.
            while b"moot.cli.adapter.start" not in (line := await child.stderr.readline()):
                assert line
        assert b"surprise: unknown key" in line
        assert len((await send_control_request(control, "status"))["sources"]) == 1
        refused = await asyncio.to_thread(run_program, "reload", "--control", control)
        assert refused.code == 1
        assert "surprise: unknown key" in refused.err
        config(tmp_path, one, two, logging=lines)
        answer = await asyncio.to_thread(run_program, "reload", "--config", file)
        assert answer.code == 0

        async def has_both() -> bool:
            return len((await send_control_request(control, "status"))["sources"]) == 2

        await until_told(has_both)


# Logging


@pytest.mark.requirement("XP-3.1-46")
async def test_no_log_line_gets_into_the_stdout_of_an_mcp_client(tmp_path: Path) -> None:
    """D-72: with a stdio listener they go to stderr, whatever `output` says."""
    file = config(
        tmp_path,
        notes_server(tmp_path),
        logging={"format": "json", "output": "stdout"},
        mcp_server={"transport": "stdio"},
    )
    async with start_adapter("--config", file) as child:
        await running(file)
        child.send_signal(signal.SIGTERM)
        out, err = await said_by(child)
        assert out == ""
        assert "adapter up" in err


@pytest.mark.requirement("XP-3.1-44", "XP-3.1-45", "XP-3.1-46")
def test_log_lines_have_the_level_the_form_and_the_place_that_were_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def logged(**section: str) -> tuple[str, str, str]:
        """What came to stdout, stderr and the file."""
        settings = load_settings(config(tmp_path, logging=section), environ={})
        set_up_logging(settings)
        log = logging.getLogger("moot.xprotocol.adapter.test")
        log.info("something small", extra={"kind": "a b"})
        log.warning("something large")
        file = tmp_path / "logs" / "adapter.log"
        text = file.read_text() if file.exists() else ""
        file.unlink(missing_ok=True)
        return (*capsys.readouterr(), text)

    out, err, _ = logged(level="info", format="json", output="stdout")
    lines = [json.loads(line) for line in out.strip().split("\n")]
    assert [line["message"] for line in lines] == ["something small", "something large"]
    assert err == ""
    out, err, _ = logged(level="warn", format="text", output="stderr")
    assert (out, "small" in err, "large" in err) == ("", False, True)
    assert not err.startswith("{")
    out, err, text = logged(level="error", format="json", output="logs/adapter.log")
    assert (out, err, text) == ("", "", "")
    out, err, text = logged(level="debug", format="json", output="logs/adapter.log")
    assert (out, err) == ("", "")
    assert len([json.loads(line) for line in text.strip().split("\n")]) == 2


# The well-known page of an adapter, and a walk that begins at its host


@pytest.mark.requirement("XP-3.1-42")
async def test_a_host_names_the_key_whose_chain_is_walked(shell: Shell, tmp_path: Path, port: int) -> None:
    async with relay_in(tmp_path / "relay") as relay:
        file = config(
            tmp_path, notes_server(tmp_path), relay={"urls": [relay.url]}, discovery={"well_known_port": port}
        )
        async with start_adapter("--config", file):
            status = await running(file)
            url = f"http://127.0.0.1:{port}/.well-known/xprotocol-endpoint"
            served = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=HANG_SECONDS).read())
            assert json.loads(served)["public_key"] == status["key"]
            words = ("trust-chain", "--host", f"xp://127.0.0.1:{port}", "--json")
            output = await asyncio.to_thread(shell, *words, "--allow-private")
            # The host names the key; nobody has delegated anything to it.
            assert output.code == 1
            assert output.json["key"] == status["key"]
            assert output.json["channels"][0]["agrees"] is True
            trusting = await asyncio.to_thread(shell, *words, "--allow-private", "--trust", status["key"])
            assert trusting.code == 0
            other = await asyncio.to_thread(
                shell, "trust-chain", ALICE.key.text, *words[1:], "--allow-private"
            )
            assert other.code == 1
            assert other.json["channels"][0]["agrees"] is False
            private = await asyncio.to_thread(shell, *words)
            assert private.code == 1


def test_errors_name_the_server_that_they_are_about(tmp_path: Path) -> None:
    """In each line: where several servers are configured, "MCP server down" helps nobody."""
    file = tmp_path / "adapter.yml"
    source: dict[str, Json] = {"transport": "stdio", "command": "/no/such/program"}
    sources = [source | {"name": name, "xprotocol_namespace": f"com.acme.{name}"} for name in ("one", "two")]
    document: dict[str, Json] = {
        "identity": {"key_file": str(tmp_path / "adapter.key")},
        "relay": {"urls": ["ws://127.0.0.1:9"]},
        "store": str(tmp_path / "store"),
        "mcp_sources": sources,
    }
    file.write_text(yaml.safe_dump(document))
    run_program("keygen", "--output", tmp_path / "adapter.key")
    for command in ("test-mcp", "schemas"):
        output = run_program(command, "--config", file)
        assert output.code == 1
        lines = [line for line in (output.out + output.err).splitlines() if line.strip()]
        assert len(lines) >= 2
        assert [line for line in lines if "one: " not in line and "two: " not in line] == []
    sources[1]["command"] = ["a", "list"]
    file.write_text(yaml.safe_dump(document))
    output = run_program("validate", "--config", file)
    assert "mcp_sources[1].command: must be text, not a list (source two)" in output.err
