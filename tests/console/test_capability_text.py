"""The console compares and words capabilities by itself: held against the gateway and the terminal."""

from __future__ import annotations

import itertools
from typing import Any

from moot.protocol.operation import Json
from moot.protocol.patterns import covers, read_capability
from moot.tui.capability_text import in_words
from tests.console.conftest import PageAs

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

_COVERED = """async (rights) => {
  const { covers } = await import("/console/views/capability-covers.js");
  return rights.map((held) => rights.map((wanted) => covers(held, wanted)));
}"""
_WORDS = """async (rights) => {
  const { describeCapability } = await import("/console/views/capability-text.js");
  return rights.map(describeCapability);
}"""


def test_rights_are_compared_as_the_gateway_compares_them(page_as: PageAs) -> None:
    """D-16: what is shown as covered certainly is, and what the gateway can prove of these is shown."""
    page = page_as("human", "members")
    shown: list[list[bool]] = page.evaluate(_COVERED, RIGHTS)
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


def test_rights_are_worded_as_in_the_terminal(page_as: PageAs) -> None:
    """One product, one language."""
    page = page_as("human", "members")
    more: list[Json] = ["*", "chat", {"kind": "trust/*"}, {"kind": "chat", "to": ["maria"]}, request(x=1)]
    every = [*RIGHTS, *more]
    assert page.evaluate(_WORDS, every) == [in_words(each) for each in every]
    assert in_words(RIGHTS[-2]) == "call read_file with path=notes/**"
    assert in_words({"kind": "mcp/request", "to": ["files"]}) == "call anything on files"
