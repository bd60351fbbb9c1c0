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

from moot.adapter.adapter import Adapter, run_adapter
from moot.adapter.config.config_changes import changes_between
from moot.adapter.operations.control_socket import send_control_request
from moot.errors import MootError, UsageError
from moot.identity import keyfile
from moot.mcp.downstream.backend import BackendCall, PendingCall
from moot.xprotocol.revocation import revoke
from tests.adapter.adapter_environment import (
    NAMESPACE,
    READ,
    TOOLS,
    AdapterEnvironment,
    adapter_environment,
    notes_server,
    running_adapter,
)
from tests.adapter.stub_endpoint import stub_endpoint
from tests.mcp.upstreams import is_alive
from tests.waiting import bounded, until
from tests.xprotocol.people import ALICE, person

KIND = f"{NAMESPACE}.read_note"
ONE = {"name": "one"}


@pytest.mark.requirement("XP-3.1-2")
async def test_a_missing_key_file_is_made_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as here:
        file = tmp_path / "keys" / "adapter.key"
        assert not file.exists()
        async with here.running() as adapter:
            key = adapter.key
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with here.running() as adapter:
            assert adapter.key == key
        file.chmod(0o644)
        with pytest.raises(UsageError):
            async with here.running():
                pass


async def test_two_adapters_cannot_share_one_data_folder(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as here:
        with pytest.raises(UsageError, match="is running already"):
            async with Adapter(here.settings(), environ=here.environ):
                pass
        # The first one does not mind.
        assert (await here.alice.ask(KIND, ONE)).code is None


async def test_everything_ends_with_the_adapter(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as here:
        before = asyncio.all_tasks()
        async with here.running():
            answer = await here.alice.ask(f"{NAMESPACE}.get_environment", {})
            assert answer.code is None
            await here.alice.ask(f"{NAMESPACE}.resource.subscribe", {"uri": "note:///one"})
            children = children_of(os.getpid())
            assert children
        assert [task for task in asyncio.all_tasks() - before if is_ours(task)] == []
        assert not any(is_alive(child) for child in children)


def is_ours(task: asyncio.Task[Any]) -> bool:
    """Not the pings of Alice's own connection, nor of the relay's."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "moot/adapter" in code.co_filename


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


async def test_status_is_told_at_the_control_socket(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as here:
        await here.adapter.announcer.wait_announced()
        await here.alice.ask(KIND, ONE)
        await until(lambda: here.adapter.requests.in_progress == 0)
        status: dict[str, Any] = await send_control_request(here.adapter.settings.control, "status")
        assert status["status"] == "ok"
        assert status["key"] == here.adapter.key
        assert status["relay"] == here.relay.url
        assert status["well_known"] == here.adapter.address
        assert status["calls"]["ok"] == 1
        assert status["announced"]["count"] >= 1
        (source,) = status["sources"]
        assert (source["name"], source["state"], source["tools"]) == ("desk", "up", len(TOOLS))
        assert source["prompts"] == 1
        assert KIND in source["kinds"]
        reloaded = await send_control_request(here.adapter.settings.control, "reload")
        assert reloaded["added"] == []


async def test_a_new_source_is_added_and_another_goes_while_a_call_of_a_third_is_in_progress(
    tmp_path: Path,
) -> None:
    """Hot reload: what did not change is not touched."""
    stays = notes_server(tmp_path, "stays", "com.acme.stays")
    goes = notes_server(tmp_path, "goes", "com.acme.goes")
    comes = notes_server(tmp_path, "comes", "com.acme.comes")
    async with running_adapter(tmp_path, stays, goes) as here:
        slow = here.alice.event("com.acme.stays.run_slow", {"until": "reloaded"})
        await here.alice.send(slow)
        await until(lambda: here.adapter.requests.in_progress == 1)
        here.document["mcp_sources"] = [stays.source, comes.source]
        here.document["access"][here.alice.key] = ["com.acme.stays.*", "com.acme.comes.*"]
        found = await here.adapter.reload(here.settings())
        assert (found.added, found.removed, found.restarted) == (("comes",), ("goes",), ())
        counts = [("stays", len(TOOLS)), ("comes", len(TOOLS))]
        await here.announce(
            lambda said: [(s["name"], s["tool_count"]) for s in said["mcp_sources"]] == counts
        )
        assert (await here.alice.ask("com.acme.comes.read_note", ONE)).code is None
        assert (await here.alice.ask("com.acme.goes.read_note", ONE)).code == "NOT_FOUND"
        stays.let_go("reloaded")
        assert (await here.alice.answer(slow)).payload["content"] == "done"
        assert here.adapter.sources["stays"].starts == 1


async def test_a_changed_file_is_taken_up_by_itself_and_a_wrong_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = notes_server(tmp_path)
    async with adapter_environment(tmp_path, notes) as here:
        task = asyncio.create_task(run_adapter(here.settings(), environ=here.environ))
        control = here.settings().control
        await until(lambda: control.exists())
        announce = await here.announce()
        here.document["mcp_sources"][0]["schema_overrides"] = {
            "read_note": {"description": "Read what was written down. Use when words are needed."}
        }
        here.write()
        second = await here.announce(
            lambda said: said["schemas_digest"] != announce.payload["schemas_digest"]
        )
        assert second.sender == announce.sender
        here.file.write_text("identity: [")
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
    async with running_adapter(tmp_path, notes) as here:
        bob = await here.somebody("bob")
        assert (await bob.ask(KIND, ONE)).code == "AUTHORIZATION_INSUFFICIENT"
        here.document["access"][bob.key] = [READ]
        here.document["relay"]["urls"].append("ws://127.0.0.1:9")
        found = await here.adapter.reload(here.settings())
        assert found.needs_restart == ("relay",)
        assert here.adapter.settings.relay.urls == (here.relay.url,)
        assert (await bob.ask(KIND, ONE)).code is None
        here.document["revoked"] = [bob.key]
        await here.adapter.reload(here.settings())
        assert (await bob.ask(KIND, ONE)).code == "REVOKED"
        here.document["mcp_sources"][0]["rate_limit"] = {"requests_per_minute": 1}
        here.document["mcp_sources"][0]["tool_allowlist"] = ["read_note"]
        found = await here.adapter.reload(here.settings())
        assert (found.changed, found.restarted) == (("desk",), ())
        await until(lambda: f"{NAMESPACE}.write_note" not in here.adapter.registry.catalog)
        codes = [(await here.alice.ask(KIND, ONE)).code for _ in range(2)]
        assert codes == [None, "RATE_LIMITED"]
        here.document["mcp_sources"][0]["env"] = {"DATA_DIR": "/elsewhere"}
        found = await here.adapter.reload(here.settings())
        assert found.restarted == ("desk",)


async def test_another_key_in_the_same_file_is_noticed_and_needs_a_restart(tmp_path: Path) -> None:
    """Rotation: what was sealed for the older key still opens after it."""
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as here:
        async with here.running() as adapter:
            old = here.alice.event(KIND, ONE)
            keyfile.rotate(adapter.settings.identity.key_file, int(time.time()))
            found = await adapter.reload(here.settings())
            assert found.needs_restart == ("identity.key_file",)
            assert (await here.alice.ask(KIND, ONE)).code is None
        async with here.running() as adapter:
            assert adapter.identity.enc_key.text != old.event.enc_key
            await here.alice.send(old)
            assert (await here.alice.answer(old)).payload["content"] == "first words"


async def test_equal_settings_change_nothing(tmp_path: Path) -> None:
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as here:
        one, other = here.settings(), here.settings()
        found = changes_between(one, other)
        assert not any((found.added, found.removed, found.restarted, found.changed, found.needs_restart))
        assert not found.endpoints_changed


@pytest.mark.requirement("XP-1.5-1", "XP-11.3-10")
async def test_both_directions_run_at_once_through_one_instance(tmp_path: Path) -> None:
    """A middle adapter wraps a desk and shows a far endpoint; both are called together."""

    def middle_file(here: AdapterEnvironment, near: Any, far_adapter: Adapter) -> dict[str, Any]:
        return dict(here.document) | {
            "identity": {"key_file": str(tmp_path / "middle" / "adapter.key")},
            "mcp_sources": [near.source],
            "access": {ALICE.key.text: ["com.acme.near.*"]},
            "xprotocol_sources": [
                {
                    "name": "far",
                    "key": far_adapter.key,
                    "relay": here.relay.url,
                    "mcp_tool_prefix": "far_",
                    "allow_private_addresses": True,
                }
            ],
            "mcp_server": {"transport": "none"},
        }

    async def grant_middle(
        here: AdapterEnvironment, file: dict[str, Any], far_adapter: Adapter, key: str
    ) -> None:
        file["access"][key] = ["com.far.desk.*"]
        kept, here.document = here.document, file
        await far_adapter.reload(here.settings())
        here.document = kept

    async def many_inward(here: AdapterEnvironment, count: int) -> list[str]:
        answers = [await here.alice.ask("com.acme.near.read_note", ONE) for _ in range(count)]
        return [each.payload["content"] for each in answers]

    async def many_outward(middle: Adapter, count: int) -> list[str]:
        return [await called(middle, "far_com_far_desk_read_note", ONE) for _ in range(count)]

    near = notes_server(tmp_path, "near", "com.acme.near")
    far = notes_server(tmp_path, "far", "com.far.desk")
    far.note("one", "far words")
    async with adapter_environment(tmp_path, far) as here:
        far_file = here.document
        async with here.running() as far_adapter:
            here.document = middle_file(here, near, far_adapter)
            async with here.running() as middle:
                await grant_middle(here, far_file, far_adapter, middle.key)
                await middle.outbound.refresh()
                inward, outward = await asyncio.gather(many_inward(here, 10), many_outward(middle, 10))
                assert inward == ["first words"] * 10
                assert outward == ["far words"] * 10
                announce = await here.announce(
                    lambda said: bool(said["xprotocol_sources"] and said["mcp_sources"])
                )
                assert announce.sender == middle.key
                assert announce.payload["xprotocol_sources"][0]["name"] == "far"
                assert middle.health()["status"] == "ok"
                # An endpoint that is revoked is a problem to know of, and no reason to call us no more.
                await here.alice.send(revoke(far_adapter.identity, far_adapter.key, now=time.time()))
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
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as here:
        wrapped_file = here.document
        async with here.running() as wrapped:
            here.document = dict(wrapped_file) | {
                "identity": {"key_file": str(tmp_path / "middle" / "adapter.key")},
                "mcp_sources": [],
                "access": {},
                "mcp_server": {"transport": "none"},
                "xprotocol_sources": [
                    {"name": name, "key": key, "relay": here.url, "allow_private_addresses": True}
                    for name, key in (("desk", wrapped.key), ("weather", native.key.text))
                ],
            }
            async with here.running() as middle, stub_endpoint(here.url, native) as weather:
                weather.allow(middle.identity)
                weather.allow(here.alice.identity)
                wrapped_file["access"][middle.key] = [f"{NAMESPACE}.*"]
                kept, here.document = here.document, wrapped_file
                await wrapped.reload(here.settings())
                here.document = kept
                await middle.outbound.refresh()
                read = await called(middle, "com_acme_desk_read_note", {"name": "one"})
                assert read == "first words"
                assert "17°C" in await called(middle, "weather_current_get", {"location": "Bern"})
                direct = here.alice.event(
                    "weather.current.get",
                    {"location": "Bern"},
                    recipient=native.key.text,
                    enc_key=native.enc_key.text,
                )
                await here.alice.send(direct)
                assert "17°C" in (await here.alice.answer(direct)).payload["content"]
                through = here.alice.event(
                    KIND, ONE, recipient=wrapped.key, enc_key=wrapped.identity.enc_key.text
                )
                await here.alice.send(through)
                assert (await here.alice.answer(through)).payload["content"] == "first words"


@pytest.mark.parametrize("stdin", [asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE])
async def test_a_process_that_is_told_to_stop_says_goodbye_and_ends(tmp_path: Path, stdin: int) -> None:
    """run_adapter in a process of its own: SIGTERM cancels it, and nothing is left behind.

    Nobody is at its stdin, as with a service: that is no reason to end.
    """
    async with adapter_environment(tmp_path, notes_server(tmp_path)) as here:
        here.document["mcp_server"] = {"transport": "stdio"}
        here.write()
        script = (
            "import asyncio, os, signal, sys, uvloop\n"
            "from pathlib import Path\n"
            "from moot.adapter.config.config_loader import load_settings\n"
            "from moot.adapter.adapter import run_adapter\n"
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
            sys.executable, "-c", script, str(here.file), stdin=stdin
        )
        if process.stdin is not None:
            process.stdin.close()
        try:
            announce = await here.announce()
            call = here.alice.event(KIND, ONE, recipient=announce.sender, enc_key=announce.sender_enc_key)
            await here.alice.send(call)
            assert (await here.alice.answer(call)).payload["content"] == "first words"
            process.send_signal(signal.SIGTERM)
            async with bounded():
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
