"""Patterns and bounds that chance made, held against a regular-expression engine that is not ours."""

from __future__ import annotations

import json
import random
import re

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.grammar.language.automata import matches
from moot.xprotocol.grammar.language.pattern_search import search_language
from moot.xprotocol.grammar.language.regex import PatternUnsupported
from tests.examples import examples
from tests.xprotocol.grammar.checking import assert_exact
from tests.xprotocol.grammar.judges import LlamaCpp

_ATOMS = [
    "a",
    "b",
    "-",
    ".",
    r"\d",
    r"\w",
    r"\s",
    "[ab]",
    "[^a]",
    r"[^\w]",
    "[a-c-]",
    r"\.",
    "é",
    '"',
    r"\\",
    r"\W",
]
_TEXTS = ["a", "b", "c", "-", "1", " ", "é", '"', "\\", "\n", ".", "_"]


def chance_pattern(chance: random.Random, depth: int = 0) -> str:
    """A pattern of a few parts, anchored or not, at times with an assertion at an end."""
    body = _branch(chance, depth)
    if depth == 0:
        body = (
            chance.choice(["^", "", "^", "^(?!a)", "^(?=.*b)", r"\b"])
            + body
            + chance.choice(["$", "", "$", "(?<!-)$"])
        )
    return body


def _branch(chance: random.Random, depth: int) -> str:
    parts = []
    for _ in range(chance.choice([1, 2, 2, 3])):
        if depth < 2 and chance.random() < 0.3:
            inner = "|".join(_branch(chance, depth + 1) for _ in range(chance.choice([1, 2, 3])))
            part = f"(?:{inner})"
        else:
            part = chance.choice(_ATOMS)
        parts.append(part + chance.choice(["", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"]))
    return "".join(parts)


def check_pattern(seed: int, *, texts: int = 40) -> bool:
    """Whether the pattern of this seed could be read; where it could, it must agree with the other engine."""
    chance = random.Random(seed)
    pattern = chance_pattern(chance)
    schema: Json = {"type": "string", "pattern": pattern}
    if chance.random() < 0.4:
        schema["maxLength"] = chance.choice([1, 2, 3, 5])
    if chance.random() < 0.2:
        schema["minLength"] = chance.choice([1, 2, 4])
    try:
        language = search_language(pattern)
    except PatternUnsupported:
        return False
    samples = ["".join(chance.choices(_TEXTS, k=chance.randint(0, 6))) for _ in range(texts)]
    # Beside \b we keep to what no engine doubts, and é is doubtful.
    samples = [text for text in samples if text.isascii() or r"\b" not in pattern]
    found = {text: is_found(pattern, text) for text in samples}
    for text in samples:
        assert matches(language, text) == found[text], (pattern, text)
    low, high = schema.get("minLength", 0), schema.get("maxLength", 9)
    valid = {text: found[text] and low <= len(text) <= high for text in samples}
    if any(valid.values()):
        grammar = compile_grammar(schema)
        assert grammar.exactness == "exact" or "too large" in grammar.notes[0], grammar.notes
        engine = LlamaCpp(grammar.text)
        for text in samples:
            if grammar.exactness == "exact" or valid[text]:
                assert engine.accepts(json.dumps(text)) == valid[text], (schema, text)
    return True


def is_found(pattern: str, text: str) -> bool:
    """What another engine says: jsonschema_rs, but for lookarounds, where it takes an engine that differs."""
    if any(sign in pattern for sign in ("(?=", "(?!", "(?<", r"\b")):
        # Python's `$` also matches before a last new line; word characters are ASCII in ECMA-262.
        return re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    return jsonschema_rs.is_valid({"pattern": pattern}, text)


def test_patterns_mean_what_they_mean_elsewhere() -> None:
    """A few of them; the soak has the many."""
    read = sum(check_pattern(seed) for seed in range(10))
    assert read >= 6


@settings(max_examples=examples(10), deadline=None)
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_can_be_a_listed_value_and_a_name(value: str, name: str) -> None:
    schema = {"type": "object", "properties": {name: {"const": value}}, "required": [name]}
    texts = [json.dumps({name: value}), json.dumps({name: value}, ensure_ascii=False)]
    assert_exact(schema, texts, not_=[json.dumps({name: f"{value}x"}), json.dumps({f"{name}x": value})])


@settings(max_examples=examples(10), deadline=None)
@given(
    st.lists(st.text(alphabet='ab\\"é', max_size=4), unique=True, max_size=5),
    st.text(alphabet='ab\\"é', max_size=4),
)
def test_an_undeclared_name_is_any_name_but_the_declared_ones(declared: list[str], other: str) -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": "null"} for name in declared},
        "additionalProperties": {"type": "integer"},
    }
    taken = [json.dumps({name: 1}) for name in declared]
    free = [json.dumps({other: 1})] if other not in declared else []
    assert_exact(schema, ["{}", *free], not_=taken)
