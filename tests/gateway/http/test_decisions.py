"""Who approved what: a report out of the journal, for members, as JSON and CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.gateway.http import decision_routes, history_routes
from moot.gateway.http.decision_routes import as_csv
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import HANG_SECONDS

PEOPLE = participants(agent=["mcp/proposal"], ana=["*"], host=[], dora=["chat"])


@pytest.fixture(autouse=True)
def patient_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided a moment ago is in the report, however long the disk takes."""
    monkeypatch.setattr(history_routes, "_SETTLE_SECONDS", HANG_SECONDS)


def call(amount: int) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": amount}}}


async def ask(gateway: LocalGateway, token: str = "t-ana", **params: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return await gateway.http.get("/spaces/lab/decisions", headers=headers, params=params)


async def report(gateway: LocalGateway, token: str = "t-ana", **params: Any) -> list[dict[str, Any]]:
    answer = await ask(gateway, token, **params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["decisions"]
    return found


async def test_without_a_journal_a_report_says_that_it_lacks_decisions(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, journal="off") as gateway:
        assert (await ask(gateway)).json() == {"decisions": [], "left_out": 0, "gap": True}


async def test_a_report_says_who_decided_what_and_with_which_changes(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent, ana, host = [await gateway.join(name) for name in ("agent", "ana", "host")]
        for number in (1, 2, 3):
            assert await agent.refused("mcp/proposal", call(number), to=["host"], id=f"p{number}") is None
        assert await ana.refused("mcp/reject", {"reason": "=unsafe"}, about=["p1"]) is None
        body = {"jsonrpc": "2.0", "id": 1}
        assert await ana.refused("mcp/request", body | call(2), to=["host"], about=["p2"], id="f2") is None
        assert await ana.refused("mcp/proposal", call(30), to=["host"], about=["p3"], id="c3") is None
        both = ["c3", "p3"]
        assert await ana.refused("mcp/request", body | call(30), to=["host"], about=both, id="f3") is None
        assert await host.refused("mcp/response", body | {"result": {}}, to=["ana"], about=["f2"]) is None
        everything = await report(gateway)
        assert [(each["id"], each["status"], each["decided_by"]) for each in everything] == [
            ("p1", "rejected", "ana"),
            ("p2", "fulfilled", "ana"),
            ("p3", "fulfilled", "ana"),
            ("c3", "fulfilled", "ana"),
        ]
        changed = everything[2]
        assert (changed["arguments"], changed["original_arguments"]) == ({"amount": 30}, {"amount": 3})
        assert [each["id"] for each in await report(gateway, how="fulfilled", proposer="agent")] == [
            "p2",
            "p3",
        ]
        assert [each["id"] for each in await report(gateway, by="ana", tool="pay", limit="1")] == ["c3"]
        assert await report(gateway, by="bob") == []
        assert await report(gateway, until="2020-01-01") == []
        assert len(await report(gateway, since="2020-01-01T00:00:00Z")) == 4
        answer = await ask(gateway, format="csv", how="rejected")
        assert answer.headers["content-type"].startswith("text/csv")
        (row,) = csv.DictReader(io.StringIO(answer.text))
        assert (row["id"], row["decided_by"], row["arguments"]) == ("p1", "ana", '{"amount":1}')
        # No spreadsheet calculates what somebody wrote.
        assert row["reason"] == "'=unsafe"


async def test_what_the_last_vote_carried_out_is_approved_by_whoever_voted_last(tmp_path: Path) -> None:
    people = participants(agent=["mcp/proposal"], ana=["*"], bob=["*"], host=[])
    rules = {"quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}]}
    async with running_gateway(tmp_path, people, rules=rules) as gateway:
        agent, ana, bob, host = [await gateway.join(name) for name in people]
        assert await agent.refused("mcp/proposal", call(1), to=["host"], id="p1") is None
        assert await ana.refused("moot/approve", {}, about=["p1"]) is None
        assert await bob.refused("moot/approve", {}, about=["p1"]) is None
        asked = await host.hear("mcp/request")
        answer = {"jsonrpc": "2.0", "id": asked["payload"]["id"], "result": {}}
        assert await host.refused("mcp/response", answer, to=["bob"], about=[asked["id"]]) is None
        (found,) = await report(gateway)
        assert (found["status"], found["decided_by"], found["outcome"]) == ("fulfilled", "bob", "done")
        assert (found["votes"], found["decision_id"]) == (["ana", "bob"], asked["id"])


async def test_a_report_holds_so_many_bytes_and_leaves_out_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_routes, "MAX_REPORTED_BYTES", 50_000)
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent, ana, host = [await gateway.join(name) for name in ("agent", "ana", "host")]
        large = call(1)
        large["params"]["arguments"]["text"] = "a" * 20_000
        for number in (1, 2, 3):
            assert await agent.refused("mcp/proposal", large, to=["host"], id=f"p{number}") is None
        assert [each["id"] for each in await report(gateway)] == ["p2", "p3"]
        # What hosts say of it counts, too.
        assert await ana.refused("mcp/request", large, to=["host"], about=["p3"], id="f3") is None
        failed = {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "b" * 5_000}}
        assert await host.refused("mcp/response", failed, to=["ana"], about=["f3"]) is None
        assert [each["id"] for each in await report(gateway)] == ["p3"]


async def test_only_members_are_told_and_wrong_questions_are_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        assert (await ask(gateway, "t-nobody")).status_code == 401
        assert (await ask(gateway, "t-dora")).status_code == 200
        for wrong in ({"how": "maybe"}, {"since": "soon"}, {"limit": "0"}, {"format": "xml"}, {"who": "ana"}):
            assert (await ask(gateway, **wrong)).status_code == 400


def test_what_a_spreadsheet_would_calculate_is_text() -> None:
    line = dict.fromkeys(
        ("id", "proposed_at", "proposer", "to", "method", "tool", "arguments", "original_arguments", "state",
         "decided_by", "decided_at", "seconds", "reason", "rule", "votes", "outcome", "error")
    )  # fmt: skip
    text = as_csv([{**line, "tool": "@sum", "to": ["a", "b"], "seconds": -1.5, "error": None}])
    assert text.splitlines()[1] == ',,,"a, b",,\'@sum,,,,,,-1.5,,,,,'
    text = as_csv([{**line, "error": "gone\x1b[2J\u202e"}])
    assert text.splitlines()[1].endswith(",gone\\x1b[2J\\u202e")
