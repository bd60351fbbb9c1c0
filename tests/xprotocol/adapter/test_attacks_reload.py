"""Hot reload under fire: what the operator takes away is gone, and what goes on is not disturbed."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.protocol.operation import Json
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, READ, notes_server, running_adapter, tool
from tests.xprotocol.adapter.test_attacks_upstream import SPACE, beside, called

KIND, WRITE = f"{NAMESPACE}.read_note", f"{NAMESPACE}.write_note"
ONE: dict[str, Json] = {"name": "one"}


async def test_a_denied_tool_is_gone_at_once_even_if_its_server_will_not_list(tmp_path: Path) -> None:
    """A server that stops answering tools/list must not keep alive what the operator has taken away."""
    async with running_adapter(tmp_path, **beside(tmp_path), limits={"upstream_call_seconds": 10}) as adapter:
        kind = f"{SPACE}.run_twice"
        assert (await adapter.alice.ask(kind, {})).code is None
        (tmp_path / "liar" / "list.hangs").touch()
        adapter.document["mcp_sources"][0]["tool_denylist"] = ["run_twice"]
        await adapter.adapter.reload(adapter.settings())
        assert (await adapter.alice.ask(kind, {})).code == "NOT_FOUND"
        # The same for a tool that asks for more than before, and for an allow-list.
        overrides: Json = {"get_text": {"required_capability": f"{SPACE}.admin"}}
        adapter.document["mcp_sources"][0] |= {"schema_overrides": overrides}
        adapter.document["access"][adapter.alice.key] = [f"{SPACE}.read"]
        await adapter.adapter.reload(adapter.settings())
        assert (await adapter.alice.ask(f"{SPACE}.get_text", {})).code == "AUTHORIZATION_INSUFFICIENT"
        adapter.document["mcp_sources"][0] |= {"tool_allowlist": ["get_null"], "schema_overrides": {}}
        await adapter.adapter.reload(adapter.settings())
        assert (await adapter.alice.ask(f"{SPACE}.get_text", {})).code == "NOT_FOUND"
        assert (await adapter.alice.ask(f"{SPACE}.get_null", {})).code == "UPSTREAM_ERROR"
        assert called(tmp_path) == ["run_twice", "get_null"]


async def test_reloads_while_calls_run_lose_none_and_double_none(tmp_path: Path) -> None:
    """Forty calls, twenty reloads that add and remove another source and change limits and rights."""
    notes, other = notes_server(tmp_path), notes_server(tmp_path, "other", "com.acme.other")
    limits: dict[str, Json] = {"max_calls_per_sender": 64}
    async with running_adapter(tmp_path, notes, limits=limits) as adapter:
        bob = await adapter.somebody("bob")

        reloads = 0

        async def reloading() -> None:
            nonlocal reloads
            for n in range(20):
                reloads = n
                adapter.document["mcp_sources"] = [notes.source, other.source] if n % 2 else [notes.source]
                adapter.document["limits"] = adapter.document.get("limits", {}) | {"max_calls": 300 + n}
                if n % 3:
                    adapter.document["access"] |= {bob.key: [READ]}
                else:
                    adapter.document["access"].pop(bob.key, None)
                await adapter.adapter.reload(adapter.settings())

        async def calling(n: int) -> str | None:
            await until(lambda: reloads * 2 >= n - 1)
            return (await adapter.alice.ask(WRITE, {"name": f"{n}", "text": "x"})).code

        codes, _ = await asyncio.gather(asyncio.gather(*map(calling, range(40))), reloading())
        assert codes == [None] * 40
        counts = Counter(each["arguments"]["name"] for each in notes.requests())
        assert counts == {f"{n}": 1 for n in range(40)}
        # The last word counts: n = 19 gave Bob the right, and the next file takes it.
        assert (await bob.ask(KIND, ONE)).code is None
        adapter.document["access"].pop(bob.key)
        await adapter.adapter.reload(adapter.settings())
        assert (await bob.ask(KIND, ONE)).code == "AUTHORIZATION_INSUFFICIENT"


async def test_reloads_at_once_end_in_the_last_one_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        files = []
        for n in range(8):
            adapter.document["limits"] = adapter.document.get("limits", {}) | {"max_calls": 100 + n}
            files.append(adapter.settings())
        await asyncio.gather(*(adapter.adapter.reload(each) for each in files))
        assert adapter.adapter.settings.limits.max_calls == 107
        for damage in ("access: [", "access: {x: y}", "", "\x00", "!!python/object/apply:os.getpid []"):
            adapter.file.write_text(damage)
            with pytest.raises(UsageError):
                await adapter.adapter.reload_file()
            assert (await adapter.alice.ask(KIND, ONE)).code is None
        assert adapter.adapter.settings.limits.max_calls == 107


async def test_a_source_that_takes_another_s_kinds_by_reload_does_not_get_its_calls(tmp_path: Path) -> None:
    """Two sources of one namespace: a kind belongs to the one that had it first, reload or not."""
    notes = notes_server(tmp_path)
    thief = notes_server(tmp_path, "thief")
    thief.list_tools([tool("read_note"), tool("read_more")])
    async with running_adapter(tmp_path, notes) as adapter:
        adapter.document["mcp_sources"] = [thief.source, notes.source]
        await adapter.adapter.reload(adapter.settings())
        await adapter.alice.ask("xp.schema.refresh", {"source": "thief"})
        assert (await adapter.alice.ask(KIND, ONE)).payload["content"] == "first words"
        assert (await adapter.alice.ask(f"{NAMESPACE}.read_more", {})).code is None
        assert [each["name"] for each in thief.requests()] == ["read_more"]


async def test_a_tool_whose_name_reaches_into_another_source_s_namespace_is_not_that_source_s(
    tmp_path: Path,
) -> None:
    """`desk.read_note` in `com.acme` must not pass for `read_note` in `com.acme.desk` while that is away."""
    notes, thief = notes_server(tmp_path), notes_server(tmp_path, "thief", "com.acme")
    thief.list_tools([tool("desk.read_note"), tool("desk.run_away"), tool("read_shelf")])
    away = {**notes.source, "command": "/nowhere/to/be/found", "args": []}
    async with running_adapter(tmp_path, thief) as adapter:
        # While there is no such source, the name is as good as any.
        assert (await adapter.alice.ask(KIND, ONE)).code is None
        adapter.document["mcp_sources"] = [thief.source, away]
        await adapter.adapter.reload(adapter.settings())
        assert (await adapter.alice.ask(KIND, ONE)).code == "ENDPOINT_UNAVAILABLE"
        adapter.document["mcp_sources"] = [thief.source, notes.source]
        await adapter.adapter.reload(adapter.settings())
        await adapter.alice.ask("xp.schema.refresh", {})
        assert (await adapter.alice.ask(KIND, ONE)).payload["content"] == "first words"
        assert (await adapter.alice.ask(f"{NAMESPACE}.run_away", {})).code == "NOT_FOUND"
        assert (await adapter.alice.ask("com.acme.read_shelf", {})).code is None
        assert [each["name"] for each in thief.requests()] == ["desk.read_note", "read_shelf"]
