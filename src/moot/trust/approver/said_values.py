"""What people said lately, for calls of which they said every value: those need no look at anything else.

What a person said as a whole is theirs, whatever others wrote (decision 0179). So many calls are judged by
the chats of people alone, and what agents and tools sent is read only when a call has another value. Of the
chats, only those are read in which a value of the call stands letter by letter: most are never read at all.
Where a context is cleared all is forgotten. Who needs more than is kept here is found in the whole memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moot.origins.argument_origins import text_of_leaf
from moot.origins.call_leaves import call_leaves
from moot.origins.origin_call import ArgumentOrigin, OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_verdict import OriginVerdict, verdict_on
from moot.origins.result_parts import leaves_of
from moot.origins.step_budget import VERDICT_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import compose, fold_strictly
from moot.origins.value_keys import TARGETS, values_in
from moot.protocol.envelope import Envelope

# Of chats that are kept, and of those that are read for one call.
MAX_SAID_BYTES: Final = 500_000
MAX_READ_BYTES: Final = 16 << 10
# Values of a call: each is looked for in all that is kept.
MAX_VALUES: Final = 16
_NO_VALUES: Final = frozenset({"", "true", "false", "null"})


class SaidValues:
    """The chats of people. `whole` is the memory of everything, which knows what was rejected."""

    def __init__(self, whole: Callable[[], OriginMemory]) -> None:
        self._whole = whole
        self._begin()

    def _begin(self) -> None:
        # Chats in their order, and their texts as they are compared, of those that a call has come after.
        self._chats: list[tuple[Envelope, float]] = []
        self._texts: list[str] = []
        self._bytes = 0
        # The chats that were read for the last call: the next one often has its values from the same.
        self._read: list[str] = []
        self._memory = OriginMemory()

    def see(self, envelope: Envelope, *, person: bool, at: float) -> None:
        if envelope.kind == "chat":
            if person:
                self._chats.append((envelope, at))
                self._bytes += len(envelope.raw)
                if self._bytes > MAX_SAID_BYTES:
                    self._drop((len(self._chats) + 1) // 2)
        elif envelope.kind == "participant/clear" or (
            envelope.kind == "participant/status" and envelope.payload.get("messages_in_context") == 0
        ):
            # Whose context was cleared was told nothing before.
            self._begin()

    def forget(self, envelope: Envelope) -> None:
        """What the whole memory forgets unread is not known here either."""
        if self._chats and self._chats[0][0] is envelope:
            self._drop(1)

    def _drop(self, count: int) -> None:
        self._bytes -= sum(len(envelope.raw) for envelope, _ in self._chats[:count])
        del self._chats[:count], self._texts[:count]

    def verdict_on(self, call: OriginCall, now: float) -> OriginVerdict | None:
        """That a call asks for nothing; None if other messages have to be looked at."""
        texts = [text_of_leaf(leaf.value) for leaf in call_leaves(call.arguments, call.schema)]
        wanted = [fold_strictly(text) for text in texts if text not in _NO_VALUES]
        if not wanted or len(wanted) > MAX_VALUES or not self._read_chats(wanted, call.agent):
            return None
        found = verdict_on(self._memory, call, now)
        values = [each for each in found.arguments if each.steers or each.value not in _NO_VALUES]
        is_said = not found.asks and values and all(map(_is_said_as_a_whole, values))
        return found if is_said and not self._is_rejected(call, now) else None

    def _read_chats(self, values: list[str], agent: str) -> bool:
        """Read the latest chat with each of these, and the one that began the task; whether all are said."""
        for envelope, _ in self._chats[len(self._texts) :]:
            text = envelope.payload.get("text")
            self._texts.append(fold_strictly(text) if isinstance(text, str) else "")
        latest = range(len(self._chats) - 1, -1, -1)
        places = {next((at for at in latest if _stands_in(value, self._texts[at])), -1) for value in values}
        if -1 in places:
            return False
        tos = ((at, self._chats[at][0].to) for at in latest)
        task = next((at for at, to in tos if agent in to), None)
        if task is None:
            task = next((at for at in latest if not self._chats[at][0].to), None)
        chosen = [self._chats[at] for at in sorted(places if task is None else {*places, task})]
        if sum(len(envelope.raw) for envelope, _ in chosen) > MAX_READ_BYTES:
            return False
        ids = [envelope.id for envelope, _ in chosen]
        if ids != self._read:
            self._read, self._memory = ids, OriginMemory()
            for envelope, at_time in chosen:
                self._memory.see(envelope, person=True, at=at_time)
        return True

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


def _stands_in(value: str, text: str) -> bool:
    """Whether this stands in a text, and not only inside of a longer word where it is first and last."""
    for at in {text.find(value), text.rfind(value)} - {-1}:
        end = at + len(value)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
    return False


def _is_said_as_a_whole(each: ArgumentOrigin) -> bool:
    if each.origin != "person" or each.place is None:
        return False
    return fold_strictly(each.value) in fold_strictly(each.place.text)
