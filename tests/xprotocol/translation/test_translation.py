"""A tool becomes a contract (XP 4.1, Appendix B)."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import (
    ContractRefused,
    contract_json,
    digest,
    exact_canonical,
    read_contract,
)
from moot.xprotocol.contracts.source_overrides import SchemaOverride, SemanticOverride, SourceSettings
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from moot.xprotocol.translation.tool_semantics import Sibling, Siblings, read_name
from moot.xprotocol.translation.translation import CompiledGrammar, kind_of, with_min_items
from tests.rows import for_each_row
from tests.xprotocol.tool_samples import NAMESPACE, READ_FILE, SAMPLE, settings, tool, translate_tool

SIBLINGS = Siblings(
    Sibling(f"{NAMESPACE}.{name}", read_name(name)) for name in ("read_file", "write_file", "list_directory")
)


@pytest.mark.requirement(
    "XP-4.1-2",
    "XP-4.1-4",
    "XP-4.1-5",
    "XP-4.1-6",
    "XP-4.1-7",
    "XP-4.1-8",
    "XP-4.1-9",
    "XP-4.1-11",
    "XP-4.1-12",
    "XP-4.1-13",
    "XP-4.1-16",
    "XP-4.1-17",
    "XP-3.1-14",
)
def test_the_documents_example_member_by_member() -> None:
    """As D-62 (score), D-63 (tables before the printed example) and D-67 (response) rule."""
    shown = contract_json(translate_tool(READ_FILE, siblings=SIBLINGS))
    grammar = shown.pop("gbnf_grammar")
    assert shown == {
        "kind": "com.acme.filesystem.read_file",
        "version": "1.0.0",
        "description": "Read the contents of a file at the specified path",
        "semantic": {
            "domain": "filesystem",
            "intent_verbs": ["read", "get", "fetch", "retrieve"],
            "data_subjects": ["file"],
            "use_when": "The task is to read the contents of a file at the specified path",
            "do_not_use_when": (
                "The task is to write file (use com.acme.filesystem.write_file), "
                "to list directory (use com.acme.filesystem.list_directory)"
            ),
            "related_schemas": ["com.acme.filesystem.write_file", "com.acme.filesystem.list_directory"],
            "description_quality_score": 0.6,
            "auto_generated": True,
        },
        "source": {
            "type": "mcp_adapter",
            "mcp_server": "filesystem",
            "mcp_tool": "read_file",
            "adapter_version": "0.1.0",
        },
        "payload": READ_FILE["inputSchema"],
        "response": {
            "kind": "com.acme.filesystem.read_file.result",
            "payload": {
                "type": "object",
                "properties": {
                    "content": {"type": "string"},
                    "encoding": {"type": "string"},
                    "mimeType": {"type": "string"},
                    "isError": {"type": "boolean"},
                },
            },
        },
        "error_response": {"kind": "xp.error", "payload": {"$ref": "xp.error.schema"}},
        "auth": {"required_capability": "com.acme.filesystem.read"},
        "gbnf_exactness": "exact",
        "gbnf_notes": [],
    }
    assert grammar == compile_grammar(READ_FILE["inputSchema"]).text
    assert [*contract_json(translate_tool(READ_FILE))][:6] == [
        *("kind", "version", "description", "semantic", "source", "payload")
    ]


@pytest.mark.requirement("XP-4.1-15", "XP-4.4-2", "XP-11.1-12")
@for_each_row("value", SAMPLE, ids=[value["name"] for value in SAMPLE])
def test_every_contract_has_a_grammar_of_its_payload(value: Json) -> None:
    contract = translate_tool(value)
    assert contract.gbnf_grammar == compile_grammar(contract.payload).text
    assert contract.gbnf_grammar
    assert contract.gbnf_exactness in ("exact", "superset")


@pytest.mark.requirement("XP-4.6-2", "XP-11.1-3", "XP-11.1-4", "XP-11.3-2", "XP-11.3-3")
@for_each_row("value", SAMPLE, ids=[value["name"] for value in SAMPLE])
def test_every_contract_has_annotations_and_a_score(value: Json) -> None:
    semantic = contract_json(translate_tool(value))["semantic"]
    for member in ("domain", "intent_verbs", "use_when", "do_not_use_when"):
        assert semantic[member]
    assert semantic["description_quality_score"] in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert semantic["auto_generated"] is True


@pytest.mark.requirement("XP-1.3-1", "XP-4.1-1", "XP-11.1-1")
@for_each_row("value", SAMPLE, ids=[value["name"] for value in SAMPLE])
def test_translating_twice_gives_the_same_bytes_and_leaves_the_tool_alone(value: Json) -> None:
    before = copy.deepcopy(value)
    one, other = translate_tool(value), translate_tool(json.loads(json.dumps(value)))
    assert exact_canonical(contract_json(one)) == exact_canonical(contract_json(other))
    assert json.dumps(contract_json(one)) == json.dumps(contract_json(other))
    assert value == before


@pytest.mark.requirement("XP-B-2")
def test_arrays_say_how_many_items_they_need_at_every_depth() -> None:
    """D-67: only where nothing was said, and only where a schema stands."""
    schema: Json = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": ["array", "null"]}}},
            "some": {"type": "array", "minItems": 2},
            "choice": {"enum": [{"type": "array"}]},
            "items": {"type": "string", "default": {"type": "array"}, "examples": [{"type": "array"}]},
        },
        "$defs": {"list": {"type": "array"}},
        "anyOf": [{"properties": {"x": {"type": "array"}}}, True],
        "additionalProperties": {"type": "array"},
        "patternProperties": {"^y": {"type": "array"}},
        "x-vendor": {"type": "array"},
    }
    contract = translate_tool(tool("list_things", schema=schema))
    expected = json.loads(json.dumps(schema))
    properties = expected["properties"]
    for array in (
        properties["tags"],
        properties["grid"],
        properties["grid"]["items"],
        properties["grid"]["items"]["items"],
        expected["$defs"]["list"],
        expected["anyOf"][0]["properties"]["x"],
        expected["additionalProperties"],
        expected["patternProperties"]["^y"],
    ):
        array["minItems"] = 0
    assert contract.payload == expected
    assert contract.payload["properties"]["tags"] == {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 0,
    }


@pytest.mark.requirement("XP-4.1-10", "XP-4.1-16", "XP-B-1", "XP-B-4")
def test_payload_is_the_input_schema_and_nothing_else() -> None:
    schema: Json = {
        "type": "object",
        "title": "T",
        "properties": {
            "b": {"type": "object", "properties": {"z": {"type": "object", "properties": {"deep": {}}}}},
            "a": {"enum": [1, "x", None], "default": None, "description": "d", "examples": [1]},
            "c": {"allOf": [{"type": "string"}, {"minLength": 1}]},
            "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "e": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
        },
        "required": ["b"],
        "x-vendor": {"kept": True},
    }
    payload = translate_tool(tool("plan_all", schema=schema)).payload
    assert payload == schema
    assert json.dumps(payload) == json.dumps(schema)


def test_a_tool_with_an_output_schema_answers_by_it() -> None:
    """D-67."""
    promised: Json = {"type": "object", "properties": {"days": {"type": "array"}}}
    contract = translate_tool(tool("plan_trip", outputSchema=promised))
    assert contract.response is not None
    assert contract.response.payload == promised


@pytest.mark.requirement("XP-3.1-18", "XP-4.1-4")
def test_an_overriding_description_is_published_and_judged() -> None:
    override = SchemaOverride(
        description="Get text out of a drawer. Use this when the drawer is known by name."
    )
    contract = translate_tool(READ_FILE, settings(schema_overrides={"read_file": override}))
    assert contract.description == override.description
    assert contract.semantic is not None
    assert contract.semantic.use_when == "The task is to get text out of a drawer"


@pytest.mark.requirement("XP-3.1-19")
def test_an_overriding_capability_is_published_in_full() -> None:
    override = SchemaOverride(required_capability="filesystem.admin")
    contract = translate_tool(READ_FILE, settings(schema_overrides={"read_file": override}))
    assert contract_json(contract)["auth"] == {"required_capability": "com.acme.filesystem.admin"}


@pytest.mark.requirement("XP-3.1-20", "XP-3.1-21", "XP-3.1-22", "XP-3.1-23", "XP-3.1-24", "XP-4.6-21")
def test_overriding_annotations_are_published() -> None:
    given: Json = {
        "use_when": "a file is known",
        "do_not_use_when": "it is not",
        "example_inputs": [{"path": "reports/q1.csv", "encoding": "utf-8"}],
        "intent_verbs": ["validate", "process"],
        "data_subjects": ["record"],
    }
    override = SchemaOverride(semantic=msgspec.convert(given, SemanticOverride))
    shown = contract_json(translate_tool(READ_FILE, settings(schema_overrides={"read_file": override})))[
        "semantic"
    ]
    assert {name: shown[name] for name in given} == given
    assert shown["domain"] == "filesystem"
    assert shown["auto_generated"] is True


def test_examples_that_the_tool_would_not_take_are_left_out() -> None:
    examples: Json = ({"path": "a"}, {"encoding": "utf-8"}, {"path": "a", "encoding": "latin-1"}, 5)
    override = SchemaOverride(semantic=SemanticOverride(example_inputs=examples))
    semantic = translate_tool(READ_FILE, settings(schema_overrides={"read_file": override})).semantic
    assert semantic is not None
    assert semantic.example_inputs == ({"path": "a"},)


@for_each_row(
    ("value", "reason"),
    [
        (None, "malformed"),
        ("read_file", "malformed"),
        ({}, "malformed"),
        ({"name": 5, "inputSchema": {}}, "malformed"),
        (tool("x", description=5), "malformed"),  # type: ignore[arg-type]
        ({"name": "x"}, "invalid_schema"),
        ({"name": "x", "inputSchema": True}, "invalid_schema"),
        (tool("x", schema={"type": "string"}), "invalid_schema"),
        (tool("x", schema={"type": ["string", "null"]}), "invalid_schema"),
        (tool("x", schema={"type": "object", "properties": {"a": {"type": "int"}}}), "invalid_schema"),
        (tool("x", outputSchema=[]), "invalid_schema"),
        (tool("x", outputSchema={"$ref": "http://evil.example/"}), "external_reference"),
        (tool("x", schema={"type": "object", "properties": {"a": {"$ref": "#"}}}), "recursive"),
        (tool("x\u202e"), "hidden_text"),
        (tool("x", description="Adds\u200b"), "hidden_text"),
        (tool(""), "too_large"),
        (tool("x" * 129), "too_large"),
        (tool("x", schema={"type": "object", "not": {}}), "grammar"),
    ],
)
@pytest.mark.requirement("XP-8.5-1")
def test_what_cannot_be_published_is_refused_for_a_stated_reason(value: Json, reason: str) -> None:
    with pytest.raises(ContractRefused) as refusal:
        translate_tool(value)
    assert refusal.value.reason == reason
    assert len(str(refusal.value)) > 10


def test_poison_in_an_override_is_refused_too() -> None:
    for override in (
        SchemaOverride(description="a\u202eb"),
        SchemaOverride(semantic=SemanticOverride(use_when="a\u202eb")),
        SchemaOverride(semantic=SemanticOverride(example_inputs=({"path": "x" * 70_000},))),
    ):
        with pytest.raises(ContractRefused):
            translate_tool(READ_FILE, settings(schema_overrides={"read_file": override}))


def test_a_compiler_that_refuses_refuses_the_contract() -> None:
    def refusing(schema: Json) -> CompiledGrammar:
        raise GrammarRefused("because")

    with pytest.raises(ContractRefused, match="because") as refusal:
        translate_tool(READ_FILE, compile=refusing)
    assert refusal.value.reason == "grammar"


@pytest.mark.requirement("XP-4.1-2")
@pytest.mark.parametrize(
    "name", ["read_file", "Hello Tool", "长亭 IP 情报查询", "math.sum", "a-b", "x" * 128]
)
def test_kinds_join_namespace_and_name_as_they_are(name: str) -> None:
    contract = translate_tool(tool(name))
    assert contract.kind == kind_of(NAMESPACE, name) == f"{NAMESPACE}.{name}"
    assert contract.source is not None
    assert contract.source.mcp_tool == name


@for_each_row("namespace", ["", "a..b", ".a", "a.", "a b", "xp", "xp.key", "XP.a", "ä", "a" * 113, "a/b"])
def test_a_namespace_that_cannot_work_is_a_mistake(namespace: str) -> None:
    with pytest.raises(UsageError, match="xprotocol_namespace"):
        settings(namespace=namespace)


def test_a_contract_survives_the_wire() -> None:
    for value in SAMPLE:
        contract = translate_tool(value)
        assert read_contract(json.loads(json.dumps(contract_json(contract)))) == contract


@for_each_row(
    "value",
    [
        None,
        [],
        {},
        {"kind": "a"},
        {"kind": 5, "payload": {}},
        {"kind": "", "payload": {}},
        {"kind": "a" * 257, "payload": {}},
        {"kind": "a", "payload": []},
        {"kind": "a", "payload": {}, "semantic": "x"},
        {"kind": "a", "payload": {}, "response": {"payload": {}}},
    ],
)
def test_what_is_no_contract_is_refused(value: Json) -> None:
    with pytest.raises(ContractRefused) as refusal:
        read_contract(value)
    assert refusal.value.reason == "malformed"


def test_a_kind_may_have_256_characters() -> None:
    assert read_contract({"kind": "a" * 256, "payload": {}}).kind == "a" * 256


@pytest.mark.parametrize(
    "entry",
    [
        {"descriptoin": "a slip of the pen"},
        {"semantic": {"use_wenn": "a slip of the pen"}},
        {"semantic": {"description_quality_score": 1.0}},
        {"semantic": {"intent_verbs": "read"}},
    ],
)
def test_an_override_that_nobody_would_read_is_a_mistake(entry: Json) -> None:
    source: Json = {"name": "a", "xprotocol_namespace": "b.c", "schema_overrides": {"read_file": entry}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(source, SourceSettings)
    del source["schema_overrides"]
    assert msgspec.convert(source, SourceSettings) == settings("a", "b.c")


def test_a_native_contract_may_have_three_members_and_more_than_we_know() -> None:
    contract = read_contract({"kind": "a.b", "description": "d", "payload": {}, "x": 1})
    assert contract_json(contract) == {"kind": "a.b", "version": "1.0.0", "description": "d", "payload": {}}


I_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(I_JSON)
def test_canonical_text_is_rfc_8785_wherever_that_has_one(value: Json) -> None:
    assert exact_canonical(value) == rfc8785.dumps(value)


def test_whole_numbers_beyond_rfc_8785_keep_their_digits() -> None:
    assert (
        exact_canonical({"b": 2**63, "a": [1.0, -0.0, 1e300]})
        == b'{"a":[1,0,1e+300],"b":9223372036854775808}'
    )
    assert digest(2**63) != digest(2**63 + 1)


@for_each_row(
    "value",
    [object(), {"a": {1}}, {1: 2}, [float("nan")], float("-inf"), "\ud800", {"\udfff": 1}, [10**5_000]],
)
def test_what_is_not_json_has_no_canonical_text(value: Json) -> None:
    with pytest.raises(ContractRefused):
        exact_canonical(value)


def test_sharing_parts_of_the_input_is_safe() -> None:
    shared: Json = {"type": "array"}
    schema = {"type": "object", "properties": {"a": shared, "b": shared}}
    assert with_min_items(schema)["properties"] == {"a": {"type": "array", "minItems": 0}} | {
        "b": {"type": "array", "minItems": 0}
    }
    assert shared == {"type": "array"}
