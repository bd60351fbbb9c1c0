"""The ledger: one decision for each proposal, live or out of a journal."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from moot.protocol.operation import Json
from moot.trust.history.ledger_reader import JournalReader, read_ledger
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory, filter_proposals
from tests.store import journals
from tests.trust.histories import START, envelope_of, fulfilment, proposal

ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "done"}]}}


def _after(*envelopes: object, seconds: float = 10.0) -> ProposalHistory:
    ledger = ProposalHistory()
    for number, envelope in enumerate(envelopes):
        ledger.observe(envelope, START + seconds * number)  # type: ignore[arg-type]
    return ledger


def _only(ledger: ProposalHistory) -> HistoryProposal:
    (decision,) = ledger
    return decision


def test_a_fulfilled_proposal_has_its_decider_its_time_and_its_result() -> None:
    decision = _only(
        _after(
            proposal("p1"),
            fulfilment("r1", "p1"),
            envelope_of("mcp/response", "a1", "files", ANSWER, about=["r1"]),
        )
    )
    assert (decision.verdict, decision.by, decision.decided.envelope, decision.duration_seconds) == (
        "fulfilled",
        "alice",
        "r1",
        10.0,
    )
    assert (decision.result, decision.response) == ("ok", "a1")
    assert decision.lesson == "approve"


@pytest.mark.parametrize(
    "answer",
    [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "disk full"}},
        {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"isError": True, "content": [{"type": "text", "text": "disk full"}]},
        },
    ],
)
def test_a_tool_that_fails_was_still_approved(answer: dict[str, object]) -> None:
    decision = _only(
        _after(
            proposal("p1"),
            fulfilment("r1", "p1"),
            envelope_of("mcp/response", "a1", "files", {"jsonrpc": "2.0", "id": 1, **answer}, about=["r1"]),
        )
    )
    assert (decision.result, decision.error, decision.lesson) == ("error", "disk full", "approve")


def test_a_host_that_does_not_know_has_not_failed() -> None:
    error = {"code": -32004, "message": "it ended", "data": {"moot/outcome": "unknown"}}
    ledger = _after(
        proposal("p1"),
        fulfilment("r1", "p1"),
        envelope_of("mcp/response", "a1", "files", {"jsonrpc": "2.0", "id": 1, "error": error}, about=["r1"]),
    )
    assert (_only(ledger).outcome, _only(ledger).error) == ("unknown", None)
    ledger.observe(envelope_of("moot/settle", "s1", "alice", {"outcome": "done"}, about=["p1"]), START + 9)
    assert (_only(ledger).outcome, _only(ledger).assessed_by) == ("done", "alice")


def test_a_rejection_keeps_its_reason_when_the_proposer_then_withdraws() -> None:
    decision = _only(
        _after(
            proposal("p1"),
            envelope_of("mcp/reject", "n1", "alice", {"reason": "unsafe"}, about=["p1"]),
            envelope_of("mcp/withdraw", "w1", "agent", {"reason": "no_longer_needed"}, about=["p1"]),
        )
    )
    assert (decision.verdict, decision.by, decision.decided.reason, decision.lesson) == (
        "rejected",
        "alice",
        "unsafe",
        "reject",
    )


def test_what_one_rejects_and_another_fulfils_teaches_to_ask() -> None:
    """D-28: a rejection leaves a proposal open."""
    decision = _only(
        _after(
            proposal("p1"),
            envelope_of("mcp/reject", "n1", "bob", {"reason": "busy"}, about=["p1"]),
            fulfilment("r1", "p1"),
        )
    )
    assert (decision.status, decision.by, decision.lesson) == ("fulfilled", "alice", "reject")


def test_a_withdrawn_one_and_an_expired_one_teach_nothing() -> None:
    ledger = _after(
        proposal("p1"), envelope_of("mcp/withdraw", "w1", "agent", {"reason": "timeout"}, about=["p1"])
    )
    assert (_only(ledger).status, _only(ledger).lesson) == ("withdrawn", None)
    waiting = _after(proposal("p1"))
    waiting.expire(START + 86_400.0)
    assert (_only(waiting).status, _only(waiting).duration_seconds, _only(waiting).lesson) == (
        "expired",
        86_400.0,
        None,
    )


def test_nobody_else_withdraws_it_and_nobody_learns_from_who_fulfils_their_own() -> None:
    ledger = _after(proposal("p1"), envelope_of("mcp/withdraw", "w1", "bob", {}, about=["p1"]))
    assert _only(ledger).status == "pending"
    own = _only(_after(proposal("p1"), fulfilment("r1", "p1", sender="agent")))
    assert (own.status, own.lesson) == ("fulfilled", None)


def test_a_quorum_is_listed_with_all_who_approved() -> None:
    """D-28: several approvals, each counted once."""
    decision = _only(
        _after(
            proposal("p1"),
            envelope_of("moot/approve", "v1", "alice", about=["p1"]),
            envelope_of("moot/approve", "v2", "alice", about=["p1"]),
            envelope_of("moot/approve", "v3", "bob", about=["p1"]),
            fulfilment("r1", "p1"),
        )
    )
    assert decision.votes == ["alice", "bob"]
    assert decision.by_quorum


def test_the_proposals_of_a_removed_member_are_withdrawn() -> None:
    """Decision 0015."""
    ledger = _after(proposal("p1"), envelope_of("space/kick", "k1", "alice", {"participant_id": "agent"}))
    assert (_only(ledger).status, _only(ledger).reason) == ("withdrawn", "removed")


def test_who_leaves_with_a_reason_does_not_come_back_for_its_proposals() -> None:
    """Decision 0015: taken out of the file, or a guest; a lost connection has no reason."""
    gone: dict[str, Json] = {"event": "leave", "participant": {"id": "agent-laptop", "name": "agent"}}
    lost = _after(proposal("p1"), envelope_of("system/presence", "s1", "system:gateway", gone))
    assert _only(lost).status == "pending"
    removed = _after(
        proposal("p1"), envelope_of("system/presence", "s1", "system:gateway", gone | {"reason": "removed"})
    )
    assert (_only(removed).status, _only(removed).reason) == ("withdrawn", "removed")


def test_an_automated_act_names_its_rule_in_any_of_three_ways_and_teaches_nothing() -> None:
    rule = envelope_of("trust/rule", "t1", "alice", {"rule": {"name": "reports"}})
    by_correlation = _after(rule, proposal("p1"), fulfilment("r1", "p1", sender="bot", also=["t1"]))
    by_context = _after(proposal("p1"), fulfilment("r1", "p1", sender="bot", context="trust/rule/reports"))
    by_payload = _after(
        proposal("p1"),
        envelope_of("mcp/reject", "n1", "bot", {"reason": "policy", "rule": "reports"}, about=["p1"]),
    )
    for ledger in (by_correlation, by_context, by_payload):
        assert (_only(ledger).rule, _only(ledger).automated, _only(ledger).lesson) == ("reports", True, None)


def test_the_gateway_is_believed_when_it_took_what_our_clock_calls_expired() -> None:
    ledger = ProposalHistory(proposal_seconds=60.0)
    ledger.observe(proposal("p1"), START)
    ledger.observe(fulfilment("r1", "p1"), START + 120.0)
    assert _only(ledger).status == "fulfilled"


def test_the_ledger_is_bounded_and_finds_by_any_id() -> None:
    ledger = ProposalHistory(max_proposals=2)
    for number in range(3):
        ledger.observe(proposal(f"p{number}"), START + number)
    assert [decision.id for decision in ledger] == ["p1", "p2"]
    ledger.observe(fulfilment("r1", "p2"), START + 5)
    ledger.observe(envelope_of("mcp/response", "a1", "files", ANSWER, about=["r1"]), START + 6)
    assert {ledger.get(id) for id in ("p2", "r1", "a1")} == {ledger.get("p2")}
    assert ledger.get("nobody") is None


def _journal(tmp_path: Path) -> Path:
    folder = journals.folder_in(tmp_path)
    body = {"method": "tools/call", "params": {"name": "write_file", "arguments": {"path": "/srv/a.txt"}}}
    request = {"jsonrpc": "2.0", "id": 1} | body
    answer = journals.envelope_record
    about: dict[str, Json] = {"correlation_id": ["p1"]}
    records = [
        answer("p1", "agent", t=START, kind="mcp/proposal", to=["files"], payload=body),
        # Refused: it decided nothing.
        answer("x1", "eve", t=START + 1, out="unauthorized", kind="mcp/withdraw", payload={}, **about),
        answer("c1", "alice", t=START + 2, kind="chat", payload={"text": "hm", "format": "plain"}),
        answer("r1", "alice", t=START + 5, kind="mcp/request", to=["files"], payload=request, **about),
        answer("a1", "files", t=START + 6, kind="mcp/response", correlation_id=["r1"], payload=ANSWER),
        answer("p2", "agent", t=START + 7, kind="mcp/proposal", to=["files"], payload=body),
        answer(
            "n2", "bob", t=START + 9, kind="mcp/reject", correlation_id=["p2"], payload={"reason": "policy"}
        ),
    ]
    journals.write_now(folder, records)
    return folder


@pytest.mark.requirement("MEW-1-5", "MCPX-1-5")
def test_the_export_of_a_journal_ties_each_proposal_to_its_verdict_and_result(tmp_path: Path) -> None:
    """MEW 1, MCPx 1: decisions as training material, linked by the ids of their envelopes."""
    lines = [orjson.loads(orjson.dumps(each.as_json())) for each in read_ledger(_journal(tmp_path))]
    first, second = lines
    assert (first["id"], first["decision_id"], first["response_id"]) == ("p1", "r1", "a1")
    assert (first["status"], first["decided_by"], first["seconds"], first["result"]) == (
        "fulfilled",
        "alice",
        5.0,
        "ok",
    )
    assert (first["proposer"], first["tool"], first["arguments"]) == (
        "agent",
        "write_file",
        {"path": "/srv/a.txt"},
    )
    assert (second["status"], second["decided_by"], second["reason"]) == ("rejected", "bob", "policy")
    assert second["rejections"][0]["id"] == "n2"


def test_a_reader_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = _journal(tmp_path)
    reader = JournalReader(ProposalHistory())
    reader.catch_up(folder)
    body = {"method": "tools/call", "params": {"name": "write_file", "arguments": {}}}
    journals.write_now(
        folder, [journals.envelope_record("p3", "agent", t=START + 20, kind="mcp/proposal", payload=body)]
    )
    reader.catch_up(folder)
    assert [decision.id for decision in reader.ledger] == ["p1", "p2", "p3"]
    assert reader.skipped == 0


def test_a_proposal_in_mcpx_is_read_alike(tmp_path: Path) -> None:
    folder = journals.folder_in(tmp_path)
    params = {"name": "write_file", "arguments": {"path": "/srv/a.txt"}}
    raw = {
        "protocol": "mcpx/v0.1",
        "id": "p1",
        "ts": "2026-01-05T10:00:00.000Z",
        "from": "agent",
        "to": ["files"],
        "kind": "mcp/proposal:tools/call:write_file",
        "payload": {"method": "tools/call", "params": params},
    }
    head = {"t": START, "in": "receive", "who": "agent", "dialect": "mcpx", "out": "accepted"}
    journals.write_now(folder, [journals.members({**head, "kind": raw["kind"], "id": "p1", "raw": raw})])
    case = _only(read_ledger(folder)).case
    assert (case.proposer, case.tool, case.arguments) == ("agent", "write_file", {"path": "/srv/a.txt"})


def test_decisions_are_chosen_by_whatever_is_given() -> None:
    ledger = _after(proposal("p1"), fulfilment("r1", "p1"), proposal("p2", "other"))
    assert [d.id for d in filter_proposals(ledger, verdict=["fulfilled"])] == ["p1"]
    assert [d.id for d in filter_proposals(ledger, proposer="other")] == ["p2"]
    assert [d.id for d in filter_proposals(ledger, by="alice", tool="write_file", automated=False)] == ["p1"]
    assert [d.id for d in filter_proposals(ledger, since=START + 1)] == ["p2"]
