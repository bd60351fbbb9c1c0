"""Texts taken apart for searching: names in any case, prose, queries; the same terms in every process.

A term is a stem. `getUserById`, `get-user-by-id` and "Get users by id" share theirs. Words that say nothing
about a tool are left out. Where people write one thing in two ways (GitHub and github, to-do and todo,
SHA-256 and sha256), prose gives the joined form beside its parts, so that either way finds the other.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

from moot.xprotocol.search.name_words import vocabulary

# One field of one document: twice the text that the longest real tool descriptions have.
FIELD_CHARS: Final = 32_768
# A stem takes some 50 µs to find in plain Python, so words once seen are kept: some 10 MB at most.
WORDS_KEPT: Final = 1 << 15
KEPT_CHARS: Final = 32
# Longer runs of letters are no words; they are cut into pieces of this length.
WORD_CHARS: Final = 64
# The longest joined form: `elasticsearch` has 13 letters, and beyond this two words are two words.
JOINED_CHARS: Final = 16

# Words of grammar, and what is left of "don't" and "it's".
STOP_WORDS: Final = vocabulary(
    "a about all also am an and any are as at be been being but by can could d did do does don each for from",
    "had has have he her here him his how i if in into is it its just ll m may me might more most must my no",
    "nor not now of on only or other our out over own please re s same shall she should so some such t than",
    "that the their them then there these they this those to too up us ve very was we were what when where",
    "which while who whom whose why will with would you your",
)
# How people ask: part of the question, never of the answer. Left out of queries alone.
ASKING_WORDS: Final = vocabulary(
    "give gave hello help helps hey hi kindly know let lets like liked look looking looks need needed needs",
    "ok okay sorry tell thank thanks try trying want wanted wants wonder wondering",
)

_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN: Final = re.compile(
    rf"[A-Za-z0-9]{{1,{WORD_CHARS}}}(?:-[A-Za-z0-9]{{1,{WORD_CHARS}}}){{0,3}}"
    rf"|[{_CJK}]+"
    rf"|(?:(?![A-Za-z0-9_{_CJK}])\w){{1,{WORD_CHARS}}}"
)
_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Only the marks of Latin, Greek and Cyrillic letters: in Japanese a mark makes another letter.
_MARKS: Final = re.compile("[\u0300-\u036f]")
# Marks piled upon each other. Python sorts them one by one: 30,000 in a row take most of a second.
_PILE: Final = re.compile(r"[^\w\s\x00-\x7f]{5,}")
# Sentences, and what is to be done afterwards or besides. Not commas and "and": those join the objects of one
# request more often than they part two. Runs are tried once, from their start: linear for any text.
_CLAUSE: Final = re.compile(
    r"(?<![.?!;\n])[.?!;\n]++(?=\s|$)|[。？！；]"
    r"|,?(?<!\s)\s++(?:and\s++)?(?:then|also|finally|afterwards|additionally)\b",
    re.IGNORECASE,
)


def name_terms(name: str) -> list[str]:
    """The terms of a tool's name or parameter, in order."""
    return [term for token in _tokens(name) for term in _terms_of(token)[0]]


def prose_terms(text: str) -> list[str]:
    """The terms of a description, in order, joined forms among them."""
    found: list[str] = []
    for token in _tokens(text):
        terms, joined = _terms_of(token)
        found += terms
        if joined:
            found.append(joined)
    return found


def query_terms(text: str, most: int, known: Callable[[str], bool]) -> list[str]:
    """The terms of the first `most` words of a question, in order.

    A joined form that is known stands for its parts, not beside them: GitHub is one thing to ask for.
    """
    found: list[str] = []
    for token in _tokens(text)[:most]:
        terms, joined = _terms_of(token)
        found += (joined,) if joined and known(joined) else terms
    return [term for term in found[:most] if term not in _asking_stems()]


def clauses(text: str) -> list[str]:
    """The sentences of a request, and the parts of those that ask for several things."""
    return [clause for clause in _CLAUSE.split(text) if clause and not clause.isspace()]


def stem(word: str) -> str:
    """The stem of one word in lower case (Snowball's English); others than English words pass unharmed."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    # Not snowballstemmer.stemmer(): that takes PyStemmer where it is installed, and stems could then differ
    # between two machines. Only here: with it come the stemmers of thirty languages, and few starts search.
    from snowballstemmer.english_stemmer import EnglishStemmer

    # A new one each time (0.5 µs): a stemmer holds its word while it works, and threads would share it.
    found: str = EnglishStemmer().stemWord(word)
    return found


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_folded(text[:FIELD_CHARS]))


def _folded(text: str) -> str:
    """Pokémon as Pokemon, full-width letters as plain ones."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", _PILE.sub(" ", text))
    return unicodedata.normalize("NFKC", _MARKS.sub("", apart))[:FIELD_CHARS]


def _terms_of(token: str) -> tuple[tuple[str, ...], str]:
    # A run of thousands of Chinese characters is one token, and no two are alike: never kept.
    return _kept_terms(token) if len(token) <= KEPT_CHARS else _terms(token)


def _terms(token: str) -> tuple[tuple[str, ...], str]:
    """The terms of a token's parts, and its joined form or nothing."""
    parts = _parts(token)
    terms = (stem(part) for part in parts)
    joined = ""
    if len(parts) == 2 and len(token) <= JOINED_CHARS and _is_spelling(token):
        joined = stem("".join(parts))
    return tuple(sys.intern(term) for term in terms if term not in _stop_stems()), sys.intern(joined)


def _is_spelling(token: str) -> bool:
    """Whether a word of two parts is written as one elsewhere. `getUser` is a name, not a spelling."""
    return token.isascii() and ("-" in token or token[0].isupper() or token[-1].isdigit())


def _parts(token: str) -> list[str]:
    if token.isascii():
        return [part.lower() for part in _PART.findall(token)]
    if _is_cjk(token[0]):
        # Pairs of characters, as search engines do where words are not set apart.
        return [token[place : place + 2] for place in range(max(1, len(token) - 1))]
    return [token.casefold()]


def _is_cjk(character: str) -> bool:
    return _CJK_CHARACTER.match(character) is not None


_kept_terms = lru_cache(WORDS_KEPT)(_terms)
_CJK_CHARACTER: Final = re.compile(f"[{_CJK}]")


@cache
def _asking_stems() -> frozenset[str]:
    return frozenset(stem(word) for word in ASKING_WORDS)


@cache
def _stop_stems() -> frozenset[str]:
    """Words and stems, since what is left of "What's" has an ending too."""
    return STOP_WORDS | {stem(word) for word in STOP_WORDS}
