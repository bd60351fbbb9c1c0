"""What people say that tools do (`trust/accept {"tools": …}`), and the report of what is said and claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from moot.errors import UsageError
from moot.origins.endorsement import Endorsement
from moot.origins.tool_traits import (
    ToolTraits,
    describe_traits,
    entries_from_json,
    entry_for,
    traits_of_annotations,
    traits_to_json,
)
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import is_wild
from moot.trust.approver.origin_watch import OriginWatch
from moot.trust.approver.tool_watcher import ToolWatcher
from moot.trust.rules.rule_store import RuleStore

# Lines that the rules file has at most, and tools in one report.
MAX_TOOL_LINES: Final = 2_000
MAX_REPORTED_TOOLS: Final = 2_000


def set_tools(store: RuleStore, watcher: ToolWatcher, changes: Json) -> None:
    """Write what people say that tools do; raises UsageError if it cannot be so."""
    if store.accepting_people > 1:
        raise UsageError(
            f"{store.accepting_people} people have to agree here, so what tools do is written in"
            f" {store.rules_file.name} by whoever may write it"
        )
    if not isinstance(changes, Mapping) or not changes:
        raise UsageError('`tools` needs a line for each tool, as in {"mail/read_email": {"effect": "reads"}}')
    if len(store.tools_json) + len(changes) > MAX_TOOL_LINES:
        raise UsageError(f"more than {MAX_TOOL_LINES} lines about tools; use patterns such as mail/*")
    for entry in entries_from_json({key: each for key, each in changes.items() if each is not None}):
        if entry.definition is not None:
            host, _, tool = entry.pattern.partition("/")
            if entry.definition != watcher.definition_of(host, tool):
                raise UsageError(
                    f"{entry.pattern} has changed since, or is not there; look at it again before you accept"
                )
    store.set_tools({key: _with_ignored(store, key, value) for key, value in changes.items()})


def _with_ignored(store: RuleStore, key: str, value: Json) -> Json:
    """Who says what a tool does says nothing of what does not matter in it."""
    before = store.tools_json.get(key)
    if isinstance(value, dict) and "ignore" not in value and isinstance(before, dict) and "ignore" in before:
        return {**value, "ignore": before["ignore"]}
    return value


def lines_that_ignore(
    store: RuleStore, watcher: ToolWatcher, changes: Json, *, undo: bool = False
) -> dict[str, Json]:
    """The lines of tools by which these arguments, too, do not matter, or matter again; raises UsageError.

    What was said of the tool stays; it holds for the tool as it is defined now, if that is known.
    """
    if not isinstance(changes, Mapping) or not changes:
        raise UsageError('`ignore` needs a line for each tool, as in {"shell/run": ["description"]}')
    lines: dict[str, Json] = {}
    for entry in entries_from_json({key: {"ignore": names} for key, names in changes.items()}):
        key = entry.pattern
        host, _, tool = key.partition("/")
        if is_wild(key):
            raise UsageError(f"{key}: name one tool, as in shell/run")
        said: Json = store.tools_json.get(key)
        if said is None:
            line = entry_for(store.tools, host, tool)
            said = traits_to_json(line.traits) if line is not None and line.definition is None else {}
            digest = watcher.definition_of(host, tool)
            said = said | ({"definition": digest} if digest is not None else {})
        named, before = entry.traits.ignore, said.get("ignore", [])
        after = [name for name in before if name not in named] if undo else [*before, *named]
        lines[key] = {**said, "ignore": list(dict.fromkeys(after))}
    return lines


def report_origins(
    store: RuleStore, watcher: ToolWatcher, origins: OriginWatch, now: float
) -> dict[str, Json]:
    """What each tool is said to do and claims itself, the lines of the file, and what is endorsed now."""
    tools = sorted(watcher.definitions)[:MAX_REPORTED_TOOLS]
    return {
        "tools": [_tool_report(store, watcher, origins, host, tool) for host, tool in tools],
        "lines": [{"pattern": each.pattern, **_traits_report(*each)} for each in store.tools],
        "endorsements": [
            _endorsement_report(each) for each in origins.memory.endorsements.values() if now < each.until
        ],
        "rules": [rule.name for rule in store.rules if rule.ask is not None],
        "more": max(0, len(watcher.definitions) - MAX_REPORTED_TOOLS),
    }


def _tool_report(
    store: RuleStore, watcher: ToolWatcher, origins: OriginWatch, host: str, tool: str
) -> dict[str, Json]:
    key, listed = f"{host}/{tool}", watcher.definitions[host, tool]
    line = entry_for(store.tools, host, tool)
    is_void = line is not None and line.definition not in (None, listed.digest)
    claims: Json = None
    if isinstance(listed.annotations, dict) and any(name in listed.annotations for name in _HINTS):
        claims = _traits_report(key, traits_of_annotations(listed.annotations), listed.digest)
    return {
        **_traits_report(key, origins.traits_of(host, tool), listed.digest),
        "tool": key,
        # Whether somebody said so; else it is taken at its worst.
        "said": line is not None and not is_void and key not in store.changed_tools,
        "line": None if line is None else line.pattern,
        "claims": claims,
        "changed": key in store.changed_tools or is_void,
    }


_HINTS: Final = ("readOnlyHint", "destructiveHint", "openWorldHint")


def _traits_report(key: str, traits: ToolTraits, definition: str | None) -> dict[str, Json]:
    words = describe_traits(key.partition("/")[2], traits)
    return {"traits": traits_to_json(traits), "words": words, "definition": definition}


def _endorsement_report(endorsement: Endorsement) -> dict[str, Json]:
    times = {"at": rfc3339(endorsement.at), "until": rfc3339(endorsement.until)}
    return {name: value for name, value in (asdict(endorsement) | times).items() if value}
