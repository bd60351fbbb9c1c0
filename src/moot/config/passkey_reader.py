"""`passkeys:` of a space: what is approved with a passkey. In the words of budgets, `risk`, `undo`."""

from __future__ import annotations

from typing import Any, Final

from moot.config.call_reader import CALL_KEYS, read_calls, read_names
from moot.config.effect_reader import UNDO_CLASSES
from moot.config.section_reader import at, mapping, one_of, unknown_key
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.space.config import Name, PasskeyRules, Quorum

_KEYS: Final = ("required", "first")
_RULE_KEYS: Final = (*CALL_KEYS, "risk", "undo", "exempt")
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
    risk: Any = one_of(entry["risk"], _RISKS, at(path, "risk")) if "risk" in entry else None
    undo: Any = one_of(entry["undo"], UNDO_CLASSES, at(path, "undo")) if "undo" in entry else None
    exempt = read_names(entry["exempt"], at(path, "exempt")) if "exempt" in entry else []
    calls = read_calls(entry, path, tools_only=False)
    return Quorum(
        pattern=calls,
        approvals_needed=1,
        exempt=tuple(Name(each) for each in dict.fromkeys(exempt)),
        passkey=True,
        risk=risk,
        undo=undo,
    )
