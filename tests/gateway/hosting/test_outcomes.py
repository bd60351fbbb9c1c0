"""Approving is never wasted, doubled or a guess: over sockets, and across restarts (D-96, D-99, D-100)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    CALL,
    Client,
    GatewayUnderTest,
    fields,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served, started

PEOPLE = participants(
    alice=["*"],
    bob=["chat"],
    agent=["mcp/proposal", "mcp/withdraw", "chat"],
    approver=["mcp/request", "mcp/reject"],
    tool=[],
)
RESULT: Json = {"result": {"content": [{"type": "text", "text": "ok"}]}}


async def listed(client: Client, **question: Json) -> dict[str, Any]:
    answer = await client.ask("moot/list-proposals", question)
    assert answer["kind"] == "moot/proposals", answer
    payload: dict[str, Any] = answer["payload"]
    return payload


async def fetched(gateway: GatewayUnderTest, name: str, path: str = "", **params: str) -> Any:
    answer = await gateway.http.get(
        f"/spaces/lab/proposals{path}", headers={"Authorization": f"Bearer t-{name}"}, params=params
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


# The target of an approval


@pytest.mark.parametrize("left", [False, True], ids=["never joined", "left"])
async def test_an_approval_of_an_absent_target_is_refused_and_the_proposal_stays_open(
    tmp_path: Path, left: bool
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        if left:
            await (await gateway.join("tool")).leave()
            await alice.hear(lambda each: each["payload"].get("event") == "leave")
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        answer = await alice.ask("mcp/request", CALL, id="r1", to=["tool"], about=["p1"])
        assert answer["payload"]["error"] == "target_absent"
        assert answer["payload"]["target"] == "tool"
        assert "stays open" in answer["payload"]["message"]
        posted = await gateway.post("alice", fields("mcp/request", CALL, to=["tool"], about=["p1"]))
        assert (posted.status_code, posted.json()["error"]) == (409, "target_absent")
        assert [each["state"] for each in (await listed(alice))["proposals"]] == ["open"]
        # Nothing was wasted: when the host is there, the same approval goes through.
        tool = await gateway.join("tool")
        assert await alice.refused("mcp/request", CALL, id="r3", to=["tool"], about=["p1"]) is None
        assert (await tool.hear("mcp/request"))["id"] == "r3"


async def test_an_approval_for_somebody_unknown_leaves_the_proposal_open(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1") is None
        assert await alice.refused("mcp/request", CALL, to=["nobody"], about=["p1"]) == "target_not_found"
        assert await alice.refused("mcp/request", CALL, to=["alice", "tool"], about=["p1"]) == "target_absent"
        assert (await fetched(gateway, "alice", "/p1"))["state"] == "open"


async def test_an_approval_is_not_used_up_on_somebody_who_was_removed(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent, _ = [await gateway.join(name) for name in ("alice", "agent", "tool")]
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        assert await alice.refused("space/kick", {"participant_id": "tool"}) is None
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p1"]) == "target_not_found"
        assert (await fetched(gateway, "alice", "/p1"))["state"] == "open"


async def test_a_host_that_polls_over_http_is_given_approved_calls_and_answers_them(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        # Looking one message up is no poll: whoever does that does not wait for calls.
        await gateway.poll("tool", id="p1")
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p1"]) == "target_absent"
        since = [(await gateway.poll("tool"))["next"] for _ in range(5)][-1]
        assert await alice.refused("mcp/request", CALL, id="r1", to=["tool"], about=["p1"]) is None
        (asked,) = (await gateway.poll("tool", since=since))["messages"]
        assert (asked["id"], asked["payload"]) == ("r1", CALL)
        answer = fields("mcp/response", RESULT, to=["alice"], about=["r1"])
        assert (await gateway.post("tool", answer)).status_code == 200
        assert (await fetched(gateway, "bob", "/p1"))["outcome"] == "done"
        # It is not announced as present, and six polls are one record.
        assert "tool" not in str(await listed_members(gateway))
        journal = b"".join(each.read_bytes() for each in gateway.journal().glob("*.jsonl"))
        assert journal.count(b'"in":"poll"') == 1
        assert await agent.refused("mcp/proposal", CALL, id="p2", to=["tool"]) is None
        # Once it has connected, its connection alone tells.
        await (await gateway.join("tool")).leave()
        await alice.hear(lambda each: each["payload"].get("event") == "leave")
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p2"]) == "target_absent"
        await gateway.poll("tool")
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        # Nobody knows whether it will poll again.
        alice = await gateway.join("alice")
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p2"]) == "target_absent"
        await gateway.poll("tool")
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p2"]) is None


async def listed_members(gateway: GatewayUnderTest) -> Json:
    answer = await gateway.http.get("/participants/bob/roster", headers={"Authorization": "Bearer t-bob"})
    return answer.json()["participants"]


async def test_a_polling_host_that_stops_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    rules: Json = {"limits": {"poll_presence_seconds": 0.5}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        answer: Json = {"payload": {"error": "target_absent"}}
        while answer["payload"].get("error") == "target_absent":
            await gateway.poll("tool")
            answer = await alice.ask("mcp/request", CALL, to=["tool"], about=["p1"])
        reply = await agent.hear("moot/outcome")
        assert (reply["payload"]["outcome"], reply["payload"]["reason"]) == ("unknown", "host_left")
        late = fields("mcp/response", RESULT, to=["alice"], about=[answer["id"]])
        assert (await gateway.post("tool", late)).status_code == 200
        assert (await fetched(gateway, "bob", "/p1"))["outcome"] == "done"


# Outcomes that nobody knows


async def fulfilled(gateway: GatewayUnderTest) -> tuple[Client, Client, Client]:
    """alice approved p1 with r1, and the tool has got it."""
    alice, agent, tool = [await gateway.join(name) for name in ("alice", "agent", "tool")]
    assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
    assert await alice.refused("mcp/request", CALL, id="r1", to=["tool"], about=["p1"]) is None
    await tool.hear("mcp/request")
    return alice, agent, tool


async def test_a_host_that_goes_away_leaves_the_outcome_unknown_for_everybody(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent, tool = await fulfilled(gateway)
        assert (await fetched(gateway, "bob", "/p1"))["outcome"] == "pending"
        await tool.leave()
        for member in (alice, agent):
            answer = await member.hear("moot/outcome")
            assert answer["from"] == "system:gateway"
            assert answer["correlation_id"] == ["r1", "p1"]
            assert answer["payload"]["outcome"] == "unknown"
            assert answer["payload"]["waiting_for"] == ["tool"]
        (known,) = (await listed(agent))["proposals"]
        assert (known["outcome"], known["reason"], known["fulfilled_by"]) == ("unknown", "host_left", "alice")
        assert known["envelope"]["payload"] == CALL, "whoever settles it reads what it was"
        again = await alice.ask("mcp/request", CALL, id="r2", to=["tool"], about=["p1"])
        assert (again["payload"]["error"], again["payload"]["outcome"]) == ("proposal_settled", "unknown")


async def test_the_late_answer_of_the_host_settles_it(tmp_path: Path) -> None:
    """Even though the host holds no right to answer but the one that it was asked."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, _, tool = await fulfilled(gateway)
        await tool.leave()
        await alice.hear("moot/outcome")
        back = await gateway.join("tool")
        assert await back.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) is None
        assert (await alice.hear("mcp/response"))["from"] == "tool"
        known = await fetched(gateway, "agent", "/p1")
        assert (known["outcome"], known["answered_by"]) == ("done", ["tool"])
        assert "envelope" not in known
        assert (await listed(alice))["proposals"] == []
        assert await back.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) in (
            "already_answered",
            "capability_violation",
        )


async def test_a_failure_is_what_the_host_says_and_nothing_else(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        _, _, tool = await fulfilled(gateway)
        failed: Json = {"result": {"isError": True, "content": []}}
        assert await tool.refused("mcp/response", failed, to=["alice"], about=["r1"]) is None
        assert (await fetched(gateway, "agent", "/p1"))["outcome"] == "failed"


async def test_a_host_that_does_not_know_what_came_of_it_leaves_that_to_a_person(tmp_path: Path) -> None:
    """A bridge whose MCP server died in the middle of a call answers with an error that is no failure."""
    data: Json = {"moot/outcome": "unknown", "else": 1}
    unsure: Json = {"error": {"code": -32004, "message": "ended before it answered", "data": data}}
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent, tool = await fulfilled(gateway)
        # Nobody says so but whoever was asked.
        assert await alice.refused("mcp/response", unsure, to=["alice"], about=["r1"]) == "unauthorized"
        assert (await fetched(gateway, "agent", "/p1"))["outcome"] == "pending"
        assert await tool.refused("mcp/response", unsure, to=["alice"], about=["r1"]) is None
        assert (await alice.hear("mcp/response"))["payload"]["error"]["data"] == data
        told = (await agent.hear("moot/outcome"))["payload"]
        assert (told["proposal_id"], told["outcome"]) == ("p1", "unknown")
        assert told["reason"] == "host_does_not_know"
        # It has answered, once.
        assert await tool.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) is not None
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        known = await fetched(gateway, "agent", "/p1")
        assert (known["outcome"], known["reason"]) == ("unknown", "host_does_not_know")
        alice = await gateway.join("alice")
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p1"]) == "proposal_settled"
        assert await alice.refused("moot/settle", {"outcome": "done"}, about=["p1"]) is None
        assert (await fetched(gateway, "agent", "/p1"))["outcome"] == "done"


async def test_a_cancelled_fulfilment_is_unknown_because_no_answer_will_come(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent, tool = await fulfilled(gateway)
        cancel: Json = {"method": "notifications/cancelled", "params": {"requestId": 1}}
        # Nobody but its sender cancels it.
        assert await agent.refused("mcp/request", cancel, to=["tool"], about=["r1"]) == "capability_violation"
        assert (await fetched(gateway, "agent", "/p1"))["outcome"] == "pending"
        assert await alice.refused("mcp/request", cancel, to=["tool"], about=["r1"]) is None
        assert (await agent.hear("moot/outcome"))["payload"]["reason"] == "cancelled"
        assert await tool.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) is None
        assert (await fetched(gateway, "agent", "/p1"))["outcome"] == "done"


async def test_a_person_settles_what_was_not_answered_in_time(
    tmp_path: Path,
) -> None:
    rules: Json = {"limits": {"request_seconds": 0.2}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        alice, agent, tool = await fulfilled(gateway)
        assert (await agent.hear("moot/outcome"))["payload"]["reason"] == "timed_out"
        answer: Json = {"outcome": "done", "note": "the file is there"}
        bob = await gateway.join("bob")
        assert await bob.refused("moot/settle", answer, about=["p1"]) == "capability_violation"
        assert await alice.refused("moot/settle", answer, about=["p1"]) is None
        assert (await agent.hear("moot/settle"))["payload"] == answer
        known = await fetched(gateway, "agent", "/p1")
        assert (known["outcome"], known["assessed_by"]) == ("done", "alice")
        assert known["note"] == "the file is there"
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p1"]) == "proposal_settled"
        # The host knows better.
        failed: Json = {"error": {"code": 1, "message": "no"}}
        assert await tool.refused("mcp/response", failed, to=["alice"], about=["r1"]) is None
        assert (await fetched(gateway, "agent", "/p1"))["outcome"] == "failed"


@pytest.mark.parametrize("journal", ["on", "strict", "off"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_restart_of_the_gateway_in_between_leaves_it_unknown_until_the_host_answers(
    tmp_path: Path, number: int, journal: str
) -> None:
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, journal=journal))
    gateway = await started(file)
    await fulfilled(gateway)
    agent = await gateway.join("agent")
    assert await agent.refused("mcp/proposal", CALL, id="p2", to=["tool"]) is None
    assert (await gateway.post("bob", {"kind": "chat"})).status_code == 200
    await gateway.close()
    await gateway.end(number)
    async with served(file) as again:
        (first, second) = (await fetched(again, "bob"))["proposals"]
        assert (first["proposal_id"], first["outcome"]) == ("p1", "unknown")
        assert (second["proposal_id"], second["state"]) == ("p2", "open")
        assert second["envelope"]["payload"] == CALL
        alice, tool = await again.join("alice"), await again.join("tool")
        assert await alice.refused("mcp/request", CALL, to=["tool"], about=["p1"]) == "proposal_settled"
        assert await tool.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) is None
        assert (await fetched(again, "bob", "/p1"))["outcome"] == "done"


async def test_nobody_sees_a_fulfilment_before_it_is_on_disk(tmp_path: Path) -> None:
    """Otherwise a crash right then forgets it, and the next approval runs it a second time."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, agent, tool = [await gateway.join(name) for name in ("alice", "agent", "tool")]
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        host = gateway.gateway.directory.hosts["lab"]
        waiting: list[int] = []
        carry_out = host.journaled.carry_out

        def noting(effects: Any, number: int, now: float, **more: Any) -> None:
            if more.get("waits"):
                waiting.append(number)
                assert host.journal.durable < number
            carry_out(effects, number, now, **more)

        host.journaled.carry_out = noting  # type: ignore[method-assign]
        assert await alice.refused("mcp/request", CALL, id="r1", to=["tool"], about=["p1"]) is None
        await tool.hear("mcp/request")
        assert len(waiting) == 1
        assert await tool.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) is None
        assert len(waiting) == 2
        # What approves nothing does not wait.
        assert await alice.refused("mcp/request", CALL, id="r2", to=["tool"]) is None
        assert len(waiting) == 2


# Asking


async def test_a_newcomer_is_told_what_is_open_however_long_ago_it_was_proposed(tmp_path: Path) -> None:
    """After more messages than the history holds, and for somebody who was invited since."""
    async with running_gateway(tmp_path, PEOPLE, poll_messages=20) as gateway:
        alice, agent = await gateway.join("alice"), await gateway.join("agent")
        call: Json = {"method": "tools/call", "params": {"big": 12345678901234567890}}
        await agent.send(json.dumps(fields("mcp/proposal", call, id="p1", to=["tool"])))
        await alice.hear("mcp/proposal")
        for number in range(60):
            await agent.say("chat", {"text": f"{number}"})
        await agent.fence()
        assert await alice.refused("mcp/reject", {"reason": "unsafe"}, about=["p1"]) is None
        invited = await alice.ask("space/invite", {"participant_id": "zoe"})
        zoe = await gateway.open("/ws?space=lab", token=invited["payload"]["token"])
        (known,) = (await listed(zoe))["proposals"]
        assert known["rejected_by"] == ["alice"]
        assert known["envelope"]["payload"]["params"] == {"big": 12345678901234567890}
        assert known["expires_at"] > known["proposed_at"]
        # The question is nobody else's business, and its answer is not kept for polling.
        assert "moot/list-proposals" not in [each["kind"] for each in await alice.fence()]
        assert "moot/proposals" not in str(await gateway.poll("alice"))


async def test_pages_give_every_open_proposal_once_while_others_are_settled(tmp_path: Path) -> None:
    rules: Json = {"limits": {"max_proposal_page_bytes": 4_096}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        agent = await gateway.join("agent")
        for number in range(12):
            assert await agent.refused("mcp/proposal", CALL, id=f"p{number}") is None
        first = await listed(agent)
        assert len(first["proposals"]) < 12
        # The last of a page goes: the next one continues behind it all the same.
        last = first["proposals"][-1]["proposal_id"]
        assert await agent.refused("mcp/withdraw", {}, about=[last]) is None
        seen = [each["proposal_id"] for each in first["proposals"]]
        after = first["next"]
        while after is not None:
            page = await fetched(gateway, "bob", after=str(after))
            seen += [each["proposal_id"] for each in page["proposals"]]
            after = page.get("next")
        assert seen == [f"p{number}" for number in range(12)]
        settled = await listed(agent, ids=[last, "never"])
        assert [each["state"] for each in settled["proposals"]] == ["withdrawn"]
        assert settled["not_known"] == ["never"]


async def test_a_proposal_too_large_for_a_socket_is_told_whole_over_http(tmp_path: Path) -> None:
    rules: Json = {"limits": {"max_proposal_page_bytes": 2_000}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        agent = await gateway.join("agent")
        call: Json = {"method": "tools/call", "params": {"name": "x", "arguments": {"text": "y" * 5_000}}}
        assert await agent.refused("mcp/proposal", call, id="p1") is None
        (known,) = (await listed(agent))["proposals"]
        assert "envelope" not in known
        assert known["envelope_bytes"] > 5_000
        assert (await fetched(gateway, "agent", "/p1"))["envelope"]["payload"] == call


async def test_who_asks_in_another_dialect_reads_it_in_its_own(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent = await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1", to=["tool"]) is None
        legacy = await gateway.join("bob", "&dialect=mcpx")
        await legacy.send({"id": "q1", "kind": "moot/list-proposals", "payload": {}})
        answer = await legacy.hear("moot/proposals")
        (known,) = answer["payload"]["proposals"]
        assert known["envelope"]["kind"] == "mcp/proposal:tools/call:read_file"
        assert known["envelope"]["protocol"] == "mcpx/v0.1"


async def test_only_members_of_the_space_read_proposals_over_http(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent = await gateway.join("agent")
        assert await agent.refused("mcp/proposal", CALL, id="p1") is None
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            for path in ("", "/p1"):
                answer = await gateway.http.get(f"/spaces/lab/proposals{path}", headers=headers)
                assert answer.status_code == 401
                assert "p1" not in answer.text
        mine = {"Authorization": "Bearer t-bob"}
        assert (await gateway.http.get("/spaces/other/proposals", headers=mine)).status_code == 404
        assert (await gateway.http.get("/spaces/lab/proposals/never", headers=mine)).status_code == 404
        assert (await gateway.http.get("/spaces/lab/proposals?after=x", headers=mine)).status_code == 400
        foreign = mine | {"Origin": "https://elsewhere.example"}
        assert (await gateway.http.get("/spaces/lab/proposals", headers=foreign)).status_code == 403


async def test_asking_counts_as_much_as_its_answer_has_bytes(tmp_path: Path) -> None:
    """A short question, asked often, must not make the gateway write more than it lets a member send."""
    # One answer is as much as may be sent in 50 seconds.
    rules: Json = {"limits": {"bytes_per_second": 200}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        agent, bob = await gateway.join("agent"), await gateway.join("bob")
        call: Json = {"method": "tools/call", "params": {"name": "x", "arguments": {"text": "y" * 10_000}}}
        assert await agent.refused("mcp/proposal", call, id="p1") is None
        answers = [await bob.ask("moot/list-proposals") for _ in range(2)]
        assert answers[0]["kind"] == "moot/proposals"
        assert answers[1]["payload"]["error"] == "rate_limited"


# Answers to nothing


async def test_an_answer_to_nothing_reaches_nobody(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice, bob, tool = [await gateway.join(name) for name in ("alice", "bob", "tool")]
        assert await alice.refused("mcp/response", RESULT, to=["bob"], about=["r9"]) == "request_not_found"
        assert await alice.refused("mcp/response", RESULT, to=["bob"]) == "request_not_found"
        assert await alice.refused("mcp/request", CALL, id="r1", to=["tool"]) is None
        assert await alice.refused("mcp/response", RESULT, to=["bob"], about=["r1"]) == "unauthorized"
        assert await tool.refused("mcp/response", RESULT, to=["alice"], about=["r1"]) is None
        assert await alice.refused("mcp/request", CALL, id="r2") is None
        assert await alice.refused("mcp/response", RESULT, about=["r2"]) is None
        assert await alice.refused("mcp/response", RESULT, about=["r2"]) == "already_answered"
        posted = await gateway.post("alice", fields("mcp/response", RESULT, about=["r2"]))
        assert (posted.status_code, posted.json()["error"]) == (409, "already_answered")
        received = [each for each in await bob.fence() if each["kind"] == "mcp/response"]
        assert len(received) == 2
