"""Whole tool schemas, ours, real ones and those that chance made, judged by llama.cpp and llguidance."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS
from tests.xprotocol.grammar.derivations import Derivations
from tests.xprotocol.grammar.grammar_soak import chance_schema
from tests.xprotocol.grammar.instances import validator
from tests.xprotocol.grammar.samples import SAMPLES, real_tools
from tests.xprotocol.grammar.trials import try_schema

# Of some thousand real tools each so many-th; all of them are in `python -m bench.grammar`.
EVERY = 15


def some_tools() -> list[tuple[str, Json]]:
    """Real tools if there are any, otherwise our sample alone."""
    return real_tools()[::EVERY] or list(SAMPLES.items())


@for_each_row("name", SAMPLES)
def test_our_sample_is_right_in_both_engines(name: str) -> None:
    trial = try_schema(SAMPLES[name], seed=1, values=12, spoilt=16, texts=30)
    assert trial.loaded == {"llama.cpp", "llguidance"}
    assert trial.faults == []
    assert (trial.verdict == "superset") == (name in ("unique", "malformed"))


@pytest.mark.requirement("XP-11.3-11")
def test_real_tools_load_and_are_right_in_both_engines() -> None:
    tools = some_tools()
    if not real_tools():
        print("no real tools at hand: this is our own sample")
    for number, (name, schema) in enumerate(tools):
        trial = try_schema(schema, seed=number, values=2, spoilt=3, texts=3)
        assert trial.verdict != "rejected", (name, trial.reason)
        assert trial.faults == [], name


@pytest.mark.requirement("XP-4.4-4")
def test_a_thousand_random_texts_of_exact_grammars_all_validate() -> None:
    """D-66: what an exact grammar lets a model write is a valid call."""
    derived = 0
    exact = [(schema, compile_grammar(schema)) for _, schema in [*SAMPLES.items(), *some_tools()[:60]]]
    exact = [(schema, grammar) for schema, grammar in exact if grammar.exactness == "exact"]
    each = 1_000 // len(exact) + 1
    for number, (schema, grammar) in enumerate(exact):
        truth = validator(schema)
        assert truth is not None
        derivations = Derivations(grammar.text, seed=number)
        for _ in range(each):
            text = derivations.text()
            assert truth.is_valid(json.loads(text)), text
            derived += 1
    assert derived >= 1_000


def test_schemas_that_chance_made_are_right_in_both_engines() -> None:
    for seed in range(60):
        assert chance_schema(seed) == []


_DIGEST = """
import hashlib, json, sys
from moot.xprotocol.grammar import compile_grammar
from tests.waiting import HANG_SECONDS
for line in sys.stdin:
    grammar = compile_grammar(json.loads(line))
    print(hashlib.sha256(repr(grammar).encode()).hexdigest())
"""


def test_the_same_bytes_in_processes_with_other_hash_seeds() -> None:
    schemas = [*SAMPLES.values(), *(schema for _, schema in some_tools())]
    lines = "".join(json.dumps(schema) + "\n" for schema in schemas)
    here = [hashlib.sha256(repr(compile_grammar(schema)).encode()).hexdigest() for schema in schemas]
    for seed in ("1", "2"):
        there = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _DIGEST],
            input=lines,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_SECONDS,
        )
        assert there.stdout.split() == here


def test_descriptions_and_other_annotations_change_nothing() -> None:
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    wordy = {
        **plain,
        "title": "A tool",
        "properties": {
            "a": {"type": "string", "description": "…", "examples": ["x"], "default": "y", "x-order": 1}
        },
    }
    assert compile_grammar(plain) == compile_grammar(wordy)


def test_every_grammar_is_in_the_portable_subset() -> None:
    """`Derivations` reads nothing else: small names, no empty alternative, no `\\u`, 1,900 repetitions."""
    for seed, (_, schema) in enumerate(some_tools()):
        try:
            Derivations(compile_grammar(schema).text, seed)
        except GrammarRefused as refused:
            pytest.fail(refused.reason)


def test_names_of_properties_make_no_name_of_a_rule_that_an_engine_keeps_for_itself() -> None:
    words = [
        "root",
        "start",
        "true",
        "false",
        "string",
        "ws",
        "value",
        "number",
        "char",
        "1st",
        "_",
        "A_b",
        "a-b",
        "a b",
        "ß",
    ]
    schema = _nest({word: {"type": "array", "items": {"enum": [word, 1]}} for word in words})
    trial = try_schema(schema, seed=3)
    assert trial.faults == []


def _nest(properties: dict[str, Json]) -> Json:
    inner = {"type": "object", "properties": properties}
    return {"type": "object", "properties": {**properties, "inner": inner}}
