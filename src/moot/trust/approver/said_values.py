"""What people said lately, for calls of which they said every value: those need no look at anything else.

What a person said as a whole is theirs, whatever others wrote (decision 0179). So many calls are judged by
the chats of people alone, and what agents and tools sent is read only when a call has another value. Of the
chats, only those are read in which a value of the call stands letter by letter: most are never read at all.
Where a context is cleared all is forgotten. Who needs more than is kept here is found in the whole memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
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
CLEARING: Final = frozenset({"participant/clear", "participant/status"})
_NO_VALUES: Final = frozenset({"", "true", "false", "null"})


class SaidValues:
    """The chats of people. `whole` is the memory of everything, which knows what was rejected."""

    def __init__(self, whole: Callable[[], OriginMemory]) -> None:
        self._whole = whole
        # The latest message that the whole memory forgot unread: what is older is not known here either.
        self.forgotten: Envelope | None = None
        self._begin()

    def _begin(self) -> None:
        # Chats in their order, and their texts as they are compared, of those that a call has come after. Of
        # the older ones all are dropped at once.
        self._older: list[tuple[Envelope, float]] = []
        self._newer: list[tuple[Envelope, float]] = []
        self._texts: dict[str, str] = {}
        self._newer_bytes = 0
        # The chats that were read for the last call: the next one often has its values from the same.
        self._read: list[str] = []
        self._memory = OriginMemory()

    def keep(self, envelope: Envelope, at: float) -> None:
        """Keep a chat of a person."""
        self._newer.append((envelope, at))
        self._newer_bytes += len(envelope.raw)
        if self._newer_bytes > MAX_SAID_BYTES // 2:
            self._older, self._newer, self._newer_bytes, self._texts = self._newer, [], 0, {}

    def forget_if_cleared(self, envelope: Envelope) -> None:
        """Whose context was cleared was told nothing before; for all others it is in the whole memory."""
        if envelope.kind == "participant/clear" or envelope.payload.get("messages_in_context") == 0:
            self._begin()

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
        self._drop_forgotten()
        chosen: dict[str, tuple[Envelope, float]] = {}
        for value in values:
            found = next((each for each in self._latest() if self._has(value, each[0])), None)
            if found is None:
                return False
            chosen[found[0].id] = found
        task = next((each for each in self._latest() if agent in each[0].to), None)
        task = task or next((each for each in self._latest() if not each[0].to), None)
        if task is not None:
            chosen[task[0].id] = task
        if sum(len(envelope.raw) for envelope, _ in chosen.values()) > MAX_READ_BYTES:
            return False
        ids = sorted(chosen)
        if ids != self._read:
            self._read, self._memory = ids, OriginMemory()
            for envelope, at in sorted(chosen.values(), key=lambda each: each[1]):
                self._memory.see(envelope, person=True, at=at)
        return True

    def _latest(self) -> Iterator[tuple[Envelope, float]]:
        return chain(reversed(self._newer), reversed(self._older))

    def _has(self, value: str, envelope: Envelope) -> bool:
        """Whether this stands in a chat, and not only inside of a longer word where it is first and last."""
        text = self._texts.get(envelope.id)
        if text is None:
            said = envelope.payload.get("text")
            text = self._texts[envelope.id] = fold_strictly(said) if isinstance(said, str) else ""
        return value in text and any(
            not (text[at - 1 : at].isalnum() or text[at + len(value) : at + len(value) + 1].isalnum())
            for at in (text.find(value), text.rfind(value))
        )

    def _drop_forgotten(self) -> None:
        for kept in (self._older, self._newer) if self.forgotten is not None else ():
            until = next((at for at, each in enumerate(kept, 1) if each[0] is self.forgotten), 0)
            if until and kept is self._newer:
                self._older = []
                self._newer_bytes -= sum(len(envelope.raw) for envelope, _ in kept[:until])
            for envelope, _ in kept[:until]:
                self._texts.pop(envelope.id, None)
            del kept[:until]
        self.forgotten = None

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
