"""A contract becomes an MCP tool (XP 4.2, D-68)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, contract_json, read_contract
from moot.xprotocol.translation.mcp_mirror import tool_name, tool_names
from moot.xprotocol.translation.publication import ServerOffer, publish
from tests.rows import for_each_row
from tests.xprotocol.mirroring import mirror
from tests.xprotocol.tool_samples import NAMESPACE, SAMPLE, settings

ENDPOINT = "xp://weather.example.com"
# XP 4.2.
WEATHER: Json = {
    "kind": "weather.current.get",
    "description": "Get current weather conditions for a location",
    "payload": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City name or coordinates"},
            "units": {"type": "string", "enum": ["metric", "imperial"]},
        },
        "required": ["location"],
    },
}


def contract(kind: str, **more: Json) -> Contract:
    return read_contract({"kind": kind, "payload": {"type": "object"}, **more})


def names(*kinds: str, prefix: str = "", taken: tuple[str, ...] = ()) -> list[str]:
    found = mirror([contract(kind) for kind in kinds], endpoint=ENDPOINT, prefix=prefix, taken=taken)
    return [tool.name for tool in found.tools]


@pytest.mark.requirement("XP-4.2-2", "XP-4.2-3", "XP-4.2-4", "XP-4.2-5", "XP-3.1-36")
@pytest.mark.parametrize("prefix", ["", "weather_"])
def test_the_documents_example_member_by_member(prefix: str) -> None:
    """D-68: the prefix is not doubled."""
    (tool,) = mirror([read_contract(WEATHER)], endpoint=ENDPOINT, prefix=prefix).tools
    assert tool.as_json() == {
        "name": "weather_current_get",
        "description": (
            "Get current weather conditions for a location\n\n"
            "[XProtocol: weather.current.get via xp://weather.example.com]"
        ),
        "inputSchema": WEATHER["payload"],
    }
    assert list(tool.as_json()["inputSchema"]["properties"]) == ["location", "units"]
    assert (tool.contract.kind, tool.endpoint) == ("weather.current.get", ENDPOINT)


@pytest.mark.requirement("XP-4.2-1", "XP-11.1-2")
def test_the_same_contracts_in_any_order_give_the_same_tools() -> None:
    contracts = [
        read_contract(WEATHER),
        contract("a.b"),
        contract("a_b"),
        contract("a.b-c d"),
        contract("x" * 90),
    ]
    one = mirror(contracts, endpoint=ENDPOINT, prefix="p_")
    assert one == mirror(list(reversed(contracts)), endpoint=ENDPOINT, prefix="p_")
    assert [tool.as_json() for tool in one.tools] == [
        tool.as_json() for tool in mirror(contracts, endpoint=ENDPOINT, prefix="p_").tools
    ]


@pytest.mark.requirement("XP-3.1-36")
def test_a_prefix_keeps_the_names_of_two_endpoints_apart() -> None:
    assert names("status.get", prefix="chat_") == ["chat_status_get"]
    assert names("status.get", prefix="mail_") == ["mail_status_get"]
    assert names("chat.send", prefix="chat_") == ["chat_send"]


def test_two_kinds_that_want_one_name_both_get_a_suffix() -> None:
    """D-68, without an order that a newcomer could use to take a name over."""
    clashing = names("a.b_c", "a.b.c", "x.y")
    assert clashing[2] == "x_y"
    assert len(set(clashing)) == 3
    assert all(re.fullmatch(r"a_b_c_[0-9a-f]{6}", name) for name in clashing[:2])
    (alone,) = names("a.b.c", taken=("a_b_c",))
    assert alone in clashing


def test_long_names_are_cut_to_64_and_stay_different() -> None:
    kinds = ["k" * 100 + str(n) for n in range(50)]
    found = names(*kinds, prefix="p_")
    assert len(set(found)) == 50
    assert all(len(name) == 64 and re.search(r"_[0-9a-f]{6}$", name) for name in found)
    assert names("k" * 62, prefix="p_") == ["p_" + "k" * 62]


@pytest.mark.parametrize("kind", ["wetter.für.alle", "天气.查询", "a b", "a/b", "😀"])
def test_names_that_clients_cannot_take_are_spelt_out_and_told_apart(kind: str) -> None:
    (name,) = names(kind)
    assert re.fullmatch(r"[A-Za-z0-9_-]+_[0-9a-f]{6}", name)
    assert name != names(kind + "!")[0]


KINDS = st.text(st.sampled_from("ab._-é "), min_size=1, max_size=12) | st.text(min_size=50, max_size=80)


@given(
    st.sets(KINDS, max_size=12),
    st.sampled_from(["", "a_", "weather_"]),
    st.sets(st.sampled_from(["a", "a_b", "b"])),
)
def test_names_are_distinct_short_and_plain(kinds: set[str], prefix: str, taken: set[str]) -> None:
    found = tool_names(kinds, prefix=prefix, taken=taken)
    assert found.keys() == kinds
    assert len(set(found.values())) == len(kinds)
    assert taken.isdisjoint(found.values())
    for kind, name in found.items():
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
        assert name == tool_name(kind, prefix=prefix) or re.search(r"_[0-9a-f]{6,}$", name)
    assert found == tool_names(sorted(kinds, reverse=True), prefix=prefix, taken=taken)


@for_each_row(
    ("value", "reason"),
    [
        ({"payload": {"$ref": "http://evil.example/"}}, "external_reference"),
        ({"payload": {"properties": {"a": {"$ref": "#"}}}}, "recursive"),
        ({"payload": {"type": "array"}}, "not_a_tool"),
        ({"payload": {"description": "x" * 70_000}}, "too_large"),
        ({"description": "a\u202eb"}, "hidden_text"),
        ({"kind": "a\u200bb"}, "hidden_text"),
        ({"kind": "a\nb"}, "hidden_text"),
        (
            {"response": {"kind": "a.result", "payload": {"$ref": "http://evil.example/"}}},
            "external_reference",
        ),
        ({"subscription": {"updated_kind": "a.updated"}}, "not_a_tool"),
    ],
)
def test_a_strangers_poison_is_not_shown_and_the_rest_is(value: Json, reason: str) -> None:
    bad = contract(**({"kind": "a.bad"} | value))
    found = mirror([bad, contract("a.good")], endpoint=ENDPOINT)
    assert [tool.name for tool in found.tools] == ["a_good"]
    assert [(kind, refusal.reason) for kind, refusal in found.refused] == [(bad.kind, reason)]


def test_schemas_without_a_type_become_objects_as_mcp_asks() -> None:
    for payload, expected in (
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "type": "object"}),
        ({}, {"type": "object"}),
        (True, {"type": "object"}),
        ({"type": ["object", "null"]}, {"type": "object"}),
    ):
        (tool,) = mirror([contract("a.b", payload=payload)], endpoint=ENDPOINT).tools
        assert tool.as_json()["inputSchema"] == expected


def test_a_contract_without_words_still_says_where_it_comes_from() -> None:
    (tool,) = mirror([contract("a.b")], endpoint=ENDPOINT).tools
    assert tool.as_json()["description"] == "[XProtocol: a.b via xp://weather.example.com]"


@pytest.mark.requirement("XP-B-1", "XP-B-4")
def test_tools_survive_there_and_back() -> None:
    """MCP to XProtocol and to MCP again: input and output schemas are what they were, modulo minItems."""
    published = publish(ServerOffer(tools=SAMPLE), settings(), adapter_version="0.1.0").contracts
    over_the_wire = [read_contract(contract_json(one)) for one in published]
    mirrored = mirror(over_the_wire, endpoint=ENDPOINT).tools
    tools = {tool.contract.kind.removeprefix(f"{NAMESPACE}."): tool.as_json() for tool in mirrored}
    assert len(tools) == len(published)
    for value in SAMPLE:
        if value["name"] in tools:
            back = tools[value["name"]]
            assert _without_zeros(back["inputSchema"]) == _without_zeros(value["inputSchema"])
            assert back.get("outputSchema") == value.get("outputSchema")
            assert back["description"].startswith(value["description"])


def _without_zeros(schema: Json) -> Json:
    if isinstance(schema, dict):
        return {k: _without_zeros(v) for k, v in schema.items() if (k, v) != ("minItems", 0)}
    return [_without_zeros(item) for item in schema] if isinstance(schema, list) else schema
