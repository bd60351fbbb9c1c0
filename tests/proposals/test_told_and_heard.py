"""What the gateway's list tells and what the history repeats are one story, in whichever order they come."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import msgspec

from moot.errors import FulfilmentCancelled, HostLeft, McpError
from moot.participant.connection.envelope_sender import SendCounts
from moot.participant.connection.message_feed import HandlerRunner
from moot.participant.connection.roster import Roster
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.limits import ParticipantLimits
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import GatewayProposal
from moot.protocol.operation import Json
from moot.protocol.proposal_life import MAX_EXPLANATIONS, MAX_REJECTIONS, ProposalLife
from moot.protocol.proposal_tracker import ProposalTracker

_numbers = count()
ASKS: Json = {"result": {"resultType": "input_required", "requestState": "s"}}
DONE: Json = {"result": {"content": []}}
BROKEN: Json = {"error": {"code": 1, "message": "disk full"}}


def said(
    kind: str, sender: str, about: str = "", to: tuple[str, ...] = (), id: str = "", **payload: Any
) -> Envelope:
    fields: dict[str, Json] = {
        "protocol": "mew/v0.4",
        "id": id or f"e{next(_numbers)}",
        "ts": "2026-11-18T00:00:00Z",
        "from": sender,
        "kind": kind,
        "payload": payload,
        "correlation_id": [about] if about else [],
        "to": list(to),
    }
    return DIALECTS["mew"].decode(msgspec.json.encode(fields))


def proposed(*to: str, sender: str = "agent") -> Envelope:
    return said(
        "mcp/proposal", sender, to=to or ("tool",), id="p1", method="tools/call", params={"name": "w"}
    )


def requested(id: str, sender: str = "ana", to: tuple[str, ...] = ("tool",), **more: Json) -> Envelope:
    params = {"name": "w", **more}
    return said("mcp/request", sender, "p1", to, id, jsonrpc="2.0", method="tools/call", params=params)


def continued(id: str) -> Envelope:
    return requested(id, "agent", inputResponses={})


def answered(request: str, payload: Json = DONE, host: str = "tool") -> Envelope:
    return said("mcp/response", host, request, jsonrpc="2.0", **payload)


def cancelled(request: str, sender: str) -> Envelope:
    what: dict[str, Any] = {"method": "notifications/cancelled", "params": {"requestId": request}}
    return said("mcp/request", sender, request, jsonrpc="2.0", **what)


def lost(request: str, reason: str, *asked: str) -> Envelope:
    about: dict[str, Any] = {"proposal_id": "p1", "request_id": request, "asked": list(asked or ("tool",))}
    return said("moot/outcome", "system:gateway", "p1", outcome="unknown", reason=reason, **about)


def told(request: str, outcome: Any = "pending", **more: Any) -> GatewayProposal:
    facts = {"fulfilled_by": "ana", "asked": ["tool"], "waiting_for": ["tool"]} | more
    return GatewayProposal("p1", "fulfilled", settled_by=request, outcome=outcome, **facts)


def make_list(*present: dict[str, Json]) -> ProposalList:
    """Of a member who is alone but for these; a host that left is not waited for at all."""
    runner = HandlerRunner(lambda _: None, SendCounts(), 100)
    roster = Roster("mew", runner)
    roster.apply_welcome("me", "me", present, again=False)
    return ProposalList(ParticipantLimits(host_return_seconds=0), roster, runner)


TWO_INPUTS = (
    requested("r1"),
    answered("r1", ASKS),
    continued("r2"),
    answered("r2", ASKS),
    continued("r3"),
)


def test_what_was_given_two_inputs_ends_for_who_asks_the_gateway_before_reading_the_history() -> None:
    proposals = make_list()
    proposals.restore(told("r3"), proposed())
    for each in (*TWO_INPUTS, answered("r3")):
        proposals.observe(each)
    seen = proposals.get("p1")
    assert seen is not None
    assert (seen.state, seen.result) == ("done", DONE["result"])


def test_what_waits_for_a_third_input_ends_for_who_asks_the_gateway_before_reading_the_history() -> None:
    proposals = make_list()
    proposals.restore(told("r3", wants_input=True), proposed())
    for each in (*TWO_INPUTS, answered("r3", ASKS)):
        proposals.observe(each)
    seen = proposals.get("p1")
    assert seen is not None
    assert (seen.request_id, seen.wants_input) == ("r3", True)
    for each in (continued("r4"), answered("r4")):
        proposals.observe(each)
    assert (seen.state, seen.result) == ("done", DONE["result"])


def test_an_outcome_that_nobody_knows_is_not_undone_by_the_inputs_before_it() -> None:
    proposals = make_list()
    proposals.restore(told("r3", "unknown", reason="timed_out"), proposed())
    for each in TWO_INPUTS:
        proposals.observe(each)
    seen = proposals.get("p1")
    assert seen is not None
    assert seen.state == "unknown"


def test_a_question_of_an_earlier_request_is_not_the_answer_to_the_last() -> None:
    proposals = make_list()
    seen = proposals.add(proposed())
    for each in TWO_INPUTS[:2]:
        proposals.observe(each)
    proposals.restore(told("r2"), None)
    proposals.observe(answered("r2"))
    assert (seen.state, seen.result) == ("done", DONE["result"])
    proposals.untrack("p1")
    assert proposals._requests == {}


def test_whoever_sent_the_last_request_can_cancel_it_and_nobody_else() -> None:
    proposals = make_list()
    seen = proposals.add(proposed())
    for each in (*TWO_INPUTS[:3], cancelled("r2", "ana")):
        proposals.observe(each)
    assert seen.state == "fulfilled"
    proposals.observe(cancelled("r2", "agent"))
    assert (seen.state, seen.reason) == ("unknown", "cancelled")
    assert not isinstance(seen.fault, FulfilmentCancelled), "it was not the approver"


def test_the_error_of_one_host_is_told_whatever_the_others_say_after_it() -> None:
    proposals = make_list()
    seen = proposals.add(proposed("a", "b", "c"))
    proposals.observe(requested("r1", to=("a", "b", "c")))
    proposals.observe(answered("r1", BROKEN, "a"))
    for host in ("b", "c"):
        proposals.observe(answered("r1", DONE, host))
    assert seen.state == "failed"
    assert isinstance(seen.fault, McpError)
    assert seen.host == "a"


def test_the_result_that_is_told_is_that_of_the_host_which_is_told() -> None:
    proposals = make_list()
    seen = proposals.add(proposed("a", "b"))
    proposals.observe(requested("r1", to=("a", "b")))
    for host in ("a", "b"):
        proposals.observe(answered("r1", {"result": {"content": [host]}}, host))
    assert (seen.result, seen.host) == ({"content": ["a"]}, "a")


def test_the_history_tells_which_of_several_hosts_failed() -> None:
    proposals = make_list()
    seen = proposals.add(proposed("a", "b"))
    proposals.restore(told("r1", "failed", asked=["a", "b"], waiting_for=[]), None)
    proposals.observe(answered("r1", DONE, "a"))
    proposals.observe(answered("r1", BROKEN, "b"))
    assert isinstance(seen.fault, McpError)


async def test_of_several_hosts_one_that_left_is_given_up_when_the_others_have_answered() -> None:
    proposals = make_list({"id": "a"})
    seen = proposals.add(proposed("a", "b"))
    proposals.observe(requested("r1", to=("a", "b")))
    proposals.handle_member_left("b")
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0, done.set)
    await done.wait()
    assert (seen.state, seen.fault) == ("fulfilled", None), "the other one may still answer"
    proposals.observe(answered("r1", DONE, "a"))
    assert isinstance(seen.fault, HostLeft)


def test_a_host_that_is_away_for_a_moment_after_we_asked_the_gateway_is_waited_for() -> None:
    proposals = make_list()
    seen = proposals.add(proposed())
    proposals.observe(requested("r1"))
    proposals.restore(told("r1"), None)
    proposals.observe(lost("r1", "host_left"))
    assert (seen.state, seen.fault) == ("unknown", None)
    proposals.restore(told("r1", "unknown", reason="host_left"), None)
    assert isinstance(seen.fault, HostLeft)


def test_who_approved_is_learned_from_the_history_after_the_outcome() -> None:
    tracker = ProposalTracker[ProposalLife]()
    life = tracker.track(ProposalLife(id="p1", proposer="agent"))
    tracker.apply(lost("r1", "timed_out"), 0.0)
    assert tracker.apply(requested("r1"), 0.0) == [life]
    assert (life.state, life.fulfilled_by) == ("unknown", "ana")
    assert tracker.apply(requested("r1"), 0.0) == []


def test_a_proposer_that_came_back_under_another_id_can_withdraw() -> None:
    proposals = make_list({"id": "agent-9c", "name": "agent"})
    entry = GatewayProposal("p1", "open", proposer="agent-9c", expires_at="2036-01-01T00:00:00Z")
    proposals.restore(entry, proposed(sender="agent-7f"))
    proposals.observe(said("mcp/withdraw", "agent-9c", "p1", reason="superseded"))
    seen = proposals.get("p1")
    assert seen is not None
    assert seen.state == "withdrawn"


def test_of_rejections_and_their_explanations_only_so_many_are_kept() -> None:
    proposals = make_list()
    seen = proposals.add(proposed())
    for number in range(MAX_REJECTIONS + 10):
        proposals.observe(said("mcp/reject", f"x{number}", "p1", id=f"no{number}", reason="unsafe"))
    for _ in range(MAX_EXPLANATIONS + 10):
        proposals.observe(said("chat", "x0", "no0", text="because"))
    assert (len(seen.rejections), len(proposals._rejections)) == (MAX_REJECTIONS, MAX_REJECTIONS)
    assert len(seen.rejections[0].explanations) == MAX_EXPLANATIONS


def test_the_whole_reason_of_a_rejection_takes_the_place_of_its_beginning() -> None:
    proposals = make_list()
    entry = GatewayProposal("p1", "open", expires_at="2036-01-01T00:00:00Z", rejected_by=["ana"])
    entry.reject_reasons = ["x" * 100]
    proposals.restore(entry, proposed())
    proposals.observe(said("mcp/reject", "ana", "p1", reason="x" * 300))
    seen = proposals.get("p1")
    assert seen is not None
    assert [each.reason for each in seen.rejections] == ["x" * 300]


class _CountingTracker(ProposalTracker[ProposalLife]):
    looks = 0

    def _index(self, life: ProposalLife) -> None:
        self.looks += 1
        ProposalTracker._index(self, life)


def test_time_looks_at_those_alone_that_it_changes() -> None:
    tracker = _CountingTracker()
    for number in range(200):
        tracker.track(ProposalLife(id=f"p{number}", proposer="agent", expires=float(number)))
    tracker.looks = 0
    for number, life in enumerate(tracker):
        assert tracker.expire(number) == [life]
    assert tracker.looks == 200


def test_a_deadline_that_moved_counts_and_the_old_one_does_not() -> None:
    tracker = ProposalTracker[ProposalLife]()
    life = tracker.track(ProposalLife(id="p1", proposer="agent", expires=10.0))
    late = "1970-01-01T00:01:40+00:00"
    for _ in range(200):
        for at in (late, "1970-01-01T00:00:50+00:00", late):
            tracker.restore_known(GatewayProposal("p1", "open", expires_at=at), 0.0)
    assert len(tracker._by_deadline) < 100, "what does not hold any more is dropped"
    assert tracker.expire(99.0) == []
    assert tracker.expire(100.0) == [life]
    assert life.settled_at == 100.0
