"""The narrowest patterns that cover the texts seen: the very same texts, or templates of their kind.

What a text means decides how it is generalised (`values`): a shell command by its words, a path by its
folders, an address by its domain. Text of no known kind is approved only as it was: one value, or a short
list of values that keep coming back. These are capability patterns, so a rule with nothing else can become a
grant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.rules.conditions import Range, canonical
from moot.values.covers import (
    MAX_VALUES,
    MIN_NAMES,
    MIN_REPEATS,
    TemplateCover,
    cover_values,
    values_recur,
)
from moot.values.kinds import (
    MAX_TEMPLATES,
    ValueKind,
    ValuePattern,
    has_word,
    recognise,
    stores_texts,
)
from moot.values.quoting import literal
from moot.values.templates import read_template
from moot.values.word_lists import ID_NAMES, READING_TOOLS, SEARCH_NAMES, SQL_NAMES

# Of several values, of a list or of a patch, each may be any of the options.
ALL: Final = -1


@dataclass(frozen=True, slots=True)
class ArgumentOptions:
    """What one argument may be: values, ranges, or templates of a kind."""

    options: tuple[Json | Range, ...]
    first_times: tuple[int | None, ...]
    kind: ValueKind | None = None

    @property
    def is_range(self) -> bool:
        return isinstance(self.options[0], Range)

    def index_of(self, values: tuple[Json, ...], *, whole: bool) -> int | None:
        """Which option it is; ALL where several values, of a list or of a patch, may be any of them."""
        found = {self._index_of(value) for value in values}
        if None in found or not found:
            return None
        return ALL if whole or self.kind == "patch" else found.pop()

    def _index_of(self, value: Json) -> int | None:
        if self.kind is not None:
            pattern = ValuePattern(self.kind, [str(each) for each in self.options])
            return (
                (ALL if pattern.admits(value) else None) if self.kind == "patch" else pattern.index_of(value)
            )
        for at, option in enumerate(self.options):
            if option.admits(value) if isinstance(option, Range) else canonical(option) == canonical(value):
                return at
        return None


def cover_texts(
    values: Sequence[str],
    *,
    name: str,
    tool: str | None = None,
    schema: object = None,
    within: Sequence[str] = (),
    wide: bool = True,
    reads: bool = False,
) -> ArgumentOptions | None:
    """The narrowest patterns for the texts of one argument, as far as they support any; None if they do not.

    Some texts may stay outside: those seen once, or unlike all others. `wide` and `reads` are as in `values`.
    """
    counts = Counter(values)
    if len(counts) == 1:
        return _one_of(list(counts))
    listed = _one_of([text for text, count in counts.most_common() if count >= MIN_REPEATS])
    kind = recognise(name, values, tool=tool, schema=schema, within=within, reads=reads)
    if kind is None or values_recur(counts):
        return listed
    # Below a host anything may be read, but not done.
    wide = (
        wide
        and (kind != "url" or reads or has_word(tool, READING_TOOLS))
        and (kind != "id" or has_word(name, ID_NAMES))
    )
    if kind == "text" and has_word(name, SEARCH_NAMES | SQL_NAMES) and len(counts) < MIN_NAMES:
        return listed
    covers = cover_values(kind, values, stored=stores_texts(name, tool), wide=wide)
    found = [cover for cover in covers if _can_be_written(cover)]
    if not any(cover.template.slots for cover in found):
        return listed
    return options_of_covers(kind, found)


def options_of_covers(kind: ValueKind, covers: Sequence[TemplateCover]) -> ArgumentOptions:
    """The best supported of these, as many as a rule may have."""
    kept = covers[:MAX_TEMPLATES]
    return ArgumentOptions(
        tuple(str(each.template) for each in kept), tuple(each.first_times for each in kept), kind
    )


def _can_be_written(cover: TemplateCover) -> bool:
    """Whether the template can stand in a rule: it is not too long, and its slots can be told apart."""
    try:
        return read_template(str(cover.template)) == cover.template
    except UsageError:
        return False


def _one_of(texts: Sequence[str]) -> ArgumentOptions | None:
    kept = [text for text in texts if literal(text) is not None][:MAX_VALUES]
    return ArgumentOptions(tuple(kept), (None,) * len(kept)) if kept else None
