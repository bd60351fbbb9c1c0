"""A member's rights: the same answers as its capabilities give one by one, only faster."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from moot.protocol.operation import Operation
from moot.protocol.patterns import Rights, read_capabilities
from moot.protocol.patterns.jsonpath import MAX_VISITS
from moot.protocol.patterns.rights import MAX_KEPT_CHARS, MAX_PLANS
from tests.counted_work import lines_run

Json = Any


def rights(*capabilities: Json, memo: int = 4096) -> Rights:
    return Rights(read_capabilities(list(capabilities), place="mcpx"), memo=memo)


def call(name: Json, method: Json = "tools/call") -> Json:
    return {"method": method, "params": {"name": name}}


def may_call(name: Json) -> Json:
    return {"kind": "mcp/request", "payload": call(name)}


def asked_twice(held: Rights, *message: Json, **more: Json) -> bool:
    """The answer, which must be the same from the memo and from every capability."""
    first = held.allow(*message, **more)
    assert held.allow(*message, **more) is first
    assert any(right.matches(*message, **more) for right in held.capabilities) is first
    return first


def test_nobody_without_rights_may_do_anything() -> None:
    assert not asked_twice(rights(), "chat", {})
    assert rights().capabilities == ()


def test_one_unlimited_right_answers_for_its_kind() -> None:
    held = rights(may_call("a"), {"kind": "mcp/*"})
    assert asked_twice(held, "mcp/request", call("z"))
    assert not asked_twice(held, "chat", {})


def test_a_hundred_rights_for_a_hundred_tools_are_told_apart() -> None:
    held = rights(*(may_call(f"tool_{number}") for number in range(100)), may_call("read_*"))
    assert asked_twice(held, "mcp/request", call("tool_42"))
    assert asked_twice(held, "mcp/request", call("read_x"))
    assert not asked_twice(held, "mcp/request", call("tool_100"))
    assert not asked_twice(held, "mcp/request", call("tool_42", "prompts/get"))
    for payload in (
        {},
        {"params": {"name": "tool_1"}},
        call(1),
        call(None),
        {"method": "tools/call", "params": []},
    ):
        assert not asked_twice(held, "mcp/request", payload)


def test_values_that_python_takes_for_equal_are_kept_apart() -> None:
    """`1 == True == 1.0`, and as keys of a dictionary they are one."""
    for first, second in ((1, True), (True, 1), (0, False), (False, 0.0), (None, False)):
        held = rights({"kind": "x", "payload": {"a": {"b": first}, "c": first}})
        assert asked_twice(held, "x", {"a": {"b": first}, "c": first})
        assert not asked_twice(held, "x", {"a": {"b": second}, "c": second})
        assert asked_twice(held, "x", {"a": {"b": first}, "c": first})
    held = rights({"kind": "x", "payload": {"a": 1}})
    assert asked_twice(held, "x", {"a": 1.0})
    assert not asked_twice(held, "x", {"a": True})
    assert not asked_twice(held, "x", {"a": "1"})


def test_absent_null_empty_object_and_list_are_kept_apart() -> None:
    held = rights({"kind": "x", "payload": {"a": None}}, {"kind": "x", "payload": {"a": {}}})
    assert not asked_twice(held, "x", {})
    assert asked_twice(held, "x", {"a": None})
    assert asked_twice(held, "x", {"a": {"b": 1}})
    assert not asked_twice(held, "x", {"a": [1]})
    assert not asked_twice(held, "x", {"a": "x"})


def test_rights_that_search_are_asked_every_time() -> None:
    held = rights({"kind": "x", "payload": {"a": "1", "**": "deep"}}, {"kind": "x", "payload": {"a": "2"}})
    assert asked_twice(held, "x", {"a": "1", "b": {"c": "deep"}})
    assert not asked_twice(held, "x", {"a": "1", "b": {"c": "else"}})
    assert asked_twice(held, "x", {"a": "2"})


def test_addressees_and_the_request_answered_are_part_of_the_memo() -> None:
    held = rights(
        {"kind": "chat", "to": ["b*"]},
        {"kind": "mcp/response", "x-moot-request": {"method": "tools/*"}},
        {"kind": "mcp/response", "payload": {"a": "x"}},
    )
    assert asked_twice(held, "chat", {}, ["bob"])
    assert not asked_twice(held, "chat", {}, ["bob", "eve"])
    assert not asked_twice(held, "chat", {})
    assert asked_twice(held, "mcp/response", {}, asked=Operation("tools/call", "a"))
    assert not asked_twice(held, "mcp/response", {}, asked=Operation("prompts/get", "a"))
    assert not asked_twice(held, "mcp/response", {})
    assert asked_twice(held, "mcp/response", {"a": "x"})


def test_fields_at_any_level_are_looked_at() -> None:
    deep = {"kind": "x", "payload": {"a": {"b": {"c": "1"}}, "d": ["2", {"e": "3"}]}}
    held = rights(deep)
    assert asked_twice(held, "x", {"a": {"b": {"c": "1"}}, "d": "2"})
    assert asked_twice(held, "x", {"a": {"b": {"c": "1"}}, "d": {"e": "3"}})
    assert not asked_twice(held, "x", {"a": {"b": {"c": "2"}}, "d": "2"})
    assert not asked_twice(held, "x", {"a": {"b": "c"}, "d": "2"})
    assert not asked_twice(held, "x", {"a": {"b": {"c": "1"}}, "d": {"e": "4"}})


def test_a_legacy_sender_is_matched_on_its_claim_under_strings_and_on_facts_under_objects() -> None:
    held = rights(
        "mcp/request:tools/call:read_*", {"kind": "mcp/request", "payload": {"method": "ping"}}, "chat"
    )
    claim = Operation("tools/call", "read_a")
    assert asked_twice(held, "mcp/request", call("other"), claim=claim, agreed=False)
    assert not asked_twice(held, "mcp/request", call("read_a"), claim=Operation("tools/call", None))
    assert asked_twice(held, "mcp/request", {"method": "ping"}, claim=Operation("ping", None))
    assert not asked_twice(
        held, "mcp/request", {"method": "ping"}, claim=Operation("ping", None), agreed=False
    )
    assert asked_twice(held, "mcp/request", call("read_a"))
    assert not asked_twice(held, "mcp/request", call("other"))
    assert asked_twice(held, "chat", {}, claim=Operation(None, None))


def test_objects_alone_answer_a_legacy_sender_too() -> None:
    held = rights({"kind": "mcp/request", "payload": {"method": "ping"}})
    assert asked_twice(held, "mcp/request", {"method": "ping"}, claim=Operation("ping", None))
    assert not asked_twice(
        held, "mcp/request", {"method": "ping"}, claim=Operation("ping", None), agreed=False
    )


def test_a_payload_may_be_any_mapping() -> None:
    held = rights(may_call("a"), {"kind": "x", "payload": {"**": "a"}})
    assert asked_twice(held, "mcp/request", MappingProxyType(call("a")))
    assert asked_twice(held, "x", MappingProxyType({"b": ["a"]}))


def kept_answers(held: Rights) -> int:
    def leaves(value: Json) -> int:
        return sum(map(leaves, value.values())) if isinstance(value, dict) else 1

    return sum(leaves(plan.known) for plan in held._facts.plans.values() if not isinstance(plan, bool))


def test_the_memo_stays_within_its_bound_whatever_is_sent() -> None:
    held = rights(may_call("a"), {"kind": "x/*", "payload": {"a": "a"}}, "mcp/proposal:a:b", memo=50)
    for number in range(1000):
        assert not held.allow("mcp/request", call(f"name {number}"))
        assert not held.allow(f"x/{number % 30}", {"a": str(number)})
        held.allow("mcp/proposal", {}, claim=Operation(str(number), None))
        assert kept_answers(held) <= 50
        assert len(held._claimed) <= 50
    assert held.allow("mcp/request", call("a"))


def test_made_up_kinds_do_not_pile_up() -> None:
    held = rights({"kind": "x/*", "payload": {"a": "a"}})
    for number in range(3 * MAX_PLANS):
        assert held.allow(f"x/{number}", {"a": "a"})
        assert not held.allow(f"y/{number}", {"a": "a"})
    assert held.allow("x/" + "y" * MAX_KEPT_CHARS, {"a": "a"})
    assert len(held._facts.plans) <= MAX_PLANS


@pytest.mark.parametrize("value", ["v" * (MAX_KEPT_CHARS + 1), 1 << 80])
def test_large_values_are_answered_but_not_kept(value: Json) -> None:
    held = rights({"kind": "x", "payload": {"a": ["v*", 1 << 80]}})
    assert asked_twice(held, "x", {"a": value})
    assert kept_answers(held) == 0


def test_many_addressees_are_answered_but_not_kept() -> None:
    held = rights({"kind": "x", "to": ["m*"]})
    assert asked_twice(held, "x", {}, [f"m{number}" for number in range(100)])
    assert kept_answers(held) == 0


def test_a_hundred_rights_cost_about_as_much_as_one() -> None:
    one, hundred = rights(may_call("tool_0")), rights(*(may_call(f"tool_{n}") for n in range(100)))
    payload = call("tool_0")

    def cost(held: Rights) -> int:
        assert held.allow("mcp/request", payload)
        return lines_run(lambda: held.allow("mcp/request", payload))

    assert 0 < cost(hundred) < 1.3 * cost(one)


def test_all_searches_in_one_message_share_a_budget() -> None:
    """Each capability may search 10,000 values; dozens of them must not make one check take half a second."""
    searching = [{"kind": "mcp/request", "payload": {"**": f"/never {number}/"}} for number in range(60)]
    here: Json = {"kind": "mcp/request", "payload": {"**": "/here/"}}
    large = {"where": "here", "rest": [f"x{number}" for number in range(MAX_VISITS)]}
    few, many = (
        Rights(read_capabilities([*searching[:4], here])),
        Rights(read_capabilities([*searching, here])),
    )
    assert few.allow("mcp/request", large)
    assert not many.allow("mcp/request", large)
    # Not the number of capabilities counts but what they look at, and what needs no search costs nothing.
    assert many.allow("mcp/request", {"where": "here"})
    named: Json = {"kind": "mcp/request", "payload": {"where": "here"}}
    assert Rights(read_capabilities([*searching, named])).allow("mcp/request", large)
