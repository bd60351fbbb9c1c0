"""What helps an agent to choose a tool before it calls one, from names and descriptions alone (XP 4.6).

Everything here is a pure function of the list of tools of one source (D-65): fixed tables, fixed sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Semantic
from moot.xprotocol.contracts.source_overrides import SemanticOverride
from moot.xprotocol.search.name_words import (
    FILLERS,
    PREPOSITIONS,
    inflected,
    sentence_words,
    singular,
    vocabulary,
    words_of,
)
from moot.xprotocol.translation.quality import ACTION_VERBS, quality_of

# XP 4.6: the prefixes of a row, and the verbs that they stand for.
VERB_ROWS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("read", "get", "fetch"), ("read", "get", "fetch", "retrieve")),
    (("list", "search", "find"), ("list", "search", "find", "query")),
    (("create", "write", "add"), ("create", "write", "add", "insert")),
    (("update", "edit", "patch"), ("update", "edit", "modify", "patch")),
    (("delete", "remove"), ("delete", "remove", "destroy")),
    (("execute", "run", "invoke"), ("execute", "run", "invoke", "call")),
)
_LISTING: Final = VERB_ROWS[1][1]
# D-65: listing one of these shows what other tools of the source work on.
CONTAINERS: Final = vocabulary(
    "album archive bucket catalog catalogue collection container directory drive folder library",
    "playlist workspace",
)
# Verbs in names that say too little to count as action verbs in a description.
_LOOSE_VERBS: Final = vocabulary(
    "do handle manage process",
)

MAX_SUBJECTS: Final = 8
MAX_RELATED: Final = 10
# As many ways elsewhere as a reader takes in.
MAX_REDIRECTIONS: Final = 3
MAX_SENTENCE_CHARS: Final = 200

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|[\r\n]")
_FIRST_WORD: Final = re.compile(r"[A-Za-z]+")
_COMMAND: Final[Mapping[str, str]] = {form: verb for verb in ACTION_VERBS for form in inflected(verb)[:2]}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NameParts:
    """What a tool's name says: `get_opportunities_by_stage` gets opportunities, by stage."""

    verb: str
    intent_verbs: tuple[str, ...]
    # One of what the tool works on; empty when the name does not say.
    subject: str
    data_subjects: tuple[str, ...]
    # The name as the end of a sentence: "to get opportunities", "about browser click".
    task: str


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another published tool of the same namespace."""

    kind: str
    parts: NameParts


def read_name(name: str) -> NameParts:
    """XP 4.6, D-64, D-65: verbs and subjects of a tool's name, however its words are joined."""
    words = words_of(name) or [name or "unnamed"]
    verb, rest = words[0], words[1:]
    before = _until_preposition(rest)
    head = [word for word in before if word not in FILLERS] or [
        word for word in rest if word not in FILLERS and word not in PREPOSITIONS
    ]
    subjects: list[str] = []
    if head:
        last = head[-1]
        subjects += [singular(last), last]
    subjects += [word for word in rest if word not in FILLERS and word not in PREPOSITIONS]
    row = _row_of(verb)
    acts = row is not None or verb in ACTION_VERBS or verb in _LOOSE_VERBS
    if not acts:
        # `browser_click`, `weather`: the first word is no verb, so it names something too.
        subjects.append(verb)
    data_subjects = tuple(dict.fromkeys(subjects))[:MAX_SUBJECTS]
    subject = data_subjects[0] if data_subjects else ""
    task = f"to {verb} {head[-1] if head else ''}".rstrip() if acts else f"about {' '.join(words)}"
    return NameParts(verb, row or (verb,), subject, data_subjects, task)


def domain_of(namespace: str) -> str:
    """XP 4.6: what follows the last dot."""
    return namespace.rpartition(".")[2]


class Siblings:
    """The published tools of one namespace, ready to be asked which of them belong together."""

    __slots__ = ("_by_subject", "_listing")

    def __init__(self, siblings: Iterable[Sibling] = ()) -> None:
        self._by_subject: dict[str, list[Sibling]] = {}
        self._listing: list[Sibling] = []
        for sibling in sorted(siblings, key=lambda sibling: sibling.kind):
            if sibling.parts.subject:
                self._by_subject.setdefault(sibling.parts.subject, []).append(sibling)
            if sibling.parts.intent_verbs == _LISTING and sibling.parts.subject in CONTAINERS:
                self._listing.append(sibling)

    def related(self, kind: str, parts: NameParts) -> tuple[Sibling, ...]:
        """D-65: tools that do something else to the same subject, then those that list containers."""
        candidates = dict.fromkeys([*self._by_subject.get(parts.subject, ()), *self._listing])
        others = (s for s in candidates if s.kind != kind and s.parts.intent_verbs != parts.intent_verbs)
        return tuple(islice(others, MAX_RELATED))


def annotate(
    *,
    kind: str,
    namespace: str,
    description: str,
    parts: NameParts,
    siblings: Siblings | None = None,
    override: SemanticOverride | None = None,
    examples: tuple[Json, ...] | None = None,
) -> Semantic:
    """The semantic block of one contract. `examples` are those of the override that fit the payload."""
    given = override or SemanticOverride()
    related = (siblings or Siblings()).related(kind, parts)
    subjects = _or(given.data_subjects, parts.data_subjects)
    return Semantic(
        domain=_or(given.domain, domain_of(namespace)),
        intent_verbs=_or(given.intent_verbs, parts.intent_verbs),
        data_subjects=subjects,
        use_when=_or(given.use_when, _use_when(description, parts)),
        do_not_use_when=_or(given.do_not_use_when, _do_not_use_when(parts, related)),
        related_schemas=_or(given.related_schemas, tuple(sibling.kind for sibling in related)),
        example_inputs=examples,
        description_quality_score=quality_of(description, subjects).score,
        auto_generated=not given.complete,
    )


def _or(given: T | None, generated: T) -> T:
    return generated if given is None else given


def _row_of(verb: str) -> tuple[str, ...] | None:
    for prefixes, verbs in VERB_ROWS:
        if verb in prefixes:
            return verbs
    # D-64: `insert`, `modify`, `destroy` and `call` have no row of their own and stand in one's output.
    return next((verbs for _, verbs in VERB_ROWS if verb in verbs), None)


def _until_preposition(words: list[str]) -> list[str]:
    for place, word in enumerate(words):
        if word in PREPOSITIONS:
            return words[:place]
    return words


def _use_when(description: str, parts: NameParts) -> str:
    sentence = _SENTENCE_END.split(description.strip(), maxsplit=1)[0].strip().rstrip(".:;,!")
    first = _FIRST_WORD.match(sentence)
    if first and first[0].lower() in _COMMAND:
        # "Reads a file" and "Read a file" both become "read a file".
        return _cut(f"The task is to {_COMMAND[first[0].lower()]}{sentence[first.end() :]}")
    if sentence_words(sentence):
        return _cut(f"The task is {parts.task}. About the tool: {sentence}")
    return _cut(f"The task is {parts.task}")


def _do_not_use_when(parts: NameParts, related: tuple[Sibling, ...]) -> str:
    if not related:
        return _cut(f"The task is not {parts.task}")
    ways = [f"{sibling.parts.task} (use {sibling.kind})" for sibling in related[:MAX_REDIRECTIONS]]
    # Not cut: half a kind would be a wrong one.
    return "The task is " + ", ".join(ways)


def _cut(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return sentence
    return sentence[: MAX_SENTENCE_CHARS - 1].rpartition(" ")[0] + "…"
