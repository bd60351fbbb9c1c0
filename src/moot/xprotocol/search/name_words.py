"""Tool names and English sentences taken apart by fixed rules, the same on every machine.

No language analysis and no Unicode tables of the running Python: only ASCII letters have case and endings
here, and a run of anything beyond ASCII is one word.
"""

from __future__ import annotations

import re
from typing import Final

# snake_case, kebab-case, camelCase, dots and spaces; digits stay with the letters before them.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+|[^\x00-\x7f]+")
_PLAIN_WORD: Final = re.compile(r"[a-z0-9]+|[^\x00-\x7f]+")


def vocabulary(*lines: str) -> frozenset[str]:
    """A set of words, written as people read them."""
    return frozenset(word for line in lines for word in line.split())


# D-65: a name's subject stands before the first of these.
PREPOSITIONS: Final = vocabulary(
    "about after against as at before between by during for from in into of on onto over per through",
    "to under using via with within without",
)
# Neither subjects nor verbs.
FILLERS: Final = vocabulary(
    "a all an and any by each every is my new or other that the this tool your",
)

_IRREGULAR: Final = {
    "aliases": "alias",
    "analyses": "analysis",
    "bonuses": "bonus",
    "buses": "bus",
    "caches": "cache",
    "campuses": "campus",
    "canvases": "canvas",
    "children": "child",
    "cookies": "cookie",
    "criteria": "criterion",
    "headaches": "headache",
    "indices": "index",
    "matrices": "matrix",
    "men": "man",
    "mice": "mouse",
    "movies": "movie",
    "people": "person",
    "statuses": "status",
    "vertices": "vertex",
    "viruses": "virus",
    "women": "woman",
}
# End in s and are no plurals.
_NO_PLURAL: Final = vocabulary(
    "alias always atlas bias canvas chaos cosmos gas https kubernetes lens news pandas postgres",
    "previous sales series species texas",
)


def words_of(name: str) -> list[str]:
    """The words of a tool's name, in lower case."""
    return [word.lower() if word.isascii() else word for word in _WORD.findall(name)]


def sentence_words(text: str) -> list[str]:
    """The words of a sentence, in lower case."""
    return _PLAIN_WORD.findall(ascii_lower(text))


def ascii_lower(text: str) -> str:
    """Lower case for ASCII letters alone."""
    return text.translate(_LOWER)


def singular(word: str) -> str:
    """One of them, by the usual endings and a short list of exceptions; itself when it is no plural."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _NO_PLURAL or len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    return word[:-1]


def inflected(verb: str) -> tuple[str, str, str]:
    """A verb as commands, descriptions and titles have it: `copy`, `copies`, `copying`."""
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb, verb[:-1] + "ies", verb + "ing"
    third = verb + "es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else verb + "s"
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")):
        return verb, third, verb[:-1] + "ing"
    if verb in _DOUBLING:
        return verb, third, verb + verb[-1] + "ing"
    return verb, third, verb + "ing"


_LOWER: Final = {ord(letter): ord(letter) + 32 for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_DOUBLING: Final = vocabulary(
    "commit cut debug drop embed format get log map pin plan plot put run scan set shut snap split stop",
    "submit swap tag transfer trim unpin unset zip",
)
