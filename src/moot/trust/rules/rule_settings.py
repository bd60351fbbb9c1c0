"""What a rules file says beside its rules.

accepting_people: 2      so many people have to accept a suggestion
reads: remember          what a person approved of a tool that only reads runs from then on
tools: …                 what tools do (`moot.origins.tool_traits`)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.origins.tool_traits import entries_from_json
from moot.protocol.operation import Json

SETTINGS: Final = ("accepting_people", "reads", "tools")
MAX_ACCEPTING_PEOPLE: Final = 10


class RuleFileHead(NamedTuple):
    """The settings of one space; `tools` as they are written."""

    accepting_people: int = 1
    remembers_reads: bool = False
    tools: Mapping[str, Json] = {}


NO_HEAD: Final = RuleFileHead()


def read_settings(text: str) -> RuleFileHead:
    """The settings of a YAML text; raises UsageError with the place of the mistake."""
    top = read_yaml(text)
    return settings_of(top) if isinstance(top, dict) else NO_HEAD


def settings_of(top: Mapping[str, Json]) -> RuleFileHead:
    people = top.get("accepting_people", 1)
    if isinstance(people, bool) or not isinstance(people, int) or not 1 <= people <= MAX_ACCEPTING_PEOPLE:
        raise UsageError(f"accepting_people must be a whole number from 1 to {MAX_ACCEPTING_PEOPLE}")
    reads = top.get("reads", "ask")
    if reads not in ("ask", "remember"):
        raise UsageError("reads must be remember, or ask, which is the same as leaving it out")
    tools = top.get("tools") or {}
    entries_from_json(tools)
    return RuleFileHead(people, reads == "remember", tools)


def settings_as_json(settings: RuleFileHead) -> dict[str, Json]:
    """As `settings_of` reads it, without default values."""
    written: dict[str, Json] = {}
    if settings.accepting_people > 1:
        written["accepting_people"] = settings.accepting_people
    if settings.remembers_reads:
        written["reads"] = "remember"
    if settings.tools:
        written["tools"] = dict(settings.tools)
    return written
