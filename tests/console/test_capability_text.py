"""The console compares and words capabilities by itself: held against the gateway and the terminal."""

from __future__ import annotations

import itertools
from typing import Any

from moot.operations.text.capability_text import in_words
from moot.protocol.operation import Json
from moot.protocol.patterns import covers, read_capability
from tests.console.in_node import each_in_node

CALL = "tools/call"


def request(**payload: Json) -> Json:
    return {"kind": "mcp/request", "payload": payload}


RIGHTS: list[Json] = [
    {"kind": "*"},
    {"kind": "mcp/*"},
    {"kind": "mcp/request"},
    {"kind": ["mcp/request", "mcp/proposal"]},
    {"kind": "mcp/proposal"},
    {"kind": "chat"},
    {"kind": "chat/*"},
    {"kind": "mcp/request", "to": ["files"]},
    {"kind": "mcp/request", "to": ["files", "notes"]},
    request(method="tools/*"),
    request(method="*/list"),
    request(method=CALL),
    request(method=CALL, params={"name": "read_*"}),
    request(method=CALL, params={"name": "read_file"}),
    request(method=CALL, params={"name": ["read_file", "read_line"]}),
    request(method=CALL, params={"name": "!write_*"}),
    request(method=CALL, params={"name": "/^read_/"}),
    request(method=CALL, params={"name": "read_file", "arguments": {"path": "notes/*/a?.md"}}),
    request(method=CALL, params={"name": "read_file", "arguments": {"path": "notes/**"}}),
    request(method=CALL, params={"name": "add", "arguments": {"a": 1, "b": True}}),
]


def test_rights_are_compared_as_the_gateway_compares_them() -> None:
    """D-16: what is shown as covered certainly is, and what the gateway can prove of these is shown."""
    shown: list[list[bool]] = each_in_node(
        "views/capabilities/capability-covers.js",
        "(held, _, all) => all.map((wanted) => m.covers(held, wanted))",
        RIGHTS,
    )
    read = [read_capability(each) for each in RIGHTS]
    differ: list[Any] = [
        (RIGHTS[held], RIGHTS[wanted], shown[held][wanted])
        for held, wanted in itertools.product(range(len(RIGHTS)), repeat=2)
        if shown[held][wanted] is not covers(read[held], read[wanted])
    ]
    assert [each for each in differ if each[2]] == []
    # That a glob and a negated one, or a glob and an expression, fit together is left to the gateway.
    assert [each for each in differ if not _is_negated_or_expression(each[0])] == []


def _is_negated_or_expression(held: Any) -> bool:
    name: str = held["payload"]["params"]["name"]
    return name.startswith(("!", "/"))


def test_rights_are_worded_as_in_the_terminal() -> None:
    """One product, one language."""
    more: list[Json] = ["*", "chat", {"kind": "trust/*"}, {"kind": "chat", "to": ["maria"]}, request(x=1)]
    more += [
        {"kind": "mcp/response", "x-moot-request": {"method": CALL, "context": "read_*"}},
        {"kind": "mcp/response", "x-moot-request": {"method": CALL}, "to": ["maria"]},
        request(method=CALL, params={"$exact": {"name": "ping"}}),
        request(method=CALL, params={"name": "add", "arguments": {"$exact": {"a": 1, "b": [True, None]}}}),
        request(method=CALL, params={"name": "now", "arguments": {"$exact": {}}}),
        request(method="resources/read", params={"uri": "file:///a/**", "_meta": {"x": "1"}}),
    ]
    every = [*RIGHTS, *more]
    words = each_in_node(
        "views/capabilities/capability-text.js", "(each) => m.describeCapability(each)", every
    )
    assert words == [in_words(each) for each in every]
    assert in_words(RIGHTS[-2]) == "call read_file with path=notes/**"
    assert in_words({"kind": "mcp/request", "to": ["files"]}) == "call anything on files"


def test_a_list_says_what_a_member_can_do_and_no_more() -> None:
    roles: list[tuple[list[Json], str]] = [
        ([{"kind": "*"}], "full rights"),
        ([{"kind": "mcp/*"}], "decides"),
        ([{"kind": "mcp/request"}, {"kind": "chat"}], "calls tools"),
        ([request(method="tools/*")], "calls tools"),
        ([request(method=["*/list", CALL])], "calls tools"),
        ([{"kind": "mcp/request", "to": ["files"]}], "calls some tools"),
        ([request(method=CALL, params={"name": "read_file"}), {"kind": "mcp/proposal"}], "calls some tools"),
        ([request(method="/^tools/")], "calls some tools"),
        ([{"kind": "mcp/request", "payload": {"$.method": CALL}}], "calls some tools"),
        ([request(method="*/list"), {"kind": "mcp/proposal"}], "proposes"),
        ([request(method="sampling/createMessage"), {"kind": "mcp/response"}], "answers"),
        ([{"kind": "chat"}], "chats"),
        ([], "read-only"),
    ]
    found = each_in_node(
        "views/capabilities/capability-text.js", "(each) => m.roleOf(each)", [each for each, _ in roles]
    )
    assert list(zip(found, roles, strict=True)) == [(role, (each, role)) for each, role in roles]
