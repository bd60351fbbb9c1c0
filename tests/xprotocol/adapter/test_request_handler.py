"""Calls that arrive as events: answered by unmodified MCP servers, signed and sealed (XP 5.1)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from moot.errors import SchemaViolation
from moot.xprotocol.events.event_composer import open_payload
from moot.xprotocol.events.events import SignedDirected, decode
from moot.xprotocol.events.faults import read_error
from tests.waiting import HANG_SECONDS, until
from tests.xprotocol.adapter.adapter_environment import NAMESPACE, notes_server, running_adapter
from tests.xprotocol.people import EVE


@pytest.mark.requirement("XP-0-2", "XP-2.1-4", "XP-2.1-5", "XP-2.2-14", "XP-2.2-15", "XP-5.1-6", "XP-5.1-10")
async def test_an_event_becomes_a_tool_call_and_its_result_comes_back(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        answer = await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"}, correlation_id="talk-7")
        assert answer.kind == f"{NAMESPACE}.read_note.result"
        assert answer.payload == {
            "content": "first words",
            "encoding": "utf-8",
            "mimeType": "text/plain",
            "isError": False,
        }
        assert answer.event.correlation_id == "talk-7"
        assert answer.event.sender == adapter.adapter.key
        assert notes.requests() == [{"name": "read_note", "arguments": {"name": "one"}}]
        # It went by the relay, which keeps it and cannot read it.
        stored = await adapter.relay.store.get(answer.event.id)
        assert stored == answer.raw
        assert b"first words" not in stored
        signed = decode(stored)
        assert isinstance(signed, SignedDirected)
        with pytest.raises(SchemaViolation, match="sealed for a key that is not ours"):
            open_payload(signed, EVE)


@pytest.mark.requirement("XP-2.1-6", "XP-2.3-1")
async def test_several_servers_stand_behind_one_key(tmp_path: Path) -> None:
    left = notes_server(tmp_path, "left", "com.acme.left")
    right = notes_server(tmp_path, "right", "com.acme.right")
    right.note("one", "words on the right")
    async with running_adapter(tmp_path, left, right) as adapter:
        answers = await asyncio.gather(
            adapter.alice.ask("com.acme.left.read_note", {"name": "one"}),
            adapter.alice.ask("com.acme.right.read_note", {"name": "one"}),
        )
        assert [each.payload["content"] for each in answers] == ["first words", "words on the right"]
        assert {each.event.sender for each in answers} == {adapter.adapter.key}
        announce = await adapter.announce()
        assert announce.sender == adapter.adapter.key
        assert [each["name"] for each in announce.payload["mcp_sources"]] == ["left", "right"]


async def test_prompts_are_answered_with_their_text(tmp_path: Path) -> None:
    """XP 4.5."""
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        answer = await adapter.alice.ask(f"{NAMESPACE}.prompt.greet", {"who": "Bob"})
        assert answer.kind == f"{NAMESPACE}.prompt.greet.result"
        assert answer.payload["content"] == "Greet Bob warmly."
        assert answer.payload["messages"][0]["role"] == "user"


async def test_structured_content_is_the_answer_and_a_server_that_lies_about_it_is_found_out(
    tmp_path: Path,
) -> None:
    """D-67."""
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        answer = await adapter.alice.ask(f"{NAMESPACE}.get_sum", {"a": 1, "b": 2})
        assert answer.payload == {"sum": 3}
        lie = await adapter.alice.ask(f"{NAMESPACE}.get_lie", {})
        assert lie.code == "UPSTREAM_ERROR"
        assert "outputSchema" in lie.payload["message"]
        nonsense = await adapter.alice.ask(f"{NAMESPACE}.get_nonsense", {})
        assert nonsense.code == "UPSTREAM_ERROR"


async def test_an_error_of_a_tool_is_data_and_an_error_of_the_server_is_a_fault(tmp_path: Path) -> None:
    """D-69."""
    source = notes_server(tmp_path, env={"DESK_TOKEN": "open-sesame-1234"})
    async with running_adapter(tmp_path, source) as adapter:
        failing = await adapter.alice.ask(f"{NAMESPACE}.run_failing", {})
        assert failing.kind == f"{NAMESPACE}.run_failing.result"
        assert failing.payload["isError"] is True
        codes = {
            -32000: "UPSTREAM_ERROR",
            -32602: "SCHEMA_VIOLATION",
            -32601: "NOT_FOUND",
            -32603: "UPSTREAM_ERROR",
        }
        for code, word in codes.items():
            answer = await adapter.alice.ask(f"{NAMESPACE}.run_fail", {"code": code})
            assert answer.code == word
            fault = read_error(answer.payload)
            assert fault.message.startswith("no luck with")
            assert "sesame" not in fault.message


@pytest.mark.requirement("XP-4.6-26")
async def test_describe_is_answered_to_anybody_and_says_what_they_may_call(tmp_path: Path) -> None:
    """D-77: discovery works before there are rights."""
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        query = {"intent": "read a note", "limit": 3}
        known = await adapter.alice.ask("xp.schema.describe", query)
        assert known.kind == "xp.schema.describe.result"
        best = known.payload["matches"][0]
        assert best["kind"] == f"{NAMESPACE}.read_note"
        assert best["callable"] is True
        assert 0 < best["relevance"] <= 1
        stranger = await adapter.somebody("carol")
        cold = await stranger.ask("xp.schema.describe", query)
        assert cold.payload["matches"][0] == best | {"callable": False}
        empty = await adapter.alice.ask("xp.schema.describe", {})
        assert empty.code == "SCHEMA_VIOLATION"


async def test_all_contracts_can_be_had_by_events(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        stranger = await adapter.somebody("carol")
        answer = await stranger.ask("xp.schema.list", {"kinds": [f"{NAMESPACE}.read_note"]})
        assert answer.kind == "xp.schema.list.result"
        (contract,) = answer.payload["contracts"]
        assert contract["auth"] == {"required_capability": f"{NAMESPACE}.read"}
        assert contract["gbnf_grammar"]
        assert answer.payload["digest"] == adapter.adapter.registry.digest


async def test_many_calls_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    for number in range(30):
        notes.note(f"n{number}", f"words {number}")
    async with running_adapter(tmp_path, notes) as adapter:
        answers = await asyncio.gather(
            *(
                adapter.alice.ask(
                    f"{NAMESPACE}.read_note", {"name": f"n{number}"}, correlation_id=f"c{number}"
                )
                for number in range(30)
            )
        )
        for number, answer in enumerate(answers):
            assert answer.payload["content"] == f"words {number}"
            assert answer.event.correlation_id == f"c{number}"


async def test_an_answer_too_large_for_an_event_is_a_fault_that_says_so(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        for size in (786_000, 3_000_000):
            answer = await adapter.alice.ask(f"{NAMESPACE}.get_long", {"size": size})
            assert answer.code == "UPSTREAM_ERROR"
            assert "an event" in answer.payload["message"]
        small = await adapter.alice.ask(f"{NAMESPACE}.get_long", {"size": 500_000})
        assert len(small.payload["content"]) == 500_000


async def test_a_server_that_hangs_is_unavailable_after_the_named_time_and_others_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.request_handler.STOP_SECONDS", 0.2)
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        await adapter.alice.send(adapter.alice.event(f"{NAMESPACE}.run_hang", {}))
        await until(lambda: adapter.adapter.requests.in_progress == 1)
        quick = await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
        assert quick.payload["content"] == "first words"
        # The one before it is still under way.
        await until(lambda: adapter.adapter.requests.in_progress == 1)
    limits = {"upstream_call_seconds": 0.5}
    async with running_adapter(
        tmp_path / "hasty", notes_server(tmp_path / "hasty"), limits=limits
    ) as adapter:
        assert (await adapter.alice.ask(f"{NAMESPACE}.run_hang", {})).code == "ENDPOINT_UNAVAILABLE"


async def test_a_server_that_dies_is_started_again_and_its_contracts_stay(tmp_path: Path) -> None:
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        digest = adapter.adapter.registry.digest
        dead = await adapter.alice.ask(f"{NAMESPACE}.run_die", {})
        assert dead.code == "ENDPOINT_UNAVAILABLE"
        assert adapter.adapter.registry.digest == digest
        # A caller waits for the server to come back.
        answer = await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
        assert answer.payload["content"] == "first words"
        assert adapter.adapter.sources["desk"].starts == 2


async def test_calls_at_once_are_bounded_in_all_and_for_each_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.request_handler.STOP_SECONDS", 0.2)
    limits = {"max_calls": 3, "max_calls_per_sender": 2}
    async with running_adapter(tmp_path, notes_server(tmp_path), limits=limits) as adapter:
        carol, bob = await adapter.somebody("carol"), await adapter.somebody("bob")
        adapter.document["access"] |= {each.key: [f"{NAMESPACE}.*"] for each in (carol, bob)}
        await adapter.adapter.reload(adapter.settings())
        held = [adapter.alice.event(f"{NAMESPACE}.run_slow", {"until": "never"}) for _ in range(2)]
        for each in held:
            await adapter.alice.send(each)
        await until(lambda: adapter.adapter.requests.in_progress == 2)
        third = await adapter.alice.ask(f"{NAMESPACE}.run_slow", {"until": "one"})
        assert third.code == "RATE_LIMITED"
        assert "max_calls_per_sender" in third.payload["message"]
        await carol.send(carol.event(f"{NAMESPACE}.run_slow", {"until": "never"}))
        await until(lambda: adapter.adapter.requests.in_progress == 3)
        fourth = await bob.ask(f"{NAMESPACE}.run_slow", {"until": "one"})
        assert fourth.code == "ENDPOINT_UNAVAILABLE"
        assert "limits.max_calls" in fourth.payload["message"]
        assert fourth.payload["retry_after"] == 1.0


async def test_whoever_stops_the_adapter_does_not_leave_callers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.request_handler.STOP_SECONDS", HANG_SECONDS)
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes) as adapter:
        finished = adapter.alice.event(f"{NAMESPACE}.run_slow", {"until": "the end"})
        await adapter.alice.send(finished)
        await until(lambda: adapter.adapter.requests.in_progress == 1)
        closing = asyncio.create_task(adapter.adapter.requests.close())
        notes.let_go("the end")
        await closing
        assert (await adapter.alice.answer(finished)).payload["content"] == "done"
    monkeypatch.setattr("moot.xprotocol.adapter.inbound.request_handler.STOP_SECONDS", 0.2)
    async with running_adapter(tmp_path / "other", notes_server(tmp_path / "other")) as adapter:
        cut_off = adapter.alice.event(f"{NAMESPACE}.run_slow", {"until": "never"})
        await adapter.alice.send(cut_off)
        await until(lambda: adapter.adapter.requests.in_progress == 1)
        await adapter.adapter.requests.close()
        answer = await adapter.alice.answer(cut_off)
        assert answer.code == "ENDPOINT_UNAVAILABLE"
        assert "may have been run" in answer.payload["message"]
        late = await adapter.alice.ask(f"{NAMESPACE}.read_note", {"name": "one"})
        assert late.code == "ENDPOINT_UNAVAILABLE"


@pytest.mark.requirement("XP-3.1-10", "XP-3.1-11", "XP-3.1-12", "XP-3.1-13")
async def test_a_stdio_source_is_a_child_with_its_arguments_and_variables_and_no_others(
    tmp_path: Path,
) -> None:
    """D-72, D-87."""
    notes = notes_server(tmp_path, env={"DATA_DIR": "/var/data"}, flags=["--quiet", "a b;c"])
    async with running_adapter(tmp_path, notes) as adapter:
        adapter.environ["SECRET_OF_THE_ADAPTER"] = "never"
        answer = await adapter.alice.ask(f"{NAMESPACE}.get_environment", {})
        seen = json.loads(answer.payload["content"])
        # What stands in `command` comes first, then `args`; nothing is split by a shell.
        assert seen["argv"] == ["--quiet", "a b;c"]
        assert seen["env"]["DATA_DIR"] == "/var/data"
        assert "SECRET_OF_THE_ADAPTER" not in seen["env"]
