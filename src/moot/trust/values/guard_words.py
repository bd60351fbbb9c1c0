"""Whether a name has one of the words that no slot admits (`word_lists`)."""

from __future__ import annotations

import re
from typing import Final

from moot.trust.values.word_lists import GUARDED, SECRET

_RUNS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", re.ASCII)


def is_guarded(text: str) -> bool:
    """Whether a word that people should look at is in a name, between `-`, `_`, digits or changes of case."""
    return _has_word(text, GUARDED)


def is_secret(text: str) -> bool:
    """The same for what files and columns should not be called: `main.py` is fine, `keys.py` is not."""
    return _has_word(text, SECRET)


def _has_word(text: str, words: frozenset[str]) -> bool:
    return text.lower() in words or any(run.lower() in words for run in _RUNS.findall(text))
