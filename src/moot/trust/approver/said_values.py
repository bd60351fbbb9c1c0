"""What people said lately, for calls of which they said every value: those need no look at anything else.

What a person said as a whole is theirs, whatever others wrote (decision 0179). So many calls are judged by
the chats of people alone, and what agents and tools sent is read only when a call has another value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moot.origins.origin_call import ArgumentOrigin, OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_verdict import OriginVerdict, verdict_on
from moot.origins.result_parts import leaves_of
from moot.origins.step_budget import VERDICT_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import compose, fold_strictly
from moot.origins.value_keys import TARGETS, values_in
from moot.protocol.envelope import Envelope

# Half a megabyte of chats: who needs an older one is found in the whole memory.
MAX_SAID_CHARS: Final = 500_000
_NO_VALUES: Final = frozenset({"", "true", "false", "null"})


class SaidValues:
    """The chats of people. `whole` is the memory of everything, which knows what was rejected."""

    def __init__(self, whole: Callable[[], OriginMemory]) -> None:
        self._whole = whole
        self._memory = OriginMemory(max_chars=MAX_SAID_CHARS)

    def see(self, envelope: Envelope, *, person: bool, at: float) -> None:
        # Whose context was cleared was told nothing before.
        if envelope.kind.startswith("participant/") or (person and envelope.kind == "chat"):
            self._memory.see(envelope, person=person, at=at)

    def verdict_on(self, call: OriginCall, now: float) -> OriginVerdict | None:
        """That a call asks for nothing; None if other messages have to be looked at."""
        found = verdict_on(self._memory, call, now)
        values = [each for each in found.arguments if each.steers or each.value not in _NO_VALUES]
        is_said = not found.asks and values and all(map(_is_said_as_a_whole, values))
        return found if is_said and not self._is_rejected(call, now) else None

    def _is_rejected(self, call: OriginCall, now: float) -> bool:
        """Whether people rejected a call with one of these values, or may have."""
        whole, budget = self._whole(), StepBudget(VERDICT_STEPS)
        if not whole.has_rejections:
            return False
        try:
            for leaf in leaves_of(dict(call.arguments), ""):
                found = values_in(compose(leaf.text), now, budget)
                targets = [key[1] for key, _, _ in found if key[0] in TARGETS]
                if any(whole.rejected_at(text) >= 0 for text in (leaf.text, *targets)):
                    return True
        except BudgetSpent:
            return True
        return False


def _is_said_as_a_whole(each: ArgumentOrigin) -> bool:
    if each.origin != "person" or each.place is None:
        return False
    return fold_strictly(each.value) in fold_strictly(each.place.text)
