"""A question as it is looked up: its terms and what each is worth, its phrases, and its clauses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from typing import Final

from moot.xprotocol.search.bm25 import TermEvidence
from moot.xprotocol.search.postings import Postings
from moot.xprotocol.search.search_terms import clauses, query_terms, stem

# Everyday words and those that tools use for the same: whoever wants to "file a bug" needs `create_issue`. A
# word of a question also stands for these, for less than for itself. The list is short on purpose: each entry
# is a way that people speak and tools do not. Questions of public benchmarks, in the words of the tools, are
# answered no worse with it (R@1 .614 after .612, and .966; R@5 .820 and .938: `python -m bench.search`).
_WORDS: Final[Mapping[str, str]] = {
    "bug": "issue ticket",
    "defect": "issue ticket",
    "ticket": "issue",
    "pr": "pull",
    "repo": "repository",
    "folder": "directory",
    "dir": "directory",
    "picture": "image",
    "pic": "image",
    "photo": "image",
    "mail": "email",
    "email": "mail",
    "appointment": "event calendar",
    "meeting": "event calendar",
    "erase": "delete remove",
    "remove": "delete",
    "delete": "remove",
    "fetch": "get",
    "download": "get fetch",
    "edit": "update",
    "modify": "update",
    "change": "update",
    "lookup": "search find",
    "buy": "purchase order",
    "doc": "document",
    "pay": "payment",
}
# "File a bug", "raise a ticket": no file is meant, and nothing is lifted.
_FILING: Final = re.compile(
    r"\b(?:file|raise|log|submit|open|report)(?=\s+(?:an?|another|this|the)\s+(?:new\s+)?"
    r"(?:bug|issue|ticket|defect|pr|pull\s+request|complaint)s?\b)",
    re.IGNORECASE,
)


@cache
def synonyms_of(term: str) -> tuple[str, ...]:
    """The terms that a term of a question also stands for."""
    return _table().get(term, ())


def plain_request(text: str, known: Callable[[str], bool]) -> str:
    """A question with the plain word where it says that something is filed, unless tools say it so, too."""

    def plain(found: re.Match[str]) -> str:
        verb = found[0].lower()
        return found[0] if verb != "file" and known(stem(verb)) else "create"

    return _FILING.sub(plain, text)


@cache
def _table() -> Mapping[str, tuple[str, ...]]:
    return {stem(word): tuple(map(stem, others.split())) for word, others in _WORDS.items()}


# Twice the longest question of the public benchmarks: a page of text.
QUERY_CHARS: Final = 4_096
# The first words of a question, and the distinct terms among them, that are looked at.
QUERY_WORDS: Final = 400
QUERY_TERMS: Final = 128
# Words that no document has are compared with those that look alike; so many of them in one question.
UNKNOWN_TERMS: Final = 8
# Clauses of one question; the first ones count.
CLAUSES: Final = 16
# One word is no request of its own.
CLAUSE_TERMS: Final = 2

# Numbers are values for a tool, seldom words about it.
NUMBER_WEIGHT: Final = 0.25
# Of a word that merely looks like the one asked for.
LOOKALIKE_WEIGHT: Final = 0.5
# Of a word that tools use for the one asked for, where documents have that, too, and where none has it.
SYNONYM_WEIGHT: Final = 0.25
STAND_IN_WEIGHT: Final = 0.8
# Of what both words of a pair are worth on average.
PAIR_WEIGHT: Final = 2 / 15


@dataclass(slots=True)
class TermPair:
    """Two terms side by side, by their places in the evidence: the phrase they make, and what it is worth."""

    first: int
    second: int
    phrase: str
    weight: float
    parts: list[int]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for, all told and clause by clause; `texts` are those of the parts."""

    texts: list[str]
    evidence: list[TermEvidence]
    pairs: list[TermPair]


def read_query(text: str, postings: Postings) -> SearchQuery:
    """Take a question apart; of a long one the beginning counts."""
    text = plain_request(text[:QUERY_CHARS], postings.knows)
    parts, left = [], QUERY_WORDS
    for part in clauses(text):
        its_terms = query_terms(part, left, postings.knows)
        left -= len(its_terms)
        parts.append((part, its_terms))
    terms = [term for _, its_terms in parts for term in its_terms]
    evidence, places = _gathered(dict.fromkeys(terms), postings)
    pairs = _paired(terms, evidence)
    question = SearchQuery([text], evidence, list(pairs.values()))
    known = [(part, its_terms) for part, its_terms in parts if _known(its_terms, places) >= CLAUSE_TERMS]
    if len(known) > 1:
        for number, (part, its_terms) in enumerate(known[:CLAUSES], start=1):
            question.texts.append(part)
            for term in dict.fromkeys(its_terms):
                for place in places.get(term, ()):
                    evidence[place].parts.append(number)
            for two in dict.fromkeys(pairwise(its_terms)):
                if two in pairs:
                    pairs[two].parts.append(number)
    return question


def _gathered(
    terms: Iterable[str], postings: Postings
) -> tuple[list[TermEvidence], dict[str, Sequence[int]]]:
    """The evidence, and where that of each term stands: its own, or that of terms which look like it."""
    wanted = dict.fromkeys(islice(terms, QUERY_TERMS))
    evidence: list[TermEvidence] = []
    places: dict[str, Sequence[int]] = {}
    unknown = 0
    for term in wanted:
        start = len(evidence)
        weight = NUMBER_WEIGHT if term.isdigit() else 1.0
        others = [other for other in synonyms_of(term) if other not in wanted and postings.knows(other)]
        if postings.knows(term):
            evidence.append(_evidence(term, weight, postings))
            evidence += (_evidence(other, weight * SYNONYM_WEIGHT, postings) for other in others)
        elif others:
            evidence += (_evidence(other, weight * STAND_IN_WEIGHT, postings) for other in others)
        elif unknown < UNKNOWN_TERMS:
            unknown += 1
            evidence += (
                _evidence(other, weight * LOOKALIKE_WEIGHT * alike, postings)
                for other, alike in postings.spelling.near(term)
                if other not in wanted
            )
        places[term] = range(start, len(evidence))
    return evidence, places


def _evidence(term: str, weight: float, postings: Postings) -> TermEvidence:
    return TermEvidence(term, weight * postings.rarity(term), postings.shares(term), [0])


def _paired(terms: Sequence[str], evidence: Sequence[TermEvidence]) -> dict[tuple[str, str], TermPair]:
    # By the terms that count: what merely looks like a word makes no phrase with its neighbour.
    own = {each.term: place for place, each in enumerate(evidence)}
    pairs = {}
    for first, second in dict.fromkeys(pairwise(terms)):
        if first in own and second in own and first != second:
            one, other = own[first], own[second]
            worth = PAIR_WEIGHT * (evidence[one].weight + evidence[other].weight) / 2
            pairs[first, second] = TermPair(one, other, f" {first} {second} ", worth, [0])
    return pairs


def _known(terms: Iterable[str], places: Mapping[str, Sequence[int]]) -> int:
    return sum(bool(places.get(term)) for term in set(terms))
