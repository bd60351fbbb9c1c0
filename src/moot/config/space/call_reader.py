"""Which calls a setting is about: `tool`, `to` and `arguments`, in the words of all such settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.config.section_reader import at, mapping
from moot.errors import InvalidPattern, UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, read_capability

CALL_KEYS: Final = ("tool", "to", "arguments")


def read_calls(entry: Mapping[str, Json], path: str, *, tools_only: bool) -> Capability:
    """The calls that an entry names; raises UsageError. `tools_only`: of whatever tool, if it names none."""
    pattern: dict[str, Json] = {"kind": "mcp/request"}
    params: dict[str, Json] = {}
    if "tool" in entry:
        params["name"] = read_names(entry["tool"], at(path, "tool"))
    if "arguments" in entry:
        params["arguments"] = dict(mapping(entry["arguments"], at(path, "arguments")))
    if params or tools_only:
        pattern["payload"] = {"method": "tools/call"} | ({"params": params} if params else {})
    if "to" in entry:
        pattern["to"] = read_names(entry["to"], at(path, "to"))
    try:
        return read_capability(pattern)
    except InvalidPattern as fault:
        raise UsageError(f"{path}: {fault.message}") from None


def read_names(value: Json, path: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        raise UsageError(f"{path}: must be a name or a list of names; * stands for any characters")
    return names
