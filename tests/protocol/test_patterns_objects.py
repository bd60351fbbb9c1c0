"""Capability objects: what they match (MEW 4.1, D-12, D-13) and what is refused at load."""

from __future__ import annotations

import time
from typing import Any

import pytest

from moot.errors import InvalidPattern
from moot.protocol.operation import Operation
from moot.protocol.patterns import (
    Notation,
    Rights,
    covers,
    overlaps,
    read_capabilities,
    read_capability,
)
from moot.protocol.patterns.capability import MAX_BYTES
from moot.protocol.patterns.compiler import MAX_DEPTH, MAX_NODES, MAX_STRING_BYTES
from moot.protocol.patterns.jsonpath import MAX_VISITS
from tests.rows import for_each_row

Json = Any

CALL = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "a/b", "n": 1}}}


def matches(pattern: Json, payload: Json) -> bool:
    """Whether a payload pattern matches a payload."""
    return read_capability({"kind": "*", "payload": pattern}).matches("chat", payload)


def field(pattern: Json, value: Json) -> bool:
    """Whether a pattern matches one value."""
    return matches({"field": pattern}, {"field": value})


def kind(pattern: Json, value: str) -> bool:
    return read_capability({"kind": pattern}).matches(value, {})


@pytest.mark.requirement("MEW-4.1-5")
def test_a_capability_that_many_have_is_compiled_once_whatever_becomes_of_what_it_was_read_from() -> None:
    """A space of 10,000 participants read the same few rights for half of its start."""
    given: Json = {"kind": "mcp/*", "payload": {"method": "tools/call"}}
    read = read_capability(given)
    assert read_capability({"kind": "mcp/*", "payload": {"method": "tools/call"}}) is read
    assert read_capability("chat") is read_capability("chat")
    given["payload"]["method"] = "tools/*"
    assert read.view("mew") == [{"kind": "mcp/*", "payload": {"method": "tools/call"}}]
    assert read_capability(given) is not read


def test_mcp_star_matches_every_mcp_kind() -> None:
    for name in ("mcp/request", "mcp/response", "mcp/proposal", "mcp/withdraw", "mcp/reject"):
        assert kind("mcp/*", name)
    assert not kind("mcp/*", "chat")


@pytest.mark.requirement("MEW-4.1-6", "MEW-4.2-9")
def test_chat_is_matched_by_chat_and_star_only() -> None:
    assert kind("chat", "chat")
    assert kind("*", "chat")
    assert not kind("chat", "chat/acknowledge")
    assert not kind("mcp/*", "chat")
    assert not kind("chat/*", "chat")


@pytest.mark.requirement("MEW-4.1-7", "MEW-4.1-14")
def test_a_tool_specific_right_admits_only_tools_of_that_name() -> None:
    right = read_capability(
        {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_*"}}}
    )
    assert right.matches("mcp/request", CALL)
    assert not right.matches("mcp/request", {"method": "tools/call", "params": {"name": "write_file"}})
    assert not right.matches("mcp/request", {"method": "tools/call"})
    assert not right.matches("mcp/proposal", CALL)


@pytest.mark.requirement("MEW-4.2-8")
def test_a_tool_call_matches_the_three_patterns_of_the_text() -> None:
    for pattern in ({"kind": "mcp/*"}, {"kind": "mcp/request"}):
        assert read_capability(pattern).matches("mcp/request", CALL)
    assert read_capability({"kind": "mcp/request", "payload": {"method": "tools/*"}}).matches(
        "mcp/request", CALL
    )


@pytest.mark.requirement("MEW-4.2-2")
def test_regular_expressions_search_and_do_not_anchor() -> None:
    assert field("/ead_(file|dir)/", "read_file")
    assert not field("/^ead/", "read_file")
    assert field("/a.b/", "a\nb")
    assert field("/a.b/", "a\0b")
    assert kind("/^mcp\\//", "mcp/request")
    assert not kind("/^mcp\\//", "chat")
    assert not field("/a/", "\ud800")
    # Two slashes are a string like any other.
    assert field("//", "//")
    assert not field("//", "x")


def test_a_regular_expression_that_would_backtrack_is_linear() -> None:
    begun = time.process_time()
    assert not field("/^(a+)+$/", "a" * 5000 + "!")
    assert time.process_time() - begun < 2


def test_a_negation_needs_a_string_that_does_not_match() -> None:
    """D-12: an absent field never matches, not even `!x`."""
    assert field("!tools/call", "tools/list")
    assert not field("!tools/call", "tools/call")
    assert not field("!tools/*", "tools/list")
    assert not field("!x", 1)
    assert not field("!x", None)
    assert not matches({"field": "!x"}, {})
    assert kind("!system/*", "chat")
    assert not kind("!system/*", "system/error")


@for_each_row("pattern", ["!", "!!", "!!chat", "! ", "! chat", "!chat ", "!\t", "!/chat/", "!*", "!**", ""])
def test_a_pattern_that_says_nothing_matches_nothing(pattern: str) -> None:
    """Read as it stands, `!` would be a right to everything."""
    for text in ("chat", "mcp/request", "!", "!chat", " ", "system/error"):
        assert not kind(pattern, text)
        assert not field(pattern, text)
        assert not matches({"$.field": pattern}, {"field": text})
        assert not kind([pattern, pattern], text)


def test_a_pattern_that_says_nothing_covers_nothing_and_overlaps_nothing() -> None:
    everything = read_capability({"kind": "*"})
    for pattern in ("!", "!!", "! chat", "!/chat/"):
        nothing = read_capability({"kind": pattern})
        for wanted in ("chat", "mcp/*", "*", "!chat", "/mcp/"):
            assert not covers(nothing, read_capability({"kind": wanted}))
            assert not overlaps(nothing, read_capability({"kind": wanted}))
        assert not overlaps(nothing, everything)
        assert not Rights([nothing]).allow("chat", {})
        assert not Rights([nothing]).allow_all("chat")


@for_each_row(
    "value",
    [
        *(None, "", {}, [], 0, True),
        *({"kind": None}, {"kind": []}, {"kind": {}}, {"kind": [[]]}, {"kind": [None]}),
        *({"kind": "chat", "payload": None}, {"kind": "chat", "payload": []}),
        *({"kind": "chat", "to": []}, {"kind": "chat", "to": ["!"]}, {"kind": "chat", "payload": {"x": []}}),
    ],
)
def test_a_capability_without_content_is_refused(value: Json) -> None:
    with pytest.raises(InvalidPattern):
        read_capability(value)


@for_each_row("value", [" ", "!", "!chat", "/chat/"])
@for_each_row("place", ["mcpx", "m3p"])
def test_a_string_notation_takes_no_negation(value: str, place: Notation) -> None:
    if value.strip():
        with pytest.raises(InvalidPattern):
            read_capability(value, place=place)
    else:
        assert not read_capability(value, place=place).matches("chat", {})


def test_a_list_is_any_of_however_nested() -> None:
    assert field(["a", ["b", 3]], "b")
    assert field(["a", ["b", 3]], 3)
    assert not field(["a", "b"], "c")
    assert kind(["chat", "mcp/*"], "mcp/request")
    assert not kind(["chat", "mcp/*"], "stream/request")


def test_plain_values_match_by_equality_with_types_kept_apart() -> None:
    assert field(1, 1)
    assert field(1, 1.0)
    assert field(1.0, 1)
    assert not field(1, True)
    assert not field(True, 1)
    assert not field(0, False)
    assert field(True, True)
    assert field(None, None)
    assert not field(None, 0)
    assert not field(None, False)
    assert not field(0, None)
    assert not matches({"field": None}, {})


def test_a_string_pattern_matches_strings_only() -> None:
    for value in (1, True, None, ["a"], {"a": "a"}):
        assert not field("*", value)


def test_a_list_in_the_payload_is_reached_by_path_or_depth_only() -> None:
    payload = {"tags": ["red", "blue"]}
    assert not matches({"tags": "red"}, payload)
    assert not matches({"tags": ["red", "blue"]}, payload)
    assert matches({"$.tags[*]": "blue"}, payload)
    assert matches({"**": "blue"}, payload)


def test_all_keys_of_an_object_must_match() -> None:
    assert matches({"a": "x", "b": {"c": 1}}, {"a": "x", "b": {"c": 1, "d": 2}})
    assert not matches({"a": "x", "b": {"c": 1}}, {"a": "x", "b": {"c": 2}})
    assert matches({"b": {}}, {"b": {"any": 1}})
    assert not matches({"b": {}}, {"b": "no object"})
    assert matches({}, {})


def test_two_stars_as_key_look_at_any_depth() -> None:
    payload = {"a": {"b": [{"secret": "x"}]}}
    assert matches({"**": {"secret": "x"}}, payload)
    assert matches({"**": "x"}, payload)
    assert matches({"**": {"a": {}}}, payload), "the object itself counts"
    assert not matches({"**": "y"}, payload)


def test_a_key_with_wildcards_is_a_glob_over_keys() -> None:
    assert matches({"arg_*": "x"}, {"arg_one": "y", "arg_two": "x"})
    assert not matches({"arg_*": "x"}, {"other": "x"})
    assert matches({"?": 1}, {"a": 1})
    assert not matches({"?": 1}, {"ab": 1})


PATHS: list[tuple[str, Json, bool]] = [
    ("$.a.b", "x", True),
    ("$['a']['b']", "x", True),
    ('$["a"].b', "x", True),
    ("$.a.c", "x", False),
    ("$.list[0]", "p", True),
    ("$.list[-1]", "r", True),
    ("$.list[3]", "r", False),
    ("$.list[-4]", "p", False),
    ("$.list[*]", "q", True),
    ("$.list[1:]", "p", False),
    ("$.list[:2]", "q", True),
    ("$.list[-1:]", "r", True),
    ("$..b", "x", True),
    ("$..*", "q", True),
    ("$.*", "x", False),
    ("$.*.b", "x", True),
    ("$..list[1]", "q", True),
    ("$['it\\'s']", 1, True),
    ("$", {"a": {}}, True),
    ("$.a", {"b": "x"}, True),
    ("$.list", "p", False),
]


@pytest.mark.requirement("MEW-4.2-2")
@for_each_row(("path", "pattern", "hit"), PATHS)
def test_a_json_path_matches_on_any_hit(path: str, pattern: Json, hit: bool) -> None:
    payload = {"a": {"b": "x"}, "list": ["p", "q", "r"], "it's": 1}
    assert matches({path: pattern}, payload) is hit


def test_a_search_stops_when_its_visits_are_used_up() -> None:
    early = {"a": "here", "rest": list(range(2 * MAX_VISITS))}
    late = {"rest": list(range(2 * MAX_VISITS)), "z": {"y": "here"}}
    for key in ("**", "$..*"):
        assert matches({key: "here"}, early)
        assert not matches({key: "here"}, late)
    wide = {f"k{number}": number for number in range(2 * MAX_VISITS)}
    assert matches({"k*": 5}, wide)
    assert not matches({"k*": MAX_VISITS + 5}, wide)


def test_searches_within_searches_do_not_multiply() -> None:
    value: Json = "leaf"
    for _ in range(60):
        value = {"a": value}
    pattern: Json = {"**": "never"}
    for _ in range(10):
        pattern = {"**": pattern}
    begun = time.process_time()
    assert not matches(pattern, value)
    assert not matches({"$" + "..a" * 10: "never"}, value)
    assert time.process_time() - begun < 2


def test_searches_side_by_side_do_not_starve_each_other() -> None:
    payload = {"big": list(range(2 * MAX_VISITS)), "small": {"b": "x"}}
    assert matches({"big": [{"**": "never"}, {}, 0], "small": {"**": "x"}}, {**payload, "big": {}})
    assert matches({"$.small..b": "x", "small": {"$..b": "x"}}, payload)


def test_addressees_must_all_match_and_a_broadcast_is_not_covered() -> None:
    """D-13."""
    right = read_capability({"kind": "chat", "to": ["tools-*", "bob"]})
    assert right.matches("chat", {}, ["bob"])
    assert right.matches("chat", {}, ["tools-a", "bob"])
    assert not right.matches("chat", {}, ["bob", "eve"])
    assert not right.matches("chat", {})
    assert read_capability({"kind": "chat", "to": "bob"}).matches("chat", {}, ["bob"])


def test_a_request_limit_looks_at_what_was_asked_and_refuses_what_is_unknown() -> None:
    """D-52."""
    right = read_capability(
        {"kind": "mcp/*", "x-moot-request": {"method": "tools/*", "context": ["a", "b*"]}}
    )
    assert right.matches("mcp/response", {}, asked=Operation("tools/call", "bob"))
    assert not right.matches("mcp/response", {}, asked=Operation("tools/call", "c"))
    assert not right.matches("mcp/response", {}, asked=Operation("tools/list", None))
    assert not right.matches("mcp/response", {})
    assert not right.matches("mcp/request", {}, asked=Operation("tools/call", "a")), "only responses answer"
    # A legacy sender says itself what it answers.
    assert right.matches("mcp/response", {}, claim=Operation("tools/call", "a"))
    assert not right.matches(
        "mcp/response", {}, asked=Operation("tools/call", "a"), claim=Operation(None, None)
    )


def test_an_object_on_a_legacy_sender_needs_claims_that_agree() -> None:
    right = read_capability({"kind": "mcp/request", "payload": {"method": "tools/*"}})
    claim = Operation("tools/call", "read_file")
    assert right.matches("mcp/request", CALL, claim=claim)
    assert not right.matches("mcp/request", CALL, claim=claim, agreed=False)


def test_a_legacy_spelling_inside_an_object_is_a_kind_that_nobody_sends() -> None:
    right = read_capability({"kind": "mcp/request:tools/call"})
    assert not right.matches("mcp/request", CALL)
    assert not right.matches("mcp/request", CALL, claim=Operation("tools/call", None))


EXACT_CALL = {"name": "write", "arguments": {"$exact": {"path": "a*", "n": 1, "tags": ["x"]}}}


@for_each_row(
    ("arguments", "expected"),
    [
        ({"path": "a*", "n": 1, "tags": ["x"]}, True),
        ({"tags": ["x"], "n": 1, "path": "a*"}, True),
        ({"path": "a*", "n": 1, "tags": ["x"], "force": True}, False),
        ({"path": "a*", "n": 1}, False),
        ({"path": "ab", "n": 1, "tags": ["x"]}, False),
        ({"path": "a*", "n": 1.0, "tags": ["x"]}, False),
        ({"path": "a*", "n": True, "tags": ["x"]}, False),
        ({"path": "a*", "n": 1, "tags": ["x", "y"]}, False),
        ({"path": "a*", "n": 1, "tags": {"0": "x"}}, False),
        ([], False),
    ],
)
def test_an_exact_value_is_matched_by_itself_alone(arguments: Json, expected: bool) -> None:
    """D-102: no further member, and no sign of the pattern language means anything in it."""
    rights = Rights(read_capabilities([{"kind": "mcp/request", "payload": {"params": EXACT_CALL}}]))
    asked = {"method": "tools/call", "params": {"name": "write", "arguments": arguments}}
    exactly = {**asked, "params": {"name": "write", "arguments": {"path": "a*", "n": 1, "tags": ["x"]}}}
    # Twice, and after one that is allowed: what is remembered must not answer for another value.
    assert rights.allow("mcp/request", exactly)
    assert [rights.allow("mcp/request", asked) for _ in range(2)] == [expected] * 2


def test_an_exact_text_may_be_longer_than_a_pattern() -> None:
    text = "x" * (MAX_STRING_BYTES * 4)
    assert field({"$exact": text}, text)
    assert not field({"$exact": text}, text + "x")


def test_labels_limit_nothing_but_tell_capabilities_apart() -> None:
    """D-13."""
    plain, labelled = {"kind": "chat"}, {"kind": "chat", "id": 7, "description": "talk", "x-since": [1]}
    assert read_capability(labelled).matches("chat", {})
    assert read_capability(labelled) != read_capability(plain)
    assert read_capability({"description": "talk", "kind": "chat"}) == read_capability(
        {"kind": "chat", "description": "talk"}
    )
    assert len({read_capability(plain), read_capability({"kind": "chat"}), read_capability(labelled)}) == 2
    assert read_capability(labelled).view("mew") == [labelled]


def test_a_capability_does_not_change_with_the_json_it_was_read_from() -> None:
    source = {"kind": "chat", "payload": {"text": "hi"}}
    right = read_capability(source)
    source["kind"] = "*"
    assert right.original == {"kind": "chat", "payload": {"text": "hi"}}
    assert not right.matches("mcp/request", {"text": "hi"})


def test_rights_that_only_the_gateway_could_use_are_inert() -> None:
    """D-10."""
    for value in (
        "system/*",
        "system/welcome",
        "space/invite-ack",
        "stream/open",
        ["system/error", "stream/open"],
    ):
        assert read_capability({"kind": value}).inert
    for value in ("*", "s*", "stream/*", "stream/request", ["system/*", "chat"], "/^system/"):
        assert not read_capability({"kind": value}).inert
    assert read_capability("system.*").inert
    assert read_capability("system/*", place="mcpx").inert


def nested(depth: int) -> Json:
    value: Json = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


REFUSED: list[tuple[Json, str]] = [
    ({"kind": "chat", "payload": {"$exact": {}}}, "write it inside"),
    ({"kind": "chat", "payload": {"a": {"$exact": 1, "b": 2}}}, "stands alone"),
    ({"kind": "chat", "payload": {"a": {"$exact": list(range(MAX_NODES))}}}, "split it into several"),
    (7, "object"),
    (None, "object"),
    ("", "object"),
    ({}, "kind is missing"),
    ({"kind": 1}, "kind must be a string pattern"),
    ({"kind": {"a": "b"}}, "kind must be a string pattern"),
    ({"kind": []}, "kind is an empty list"),
    ({"kind": "chat", "form": "x"}, "form is no part"),
    ({"kind": "chat", "payload": "x"}, "payload must be an object"),
    ({"kind": "chat", "payload": {"a": []}}, "payload.a is an empty list"),
    ({"kind": "chat", "payload": {"a": "/(/"}}, "is no RE2 expression"),
    ({"kind": "chat", "payload": {"a": "/(?=x)/"}}, "is no RE2 expression"),
    ({"kind": "chat", "payload": {"a": "x" * (MAX_STRING_BYTES + 1)}}, "longer than"),
    ({"kind": "chat", "payload": {"x" * (MAX_STRING_BYTES + 1): "a"}}, "longer than"),
    ({"kind": "chat", "payload": nested(MAX_DEPTH + 1)}, "nested deeper"),
    ({"kind": "chat", "payload": {"a": ["x"] * MAX_NODES}}, "values into one capability"),
    ({"kind": "chat", "payload": {"$ref": "x"}}, r"\$\['\$name'\]"),
    ({"kind": "chat", "payload": {"$.a[?(@.b)]": "x"}}, "filters and scripts"),
    ({"kind": "chat", "payload": {"$.a[(1)]": "x"}}, "filters and scripts"),
    ({"kind": "chat", "payload": {"$.a['b','c']": "x"}}, "one name"),
    ({"kind": "chat", "payload": {"$.": "x"}}, "name is missing"),
    ({"kind": "chat", "payload": {"$.a[": "x"}}, "brackets hold"),
    ({"kind": "chat", "payload": {"$.a['b": "x"}}, "closing"),
    ({"kind": "chat", "payload": {"$.a['b\\n']": "x"}}, "backslash"),
    ({"kind": "chat", "payload": {"$.a[99999999999]": "x"}}, "index"),
    ({"kind": "chat", "payload": {"$" + ".a" * 40: "x"}}, "steps"),
    ({"kind": "chat", "payload": {"a": float("nan")}}, "not JSON"),
    ({"kind": "chat", "payload": {"a": object()}}, "not JSON"),
    ({"kind": "chat", "description": "x" * MAX_BYTES}, "capability is longer"),
    ({"kind": "chat", "to": []}, "to must be a list"),
    ({"kind": "chat", "to": ["!bob"]}, "to takes globs only"),
    ({"kind": "chat", "to": [1]}, "to takes globs only"),
    ({"kind": "mcp/response", "x-moot-request": {}}, "x-moot-request must hold"),
    ({"kind": "mcp/response", "x-moot-request": {"name": "x"}}, "x-moot-request must hold"),
    ({"kind": "mcp/response", "x-moot-request": {"method": 1}}, "x-moot-request.method must be"),
]


@for_each_row(("value", "reason"), REFUSED)
def test_what_cannot_be_read_is_refused_with_the_part_named(value: Json, reason: str) -> None:
    """D-12, D-13."""
    with pytest.raises(InvalidPattern, match=reason):
        read_capability(value)


def test_the_limits_themselves_are_allowed() -> None:
    read_capability({"kind": "chat", "payload": nested(MAX_DEPTH)})
    read_capability(
        {"kind": "chat", "payload": {"a": "x" * MAX_STRING_BYTES, "b": f"/{'x' * MAX_STRING_BYTES}/"}}
    )
    read_capability({"kind": "chat", "payload": {"a": ["x"] * (MAX_NODES - 3)}})


def test_json_nested_beyond_reason_is_refused_wherever_it_stands() -> None:
    deep: Json = 0
    for _ in range(100_000):
        deep = [deep]
    for value in (
        deep,
        {"kind": deep},
        {"kind": "chat", "x-note": deep},
        {"kind": "chat", "payload": {"a": deep}},
    ):
        with pytest.raises(InvalidPattern):
            read_capability(value)


def test_capabilities_are_a_list() -> None:
    assert [right.original for right in read_capabilities(["chat", {"kind": "mcp/*"}])] == [
        "chat",
        {"kind": "mcp/*"},
    ]
    for value in ({"kind": "chat"}, "chat", None):
        with pytest.raises(InvalidPattern, match="must be a list"):
            read_capabilities(value)
