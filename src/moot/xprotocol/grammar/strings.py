"""Strings: length bounds, patterns, formats, and names that must not be certain names.

One plain language is written down as it is. Several at once, or one with a complement in it, go through an
automaton whose states become rules. What is too large for that is dropped, the widest first, and noted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from moot.xprotocol.grammar.formats import format_language, format_note
from moot.xprotocol.grammar.grammar_limits import COUNT, PATTERN_CHARACTERS
from moot.xprotocol.grammar.json_rules import QUOTE, free_character, free_string, one_token, spelled
from moot.xprotocol.grammar.language.automata import TooLarge, automaton, matches
from moot.xprotocol.grammar.language.charsets import EVERY, chars
from moot.xprotocol.grammar.language.languages import (
    Both,
    Concatenation,
    Either,
    Language,
    Many,
    Not,
    One,
    both,
    is_plain,
    length_between,
    with_length,
)
from moot.xprotocol.grammar.language.pattern_search import search_language
from moot.xprotocol.grammar.language.regex import PatternUnsupported
from moot.xprotocol.grammar.language.states import from_automaton
from moot.xprotocol.grammar.rule_book import NEVER, Expr, RuleBook, alt, joined, seq

Note = Callable[[str], None]
_LARGE_CHOICE = 4


@dataclass(frozen=True, slots=True)
class StringBounds:
    """All that a schema says about a string, apart from listed values."""

    low: int = 0
    high: int | None = None
    patterns: tuple[str, ...] = ()
    not_patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


def string(
    book: RuleBook, bounds: StringBounds, demands: Sequence[Language] = (), *, hint: str, note: Note
) -> Expr:
    """The strings within these bounds that belong to all `demands`, quotes included.

    What cannot be said is noted and left wider.
    """
    key = (bounds, tuple(demands))
    if key not in book.strings:
        # The same string often stands in several ways of one schema, and automata cost time.
        noted: list[str] = []
        book.strings[key] = _string(book, bounds, demands, hint=hint, note=noted.append), tuple(noted)
    expr, notes = book.strings[key]
    for words in notes:
        note(words)
    return expr


def _string(
    book: RuleBook, bounds: StringBounds, demands: Sequence[Language], *, hint: str, note: Note
) -> Expr:
    low, high = countable(bounds.low, bounds.high, "Length", note)
    if high is not None and high < low:
        return NEVER
    languages = list(dict.fromkeys([*demands, *_languages(bounds, note)]))
    if languages:
        return one_token(book, hint, _written(book, languages, low, high, hint=hint, note=note))
    if (low, high) == (0, None):
        return free_string(book)
    return book.rule(hint, seq(QUOTE, book.repeat("char", free_character(book), low, high), QUOTE))


def countable(low: int, high: int | None, what: str, note: Note) -> tuple[int, int | None]:
    """The bounds without those too large to count; also for items, in `what`'s words."""
    if low > COUNT:
        note(f"min{what} {low} is only enforced up to {COUNT}")
        low = COUNT
    if high is not None and high > COUNT:
        note(f"max{what} {high} is not enforced; the grammar counts to {COUNT}")
        high = None
    return low, high


def admits(bounds: StringBounds, words: str) -> bool | None:
    """Whether a text keeps the bounds; `None` if a pattern is beyond us and nothing else refuses it."""
    if len(words) < bounds.low or (bounds.high is not None and len(words) > bounds.high):
        return False
    if words in bounds.excluded:
        return False
    noted: list[str] = []
    try:
        if not all(matches(language, words) for language in _languages(bounds, noted.append)):
            return False
    except TooLarge:
        return None
    return None if noted else True


def _languages(bounds: StringBounds, note: Note) -> list[Language]:
    found: list[Language] = []
    for source in bounds.patterns:
        language = _pattern(source, note)
        if language is not None:
            found.append(language)
    for name in bounds.formats:
        language = format_language(name)
        if language is not None:
            found.append(language)
        missing = format_note(name)
        if missing is not None:
            note(missing)
    for source in bounds.not_patterns:
        language = _pattern(source, note)
        if language is not None:
            if "\\b" in source:
                # Beside it `pattern_search` offers less than it might, so the opposite is too much.
                note("not a pattern with \\b is not fully enforced")
            found.append(Not(language))
    if bounds.excluded:
        found.append(other_than(bounds.excluded))
    return found


def _pattern(source: str, note: Note) -> Language | None:
    shown = source if len(source) <= 60 else f"{source[:57]}..."
    if len(source) > PATTERN_CHARACTERS:
        note(f"pattern {shown} is not enforced: it is longer than {PATTERN_CHARACTERS} characters")
        return None
    try:
        return search_language(source)
    except PatternUnsupported as unsupported:
        note(f"pattern {shown} is not enforced: {unsupported}")
        return None


def other_than(names: Sequence[str]) -> Language:
    """Every text but these, as a tree of first differences; plain, so it needs no automaton."""
    rest = Many(One(EVERY), 0, None)

    def at(prefix_length: int, group: list[str]) -> Language:
        ways: list[Language] = []
        following: dict[str, list[str]] = {}
        for name in group:
            if len(name) > prefix_length:
                following.setdefault(name[prefix_length], []).append(name)
        if all(len(name) > prefix_length for name in group):
            ways.append(Concatenation(()))
        others = EVERY - chars("".join(following))
        ways.append(Concatenation((One(others), rest)))
        for char, names_on in following.items():
            ways.append(Concatenation((One(chars(char)), at(prefix_length + 1, names_on))))
        return Either(tuple(ways))

    return at(0, sorted(set(names)))


def _written(
    book: RuleBook, languages: list[Language], low: int, high: int | None, *, hint: str, note: Note
) -> Expr:
    bounded = (low, high) != (0, None)
    if len(languages) == 1 and is_plain(languages[0]):
        simple = with_length(languages[0], low, high) if bounded else languages[0]
        if simple is not None:
            return seq(QUOTE, plain(book, simple, hint=hint), QUOTE)
    length = [length_between(low, high)] if bounded else []
    try:
        return from_automaton(book, automaton(both(*languages, *length), book.work), hint=hint)
    except TooLarge:
        pass
    if bounded:
        note("minLength and maxLength are not enforced beside pattern or format: too large together")
        return _written(book, languages, 0, None, hint=hint, note=note)
    plain_ones = [language for language in languages if is_plain(language)]
    if not plain_ones:
        note("pattern and format are not enforced: too large together")
        return free_string(book)
    if len(languages) > 1:
        note("of pattern and format only the first is enforced: too large together")
    return seq(QUOTE, plain(book, plain_ones[0], hint=hint), QUOTE)


def plain(book: RuleBook, language: Language, *, hint: str) -> Expr:
    """A plain language, character by character, without quotes."""
    match language:
        case One(members):
            return spelled(book, members)
        case Concatenation(items):
            return joined(*(plain(book, item, hint=hint) for item in items))
        case Either(items):
            whole = alt(*(plain(book, item, hint=hint) for item in items))
            # Large choices come again (a byte of an address), and then as the same rule.
            return book.rule(hint, whole) if len(items) >= _LARGE_CHOICE else whole
        case Many(item, low, high):
            return book.repeat(hint, plain(book, item, hint=hint), low, high)
        case Both() | Not():
            raise AssertionError("not plain")
        case _:
            assert_never(language)
