"""What was changed in a call before it was carried out: one line a value, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moot.protocol.operation import Json

# What one line of a text shows of a value.
MAX_VALUE_CHARS: Final = 120
# Lines that a text has; the rest is counted.
MAX_LINES: Final = 20
# No value at all, which is not null.
MISSING: Final = object()


class Change(NamedTuple):
    """One value that differs. `MISSING` is where there was none, or is none any more."""

    # As in `arguments.lines.0.amount`.
    path: str
    was: Json
    now: Json

    def as_json(self) -> dict[str, Json]:
        fields = {"was": self.was, "now": self.now}
        return {"path": self.path} | {name: value for name, value in fields.items() if value is not MISSING}

    @property
    def text(self) -> str:
        if self.was is MISSING:
            return f"{self.path}: {_shown(self.now)} (added)"
        if self.now is MISSING:
            return f"{self.path}: {_shown(self.was)} (removed)"
        return f"{self.path}: {_shown(self.was)} → {_shown(self.now)}"


def changes_between(before: Mapping[str, Json], after: Mapping[str, Json]) -> tuple[Change, ...]:
    """What differs between two bodies of a call: method and params, but for `_meta`."""
    return tuple(_differences("", _compared(before), _compared(after)))


def change_lines(changes: Sequence[Change]) -> list[str]:
    """The changes in words, as many as anybody reads."""
    lines = [each.text for each in changes[:MAX_LINES]]
    more = len(changes) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def _compared(body: Mapping[str, Json]) -> Json:
    params = body.get("params", {})
    if not isinstance(params, dict):
        return {"method": body.get("method"), "params": params}
    return {"method": body.get("method")} | {key: value for key, value in params.items() if key != "_meta"}


def _differences(path: str, was: Json, now: Json) -> Iterator[Change]:
    prefix = f"{path}." if path else ""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*was, *now]):
            yield from _differences(f"{prefix}{name}", was.get(name, MISSING), now.get(name, MISSING))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(f"{prefix}{index}", one, other)
    # 1, 1.0 and true are equal to Python.
    elif type(was) is not type(now) or was != now:
        yield Change(path, was, now)


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"
