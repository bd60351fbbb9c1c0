"""Runs of words that two texts have together, also where the spaces between them differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from moot.origins.step_budget import StepBudget

# Which runs of four words others wrote, and which letters from a word on whatever spaces are between, by
# their hash: a bit each, of 16 MB. With a full memory one of a hundred is set, so hardly a run is looked for
# that nobody wrote.
RUN_SLOTS: Final = 1 << 27
GLUED_CHARS: Final = 12
# Places of one run of words in one text that are tried.
MAX_REPEATS: Final = 4
_BEFORE_SIGN: Final = re.compile(r"(?:^|\s)[\"'“‘„«(`]?$")
# What is one value with all that it is joined with: a path, a link, an address.
_JOINED: Final = re.compile(r"(?:[~.]{0,2}[/\\]|[a-z]:\\|.*[/\\].*[/\\.]|.*@.).*")
_BEHIND_SIGN: Final = re.compile(r"[\"'”’“»)`]?[.,;:!?]?(?:\s|$)")


def run_slots(words: list[str]) -> Iterator[int]:
    runs = zip(words, words[1:], words[2:], words[3:], strict=False)
    return (hash(run) % RUN_SLOTS for run in runs)


def glued_slots(words: list[str]) -> Iterator[int]:
    glued, at = "".join(words), 0
    for word in words:
        if at + GLUED_CHARS > len(glued):
            return
        yield hash(glued[at : at + GLUED_CHARS]) % RUN_SLOTS
        at += len(word)


def common_words(text: str, words: list[str], start: int, at: int, budget: StepBudget) -> int:
    """How many of the words from `start` on stand together in a text that has the first of them at `at`."""
    most, run = 0, f" {words[start]} {words[start + 1]} "
    for _ in range(MAX_REPEATS):
        if at < 0:
            break
        count, end = 0, at
        while start + count < len(words) and text.startswith(f" {words[start + count]} ", end):
            end += len(words[start + count]) + 1
            count += 1
        budget.spend(count // 2 + 1)
        most = max(most, count)
        at = text.find(run, at + 1)
    return most


def common_letters(held: list[str], first: str, glued: str, start: int) -> tuple[int, int]:
    """How many words of a text, from one that is `first` on, stand in these letters from `start` on."""
    most = (0, 0)
    for at, word in enumerate(held):
        if word == first:
            count, end = 0, start
            while at + count < len(held) and glued.startswith(held[at + count], end):
                end += len(held[at + count])
                count += 1
            most = max(most, (count, end - start))
    return most


def stands_in(text: str, sign: str) -> bool:
    """Whether this stands in a text with nothing but quotes, spaces and ends of sentences around it."""
    at = text.find(sign)
    for _ in range(MAX_REPEATS):
        if at < 0:
            return False
        before, behind = text[max(0, at - 2) : at], text[at + len(sign) : at + len(sign) + 3]
        if _BEFORE_SIGN.search(before) and _BEHIND_SIGN.match(behind):
            return True
        at = text.find(sign, at + 1)
    return False


def stands_apart(text: str, words: list[str]) -> bool:
    """Whether these words stand in a text, and not only within a path, a link, an address or an account."""
    run = re.compile(r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, words)) + r"(?![^\W_])")
    for found in islice(run.finditer(text), MAX_REPEATS):
        first = max(text.rfind(sign, 0, found.start()) for sign in " \n\t") + 1
        last = min((at for sign in " \n\t" if (at := text.find(sign, found.end())) >= 0), default=len(text))
        piece = text[first:last].strip("\"'“”‘’`()[]{}<>,;:!?*.")
        is_part = len(piece) > found.end() - found.start() and _JOINED.fullmatch(piece)
        if not is_part and not (len(words) > 1 and "".join(words).isdigit() and _goes_on(text, found)):
            return True
    return False


def _goes_on(text: str, found: re.Match[str]) -> bool:
    """Whether a row of numbers has more before it or behind it."""
    before, behind = text[: found.start()].rstrip(" -"), text[found.end() :].lstrip(" -")
    return before[-1:].isdigit() or behind[:1].isdigit()
