"""Whether a name has one of the words that no slot admits (`word_lists.GUARDED`)."""

from __future__ import annotations

import re
from typing import Final

from moot.trust.values.word_lists import GUARDED

_RUNS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", re.ASCII)


def is_guarded(text: str) -> bool:
    """Whether a word of the list is in a name, between `-`, `_`, digits or changes of case."""
    whole = text.lower()
    return whole in GUARDED or any(run.lower() in GUARDED for run in _RUNS.findall(text))
