"""One space's section of a configuration, read strictly into a `SpaceConfig`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moot.errors import InvalidPattern, InvalidRequest, UsageError
from moot.protocol.envelope import EnvelopeLimits
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, read_capabilities, read_capability
from moot.space.config import Limits, ParticipantConfig, Quorum, SpaceConfig
from moot.space.roster import logical_name

_PARTICIPANT_KEYS: Final = frozenset({"capabilities", "exclusive"})
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "delegation": frozenset({"covered", "unrestricted"}),
    "kind_validation": frozenset({"minimal", "lazy"}),
    "unmapped": frozenset({"pass", "drop"}),
    "ack_delivery": frozenset({"all", "author"}),
    "status_delivery": frozenset({"all", "requester"}),
}
_SWITCHES: Final = frozenset({"enforce_pause", "reference_compat", "violation_notice", "separation"})
_DIALECTS: Final = frozenset({"mew", "mcpx", "m3p"})


def read_space(name: str, settings: Mapping[str, Json], path: str = "space") -> SpaceConfig:
    """The configuration of one space; raises UsageError that names the path of what is wrong."""
    fields: dict[str, Any] = {}
    for key, value in settings.items():
        here = f"{path}.{key}"
        if key in _WORDS:
            fields[key] = _one_of(value, _WORDS[key], here)
        elif key in _SWITCHES:
            fields[key] = _checked(value, bool, "true or false", here)
        elif key in _READERS:
            fields[key] = _READERS[key](value, here)
        else:
            known = ", ".join(sorted({*_WORDS, *_SWITCHES, *_READERS}))
            raise UsageError(f"{here}: unknown key; known are {known}")
    return SpaceConfig(name=name, **fields)


def _participants(value: Json, path: str) -> dict[str, ParticipantConfig]:
    participants = {}
    for name, settings in _mapping(value, path).items():
        here = f"{path}.{name}"
        try:
            logical_name(name)
        except InvalidRequest as refusal:
            raise UsageError(f"{here}: {refusal.message}") from None
        # A list alone is short for {capabilities: [...]}.
        entry = {"capabilities": settings} if isinstance(settings, list) else _mapping(settings, here)
        for key in entry:
            if key not in _PARTICIPANT_KEYS:
                raise UsageError(
                    f"{here}.{key}: unknown key; known are {', '.join(sorted(_PARTICIPANT_KEYS))}"
                )
        participants[name] = ParticipantConfig(
            capabilities=_capabilities(entry.get("capabilities", []), f"{here}.capabilities"),
            exclusive=_checked(entry.get("exclusive", False), bool, "true or false", f"{here}.exclusive"),
        )
    return participants


def _capabilities(value: Json, path: str) -> tuple[Capability, ...]:
    try:
        return read_capabilities(value)
    except InvalidPattern as fault:
        raise UsageError(f"{path}: {fault.message}") from None


def _anonymous(value: Json, path: str) -> tuple[Capability, ...] | None:
    return None if value is None else _capabilities(value, path)


def _dialects(value: Json, path: str) -> frozenset[str]:
    names = _checked(value, list, "a list of dialects", path)
    for name in names:
        _one_of(name, _DIALECTS, path)
    if not names:
        raise UsageError(f"{path}: a space speaks at least one dialect")
    return frozenset(names)


def _strings(value: Json, path: str) -> frozenset[str]:
    return frozenset(_checked(item, str, "text", path) for item in _checked(value, list, "a list", path))


def _quorum(value: Json, path: str) -> tuple[Quorum, ...]:
    rules = []
    for index, rule in enumerate(_checked(value, list, "a list", path)):
        here = f"{path}[{index}]"
        entry = dict(_mapping(rule, here))
        if "kind" in entry:
            raise UsageError(f"{here}.kind: a quorum is about proposed requests; leave the kind out")
        needed = _checked(
            entry.pop("approvals_needed", None), int, "a number of people", f"{here}.approvals_needed"
        )
        if needed < 1:
            raise UsageError(f"{here}.approvals_needed: must be at least 1")
        try:
            pattern = read_capability({"kind": "mcp/request"} | entry)
        except InvalidPattern as fault:
            raise UsageError(f"{here}: {fault.message}") from None
        rules.append(Quorum(pattern=pattern, approvals_needed=needed))
    return tuple(rules)


def _limits(value: Json, path: str) -> Limits:
    settings = dict(_mapping(value, path))
    inner = {key: settings.pop(key) for key in list(settings) if key in EnvelopeLimits.__struct_fields__}
    for key, number in [*settings.items(), *inner.items()]:
        here = f"{path}.{key}"
        if (key not in Limits.__struct_fields__ and key not in inner) or key == "envelope":
            known = ", ".join(
                sorted({*Limits.__struct_fields__, *EnvelopeLimits.__struct_fields__} - {"envelope"})
            )
            raise UsageError(f"{here}: unknown limit; known are {known}")
        if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
            raise UsageError(f"{here}: must be a number that is not negative")
    try:
        return msgspec.convert(settings | {"envelope": inner}, Limits)
    except msgspec.ValidationError as fault:
        raise UsageError(f"{path}: {fault}") from None


def _url(value: Json, path: str) -> str | None:
    return None if value is None else str(_checked(value, str, "a URL", path))


def _mapping(value: Json, path: str) -> Mapping[str, Json]:
    checked: Mapping[str, Json] = _checked(value, dict, "a mapping", path)
    return checked


def _one_of(value: Json, words: frozenset[str], path: str) -> str:
    if not isinstance(value, str) or value not in words:
        raise UsageError(f"{path}: must be one of {', '.join(sorted(words))}")
    return value


def _checked(value: Json, wanted: type, words: str, path: str) -> Any:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise UsageError(f"{path}: must be {words}")
    return value


_READERS: Final[Mapping[str, Callable[[Json, str], Any]]] = {
    "participants": _participants,
    "anonymous": _anonymous,
    "dialects": _dialects,
    "accept_protocols": _strings,
    "invite_baseline": _capabilities,
    "quorum": _quorum,
    "connection_url": _url,
    "limits": _limits,
}
