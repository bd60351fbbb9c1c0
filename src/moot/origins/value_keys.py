"""Values inside a text, by what they mean: addresses, links, files, codes, numbers, days, ids, mentions.

Each value has a key that is the same however it is written: `$1,200.00` and 1200, `https://Example.com/`
and `example.com`, an account with spaces and without. A value is all that stands together: of
`o'brien@example.com` no half is an address. A number of few digits is an id only where it is called one:
`file 13`, `ID: 13`, `#13`, or the member `id` of a result.

One pass over the pieces of a text, each looked at a bounded number of times: others choose what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, NamedTuple

from moot.origins.date_words import DATE_HEADS, days_at
from moot.origins.step_budget import StepBudget
from moot.origins.text_forms import MAX_SHORT_CHARS, fold_strictly

# A comma between digits belongs to a number.
_BETWEEN_PIECES: Final = r"\s<>()\[\]{}\"“”«»„|;,`"
_PIECES: Final = re.compile(rf"[^{_BETWEEN_PIECES}]+(?:(?<=\d),(?=\d)[^{_BETWEEN_PIECES}]+)*")
_BEFORE_VALUE: Final = "'’‘*:!?¿¡…"
_BEHIND_VALUE: Final = _BEFORE_VALUE + "."
_LINK_HEADS: Final = ("www.", "mailto:", "tel:", "javascript:", "data:")
_LINK_END: Final = re.compile(r"[\s<>\"`]")
_TIME: Final = re.compile(r"[0-2]?\d:[0-5]\d(?::[0-5]\d)?(?:\.\d{1,9})?z?(?:[ap]m)?")
_NUMBER: Final = re.compile(r"[-+−]?(?:\d{1,3}(?:[,']\d{3})+|\d+)(?:\.\d+)?")
_LETTERS_WITH_DOTS: Final = re.compile(r"[^\W\d_](?:\.[^\W\d_]){1,2}")
_WITH_DIGIT: Final = re.compile(r"[\d_]")
# Plain words in a row, and what stands between them: no values, so they are passed over at once.
_PLAIN_WORDS: Final = re.compile(
    rf"(?:[{_BETWEEN_PIECES}]*+(?!{'|'.join(sorted(DATE_HEADS))})[a-z]{{2,32}}+[{_BEHIND_VALUE}]*+"
    rf"(?=[{_BETWEEN_PIECES}]|\Z))++"
)
_PLAIN_WORD: Final = re.compile("[a-z]{2,}")
# Where a text can be cut: at a line end, and behind a word and its full stop.
_SENTENCE_ENDS: Final = re.compile(r"[\n.!?](?:(?<=\n)|(?<=[^\W\d_][^\W\d_].) )")
# What values have and prose has not. One by one: together they take five times as long.
_SIGNS: Final = tuple(
    map(re.compile, (r"[\d@/\\_]", r"[.:]\w", "|".join(DATE_HEADS), r"\b\w(?:\b[^\w'’]+\w\b|\w{32})"))
)
CHARS_PER_STEP: Final = 8
STEPS_PER_WORD: Final = 2
STEPS_PER_VALUE: Final = 8
# What ends the words that a number belongs to.
_STOP: Final = re.compile(r"[.!?;]")
_ID_WORDS: Final = frozenset({"id", "ids", "number", "nr", "num", "key", "ref", "reference"})
_BETWEEN: Final = frozenset({"and", "or", "the", "with", "of", "is"})
_NAME_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Shorter codes occur by chance: they count only where they are called an id.
MIN_CODE_CHARS: Final = 4
# Longer runs of letters without a space are no words of a language.
MAX_WORD_CHARS: Final = 32
# An account, card or telephone number in groups: so many of them, each so long, with so many digits.
MIN_GROUPS: Final = 3
MAX_GROUP_CHARS: Final = 6
MIN_GROUP_DIGITS: Final = 6
MIN_SPACED_CHARS: Final = 5
MAX_CALLED_CHARS: Final = 60
_DAY_SECONDS: Final = 86_400.0
_EXACT: Final = Context(prec=100)
_MAX_NUMBER_CHARS: Final = 64
_NUMBER_SIGNS: Final = re.compile("[,'+]")
_CODE_SIGNS: Final = re.compile(r"\s|(?<!^)-")

Key = tuple[str, str]
# Kinds of keys that say to whom or where.
TARGETS: Final = frozenset({"address", "place", "code", "mention"})


class FoundValue(NamedTuple):
    key: Key
    start: int
    end: int


class _Piece(NamedTuple):
    text: str
    start: int
    end: int


def values_in(text: str, at: float, budget: StepBudget) -> Iterator[FoundValue]:
    """The values of a composed text; `at` is when it was said, for days like tomorrow."""
    if len(text) <= MAX_SHORT_CHARS:
        found, steps = _short_values(text, int(at // _DAY_SECONDS))
        budget.spend(steps)
        return iter(found)
    budget.spend(len(text) // CHARS_PER_STEP + 1)
    return _ValueScan(fold_strictly(text), at, budget).values()


@lru_cache(maxsize=4096)
def _short_values(text: str, day: int) -> tuple[list[FoundValue], int]:
    """The values of a text that may come again in the next message, and what it takes to find them."""
    folded = fold_strictly(text)
    if _PLAIN_WORDS.fullmatch(folded):
        return [], len(text) // CHARS_PER_STEP + 2
    budget = StepBudget(MAX_SHORT_CHARS * MAX_SHORT_CHARS)
    scan = _ValueScan(folded, day * _DAY_SECONDS, budget)
    is_one = _PIECES.fullmatch(folded) and folded[0].isalnum() and folded[-1].isalnum()
    if is_one and not days_at(folded, folded, 0, scan.at)[0]:
        budget.spend(STEPS_PER_VALUE)
        found = list(scan._piece_values(folded, 0, len(folded)))
    else:
        found = list(scan.values())
    return found, MAX_SHORT_CHARS * MAX_SHORT_CHARS - budget.left + 1


class _ValueScan:
    """One pass over a text: what was read last decides whether a number goes on, and what it is called."""

    def __init__(self, folded: str, at: float, budget: StepBudget) -> None:
        self.folded = folded
        self.at = at
        self.budget = budget
        # Groups of one number, or single letters, that stand side by side.
        self.row: list[_Piece] = []
        # The last noun and the last word that means an id, each with its end; and the plain words since.
        self.noun, self.noun_end, self.id_end = "", -1, -1
        self.passed = (0, 0)

    def values(self) -> Iterator[FoundValue]:
        """Sentences of plain words are passed over as a whole: most of what people write is that."""
        first = 0
        for sentence in _SENTENCE_ENDS.finditer(self.folded):
            last = sentence.end()
            if any(sign.search(self.folded, first, last) for sign in _SIGNS):
                yield from self._values_between(first, last)
            first = last
        yield from self._values_between(first, len(self.folded))

    def _values_between(self, first: int, last: int) -> Iterator[FoundValue]:
        folded = self.folded
        taken = end = first
        while True:
            words = _PLAIN_WORDS.match(folded, end, last)
            if words and not (self.row and _goes_on(self.row, _PLAIN_WORD.search(folded, end)[0])):  # type: ignore[index]
                self.budget.spend((words.end() - end) // CHARS_PER_STEP + 1)
                if self.row:
                    yield from self._end_row()
                self._note_passed()
                self.passed = words.span()
                end = words.end()
            found = _PIECES.search(folded, end, last)
            if found is None:
                break
            piece, end = found[0], found.end()
            is_word = piece.isalpha() and 1 < len(piece) <= MAX_WORD_CHARS and piece[:3] not in DATE_HEADS
            if is_word and not (self.row and _goes_on(self.row, piece)):
                self.budget.spend(STEPS_PER_WORD)
                if self.row:
                    yield from self._end_row()
                self._note_word(piece, end)
                continue
            self.budget.spend(STEPS_PER_VALUE)
            start, value_end = found.span()
            if start < taken:
                continue
            if not (piece[0].isalnum() and piece[-1].isalnum()):
                piece, start, value_end = _strip(piece, start)
                if not piece:
                    continue
            days, day_end = days_at(folded, piece, start, self.at)
            if days:
                taken = day_end
                yield from self._end_row()
                yield from (FoundValue(day, start, taken) for day in days)
                continue
            if "://" in piece or piece.startswith(_LINK_HEADS):
                link_end = _LINK_END.search(folded, start)
                taken = link_end.start() if link_end else len(folded)
                piece, start, value_end = _strip(folded[start:taken], start)
            row = self.row
            if row and (row[-1].end != start - 1 or folded[start - 1] != " " or not _goes_on(row, piece)):
                yield from self._end_row()
            if _goes_on(self.row, piece):
                self.row.append(_Piece(piece, start, value_end))
            else:
                yield from self._piece_values(piece, start, value_end)
        if self.row:
            yield from self._end_row()

    def _note_passed(self) -> None:
        """Note those of the plain words that a number behind them could be called by."""
        first, last = self.passed
        if last:
            self.passed = (0, 0)
            for word in _PLAIN_WORD.finditer(self.folded, max(first, last - 2 * MAX_CALLED_CHARS), last):
                self._note_word(word[0], word.end())

    def _note_word(self, word: str, end: int) -> None:
        self._note_passed()
        if word in _ID_WORDS:
            self.id_end = end
        elif word not in _BETWEEN:
            self.noun, self.noun_end, self.id_end = word, end, -1

    def _end_row(self) -> Iterator[FoundValue]:
        row, self.row = self.row, []
        if len(row) >= MIN_GROUPS:
            joined = "".join(piece.text for piece in row).removeprefix("+")
            single = len(joined) == len(row)
            if len(row) >= MIN_SPACED_CHARS if single else sum(map(str.isdigit, joined)) >= MIN_GROUP_DIGITS:
                yield FoundValue(("code", compact(joined)), row[0].start, row[-1].end)
                return
        for piece in row:
            yield from self._piece_values(*piece)

    def _piece_values(self, piece: str, start: int, end: int) -> Iterator[FoundValue]:
        if ":" in piece and "://" not in piece and not piece.startswith(_LINK_HEADS):
            if not _TIME.fullmatch(piece):
                for part in piece.split(":"):
                    self.budget.spend(STEPS_PER_VALUE)
                    if part:
                        yield from self._piece_values(part, start, start + len(part))
                    start += len(part) + 1
            return
        if piece.isalpha() and len(piece) <= MAX_WORD_CHARS:
            self._note_word(piece, end)
            return
        keys = _keys(piece)
        for key in keys:
            yield FoundValue(key, start, end)
        if keys and keys[0][0] in ("number", "code") and len(piece) < 2 * MIN_CODE_CHARS:
            called = compact(piece.lstrip("#"))
            self._note_passed()
            if piece[0] == "#" or self._follows(self.id_end, start):
                yield FoundValue(("called", f"id:{called}"), start, end)
            if self._follows(self.noun_end, start):
                yield FoundValue(("called", f"{self.noun.removesuffix('s')}:{called}"), start, end)

    def _follows(self, word_end: int, start: int) -> bool:
        """Whether a value is called by this word: `file 13`, `files 12, 13 and 14`, `file with ID '13'`."""
        near = word_end >= 0 and start - word_end <= MAX_CALLED_CHARS
        return near and not _STOP.search(self.folded, word_end, start)


def _strip(piece: str, start: int) -> _Piece:
    stripped = piece.lstrip(_BEFORE_VALUE)
    start += len(piece) - len(stripped)
    stripped = stripped.rstrip(_BEHIND_VALUE)
    return _Piece(stripped, start, start + len(stripped))


def _goes_on(row: list[_Piece], piece: str) -> bool:
    """Whether a piece can stand in a row of groups of one number, or of single letters."""
    size = len(piece)
    if size > MAX_GROUP_CHARS + 1:
        return False
    if size == 1 and piece.isalnum():
        return not row or len(row[-1].text) == 1 or piece.isdigit()
    plain = piece if row else piece.removeprefix("+")
    if not plain.isalnum():
        return False
    # The second group of an account may be letters.
    return _WITH_DIGIT.search(plain) is not None or (
        len(row) == 1 and size == 4 and row[0].text[:2].isalpha() and len(row[0].text) > 1
    )


def _keys(piece: str) -> list[Key]:
    if "://" in piece or piece.startswith(_LINK_HEADS):
        return _place_keys(piece)
    if "@" in piece:
        name, _, host = piece.partition("@")
        if not name:
            return [("mention", host)]
        if "." not in host or "@" in host:
            return [("code", compact(piece))]
        return [("address", piece), ("place", host), ("part", name)]
    plain = piece.strip("$€£¥%#")
    if _NUMBER.fullmatch(plain):
        digits = plain if plain.isdigit() and len(plain) > MIN_CODE_CHARS else ""
        return [("number", number_text(plain)), *([("code", digits)] if digits else [])]
    if "/" in piece or "." in piece or "\\" in piece:
        if any(map(str.isalpha, piece)):
            return [] if _LETTERS_WITH_DOTS.fullmatch(piece) else _place_keys(piece)
        return [("code", compact(piece))] if any(map(str.isdigit, piece)) else []
    if _WITH_DIGIT.search(piece) or len(piece) > MAX_WORD_CHARS:
        return [("code", compact(plain))]
    return []


def _place_keys(piece: str) -> list[Key]:
    place = link_text(piece)
    host, slash, _ = place.partition("/")
    return [("place", place), *([("place", host)] if slash and "." in host else [])]


def link_text(value: str) -> str:
    """A link without its scheme, if it is a usual one, and without what ends a sentence."""
    text = fold_strictly(value).rstrip(".,;:!?)]}'\"")
    return text.removeprefix("https://").removeprefix("http://").rstrip("/")


def number_text(value: str | float) -> str:
    """A number in one way of writing it, with all its digits; a long one as it is."""
    text = str(value)
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0" if len(text) <= _MAX_NUMBER_CHARS else text
    text = _NUMBER_SIGNS.sub("", text).replace("−", "-")
    if len(text) > _MAX_NUMBER_CHARS:
        return text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite() or abs(number.adjusted()) >= _MAX_NUMBER_CHARS:
        return text
    return f"{number.normalize(_EXACT):f}" if number else "0"


def compact(code: str) -> str:
    """Without spaces and dashes but for a minus, and without the sign that says that it is a number."""
    folded = fold_strictly(code)
    return folded if folded.isalnum() else _CODE_SIGNS.sub("", folded).lstrip("#")


@lru_cache(maxsize=4096)
def words_in_name(name: str) -> tuple[str, ...]:
    """The words of an argument's or a tool's name: `file_id` and `fileId` are file and id."""
    return tuple(run.lower() for run in _NAME_WORDS.findall(name[:256]))


@lru_cache(maxsize=4096)
def is_id_name(name: str) -> bool:
    return not _ID_NAMES.isdisjoint(words_in_name(name))


_ID_NAMES: Final = frozenset({"id", "ids", "uid", "uuid", "key", "ref", "number", "no", "nr"})


def id_keys(value: str, name: str, tool: str = "") -> list[Key]:
    """The keys under which a short id is found, for an argument or a member of a result of this name.

    An argument that is only called `id` is one of what the tool is about: a file for `delete_file`.
    """
    nouns = {word.removesuffix("s") for word in words_in_name(name) if word not in _ID_NAMES}
    if not nouns:
        nouns = {word.removesuffix("s") for word in words_in_name(tool)[1:] if word not in _ID_NAMES}
    return [("called", f"{noun}:{compact(value)}") for noun in ("id", *sorted(nouns))]
