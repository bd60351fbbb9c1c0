"""References to parts with an address of their own, and `$dynamicRef`: all within the document."""

from __future__ import annotations

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from tests.xprotocol.grammar.checking import assert_exact


def test_a_part_is_found_by_its_address() -> None:
    schema: Json = {
        "$id": "https://example.org/schemas/root.json",
        "type": "object",
        "properties": {"a": {"$ref": "number.json"}, "b": {"$ref": "/schemas/number.json#/$defs/word"}},
        "$defs": {"n": {"$id": "number.json", "type": "integer", "$defs": {"word": {"type": "string"}}}},
    }
    assert_exact(schema, ['{"a":1,"b":"x"}'], not_=['{"a":"x"}', '{"b":1}'])


def test_references_inside_a_part_are_relative_to_it() -> None:
    """So is an anchor: the same name may stand in two parts."""
    schema: Json = {
        "$id": "https://example.org/root",
        "$ref": "one",
        "$defs": {
            "outer": {"$anchor": "it", "type": "null"},
            "one": {"$id": "one", "$ref": "#it", "$defs": {"inner": {"$anchor": "it", "type": "integer"}}},
        },
    }
    assert_exact(schema, ["1"], not_=["null", '"x"'])
    urn: Json = {
        "$id": "urn:example:root",
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "urn:example:root#b"}},
    }
    urn["$defs"]["b"] = {"$anchor": "b", "type": "boolean"}
    assert_exact(urn, ["true"], not_=["1"])


def test_an_address_in_a_listed_value_is_no_part() -> None:
    schema: Json = {"enum": [{"$id": "a", "type": "null"}], "$ref": "a"}
    with pytest.raises(GrammarRefused, match="leads out of the schema"):
        compile_grammar(schema)


def test_a_dynamic_reference_leads_to_the_outermost_part() -> None:
    schema: Json = {
        "$id": "https://example.org/strings",
        "$ref": "list",
        "$defs": {
            "here": {"$dynamicAnchor": "item", "type": "string"},
            "list": {
                "$id": "list",
                "type": "array",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"there": {"$dynamicAnchor": "item", "type": "integer"}},
            },
        },
    }
    assert_exact(schema, ["[]", '["x"]'], not_=["[1]"])
    static: Json = {**schema, "$defs": {**schema["$defs"], "here": {"$anchor": "item", "type": "string"}}}
    assert_exact(static, ["[]", "[1]"], not_=['["x"]'])


def test_a_dynamic_reference_to_a_plain_anchor_is_a_plain_reference() -> None:
    """JSON Schema 2020-12, 8.2.3.2: the way there counts only if the first target has a `$dynamicAnchor`."""
    schema: Json = {
        "$id": "https://example.org/root",
        "$dynamicAnchor": "it",
        "type": "object",
        "properties": {"a": {"const": "outer"}},
        "$ref": "inner",
        "$defs": {
            "inner": {
                "$id": "inner",
                "$anchor": "it",
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"$dynamicRef": "inner#it"}},
            },
        },
    }
    assert_exact(schema, ['{"a":"outer","b":{"a":"other"}}'], not_=['{"a":"other"}', '{"b":{"a":1}}'])


def test_what_is_elsewhere_or_endless_is_refused() -> None:
    for reference in ("https://example.org/other", "other.json", "http://[", "urn:example:x"):
        with pytest.raises(GrammarRefused, match=r"leads out of|no address"):
            compile_grammar({"$id": "https://example.org/root", "$ref": reference})
    with pytest.raises(GrammarRefused, match="longer than 2000 characters"):
        compile_grammar({"$id": "a" * 2_001, "type": "null"})
