"""One effect, once: whichever way a call is made, and whatever is done to hide that it is the same."""

from __future__ import annotations

from typing import Any

import pytest

from moot.config.space.space_reader import read_space
from moot.errors import UsageError
from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import Json
from moot.space.config_json import load_config, save_config
from moot.space.proposals import effect_keys
from moot.space.space import Space
from tests.space.space_driver import SpaceDriver

DAY = 86_400.0
PAY: Json = {"tool": "pay*", "key": "{invoice}/{payee.name}", "days": 30}
RULES: Json = ["mcp/request", "mcp/reject", "moot/approve", "trust/suggestion", "trust/rule"]
UNKNOWN: Json = {"code": -32000, "message": "gone", "data": {"moot/outcome": "unknown"}}


class Bank(SpaceDriver):
    """Two agents that may pay by themselves, two people, an approver that applies rules, and the bank."""

    def __init__(self, effects: Json = None, **settings: Json) -> None:
        people: Json = {
            "agent": ["mcp/*"],
            "other": ["mcp/*"],
            "ana": ["*"],
            "bob": ["*"],
            "approver": RULES,
            "tool": ["mcp/response"],
            "tool2": [],
        }
        self.people = people
        super().__init__(
            participants=people, effects={"pay": PAY} if effects is None else effects, **settings
        )
        self.enter("agent", "other", "ana", "bob", "approver", "tool", "tool2")

    def pay(
        self, invoice: Json = "INV-7", payee: Json = "ACME", *, who: str = "agent", **sent: Any
    ) -> str | None:
        return self.says(who, "mcp/request", call(invoice, payee), to=["tool"], **sent)

    def propose(self, id: str, invoice: Json = "INV-7", *, who: str = "agent") -> None:
        assert self.says(who, "mcp/proposal", call(invoice), to=["tool"], id=id) is None

    def answers(self, request: str, result: Json = None, error: Json = None, who: str = "tool") -> str | None:
        body = {"result": result or {"content": []}} if error is None else {"error": error}
        return self.says(who, "mcp/response", body, about=[request])

    def note(self, id: str) -> Any:
        assert self.says("ana", "moot/list-proposals", {"ids": [id]}) is None
        return self.received["ana"][-1]["payload"]["proposals"][0].get("effects", [{}])[0]

    @property
    def told(self) -> Any:
        return self.received["agent"][-1]["payload"]


def call(invoice: Json = "INV-7", payee: Json = "ACME", tool: str = "pay", **more: Json) -> Json:
    arguments = {"invoice": invoice, "payee": {"name": payee}, "amount": 5, **more}
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def test_the_second_call_asks_and_says_which_was_the_first() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    assert bank.answers("r1") is None
    assert bank.pay(who="other") == "approval_required"
    told = bank.received["other"][-1]["payload"]
    assert told["message"] == (
        "propose it: pay INV-7/ACME was done for agent on 2025-10-09 08:53 UTC: do it again?"
    )
    assert told["earlier"] == {
        "request_id": "r1",
        "by": "agent",
        "at": "2025-10-09T08:53:20.000Z",
        "until": "2025-11-08T08:53:20.000Z",
        "outcome": "done",
    }
    assert bank.pay("INV-8") is None


def test_a_person_confirms_by_naming_the_earlier_call_and_in_no_other_way() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    bank.propose("p1", "inv-7 ")
    assert bank.note("p1")["text"].startswith("pay INV-7/ACME was sent for agent on ")
    body = call("inv-7 ")
    for who, about in (("ana", ["p1"]), ("approver", ["p1", "r1"]), ("agent", ["p1", "r1"])):
        assert bank.says(who, "mcp/request", body, to=["tool"], about=about) == "approval_required", who
    assert bank.says("ana", "mcp/request", body, to=["tool"], about=["p1", "r1"], id="r2") is None
    # The next names the second: whoever has seen the first alone has not seen all.
    bank.propose("p2")
    assert bank.says("bob", "mcp/request", call(), to=["tool"], about=["p2", "r1"]) == "approval_required"
    assert bank.note("p2")["earlier"]["approved_by"] == "ana"
    assert bank.says("bob", "mcp/request", call(), to=["tool"], about=["p2", "r2"]) is None


def test_two_who_approve_the_same_at_once_pay_once() -> None:
    bank = Bank()
    bank.propose("p1")
    bank.propose("p2", who="other")
    assert bank.says("ana", "mcp/request", call(), to=["tool"], about=["p1"], id="r1") is None
    votes = [each for each in bank.received["bob"] if each["kind"] == "moot/votes"]
    assert [(each["payload"]["proposal_id"], each["payload"]["effects"][0]["verdict"]) for each in votes] == [
        ("p2", "asks")
    ]
    assert bank.says("bob", "mcp/request", call(), to=["tool"], about=["p2"]) == "approval_required"
    assert "approved by ana" in bank.received["bob"][-1]["payload"]["message"]


def test_a_grant_opens_no_second_way() -> None:
    bank = Bank()
    right: Json = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "pay"}}}
    assert bank.pay(id="r1") is None
    grant: Json = {"recipient": "tool2", "capabilities": [right]}
    assert bank.says("ana", "capability/grant", grant) is None
    assert bank.pay(who="tool2") == "approval_required"


@pytest.mark.parametrize("names_it", [False, True])
def test_the_last_vote_pays_twice_only_if_it_names_the_first(names_it: bool) -> None:
    bank = Bank(quorum=[{"payload": {"params": {"arguments": {"amount": 5}}}, "approvals_needed": 2}])
    for id in ("p1", "p2"):
        bank.propose(id)
        assert bank.says("ana", "moot/approve", {}, about=[id]) is None
    assert bank.says("bob", "moot/approve", {}, about=["p1"], id="v1") is None
    first = next(each for each in bank.received["tool"] if each["kind"] == "mcp/request")
    assert bank.says("bob", "moot/approve", {}, about=["p2", first["id"]] if names_it else ["p2"]) is None
    assert [each["kind"] for each in bank.received["tool"]].count("mcp/request") == names_it
    votes = next(each for each in bank.received["ana"] if each["kind"] == "moot/votes")["payload"]
    assert ("not_carried_out" in votes) == (not names_it)
    # The votes stay, and whoever looks again carries it out.
    if not names_it:
        assert votes["not_carried_out"]["error"] == "approval_required"


def test_a_change_that_makes_it_the_same_asks_and_one_that_makes_it_another_does_not() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    for number, (invoice, code) in enumerate([("INV-7", "approval_required"), ("INV-9", None)]):
        original, counter = f"p{number}", f"c{number}"
        bank.propose(original, "INV-8")
        body, both = call(invoice), [counter, original]
        assert bank.says("ana", "mcp/proposal", body, to=["tool"], id=counter, about=[original]) is None
        assert bank.says("ana", "mcp/request", body, to=["tool"], about=both) == code
        if code:
            assert bank.says("ana", "mcp/request", body, to=["tool"], about=[*both, "r1"]) is None


def test_a_delegate_is_asked_as_well() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    grant: Json = {"to": "bob", "expires_in_seconds": 600}
    assert bank.says("ana", "moot/delegate", grant) is None
    bank.propose("p1")
    assert bank.says("bob", "mcp/request", call(), to=["tool"], about=["p1"]) == "approval_required"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("INV-7", " inv-7 "),
        ("INV-7", "INV\u2013\u200b7"),
        ("INV-7", "\u0406NV-7"),
        ("INV-7", "\uff29\uff2e\uff36-\uff17"),
        ("\u00d6l 10", "O\u0308L 1O"),
        (7, 7.0),
        (7, "7"),
        ("007", 7),
        (1e2, "100.00"),
        (12345678901234567890, "12345678901234567890.0"),
        (["a", "b"], ["A", "B "]),
        ({"x": 1, "y": "a"}, {"y": "A", "x": 1.0}),
    ],
)
def test_the_same_in_another_spelling_is_the_same(one: Json, other: Json) -> None:
    bank = Bank()
    assert bank.pay(one) is None
    assert bank.pay(other) == "approval_required"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("INV-7", "INV-77"),
        ("a/b", "a"),
        (7, 70),
        (0.1, 0.01),
        (True, "true"),
        (12345678901234567890, 12345678901234567891),
        (["a", "b"], ["b", "a"]),
        (["a", "b"], "a, b"),
        (-1, 1),
    ],
)
def test_another_value_is_another_effect(one: Json, other: Json) -> None:
    bank = Bank()
    assert bank.pay(one) is None
    assert bank.pay(other) is None


def test_values_do_not_flow_into_each_other() -> None:
    bank = Bank()
    assert bank.pay("a/b", "c") is None
    assert bank.pay("a", "b/c") is None


@pytest.mark.parametrize(
    ("invoice", "why"),
    [
        (None, "invoice is empty"),
        ("\u200b ", "invoice is empty"),
        ("x" * 1_001, "invoice is too long to be compared"),
        ([[[[[[[[[[[[[[[[[["deep"]]]]]]]]]]]]]]]]]], "invoice is nested too deeply to be compared"),
        ({CONTENT_KEY: {"sha256": "0" * 64}, "text": "INV-7"}, "invoice is not in the message"),
    ],
)
def test_what_cannot_be_compared_asks_every_time(invoice: Json, why: str) -> None:
    bank = Bank()
    if isinstance(invoice, dict):
        bank = Bank({"pay": {**PAY, "key": "{invoice.text}"}})
        why = "invoice.text is not in the message"
    assert bank.pay(invoice) == "approval_required"
    assert why in bank.told["message"]
    bank.propose("p1", invoice)
    assert bank.says("ana", "mcp/request", call(invoice), to=["tool"], about=["p1"]) is None


def test_an_argument_that_is_not_there_or_nested_elsewhere_asks() -> None:
    bank = Bank()
    given: list[Json] = [{}, {"payee": {"name": "ACME"}}, {"invoice": "INV-7", "payee": "ACME"}, None, []]
    for arguments in given:
        body: Json = {"method": "tools/call", "params": {"name": "pay", "arguments": arguments}}
        assert bank.says("agent", "mcp/request", body, to=["tool"]) == "approval_required"
    lines = Bank({"pay": {"tool": "pay", "key": "{lines.*.id}"}})
    body = call(lines=[{"id": 1}, {"id": 2}])
    assert lines.says("agent", "mcp/request", body, to=["tool"]) is None
    assert lines.says("agent", "mcp/request", call(lines=[{"id": "1"}, {"id": 2.0}]), to=["tool"]) is not None
    assert lines.says("agent", "mcp/request", call(lines=[]), to=["tool"]) == "approval_required"


def test_a_call_to_several_hosts_would_be_two_effects() -> None:
    bank = Bank()
    assert bank.says("agent", "mcp/request", call(), to=["tool", "tool2"]) == "approval_required"
    assert bank.says("agent", "mcp/request", call()) == "invalid_request"
    assert bank.says("agent", "mcp/request", call(), to=["tool"]) is None
    # Another host of the same effect, and another tool of it.
    assert bank.says("agent", "mcp/request", call(), to=["tool2"]) == "approval_required"
    assert bank.says("agent", "mcp/request", call(tool="pay_now"), to=["tool"]) == "approval_required"


def test_a_failure_frees_the_key_and_silence_does_not() -> None:
    bank = Bank()
    refused: Any = {"error": {"code": -32602, "message": "no"}}
    reported: Any = {"result": {"isError": True, "content": []}}
    for number, failure in enumerate([refused, reported]):
        assert bank.pay(id=f"f{number}") is None
        assert bank.answers(f"f{number}", **failure) is None
    assert bank.pay(id="r1") is None
    assert bank.answers("r1", error=UNKNOWN) is None
    assert bank.pay() == "approval_required"
    assert bank.told["earlier"]["outcome"] == "unknown"
    # Not after the time for an answer, and not after the days either: nobody knows.
    bank.wait(31 * DAY)
    assert bank.pay() == "approval_required"
    assert bank.says("ana", "moot/settle", {"outcome": "failed"}, about=["r1"]) is None
    assert bank.pay(id="r2") is None
    bank.wait(31 * DAY)
    assert bank.pay() == "approval_required"
    # A late answer counts.
    assert bank.answers("r2", error={"code": -32602, "message": "no"}) is None
    assert bank.pay() is None


def test_a_second_call_that_failed_leaves_the_first_as_it_was() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    assert bank.answers("r1") is None
    bank.propose("p1")
    assert bank.says("ana", "mcp/request", call(), to=["tool"], about=["p1", "r1"], id="r2") is None
    assert bank.answers("r2", error={"code": 1, "message": "no money"}) is None
    assert bank.pay() == "approval_required"
    assert bank.told["earlier"]["request_id"] == "r1"


@pytest.mark.parametrize(("outcome", "code"), [("failed", None), ("done", "approval_required")])
def test_settling_says_what_came_of_it(outcome: str, code: str | None) -> None:
    bank = Bank()
    bank.propose("p1")
    assert bank.says("ana", "mcp/request", call(), to=["tool"], about=["p1"], id="r1") is None
    assert bank.answers("r1", error=UNKNOWN) is None
    assert bank.says("bob", "moot/settle", {"outcome": outcome}, about=["p1"]) is None
    assert bank.pay() == code


def test_a_direct_call_is_settled_by_its_request_once_its_host_is_gone() -> None:
    bank = Bank(separation_of_duties=True)
    assert bank.pay(id="r1") is None
    settle: Json = {"outcome": "failed"}
    assert bank.says("ana", "moot/settle", settle, about=["r1"]) == "invalid_request"
    bank.leave("tool")
    assert bank.says("agent", "moot/settle", settle, about=["r1"]) == "capability_violation"
    assert bank.says("ana", "moot/settle", settle, about=["r9"]) == "invalid_request"
    assert bank.says("ana", "moot/settle", settle, about=["r1"]) is None
    assert bank.pay() is None


def test_it_is_forgotten_after_its_days_and_not_when_the_clock_is_set_back() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    assert bank.answers("r1") is None
    for seconds in (-20 * DAY, 49 * DAY):
        bank.now += seconds
        assert bank.pay() == "approval_required"
    bank.wait(2 * DAY)
    assert bank.pay() is None


def test_nothing_of_it_is_lost_by_leaving_kicking_restarting_and_reloading() -> None:
    bank = Bank()
    assert bank.pay(id="r1") is None
    bank.space.restart(bank.now, bank.mint)
    config = bank.space.state.config
    bank.space = Space(config, saved=bank.space.save())
    for effects in ({}, {"other": PAY}, {"pay": {**PAY, "days": 1}}):
        settings = {"participants": bank.people, "effects": effects}
        bank.space.reload(read_space("lab", settings), bank.now, bank.mint)
        bank.space = Space(bank.space.state.config, saved=bank.space.save())
    bank.enter("other", "ana", "tool")
    assert bank.says("ana", "space/kick", {"participant_id": "agent"}) is None
    assert bank.pay(who="other") == "approval_required"


def test_a_full_table_asks_for_what_is_new_and_forgets_no_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effect_keys, "MAX_KEYS", 3)
    bank = Bank()
    for number in range(3):
        assert bank.pay(number) is None
    assert bank.pay(9) == "approval_required"
    assert "3 effects are remembered and no more" in bank.told["message"]
    bank.propose("p1", 9)
    assert bank.says("ana", "mcp/request", call(9), to=["tool"], about=["p1"]) is None
    assert len(bank.space.state.effects) == 3
    bank.wait(31 * DAY)
    assert [bank.pay(number) for number in (1, 9)] == ["approval_required"] * 2


@pytest.mark.parametrize("dialect", ["mcpx", "m3p"])
def test_the_other_dialects_are_held_to_it(dialect: str) -> None:
    bank = Bank()
    bank.leave("other")
    bank.enter("other", dialect=dialect)
    assert bank.pay(id="r1") is None
    kind = "mcp/request:tools/call:pay" if dialect == "mcpx" else "mcp.request"
    assert bank.says("other", kind, call(), to=["tool"]) == "approval_required"


def test_the_input_that_an_approved_call_asked_for_is_the_same_call() -> None:
    bank = Bank()
    bank.propose("p1")
    assert bank.says("ana", "mcp/request", call(), to=["tool"], about=["p1"], id="r1") is None
    asks: Json = {
        "resultType": "input_required",
        "requestState": "s1",
        "inputRequests": {"pin": {"method": "elicitation/create", "params": {"message": "pin"}}},
    }
    assert bank.answers("r1", result=asks) is None
    body: Any = call()
    body["params"] |= {"requestState": "s1", "inputResponses": {"pin": {"action": "accept", "content": {}}}}
    assert bank.says("agent", "mcp/request", body, to=["tool"], about=["p1"], id="r2") is None
    assert bank.pay() == "approval_required"
    assert bank.answers("r2", error={"code": 1, "message": "no"}) is None
    assert bank.pay() is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tool": "pay"}, "says nothing"),
        ({"key": "invoice"}, "must name arguments in braces"),
        ({"key": "{invoice}/{pay ee}"}, "brace that belongs to no argument"),
        ({"key": "{a}", "days": 0}, "must be more than 0"),
        ({"key": "{a}", "undo": "maybe"}, "undo"),
        ({"undo": "compensable"}, "compensate names the call"),
        ({"undo": "final", "compensate": {"tool": "refund"}}, "compensate names the call"),
        ({"undo": "final", "days": 3}, "about a key"),
        ({"key": "{a}", "reconcile": {"tool": "get"}}, "done must say"),
        (
            {"key": "{a}", "reconcile": {"tool": "get", "done": {"a": 1}, "not_done": {"a": 1}}},
            "done must say",
        ),
        ({"key": "{a}", "kee": 1}, "kee"),
    ],
)
def test_mistakes_in_the_settings_are_told(settings: Json, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_space("lab", {"participants": {}, "effects": {"pay": settings}})


def test_the_settings_are_kept_in_journals() -> None:
    undo = {"tool": "refund", "arguments": {"id": "{result.id}"}}
    find = {"tool": "get", "arguments": {"i": "{invoice}"}, "done": {"status": "paid"}}
    effects = {
        "pay": {**PAY, "compensate": undo, "reconcile": find},
        "drop": {"tool": "drop", "undo": "final"},
    }
    passkeys = {"required": [{"undo": "final"}]}
    config = read_space("lab", {"participants": {}, "effects": effects, "passkeys": passkeys})
    assert load_config(save_config(config)) == config


def test_a_passkey_is_asked_for_by_class() -> None:
    effects = {"drop": {"tool": "drop_*", "undo": "final"}, "note": {"tool": "note", "undo": "reversible"}}
    bank = Bank(effects, passkeys={"required": [{"undo": "final"}]})
    body: Json = {"method": "tools/call", "params": {"name": "drop_table", "arguments": {}}}
    assert bank.says("agent", "mcp/request", body, to=["tool"]) == "approval_required"
    assert bank.says("agent", "mcp/proposal", body, to=["tool"], id="p1") is None
    votes = next(each for each in bank.received["ana"] if each["kind"] == "moot/votes")["payload"]
    assert votes["passkey"] is True
    assert votes["effects"][0]["text"] == "drop: final, it cannot be undone"
    assert bank.says("ana", "moot/approve", {}, about=["p1"]) == "passkey_required"
    for name in ("note", "anything"):
        other: Json = {"method": "tools/call", "params": {"name": name, "arguments": {}}}
        assert bank.says("agent", "mcp/request", other, to=["tool"]) is None
