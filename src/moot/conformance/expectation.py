"""The small language in which vectors say what a member hears.

An expected object is a subset: members that it does not name may be there. Lists have the same length.
Everything else is equal. Besides plain JSON there are:

    $any            something is there            $text         a non-empty string
    $absent         the member is not there       $time         an RFC 3339 timestamp
    $save:NAME      anything; remembered          {{NAME}}      what was remembered
    {$has: [...]}   a list that holds a match for each of these, in any order
    {$lacks: [...]} a list that holds no match for any of these
    {$not: X}       anything but X                {$contains: text}   a string with that in it
    {$exactly: X}   X and nothing more            {$without: text}    that stands nowhere in it
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from moot.errors import InvalidEnvelope
from moot.protocol.envelope import check_timestamp
from moot.protocol.operation import Json

Memory = dict[str, Json]

_NAMED: Final = re.compile(r"\{\{(\w+)\}\}")
_MISSING: Final = object()


def filled(value: Json, memory: Mapping[str, Json]) -> Json:
    """The value with every {{NAME}} replaced by what was remembered."""
    if isinstance(value, str):
        whole = _NAMED.fullmatch(value)
        if whole:
            return memory[whole[1]]
        return _NAMED.sub(lambda match: str(memory[match[1]]), value)
    if isinstance(value, list):
        return [filled(item, memory) for item in value]
    if isinstance(value, dict):
        return {filled(name, memory): filled(item, memory) for name, item in value.items()}
    return value


def difference(expected: Json, actual: Json, memory: Memory, path: str = "") -> str | None:
    """Where `actual` is not as expected, in words; None when it is. Remembers what $save asks for."""
    if isinstance(expected, str) and expected.startswith("$"):
        return _word(expected, actual, memory, path)
    if isinstance(expected, dict):
        operators = [name for name in expected if name.startswith("$")]
        if operators:
            return _operator(operators[0], expected[operators[0]], actual, memory, path)
        return _object(expected, actual, memory, path)
    expected = filled(expected, memory)
    if isinstance(expected, list):
        return _list(expected, actual, memory, path)
    same = type(expected) is type(actual) and expected == actual
    return None if same else f"{path or 'message'}: expected {expected!r}, got {_brief(actual)}"


def _object(expected: Mapping[str, Json], actual: Json, memory: Memory, path: str) -> str | None:
    if not isinstance(actual, dict):
        return f"{path or 'message'}: expected an object, got {_brief(actual)}"
    for name, item in expected.items():
        found = difference(item, actual.get(name, _MISSING), memory, f"{path}.{name}" if path else name)
        if found:
            return found
    return None


def _list(expected: list[Json], actual: Json, memory: Memory, path: str) -> str | None:
    if not isinstance(actual, list) or len(actual) != len(expected):
        return f"{path}: expected {len(expected)} entries {_brief(expected)}, got {_brief(actual)}"
    for index, (wanted, item) in enumerate(zip(expected, actual, strict=True)):
        found = difference(wanted, item, memory, f"{path}[{index}]")
        if found:
            return found
    return None


def _word(word: str, actual: Json, memory: Memory, path: str) -> str | None:
    there = actual is not _MISSING
    if word == "$absent":
        return f"{path}: expected nothing, got {_brief(actual)}" if there else None
    if not there:
        return f"{path}: is missing"
    if word == "$any":
        return None
    if word == "$text":
        return None if isinstance(actual, str) and actual else f"{path}: expected text, got {_brief(actual)}"
    if word == "$time":
        try:
            check_timestamp(actual)
        except InvalidEnvelope:
            return f"{path}: expected a timestamp, got {_brief(actual)}"
        return None
    if word.startswith("$save:"):
        memory[word.removeprefix("$save:")] = actual
        return None
    return f"{path}: the vector uses an unknown word {word}"


def _operator(name: str, operand: Json, actual: Json, memory: Memory, path: str) -> str | None:
    if name == "$not":
        same = difference(operand, actual, dict(memory), path) is None
        return f"{path}: must not be {_brief(operand)}" if same else None
    if name == "$contains":
        text = filled(operand, memory)
        fine = isinstance(actual, str) and text in actual
        return None if fine else f"{path}: expected text with {text!r}, got {_brief(actual)}"
    if name == "$exactly":
        wanted = filled(operand, memory)
        return (
            None
            if _same(wanted, actual)
            else f"{path}: expected exactly {_brief(wanted)}, got {_brief(actual)}"
        )
    if name == "$without":
        text = str(filled(operand, memory))
        there = actual is not _MISSING and text in json.dumps(actual, ensure_ascii=False)
        return f"{path}: {text!r} must not stand in {_brief(actual)}" if there else None
    if name not in ("$has", "$lacks"):
        return f"{path}: the vector uses an unknown operator {name}"
    if not isinstance(actual, list):
        return f"{path}: expected a list, got {_brief(actual)}"
    for wanted in operand:
        held = any(difference(wanted, item, memory, path) is None for item in actual)
        if held != (name == "$has"):
            return (
                f"{path}: {'lacks' if name == '$has' else 'must not hold'} {_brief(wanted)}: {_brief(actual)}"
            )
    return None


def _same(one: Json, other: Json) -> bool:
    """Equal as JSON, where 1 is not true."""
    if one is _MISSING or other is _MISSING:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _brief(value: Json) -> str:
    if value is _MISSING:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "…"
