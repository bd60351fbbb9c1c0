"""One schema put to the test: compiled, loaded by both engines, tried with values and with its own texts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import jsonschema  # type: ignore[import-untyped]
import orjson

from moot.protocol.operation import Json
from moot.xprotocol.grammar import Grammar, GrammarRefused, compile_grammar
from tests.xprotocol.grammar.derivations import Derivations, NotPortable
from tests.xprotocol.grammar.instances import Instances, respelled, spellings, validator
from tests.xprotocol.grammar.judges import Judge, LlamaCpp, LlGuidance, NotLoaded

ENGINES: dict[str, type[LlamaCpp] | type[LlGuidance]] = {"llama.cpp": LlamaCpp, "llguidance": LlGuidance}


CHOICES = ("oneOf", "anyOf", "not is", "if, then", "patternProperties")
# The words by which notes name what they are about.
KEYWORDS = {
    *(
        "oneOf",
        "anyOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
    ),
    *(
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedProperties",
        "minItems",
        "maxItems",
        "unevaluatedItems",
    ),
    *("pattern", "format", "minLength", "maxLength", "multipleOf", "patternProperties"),
    *("minProperties", "maxProperties"),
}


@dataclass(slots=True)
class Trial:
    """What came out. `faults` are sentences; none of them means that the grammar is fully right."""

    verdict: Literal["exact", "superset", "rejected"]
    grammar: Grammar | None = None
    reason: str = ""
    loaded: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    # Texts that are no JSON at all; there must never be one.
    broken: list[str] = field(default_factory=list)
    accepted: int = 0
    refused: int = 0
    derived: int = 0
    has_truth: bool = True


def try_schema(schema: Json, seed: int, *, values: int = 6, spoilt: int = 8, texts: int = 12) -> Trial:
    try:
        grammar = compile_grammar(schema)
    except GrammarRefused as refused:
        return Trial("rejected", reason=refused.reason)
    trial = Trial(grammar.exactness, grammar)
    engines: dict[str, Judge] = {}
    for name, engine in ENGINES.items():
        try:
            engines[name] = engine(grammar.text)
            trial.loaded.add(name)
        except NotLoaded as error:
            trial.faults.append(f"{name} does not load it: {str(error)[:300]}")
    truth = validator(schema)
    trial.has_truth = truth is not None
    if truth is not None:
        _try_values(trial, grammar, engines, Instances(schema, truth, seed), values=values, spoilt=spoilt)
    _try_texts(trial, schema, grammar, engines, truth, seed, texts)
    return trial


def _try_values(
    trial: Trial,
    grammar: Grammar,
    engines: dict[str, Judge],
    samples: Instances,
    *,
    values: int,
    spoilt: int,
) -> None:
    good = samples.valid(values)
    keywords = json.dumps(samples.schema)
    exponents = '"multipleOf"' not in keywords
    for value in good:
        written = spellings(value)
        # To draft 4 only digits are an integer.
        if "draft-04" not in keywords:
            written["respelled"] = respelled(value, samples.random, exponents=exponents, shuffled=False)
        for spelling, text in written.items():
            for name, engine in engines.items():
                trial.accepted += 1
                if not _accepts(trial, name, engine, text):
                    trial.faults.append(f"{name} refuses a valid value ({spelling}): {text[:300]}")
    for value in samples.invalid(good, spoilt):
        text = respelled(value, samples.random, exponents=True, shuffled=True)
        if samples.truth.is_valid(json.loads(text)):
            continue
        words: set[str] = set()
        for error in samples.truth.iter_errors(value):
            words |= {str(error.kind.name), *(str(step) for step in error.schema_path)}
        # What the notes name is left to validation, by their own word; choices may be behind any of them.
        if any(word in note for word in CHOICES for note in grammar.notes):
            continue
        if any(word in note for word in words & KEYWORDS for note in grammar.notes):
            continue
        for name, engine in engines.items():
            trial.refused += 1
            if _accepts(trial, name, engine, text):
                trial.faults.append(
                    f"{name} accepts an invalid value ({', '.join(sorted(words))}): {text[:300]}"
                )


def second_opinion(schema: Json, value: Json) -> list[str]:
    """What another validator says against a value, where it does not read the standard in its own way.

    Its patterns are Python's, and it divides doubles.
    """
    judge = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    if any(f'"{word}"' in json.dumps(schema) for word in ("pattern", "patternProperties", "multipleOf")):
        return []
    try:
        found = [error.message for error in judge.iter_errors(value)]
    except RecursionError:
        return []
    return [f"jsonschema says: {message[:200]}" for message in found[:1]]


def _try_texts(
    trial: Trial,
    schema: Json,
    grammar: Grammar,
    engines: dict[str, Judge],
    truth: Any,
    seed: int,
    count: int,
) -> None:
    try:
        derivations = Derivations(grammar.text, seed)
    except NotPortable as error:
        trial.faults.append(f"not portable: {error}")
        return
    for _ in range(count):
        text = derivations.text()
        trial.derived += 1
        try:
            orjson.loads(text)
            value = json.loads(text)
        except ValueError as error:
            trial.broken.append(text)
            trial.faults.append(f"derives what is no JSON ({error}): {text[:300]}")
            continue
        if trial.verdict == "exact" and truth is not None and not truth.is_valid(value):
            why = next(iter(truth.iter_errors(value))).message
            trial.faults.append(f"derives an invalid value ({why[:200]}): {text[:300]}")
        if trial.verdict == "exact" and truth is not None:
            trial.faults += second_opinion(schema, value)
        for name, engine in engines.items():
            if not _accepts(trial, name, engine, text):
                trial.faults.append(f"{name} refuses its own text: {text[:300]}")


def _accepts(trial: Trial, name: str, engine: Judge, text: str) -> bool:
    try:
        return engine.accepts(text)
    except NotLoaded as error:
        trial.faults.append(f"{name} gives up: {str(error)[:200]}")
        return True
