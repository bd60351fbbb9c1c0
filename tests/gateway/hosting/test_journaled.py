"""What an auditor finds in the journal of a real gateway: every input, its outcome, who, whom and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.store.journal_reader import JournalRecord, read_records, verify
from tests.gateway.running_gateway import CALL, LocalGateway, participants, running_gateway
from tests.gateway.served import command

PEOPLE = participants(
    alice=["*"],
    bob=["chat", "chat/acknowledge", "capability/grant", "mcp/request"],
    agent=["mcp/proposal", "chat"],
    tool=[],
)


def records_of(folder: Path) -> list[JournalRecord]:
    journal = folder / "data" / "spaces" / "lab" / "journal"
    assert verify(journal).ok
    return list(read_records(journal))


async def journal(folder: Path, *arguments: str) -> list[Any]:
    """What `moot journal … --json` prints."""
    code, output = await command("journal", *arguments, "--json", "--data", str(folder / "data"), cwd=folder)
    assert code == 0, output
    return [json.loads(line) for line in output.splitlines()]


async def propose_and_fulfil(gateway: LocalGateway) -> None:
    alice, agent, tool = [await gateway.join(name) for name in ("alice", "agent", "tool")]
    assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
    assert await alice.refused("mcp/request", CALL, id="r1", to=["tool"], about=["p1"]) is None
    answer: Json = {"result": {"content": []}}
    assert await tool.refused("mcp/response", answer, id="a1", to=["alice"], about=["r1"]) is None


@pytest.mark.requirement("MEW-3.2.1-5", "MEW-7.3-4", "MCPX-3.2.1-5", "MCPX-7.1-3")
async def test_the_lineage_of_an_approval_is_found_from_any_of_its_links(tmp_path: Path) -> None:
    """Proposal, request and response in one chain, also while the gateway runs."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        await propose_and_fulfil(gateway)
        assert (await gateway.post("alice", {"kind": "chat"})).status_code == 200
        about = await journal(tmp_path, "search", "--about", "p1")
        assert [each["id"] for each in about] == ["r1"]
        about = await journal(tmp_path, "search", "--about", "r1")
        assert [(each["id"], each["who"]) for each in about] == [("a1", "tool")]
        proposals = await journal(tmp_path, "search", "--kind", "mcp/proposal")
        assert [(each["id"], each["who"], each["out"]) for each in proposals] == [("p1", "agent", "accepted")]
    code, shown = await command("journal", "show", "r1", "--data", str(tmp_path / "data"), cwd=tmp_path)
    assert code == 0
    for id in ("p1", "r1", "a1"):
        assert id in shown


@pytest.mark.requirement("MEW-3.4.1-6")
async def test_an_acknowledgement_is_kept_with_its_chat(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await alice.ask("chat", {"text": "did you see this?"}, id="c1")
        assert await bob.refused("chat/acknowledge", {"status": "read"}, id="k1", about=["c1"]) is None
    found = [each for each in records_of(tmp_path) if "c1" in each.correlations]
    assert [(each.id, each.kind, each.text("who")) for each in found] == [("k1", "chat/acknowledge", "bob")]


@pytest.mark.requirement("MEW-3.6.8-3", "MEW-3.6.8-5")
async def test_who_gave_whom_what_and_when(tmp_path: Path) -> None:
    """A chain of grants over three members, a revoke, an invite and a kick."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        to_bob: Json = {"recipient": "bob", "capabilities": [{"kind": "participant/*"}], "reason": "helps"}
        to_agent: Json = {"recipient": "agent", "capabilities": [{"kind": "participant/status"}]}
        assert await alice.refused("capability/grant", to_bob, id="g1") is None
        assert await bob.refused("capability/grant", to_agent, id="g2") is None
        await alice.ask("space/invite", {"participant_id": "zoe", "reason": "knows it"}, id="i1")
        assert (
            await alice.refused("capability/revoke", {"recipient": "bob", "grant_id": "g1"}, id="v1") is None
        )
        assert (
            await alice.refused("space/kick", {"participant_id": "zoe", "reason": "enough"}, id="k1") is None
        )
    found = {each.id: each for each in records_of(tmp_path) if each.id in ("g1", "g2", "i1", "v1", "k1")}
    whom = {
        "g1": ("alice", "bob"),
        "g2": ("bob", "agent"),
        "v1": ("alice", "bob"),
        "i1": ("alice", "zoe"),
        "k1": ("alice", "zoe"),
    }
    times = []
    for id, (who, recipient) in whom.items():
        payload = found[id].envelope_fields["payload"]
        assert found[id].text("who") == who
        assert recipient in (payload.get("recipient"), payload.get("participant_id"))
        assert found[id].text("out") == "accepted"
        times.append(found[id].time)
    assert min(times) > 1_700_000_000
    # From the last holder back to where the right came from.
    chain = ["agent"]
    while grant := next((each for each in found.values() if is_grant_to(each, chain[-1])), None):
        chain.append(grant.text("who"))
    assert chain == ["agent", "bob", "alice"]
    searched = await journal(tmp_path, "search", "--kind", "capability/*")
    assert [each["id"] for each in searched] == ["g1", "g2", "v1"]


def is_grant_to(record: JournalRecord, name: str) -> bool:
    return record.kind == "capability/grant" and record.envelope_fields["payload"]["recipient"] == name


@pytest.mark.requirement("D002-6")
async def test_every_record_tells_its_operation_by_itself(tmp_path: Path) -> None:
    """In each dialect: kind, and the method and name in it or in the envelope beside it."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        mew, mcpx, m3p = [
            await gateway.join("alice", f"&dialect={dialect}") for dialect in ("mew", "mcpx", "m3p")
        ]
        await mew.ask("mcp/request", CALL, id="o1")
        await mcpx.ask("mcp/request:tools/call:read_file", CALL, id="o2")
        await m3p.ask("mcp.request.tools/call:read_file", CALL, id="o3")
    found = {each.id: each for each in records_of(tmp_path) if each.id in ("o1", "o2", "o3")}
    assert found["o2"].kind == "mcp/request:tools/call:read_file"
    assert found["o3"].kind == "mcp.request.tools/call:read_file"
    for record in found.values():
        assert record.envelope_fields["payload"] == CALL
        assert record.text("who") == "alice"
        assert record.text("dialect") in ("mew", "mcpx", "m3p")


async def test_everything_that_comes_in_is_there_with_what_came_of_it(tmp_path: Path) -> None:
    """Accepted, refused, malformed, joins, leaves, posts and an administrator's acts."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        tool = await gateway.join("tool")
        assert await tool.refused("chat", id="no-right") == "capability_violation"
        assert await tool.refused("chat", id="not-me", **{"from": "alice"}) == "auth_violation"
        await tool.send("{")
        await tool.fence()
        await gateway.post("alice", {"kind": "chat", "id": "posted"})
        await gateway.post("tool", {"kind": "chat", "id": "posted-no-right"})
        await gateway.post("tool", b"{")
        await gateway.admin("POST", "participants/tool/capabilities", {"add": [{"kind": "chat"}]})
        assert await tool.refused("chat", id="now-it-may") is None
        await tool.leave()
    found = records_of(tmp_path)
    outcomes = {each.id: each.text("out") for each in found if each.id}
    assert outcomes["no-right"] == "capability_violation"
    assert outcomes["not-me"] == "auth_violation"
    assert outcomes["posted"] == "accepted"
    assert outcomes["posted-no-right"] == "capability_violation"
    assert outcomes["now-it-may"] == "accepted"
    kinds = [each.kind for each in found]
    assert {"join", "leave", "capabilities", "malformed"} <= set(kinds)
    admin = next(each for each in found if each.kind == "capabilities")
    assert (admin.text("who"), admin.text("by")) == ("tool", "root")
    # The rubbish over HTTP was an input as well.
    assert kinds.count("malformed") == 2
    assert [each.number for each in found] == list(range(1, len(found) + 1))


async def test_the_bytes_of_an_envelope_are_kept_as_they_came(tmp_path: Path) -> None:
    """Odd spacing, escapes, big numbers: evidence is not rewritten."""
    big = "123456789012345678901234567890"
    raw = '{"kind":"chat" ,"id":"b1","payload":{"n":1.50,"big":BIG,"t":"\\u0041é\\/"}}'.replace("BIG", big)
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        await alice.send(raw)
        await alice.send(raw.replace("b1", "b2").replace(",", ",\n"))
        assert not [each for each in await alice.fence() if each["kind"] == "system/error"]
    found = {each.id: each for each in records_of(tmp_path) if each.id in ("b1", "b2")}
    assert found["b1"].envelope == raw.encode()
    assert found["b2"].envelope == raw.replace("b1", "b2").replace(",", ", ").encode()
