"""What the console computes before it asks the gateway, held against the code that the gateway runs."""

from __future__ import annotations

import random

import jsonschema_rs

from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.globs import glob
from tests.console.in_node import each_in_node, in_node

SEED = 20261115

CALL: dict[str, Json] = {
    "method": "tools/call",
    "params": {"name": "read_file", "arguments": {"path": "notes/a.txt", "n": 1, "deep": {"x": [1, "y"]}}},
}


def test_globs_match_in_the_browser_as_at_the_gateway() -> None:
    """D-11, on 4,000 pairs drawn from few signs so that many match."""
    draw = random.Random(SEED)

    def text(signs: str, most: int) -> str:
        return "".join(draw.choice(signs) for _ in range(draw.randint(0, most)))

    pairs: list[Json] = [[text("a/.*?", 6), text("a/.", 6)] for _ in range(4000)]
    answers = each_in_node("views/capabilities/capability-match.js", "([g, t]) => m.globMatches(g, t)", pairs)
    expected = [glob(pattern).matches(words) for pattern, words in pairs]
    assert [pair for pair, got, want in zip(pairs, answers, expected, strict=True) if got != want] == []
    assert 200 < sum(expected) < 3800


def exactly(arguments: Json) -> dict[str, Json]:
    return {"kind": "mcp/request", "payload": {"params": {"arguments": {"$exact": arguments}}}}


def test_a_right_is_never_said_to_allow_what_the_gateway_refuses() -> None:
    """ "perhaps" is allowed only where a pattern searches or an expression is not tried here."""
    cases: list[tuple[dict[str, Json], list[str], bool]] = [
        ({"kind": "*"}, ["files"], False),
        ({"kind": "mcp/*"}, ["files"], False),
        ({"kind": "mcp/request", "to": ["file*"]}, ["files"], False),
        ({"kind": "mcp/request", "to": ["files"]}, [], False),
        ({"kind": "mcp/request", "to": ["files"]}, ["files", "other"], False),
        ({"kind": ["chat", "mcp/request"]}, ["files"], False),
        ({"kind": "!chat"}, ["files"], False),
        ({"kind": "!"}, ["files"], False),
        ({"kind": "!!chat"}, ["files"], False),
        ({"kind": "! chat"}, ["files"], False),
        ({"kind": "!/chat/"}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"method": "tools/*"}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"params": {"name": "!write_*"}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"params": {"name": "/^read/"}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"params": {"name": "/(a|b)+c/"}}}, ["files"], True),
        ({"kind": "mcp/request", "payload": {"params": {"arguments": {"n": 1.0}}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"params": {"arguments": {"n": True}}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"params": {"arguments": {"n": "1"}}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"params": {"arguments": {"gone": "*"}}}}, ["files"], False),
        (
            {"kind": "mcp/request", "payload": {"params": {"arguments": {"deep": {"x": [1]}}}}},
            ["files"],
            False,
        ),
        (
            {"kind": "mcp/request", "payload": {"params": {"arguments": {"path": "notes/*"}}}},
            ["files"],
            False,
        ),
        ({"kind": "mcp/request", "payload": {"params": {"arguments": {"p*": "notes/*"}}}}, ["files"], True),
        (exactly({"path": "notes/a.txt", "deep": {"x": [1, "y"]}, "n": 1}), ["files"], True),
        (exactly({"path": "notes/a.txt"}), ["files"], False),
        ({"kind": "mcp/request", "payload": {"method": {"$exact": "tools/call"}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"method": {"$exact": "tools/*"}}}, ["files"], False),
        ({"kind": "mcp/request", "payload": {"$.params.name": "read_file"}}, ["files"], True),
        ({"kind": "mcp/request", "payload": {"**": {"name": "read_file"}}}, ["files"], True),
    ]
    answers = each_in_node(
        "views/capabilities/capability-match.js",
        "([c, p, to]) => m.matches(c, 'mcp/request', p, to)",
        [[capability, CALL, to] for capability, to, _ in cases],
    )
    for (capability, to, searches), answer in zip(cases, answers, strict=True):
        allows = read_capability(capability).matches("mcp/request", CALL, to)
        assert answer == ("perhaps" if searches else "yes" if allows else "no"), (capability, to)


def test_arguments_fit_a_schema_in_the_browser_as_they_do_elsewhere() -> None:
    schemas: list[dict[str, Json]] = [
        {"type": "integer", "minimum": 2, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
        {"type": "string", "minLength": 2, "maxLength": 3},
        {"type": "string", "pattern": "^a+$"},
        {"type": ["string", "null"]},
        {"enum": ["a", 1, None, {"x": 1}]},
        {"const": {"x": 1}},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]},
        {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]},
        {"allOf": [{"type": "object"}, {"required": ["x"]}]},
        {"not": {"type": "string"}},
        {"$ref": "#/$defs/t", "$defs": {"t": {"type": "string"}}},
        {
            "type": "object",
            "properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}},
            "required": ["v"],
        },
    ]
    values: list[Json] = [
        1, 2, 2.5, 7, 12, True, None, "", "a", "aaa", "ab", "aaaa", [], [1], [1, 1], [1, 2], ["a", 1],
        ["a", "b"], {}, {"a": "x"}, {"a": 1}, {"b": 1}, {"x": 1}, {"v": 1, "next": {"v": 2}},
        {"v": 1, "next": {}},
    ]  # fmt: skip
    cases: list[Json] = [[schema, value] for schema in schemas for value in values]
    answers = each_in_node(
        "views/tools/call-validation.js", "([s, v]) => m.validate(s, v).length === 0", cases
    )
    expected = [jsonschema_rs.is_valid(schema, value) for schema in schemas for value in values]
    assert [case for case, got, want in zip(cases, answers, expected, strict=True) if got != want] == []


def test_no_pattern_of_a_stranger_stalls_the_page() -> None:
    text = "a" * 1999 + "!"
    evil = [
        "^(a|a)*$",
        "a*a*a*$",
        "(a+)+$",
        "a?" * 60 + "a" * 60,
        "(a|a)" * 60 + "$",
        "(.*a){20}",
        "^(a{1,500}){1,500}$",
    ]
    rights: list[Json] = [[{"kind": "x", "payload": {"p": f"/{each}/"}}, {"p": text}] for each in evil]
    schemas: list[Json] = [[{"type": "string", "pattern": each}, text] for each in evil]
    # Any one of them alone would take longer than a life; the process is ended before.
    tried = in_node(
        """async (bring, [rights, schemas]) => {
            const { matches } = await bring("views/capabilities/capability-match.js");
            const { validate } = await bring("views/tools/call-validation.js");
            for (const [right, payload] of rights) matches(right, "x", payload, []);
            for (const [schema, value] of schemas) validate(schema, value);
            return rights.length + schemas.length;
        }""",
        [rights, schemas],
    )
    assert tried == 2 * len(evil)
