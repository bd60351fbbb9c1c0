"""Versions from a registry of earlier definitions (Appendix B, D-71)."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.contracts.versions import (
    EMPTY,
    VersionDefinition,
    VersionRegistry,
    change_between,
    invalidated,
    load_registry,
    members,
    plain_schema,
    raised,
    required_members,
    save_registry,
)
from moot.xprotocol.translation.content_check import check_schema
from tests.examples import examples
from tests.rows import for_each_row
from tests.xprotocol.contracts.schema_strategies import changed, schemas, values

KIND = "com.acme.filesystem.read_file"
PAYLOAD: Json = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "where"},
        "depth": {"type": "integer", "default": 1},
    },
    "required": ["path"],
}


def definition(payload: Json = PAYLOAD, **more: Json) -> VersionDefinition:
    words: Json = {
        "description": "Read a file",
        "response": {},
        "required_capability": "com.acme.filesystem.read",
    }
    return VersionDefinition(payload=payload, **(words | more))


def next_version(old: VersionDefinition, new: VersionDefinition) -> str:
    first = EMPTY.registered({KIND: old})
    assert first.versions[KIND] == "1.0.0"
    return first.registry.registered({KIND: new}).versions[KIND]


def payload(**changes: Json) -> Json:
    return PAYLOAD | changes


def with_property(name: str, schema: Json) -> Json:
    return payload(properties=PAYLOAD["properties"] | {name: schema})


@pytest.mark.requirement("XP-B-5", "XP-4.1-3")
def test_what_was_never_seen_is_1_0_0() -> None:
    found = EMPTY.registered({KIND: definition(), "other": definition()})
    assert dict(found.versions) == {KIND: "1.0.0", "other": "1.0.0"}
    assert [(change.kind, change.level) for change in found.changes] == [(KIND, None), ("other", None)]


def test_what_did_not_change_keeps_its_version() -> None:
    first = EMPTY.registered({KIND: definition()})
    again = first.registry.registered({KIND: definition()})
    assert (dict(again.versions), again.changes, again.registry) == ({KIND: "1.0.0"}, (), first.registry)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(definition(description="Read one file"), marks=pytest.mark.requirement("XP-B-6")),
        definition(with_property("path", {"type": "string", "description": "the way to it"})),
        definition(payload(title="Reading")),
        definition(payload(properties=dict(reversed(PAYLOAD["properties"].items())))),
        definition(semantic={"use_when": "now"}),
        definition(
            payload(properties={"path": {"type": "string"}, "depth": {"type": "integer", "default": 1}})
        ),
    ],
)
def test_other_words_raise_the_patch(new: VersionDefinition) -> None:
    assert next_version(definition(), new) == "1.0.1"


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(with_property("limit", {"type": "integer"}), marks=pytest.mark.requirement("XP-B-7")),
        with_property("depth", {"type": ["integer", "null"]}),
        with_property("depth", {"type": "number"}),
        with_property("depth", {"type": "integer", "default": 2}),
        with_property("depth", {}),
        with_property("depth", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        with_property("options", {"type": "object", "required": ["x"], "properties": {"x": {}}}),
        payload(additionalProperties=True),
        {
            "$defs": {"path": {"type": "string"}},
            **with_property("path", {"$ref": "#/$defs/path"}),
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        },
    ],
)
def test_what_only_adds_raises_the_minor(new: Json) -> None:
    assert next_version(definition(), definition(new)) == "1.1.0"


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(payload(required=["path", "depth"]), marks=pytest.mark.requirement("XP-B-8")),
        pytest.param(payload(required=[]), marks=pytest.mark.requirement("XP-B-8")),
        pytest.param(
            payload(properties={"depth": {"type": "integer"}}, required=[]),
            marks=pytest.mark.requirement("XP-B-8"),
        ),
        payload(required=["path", "new"], properties=PAYLOAD["properties"] | {"new": {"type": "string"}}),
        payload(properties={"path": {"type": "string"}}),
        payload(additionalProperties=False),
        with_property("path", {"type": "integer"}),
        with_property("path", {"type": "string", "enum": ["a"]}),
        with_property("path", {"type": "string", "maxLength": 10}),
        with_property("path", {"type": "string", "pattern": "^/"}),
        with_property("path", {"type": "string", "format": "uri"}),
        with_property("depth", {"type": "integer", "minimum": 0}),
        with_property("depth", {"type": "integer", "not": {"const": 3}}),
        payload(minProperties=2),
        payload(dependentRequired={"depth": ["path", "x"]}),
        payload(**{"if": {"required": ["depth"]}, "then": {"required": ["x"]}}),
        payload(allOf=[{"required": ["depth"]}]),
        payload(patternProperties={"^p": {"type": "integer"}}),
        payload(propertyNames={"maxLength": 3}),
        False,
    ],
)
def test_what_an_old_caller_may_trip_over_raises_the_major(new: Json) -> None:
    assert next_version(definition(), definition(new)) == "2.0.0"


def test_a_new_right_that_callers_need_raises_the_major() -> None:
    assert next_version(definition(), definition(required_capability="com.acme.filesystem.admin")) == "2.0.0"


def test_answers_are_compared_the_other_way_round() -> None:
    """Whoever reads an answer knows the old schema."""
    old = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    more = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {}}, "required": ["n"]}
    less = {"type": "object", "properties": {"n": {"type": "integer"}}}
    other = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
    narrower = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}
    for new, version in ((more, "1.1.0"), (narrower, "1.1.0"), (less, "2.0.0"), (other, "2.0.0")):
        assert next_version(definition(response=old), definition(response=new)) == version


@for_each_row(
    ("old", "new"),
    [
        ({"enum": ["a", "b"]}, {"enum": ["b", "a", "c"]}),
        (
            {"type": "integer", "minimum": 3, "exclusiveMaximum": 5},
            {"type": "integer", "minimum": 3, "exclusiveMaximum": 6},
        ),
        ({"type": "number", "exclusiveMinimum": 3}, {"type": "number", "minimum": 3}),
        ({"enum": ["a", 1]}, {"type": ["string", "integer"]}),
        ({"const": 3}, {"type": "integer", "minimum": 3}),
        ({"type": "integer", "minimum": 3}, {"type": "number", "exclusiveMinimum": 2}),
        ({"type": "integer", "multipleOf": 6}, {"type": "integer", "multipleOf": 3}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null", "integer"]}),
        (
            {"oneOf": [{"type": "string"}, {"type": "null"}]},
            {"oneOf": [{"type": "null"}, {"type": "string"}]},
        ),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string", "maxLength": 4}),
        ({"type": "boolean"}, {"enum": [True, False, None]}),
        ({"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "number"}}),
        ({"type": "array", "maxItems": 3, "minItems": 2}, {"type": "array", "maxItems": 3, "minItems": 0}),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "properties": {"x": {"const": 1}}},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {
                "type": "object",
                "additionalProperties": {"type": "number"},
                "properties": {"x": {"type": "number"}},
            },
        ),
        (False, {"type": "string"}),
        ({"type": "string"}, True),
        ({"not": {"type": "string"}}, {"not": {"type": "string"}, "title": "x"}),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"},
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"},
        ),
    ],
)
def test_widening_is_recognised(old: Json, new: Json) -> None:
    assert invalidated(old, new) is None


@for_each_row(
    ("old", "new"),
    [
        # Declared in one alternative only, and still something that callers send.
        (
            {"anyOf": [{"properties": {"x": {"type": "string"}}}, {}]},
            {"properties": {"x": {"type": "integer"}}},
        ),
        ({"required": ["x"]}, {"properties": {"x": {"type": "string"}}, "required": ["x"]}),
        (
            {"type": "object", "additionalProperties": True},
            {"type": "object", "properties": {"x": {"type": "null"}}},
        ),
        ({"oneOf": [{"minimum": 1}]}, {"oneOf": [{"minimum": 1}, {"maximum": 5}]}),
        # A neighbour of $ref counts for nothing up to draft 7.
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$defs": {"s": {"type": "string"}},
                "properties": {"a": {"$ref": "#/$defs/s", "maxLength": 3}},
            },
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"a": {"type": "string", "maxLength": 3}},
            },
        ),
        ({"type": "number", "minimum": 3}, {"type": "number", "exclusiveMinimum": 3}),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"a": {"prefixItems": [{}]}},
            },
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        ),
        # Draft 4 knows no const.
        ({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}, {"enum": [1]}),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{"type": "string"}]},
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]},
        ),
    ],
)
def test_traps_count_as_broken(old: Json, new: Json) -> None:
    assert invalidated(old, new) is not None


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.data())
def test_what_is_not_major_takes_everything_that_was_taken(data: st.DataObject) -> None:
    """The law of D-71: an old payload that can be invalid now means a new major version."""
    old = data.draw(schemas())
    new = data.draw(changed(old) if data.draw(st.integers(0, 4)) else schemas())
    for schema in (old, new):
        try:
            check_schema(schema, "schema")
        except ContractRefused:
            assume(False)
    found = change_between(definition(old), definition(new))
    assume(found is None or found[0] != "major")
    before, after = Validator(old), Validator(new)
    for _ in range(4):
        value = data.draw(values(old))
        assert not before.accepts(value) or after.accepts(value), value


@settings(max_examples=examples(15), deadline=None)
@given(schemas(), schemas())
def test_a_schema_never_breaks_itself_and_alternatives_only_widen(one: Json, other: Json) -> None:
    assert invalidated(one, one) is None
    assert change_between(definition(one), definition(one)) is None
    assert invalidated(one, {"anyOf": [other, one]}) is None
    assert invalidated({"allOf": [other, one]}, one) is None
    assert invalidated(one, True) is None


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(schemas(), min_size=1, max_size=6))
def test_versions_only_rise_and_survive_being_saved(history: list[Json]) -> None:
    registry, seen = EMPTY, (0, 0, 0)
    for schema in history:
        found = registry.registered({KIND: definition(schema)})
        version = tuple(int(number) for number in found.versions[KIND].split("."))
        assert version > seen if found.changes else version == seen
        seen, registry = version, load_registry(save_registry(found.registry))  # type: ignore[assignment]
        assert registry == found.registry


def test_a_kind_that_went_away_and_came_back_goes_on_where_it_was() -> None:
    first = EMPTY.registered({KIND: definition()}).registry
    without = first.registered({"other": definition()}).registry
    back = without.registered({KIND: definition(payload(required=[]))})
    assert back.versions[KIND] == "2.0.0"
    assert back.changes[0].reason == "/path is no longer required"


def test_raising() -> None:
    assert raised("1.2.3", "patch") == "1.2.4"
    assert raised("1.2.3", "minor") == "1.3.0"
    assert raised("1.2.3", "major") == "2.0.0"
    assert raised("9.9.99", "patch") == "9.9.100"


def test_a_saved_registry_is_the_same_text_whatever_the_order_and_keeps_large_numbers() -> None:
    large = definition({"type": "integer", "maximum": 2**70, "minimum": -(2**64)})
    one = EMPTY.registered({"b": large, "a": definition()}).registry
    other = EMPTY.registered({"a": definition(), "b": large}).registry
    assert save_registry(one) == save_registry(other)
    assert load_registry(save_registry(one)) == one
    # The order of members is what a grammar follows, so it is kept.
    kept = load_registry(save_registry(one)).entries["a"].definition.payload["properties"]
    assert list(kept) == ["path", "depth"]


@for_each_row(
    "saved",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format":"moot/contract-versions/2","entries":{}}',
        b'{"format":"moot/contract-versions/1"}',
        b'{"format":"moot/contract-versions/1","entries":{"a":{"version":"1.0.0"}}}',
        b'{"format":"moot/contract-versions/1","entries":[]}',
        json.dumps(
            {
                "format": "moot/contract-versions/1",
                "entries": {"a": {"version": "one", "definition": {}}},
            }
        ).encode(),
    ],
)
def test_what_is_no_registry_is_a_clear_mistake(saved: bytes) -> None:
    with pytest.raises(UsageError, match="registry"):
        load_registry(saved)


def test_a_version_that_is_none_is_a_clear_mistake() -> None:
    saved = save_registry(EMPTY.registered({KIND: definition()}).registry)
    for wrong in (b"1.0", b"1.0.0-beta", b"01.a.0", "१.0.0".encode()):
        with pytest.raises(UsageError, match=r"no version like"):
            load_registry(saved.replace(b"1.0.0", wrong, 1))


def test_members_are_found_through_references_items_and_alternatives() -> None:
    schema: Json = {
        "$defs": {"city": {"properties": {"name": {}}, "required": ["name"]}},
        "properties": {"home": {"$ref": "#/$defs/city"}, "visited": {"items": {"$ref": "#/$defs/city"}}},
        "anyOf": [{"required": ["home"]}, {"properties": {"x": {}}}],
    }
    assert members(schema) == {"/home", "/home/name", "/visited", "/visited[]/name", "/x"}
    assert required_members(schema) == {"/home", "/home/name", "/visited[]/name"}


def test_plain_schemas_have_their_references_written_out() -> None:
    schema: Json = {
        "$defs": {"s": {"type": "string", "title": "S"}},
        "properties": {
            "a": {"$ref": "#/$defs/s", "description": "d"},
            "b": {"$ref": "#/$defs/s", "maxLength": 2},
        },
    }
    assert plain_schema(schema) == {
        "properties": {"a": {"type": "string"}, "b": {"maxLength": 2, "allOf": [{"type": "string"}]}}
    }


def _holding(name: str, schema: Json) -> Json:
    return {"type": "object", "properties": {name: schema}, "required": [name]}


def test_comparing_is_bounded_whatever_the_alternatives() -> None:
    """Eight alternatives inside each other could be combined in millions of ways."""
    nested: Json = {"type": "string"}
    other: Json = {"type": "string", "maxLength": 5}
    for name in "abcdefgh":
        nested, other = (
            {"anyOf": [_holding(name, one), _holding(name * 2, one), one]} for one in (nested, other)
        )
    started = time.process_time()
    assert invalidated({"properties": {"p": nested}}, {"properties": {"p": other}}) is not None
    assert time.process_time() - started < 20


def test_the_registry_is_a_value() -> None:
    registry = VersionRegistry({})
    registry.registered({KIND: definition()})
    assert registry == EMPTY
