"""What stands in a tool call of an ACP agent: commands, paths, diffs, output.

Agents put these in different places: below a name of the input, at any depth, in the title, in the content,
in `_meta`. Each function looks at one value and knows nothing about the call around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moot.protocol.operation import Json

# Names of an input below which a command stands, in lower case and without - and _.
_COMMAND_NAMES: Final = frozenset(
    {"command", "commands", "cmd", "cmds", "commandline", "cmdline", "argv", "script", "scripts", "shell",
     "shellcommand", "shellscript", "bash", "powershell"}
)  # fmt: skip
_PATH_WORDS: Final = ("path", "file", "dir", "folder", "cwd", "source", "dest", "target", "uri")
# What agents tell beside a command, and what does not make it another one.
_FACT_NAMES: Final = frozenset(
    {"description", "explanation", "justification", "cwd", "workdir", "workingdirectory", "directory",
     "timeout", "timeoutms"}
)  # fmt: skip
_QUOTED: Final = re.compile(r"`([^`]+)`")
_SHELL_BLOCK: Final = re.compile(
    r"^\s*(?:```|~~~)(?:sh|bash|zsh|shell|console|powershell|ps1|cmd|bat)\s*\n(.*?)(?:```|~~~)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def commands_in(value: Json) -> list[Json]:
    """Everything that stands below a name of a command; what stands higher comes first."""
    level: list[Any] = [value]
    found: list[Json] = []
    while level:
        deeper: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                for name, inner in each.items():
                    if inner and _plain(name) in _COMMAND_NAMES:
                        found.append(inner)
                    else:
                        deeper.append(inner)
            elif isinstance(each, list):
                deeper += each
        level = deeper
    return found


def command_in_title(title: str) -> str | None:
    """The command that a title is, if it stands in quotes as code; words around it make it no command."""
    match = _QUOTED.fullmatch(title.strip())
    return match[1] if match else None


def command_in_text(text: str) -> str | None:
    """The command in a block of shell code."""
    match = _SHELL_BLOCK.search(text)
    return match[1].strip() if match else None


def without_facts(given: Json) -> Json:
    """An input without what is only told about its command."""
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if _plain(name) not in _FACT_NAMES}


def facts_agree(before: Json, now: Json) -> bool:
    """Whether no fact that stands in both is another one now."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return bool(before == now)
    both = {name for name in before if name in now and _plain(name) in _FACT_NAMES}
    return all(before[name] == now[name] for name in both)


def paths_in(value: Json, name: str = "") -> Iterator[str]:
    """Texts that stand below a name of a path, at any depth, and addresses of files."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_in(inner, name)
    elif isinstance(value, str) and (
        value.startswith("file:") or any(word in name.lower() for word in _PATH_WORDS)
    ):
        yield value


def diffs_in(content: Json) -> list[dict[str, Json]]:
    """Every diff as `path`, `old_text` (None: a new file) and `new_text`."""
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


def texts_in(content: Json) -> list[str]:
    """The texts of ACP's content."""
    found = []
    for item in content if isinstance(content, list) else ():
        inner = item.get("content") if isinstance(item, dict) else None
        if isinstance(inner, dict) and isinstance(text := inner.get("text"), str):
            found.append(text)
    return found


def has_terminal(content: Json) -> bool:
    return any(
        isinstance(item, dict) and item.get("type") == "terminal"
        for item in (content if isinstance(content, list) else ())
    )


def exit_code_in(output: Json) -> int | None:
    """The exit code that OpenCode and Qwen Code tell in their raw output."""
    if not isinstance(output, dict):
        return None
    metadata = output.get("metadata")
    for code in (
        output.get("exitCode"),
        output.get("exit_code"),
        metadata.get("exit") if isinstance(metadata, dict) else None,
    ):
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return None
