"""What people read of an effect."""

from __future__ import annotations

import hashlib

from moot.preview.call_effect import CallEffect, PathChange, PathState
from moot.preview.effect_text import differences, report_of


def effect_of(before: str | None, after: str | None) -> tuple[CallEffect, dict[str, bytes]]:
    contents: dict[str, bytes] = {}
    states: list[PathState | None] = []
    for text in (before, after):
        if text is None:
            states.append(None)
            continue
        data = text.encode()
        sha256 = hashlib.sha256(data).hexdigest()
        contents[sha256] = data
        states.append(PathState(kind="file", mode=0o644, size=len(data), sha256=sha256))
    change = PathChange(root="/srv", path="a.md", before=states[0], after=states[1])
    return CallEffect(call="c", nonce="n", changes=(change,), result="r"), contents


def told(before: str | None, after: str | None) -> tuple[str, object]:
    effect, contents = effect_of(before, after)
    (shown,) = differences(effect, contents.__getitem__)
    assert isinstance(shown, dict)
    return report_of(effect, contents, ()).changes[0].text(), shown["lines"]


def test_lines_are_counted_as_people_count_them() -> None:
    """A line break at the end begins no line."""
    assert told(None, "one\ntwo\n") == ("creates a.md, +2 −0", ["@@ -0,0 +1,2 @@", "+one", "+two"])
    assert told(None, "\n")[0] == "creates a.md, +1 −0"
    assert told(None, "")[0] == "creates a.md, +0 −0"
    assert told("one\ntwo\n", "one\n")[0] == "changes a.md, +0 −1"


def test_a_missing_line_break_at_the_end_is_said() -> None:
    text, lines = told("one\n", "one")
    assert text == "changes a.md, +1 −1"
    assert lines == ["@@ -1 +1 @@", "-one", "+one (no line break at the end)"]
