"""Proves that a template matches no more than others do. What is not proved counts as wider.

The narrow template is written as a text in which a sign of its own stands for each of its slots, and the wide
one is matched with that. What each wide slot then holds has to be within it, whatever stands for the signs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Final

from moot.values.kinds import ValuePattern
from moot.values.templates import MAX_PROSE_CHARS, MAX_TEXT_CHARS, Slot, ValueTemplate
from moot.values.word_lists import is_guarded, is_secret

_MAX_VARIANTS: Final = 64
_MAX_PATH_NAMES: Final = 8
_MAX_NAME_CHARS: Final = 64
# Of private use, so that no template has them as text.
_SIGNS: Final = "\ue000-\uf8ff"
_SIGN: Final = re.compile(f"[{_SIGNS}]")
_NAMES: Final = {
    "name": f"[A-Za-z0-9_{_SIGNS}-]+",
    "file": f"[A-Za-z0-9_{_SIGNS}-]+",
    "path": f"[A-Za-z0-9_/{_SIGNS}-]+",
}


def is_within(inner: ValuePattern, outer: ValuePattern) -> bool:
    """Whether every text that `inner` admits is admitted by `outer`, as far as can be shown."""
    wide, narrow = (
        [variant for template in each.templates for variant in _variants(template)] for each in (outer, inner)
    )
    return inner.kind == outer.kind and all(
        any(_template_within(each, other) for other in wide) for each in narrow
    )


def _variants(template: ValueTemplate) -> list[ValueTemplate]:
    """The template once for each of its choices, as far as these are few."""
    options = [
        part.options if isinstance(part, Slot) and part.kind == "choice" else (part,)
        for part in template.parts
    ]
    count = 1
    for each in options:
        count *= len(each)
    return [ValueTemplate(parts) for parts in product(*options)] if count <= _MAX_VARIANTS else [template]


def _template_within(narrow: ValueTemplate, wide: ValueTemplate) -> bool:
    texts = "".join(part for part in (*narrow.parts, *wide.parts) if isinstance(part, str))
    if _SIGN.search(texts):
        return False
    if not narrow.slots:
        return wide.matches("".join(map(str, narrow.parts)))
    signs = {chr(0xE000 + at): slot for at, slot in enumerate(narrow.slots)}
    left = iter(signs)
    text = "".join(part if isinstance(part, str) else next(left) for part in narrow.parts)
    expressions = (
        re.escape(part)
        if isinstance(part, str)
        else f"({_NAMES.get(part.kind, f'[{_SIGNS}]|{part.expression}')})"
        for part in wide.parts
    )
    found = re.fullmatch("".join(expressions), text, re.ASCII)
    # Below a host people look at more words than in a folder.
    is_page = "://" in str(wide)
    return found is not None and all(
        _holds(slot, held, signs, is_page=is_page)
        for slot, held in zip(wide.slots, found.groups(), strict=True)
    )


def _holds(slot: Slot, held: str, signs: Mapping[str, Slot], *, is_page: bool) -> bool:
    """Whether a slot admits this, whatever stands for the signs in it."""
    if held in signs and (signs[held] == slot or _slot_within(signs[held], slot)):
        return True
    if slot.kind not in _NAMES:
        return not _SIGN.search(held) and slot.fits(held)
    guards = is_guarded if slot.kind == "name" or (slot.kind == "path" and is_page) else is_secret
    names = held.split("/")
    return len(names) <= _MAX_PATH_NAMES and all(_is_name(name, signs, guards) for name in names)


def _is_name(name: str, signs: Mapping[str, Slot], guards: Callable[[str], bool]) -> bool:
    """Whether it is a name without a guarded word, whatever stands for the signs in it."""
    slots = [signs[sign] for sign in _SIGN.findall(name)]
    if name in signs:
        return slots[0].kind in ("name", "digits", "uuid", "date") or (
            slots[0].kind == "file" and guards is is_secret
        )
    # Letters next to a slot could become a guarded word together with it.
    texts = _SIGN.split(name)
    longest = sum(map(len, texts)) + sum(int(slot.high) for slot in slots)
    return (
        bool(name)
        and not name.startswith("-")
        and all(slot.kind == "digits" for slot in slots)
        and not any(map(guards, texts))
        and longest <= _MAX_NAME_CHARS
    )


def _slot_within(one: Slot, other: Slot) -> bool:
    if one.kind == other.kind and one.kind in ("digits", "range"):
        return other.low <= one.low and one.high <= other.high and (other.is_amount or not one.is_amount)
    if one.kind == "range" and other.kind == "digits" and not one.is_amount and one.low >= 0:
        return int(other.low) <= len(str(one.low)) and len(str(one.high)) <= int(other.high)
    most = {"prose": MAX_PROSE_CHARS, "lines": MAX_PROSE_CHARS, "text": int(one.high) or MAX_TEXT_CHARS}
    if other.kind == "text" and one.kind in most:
        return most[one.kind] <= (int(other.high) or MAX_TEXT_CHARS)
    return (one.kind, other.kind) == ("prose", "lines")
