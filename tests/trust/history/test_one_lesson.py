"""One proposal is one lesson: what time, a late answer or a second message adds to it is not another."""

from __future__ import annotations

import msgspec
import pytest

from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory
from moot.trust.rules.accepted_calls import RejectedCalls
from tests.trust.histories import HOUR, START, envelope_of, fulfilment, proposal

DAY = 86_400.0


def _no(id: str, of: str, **more: Json) -> Envelope:
    return envelope_of("mcp/reject", id, "ana", {"reason": "unsafe", **more}, about=[of])


def _answer(id: str, sender: str, **said: Json) -> Envelope:
    return envelope_of("mcp/response", id, sender, {"jsonrpc": "2.0", "id": 1, **said}, about=["r1"])


def _after(*envelopes: Envelope) -> ProposalHistory:
    history = ProposalHistory()
    for number, envelope in enumerate(envelopes):
        history.observe(envelope, START + number)
    return history


def _known(history: ProposalHistory, id: str = "p1") -> HistoryProposal:
    found = history.get(id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("heard", "is_rejected"),
    [
        ([proposal("p1"), fulfilment("r1", "p1", "ana"), proposal("p2"), _no("n2", "p2")], True),
        ([proposal("p1"), _no("n1", "p1"), proposal("p2"), fulfilment("r2", "p2", "ana")], False),
        # Decided in another order than proposed.
        ([proposal("p1"), proposal("p2"), fulfilment("r2", "p2", "ana"), _no("n1", "p1")], True),
    ],
)
def test_the_last_word_of_people_on_a_call_stays_while_time_passes(
    heard: list[Envelope], is_rejected: bool
) -> None:
    history, rejected = ProposalHistory(), RejectedCalls()
    history.on_change = rejected.note
    for number, envelope in enumerate(heard):
        history.observe(envelope, START + number)
    case = _known(history).case
    assert (case in rejected) is is_rejected
    for later in (2 * HOUR, 2 * DAY):
        history.advance(START + later)
        assert (case in rejected) is is_rejected
    assert _known(history).is_over
    assert (case in RejectedCalls(history)) is is_rejected


def test_another_proposal_of_the_same_id_is_another_lesson() -> None:
    history, rejected = ProposalHistory(), RejectedCalls()
    history.on_change = rejected.note
    for number, path in enumerate(("/srv/a.txt", "/srv/b.txt")):
        made = msgspec.structs.replace(proposal("p1", path=path), ts=f"2026-01-05T10:00:0{number}.000Z")
        history.observe(made, START + 10 * number)
        history.observe(_no(f"n{number}", "p1"), START + 10 * number + 1)
        assert _known(history).case in rejected


def test_an_approval_of_nobody_known_is_not_an_approval_of_people() -> None:
    said = {"proposal_id": "p1", "request_id": "r1", "outcome": "unknown", "reason": "timed_out"}
    decision = _known(_after(proposal("p1"), envelope_of("moot/outcome", "o1", "system:gateway", said)))
    assert decision.state == "unknown"
    assert (decision.lesson, decision.is_decided) == (None, False)


def test_an_id_that_a_client_without_times_uses_again_is_another_proposal() -> None:
    first, second = (
        msgspec.structs.replace(proposal("1", path=path), ts="") for path in ("/srv/a.txt", "/srv/b.txt")
    )
    history = _after(first, envelope_of("mcp/withdraw", "w1", "agent", about=["1"]), second)
    decision = _known(history, "1")
    assert (decision.case.arguments["path"], decision.verdict) == ("/srv/b.txt", "pending")


@pytest.mark.parametrize("answered_as", ["", "files-9c"])
def test_a_host_that_was_asked_by_a_runtime_id_answers_by_another_name(answered_as: str) -> None:
    """As old journals have it."""
    history = _after(proposal("p1"), msgspec.structs.replace(fulfilment("r1", "p1"), to=["files-7f"]))
    answer = msgspec.structs.replace(_answer("a1", "files", result={"content": []}), sender=answered_as)
    history.observe(answer, START + 9, sender="files")
    assert (_known(history).state, _known(history).response) == ("done", "a1")


def test_a_second_answer_of_one_host_is_not_that_of_the_other() -> None:
    asked = msgspec.structs.replace(fulfilment("r1", "p1"), to=["a", "b"])
    said = _answer("a1", "a", result={"content": []})
    assert _known(_after(proposal("p1"), asked, said, said)).state == "fulfilled"


def test_what_one_of_several_hosts_failed_with_is_kept() -> None:
    asked = msgspec.structs.replace(fulfilment("r1", "p1"), to=["a", "b"])
    failed = _answer("a1", "a", error={"code": -32000, "message": "disk full"})
    decision = _known(_after(proposal("p1"), asked, failed, _answer("a2", "b", result={"content": []})))
    assert (decision.result, decision.error) == ("error", "disk full")


def test_a_person_who_rejects_what_their_rule_has_rejected_has_rejected_it() -> None:
    history = _after(proposal("p1"), _no("n1", "p1", rule="x"))
    assert _known(history).lesson is None
    for _ in range(2):
        history.observe(_no("n2", "p1"), START + 5)
        history.observe(_no("n1", "p1", rule="x"), START + 6)
    decision = _known(history)
    assert (decision.lesson, decision.rule, [no.id for no in decision.rejections]) == ("reject", None, ["n2"])


def test_every_envelope_that_decided_leads_to_its_proposal() -> None:
    bob = envelope_of("mcp/reject", "n2", "bob", {"reason": "busy"}, about=["p1"])
    history = _after(
        proposal("p1"), _no("n1", "p1"), bob, fulfilment("r1", "p1"), _answer("a1", "files", result={})
    )
    assert {id: history.get(id) for id in ("n1", "n2", "r1", "a1")} == dict.fromkeys(
        ("n1", "n2", "r1", "a1"), _known(history)
    )
    assert history.get("nothing") is None


def test_of_messages_about_rules_no_more_are_kept_than_of_proposals() -> None:
    history = ProposalHistory(max_proposals=3)
    for number in range(10):
        history.observe(envelope_of("trust/rule", f"u{number}", "ana", {"rule": f"rule {number}"}), START)
    assert list(history._rules) == ["u7", "u8", "u9"]


def test_what_was_approved_with_changes_teaches_the_changed_call_and_nothing_of_the_original() -> None:
    params = {"name": "write_file", "arguments": {"path": "/srv/b.txt"}}
    body = {"method": "tools/call", "params": params}
    counter = envelope_of("mcp/proposal", "c1", "ana", body, to=["files"], about=["p1"])
    made = fulfilment("r1", "c1", "ana", "/srv/b.txt", also=["p1"])
    history = _after(proposal("p1"), counter, made, _answer("a1", "files", result={}))
    original, changed = _known(history), _known(history, "c1")
    assert (original.lesson, changed.lesson) == ("approve", None)
    assert (original.case.proposer, original.case.arguments) == ("agent", {"path": "/srv/b.txt"})
    line = original.as_json()
    assert (line["arguments"], line["original_arguments"]) == ({"path": "/srv/b.txt"}, {"path": "/srv/a.txt"})
    assert (line["state"], line["decided_by"]) == ("done", "ana")
    # A request that repeats the proposal changes nothing, whatever else it names.
    plain = _after(proposal("p1"), proposal("p2"), fulfilment("r1", "p2", "ana", also=["p1"]))
    assert _known(plain).original is None
