"""What people are shown of a call, and whether the agent's next words are still about that call.

What was not shown cannot be approved. So another command, text or target is another call. What an agent adds
to the same command, such as a description or the folder that it runs in, is not: OpenCode asks with the
command alone and tells these in the same moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from moot.agents.acp import call_contents as contents
from moot.agents.acp.tool_calls import AgentToolCall
from moot.protocol.operation import Json


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call as it is proposed."""

    name: str
    arguments: dict[str, Json]
    commands: tuple[Json, ...]
    paths: frozenset[str]
    what: str
    title: str
    folder: Path

    def is_same(self, now: ShownCall) -> bool:
        """Whether nothing has come to it that those who decide have to see."""
        if (self.name, self.arguments) == (now.name, now.arguments):
            return True
        if self.name != now.name or not now.commands:
            return False
        if self._commands_shown() != now.commands:
            return False
        before, after = dict(self.arguments), dict(now.arguments)
        given, told = before.pop("input", None), after.pop("input", None)
        if given is None:
            # It was asked for by its title, which is the command: now there is an input that says the same.
            for name in ("title", "text", "missing"):
                before.pop(name, None)
                after.pop(name, None)
            given = contents.without_facts(told) if contents.commands_in(told) else None
            if isinstance(given, dict) and len(given) > 1:
                return False
        same = contents.without_facts(given) == contents.without_facts(told)
        # The rest has what leads out of the folder, among it the folder that a command runs in.
        return same and contents.facts_agree(given, told) and before == after

    def _commands_shown(self) -> tuple[Json, ...]:
        return self.commands or ((self.title,) if self.name == "execute" else ())

    def allows_report(self, call: AgentToolCall) -> bool:
        """Whether what the agent reports of a running call is what was shown.

        Agents report inputs and diffs in other words than before; another command or file is another call.
        """
        shown = self._commands_shown()
        if any(command not in shown for command in call.commands):
            return False
        if not call.commands and call.input is not None and not self._allows_input(call):
            return False
        return self._has_paths(str(change["path"]) for change in call.changes)

    def _allows_input(self, call: AgentToolCall) -> bool:
        paths = list(contents.paths_in(call.input))
        return self.arguments.get("input") == call.input or (bool(paths) and self._has_paths(paths))

    def _has_paths(self, paths: Iterable[str]) -> bool:
        return all(_real(path, self.folder) in self.paths for path in paths)


def show(call: AgentToolCall, folder: Path) -> ShownCall:
    """The call as people see it now."""
    return ShownCall(
        call.proposed_kind,
        call.arguments(folder),
        tuple(call.commands),
        frozenset(_real(path, folder) for path in call.paths()),
        call.describe(),
        call.title.strip(),
        folder,
    )


def _real(path: str, folder: Path) -> str:
    return path if "\0" in path else os.path.realpath(os.path.join(folder, os.path.expanduser(path)))
