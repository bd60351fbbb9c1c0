"""The whole adapter: from nothing to running, another configuration meanwhile, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from moot.errors import MootError, UsageError
from moot.mcp.downstream.backend import BackendCall, PendingCall
from moot.xprotocol.adapter.adapter import Adapter, run_adapter
from moot.xprotocol.adapter.config.config_changes import changes_between
from moot.xprotocol.adapter.operations.control_socket import send_control_request
from moot.xprotocol.events.revocation import revoke
from moot.xprotocol.identity import keyfile
from tests.mcp.upstreams import is_alive
from tests.waiting import bounded, until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    TOOLS,
    AdapterEnvironment,
    adapter_environment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.adapter.stub_endpoint import stub_endpoint
from tests.xprotocol.people import ALICE, person

KIND = f"{NAMESPACE}.read_note"
ONE = {"name": "one"}


@pytest.mark.requirement("XP-3.1-2")
async def test_a_missing_key_file_is_made_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        file = tmp_path / "keys" / "adapter.key"
        assert not file.exists()
        async with environment.running() as adapter:
            key = adapter.key
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with environment.running() as adapter:
            assert adapter.key == key
        file.chmod(0o644)
        with pytest.raises(UsageError):
            async with environment.running():
                pass


async def test_two_adapters_cannot_share_one_data_folder(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        with pytest.raises(UsageError, match="is running already"):
            async with Adapter(adapter.settings(), environ=adapter.environ):
                pass
        # The first one does not mind.
        assert (await adapter.alice.ask(KIND, ONE)).code is None


async def test_everything_ends_with_the_adapter(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        before, others = asyncio.all_tasks(), children_of(os.getpid())
        async with environment.running():
            answer = await environment.alice.ask(f"{NAMESPACE}.get_environment", {})
            assert answer.code is None
            await environment.alice.ask(f"{NAMESPACE}.resource.subscribe", {"uri": "note:///one"})
            children = set(children_of(os.getpid())) - set(others)
            assert children
        assert [task for task in asyncio.all_tasks() - before if is_ours(task)] == []
        assert not any(is_alive(child) for child in children)


def is_ours(task: asyncio.Task[Any]) -> bool:
    """Not the pings of Alice's own connection, nor of the relay's."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "moot/xprotocol/adapter" in code.co_filename


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


async def test_status_is_told_at_the_control_socket(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        await adapter.adapter.announcer.wait_announced()
        await adapter.alice.ask(KIND, ONE)
        await until(lambda: adapter.adapter.requests.in_progress == 0)
        status: dict[str, Any] = await send_control_request(adapter.adapter.settings.control, "status")
        assert status["status"] == "ok"
        assert status["key"] == adapter.adapter.key
        assert status["relay"] == adapter.relay.url
        assert status["well_known"] == adapter.adapter.address
        assert status["calls"]["ok"] == 1
        assert status["announced"]["count"] >= 1
        (source,) = status["sources"]
        assert (source["name"], source["state"], source["tools"]) == ("desk", "up", len(TOOLS))
        assert source["prompts"] == 1
        assert KIND in source["kinds"]
        reloaded = await send_control_request(adapter.adapter.settings.control, "reload")
        assert reloaded["added"] == []


async def test_a_new_source_is_added_and_another_goes_while_a_call_of_a_third_is_in_progress(
    tmp_path: Path,
) -> None:
    """Hot reload: what did not change is not touched."""
    stays = notes_server(tmp_path, "stays", "com.acme.stays")
    goes = notes_server(tmp_path, "goes", "com.acme.goes")
    comes = notes_server(tmp_path, "comes", "com.acme.comes")
    async with running_adapter(tmp_path, stays, goes) as adapter:
        slow = adapter.alice.event("com.acme.stays.run_slow", {"until": "reloaded"})
        await adapter.alice.send(slow)
        await until(lambda: adapter.adapter.requests.in_progress == 1)
        adapter.document["mcp_sources"] = [stays.source, comes.source]
        adapter.document["access"][adapter.alice.key] = ["com.acme.stays.*", "com.acme.comes.*"]
        found = await adapter.adapter.reload(adapter.settings())
        assert (found.added, found.removed, found.restarted) == (("comes",), ("goes",), ())
        counts = [("stays", len(TOOLS)), ("comes", len(TOOLS))]
        await adapter.announce(
            lambda answer: [(s["name"], s["tool_count"]) for s in answer["mcp_sources"]] == counts
        )
        assert (await adapter.alice.ask("com.acme.comes.read_note", ONE)).code is None
        assert (await adapter.alice.ask("com.acme.goes.read_note", ONE)).code == "NOT_FOUND"
        stays.let_go("reloaded")
        assert (await adapter.alice.answer(slow)).payload["content"] == "done"
        assert adapter.adapter.sources["stays"].starts == 1


async def test_a_changed_file_is_taken_up_by_itself_and_a_wrong_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as environment:
        task = asyncio.create_task(run_adapter(environment.settings(), environ=environment.environ))
        control = environment.settings().control
        await until(lambda: control.exists())
        announce = await environment.announce()
        environment.document["mcp_sources"][0]["schema_overrides"] = {
            "read_note": {"description": "Read what was written down. Use when words are needed."}
        }
        environment.write()
        second = await environment.announce(
            lambda answer: answer["schemas_digest"] != announce.payload["schemas_digest"]
        )
        assert second.sender == announce.sender
        environment.file.write_text("identity: [")
        await until(lambda: any("not reloaded" in record.message for record in caplog.records))
        status = await send_control_request(control, "status")
        assert status["sources"][0]["starts"] == 1
        assert status["schemas_digest"] == second.payload["schemas_digest"]
        with pytest.raises(MootError, match="not valid YAML"):
            await send_control_request(control, "reload")
        task.cancel()
        await asyncio.wait([task])
        assert not control.exists()


async def test_who_may_call_follows_the_configuration_and_what_needs_a_restart_is_named(
    tmp_path: Path,
) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        bob = await adapter.somebody("bob")
        assert (await bob.ask(KIND, ONE)).code == "AUTHORIZATION_INSUFFICIENT"
        adapter.document["access"][bob.key] = [READ]
        adapter.document["relay"]["urls"].append("ws://127.0.0.1:9")
        found = await adapter.adapter.reload(adapter.settings())
        assert found.needs_restart == ("relay",)
        assert adapter.adapter.settings.relay.urls == (adapter.relay.url,)
        assert (await bob.ask(KIND, ONE)).code is None
        adapter.document["revoked"] = [bob.key]
        await adapter.adapter.reload(adapter.settings())
        assert (await bob.ask(KIND, ONE)).code == "REVOKED"
        adapter.document["mcp_sources"][0]["rate_limit"] = {"requests_per_minute": 1}
        adapter.document["mcp_sources"][0]["tool_allowlist"] = ["read_note"]
        found = await adapter.adapter.reload(adapter.settings())
        assert (found.changed, found.restarted) == (("desk",), ())
        await until(lambda: f"{NAMESPACE}.write_note" not in adapter.adapter.registry.catalog)
        codes = [(await adapter.alice.ask(KIND, ONE)).code for _ in range(2)]
        assert codes == [None, "RATE_LIMITED"]
        adapter.document["mcp_sources"][0]["env"] = {"DATA_DIR": "/elsewhere"}
        found = await adapter.adapter.reload(adapter.settings())
        assert found.restarted == ("desk",)


async def test_another_key_in_the_same_file_is_noticed_and_needs_a_restart(tmp_path: Path) -> None:
    """Rotation: what was sealed for the older key still opens after it."""
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        async with environment.running() as adapter:
            old = environment.alice.event(KIND, ONE)
            keyfile.rotate(adapter.settings.identity.key_file, int(time.time()))
            found = await adapter.reload(environment.settings())
            assert found.needs_restart == ("identity.key_file",)
            assert (await environment.alice.ask(KIND, ONE)).code is None
        async with environment.running() as adapter:
            assert adapter.identity.enc_key.text != old.event.enc_key
            await environment.alice.send(old)
            assert (await environment.alice.answer(old)).payload["content"] == "first words"


async def test_equal_settings_change_nothing(tmp_path: Path) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        one, other = environment.settings(), environment.settings()
        found = changes_between(one, other)
        assert not any((found.added, found.removed, found.restarted, found.changed, found.needs_restart))
        assert not found.endpoints_changed


@pytest.mark.requirement("XP-1.5-1", "XP-11.3-10")
async def test_both_directions_run_at_once_through_one_instance(tmp_path: Path) -> None:
    """A middle adapter wraps a desk and shows a far endpoint; both are called together."""

    def middle_file(environment: AdapterEnvironment, near: Any, far_adapter: Adapter) -> dict[str, Any]:
        return dict(environment.document) | {
            "identity": {"key_file": str(tmp_path / "middle" / "adapter.key")},
            "mcp_sources": [near.source],
            "access": {ALICE.key.text: ["com.acme.near.*"]},
            "xprotocol_sources": [
                {
                    "name": "far",
                    "key": far_adapter.key,
                    "relay": environment.relay.url,
                    "mcp_tool_prefix": "far_",
                    "allow_private_addresses": True,
                }
            ],
            "mcp_server": {"transport": "none"},
        }

    async def grant_middle(
        environment: AdapterEnvironment, file: dict[str, Any], far_adapter: Adapter, key: str
    ) -> None:
        file["access"][key] = ["com.far.desk.*"]
        kept, environment.document = environment.document, file
        await far_adapter.reload(environment.settings())
        environment.document = kept

    async def many_inward(environment: AdapterEnvironment, count: int) -> list[str]:
        answers = [await environment.alice.ask("com.acme.near.read_note", ONE) for _ in range(count)]
        return [each.payload["content"] for each in answers]

    async def many_outward(middle: Adapter, count: int) -> list[str]:
        return [await called(middle, "far_com_far_desk_read_note", ONE) for _ in range(count)]

    near = notes_server(tmp_path, "near", "com.acme.near")
    far = notes_server(tmp_path, "far", "com.far.desk")
    far.note("one", "far words")
    async with adapter_environment(tmp_path, far) as environment:
        far_file = environment.document
        async with environment.running() as far_adapter:
            environment.document = middle_file(environment, near, far_adapter)
            async with environment.running() as middle:
                await grant_middle(environment, far_file, far_adapter, middle.key)
                await middle.outbound.refresh()
                inward, outward = await asyncio.gather(many_inward(environment, 10), many_outward(middle, 10))
                assert inward == ["first words"] * 10
                assert outward == ["far words"] * 10
                announce = await environment.announce(
                    lambda answer: bool(answer["xprotocol_sources"] and answer["mcp_sources"])
                )
                assert announce.sender == middle.key
                assert announce.payload["xprotocol_sources"][0]["name"] == "far"
                assert middle.health()["status"] == "ok"
                # An endpoint that is revoked is a problem to know of, and no reason to call us no more.
                await environment.alice.send(revoke(far_adapter.identity, far_adapter.key, now=time.time()))
                await until(lambda: middle.health()["status"] == "degraded")
                assert middle.health()["problems"] == ["endpoint far is revoked"]
                assert middle.health()["ready"] is True


async def called(adapter: Adapter, tool: str, arguments: dict[str, Any]) -> str:
    """What an MCP client of this adapter gets."""
    await until(lambda: adapter.outbound.backend.tool(tool) is not None)
    result = await adapter.outbound.backend.perform(
        BackendCall("tools/call", {"name": tool, "arguments": arguments})
    )
    assert not isinstance(result, PendingCall)
    return str(result["content"][0]["text"])


@pytest.mark.requirement("XP-9-4")
async def test_a_native_endpoint_lives_beside_wrapped_ones(tmp_path: Path) -> None:
    """No flag day: XProtocol and MCP callers reach both kinds, and notice no difference."""
    native = person("native")
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        wrapped_file = environment.document
        async with environment.running() as wrapped:
            environment.document = dict(wrapped_file) | {
                "identity": {"key_file": str(tmp_path / "middle" / "adapter.key")},
                "mcp_sources": [],
                "access": {},
                "mcp_server": {"transport": "none"},
                "xprotocol_sources": [
                    {"name": name, "key": key, "relay": environment.url, "allow_private_addresses": True}
                    for name, key in (("desk", wrapped.key), ("weather", native.key.text))
                ],
            }
            async with environment.running() as middle, stub_endpoint(environment.url, native) as weather:
                weather.allow(middle.identity)
                weather.allow(environment.alice.identity)
                wrapped_file["access"][middle.key] = [f"{NAMESPACE}.*"]
                kept, environment.document = environment.document, wrapped_file
                await wrapped.reload(environment.settings())
                environment.document = kept
                await middle.outbound.refresh()
                read = await called(middle, "com_acme_desk_read_note", {"name": "one"})
                assert read == "first words"
                assert "17°C" in await called(middle, "weather_current_get", {"location": "Bern"})
                direct = environment.alice.event(
                    "weather.current.get",
                    {"location": "Bern"},
                    recipient=native.key.text,
                    enc_key=native.enc_key.text,
                )
                await environment.alice.send(direct)
                assert "17°C" in (await environment.alice.answer(direct)).payload["content"]
                through = environment.alice.event(
                    KIND, ONE, recipient=wrapped.key, enc_key=wrapped.identity.enc_key.text
                )
                await environment.alice.send(through)
                assert (await environment.alice.answer(through)).payload["content"] == "first words"


@pytest.mark.parametrize("stdin", [asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE])
async def test_a_process_that_is_told_to_stop_says_goodbye_and_ends(tmp_path: Path, stdin: int) -> None:
    """run_adapter in a process of its own: SIGTERM cancels it, and nothing is left behind.

    Nobody is at its stdin, as with a service: that is no reason to end.
    """
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as environment:
        environment.document["mcp_server"] = {"transport": "stdio"}
        environment.write()
        script = (
            "import asyncio, os, signal, sys, uvloop\n"
            "from pathlib import Path\n"
            "from moot.xprotocol.adapter.config.config_loader import load_settings\n"
            "from moot.xprotocol.adapter.adapter import run_adapter\n"
            "async def main():\n"
            "    task = asyncio.current_task()\n"
            "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)\n"
            "    await run_adapter(load_settings(Path(sys.argv[1]), environ=os.environ))\n"
            "try:\n"
            "    uvloop.run(main())\n"
            "except asyncio.CancelledError:\n"
            "    pass\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(environment.file), stdin=stdin
        )
        if process.stdin is not None:
            process.stdin.close()
        try:
            announce = await environment.announce()
            call = environment.alice.event(
                KIND, ONE, recipient=announce.sender, enc_key=announce.sender_enc_key
            )
            await environment.alice.send(call)
            assert (await environment.alice.answer(call)).payload["content"] == "first words"
            process.send_signal(signal.SIGTERM)
            async with bounded():
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
