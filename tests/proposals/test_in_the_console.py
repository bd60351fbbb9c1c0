"""What the console makes of messages that reach it in another order, or not at all."""

from __future__ import annotations

from itertools import count
from typing import Any

from moot.protocol.operation import Json
from tests.console.in_node import in_node

_ASKS: Json = {"result": {"resultType": "input_required", "requestState": "s"}}
_DONE: Json = {"result": {"content": []}}
_numbers = count()


def _said(kind: str, by: str, id: str = "", about: str = "", **payload: Json) -> Json:
    to = ["tool"] if kind in ("mcp/proposal", "mcp/request") else []
    correlation = [about] if about else []
    id = id or f"e{next(_numbers)}"
    return {"id": id, "from": by, "kind": kind, "to": to, "correlation_id": correlation, "payload": payload}


def _call(kind: str, by: str, id: str, about: str = "", **more: Json) -> Json:
    return _said(kind, by, id, about, method="tools/call", params={"name": "write_file", **more})


PROPOSAL = _call("mcp/proposal", "agent", "p1")
FIRST = [PROPOSAL, _call("mcp/request", "ana", "r1", "p1")]
ASKED = [*FIRST, _said("mcp/response", "tool", about="r1", **_ASKS)]
TWICE = [
    *ASKED,
    _call("mcp/request", "agent", "r2", "p1", inputResponses={"n": 1}),
    _said("mcp/response", "tool", about="r2", **_ASKS),
    _call("mcp/request", "agent", "r3", "p1", inputResponses={"n": 2}),
]
ENDED = _said("mcp/response", "tool", about="r3", **_DONE)


def _told(**more: Json) -> Json:
    """An entry of the gateway's list."""
    by = {"fulfilled_by": "ana", "settled_by": "r3", "asked": ["tool"], "outcome": "pending"}
    return {"told": {"proposal_id": "p1", "state": "fulfilled", "waiting_for": ["tool"], **by, **more}}


def _after(*heard: Json) -> Any:
    """The proposal in the console after these messages and entries of the gateway's list."""
    return in_node(
        """async (bring, heard) => {
        const { Proposals } = await bring("core/state/state-proposals.js");
        const [proposals, first] = [new Proposals(), heard.find((each) => each.kind === "mcp/proposal")];
        for (const [at, each] of heard.entries()) {
            const { id, from, to, correlation_id: about } = each;
            if (each.told) proposals.restore(each.told, JSON.stringify(first));
            else proposals.receive(each, { id, from, to, about, at, raw: JSON.stringify(each) });
        }
        return { ...proposals.get("p1"), open: proposals.open().length };
        }""",
        list(heard),
    )


def test_a_call_that_asked_twice_ends_when_the_list_came_before_the_history() -> None:
    found = _after(_told(), *TWICE, ENDED)
    assert (found["status"], found["requestId"]) == ("done", "r3")
    assert [each["id"] for each in found["inputs"]] == ["r2", "r3"]


def test_the_list_names_the_request_that_counts_when_it_comes_within_the_history() -> None:
    found = _after(_told(), *TWICE[:4], _told(), ENDED)
    assert (found["status"], found["requestId"]) == ("done", "r3")


def test_the_history_does_not_take_back_that_nobody_knows_the_outcome() -> None:
    told = _told(outcome="unknown", reason="host_left")
    found = _after(told, *TWICE)
    assert (found["status"], found["reason"], len(found["inputs"])) == ("unknown", "host_left", 2)
    assert _after(told, *TWICE, ENDED)["status"] == "done"


def test_the_history_of_a_call_that_asked_twice_opens_it_no_second_time() -> None:
    found = _after(*TWICE, ENDED, *TWICE[3:4])
    assert (found["status"], found["requestId"], len(found["inputs"])) == ("done", "r3", 2)


def test_a_refusal_says_that_somebody_has_approved_it_and_its_answer_ends_it() -> None:
    late = {"error": "proposal_settled", "proposal_id": "p1", "state": "fulfilled", "settled_by": "r1"}
    refusal = _said("system/error", "system:gateway", **late)
    found = _after(PROPOSAL, refusal)
    assert (found["status"], found["open"], found["fulfilledBy"]) == ("fulfilled", 0, "")
    answer = _said("mcp/response", "tool", about="r1", **_DONE)
    assert _after(PROPOSAL, refusal, answer)["status"] == "done"
    # The history tells who it was.
    assert _after(PROPOSAL, refusal, *FIRST)["fulfilledBy"] == "ana"


def _cancelled(by: str, request: str) -> Json:
    params: Json = {"requestId": request}
    return _said("mcp/request", by, about=request, method="notifications/cancelled", params=params)


def test_only_who_sent_the_last_request_can_cancel_it() -> None:
    """The one before was answered with a question."""
    found = _after(*TWICE[:4], _cancelled("ana", "r1"), _cancelled("ana", "r2"))
    assert (found["status"], found["reason"]) == ("fulfilled", "")
    assert _after(*TWICE[:4], _cancelled("agent", "r2"))["reason"] == "cancelled"
    assert _after(*FIRST, _cancelled("ana", "r1"))["reason"] == "cancelled"
