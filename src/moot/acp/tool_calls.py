"""A tool call of an ACP agent: merged from all its updates, as people see it and decide about it.

Agents tell about one call in pieces: the diff in an earlier update, the input only in the permission request,
or no input at all. What people decide about is everything that was told, and what was not told is named as
missing. Titles and kinds are words of the agent and may lie: where the input or a diff is there, the title is
left out of a proposal, and a call that shows a command or a diff is one, whatever its kind says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from moot.protocol.operation import Json

# The kinds of ACP. They are the names of the tools under which a member proposes.
KINDS: Final = (
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
)
# Kinds that say that nothing changes; evidence of a command or of a diff counts more.
_HARMLESS: Final = frozenset({"read", "search", "think", "fetch", "switch_mode", "other"})
# A command of a page: the proposal has all of it.
_MAX_LINE_CHARS: Final = 2_000
_FIELDS: Final = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")
_COMMAND_NAMES: Final = ("command", "cmd", "script", "shell")
_PATH_WORDS: Final = ("path", "file", "dir", "folder", "cwd", "source", "dest", "target", "uri")


@dataclass(slots=True, eq=False)
class AgentToolCall:
    """One call, as far as the agent has told about it."""

    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    # The latest content that had a diff: some agents replace it by text, or by nothing.
    _diffs: list[dict[str, Json]] = field(default_factory=list)
    # The agent was told that it may not do this.
    was_refused: bool = False

    def reopen(self) -> None:
        """It is asked for, so it is neither over nor refused, whatever was before."""
        self.was_refused = False
        if self.is_over:
            self.fields["status"] = "pending"

    def merge(self, update: Mapping[str, Any]) -> bool:
        """Take in an update; whether it changed anything."""
        given = {name: update[name] for name in _FIELDS if update.get(name) is not None}
        changed = any(self.fields.get(name) != value for name, value in given.items())
        self.fields |= given
        if diffs := _diffs_in(given.get("content")):
            self._diffs = diffs
        return changed

    @property
    def title(self) -> str:
        title = self.fields.get("title")
        return title if isinstance(title, str) else ""

    @property
    def status(self) -> str:
        status = self.fields.get("status")
        return status if isinstance(status, str) else "pending"

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def input(self) -> Json:
        """The raw input; None if there is none, or an empty one."""
        return self.fields.get("rawInput") or None

    @property
    def changes(self) -> list[dict[str, Json]]:
        """Every diff as `path`, `old_text` (None: a new file) and `new_text`."""
        return self._diffs

    @property
    def texts(self) -> list[str]:
        """The text content."""
        content = self.fields.get("content")
        found = []
        for item in content if isinstance(content, list) else ():
            inner = item.get("content") if isinstance(item, dict) else None
            if isinstance(inner, dict) and isinstance(inner.get("text"), str):
                found.append(inner["text"])
        return found

    @property
    def locations(self) -> list[str]:
        places = self.fields.get("locations")
        return [
            place["path"]
            for place in (places if isinstance(places, list) else ())
            if isinstance(place, dict) and isinstance(place.get("path"), str)
        ]

    @property
    def command(self) -> Json:
        """The command that the input shows, None if it shows none."""
        given = self.input
        if not isinstance(given, dict):
            return None
        return next((given[name] for name in _COMMAND_NAMES if given.get(name)), None)

    @property
    def kind(self) -> str:
        """The kind by what it does, as far as that can be seen, and else as the agent calls it."""
        declared = self.fields.get("kind")
        kind = declared if declared in KINDS else "other"
        if kind in _HARMLESS:
            if self.command is not None:
                return "execute"
            if self.changes:
                return "edit"
        return kind

    def paths(self) -> Iterator[str]:
        """Every path that the call names, as far as that can be seen."""
        yield from (str(change["path"]) for change in self.changes)
        yield from self.locations
        yield from _paths_in(self.input)

    def outside(self, folder: Path) -> list[str]:
        """Those of its paths that lead out of the folder, links followed."""
        top = os.path.realpath(folder)
        found: dict[str, None] = {}
        for path in self.paths():
            if "\0" in path:
                found[path] = None
                continue
            plain = unquote(urlsplit(path).path) if path.startswith("file:") else path
            real = os.path.realpath(os.path.join(top, os.path.expanduser(plain)))
            if real != top and not real.startswith(top.rstrip(os.sep) + os.sep):
                found[path] = None
        return list(found)

    def arguments(self, folder: Path) -> dict[str, Json]:
        """What people decide about: the input and the changes, or whatever else was told; and what was not.

        No id and no title where there is more to say, so that rules can name like calls.
        """
        arguments: dict[str, Json] = {}
        if self.input is not None:
            arguments["input"] = self.input
        if self.changes:
            arguments["changes"] = self.changes
        if not arguments:
            arguments["title"] = self.title
            for name, value in (("paths", self.locations), ("text", "\n".join(self.texts))):
                if value:
                    arguments[name] = value
        if outside := self.outside(folder):
            arguments["outside_folder"] = outside
        if missing := self.missing():
            arguments["missing"] = missing
        return arguments

    def missing(self) -> list[str]:
        """What the agent did not tell of the call."""
        missing = []
        if self.input is None and not self.changes:
            missing.append("input")
        if self.kind == "edit" and not self.changes:
            missing.append("changes")
        if self.kind == "execute" and self.command is None:
            missing.append("command")
        return missing

    def snapshot(self) -> tuple[Json, list[dict[str, Json]]]:
        """What must stay as it is while people decide, and after that."""
        return self.input, list(self.changes)

    def differs(self, decided: tuple[Json, list[dict[str, Json]]], *, is_running: bool = False) -> bool:
        """Whether this is another call than the one that was decided about.

        Of a running one, agents report diffs in other words than before; other files are another call.
        """
        known_input, known_changes = decided
        if self.input is not None and known_input is not None and self.input != known_input:
            return True
        if not self.changes or self.changes == known_changes:
            return False
        if not known_changes:
            # It had told nothing to compare with, but for its input.
            return not is_running
        known = {change["path"] for change in known_changes}
        return not is_running or not {change["path"] for change in self.changes} <= known

    def describe(self) -> str:
        """One line: what it does, in our words where that can be seen; long ones are cut."""
        text = self._describe()
        return text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]}…"

    def _describe(self) -> str:
        if self.command is not None:
            shown = self.command if isinstance(self.command, str) else str(self.command)
            return f"{self.kind}: {shown}"
        if self.changes:
            return f"{self.kind}: {', '.join(str(change['path']) for change in self.changes)}"
        paths = ", ".join(dict.fromkeys(self.paths()))
        return f"{self.kind}: {' — '.join(part for part in (self.title, paths) if part) or self.id}"


def _paths_in(value: Json, name: str = "") -> Iterator[str]:
    """Texts that stand below a name of a path, at any depth, and addresses of files."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths_in(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths_in(inner, name)
    elif isinstance(value, str) and (
        value.startswith("file:") or any(word in name.lower() for word in _PATH_WORDS)
    ):
        yield value


def _diffs_in(content: Json) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = []
    for item in content if isinstance(content, list) else ():
        if not isinstance(item, dict) or item.get("type") != "diff":
            continue
        path, old, new = item.get("path"), item.get("oldText"), item.get("newText")
        found.append(
            {
                "path": path if isinstance(path, str) else "",
                "old_text": old if isinstance(old, str) else None,
                "new_text": new if isinstance(new, str) else "",
            }
        )
    return found
