"""Globs over one string, as D-11 rules them.

`*` alone (or `**` alone) is every string. A `*` at the end takes the rest, slashes and all; any
other `*` stays within one `/` segment; `**` crosses anywhere; `?` is one character but no slash.
Everything else, `[` and `{` included, stands for itself. A segment of the text that is exactly
`..` must be spelled out by the glob: no wildcard takes a character of it (except the lone `*`).

A glob becomes a row of tokens, and matching walks all positions of that row at once: bit i of an
integer says "the first i tokens can have read the text so far". One pass over the text, whatever
the glob, so `*a*a*a*a*b` costs what `ab` costs. Not fnmatch and not `re`: both backtrack.

`includes` walks the same row over the *tokens of another glob* instead of characters: a wildcard
that may take every text of a token may take the token. `overlap` asks whether two rows have a text
in common. Both err on the side that is safe for the caller, as their docstrings say.
"""

from __future__ import annotations

from functools import lru_cache

# A wildcard glob looks at no text longer than this and then does not match: what a hostile sender
# can make one check cost stays near 10 ms. Names, URIs and paths are far below it.
MAX_TEXT = 64 * 1024

# `overlap` compares two rows token by token; 256 x 256 is more than two real globs have.
MAX_PAIRS = 1 << 16

ONE, STAR, CROSS = "?", "*", "**"
_STARS = (STAR, CROSS)
_WILD = (ONE, STAR, CROSS)


class Glob:
    """One compiled glob. Two globs are equal when they are written alike."""

    __slots__ = ("_masks", "literal", "lone", "prefix", "source", "tokens")

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = _tokens_of(source)
        self.lone = source != "" and not source.strip("*")
        wild = next((at for at, token in enumerate(self.tokens) if token in _WILD), None)
        self.literal = source if wild is None else None
        # The usual shape, `read_*`: text, then one wildcard that takes the rest.
        self.prefix = source[:wild] if wild is not None and self.tokens[wild:] == (CROSS,) else None
        self._masks: _TokenMasks | None = None

    def matches(self, text: str) -> bool:
        """Whether the whole text is one of this glob's."""
        if self.literal is not None:
            return text == self.literal
        if self.lone:
            return True
        if len(text) > MAX_TEXT:
            return False
        if self.prefix is not None and ".." not in text:
            return text.startswith(self.prefix)
        return self.masks.matches(text)

    def excludes(self, text: str) -> bool:
        """Whether the text is certainly not one of this glob's, which is what `!glob` asks for."""
        if len(text) > MAX_TEXT and self.literal is None:
            return False
        return not self.matches(text)

    @property
    def masks(self) -> _TokenMasks:
        if self._masks is None:
            self._masks = _TokenMasks(self.tokens)
        return self._masks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Glob({self.source!r})"


@lru_cache(maxsize=4096)
def glob(source: str) -> Glob:
    """The compiled glob; the same words recur in the rights of every member."""
    return Glob(source)


def is_wild(text: str) -> bool:
    return "*" in text or "?" in text


def _tokens_of(source: str) -> tuple[str, ...]:
    tokens: list[str] = []
    at = 0
    while at < len(source):
        char = source[at]
        after = at + 1
        if char == "*":
            while after < len(source) and source[after] == "*":
                after += 1
            if after - at > 1 or after == len(source):
                char = CROSS
        tokens.append(char)
        at = after
    return _in_order(tokens)


def _in_order(tokens: list[str]) -> tuple[str, ...]:
    # `*?` and `?*` are the same texts; written one way, a row never has a `*` before a `?`,
    # and equal globs compare equal in `includes`.
    ordered: list[str] = []
    for token in tokens:
        if token == ONE and ordered and ordered[-1] == STAR:
            ordered.insert(-1, ONE)
        elif token == STAR and ordered and ordered[-1] in _STARS:
            continue
        elif token == CROSS and ordered and ordered[-1] == STAR:
            ordered[-1] = CROSS
        else:
            ordered.append(token)
    return tuple(ordered)


class _TokenMasks:
    """The tokens as bit masks. No two stars stand side by side, so one shift skips a star."""

    __slots__ = ("_crosses", "_literals", "_ones", "_skips", "_stays", "end", "start")

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._literals: dict[str, int] = {}
        self._ones = self._stays = self._crosses = 0
        for at, token in enumerate(tokens):
            bit = 1 << at
            if token == ONE:
                self._ones |= bit
            elif token == STAR:
                self._stays |= bit
            elif token == CROSS:
                self._stays |= bit
                self._crosses |= bit
            else:
                self._literals[token] = self._literals.get(token, 0) | bit
        self._skips = self._stays
        self.start = self._skip(1)
        self.end = 1 << len(tokens)

    def _skip(self, state: int) -> int:
        return state | (state & self._skips) << 1

    def matches(self, text: str) -> bool:
        literals, ones, stays, skips = self._literals, self._ones, self._stays, self._skips
        state = self.start
        for count, segment in enumerate(text.split("/")):
            if count:
                state = self.step_literal(state, "/")
            if segment == "..":
                state = self.step_guarded(self.step_guarded(state))
            else:
                for char in segment:
                    state = (state & (literals.get(char, 0) | ones)) << 1 | state & stays
                    state |= (state & skips) << 1
            if not state:
                return False
        return bool(state & self.end)

    def step_literal(self, state: int, char: str) -> int:
        """After one character that is part of no `..` segment."""
        if char == "/":
            return self._skip((state & self._literals.get("/", 0)) << 1 | state & self._crosses)
        return self._skip((state & (self._literals.get(char, 0) | self._ones)) << 1 | state & self._stays)

    def step_guarded(self, state: int) -> int:
        """After one dot of a `..` segment: only a dot of the glob reads it."""
        return self._skip((state & self._literals.get(".", 0)) << 1)

    def step_wildcard(self, state: int, token: str) -> int:
        """After whatever another glob's wildcard stands for: only a wildcard as wide takes it."""
        if token == CROSS:
            return self._skip(state & self._crosses)
        if token == STAR:
            return self._skip(state & self._stays)
        return self._skip((state & self._ones) << 1 | state & self._stays)


def includes(wide: Glob, narrow: Glob) -> bool:
    """Whether every text of `narrow` is certainly one of `wide`; unprovable is False."""
    if wide.lone or wide == narrow:
        return True
    if narrow.lone:
        return False
    if narrow.literal is not None:
        return wide.matches(narrow.literal)
    masks = wide.masks
    state = masks.start
    guarded = _dots_of_parents(narrow.tokens)
    for at, token in enumerate(narrow.tokens):
        if at in guarded:
            state = masks.step_guarded(state)
        elif token in _WILD:
            state = masks.step_wildcard(state, token)
        else:
            state = masks.step_literal(state, token)
        if not state:
            return False
    return bool(state & masks.end)


def _dots_of_parents(tokens: tuple[str, ...]) -> set[int]:
    """Where the dots stand that can become a `..` segment of some text of these tokens."""
    found: set[int] = set()
    for first in (at for at, token in enumerate(tokens) if token == "."):
        second = first + 1
        while second < len(tokens) and tokens[second] in _STARS:
            second += 1
        if second == len(tokens) or tokens[second] != ".":
            continue
        # A star before or after may be nothing, or (if it crosses) end or begin with a slash.
        before = first - 1 - (first > 0 and tokens[first - 1] == STAR)
        after = second + 1 + (second + 1 < len(tokens) and tokens[second + 1] == STAR)
        opens = before < 0 or tokens[before] in ("/", CROSS)
        closes = after >= len(tokens) or tokens[after] in ("/", CROSS)
        if opens and closes:
            found |= {first, second}
    return found


def overlap(one: Glob, other: Glob) -> bool:
    """Whether a text of both can exist; False only when there certainly is none."""
    if one.lone or other.lone:
        return True
    if one.literal is not None:
        return other.matches(one.literal)
    if other.literal is not None:
        return one.matches(other.literal)
    left, right = one.tokens, other.tokens
    if len(left) * len(right) > MAX_PAIRS:
        return True
    # The `..` rule is left out here: that can only make two globs meet that do not.
    reached = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        at, by = waiting.pop()
        if at == len(left) and by == len(right):
            return True
        for pair in _next_pairs(left, right, at, by):
            if pair not in reached:
                reached.add(pair)
                waiting.append(pair)
    return False


def _next_pairs(left: tuple[str, ...], right: tuple[str, ...], at: int, by: int) -> list[tuple[int, int]]:
    pairs = []
    left_star = at < len(left) and left[at] in _STARS
    right_star = by < len(right) and right[by] in _STARS
    if left_star:
        pairs.append((at + 1, by))
    if right_star:
        pairs.append((at, by + 1))
    if at < len(left) and by < len(right) and _share_a_character(left[at], right[by]):
        pairs.append((at + (not left_star), by + (not right_star)))
    return pairs


def _share_a_character(one: str, other: str) -> bool:
    if one in _WILD:
        one, other = other, one
    if one in _WILD:
        return True
    if other in _WILD:
        return one != "/" or other == CROSS
    return one == other
