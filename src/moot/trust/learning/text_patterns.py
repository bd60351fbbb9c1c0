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

from moot.errors import UsageError
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
    is_reading,
    is_search,
    names_ids,
    recognise,
    stores_texts,
)
from moot.values.quoting import literal
from moot.values.templates import read_template


@dataclass(frozen=True, slots=True)
class TextCover:
    """Exact texts (`kind` is None), or templates of a kind; `first_times`: new values behind the slots."""

    kind: ValueKind | None
    options: tuple[str, ...]
    first_times: tuple[int | None, ...]


def cover_texts(
    values: Sequence[str],
    *,
    name: str,
    tool: str | None = None,
    schema: object = None,
    within: Sequence[str] = (),
    wide: bool = True,
    reads: bool = False,
) -> TextCover | None:
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
    wide = wide and (kind != "url" or reads or is_reading(tool)) and (kind != "id" or names_ids(name))
    if kind == "text" and is_search(name) and len(counts) < MIN_NAMES:
        return listed
    found = [
        cover
        for cover in cover_values(kind, values, stored=stores_texts(name, tool), wide=wide)
        if _can_be_written(cover)
    ][:MAX_TEMPLATES]
    if not any(cover.template.slots for cover in found):
        return listed
    return TextCover(
        kind, tuple(str(cover.template) for cover in found), tuple(cover.first_times for cover in found)
    )


def _can_be_written(cover: TemplateCover) -> bool:
    """Whether the template can stand in a rule: it is not too long, and its slots can be told apart."""
    try:
        return read_template(str(cover.template)) == cover.template
    except UsageError:
        return False


def _one_of(texts: Sequence[str]) -> TextCover | None:
    kept = [text for text in texts if literal(text) is not None][:MAX_VALUES]
    return TextCover(None, tuple(kept), (None,) * len(kept)) if kept else None
