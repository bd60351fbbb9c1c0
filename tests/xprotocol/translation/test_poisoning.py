"""What a compromised server cannot publish through us (XP 8.5, D-74)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.protocol.hidden_text import MAX_NAME_CHARS
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.translation.content_check import (
    MAX_DESCRIPTION_CHARS,
    MAX_PROPERTIES,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    check_description,
    check_kind,
    check_name,
    check_schema,
    check_text,
)
from tests.rows import for_each_row


def reason(schema: Json) -> str | None:
    try:
        check_schema(schema, "inputSchema")
    except ContractRefused as refusal:
        return refusal.reason
    return None


def with_definitions(**definitions: Json) -> Json:
    return {"type": "object", "$defs": definitions, "properties": {"a": {"$ref": "#/$defs/a"}}}


@pytest.mark.requirement("XP-8.5-2")
@for_each_row(
    "schema",
    [
        {"$ref": "http://evil.example/schema.json"},
        {"properties": {"a": {"$ref": "https://evil.example/#/x"}}},
        {"properties": {"a": {"$dynamicRef": "other.json#node"}}},
        {"properties": {"a": {"$recursiveRef": "other.json"}}},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"a": {"$ref": ""}}},
        {"properties": {"a": {"$ref": "definitions.json"}}},
        {"properties": {"a": {"$ref": " #/$defs/a"}}},
        # Where careful readers see data, careless ones follow a reference.
        {"properties": {"a": {"default": {"$ref": "http://evil.example/"}}}},
        {"examples": [[{"$ref": "http://evil.example/"}]]},
        {"x-vendor": {"$ref": "http://evil.example/"}},
        {"$schema": "http://evil.example/dialect"},
        {"$schema": 7},
        {"properties": {"a": {"$schema": "http://evil.example/dialect"}}},
        {"properties": {"a": {"$id": "http://evil.example/", "$ref": "#/x"}}},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"a": {"id": "http://evil.example/"}},
        },
    ],
)
def test_nothing_in_a_schema_leads_elsewhere(schema: Json) -> None:
    assert reason(schema) == "external_reference"


@for_each_row(
    "schema",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://acme.example/tool"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$schema": "http://json-schema.org/draft-07/schema"},
        {"description": "see https://acme.example/docs and http://x/$ref"},
        {"properties": {"$ref": {"type": "string"}, "id": {"type": "string"}, "$id": {"type": "string"}}},
        {"properties": {"a": {"id": "a", "type": "string"}}},
        with_definitions(a={"type": "string"}),
        {"$defs": {"a/b~c": {}}, "properties": {"x": {"$ref": "#/$defs/a~1b~0c"}}},
        {"$defs": {"a": {"$anchor": "node"}}, "properties": {"x": {"$ref": "#node"}}},
        {
            "properties": {"a": {"items": [{}, {"type": "string"}]}},
            "$schema": "http://json-schema.org/draft-07/schema#",
        },
        {
            "properties": {
                "a": {"type": "string"},
                "b": {"$ref": "#/properties/a"},
                "c": {"$ref": "#/properties/b"},
            }
        },
        # A definition inside a definition that nobody goes round in.
        with_definitions(a={"$defs": {"b": {"$ref": "#/$defs/a"}}, "type": "string"}),
        {"properties": {"a": {"enum": [{"$ref": "#/nowhere"}]}}},
        True,
        {},
    ],
)
def test_ordinary_schemas_pass(schema: Json) -> None:
    assert reason(schema) is None


@pytest.mark.requirement("XP-8.5-3")
@for_each_row(
    "schema",
    [
        {"properties": {"child": {"$ref": "#"}}},
        {"$ref": "#"},
        with_definitions(a={"properties": {"next": {"$ref": "#/$defs/a"}}}),
        with_definitions(
            a={"items": {"$ref": "#/$defs/b"}}, b={"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}
        ),
        # Even where nothing uses it.
        {"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}},
        {"definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}},
        {"$defs": {"n": {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}}},
        {
            "properties": {"a": {"$recursiveRef": "#"}},
            "$schema": "https://json-schema.org/draft/2019-09/schema",
        },
        {"properties": {"a": {"items": {"$ref": "#/properties/a"}}}},
    ],
)
def test_a_cycle_of_references_is_refused(schema: Json) -> None:
    assert reason(schema) == "recursive"


def test_a_cycle_longer_than_the_stack_is_found_and_a_chain_as_long_is_none() -> None:
    count = 1_300
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(count)}
    ring = {"$defs": chain | {f"d{count}": {"$ref": "#/$defs/d0"}}}
    assert reason(ring) == "recursive"
    assert reason({"$defs": chain | {f"d{count}": {"type": "string"}}}) is None


@pytest.mark.requirement("XP-8.5-4")
def test_a_schema_of_64_kib_passes_and_one_byte_more_does_not() -> None:
    schema = {"type": "object", "description": ""}
    bare = len('{"type":"object","description":""}')
    assert reason(schema | {"description": "x" * (MAX_SCHEMA_BYTES - bare)}) is None
    assert reason(schema | {"description": "x" * (MAX_SCHEMA_BYTES - bare + 1)}) == "too_large"
    # Bytes, not characters.
    assert reason(schema | {"description": "天" * (MAX_SCHEMA_BYTES // 3)}) == "too_large"


@pytest.mark.requirement("XP-8.5-4")
def test_a_schema_of_32_levels_passes_and_one_level_more_does_not() -> None:
    schema: Json = {}
    for _ in range(MAX_SCHEMA_DEPTH - 1):
        schema = {"not": schema}
    assert reason(schema) is None
    assert reason({"not": schema}) == "too_large"
    deep: Json = {}
    for _ in range(100_000):
        deep = {"not": deep}
    assert reason(deep) == "too_large"


@pytest.mark.requirement("XP-8.5-4")
def test_an_object_of_512_properties_passes_and_one_more_does_not() -> None:
    properties: Json = {f"p{n}": {} for n in range(MAX_PROPERTIES)}
    assert reason({"properties": properties}) is None
    assert reason({"properties": properties | {"one more": {}}}) == "too_large"
    assert reason({"properties": {"a": {"items": {"properties": properties | {"more": {}}}}}}) == "too_large"
    assert reason({"patternProperties": properties | {"one more": {}}}) == "too_large"


def test_references_that_multiply_are_refused() -> None:
    """A few hundred bytes that stand for ten thousand million schemas."""
    levels = {
        f"l{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/l{n + 1}"} for m in range(10)}}
        for n in range(10)
    }
    bomb = {"$defs": levels | {"l10": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/l0"}}}
    assert reason(bomb) == "too_large"


@for_each_row(
    "schema",
    [
        [],
        "string",
        7,
        {"type": "int"},
        {"type": "object", "properties": []},
        {"properties": {"type": "object", "properties": {}}},
        {"properties": {"a": {"required": True}}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "#missing"}}},
        {"properties": {"a": {"minimum": "5"}}},
        {"properties": {"a": {"$ref": "#/type"}}, "type": "object"},
        {"$ref": 5},
    ],
)
@pytest.mark.requirement("XP-8.5-1")
def test_what_no_validator_can_use_is_refused(schema: Json) -> None:
    assert reason(schema) == "invalid_schema"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1: 2}, {"a": object()}, {"a": "\ud800"}, {"\udfff": 1}, {"a": 10**5000}],
)
def test_what_is_not_json_is_refused(value: Json) -> None:
    assert reason({"default": value}) in {"malformed", "too_large"}


HIDDEN = [
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    "\u200b",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\u00ad",
    "\u2060",
    "\u3164",
]
HIDDEN += ["\U000e0041", "\U000e0101", "\ufe00\ufe01\ufe02", "\u200d\u200c\u200d", "\ufff9"]


@for_each_row("hidden", HIDDEN, ids=[f"U+{ord(text[0]):04X}" for text in HIDDEN])
def test_nothing_hides_from_people(hidden: str) -> None:
    """Descriptions are read by models: what people cannot see there is refused, wherever it stands."""
    text = f"Adds{hidden} numbers"
    schemas: list[Json] = [
        {"description": text},
        {"properties": {"a": {"title": text}}},
        {"properties": {text: {}}},
        {"properties": {"a": {"enum": ["b", text]}}},
        {"x-note": [{"deep": text}]},
    ]
    for schema in schemas:
        assert reason(schema) == "hidden_text"
    for check in (check_description, check_kind, lambda value: check_name(value, "tool")):
        with pytest.raises(ContractRefused, match=f"U\\+{ord(hidden[0]):04X}"):
            check(text)


@for_each_row(
    "text",
    ["plain", "tab\tand\r\nlines", "👩‍❤️‍👨 👨‍👩‍👧", "می‌خواهم", "Ünïcödé", "天气", "x²", "العربية", "עברית"],
)
def test_scripts_and_emoji_are_no_hiding_place(text: str) -> None:
    check_text(text, "the description")
    check_description(text)
    assert reason({"description": text}) is None


@for_each_row(
    "name", ["", "x" * (MAX_NAME_CHARS + 1), "a\nb", "a\tb", " a", "a ", "a\u2028b", "\u3000a", "\ud83d"]
)
def test_a_name_is_short_visible_and_on_one_line(name: str) -> None:
    with pytest.raises(ContractRefused):
        check_name(name, "tool")


def test_names_of_every_script_pass() -> None:
    for name in ("a", "x" * MAX_NAME_CHARS, "Hello Tool", "长亭 IP 情报查询", "a.b-c_d"):
        check_name(name, "tool")


def test_a_long_description_is_refused() -> None:
    check_description("x" * MAX_DESCRIPTION_CHARS)
    with pytest.raises(ContractRefused):
        check_description("x" * (MAX_DESCRIPTION_CHARS + 1))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["$ref", "$defs", "properties", "items", "type", "enum", "anyOf", "a", "$id", "$schema"]
            )
            | st.text(max_size=4),
            inner | st.sampled_from(["#", "#/$defs/a", "object", "http://x/"]),
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_any_value_passes_or_is_refused(value: Json) -> None:
    """Nothing but ContractRefused comes out, and twice the same."""
    assert reason(value) == reason(value)
