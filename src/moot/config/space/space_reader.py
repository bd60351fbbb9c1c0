"""One space's rules, read strictly into a `SpaceConfig`.

What a configuration file adds to them (tokens, profiles, access, members) is read in `participant_reader` and
`loader`; here stands what the pure space itself knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moot.config.section_reader import (
    MistakeList,
    Reader,
    at,
    checked,
    mapping,
    one_of,
    probably,
    unknown_key,
)
from moot.config.space.budget_reader import read_budgets
from moot.config.space.call_reader import CALL_KEYS, read_calls, read_names
from moot.config.space.effect_reader import UNDO_CLASSES, read_effects
from moot.errors import InvalidPattern, InvalidRequest, UsageError
from moot.protocol.envelope import EnvelopeLimits
from moot.protocol.kinds import NOTIFICATION_PREFIX
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Notation, read_capability
from moot.space.config import (
    Name,
    ParticipantConfig,
    PasskeyRules,
    Quorum,
    Reminder,
    SpaceConfig,
    SpaceLimits,
)
from moot.space.members.member_names import logical_name

_PARTICIPANT_KEYS: Final = frozenset({"capabilities", "exclusive"})
_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "delegation": frozenset({"covered", "unrestricted"}),
    "kind_validation": frozenset({"minimal", "lazy"}),
    "unmapped": frozenset({"pass", "drop"}),
    "ack_delivery": frozenset({"all", "author"}),
    "status_delivery": frozenset({"all", "requester"}),
    "chat_link_above": frozenset({"none", "info", "warn", "bad"}),
}
_SWITCHES: Final = frozenset(
    {
        "enforce_pause",
        "reference_compat",
        "violation_notice",
        "separation_of_duties",
        "last_vote_carries_out",
    }
)
_DIALECTS: Final = frozenset({"mew", "mcpx", "m3p"})
_REMINDER_KEYS: Final = frozenset({"after_seconds", "tell"})
_PASSKEY_KEYS: Final = ("required", "first")
_PASSKEY_RULE_KEYS: Final = (*CALL_KEYS, "risk", "undo", "exempt")
_PASSKEY_RISKS: Final = frozenset({"bad", "warn"})
MAX_REMINDERS: Final = 16


def read_space(name: str, settings: Mapping[str, Json], path: str = "space") -> SpaceConfig:
    """The configuration of one space; raises UsageError that names the path of what is wrong."""
    fields: dict[str, Any] = {}
    strings = notation_in(settings.get("dialects"))
    for key, value in settings.items():
        place = at(path, key)
        if key not in SPACE_KEYS:
            raise unknown_key(path, key, SPACE_KEYS)
        fields[key] = read_setting(key, value, place, strings)
    return SpaceConfig(name=name, **fields)


def notation_in(dialects: Json) -> Notation:
    """D-90: a space that does not speak MEW is an MCPx place, so that `mcp/*` means three kinds there."""
    return "mcpx" if isinstance(dialects, list) and dialects and "mew" not in dialects else "mew"


def read_setting(key: str, value: Json, path: str, strings: Notation = "mew") -> Any:
    """The value of one of `SPACE_KEYS`, as `SpaceConfig` takes it; `strings` as in `read_rights`."""
    if key in _RIGHTS_READERS:
        return _RIGHTS_READERS[key](value, path, strings)
    if key in _WORDS:
        return one_of(value, _WORDS[key], path)
    if key in _SWITCHES:
        return checked(value, bool, "true or false", path)
    return _READERS[key](value, path)


def participant_name(name: str, path: str) -> str:
    """D-23: the name if a participant may have it."""
    try:
        return logical_name(name)
    except InvalidRequest as refusal:
        raise UsageError(f"{path}: {refusal.message}") from None


def read_rights(
    value: Json, path: str, notation: Notation | None = None, *, strings: Notation = "mew"
) -> tuple[Capability, ...]:
    """A list of capabilities; strings are read as D-90 says, or in the notation that is named.

    `strings` is the notation of the place where they stand.
    """
    rights = []
    for index, entry in enumerate(checked(value, list, 'a list, as in [{"kind": "chat"}]', path)):
        try:
            rights.append(read_capability(entry, notation=notation, place=strings))
        except InvalidPattern as fault:
            raise UsageError(f"{path}[{index}]: {fault.message}") from None
    return tuple(rights)


def _participants(value: Json, path: str, strings: Notation) -> dict[str, ParticipantConfig]:
    participants = {}
    for name, settings in mapping(value, path).items():
        place = at(path, name)
        # A list alone is short for {capabilities: [...]}.
        entry = {"capabilities": settings} if isinstance(settings, list) else mapping(settings, place)
        for key in entry:
            if key not in _PARTICIPANT_KEYS:
                raise unknown_key(place, key, _PARTICIPANT_KEYS)
        participants[participant_name(name, place)] = ParticipantConfig(
            capabilities=read_rights(entry.get("capabilities", []), f"{place}.capabilities", strings=strings),
            exclusive=checked(entry.get("exclusive", False), bool, "true or false", f"{place}.exclusive"),
        )
    return participants


def _anonymous(value: Json, path: str, strings: Notation) -> tuple[Capability, ...] | None:
    return None if value is None else read_rights(value, path, strings=strings)


def _invite_baseline(value: Json, path: str, strings: Notation) -> tuple[Capability, ...]:
    return read_rights(value, path, strings=strings)


def _dialects(value: Json, path: str) -> frozenset[str]:
    names = checked(value, list, "a list of dialects", path)
    for name in names:
        one_of(name, _DIALECTS, path)
    if not names:
        raise UsageError(f"{path}: a space speaks at least one dialect")
    return frozenset(names)


def _strings(value: Json, path: str) -> frozenset[str]:
    return frozenset(checked(item, str, "text", path) for item in checked(value, list, "a list", path))


def _quorum(value: Json, path: str) -> tuple[Quorum, ...]:
    rules = []
    for index, rule in enumerate(checked(value, list, "a list", path)):
        place = f"{path}[{index}]"
        entry = dict(mapping(rule, place))
        if "kind" in entry:
            raise UsageError(f"{place}.kind: a quorum is about proposed requests; leave the kind out")
        if "approvals_needed" not in entry:
            for key in entry:
                if probably(key, ("approvals_needed",)):
                    raise unknown_key(place, key, ("approvals_needed",))
            raise UsageError(f"{place}.approvals_needed: is missing: how many have to agree")
        needed = checked(
            entry.pop("approvals_needed"), int, "a number of people", f"{place}.approvals_needed"
        )
        if needed < 1:
            raise UsageError(f"{place}.approvals_needed: must be at least 1")
        names = checked(entry.pop("exempt", []), list, "a list of participants", f"{place}.exempt")
        exempt = [
            participant_name(checked(each, str, "a name", f"{place}.exempt"), f"{place}.exempt")
            for each in names
        ]
        try:
            pattern = read_capability({"kind": "mcp/request"} | entry)
        except InvalidPattern as fault:
            raise UsageError(f"{place}: {fault.message}") from None
        _check_binds_calls(pattern, place)
        rules.append(
            Quorum(
                pattern=pattern,
                approvals_needed=needed,
                exempt=tuple(Name(each) for each in dict.fromkeys(exempt)),
            )
        )
    return tuple(rules)


def _check_binds_calls(pattern: Capability, place: str) -> None:
    """Raises UsageError for a rule about what no quorum binds: it would look as if it did."""
    # Here, not above: few spaces have such rules, and every command reads the configuration.
    from moot.space.proposals.quorum import UNBOUND_METHODS

    payload = pattern.original.get("payload") if isinstance(pattern.original, dict) else None
    method = payload.get("method") if isinstance(payload, dict) else None
    if isinstance(method, str) and (method in UNBOUND_METHODS or method.startswith(NOTIFICATION_PREFIX)):
        raise UsageError(f"{place}.payload.method: a quorum is about calls; {method} is open to all who may")


def _limits(value: Json, path: str) -> SpaceLimits:
    settings = dict(mapping(value, path))
    inner = {key: settings.pop(key) for key in list(settings) if key in EnvelopeLimits.__struct_fields__}
    mistakes = MistakeList()
    for key, number in [*settings.items(), *inner.items()]:
        with mistakes.catching():
            if (key not in SpaceLimits.__struct_fields__ and key not in inner) or key == "envelope":
                known = {*SpaceLimits.__struct_fields__, *EnvelopeLimits.__struct_fields__} - {"envelope"}
                raise unknown_key(path, key, known, "limit")
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
                raise UsageError(f"{at(path, key)}: must be a number that is not negative")
    mistakes.check()
    try:
        return msgspec.convert(settings | {"envelope": inner}, SpaceLimits)
    except msgspec.ValidationError as fault:
        raise UsageError(f"{path}: {fault}") from None


def _reminders(value: Json, path: str) -> tuple[Reminder, ...]:
    steps = checked(value, list, "a list, as in [{after_seconds: 1800, tell: [ana]}]", path)
    if len(steps) > MAX_REMINDERS:
        raise UsageError(f"{path}: has {MAX_REMINDERS} steps at most")
    made = []
    for index, each in enumerate(steps):
        place = f"{path}[{index}]"
        entry = mapping(each, place)
        for key in entry:
            if key not in _REMINDER_KEYS:
                raise unknown_key(place, key, _REMINDER_KEYS)
        seconds, tell = entry.get("after_seconds"), entry.get("tell")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise UsageError(f"{place}.after_seconds: must be a number of seconds that is not negative")
        names = [tell] if isinstance(tell, str) else tell
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{place}.tell: must name participants, as in [ana, lead-*]")
        made.append(Reminder(after_seconds=seconds, tell=tuple(names)))
    return tuple(sorted(made, key=lambda each: each.after_seconds))


def _url(value: Json, path: str) -> str | None:
    return None if value is None else str(checked(value, str, "a URL", path))


def _passkeys(value: Json, path: str) -> PasskeyRules:
    """What is approved with a passkey, in the words of budgets, `risk` and `undo`."""
    settings = mapping(value, path)
    for key in settings:
        if key not in _PASSKEY_KEYS:
            raise unknown_key(path, key, _PASSKEY_KEYS)
    rules = settings.get("required", [])
    if not isinstance(rules, list):
        raise UsageError(f"{at(path, 'required')}: must be a list, as in [{{tool: deploy}}]")
    first: Any = one_of(settings.get("first", "session"), frozenset({"session", "link"}), at(path, "first"))
    required = [_passkey_rule(each, f"{at(path, 'required')}[{index}]") for index, each in enumerate(rules)]
    return PasskeyRules(required=tuple(required), first=first)


def _passkey_rule(value: Json, path: str) -> Quorum:
    entry = mapping(value, path)
    for key in entry:
        if key not in _PASSKEY_RULE_KEYS:
            raise unknown_key(path, key, _PASSKEY_RULE_KEYS)
    risk: Any = one_of(entry["risk"], _PASSKEY_RISKS, at(path, "risk")) if "risk" in entry else None
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


_READERS: Final[Mapping[str, Reader]] = {
    "dialects": _dialects,
    "accept_protocols": _strings,
    "quorum": _quorum,
    "budgets": read_budgets,
    "effects": read_effects,
    "reminders": _reminders,
    "passkeys": _passkeys,
    "connection_url": _url,
    "limits": _limits,
}
_RIGHTS_READERS: Final[Mapping[str, Callable[[Json, str, Notation], Any]]] = {
    "participants": _participants,
    "anonymous": _anonymous,
    "invite_baseline": _invite_baseline,
}
# Every setting that a space itself knows.
SPACE_KEYS: Final = frozenset({*_WORDS, *_SWITCHES, *_READERS, *_RIGHTS_READERS})
