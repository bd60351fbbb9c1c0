"""Vectors: given a space, when somebody does something, then this is what everyone hears. Data, not code.

    - name: a grant widens a right at once
      rows: [MEW-3.6.1-1, MEW-3.6.1-5]
      space: {participants: {admin: ["*"], agent: [mcp/proposal], watcher: []}}
      join: [admin, agent, {watcher: {dialect: mcpx}}]       # default: every participant, in order, as MEW
      steps:
        - by: admin
          send: {id: g1, kind: capability/grant, payload: {...}}
          relayed: true
          hear: {agent: [{kind: system/welcome}]}

A step does one thing: `send` an envelope (absent id, ts, from and protocol are filled by the gateway),
`raw` (any text), `frame` (`#id#data`), each `by` a member; or `join`, `leave`, `wait` (seconds of the
space's clock), `journal` (true or false: able to write).

What follows is said by `refused: CODE` (the sender hears one system/error of that code, correlated to the
envelope when it has an id; nobody hears anything else), `relayed: true` (every member hears the envelope,
in its own dialect; or a list of who does), and `hear` (what a member hears besides, in order; members that
are not named hear nothing; `others` speaks for all who are not named). `unchecked: true` sets the stage.
`rows` says which rows this step alone shows, or `{field: row}` which a field of its messages shows.
`ruling: D-…`, for a step or a whole vector, says that MEW is silent and a ruling of ours decides: a gateway
that others wrote is not judged by it.
`payload:` beside `refused` says more about the error's payload. A closed connection is heard as
{closed: CODE}, a frame as {frame: "#…"}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final

import msgspec
import yaml

from moot.errors import UsageError
from moot.protocol.operation import Json

_FOLDER: Final = resources.files("moot.conformance") / "vectors"
_ACTIONS: Final = frozenset({"send", "raw", "frame", "join", "leave", "wait", "journal"})


# YAML as plain values, quickly: the vectors are a quarter of a megabyte.

# libyaml's parser is six times quicker; wheels have it, an unusual build may not.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Json:
    """The value of a YAML text; raises yaml.YAMLError."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  # both are safe loaders


class VectorStep(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that happens, and what is heard of it."""

    by: str | None = None
    send: dict[str, Json] | None = None
    raw: str | None = None
    frame: str | None = None
    join: Json = None
    leave: str | None = None
    wait: float | None = None
    journal: bool | None = None
    refused: str | None = None
    payload: dict[str, Json] | None = None
    relayed: bool | list[str] = False
    hear: dict[str, list[Json]] | None = None
    unchecked: bool = False
    # What a foreign gateway breaks that fails here: rows, or a row by the field that differs.
    rows: list[str] | dict[str, str] | None = None
    ruling: str | None = None


class Vector(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One story. `divergence` says why a row is not met and is pinned as it is."""

    name: str
    rows: list[str]
    steps: list[VectorStep]
    space: dict[str, Json] = msgspec.field(default_factory=dict)
    join: list[Json] | None = None
    divergence: str | None = None
    ruling: str | None = None

    @property
    def needs_clock(self) -> bool:
        """Whether the space's clock or journal must be in the runner's hands: not over a socket."""
        return any(step.wait is not None or step.journal is not None for step in self.steps)

    def joining(self) -> list[tuple[str, dict[str, Json]]]:
        """Who is there when the story starts, and how they connect."""
        listed = self.join if self.join is not None else list(self.space.get("participants", {}))
        return [one_joining(entry) for entry in listed]


def one_joining(entry: Json) -> tuple[str, dict[str, Json]]:
    """`alice`, or `{alice: {dialect: mcpx, echo: false}}`."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, options),) = entry.items()
        return name, dict(options)
    raise UsageError(f"join: {entry!r} is neither a name nor {{name: options}}")


def load_vectors() -> Iterator[tuple[str, Vector]]:
    """Every vector of the package with the name of its file, in order."""
    for name in sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(".yaml")):
        yield from ((name, vector) for vector in vectors_in(name))


@cache
def vectors_in(file: str) -> list[Vector]:
    """Those of one file of the package; all files take most of a second, once in a process."""
    return read_vectors((_FOLDER / file).read_text("utf-8"), file)


def read_vectors(text: str, source: str) -> list[Vector]:
    """The vectors of one YAML text; raises UsageError naming what is wrong where."""
    try:
        vectors = msgspec.convert(load_yaml(text) or [], list[Vector])
    except (yaml.YAMLError, msgspec.ValidationError) as fault:
        raise UsageError(f"{source}: {fault}") from fault
    for vector in vectors:
        for number, step in enumerate(vector.steps, 1):
            given = set(msgspec.to_builtins(step))
            if len(given & _ACTIONS) != 1:
                raise UsageError(f"{source}: {vector.name}: step {number} must do exactly one thing")
    return vectors
