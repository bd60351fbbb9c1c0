"""The parts of learning, each of which `bench.automation` can leave out to see what it adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from moot.trust.learning import generalisation, learner, lessons, text_patterns
from moot.values.covers import cover_values
from moot.values.kinds import KINDS

# Module, name, and what stands in its place.
Part = tuple[object, str, object]


def _no_templates(*_: object, **__: object) -> list[object]:
    return []


def _without_kind(*kinds: str) -> Callable[..., Any]:
    def cover(kind: Any, *values: Any, **options: Any) -> Any:
        return [] if kind in kinds else cover_values(kind, *values, **options)

    return cover


def _narrow_only(kind: Any, *values: Any, **options: Any) -> Any:
    return cover_values(kind, *values, **{**options, "wide": False})


def _never_elements(_: object) -> None:
    return None


def _each_alone(rows: Sequence[generalisation.Row]) -> list[generalisation.Box]:
    return [tuple(frozenset({at}) for at in row) for row in rows]


WITHOUT: Final[dict[str, tuple[Part, ...]]] = {
    "templates": ((text_patterns, "cover_values", _no_templates),),
    **{f"{kind}": ((text_patterns, "cover_values", _without_kind(kind)),) for kind in KINDS},
    "ranges": ((generalisation, "MIN_NEW_NUMBERS", 10**9),),
    "lists": ((lessons, "_elements", _never_elements),),
    "joining": ((generalisation, "_joined", _each_alone),),
    "wide templates": ((text_patterns, "cover_values", _narrow_only),),
    "winning back": ((generalisation, "MIN_SINCE_REJECTION", 10**9),),
    "two numbers": ((generalisation, "MIN_TWO_NUMBERS", 10**9),),
    "larger limits": ((learner, "MORE_OFTEN", math.inf),),
}
