"""Whether what several observers saw can have happened in one order that has all that was acknowledged."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def faults_of(
    histories: Mapping[str, Sequence[str]], acknowledged: Collection[str], *, whole: str | None = None
) -> list[str]:
    """What is wrong: something lost, doubled or in another order than an observer of everything saw it.

    `whole` names the observer that saw everything; the others may have come later or been away meanwhile.
    """
    faults = []
    for name, seen in histories.items():
        doubled = [each for each, count in Counter(seen).items() if count > 1]
        faults += [f"{name}: {each} twice" for each in doubled]
    reference = histories[whole] if whole is not None else max(histories.values(), key=len, default=())
    places = {each: place for place, each in enumerate(reference)}
    if whole is not None:
        faults += [f"lost: {each}" for each in acknowledged if each not in places]
    for name, seen in histories.items():
        known = [places[each] for each in seen if each in places]
        swapped = sum(later < earlier for earlier, later in itertools.pairwise(known))
        if swapped:
            faults.append(f"{name}: {swapped} in another order")
        if whole is not None:
            faults += [f"{name}: {each} was in no order" for each in seen if each not in places]
    return faults


def executions_of(requests: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many requests carry out each proposal, of those that one observer or one order has."""
    named = {each["id"]: each["correlation_id"][0] for each in requests}
    return dict(Counter(named.values()))
