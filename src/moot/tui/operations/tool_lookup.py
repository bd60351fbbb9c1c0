"""What a member says about a tool before it is called: its name, and the types of its arguments."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moot.errors import MootError, UsageError
from moot.protocol.operation import Json
from moot.tui.operations.operation import ClientContext, read_tool_arguments

# Tools are listed in milliseconds; who is slower is called without it.
_LIST_SECONDS: Final = 2.0
# A letter or two, not another word: `read_file` is not what `write_file` meant.
_ALIKE: Final = 0.85


async def list_tools(context: ClientContext, member: str) -> dict[str, Mapping[str, Any]] | None:
    """The tools of a member by name; None if it is not here, does not answer, or we may not ask."""
    space = context.space
    if member == space.name or not space.may_request(member, "tools/list"):
        return None
    if member not in {*space.roster, *(each.name for each in space.roster.values())}:
        return None
    within = _LIST_SECONDS if context.timeout_seconds is None else min(context.timeout_seconds, _LIST_SECONDS)
    try:
        listed = await space.list_all(member, "tools", timeout_seconds=within)
    except MootError:
        return None
    return {str(each.get("name")): each for each in listed}


def check_tool(member: str, tool: str, tools: Iterable[str] | None) -> None:
    """Raises UsageError if it is nearly the name of a tool. Others are passed on: not all are listed."""
    names = sorted(tools or ())
    close = [] if tool in names else difflib.get_close_matches(tool, names, n=1, cutoff=_ALIKE)
    if close:
        raise UsageError(f"{member} offers no tool {tool}. Did you mean {close[0]}?")


def typed_arguments(words: Sequence[str], tool: Mapping[str, Any] | None) -> dict[str, Json]:
    """The arguments of a call, those written `name=text` by the types in the tool's schema.

    Raises UsageError. What the schema does not say, or what may be a text, is a text.
    """
    arguments = read_tool_arguments(words)
    schema = (tool or {}).get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return arguments
    for name in [word.partition("=")[0] for word in words]:
        value, types = arguments.get(name), _types_of(properties.get(name))
        if not isinstance(value, str) or not types or "string" in types:
            continue
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            wanted = " or ".join(sorted(types))
            raise UsageError(f"the argument {name} is of type {wanted}, not {value!r}") from None
    return arguments


def _types_of(schema: Json) -> set[str]:
    """The JSON types that a schema names; empty if it leaves any open."""
    if not isinstance(schema, dict):
        return set()
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        each = [_types_of(choice) for choice in choices]
        return set().union(*each) if all(each) else set()
    named = schema.get("type")
    return {str(one) for one in (named if isinstance(named, list) else [named]) if one is not None}
