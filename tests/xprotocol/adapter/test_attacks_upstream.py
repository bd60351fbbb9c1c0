"""MCP servers that lie, flood, die or change under a call, with a whole adapter before them.

Whatever they do, the caller gets one answer in XProtocol's words, others are served meanwhile, and nothing of
what a server let slip stands in an answer, the log or the audit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.adapter.inbound.mcp_source import MAX_LISTED
from tests.waiting import HANG_SECONDS, until, until_told
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, named, notes_server, running_adapter, tool
from tests.xprotocol.adapter.servers.misbehaving_server import MARK, SHAPES
from tests.xprotocol.people import ALICE

LIAR = Path(__file__).parent / "servers" / "misbehaving_server.py"
SPACE = "com.acme.liar"
KIND = f"{NAMESPACE}.read_note"
ONE: dict[str, Json] = {"name": "one"}


def liar(folder: Path, **more: Json) -> dict[str, Json]:
    """Its entry in a configuration."""
    (folder / "liar").mkdir(exist_ok=True)
    return {
        "name": "liar",
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(LIAR), str(folder / "liar")],
        "xprotocol_namespace": SPACE,
    } | more


def called(folder: Path) -> list[str]:
    log = folder / "liar" / "requests.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def beside(folder: Path, *desks: Any, **more: Json) -> dict[str, Json]:
    """Sections for a world in which the liar stands beside honest desks, and Alice may call all."""
    return {
        "mcp_sources": [*(each.source for each in desks), liar(folder, **more)],
        "access": {ALICE.key.text: [f"{SPACE}.*", *(f"{each.namespace}.*" for each in desks)]},
    }


async def test_results_of_every_wrong_shape_are_one_clear_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with running_adapter(tmp_path, **beside(tmp_path)) as adapter:
            codes: dict[str, str | None] = {}
            for name in SHAPES:
                answer = await adapter.alice.ask(f"{SPACE}.{name}", {})
                codes[name] = answer.code
                if answer.code is not None:
                    assert answer.code in ("UPSTREAM_ERROR", "ENDPOINT_UNAVAILABLE"), name
                    assert MARK not in answer.payload["message"]
                    assert len(answer.payload["message"]) < 500
            assert codes["get_null"] == codes["get_list"] == codes["get_number"] == "UPSTREAM_ERROR"
            assert codes["get_huge"] == "UPSTREAM_ERROR"
            # One answer each, and the server was asked once for each.
            assert len(adapter.alice.received) == len(SHAPES)
            assert called(tmp_path) == list(SHAPES)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_floods_and_strange_answers_cost_their_own_call_at_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood on either stream, answers for others, answers twice, answers that are no JSON."""
    with caplog.at_level(logging.DEBUG):
        notes = notes_server(tmp_path)
        limits: dict[str, Json] = {"upstream_call_seconds": 10}
        async with running_adapter(tmp_path, notes, **beside(tmp_path, notes), limits=limits) as adapter:
            wanted = ("run_stdout", "run_stderr", "run_twice", "run_others")
            both = await asyncio.gather(
                *(adapter.alice.ask(f"{SPACE}.{name}", {}) for name in wanted),
                *(adapter.alice.ask(KIND, ONE) for _ in range(8)),
            )
            assert [each.payload["content"] for each in both[4:]] == ["first words"] * 8
            assert both[2].payload["content"] == "first"
            # A server may lie about its own calls; what it says of others' is its own loss.
            assert all(each.code in (None, "ENDPOINT_UNAVAILABLE", "UPSTREAM_ERROR") for each in both)
            for name in ("run_no_json", "run_error_junk", "run_deep"):
                answer = await adapter.alice.ask(f"{SPACE}.{name}", {})
                assert answer.code in ("UPSTREAM_ERROR", "ENDPOINT_UNAVAILABLE"), name
                assert len(answer.payload["message"]) < 2_000
            assert len(adapter.alice.received) == len(both) + 3
            await adapter.adapter.audit.flush()
    assert "\x1b" not in caplog.text
    assert MARK not in (tmp_path / "keys" / "adapter.data" / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("name", "seconds"),
    # The last one stays and says nothing more, so only time tells.
    [("run_exit", HANG_SECONDS), ("run_half_a_line", HANG_SECONDS), ("run_close_stdout", 1)],
)
async def test_a_server_that_ends_in_the_middle_of_calls_is_not_asked_them_again(
    tmp_path: Path, name: str, seconds: float
) -> None:
    """Whether a call was carried out is unknown, so it is never repeated: that is the caller's to decide."""
    notes = notes_server(tmp_path)
    limits: dict[str, Json] = {"upstream_call_seconds": seconds}
    async with running_adapter(tmp_path, notes, **beside(tmp_path, notes), limits=limits) as adapter:

        async def is_answered(kind: str, payload: Json) -> bool:
            # Within a second a busy machine may not do it, and may be asked again.
            return (await adapter.alice.ask(kind, payload)).payload.get("content") in ("first", "first words")

        gone, _ = await asyncio.gather(
            adapter.alice.ask(f"{SPACE}.{name}", {}), until_told(lambda: is_answered(KIND, ONE))
        )
        assert gone.code == "ENDPOINT_UNAVAILABLE"
        # It is started again, and answers the next one.
        await until_told(lambda: is_answered(f"{SPACE}.run_twice", {}))
        assert [each for each in called(tmp_path) if each != "run_twice"] == [name]


async def test_a_tool_that_changes_or_goes_under_a_call_is_called_as_it_was_allowed(tmp_path: Path) -> None:
    """The capability that was checked belongs to the tool that runs, whatever the list says meanwhile."""
    notes = notes_server(tmp_path)
    before = [tool("read_note", schema=named("name")), tool("run_slow")]
    notes.list_tools(before)
    async with running_adapter(tmp_path, notes) as adapter:
        bob = await adapter.somebody("bob")
        adapter.document["access"][bob.key] = [f"{NAMESPACE}.read"]
        await adapter.adapter.reload(adapter.settings())
        slow = adapter.alice.event(f"{NAMESPACE}.run_slow", {"until": "it is gone"})
        await adapter.alice.send(slow)
        await until(lambda: adapter.adapter.requests.in_progress == 1)
        # The tool that runs is gone, and another one asks for more than before.
        notes.list_tools([tool("read_note", schema=named("name", "why"))])
        await until(lambda: adapter.adapter.registry.route(f"{NAMESPACE}.run_slow") is None)
        notes.let_go("it is gone")
        assert (await adapter.alice.answer(slow)).payload["content"] == "done"
        assert (await adapter.alice.ask(f"{NAMESPACE}.run_slow", {"until": "one"})).code == "NOT_FOUND"
        assert (await bob.ask(KIND, ONE)).code == "SCHEMA_VIOLATION"
        # A read that becomes a write asks for another right at once.
        notes.list_tools([tool("write_note", schema=named("name", "text"))])
        await until(lambda: adapter.adapter.registry.route(KIND) is None)
        assert (await bob.ask(KIND, ONE)).code == "NOT_FOUND"
        write = await bob.ask(f"{NAMESPACE}.write_note", {"name": "one", "text": "mine"})
        assert write.code == "AUTHORIZATION_INSUFFICIENT"
        assert [each["name"] for each in notes.requests()] == ["run_slow"]


LISTS: tuple[Json, ...] = (
    None,
    [],
    {"tools": None},
    {"tools": {"name": "x"}},
    {"tools": [None, 1, "x", [], {}]},
    {"tools": [{"name": 7, "inputSchema": {}}]},
    {"tools": [{"name": "x", "inputSchema": "none"}]},
    {"tools": [tool("read_on")], "nextCursor": "again"},
    {"tools": [tool("read_on")] * 3},
    {
        "tools": [
            tool("../../etc/passwd"),
            tool("a\nb"),
            tool("x\x1b[31m"),
            tool("\u202eevil"),
            tool("n" * 500),
        ]
    },
    {"tools": [tool(f"read_{n}", schema={"$ref": "https://evil.example/s.json"}) for n in range(50)]},
    {"tools": [tool("read_bomb", schema={"type": "object", "properties": {"a": {"pattern": "(" * 20_000}}})]},
)


async def test_lists_of_every_wrong_kind_are_refused_and_the_adapter_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        notes = notes_server(tmp_path)
        sections = beside(tmp_path, notes)
        replaced = tmp_path / "liar" / "list.json"
        async with running_adapter(tmp_path, notes, **sections) as adapter:
            good = len(adapter.adapter.registry.contracts())
            for place, each in enumerate(LISTS):
                replaced.write_text(json.dumps(each))
                answer = await adapter.alice.ask("xp.schema.refresh", {"source": "liar"})
                assert answer.code in (None, "UPSTREAM_ERROR", "ENDPOINT_UNAVAILABLE"), place
                kinds = {contract.kind for contract in adapter.adapter.registry.contracts()}
                assert KIND in kinds
                assert all(kind.isprintable() and len(kind) <= 256 for kind in kinds), place
                assert (await adapter.alice.ask(KIND, ONE)).code is None
            replaced.unlink()
            await adapter.alice.ask("xp.schema.refresh", {"source": "liar"})
            assert len(adapter.adapter.registry.contracts()) == good
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_list_of_tens_of_thousands_of_tools_is_cut(tmp_path: Path) -> None:
    """Each takes milliseconds to translate, and everybody fetches all of them."""
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, **beside(tmp_path, notes)) as adapter:
        honest = len(adapter.adapter.registry.contracts())
        many = [{"name": f"get_{n}", "inputSchema": {"type": "object"}} for n in range(30_000)]
        (tmp_path / "liar" / "list.json").write_text(json.dumps({"tools": many}))
        refreshing = asyncio.create_task(adapter.alice.ask("xp.schema.refresh", {"source": "liar"}))
        await until(lambda: adapter.adapter.requests.in_progress)
        assert (await adapter.alice.ask(KIND, ONE)).code is None
        assert (await refreshing).code is None
        assert (await adapter.alice.ask(KIND, ONE)).code is None
        most = MAX_LISTED
        assert len(adapter.adapter.registry.contracts()) <= honest + most
        # And it is said, with the setting that decides it.
        words = f"liar: {30_000 - most} entries of tools/list are left out: a list has at most {most}"
        assert words in adapter.adapter.health()["problems"]
        (source,) = [each for each in adapter.adapter.status()["sources"] if each["name"] == "liar"]
        assert source["left_out"] == {"tools/list": 30_000 - most}


async def test_a_server_that_lists_ever_new_tools_fills_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind is remembered for good (D-71): beyond a number of them, the last list that was taken stays."""
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.contract_registry.MAX_KINDS", 60)
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, **beside(tmp_path, notes)) as adapter:
        for turn in range(5):
            listed = [tool(f"get_{turn}_{n}") for n in range(20)]
            (tmp_path / "liar" / "list.json").write_text(json.dumps({"tools": listed}))
            assert (await adapter.alice.ask("xp.schema.refresh", {"source": "liar"})).code is None
        kinds = {each.kind for each in adapter.adapter.registry.contracts()}
        assert f"{SPACE}.get_0_0" in kinds
        assert f"{SPACE}.get_4_0" not in kinds
        assert "tool_allowlist" in adapter.adapter.source_set.refresher.troubles["liar"]
        saved = json.loads((tmp_path / "keys" / "adapter.data" / "versions.json").read_text())
        assert sum(kind.startswith(f"{SPACE}.") for kind in saved["entries"]) <= 60
        # Others are not held up by it.
        notes.list_tools([tool("read_note", schema=named("name")), tool("read_more")])
        await until(lambda: adapter.adapter.registry.route(f"{NAMESPACE}.read_more") is not None)
