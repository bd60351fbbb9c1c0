"""A rule that names tools in plain words is asked of their calls alone; none that may match is left out."""

from __future__ import annotations

import itertools
import random

import pytest

from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, read_capability
from moot.protocol.patterns.globs import MAX_TEXT
from moot.space.proposals.call_rules import CallRules
from moot.space.proposals.quorum import binds_call

HIDDEN: dict[str, Json] = {CONTENT_KEY: {"sha256": "0" * 64, "bytes": 70_000}}
# The names of a call, and what else may stand there.
NAMES: list[Json] = ["deploy", "pay", "write_file", "", "d" * (MAX_TEXT + 1), 7, None, ["deploy"], HIDDEN]
CALLS: list[dict[str, Json]] = [
    *({"method": "tools/call", "params": {"name": name, "arguments": {"sum": 1}}} for name in NAMES),
    {"method": "resources/read", "params": {"uri": "file:///deploy"}},
    {"method": "tools/call", "params": HIDDEN},
    {"method": "tools/call", "params": ["deploy"]},
    {"method": "tools/call", "params": {"name": "deploy", **HIDDEN}},
    {"method": "tools/call", **HIDDEN},
    {"method": "ping"},
    {},
]
PAYLOADS: list[Json] = [
    None,
    {},
    {"method": "tools/call"},
    {"params": {"name": "deploy"}},
    {"method": "tools/call", "params": {"name": "deploy"}},
    {"params": {"name": ["deploy", "pay"]}},
    {"params": {"name": ["deploy", "write_*"]}},
    {"params": {"name": "!deploy"}},
    {"params": {"name": "/dep/"}},
    {"params": {"name": "*"}},
    {"params": {"name": ""}},
    {"params": {"name": 7}},
    {"params": {"name": {"$exact": "deploy"}}},
    {"params": {"name": {"short": "deploy"}}},
    {"params": [{"name": "deploy"}, {"name": "pay"}]},
    {"params": {"$.name": "deploy"}},
    {"**": {"name": "deploy"}},
    {"par*": {"name": "deploy"}},
    {"params": {"arguments": {"name": "deploy"}}},
]


def rule(payload: Json) -> Capability:
    return read_capability({"kind": "mcp/request"} | ({} if payload is None else {"payload": payload}))


def rules_of(capabilities: list[Capability]) -> CallRules[Capability]:
    return CallRules(capabilities, lambda each: each)


def call(tool: str) -> dict[str, Json]:
    return {"method": "tools/call", "params": {"name": tool}}


def test_every_rule_that_binds_a_call_is_asked_and_in_its_order() -> None:
    written = [rule(payload) for payload in PAYLOADS]
    for seed in range(20):
        random.Random(seed).shuffle(written)
        rules = rules_of(written)
        for payload in CALLS:
            asked = list(rules.about(payload))
            binding = [each for each in written if binds_call(each, payload, ())]
            assert [each for each in asked if binds_call(each, payload, ())] == binding
            places = [written.index(each) for each in asked]
            assert all(one < other for one, other in itertools.pairwise(places))


def test_a_call_asks_only_rules_that_name_its_tool_or_none_in_plain_words() -> None:
    named, wild = [rule({"params": {"name": f"tool_{n}"}}) for n in range(1_000)], rule({"params": {}})
    rules = rules_of([*named, wild])
    assert rules.about(call("tool_7")) == [named[7], wild]
    assert rules.about(call("another")) == [wild]


@pytest.mark.parametrize("params", [HIDDEN, {"name": HIDDEN}, {"name": "d" * (MAX_TEXT + 1)}, {}])
def test_a_call_whose_tool_cannot_be_told_asks_every_rule(params: Json) -> None:
    named = [rule({"params": {"name": f"tool_{n}"}}) for n in range(10)]
    assert list(rules_of(named).about({"method": "tools/call", "params": params})) == named
