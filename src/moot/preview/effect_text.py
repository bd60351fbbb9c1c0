"""What people read of an effect: its paths with counted lines for everybody, and differences for who asks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from moot.preview.call_effect import CallEffect, PathChange, PathState
from moot.protocol.operation import Json
from moot.protocol.preview_report import MAX_TOLD_CHANGES, PreviewReport, ToldChange

# Comparing takes the square of the lines that differ.
MAX_DIFF_LINES: Final = 2_000
MAX_DIFF_BYTES: Final = 256 << 10

Read = Callable[[str], bytes]


def report_of(effect: CallEffect, contents: Mapping[str, bytes], tried: Sequence[str]) -> PreviewReport:
    """What everybody is told."""
    several = len({each.root for each in effect.changes}) > 1
    told = tuple(
        _told(each, contents.__getitem__, several=several) for each in effect.changes[:MAX_TOLD_CHANGES]
    )
    more = len(effect.changes) - len(told)
    return PreviewReport(effect=effect.hash, changes=told, more=more, tried=tuple(tried))


def differences(effect: CallEffect, read: Read) -> list[Json]:
    """For who may ask: each path with the lines that differ."""
    return [
        {"path": each.path, "root": each.root, "what": each.what, "lines": _diff(each, read)}
        for each in effect.changes
    ]


def _told(change: PathChange, read: Read, *, several: bool) -> ToldChange:
    state = change.after or change.before
    assert state is not None  # noqa: S101  # a change has a side
    name = f"{PurePath(change.root).name}/{change.path}" if several else change.path
    is_mode_new = change.after is not None and (change.before is None or change.before.mode != state.mode)
    return ToldChange(
        path=name,
        what=change.what,
        kind=state.kind,
        lines=_counts(change, read) if state.kind == "file" and change.what != "mode" else None,
        size=state.size,
        mode=f"{state.mode:o}" if is_mode_new and state.kind != "link" else "",
    )


def _counts(change: PathChange, read: Read) -> tuple[int, int] | None:
    both = _texts(change, read)
    if both is None:
        return None
    before, after = both
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if len(old) + len(new) > MAX_DIFF_LINES:
        return len(new), len(old)
    added = removed = 0
    for tag, first, last, first_new, last_new in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            removed, added = removed + last - first, added + last_new - first_new
    return added, removed


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    most = min(len(first), len(second))
    return next((index for index in range(most) if first[index] != second[index]), most)


def _diff(change: PathChange, read: Read) -> list[Json]:
    both = _texts(change, read)
    if both is None:
        return [f"{_side(change.before)} → {_side(change.after)}"]
    before, after = both
    if len(before) + len(after) > MAX_DIFF_LINES:
        return [f"{len(before):,} → {len(after):,} lines: too many to compare here"]
    lines: list[Json] = []
    if change.before is not None and change.after is not None and change.before.mode != change.after.mode:
        lines.append(f"mode {change.before.mode:o} → {change.after.mode:o}")
    return [*lines, *list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]]


def _side(state: PathState | None) -> str:
    if state is None:
        return "nothing"
    if state.kind == "link":
        return f"a link to {state.target}"
    if state.kind == "folder":
        return f"a folder, mode {state.mode:o}"
    return f"{state.size:,} bytes, mode {state.mode:o}, sha256 {state.sha256[:12]}"


def _lines(text: str) -> list[str]:
    """As people count them: what stands behind the last line break is a line only if it is something."""
    *lines, rest = text.split("\n")
    return [*lines, f"{rest} (no line break at the end)"] if rest else lines


def _texts(change: PathChange, read: Read) -> tuple[list[str], list[str]] | None:
    """Both sides as lines; None where one is no text, or long."""
    sides: list[list[str]] = []
    for state in (change.before, change.after):
        if state is None:
            sides.append([])
            continue
        if state.kind != "file" or state.size > MAX_DIFF_BYTES:
            return None
        try:
            text = read(state.sha256).decode("utf-8")
        except UnicodeDecodeError:
            return None
        if "\0" in text:
            return None
        sides.append(_lines(text))
    if change.before is not None and change.after is not None and sides[0] == sides[1]:
        # Only the mode.
        return None
    return sides[0], sides[1]
