"""The narrowest templates for values of one kind: what was seen stays, what is always new becomes a slot.

Values are compared only with the same skeleton: the same atoms with the same fixed texts. An atom in it that
keeps coming back is listed, and each of its values gets templates of its own, so that no pair is allowed that
was never seen together. Only atoms that are mostly new become slots, as far as their role allows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from moot.values.atoms import NAME, Atom
from moot.values.kinds import ValueKind, read_value
from moot.values.templates import Slot, ValueTemplate
from moot.values.word_lists import is_guarded, is_secret

# This many different values make a slot where the structure says what they are: numbers, hashes, dates.
MIN_NEW_VALUES: Final = 5
# Names are a matter of judgement: they have a slot only after so many in this argument, so many different,
# and some in the very same place. What is wrong with some of them shows until then.
MIN_NAMES_SEEN: Final = 60
MIN_NEW_NAMES: Final = 15
MIN_NAMES_HERE: Final = 3
# Below a host that is known less is needed: nothing in a path makes it another host.
MIN_NAMES_AT_HOST: Final = 2
# Of names that are no files and no people more must be new: a closed list must not look like an open one.
MIN_WORDS_HERE: Final = 30
MIN_NEW_WORDS: Final = 20
MIN_SINGLE_WORDS: Final = 0.6
MIN_REPEATS: Final = 2
MAX_VALUES: Final = 24
MAX_ENDINGS: Final = 6
# The share of values seen only once above which new ones are expected (Good-Turing estimate).
MAX_SINGLE_SHARE: Final = 0.1

Row = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class TemplateCover:
    """A template, how many values stand behind it, and the fewest different ones behind a slot."""

    template: ValueTemplate
    support: int
    first_times: int | None


def cover_values(
    kind: ValueKind, values: Sequence[str], pool: Sequence[str] | None = None, *, stored: bool = False
) -> list[TemplateCover]:
    """Templates for these values, the best supported first; values that cannot be read have none.

    `pool` are all values of this argument, also those of calls with other arguments beside it; `stored`
    whether the tool only stores texts.
    """
    rows = [row for value in values if (row := read_value(kind, value)) is not None]
    if kind == "text":
        return _cover_texts(rows, stored=stored)
    pooled = rows if pool is None else [row for text in pool if (row := read_value(kind, text)) is not None]
    names = _NamePool(kind, pooled)
    found = [cover for group in _by_skeleton(rows).values() for cover in _solve(group, names)]
    if kind in ("path", "url") and len(pooled) >= MIN_NAMES_SEEN:
        found += _subtrees(kind, rows, found)
    return sorted(found, key=lambda cover: -cover.support)


def _by_skeleton(rows: Sequence[Row], start: int = 0) -> dict[tuple[tuple[str, str | None], ...], list[Row]]:
    groups: dict[tuple[tuple[str, str | None], ...], list[Row]] = {}
    for row in rows:
        key = tuple((atom.role, atom.text if atom.role == "fixed" else None) for atom in row[start:])
        groups.setdefault(key, []).append(row)
    return groups


class _NamePool:
    """What all values of an argument say about names, whatever command, folder or host they belong to."""

    def __init__(self, kind: ValueKind, rows: Sequence[Row]) -> None:
        self._kind = kind
        self._least = MIN_NAMES_AT_HOST if kind == "url" else MIN_NAMES_HERE
        self.stems = _are_many([atom.text for row in rows for atom in row if atom.role == "stem"])
        # What varies below one host varies below another that is known.
        self._urls = (
            {
                (key, at): _are_many(texts) or _are_words(texts)
                for key, group in _by_skeleton(rows, 1).items()
                for at in range(1, len(group[0]))
                if group[0][at].role == "name"
                for texts in [[row[at].text for row in group]]
            }
            if kind == "url"
            else {}
        )
        self._names = {
            role: len([atom for row in rows for atom in row if atom.role == role]) >= MIN_NAMES_SEEN
            for role in ("name", "stem")
        }

    def has_names(self, rows: Sequence[Row], at: int) -> bool:
        """Whether the names in this place are of an open kind."""
        texts = [row[at].text for row in rows]
        guards = is_secret if rows[0][at].role == "stem" and self._kind != "email" else is_guarded
        if len(texts) < self._least or any(map(guards, texts)):
            return False
        if rows[0][at].role == "stem":
            return self.stems and len(set(texts)) >= self._least
        key = tuple((atom.role, atom.text if atom.role == "fixed" else None) for atom in rows[0][1:])
        return self._names["name"] and (self._urls.get((key, at), False) or _are_words(texts))


def _are_many(texts: Sequence[str]) -> bool:
    counts = Counter(texts)
    return len(texts) >= MIN_NAMES_SEEN and len(counts) >= MIN_NEW_NAMES and not _recur(counts)


def _are_words(texts: Sequence[str]) -> bool:
    counts = Counter(texts)
    single = sum(1 for count in counts.values() if count == 1)
    return (
        len(texts) >= MIN_WORDS_HERE
        and len(counts) >= MIN_NEW_WORDS
        and single >= MIN_SINGLE_WORDS * len(texts)
    )


def _solve(rows: Sequence[Row], pool: _NamePool) -> Iterator[TemplateCover]:
    """Templates for values with one skeleton."""
    varying = [at for at in range(len(rows[0])) if len({row[at].text for row in rows}) > 1]
    for at in [at for at in varying if rows[0][at].role == "ending"]:
        often = {text for text, n in Counter(row[at].text for row in rows).items() if n >= MIN_REPEATS}
        rows = [row for row in rows if row[at].text in often]
        if len(often) > MAX_ENDINGS or not rows:
            return
    varying = [at for at in varying if len({row[at].text for row in rows}) > 1]
    for at in varying:
        if not _is_open(rows, at, pool):
            for value, count in Counter(row[at].text for row in rows).most_common(MAX_VALUES):
                if count >= MIN_REPEATS:
                    yield from _solve([row for row in rows if row[at].text == value], pool)
            return
    if not varying and len(rows) < MIN_REPEATS:
        return
    parts: list[str | Slot] = []
    for at, atom in enumerate(rows[0]):
        is_file = atom.role == "stem" and at + 1 < len(rows[0]) and rows[0][at + 1].role == "ending"
        texts = [row[at].text for row in rows]
        for part in _slots(texts, atom, is_file=is_file) if at in varying else [atom.text]:
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    new = [at for at in varying if rows[0][at].role != "ending"]
    first = min((len({row[at].text for row in rows}) for at in new), default=None)
    yield TemplateCover(ValueTemplate(tuple(parts)), len(rows), first)


def _is_open(rows: Sequence[Row], at: int, pool: _NamePool) -> bool:
    """Whether new values are to be expected in this place, and the role lets them be."""
    role = rows[0][at].role
    counts = Counter(row[at].text for row in rows)
    if role == "ending":
        return True
    if role in ("fixed", "word", "prose", "text"):
        return role == "prose" and len(counts) >= MIN_NEW_VALUES
    if role in ("name", "stem") and _numbered(list(counts)) is None:
        return _dotted(list(counts)) is not None and pool.has_names(rows, at)
    single = sum(1 for count in counts.values() if count == 1)
    return len(counts) >= MIN_NEW_VALUES and (
        single > MAX_SINGLE_SHARE * len(rows) or len(counts) > MAX_VALUES
    )


def _slots(texts: Sequence[str], atom: Atom, *, is_file: bool) -> list[str | Slot]:
    match atom.role:
        case "number":
            numbers = [int(text) for text in texts]
            return [Slot("range", Decimal(min(numbers)), Decimal(max(numbers)))]
        case "amount":
            amounts = [Decimal(text) for text in texts]
            return [Slot("range", min(amounts), max(amounts))]
        case "ending":
            return [Slot("choice", options=tuple(sorted(set(texts))))]
        case "digits":
            return [_digits(texts)]
        case "prose":
            return [_prose(texts)]
        case "hex" | "uuid" | "date" | "text":
            return [Slot(atom.role)]
    return _numbered(texts) or _dotted(texts, "file" if is_file else "name") or [Slot("name")]


def _dotted(texts: Sequence[str], slot: str = "name") -> list[str | Slot] | None:
    """Names, with as many dots between them as all have; None if they are anything else."""
    rows = [text.split(".") for text in texts]
    if len({len(row) for row in rows}) != 1 or not all(NAME.fullmatch(name) for row in rows for name in row):
        return None
    parts: list[str | Slot] = [Slot(slot)]
    for _ in rows[0][1:]:
        parts += [".", Slot(slot)]
    return parts


def _digits(texts: Sequence[str]) -> Slot:
    lengths = sorted(map(len, texts))
    return Slot("digits", Decimal(lengths[0]), Decimal(lengths[-1]))


def _numbered(texts: Sequence[str]) -> list[str | Slot] | None:
    """`r-10`, `r-11` as `r-<2 digits>`: names that differ in numbers alone; None if they differ otherwise."""
    rows = [re.findall("[0-9]{1,18}|[^0-9]+", text) for text in texts]
    if len({len(row) for row in rows}) != 1:
        return None
    parts: list[str | Slot] = []
    for column in zip(*rows, strict=True):
        if len(set(column)) == 1:
            parts.append(column[0])
        elif all(piece.isdigit() for piece in column):
            parts.append(_digits(column))
        else:
            return None
    return parts


def _prose(texts: Iterable[str]) -> Slot:
    """Words; a second line, which can be a header of its own, only where there was one."""
    return Slot("lines" if any("\n" in text or "\t" in text for text in texts) else "prose")


def _cover_texts(rows: Sequence[Row], *, stored: bool) -> list[TemplateCover]:
    """Free text: prose, any text where a tool only stores it, or the same texts again."""
    counts = Counter(row[0].text for row in rows)
    prose = {row[0].text for row in rows if row[0].role == "prose"}
    found: list[TemplateCover] = []
    if not _recur(counts):
        if stored and len(prose) < len(counts) and len(counts) >= MIN_NEW_VALUES:
            return [TemplateCover(ValueTemplate((Slot("text"),)), len(rows), len(counts))]
        if len(prose) >= MIN_NEW_VALUES:
            support = sum(counts[text] for text in prose)
            found.append(TemplateCover(ValueTemplate((_prose(prose),)), support, len(prose)))
    return found + [
        TemplateCover(ValueTemplate((text,)), count, None)
        for text, count in counts.most_common(MAX_VALUES)
        if count >= MIN_REPEATS and not (found and text in prose)
    ]


def _recur(counts: Counter[str]) -> bool:
    total = counts.total()
    single = sum(1 for count in counts.values() if count == 1)
    return len(counts) <= MAX_VALUES and single <= MAX_SINGLE_SHARE * total and len(counts) * 2 <= total


def _subtrees(
    kind: ValueKind, rows: Sequence[Row], found: Sequence[TemplateCover]
) -> Iterator[TemplateCover]:
    """For files in many folders of different depth: a folder and everything below it with this ending."""
    left: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in rows:
        text = "".join(atom.text for atom in row)
        if any(cover.template.matches(text) for cover in found):
            continue
        if kind == "path" and row[-1].role != "ending":
            continue
        split = _split_path(row)
        if split is not None:
            start, names, ending = split
            left.setdefault((start, ending), []).append(names)
    for (start, ending), group in left.items():
        if len(group) < MIN_WORDS_HERE or len(set(group)) < MIN_NEW_WORDS:
            continue
        common = _common_start([names[:-1] for names in group])
        guards = is_guarded if kind == "url" else is_secret
        if any(guards(name) for names in group for name in names[len(common) :]):
            continue
        if not common and kind == "path":
            continue
        prefix = start + "".join(f"{name}/" for name in common)
        parts: tuple[str | Slot, ...] = (prefix, Slot("path"), *([ending] if ending else []))
        yield TemplateCover(ValueTemplate(parts), len(group), len(set(group)))


def _common_start(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    first, last = min(rows), max(rows)
    count = next((at for at, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), None)
    return first[: min(len(first), len(last))] if count is None else first[:count]


def _split_path(row: Row) -> tuple[str, tuple[str, ...], str] | None:
    """What a path starts with (a slash, a host), the names in it, and its ending."""
    atoms = list(row)
    start = ""
    while atoms and atoms[0].role == "fixed" and atoms[0].text != "/":
        start += atoms.pop(0).text
    if atoms and atoms[0].text == "/":
        start += atoms.pop(0).text
    ending = (
        atoms.pop().text if atoms and atoms[-1].role == "fixed" and atoms[-1].text.startswith(".") else ""
    )
    names = [atom.text for atom in atoms[::2]]
    if (
        not names
        or any(atom.text != "/" for atom in atoms[1::2])
        or not all(NAME.fullmatch(n) for n in names)
    ):
        return None
    return start, tuple(names), ending
