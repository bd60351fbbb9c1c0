"""JSON-Schema-Test-Suite, run through grammars by llama.cpp and llguidance.

The suite is not ours: it comes in the source package of `jsonschema` from PyPI. Grammars promise values in a
documented form, members in the schema's order and no undeclared ones, so a valid value counts in any order of
its members, and only if the schema stays satisfied when nothing undeclared may stand in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations, product
from pathlib import Path

from moot.protocol.operation import Json
from moot.xprotocol.grammar import GrammarRefused, compile_grammar
from tests.xprotocol.grammar.instances import closed, validator
from tests.xprotocol.grammar.judges import judges

_PACKAGE = "jsonschema==4.26.0"
_DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
# What must be right, of all groups; those that refer to other documents are refused and count as wrong.
_AT_LEAST = 0.92
_ORDERS = 120


def run_schema_suite(_cases: int, _seed: int) -> str:
    """Raises if a grammar says more than it keeps, or if too few groups are right; gives back the figures."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for draft in _DRAFTS:
            verdicts = Counter(_verdict(draft, name, group) for name, group in _groups(Path(folder), draft))
            total = verdicts.total()
            share = verdicts["right"] / total
            if share < _AT_LEAST:
                raise AssertionError(f"{draft}: only {share:.1%} of {total} groups are right: {verdicts}")
            others = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items() if verdict != "right")
            lines.append(f"{draft}: {share:.1%} of {total} groups right ({others})")
    return "; ".join(lines)


def _groups(folder: Path, draft: str) -> Iterator[tuple[str, Json]]:
    if not any(folder.iterdir()):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run(  # noqa: S603
            [*command, "--dest", str(folder), _PACKAGE], check=True, timeout=300
        )
        with tarfile.open(next(folder.glob("*.tar.gz"))) as packed:
            packed.extractall(folder, filter="data")
    for file in sorted(folder.glob(f"*/json/tests/{draft}/*.json")):
        for group in json.loads(file.read_bytes()):
            yield f"{draft} {file.stem}: {group['description']}", group


def _verdict(draft: str, name: str, group: Json) -> str:
    schema = group["schema"]
    if isinstance(schema, dict):
        schema = {"$schema": _DRAFTS[draft], **schema}
    try:
        grammar = compile_grammar(schema)
    except GrammarRefused:
        return "refused" if any(case["valid"] for case in group["tests"]) else "right"
    promised = validator(closed(schema))
    wrong = None
    for case in group["tests"]:
        texts = [json.dumps(each, ensure_ascii=False) for each in islice(_orders(case["data"]), _ORDERS)]
        for engine, judge in judges(grammar.text).items():
            accepted = any(judge.accepts(text) for text in texts)
            if accepted and not case["valid"]:
                if grammar.exactness == "exact":
                    raise AssertionError(f"{name}: exact, but {engine} accepts {texts[0]}")
                wrong = "declared as wider"
            if case["valid"] and not accepted and (promised is None or promised.is_valid(case["data"])):
                raise AssertionError(f"{name}: {engine} refuses {texts[0]}, which the grammar promises")
    return wrong or "right"


def _orders(value: Json) -> Iterator[Json]:
    """The value with its members, and those within, in every order."""
    if isinstance(value, dict):
        for row in permutations(value.items()):
            for inner in product(*(list(islice(_orders(each), _ORDERS)) for _, each in row)):
                yield dict(zip((name for name, _ in row), inner, strict=True))
    elif isinstance(value, list):
        for items in product(*(list(islice(_orders(each), _ORDERS)) for each in value)):
            yield list(items)
    else:
        yield value
