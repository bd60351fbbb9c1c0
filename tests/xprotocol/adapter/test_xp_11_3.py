"""XP 11.3: the eleven checks of the adapter's conformance list, each against one running adapter.

Finer tests of each are elsewhere; these are the list itself, in its order, on what was seen from outside.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, MCPError
from tests.waiting import HANG_SECONDS, until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    TOOLS,
    AdapterEnvironment,
    Answer,
    adapter_environment,
    notes_server,
    tool,
)
from tests.xprotocol.adapter.stub_endpoint import CURRENT, SECRET, stub_endpoint
from tests.xprotocol.grammar.judges import judges
from tests.xprotocol.people import person

ONE = {"name": "one"}
# Says nothing about itself, so it cannot score.
POOR = {"name": "do_it", "description": "", "inputSchema": {"type": "object"}}
POORER = tool("get_thing", "Handles it")


@dataclass
class Seen:
    """What an outsider saw of the adapter."""

    announce: dict[str, Any] = field(default_factory=dict)
    contracts: list[dict[str, Any]] = field(default_factory=list)
    after_restart: list[dict[str, Any]] = field(default_factory=list)
    described: list[dict[str, Any]] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    forged_answers: list[Answer] = field(default_factory=list)
    calls_after_refusals: int = -1
    mcp_errors: list[tuple[int, str]] = field(default_factory=list)
    inward: list[str] = field(default_factory=list)
    outward: list[str] = field(default_factory=list)
    audited: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    found = Seen()
    asyncio.run(asyncio.wait_for(_look(tmp_path_factory.mktemp("adapter"), found), HANG_SECONDS))
    return found


async def _look(folder: Path, seen: Seen) -> None:
    notes = notes_server(folder)
    notes.list_tools([*TOOLS, POOR, POORER])
    async with adapter_environment(folder, notes) as environment:
        async with _with_far_endpoint(environment) as client:
            answer = await environment.announce(
                lambda answer: bool(answer.get("mcp_sources") and answer.get("xprotocol_sources"))
            )
            seen.announce = answer.payload
            seen.contracts = await asyncio.to_thread(_schemas, environment)
            query = {"intent": "read a note that was written down", "limit": 3}
            seen.described = (await environment.alice.ask("xp.schema.describe", query)).payload["matches"]
            await _refusals(environment, seen)
            seen.calls_after_refusals = len(notes.requests())
            for name, arguments in ((SECRET, {}), (CURRENT, {"location": 7})):
                with pytest.raises(MCPError) as caught:
                    await client.call_tool(name.kind.replace(".", "_"), arguments)
                seen.mcp_errors.append((caught.value.error.code, caught.value.error.message))
            seen.inward, seen.outward = await asyncio.gather(_inward(environment), _outward(client))
            await environment.adapter.audit.flush()
            file = environment.adapter.settings.audit_file
            assert file is not None
            seen.audited = [json.loads(line) for line in file.read_text().splitlines()]
        async with environment.running():
            seen.after_restart = await asyncio.to_thread(_schemas, environment)


@asynccontextmanager
async def _with_far_endpoint(environment: AdapterEnvironment) -> AsyncIterator[Client]:
    """The adapter, an endpoint of strangers that it shows, and an MCP client in front of it."""
    far = person("far")
    environment.document["xprotocol_sources"] = [
        {
            "name": "weather",
            "key": far.key.text,
            "relay": environment.relay.url,
            "allow_private_addresses": True,
        }
    ]
    environment.document["mcp_server"] = {"transport": "sse", "sse_port": 0}
    async with stub_endpoint(environment.relay.url, far) as endpoint, environment.running() as adapter:
        endpoint.allow(adapter.identity)
        assert adapter.listener.url is not None
        async with Client(adapter.listener.url) as client:
            await until(lambda: adapter.outbound.backend.tool("weather_current_get") is not None)
            await client.list_tools()
            yield client


def _schemas(environment: AdapterEnvironment) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{environment.adapter.address}/xp/schemas", timeout=HANG_SECONDS) as page:  # noqa: S310
        listed: list[dict[str, Any]] = json.loads(page.read())
    return listed


async def _refusals(environment: AdapterEnvironment, seen: Seen) -> None:
    stranger = await environment.somebody("stranger")
    seen.refused.append(await stranger.ask(f"{NAMESPACE}.read_note", ONE))
    # Somebody else's signature over the very bytes that Alice might have sent.
    honest = environment.alice.event(f"{NAMESPACE}.read_note", ONE)
    other = stranger.event(f"{NAMESPACE}.read_note", ONE)
    forged = honest.raw.replace(honest.event.signature.encode(), other.event.signature.encode())
    # The relay would not carry it, so it is handed to the adapter directly.
    environment.adapter.requests.receive(forged)
    await environment.alice.ask("xp.schema.describe", {"intent": "anything"})
    seen.forged_answers = [
        each for each in environment.alice.received if each.event.in_reply_to == honest.event.id
    ]


async def _inward(environment: AdapterEnvironment) -> list[str]:
    answers = [await environment.alice.ask(f"{NAMESPACE}.read_note", ONE) for _ in range(5)]
    return [each.payload["content"] for each in answers]


async def _outward(client: Client) -> list[str]:
    results = [await client.call_tool("weather_current_get", {"location": "Bern"}) for _ in range(5)]
    return [str(each.content) for each in results]


@pytest.mark.requirement("XP-11.3-1")
def test_1_translation_is_deterministic(seen: Seen) -> None:
    assert seen.contracts == seen.after_restart
    assert [each["kind"] for each in seen.contracts] == sorted(each["kind"] for each in seen.contracts)


@pytest.mark.requirement("XP-11.3-2")
def test_2_every_wrapped_tool_has_a_semantic_field(seen: Seen) -> None:
    assert len(seen.contracts) >= len(TOOLS)
    for contract in seen.contracts:
        assert contract["semantic"]["auto_generated"] is True
        assert contract["semantic"]["intent_verbs"]


@pytest.mark.requirement("XP-11.3-3")
def test_3_every_schema_has_a_quality_score(seen: Seen) -> None:
    for contract in seen.contracts:
        assert 0 <= contract["semantic"]["description_quality_score"] <= 1


@pytest.mark.requirement("XP-11.3-4")
def test_4_describe_ranks_what_fits_an_intent(seen: Seen) -> None:
    assert seen.described[0]["kind"] == f"{NAMESPACE}.read_note"
    relevance = [each["relevance"] for each in seen.described]
    assert relevance == sorted(relevance, reverse=True)
    assert relevance[0] > relevance[-1]


@pytest.mark.requirement("XP-11.3-5")
def test_5_low_quality_is_flagged_in_the_announce(seen: Seen) -> None:
    flagged = {each["kind"] for each in seen.announce["low_quality_schemas"]}
    assert f"{NAMESPACE}.get_thing" in flagged
    assert f"{NAMESPACE}.read_note" not in flagged


@pytest.mark.requirement("XP-11.3-6")
def test_6_without_the_capability_nothing_is_done(seen: Seen) -> None:
    assert [each.code for each in seen.refused] == ["AUTHORIZATION_INSUFFICIENT"]
    assert seen.calls_after_refusals == 0


@pytest.mark.requirement("XP-11.3-7")
def test_7_errors_become_the_right_mcp_errors(seen: Seen) -> None:
    assert seen.mcp_errors == [
        (-32600, "Insufficient capability for this operation"),
        (-32602, "Request payload does not conform to schema"),
    ]


@pytest.mark.requirement("XP-11.3-8")
def test_8_an_event_with_a_wrong_signature_is_not_even_answered(seen: Seen) -> None:
    assert seen.forged_answers == []
    assert seen.calls_after_refusals == 0


@pytest.mark.requirement("XP-11.3-9")
def test_9_the_announce_discloses_the_wrapped_servers(seen: Seen) -> None:
    (source,) = seen.announce["mcp_sources"]
    assert source["name"] == "desk"
    assert source["transport"] == "stdio"


@pytest.mark.requirement("XP-11.3-10")
def test_10_both_directions_work_at_once(seen: Seen) -> None:
    assert seen.inward == ["first words"] * 5
    assert len(seen.outward) == 5
    assert all("17" in each for each in seen.outward)
    # Both leave their lines in the audit log, and no contents.
    outward = [each for each in seen.audited if each.get("direction") == "outward"]
    assert [each["outcome"] for each in outward if each["kind"] == CURRENT.kind].count("ok") == 5
    assert not [each for each in seen.audited if "Bern" in str(each) or "first words" in str(each)]


@pytest.mark.requirement("XP-11.3-11")
def test_11_every_grammar_is_parsed_by_the_engines(seen: Seen) -> None:
    for contract in seen.contracts:
        # Either raises for a grammar that it cannot parse.
        assert set(judges(contract["gbnf_grammar"])) == {"llama.cpp", "llguidance"}, contract["kind"]
