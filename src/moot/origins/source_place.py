"""One place in one message where a value or a text stands, and whose message it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Grade = Literal["person", "operator", "trusted", "untrusted"]

EXCERPT_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class OriginSource:
    """One message, or the operator's configuration, as a source of values."""

    number: int
    envelope: str
    by: str
    at: float
    grade: Grade
    private: bool = False
    # Whose result it is; None for what somebody said.
    tool: str | None = None

    def is_own_word_of(self, agent: str) -> bool:
        return self.by == agent and self.tool is None


class SourcePlace(NamedTuple):
    """Where a value stands: in which member of which message, and in the text or what it was decoded to."""

    source: OriginSource
    path: str
    text: str
    start: int = 0
    end: int = 0

    @property
    def excerpt(self) -> str:
        return excerpt(self.text, self.start, self.end)


def excerpt(text: str, start: int, end: int) -> str:
    """A short piece of a text around what was found in it."""
    left = max(0, start - (EXCERPT_CHARS - min(end - start, EXCERPT_CHARS)) // 2)
    piece = " ".join(text[left : left + EXCERPT_CHARS].split())
    return ("…" if left else "") + piece + ("…" if left + EXCERPT_CHARS < len(text) else "")
