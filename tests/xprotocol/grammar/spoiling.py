"""Values made a little wrong: a member less, a number too much, another type."""

from __future__ import annotations

import random
from typing import Any

from moot.protocol.operation import Json

SCALARS: list[Json] = [
    *(None, True, False, 0, 1, -1, 42, 10**20, 0.5, -3.25, 1e-07, 2.5e-300),
    *("", "text", "é", [], {}, [1, "a"], {"k": None}),
]


def spoil(value: Json, chance: random.Random, depth: int = 0) -> Json:
    """The value with one change somewhere; it may be changed in place."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value)
    elif isinstance(value, list):
        inner = list(range(len(value)))
    if inner and depth < 6 and chance.random() < 0.6:
        at = chance.choice(inner)
        value[at] = spoil(value[at], chance, depth + 1)
        return value
    match value:
        case dict():
            return _object(value, chance)
        case list():
            return _array(value, chance)
        case str():
            return _string(value, chance)
        case bool() | None:
            return chance.choice(SCALARS)
        case int() | float() if chance.random() < 0.7:
            return value + chance.choice([1, -1, 0.5, -0.5, 1000, -1000, 1e12, -1e12])
    return chance.choice(SCALARS)


def _object(value: dict[str, Json], chance: random.Random) -> Json:
    pick = chance.random()
    if value and pick < 0.4:
        del value[chance.choice(list(value))]
        return value
    if pick < 0.6:
        name = chance.choice(["zz_extra", "", *(f"{name}_" for name in value)])
        value[name] = chance.choice(SCALARS)
        return value
    return chance.choice(SCALARS)


def _array(value: list[Json], chance: random.Random) -> Json:
    pick = chance.random()
    if value and pick < 0.3:
        value.pop()
        return value
    if pick < 0.6:
        return value + [chance.choice(value or SCALARS)] * chance.choice([1, 2, 30])
    return chance.choice(SCALARS)


def _string(value: str, chance: random.Random) -> Json:
    pick = chance.random()
    if pick < 0.3:
        return value[:-1] if value else "x"
    if pick < 0.6:
        return value + chance.choice(["x", "-", '"', "\n", "Z" * 40])
    if pick < 0.75 and value:
        at = chance.randrange(len(value))
        return value[:at] + chance.choice("aZ0 -_.") + value[at + 1 :]
    return chance.choice(SCALARS)
