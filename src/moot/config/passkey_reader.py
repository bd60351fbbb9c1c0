"""`passkeys:` of a space: what is approved with a passkey. The words are those of budgets, and `risk`."""

from __future__ import annotations

from typing import Any, Final

from moot.config.section_reader import at, mapping, one_of, unknown_key
from moot.errors import InvalidPattern, UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.space.config import Name, PasskeyRules, Quorum

_KEYS: Final = ("required", "first")
_RULE_KEYS: Final = ("tool", "to", "arguments", "risk", "exempt")
_RISKS: Final = frozenset({"bad", "warn"})


def read_passkeys(value: Json, path: str) -> PasskeyRules:
    """Raises UsageError that names what is wrong."""
    settings = mapping(value, path)
    for key in settings:
        if key not in _KEYS:
            raise unknown_key(path, key, _KEYS)
    rules = settings.get("required", [])
    if not isinstance(rules, list):
        raise UsageError(f"{at(path, 'required')}: must be a list, as in [{{tool: deploy}}]")
    first: Any = one_of(settings.get("first", "session"), frozenset({"session", "link"}), at(path, "first"))
    required = [_read_rule(each, f"{at(path, 'required')}[{index}]") for index, each in enumerate(rules)]
    return PasskeyRules(required=tuple(required), first=first)


def _read_rule(value: Json, path: str) -> Quorum:
    entry = mapping(value, path)
    for key in entry:
        if key not in _RULE_KEYS:
            raise unknown_key(path, key, _RULE_KEYS)
    pattern: dict[str, Json] = {"kind": "mcp/request"}
    params: dict[str, Json] = {}
    if "tool" in entry:
        params["name"] = _names(entry["tool"], at(path, "tool"))
    if "arguments" in entry:
        params["arguments"] = dict(mapping(entry["arguments"], at(path, "arguments")))
    if params:
        pattern["payload"] = {"method": "tools/call", "params": params}
    if "to" in entry:
        pattern["to"] = _names(entry["to"], at(path, "to"))
    risk: Any = one_of(entry["risk"], _RISKS, at(path, "risk")) if "risk" in entry else None
    exempt = _names(entry["exempt"], at(path, "exempt")) if "exempt" in entry else []
    try:
        calls = read_capability(pattern)
    except InvalidPattern as fault:
        raise UsageError(f"{path}: {fault.message}") from None
    return Quorum(
        pattern=calls,
        approvals_needed=1,
        exempt=tuple(Name(each) for each in dict.fromkeys(exempt)),
        passkey=True,
        risk=risk,
    )


def _names(value: Json, path: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        raise UsageError(f"{path}: must be a name or a list of names; * stands for any characters")
    return names
