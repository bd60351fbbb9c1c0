"""What a grammar could not say, and what was refused outright."""

from __future__ import annotations

from moot.errors import MootError
from moot.xprotocol.grammar.grammar_limits import NOTES


class GrammarRefused(MootError):
    """No grammar for this schema; `reason` says why, in words for whoever wrote the schema."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Notes:
    """Collects, once each and in order, what the grammar leaves to validation at call time."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._left_off = 0

    def add(self, where: str, words: str) -> None:
        line = f"{where}: {words}"
        if line in self._lines:
            return
        if len(self._lines) >= NOTES:
            self._left_off += 1
            return
        self._lines[line] = None

    def lines(self) -> tuple[str, ...]:
        if self._left_off:
            return (*self._lines, f"and {self._left_off} more")
        return tuple(self._lines)
