"""A tool call of an ACP agent: merged from all its updates, as people see it and decide about it.

Agents tell about one call in pieces: the diff in an earlier update, the input only in the permission request,
or no input at all. What people decide about is everything that was told, and what was not told is named as
missing. Titles and kinds are words of the agent and may lie: where the input or a diff is there, the title is
left out of a proposal. A call that shows a command or a diff is one, wherever that stands and whatever its
kind says; a kind that is said to be harmless, with nothing that shows it, is not believed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import orjson

from moot.agents.acp import call_contents as contents
from moot.agents.acp.settings_files import names_settings, settings_among
from moot.protocol.operation import Json
from moot.protocol.strict_json import texts_in

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
# Kinds that change something.
ACTING_KINDS: Final = frozenset({"edit", "delete", "move", "execute"})
# A command of a page: the proposal has all of it.
_MAX_LINE_CHARS: Final = 2_000
# The newest output of a command: an agent may send it without end.
_MAX_OUTPUT_CHARS: Final = 100_000
_FIELDS: Final = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput")
# What Gemini CLI says beside a command, which is its title.
_GEMINI_FACTS: Final = re.compile(r"\[current working directory (?P<cwd>[^\n]+?)\](?: \(.*\))?", re.DOTALL)


@dataclass(slots=True, eq=False)
class AgentToolCall:
    """One call, as far as the agent has told about it."""

    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    # The agent was told that it may not do this.
    was_refused: bool = False
    # It has asked for this call, or it was told to everybody that it did not.
    was_asked: bool = False
    # It was told that it may.
    was_released: bool = False
    # What it was when it was reported as done: another thing under the same id was not asked for.
    done_as: str = ""
    # The latest content that had a diff: some agents replace it by text, or by nothing.
    _diffs: list[dict[str, Json]] = field(default_factory=list)
    # What Codex tells of a command beside the fields of ACP.
    _output: str = ""
    _exit_code: int | None = None

    def reopen(self) -> None:
        """It is asked for, so it is neither over nor refused, whatever was before."""
        self.was_refused = self.was_released = False
        self.was_asked = True
        self.done_as = ""
        self._output, self._exit_code = "", None
        if self.is_over:
            self.fields["status"] = "pending"

    def merge(self, update: Mapping[str, Any]) -> bool:
        """Take in an update; whether it changed anything."""
        given = {name: update[name] for name in _FIELDS if update.get(name) is not None}
        changed = any(self.fields.get(name) != value for name, value in given.items())
        self.fields |= given
        if diffs := contents.diffs_in(given.get("content")):
            self._diffs = diffs
        meta = update.get("_meta")
        if isinstance(meta, dict):
            self._merge_output(meta)
        return changed

    def _merge_output(self, meta: Mapping[str, Any]) -> None:
        for name in ("terminal_output", "terminal_output_delta"):
            part = meta.get(name)
            if isinstance(part, dict) and isinstance(data := part.get("data"), str):
                whole = data if name == "terminal_output" else self._output + data
                self._output = whole[-_MAX_OUTPUT_CHARS:]
        ended = meta.get("terminal_exit")
        if isinstance(ended, dict) and isinstance(code := ended.get("exit_code"), int):
            self._exit_code = code

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
        return contents.texts_in(self.fields.get("content"))

    @property
    def locations(self) -> list[str]:
        places = self.fields.get("locations")
        return [
            place["path"]
            for place in (places if isinstance(places, list) else ())
            if isinstance(place, dict) and isinstance(place.get("path"), str)
        ]

    def outcome_lines(self) -> list[str]:
        """What came of it: its exit code and its output, and of a command, that neither was told."""
        lines = []
        raw = self.fields.get("rawOutput")
        code = contents.exit_code_in(raw) if self._exit_code is None else self._exit_code
        if code is not None:
            lines.append(f"exit code {code}")
        if output := "\n".join(self.texts) or self._output:
            lines.append(output)
        elif raw:
            lines.append(raw if isinstance(raw, str) else orjson.dumps(raw, default=str).decode())
        if not lines and self.kind == "execute" and self.status == "completed":
            lines.append("(the agent told neither output nor exit code)")
        return lines

    # What it does

    @property
    def commands(self) -> list[Json]:
        """The commands that it shows: in its input, or else in its title or its text."""
        if found := contents.commands_in(self.input):
            return found
        if (command := contents.command_in_title(self.title)) is not None:
            return [command]
        if self.was_released or self.is_over:
            # Its text is what came of it.
            return []
        return [command for text in self.texts if (command := contents.command_in_text(text)) is not None]

    @property
    def kind(self) -> str:
        """The kind by what it does, as far as that can be seen, and else as the agent calls it."""
        declared = self.fields.get("kind")
        kind = declared if declared in KINDS else "other"
        if self.commands or contents.has_terminal(self.fields.get("content")) or self._has_run:
            return "execute"
        if self.changes and kind not in ACTING_KINDS:
            return "edit"
        return str(kind)

    @property
    def _has_run(self) -> bool:
        """An exit code is that of a command: Codex calls `ls` a read, and tells only this."""
        return self._exit_code is not None or contents.exit_code_in(self.fields.get("rawOutput")) is not None

    @property
    def proposed_kind(self) -> str:
        """The kind that is proposed: with a title alone, that it is harmless is only said."""
        kind = self.kind
        return "other" if kind not in ACTING_KINDS and self.input is None else kind

    def paths(self) -> Iterator[str]:
        """Every path that the call names, as far as that can be seen."""
        yield from (str(change["path"]) for change in self.changes)
        yield from self.locations
        yield from contents.paths_in(self.input)
        if self.input is None and (match := self._gemini_facts()):
            yield match["cwd"]

    def _gemini_facts(self) -> re.Match[str] | None:
        return _GEMINI_FACTS.fullmatch("\n".join(self.texts).strip())

    def outside(self, folder: Path) -> list[str]:
        """Those of its paths that lead out of the folder, links followed."""
        top = os.path.realpath(folder)
        found: dict[str, None] = {}
        for path in self.paths():
            if "\0" in path:
                found[path] = None
                continue
            real = os.path.realpath(os.path.join(top, os.path.expanduser(_plain_path(path))))
            if real != top and not real.startswith(top.rstrip(os.sep) + os.sep):
                found[path] = None
        return list(found)

    def own_settings(self, folder: Path) -> list[str]:
        """What it names of the settings of agents: paths, and commands in which such a name stands."""
        found = settings_among((_plain_path(path) for path in self.paths()), folder)
        said = [*self.commands, *([self.title] if self.input is None and self.kind == "execute" else [])]
        texts = [text for command in said for text in texts_in(command)]
        return [*found, *(text for text in texts if names_settings(text))]

    def arguments(self, folder: Path) -> dict[str, Json]:
        """What people decide about: the input and the changes, or whatever else was told; and what was not.

        No id and no title where there is more to say, so that rules can name like calls.
        """
        arguments: dict[str, Json] = {}
        if self.input is not None:
            arguments["input"] = self.input
        if self.changes:
            arguments["changes"] = self.changes
        if not arguments or (self.commands and not contents.commands_in(self.input)):
            arguments["title"] = self.title
            # Where it works, as Gemini CLI says it; a path that leads out of the folder is named below.
            text = "" if self._gemini_facts() else "\n".join(self.texts)
            for name, value in (("paths", self.locations), ("text", text)):
                if value:
                    arguments[name] = value
        if outside := self.outside(folder):
            arguments["outside_folder"] = outside
        if settings := self.own_settings(folder):
            arguments["agent_settings"] = settings
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
        if self.kind == "execute" and not self.commands:
            missing.append("command")
        return missing

    def describe(self) -> str:
        """One line: what it does, in our words where that can be seen; long ones are cut."""
        text = self._describe()
        return text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]}…"

    def _describe(self) -> str:
        if self.commands:
            return f"{self.kind}: {'; '.join(str(command) for command in self.commands)}"
        if self.changes:
            return f"{self.kind}: {', '.join(str(change['path']) for change in self.changes)}"
        paths = ", ".join(dict.fromkeys(self.paths()))
        return f"{self.kind}: {' — '.join(part for part in (self.title, paths) if part) or self.id}"


def _plain_path(path: str) -> str:
    return unquote(urlsplit(path).path) if path.startswith("file:") else path
