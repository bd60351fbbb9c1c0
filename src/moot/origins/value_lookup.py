"""Who said one value, as far as one agent can have it from there: a person, a look-up, others, or nobody.

A value is a person's if they said exactly this; else an untrusted one if others wrote it, or a part of it,
in any spelling or encoding; else nobody's. What a person endorsed is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moot.origins.endorsement import Endorsement
from moot.origins.origin_call import ArgumentOrigin, OriginCall, PrivateText
from moot.origins.origin_memory import AgentContext, OriginMemory
from moot.origins.source_place import Grade, SourcePlace
from moot.origins.step_budget import VERDICT_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import compose, decoded, fold_strictly, unspell
from moot.origins.value_keys import TARGETS, FoundValue, Key, values_in


@dataclass(slots=True)
class ValueLookup:
    """For the values of one call. `now` bounds endorsements."""

    memory: OriginMemory
    call: OriginCall
    now: float
    private: dict[int, PrivateText] = field(default_factory=dict)
    budget: StepBudget = field(default_factory=lambda: StepBudget(VERDICT_STEPS))
    context: AgentContext = field(init=False)
    # Who endorsed a value, and who all that a source says.
    endorsed_values: dict[str, Endorsement] = field(init=False, default_factory=dict)
    endorsed_sources: dict[str, Endorsement] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.context = self.memory.context_of(self.call.agent)
        for each in self.memory.endorsements.values():
            if each.holds(task=self.context.task, member=self.call.agent, now=self.now):
                if each.value is not None:
                    self.endorsed_values[fold_strictly(each.value)] = each
                elif each.source is not None:
                    self.endorsed_sources[each.source] = each

    @property
    def clean(self) -> bool:
        """Whether this agent has read nothing that others wrote since its context was cleared."""
        return self.context.untrusted <= self.context.since and not self.misses_something

    @property
    def misses_something(self) -> bool:
        """Whether the agent may have read what is not in the memory (any more)."""
        return self.context.outside or self.memory.index.dropped > self.context.since

    def keyed(self, path: str, text: str, keys: list[Key]) -> ArgumentOrigin:
        found = self.memory.index.places(keys, self.context.since, self.call.agent)
        return self.found(path, text, found, is_address=keys[0][0] == "address")

    def found(
        self, path: str, text: str, found: Mapping[Grade, SourcePlace], *, is_address: bool = False
    ) -> ArgumentOrigin:
        """People before the operator, what others wrote before a look-up; if nobody has it: parts of it."""
        for grade in ("person", "operator"):
            if place := found.get(grade):
                return ArgumentOrigin(path, text, grade, place)
        if place := found.get("untrusted"):
            return self.by_others(path, text, place)
        if place := found.get("trusted"):
            if not is_address:
                self.note_private(place, len(text))
            return ArgumentOrigin(path, text, "trusted", place)
        return self.unsaid(path, text, unspell(text))

    def by_others(self, path: str, text: str, place: SourcePlace) -> ArgumentOrigin:
        by = self.endorsed_values.get(fold_strictly(text)) or self.endorsed_sources.get(place.source.envelope)
        return self.endorsed(path, text, by, place) if by else ArgumentOrigin(path, text, "untrusted", place)

    def endorsed(
        self, path: str, text: str, by: Endorsement, place: SourcePlace | None = None
    ) -> ArgumentOrigin:
        if place is None:
            keys = [key for key, start, end in self.values_in(text) if end - start == len(text)]
            place = self.memory.index.places(keys, self.context.since).get("untrusted")
        return ArgumentOrigin(path, text, "person", place, endorsement=by)

    def unsaid(self, path: str, text: str, *forms: str) -> ArgumentOrigin:
        """Nobody said it as it is: others may have written a part of it, or all of it in another way."""
        hidden = self.decoded(text)
        endorsed: ArgumentOrigin | None = None
        for form in dict.fromkeys((text, *forms, *hidden)):
            targets = (key[1] for key, _, _ in self.values_in(form) if key[0] in TARGETS)
            for value in dict.fromkeys((form, *targets)):
                found = [
                    self.by_others(path, text, place) if place.source.grade == "untrusted" else place
                    for place in self.memory.index.loose_parts(value, self.context.since, self.budget)
                    if not place.source.is_own_word_of(self.call.agent)
                ]
                for each in found:
                    if isinstance(each, SourcePlace):
                        self.note_private(each, len(text))
                    elif each.origin == "untrusted":
                        return each
                    elif value == text:
                        endorsed = each
        if endorsed is not None:
            return endorsed
        return ArgumentOrigin(path, text, "unknown" if self.misses_something else "nobody")

    def word_places(self, words: list[str], signs: str = "") -> dict[Grade, SourcePlace]:
        """Where these words stand together: said, written by others, or as a whole value of a look-up."""
        index, since = self.memory.index, self.context.since
        # People say two letters by chance.
        if len("".join(words)) > 2 and (place := index.said_place(words, since, self.budget, signs)):
            return {place.source.grade: place}
        found = self.others_place(words)
        trusted = index.places([("whole", f" {' '.join(words)} ")], since).get("trusted")
        if trusted is not None and (not signs or fold_strictly(trusted.text) == signs):
            found["trusted"] = trusted
        return found

    def others_place(self, words: list[str]) -> dict[Grade, SourcePlace]:
        """The first place of others with these words, or the first endorsed one."""
        first: dict[Grade, SourcePlace] = {}
        for place in self.memory.index.others_places(words, self.context.since, self.budget):
            if not place.source.is_own_word_of(self.call.agent):
                if place.source.envelope in self.endorsed_sources:
                    return {"untrusted": place}
                first.setdefault("untrusted", place)
                if not self.endorsed_sources:
                    break
        return first

    def values_in(self, text: str) -> list[FoundValue]:
        return list(values_in(text, self.now, self.budget))

    def decoded(self, text: str) -> list[str]:
        self.budget.spend(len(text) // 4)
        found = decoded(text)
        if not found.whole:
            raise BudgetSpent
        return [compose(form) for form in found.forms]

    def note_private(self, place: SourcePlace | None, characters: int) -> None:
        if place is not None and place.source.private and self.call.traits.outside:
            noted = self.private.setdefault(place.source.number, PrivateText(place, 0))
            noted.characters += characters
