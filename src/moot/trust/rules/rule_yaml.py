"""Reads rules from YAML; `rule_writer` writes them.

    rules:
      - name: reports
        decision: approve
        proposer: agent
        to: files
        tool: write_file
        arguments:
          path: "/^/srv/reports/[a-z0-9-]{1,24}[.]txt$/"
        range: {size: [1, 4096]}        # or for each payee its own: {amount: [payee, {ACME: [1, 300]}]}
        shell: {command: [git status, "git log -n <1..50>"]}
        hours: 09:00-17:00
        ask: when_untrusted
        observe: true
        limits: {count: 20, per: 1h, expires_at: 2027-01-01T00:00:00Z, while_present: alice}
        origin: {suggestion: s-1, accepted_by: alice, accepted: 2026-11-15T09:00:00Z}

`tests` beside `rules` is read by `rule_tests`, and decides nothing. `accepting_people: 2` is how many people
have to accept a suggestion. `tools` says what tools do (`moot.origins.tool_traits`), `cedar` names files of
policies (`cedar_policies`). `reads: remember` lets what a person approved of a tool that only reads run from
then on.

An error names the place, as in `rules[2].limits.per`. Unknown keys are errors: a misspelled limit would be no
limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from moot.config.strict_yaml import read_yaml
from moot.errors import InvalidPattern, UsageError
from moot.origins.tool_traits import undo_from_json
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Path
from moot.trust.rules.conditions import Range, RangeByText, read_hours, read_time
from moot.trust.rules.rule import ASK_CONDITIONS, DECISIONS, Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_settings import SETTINGS, settings_of
from moot.values.kinds import KINDS, ValuePattern

# For one space.
MAX_RULES: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DURATION: Final = re.compile(r"(\d{1,6})(s|m|h|d|w)", re.ASCII)
UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
RULE_KEYS: Final = (
    "name",
    "decision",
    "words",
    "proposer",
    "to",
    "method",
    "tool",
    "undo",
    "arguments",
    "range",
    *KINDS,
    "equals",
    "extra_arguments",
    "hours",
    "after",
    "before",
    "ask",
    "observe",
    "limits",
    "origin",
)
LIMIT_KEYS: Final = (
    "count", "per", "each", "every", "expires_at", "while_present", "check_share", "review_share", "sums",
)  # fmt: skip
# As 0.1 wrote them, in rule files and in journals.
_LIMIT_KEYS_OF_0_1: Final = {"expires": "expires_at", "check": "check_share", "review": "review_share"}
_ORIGIN_KEYS: Final = ("suggestion", "accepted_by", "accepted", "seconded_by", "limited_by", "plan")

T = TypeVar("T")


def read_rules(text: str) -> tuple[Rule, ...]:
    """Read the rules of a YAML text; raises UsageError with the place of the mistake."""
    value = read_yaml(text)
    if value is None:
        return ()
    top = _mapping(value, "the file", ("rules", "tests", "cedar", *SETTINGS))
    settings_of(top)
    listed = top.get("rules") or []
    if not isinstance(listed, list):
        raise _error("rules", "must be a list: `rules:` followed by lines of `- name: …`")
    if len(listed) > MAX_RULES:
        raise _error(
            "rules", f"has {len(listed)} rules, more than the limit of {MAX_RULES}; merge or remove some"
        )
    rules = tuple(rule_of_json(value, f"rules[{at}]") for at, value in enumerate(listed))
    seen: set[str] = set()
    for at, rule in enumerate(rules):
        if rule.name in seen:
            raise _error(f"rules[{at}].name", f"{rule.name!r} is used twice; names must be unique")
        seen.add(rule.name)
    return rules


def rule_of_json(value: Json, where: str = "rule") -> Rule:
    """Read one rule from YAML or from an envelope; raises UsageError with the place of the mistake."""
    fields = _mapping(value, where, (*RULE_KEYS, "seen_hours"))
    # Earlier versions learned `seen_hours`.
    hours = fields.get("hours", fields.get("seen_hours"))
    if "hours" in fields and "seen_hours" in fields:
        raise _error(f"{where}.seen_hours", "is called hours; write one of them")
    name = fields.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _error(f"{where}.name", "must be 1 to 64 letters, digits, dots, dashes or underscores")
    decision = fields.get("decision")
    if decision not in DECISIONS:
        raise _error(f"{where}.decision", "must be approve, reject or ask")
    ask = fields.get("ask")
    if ask is not None and ask not in ASK_CONDITIONS:
        raise _error(f"{where}.ask", "must be when_untrusted, or left out")
    if ask is not None and decision != "approve":
        raise _error(f"{where}.ask", f"is for rules that approve; this one has decision: {decision}")
    tool = fields.get("tool")
    method = fields.get("method")
    arguments = _mapping(fields.get("arguments", {}), f"{where}.arguments")
    equals = _mapping(fields.get("equals", {}), f"{where}.equals")
    check_dates([arguments, equals], where)
    for name_ in equals:
        if name_ in arguments:
            raise _error(f"{where}.equals.{name_}", "is also in arguments; write it once")
    spans = dict(_by_path(fields.get("range", {}), f"{where}.range", _range))
    try:
        return Rule(
            name=name,
            decision=decision,
            proposer=_pattern(fields.get("proposer"), f"{where}.proposer"),
            to=_hosts(fields.get("to"), f"{where}.to"),
            method="tools/call"
            if method is None and tool is not None
            else _pattern(method, f"{where}.method"),
            tool=_pattern(tool, f"{where}.tool"),
            undo=undo_from_json(fields.get("undo"), f"{where}.undo"),
            arguments=arguments,
            range=spans,
            values=_value_patterns(fields, where),
            equals=equals,
            hours=_optional(hours, read_hours, f"{where}.hours"),
            after=_optional(fields.get("after"), read_time, f"{where}.after"),
            before=_optional(fields.get("before"), read_time, f"{where}.before"),
            extra_arguments=_boolean(fields.get("extra_arguments", False), f"{where}.extra_arguments"),
            ask=ask,
            observe=_boolean(fields.get("observe", False), f"{where}.observe"),
            limits=_limits(fields.get("limits"), f"{where}.limits"),
            origin=_origin(fields.get("origin"), f"{where}.origin"),
            words=_text(fields.get("words", ""), f"{where}.words"),
        )
    except InvalidPattern as fault:
        message = fault.message.removeprefix("capability: ").removeprefix("payload.")
        raise _error(f"{where}.{message.split(' ', 1)[0]}", message.split(" ", 1)[-1]) from None


def _limits(value: Json, where: str) -> RuleLimits:
    if value is None:
        return RuleLimits()
    fields = _mapping(value, where, (*LIMIT_KEYS, *_LIMIT_KEYS_OF_0_1))
    for old, new in _LIMIT_KEYS_OF_0_1.items():
        if old in fields and new in fields:
            raise _error(f"{where}.{old}", f"is the former name of {new}; write it once")
    fields = {_LIMIT_KEYS_OF_0_1.get(key, key): each for key, each in fields.items()}
    count = fields.get("count")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise _error(f"{where}.count", "must be a whole number of at least 1")
    if ("per" in fields) != (count is not None):
        raise _error(where, "needs count and per together, as in {count: 20, per: 1h}")
    each = fields.get("each")
    if each is not None and (type(each) is not int or each < 1 or count is None):
        raise _error(f"{where}.each", "must be a whole number of at least 1, beside count")
    if each is not None and ("every" in fields or "sums" in fields):
        # What is counted for these is kept by rule alone.
        raise _error(f"{where}.each", "does not go with every or sums")
    check = _share(fields, "check_share", where, "the share of matches left to people as a spot check")
    review = _share(fields, "review_share", where, "the share of its decisions that may be unreviewed")
    present = fields.get("while_present", [])
    present = [present] if isinstance(present, str) else present
    if not isinstance(present, list) or not all(isinstance(name, str) and name for name in present):
        raise _error(f"{where}.while_present", "must be the name of a member, or a list of names")
    return RuleLimits(
        max_decisions=count,
        per_seconds=read_duration(fields["per"], f"{where}.per")
        if "per" in fields
        else RuleLimits().per_seconds,
        each=each,
        gap_seconds=read_duration(fields["every"], f"{where}.every") if "every" in fields else 0.0,
        expires_at=_optional(fields.get("expires_at"), read_time, f"{where}.expires_at"),
        while_present=tuple(present),
        check_share=check,
        review_share=review,
        sums=dict(_by_path(fields.get("sums", {}), f"{where}.sums", _sum)),
    )


def _sum(value: Json, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise _error(where, "must be the most that all calls together may have, as in 500")
    return value


def _share(fields: Mapping[str, Json], name: str, where: str, meaning: str) -> float:
    value = fields.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _error(f"{where}.{name}", f"must be a number from 0 to 1: {meaning}")
    return float(value)


def read_duration(value: Json, where: str) -> float:
    """Read `90s`, `15m`, `1h`, `7d` or `2w` as seconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise _error(where, "must be a duration such as 90s, 15m, 1h or 7d")
    return int(found[1]) * UNITS[found[2]]


def _origin(value: Json, where: str) -> RuleOrigin:
    if value is None:
        return RuleOrigin()
    fields = _mapping(value, where, _ORIGIN_KEYS)
    texts = {key: fields.get(key) for key in ("suggestion", "accepted_by", "limited_by", "plan")}
    for key, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise _error(f"{where}.{key}", "must be text")
    others = fields.get("seconded_by", [])
    if not isinstance(others, list) or not all(isinstance(name, str) for name in others):
        raise _error(f"{where}.seconded_by", "must be a list of names")
    return RuleOrigin(
        texts["suggestion"],
        texts["accepted_by"],
        _optional(fields.get("accepted"), read_time, f"{where}.accepted"),
        tuple(others),
        texts["limited_by"],
        texts["plan"],
    )


def check_dates(arguments: Json, where: str) -> None:
    """YAML makes a date of 2026-01-31, which no call has. Raises UsageError."""

    def refuse(value: object) -> None:
        raise _error(where, f"has {value} among its arguments: write dates in quotes")

    # What is too deep, or no JSON for another reason, is told of where it is read.
    with suppress(TypeError, ValueError, RecursionError):
        json.dumps(arguments, default=refuse)


def _by_path(
    value: Json, where: str, read: Callable[[Json, str], T], path: Path = ()
) -> Iterator[tuple[Path, T]]:
    """What is said of arguments, by their paths: objects nest."""
    for key, inner in _mapping(value, where).items():
        place = f"{where}.{key}"
        if isinstance(inner, dict):
            yield from _by_path(inner, place, read, (*path, key))
        else:
            yield (*path, key), read(inner, place)


def _range(value: Json, where: str) -> Range:
    match value:
        case [str(of), dict(by)] if by:
            return RangeByText.over(
                of, {_text(text, where): _plain_range(each, f"{where}.{text}") for text, each in by.items()}
            )
    return _plain_range(value, where)


def _plain_range(value: Json, where: str) -> Range:
    if not isinstance(value, list) or len(value) != 2 or any(type(n) not in (int, float) for n in value):
        raise _error(where, "must be two numbers, the lowest and the highest, as in [1, 100]")
    low, high = value
    if not low <= high:
        raise _error(where, f"runs from {low} down to {high}; the lowest comes first")
    return Range(low, high)


def _value_patterns(fields: Mapping[str, Json], where: str) -> dict[Path, ValuePattern]:
    """The templates of all kinds, by the path of the argument."""
    found: dict[Path, ValuePattern] = {}
    for kind in KINDS:
        if kind not in fields:
            continue
        for path, templates in _by_path(fields[kind], f"{where}.{kind}", _templates):
            place = f"{where}.{kind}.{'.'.join(path)}"
            if path in found:
                raise _error(place, f"is also under {found[path].kind}; an argument has one kind")
            try:
                found[path] = ValuePattern(kind, templates)
            except UsageError as fault:
                raise _error(place, str(fault)) from None
    return found


def _templates(value: Json, where: str) -> list[str]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise _error(where, 'must be a template such as "git log -n <1..50>", or a list of templates')
    return listed


def _pattern(value: Json, where: str) -> Json:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return value
    raise _error(where, "must be a text pattern or a list of text patterns")


def _hosts(value: Json, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise _error(where, "must be member names, or [] for proposals without a host")
    return tuple(names)


def _mapping(value: Json, where: str, keys: Sequence[str] | None = None) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _error(where, "must be a mapping of keys and values")
    for key in value:
        if not isinstance(key, str):
            raise _error(where, f"has the key {key!r}, which is not text; put it in quotes")
        if keys is not None and key not in keys:
            raise _error(f"{where}.{key}", f"is not a known key; known keys: {', '.join(keys)}")
    return value


def _optional(value: Json, read: Callable[[Any], T], where: str) -> T | None:
    if value is None:
        return None
    try:
        return read(value)
    except UsageError as fault:
        raise _error(where, str(fault)) from None


def _boolean(value: Json, where: str) -> bool:
    if not isinstance(value, bool):
        raise _error(where, "must be true or false")
    return value


def _text(value: Json, where: str) -> str:
    if not isinstance(value, str):
        raise _error(where, "must be text")
    return value


def _error(where: str, what: str) -> UsageError:
    return UsageError(f"{where} {what}")
