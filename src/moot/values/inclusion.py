"""Proves that a template matches no more than others do. What is not proved counts as wider.

Templates are cut into runs (letters, digits, `-`, `_` and the slots among them) and the separators between
them. No slot but `<path>`, `<prose>`, `<lines>` and `<text>` reaches across a separator, so runs are compared
in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

from moot.values.kinds import ValuePattern
from moot.values.templates import Slot, ValueTemplate
from moot.values.word_lists import is_guarded, is_secret

_MAX_VARIANTS: Final = 64
_MAX_PATH_NAMES: Final = 8
_RUN_SLOTS: Final = frozenset({"name", "digits", "hex", "uuid", "date"})

Run = tuple[str | Slot, ...]


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
    if not narrow.slots:
        return wide.matches("".join(part for part in narrow.parts if isinstance(part, str)))
    return _runs_within(_runs(narrow), _runs(wide))


def _runs(template: ValueTemplate) -> list[Run]:
    """Runs and single separators, in order; adjacent pieces of a run stay together."""
    runs: list[Run] = []
    joined = False
    for part in template.parts:
        pieces: Sequence[str | Slot] = (
            [part] if isinstance(part, Slot) else re.findall("[A-Za-z0-9_-]+|[^A-Za-z0-9_-]", part)
        )
        for piece in pieces:
            in_run = isinstance(piece, Slot) or bool(re.fullmatch("[A-Za-z0-9_-]+", piece))
            if in_run and joined:
                runs[-1] = (*runs[-1], piece)
            else:
                runs.append((piece,))
            joined = in_run
    return runs


def _runs_within(narrow: Sequence[Run], wide: Sequence[Run]) -> bool:
    if not wide:
        return not narrow
    first = wide[0]
    if len(first) == 1 and isinstance(first[0], Slot) and first[0].kind == "path":
        return any(
            _are_names(narrow[:count]) and _runs_within(narrow[count:], wide[1:])
            for count in range(1, min(len(narrow), 2 * _MAX_PATH_NAMES - 1) + 1, 2)
        )
    return bool(narrow) and _run_within(narrow[0], first) and _runs_within(narrow[1:], wide[1:])


def _are_names(runs: Sequence[Run]) -> bool:
    """Whether these runs are names with slashes between them."""
    if len(runs) == 1 and _slot_of(runs[0]) is not None and runs[0][0] == Slot("path"):
        return True
    return all(
        (run == ("/",)) if at % 2 else _run_within(run, (Slot("file"),)) for at, run in enumerate(runs)
    )


def _slot_of(run: Run) -> Slot | None:
    return run[0] if len(run) == 1 and isinstance(run[0], Slot) else None


def _run_within(narrow: Run, wide: Run) -> bool:
    if narrow == wide:
        return True
    literal = "".join(part for part in narrow if isinstance(part, str))
    if not any(isinstance(part, Slot) for part in narrow):
        return ValueTemplate(wide).matches(literal)
    slot = _slot_of(wide)
    if slot is not None and slot.kind in ("name", "file"):
        return _is_name(narrow, is_secret if slot.kind == "file" else is_guarded)
    if len(narrow) != len(wide):
        return False
    return all(_part_within(one, other) for one, other in zip(narrow, wide, strict=True))


def _is_name(run: Run, guards: Callable[[str], bool]) -> bool:
    """Whether whatever this run matches is a name that no guarded word is in."""
    if any(isinstance(part, str) and guards(part) for part in run) or str(run[0]).startswith("-"):
        return False
    if run == (Slot("file"),):
        return guards is is_secret
    # Letters next to a slot could become a guarded word together with it.
    slots = [part for part in run if isinstance(part, Slot)]
    if len(run) == 1:
        return slots[0].kind in _RUN_SLOTS - {"hex"} and (slots[0].kind != "digits" or slots[0].high <= 18)
    return all(slot.kind == "digits" for slot in slots) and sum(map(_longest, run)) <= 64


def _longest(part: str | Slot) -> int:
    return len(part) if isinstance(part, str) else int(part.high)


def _part_within(one: str | Slot, other: str | Slot) -> bool:
    if one == other:
        return True
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, Slot) and ValueTemplate((other,)).matches(one)
    if one.kind == other.kind and one.kind in ("digits", "range"):
        return other.low <= one.low and one.high <= other.high and (other.is_amount or not one.is_amount)
    if one.kind == "range" and other.kind == "digits" and not one.is_amount and one.low >= 0:
        return int(other.low) <= len(str(one.low)) and len(str(one.high)) <= int(other.high)
    return (one.kind, other.kind) in (("prose", "lines"), ("prose", "text"), ("lines", "text"))
