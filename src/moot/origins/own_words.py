"""What of a chat a person says: not what they quote or forward, nor what they say not to do.

Lines with `>` before them; a forwarded message, to the end; the rest of a clause behind `never`, `do not`,
`except`. All of that is read as words of others: who only warns of a value asks for none.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_QUOTED: Final = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_FORWARDED: Final = re.compile(
    r"^[ \t]*(?:-{2,}[ \t]*(?:original|forwarded|ursprüngliche|weitergeleitete)\b.{0,80}"
    r"|begin forwarded message:.{0,20}"
    r"|(?:on|am|le|el) [^\n]{6,120} (?:wrote|schrieb|a écrit|escribió)[^\n]{0,60}:[ \t]*$"
    r"|(?:from|von|de)[ \t]?: [^\n]{1,200}\n(?:[^\n]{1,200}\n){0,3}?"
    r"[ \t]*(?:subject|betreff|objet|asunto)[ \t]?: )",
    re.IGNORECASE | re.MULTILINE,
)
_NOT: Final = re.compile(
    # The first letters once more, so that most words are passed over at once.
    r"\b(?=[ndmsbaeoj])(?<!why )"
    r"(?:never|(?:do|must|should|may|shall)(?: not|n['’]t)|dont|not to|but not|and not"
    r"|except|excluding|other than|anyone but|anything but"
    r"|niemals|nie|nicht an|außer|ausser|jamais|sauf|nunca|excepto|salvo)\b"
    # What is asked for all the same.
    r"(?! (?:forget|hesitate|worry|mind|fail|only|miss|vergessen)\b"
    r"| (?:\w+ ){0,3}(?:more|less|fewer|later) than\b)",
    re.IGNORECASE,
)
_CLAUSE_END: Final = re.compile(
    r"[.!?;](?=\s|$)|\n|[,–—] ?(?:but|just|only|instead|rather|please|because|then|sondern|mais|sino)\b"
    # What is to be done besides; the end of a list it is not.
    r"|, and (?=[a-z]+ (?:the|a|an|it|them|to|all|my|your|him|her)\b)",
    re.IGNORECASE,
)


class OwnWords(NamedTuple):
    """What they say; what they repeat of others; what they do not want."""

    said: str
    quoted: str = ""
    unwanted: str = ""


def own_words(text: str) -> OwnWords:
    """Split what a person wrote."""
    quotes = _QUOTED.finditer(text) if ">" in text else ()
    spans = [(found.start(), found.end(), True) for found in quotes]
    if forwarded := _FORWARDED.search(text):
        spans.append((forwarded.start(), len(text), True))
    for found in _NOT.finditer(text):
        clause = _CLAUSE_END.search(text, found.end())
        spans.append((found.start(), clause.start() if clause else len(text), False))
    if not spans:
        return OwnWords(text)
    said: list[str] = []
    rest: dict[bool, list[str]] = {True: [], False: []}
    at = 0
    for start, end, is_quoted in sorted(spans):
        said.append(text[at:start])
        rest[is_quoted].append(text[max(at, start) : end])
        at = max(at, end)
    return OwnWords("\n".join([*said, text[at:]]), "\n".join(rest[True]), "\n".join(rest[False]))
