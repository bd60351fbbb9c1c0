"""Which right contains which (D-16), and which have something in common (D-18)."""

from __future__ import annotations

from typing import Any

from moot.protocol.operation import Operation
from moot.protocol.patterns import Capability, covered_by, covers, overlaps, read_capability
from tests.rows import for_each_row

Json = Any


def right(value: Json) -> Capability:
    return read_capability(value, place="mcpx")


def call(name: Json, method: Json = "tools/call") -> Json:
    return {"kind": "mcp/request", "payload": {"method": method, "params": {"name": name}}}


def field(pattern: Json) -> Json:
    return {"kind": "chat", "payload": {"field": pattern}}


COVERED: list[tuple[Json, Json]] = [
    ({"kind": "*"}, {"kind": "mcp/request"}),
    ({"kind": "*"}, "mcp/*"),
    ({"kind": "mcp/*"}, {"kind": "mcp/re*", "payload": {"method": "x"}}),
    ({"kind": ["chat", "mcp/*"]}, {"kind": ["mcp/request", "chat"]}),
    ({"kind": "mcp/request"}, call("a")),
    ({"kind": "mcp/request", "payload": {"method": "tools/*"}}, call("a")),
    (call("read_*"), call("read_file")),
    (call("read_*"), call(["read_a", "read_b*"])),
    (call(["a", "b"]), call("b")),
    (field("!x"), field("!x*")),
    (field("!x*"), field("y*")),
    (field("!x"), field("y")),
    (field("/a/"), field("/a/")),
    (field("/a/"), field("bab")),
    (field("*"), field("/a/")),
    (field("*"), field("!a")),
    (field(1), field(1.0)),
    (field([1, "a*"]), field(["ab", 1])),
    (field({}), field({"a": 1})),
    (field({"**": "a*"}), field({"**": "ab", "x": 1})),
    (field({"$.x": "a*"}), field({"$.x": "ab"})),
    (field({"k*": ["a", "b"]}), field({"k*": "a"})),
    (field({"**": {"**": "a"}}), field({"**": {"**": "a"}, "b": 1})),
    (field({"a": 1}), field({"$exact": {"a": 1, "b": [2]}})),
    (field({"$exact": {"a": 1}}), field({"$exact": {"a": 1}})),
    (field({"$exact": "x"}), field("x")),
    (field({"$exact": None}), field(None)),
    (field(["x", {"$exact": [1]}]), field({"$exact": [1]})),
    (field("a*"), field({"$exact": "a*"})),
    ({"kind": "chat"}, {"kind": "chat", "to": ["bob"]}),
    ({"kind": "chat", "to": ["b*"]}, {"kind": "chat", "to": ["bob", "ben"]}),
    (
        {"kind": "mcp/response", "x-moot-request": {"method": "tools/*"}},
        {"kind": "mcp/response", "x-moot-request": {"method": "tools/call", "context": "a"}},
    ),
    ("mcp/*", "mcp/request:tools/call"),
    ("mcp/request:tools/*", "mcp/request:tools/call:x"),
    ("mcp/request:tools/call", "mcp/request:tools/call:read_*"),
    ("mcp/request:tools/call:*", "mcp/request:tools/call"),
    ("mcp/request:tools/list:x", "mcp/request:tools/list:x"),
    ("mcp.*", "mcp/request:*"),
    ("mcp/request:tools/call:read_*", call("read_file")),
    (call("read_*"), "mcp/request:tools/call:read_file"),
    (call("read_*"), "mcp.request.tools/call:read_file"),
    ({"kind": "mcp/request"}, "mcp/request:tools/list:x"),
    ({"kind": "mcp/request", "payload": {"method": "tools/*"}}, "mcp/request:tools/*:x"),
    ("mcp/response:tools/*", {"kind": "mcp/response", "x-moot-request": {"method": "tools/call"}}),
    ({"kind": ["chat", "chat/*"]}, "chat.*"),
    (
        {"kind": "mcp/request", "payload": {"method": "completion/complete", "params": {"ref": {}}}},
        "mcp/request:completion/complete:r",
    ),
]

NOT_COVERED: list[tuple[Json, Json]] = [
    (field({"$exact": {"a": 1}}), field({"a": 1})),
    (field({"$exact": {}}), field({})),
    (field({"$exact": 1}), field(1)),
    (field({"$exact": 1}), field({"$exact": 1.0})),
    (field({"$exact": True}), field({"$exact": 1})),
    (field({"$exact": "x"}), field(["x", "y"])),
    (field({"**": 1}), field({"$exact": {"a": 1}})),
    ({"kind": "mcp/request"}, {"kind": "mcp/*"}),
    (
        {"kind": ["mcp/request", "mcp/response", "mcp/proposal", "mcp/withdraw", "mcp/reject"]},
        {"kind": "mcp/*"},
    ),
    ("mcp/*", {"kind": "mcp/*"}),
    ("mcp/*", {"kind": "mcp/withdraw"}),
    ({"kind": "mcp/*"}, {"kind": "*"}),
    (call("a"), {"kind": "mcp/request"}),
    (call("read_file"), call("read_*")),
    (call("read_*"), call(["read_a", "write_a"])),
    (field("!x*"), field("!x")),
    (field("!x*"), field("*y")),
    (field("!x"), field("/y/")),
    (field("/a/"), field("/ab/")),
    (field("/a/"), field("a*")),
    (field(1), field(True)),
    (field("*"), field(1)),
    (field({"a": "*"}), field({"$.a": "x"})),
    (field({"**": "a"}), field({"a": "a"})),
    (field({"**": {"**": "a*"}}), field({"**": {"**": "a"}})),
    (field({"a": {}}), field({"a": "x"})),
    ({"kind": "chat", "to": ["bob"]}, {"kind": "chat"}),
    ({"kind": "chat", "to": ["bob"]}, {"kind": "chat", "to": ["b*"]}),
    ({"kind": "mcp/response", "x-moot-request": {"method": "tools/*"}}, {"kind": "mcp/response"}),
    (
        {"kind": "mcp/response", "x-moot-request": {"context": "a"}},
        {"kind": "mcp/response", "x-moot-request": {"method": "tools/call"}},
    ),
    ("mcp/request:tools/call:read_*", "mcp/request:tools/call"),
    ("mcp/request:tools/call:**", "mcp/request:tools/call"),
    ("mcp/request:tools/call", "mcp/request:tools/callx"),
    ("mcp/request:tools/list:x", "mcp/request:tools/list"),
    (call("read_*"), "mcp/request:tools/call"),
    (
        {
            "kind": "mcp/request",
            "payload": {"method": ["tools/call", "prompts/get", "resources/*", "completion/complete"]},
        },
        # On a legacy sender this admits tools/list:x as well.
        "mcp/request:*:x",
    ),
    (call("x"), "mcp/request:tools/*:x"),
    ({"kind": "chat"}, "chat.*"),
]


@for_each_row(("held", "wanted"), COVERED)
def test_a_right_covers_what_it_certainly_contains(held: Json, wanted: Json) -> None:
    """D-16."""
    assert covers(right(held), right(wanted))
    assert overlaps(right(held), right(wanted))


@for_each_row(("held", "wanted"), NOT_COVERED)
def test_a_right_does_not_cover_what_it_may_not_contain(held: Json, wanted: Json) -> None:
    """D-16: unprovable is refused."""
    assert not covers(right(held), right(wanted))


def test_a_right_is_covered_by_one_held_right_and_not_by_several_together() -> None:
    """D-16."""
    several = [right({"kind": kind}) for kind in ("mcp/request", "mcp/response", "chat")]
    assert covered_by(right({"kind": "mcp/request"}), several)
    assert not covered_by(right({"kind": ["mcp/request", "chat"]}), several)
    assert not covered_by(right({"kind": "mcp/request"}), [])


def test_each_object_that_a_string_stands_for_may_be_covered_by_another_right() -> None:
    kinds = [right({"kind": kind}) for kind in ("mcp/request", "mcp/response", "mcp/proposal")]
    assert covered_by(right("mcp/*"), kinds)
    assert not covered_by(right("mcp/*"), kinds[:2])
    assert covered_by(right("mcp/*"), [right("mcp/request:*"), *kinds[1:]])
    assert covered_by(right("chat.*"), [right("chat"), right({"kind": "chat/*"})])
    references = [
        right(
            {
                "kind": "mcp/request",
                "payload": {"method": "completion/complete", "params": {"ref": {key: "r"}}},
            }
        )
        for key in ("name", "uri")
    ]
    assert covered_by(right("mcp/request:completion/complete:r"), references)
    assert not covered_by(right("mcp/request:completion/complete:r"), references[:1])


def test_a_short_kind_under_a_covering_string_does_nothing_that_its_full_name_may_not() -> None:
    """The corner that the docstring of `covers` names: refused by the form, not by what is done."""
    held, wanted = right("mcp/request:tools/call:read_*"), right(call("read_file"))
    payload = {"method": "tools/call", "params": {"name": "read_file"}}
    assert covers(held, wanted)
    short = Operation("tools/call", None)
    assert wanted.matches("mcp/request", payload, claim=short)
    assert not held.matches("mcp/request", payload, claim=short)
    assert held.matches("mcp/request", payload, claim=Operation("tools/call", "read_file"))


DISJOINT: list[tuple[Json, Json]] = [
    (field({"$exact": {"a": 1}}), field({"b": "*"})),
    (field({"$exact": {"a": 1}}), field({"$exact": {"a": 2}})),
    ({"kind": "chat"}, {"kind": "mcp/*"}),
    (call("a"), call("b")),
    (call("read_*"), call("write_*")),
    (call("a"), call("a", "prompts/get")),
    (field(1), field("1")),
    (field(1), field(True)),
    (field({}), field("a")),
    (field("!a*"), field("ab")),
    (field("!a*"), field("ab*")),
    (field("/b/"), field("aaa")),
    (field(["a", 1]), field(["b", 2])),
    ({"kind": "chat", "to": ["a"]}, {"kind": "chat", "to": ["b"]}),
    (
        {"kind": "mcp/response", "x-moot-request": {"method": "a"}},
        {"kind": "mcp/response", "x-moot-request": {"method": "b"}},
    ),
    ("mcp/request:tools/call:a", "mcp/request:tools/call:b"),
    ("mcp/request:tools/call:a", call("b")),
    ("chat", "mcp/*"),
]

MEETING: list[tuple[Json, Json]] = [
    (field({"$exact": {"a": 1}}), field({"a": 1})),
    (field({"$exact": {"a": [1]}}), field({"**": 1})),
    (field({"$exact": 1}), field(1.0)),
    (call("a*"), call("*b")),
    (field("/a/"), field("b*")),
    (field("!a"), field("!b")),
    (field("!a"), field("*")),
    (field({"a": 1}), field({"b": 1})),
    (field({"**": 1}), field({"**": 2})),
    ({"kind": "chat", "to": ["a"]}, {"kind": "chat"}),
    ("mcp/request:tools/*:x", "mcp/request:*:x"),
    ("mcp/request:tools/list:x", {"kind": "mcp/request", "payload": {"method": "tools/list"}}),
    # One completion can name both references, and only its first is claimed.
    ("mcp/request:completion/complete:a", "mcp/request:completion/complete:b"),
]


@for_each_row(("a", "b"), DISJOINT)
def test_rights_without_a_common_message_do_not_overlap(a: Json, b: Json) -> None:
    """D-18."""
    assert not overlaps(right(a), right(b))
    assert not overlaps(right(b), right(a))
    assert not covers(right(a), right(b))


@for_each_row(("a", "b"), MEETING)
def test_rights_that_may_meet_overlap(a: Json, b: Json) -> None:
    """D-18."""
    assert overlaps(right(a), right(b))
    assert overlaps(right(b), right(a))
