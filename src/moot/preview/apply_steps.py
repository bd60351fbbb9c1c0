"""In which order the paths of an effect change. Pure.

What goes, goes first; then what comes or changes; and last the modes of folders, the deepest first, since a
folder may end as one that nobody may write to. A folder that goes or comes does so with all that is in it, in
one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from moot.preview.call_effect import PathChange, PathState

# `take`: move away what is there. `put`: place what was made, where nothing is. `swap`: exchange the two.
Act = Literal["take", "put", "swap", "mode"]


class ApplyStep(msgspec.Struct, frozen=True):
    """One step; `index` is that of its change."""

    act: Act
    index: int


def steps_of(changes: Sequence[PathChange]) -> list[ApplyStep]:
    order = sorted(range(len(changes)), key=lambda index: (changes[index].root, changes[index].parts))
    takes, places, modes = [], [], []
    gone, new = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for index in order:
        change = changes[index]
        was_folder, is_folder = _is_folder(change.before), _is_folder(change.after)
        place = (change.root, *change.parts)
        if was_folder and is_folder:
            modes.append(ApplyStep("mode", index))
        elif change.before is not None and change.after is not None and not was_folder and not is_folder:
            places.append(ApplyStep("swap", index))
        else:
            if change.before is not None and not _is_within(place, gone):
                takes.append(ApplyStep("take", index))
                gone |= {place} if was_folder else set()
            if change.after is not None and not _is_within(place, new):
                places.append(ApplyStep("put", index))
                new |= {place} if is_folder else set()
                modes += [ApplyStep("mode", index)] if is_folder else []
    return [*takes, *places, *reversed(modes)]


def tree_of(changes: Sequence[PathChange], top: PathChange, *, after: bool) -> dict[str, PathState]:
    """A folder that comes or goes, with all that is in it: by the path below it, itself as an empty one."""
    inner = f"{top.path}/"
    found = {}
    for each in changes:
        state = each.after if after else each.before
        if each.root == top.root and state is not None and (each is top or each.path.startswith(inner)):
            found[each.path[len(inner) :]] = state
    return found


def _is_folder(state: PathState | None) -> bool:
    return state is not None and state.kind == "folder"


def _is_within(place: tuple[str, ...], folders: set[tuple[str, ...]]) -> bool:
    return any(place[:length] in folders for length in range(2, len(place)))
