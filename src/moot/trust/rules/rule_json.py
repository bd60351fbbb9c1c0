"""Rules as JSON, in files and in messages: one table says how each part is read and written.

An error names the place, as in `rules[2].limits.per`. Unknown keys are errors: a misspelled limit would be no
limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from moot.errors import InvalidPattern, UsageError
from moot.origins.tool_traits import undo_from_json
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.durations import UNITS, duration_code
from moot.trust.history.proposal_case import Path
from moot.trust.rules.conditions import Range, RangeByText, read_hours, read_time
from moot.trust.rules.rule import (
    ASK_CONDITIONS,
    DECISIONS,
    NO_LIMITS,
    NO_ORIGIN,
    Rule,
    RuleLimits,
    RuleOrigin,
)
from moot.values.kinds import KINDS, ValuePattern

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DURATION: Final = re.compile(r"(\d{1,6})(s|m|h|d|w)", re.ASCII)
# As 0.1 wrote them, in rule files and in journals.
_LIMIT_KEYS_OF_0_1: Final = {"expires": "expires_at", "check": "check_share", "review": "review_share"}

T = TypeVar("T")


def rule_of_json(value: Json, where: str = "rule") -> Rule:
    """Read one rule from YAML or from an envelope; raises UsageError with the place of the mistake."""
    fields = mapping(value, where, (*RULE_KEYS, "seen_hours"))
    if "hours" in fields and "seen_hours" in fields:
        raise _error(f"{where}.seen_hours", "is called hours; write one of them")
    if "seen_hours" in fields:
        # Earlier versions learned them.
        fields = {**fields, "hours": fields["seen_hours"]}
    parts = read_fields(_RULE, {"name": None, "decision": None, **fields}, where)
    if parts.get("ask") is not None and parts["decision"] != "approve":
        said = parts["decision"]
        raise _error(f"{where}.ask", f"is for rules that approve; this one has decision: {said}")
    arguments, equals = parts.get("arguments", {}), parts.get("equals", {})
    check_dates([arguments, equals], where)
    for name in equals:
        if name in arguments:
            raise _error(f"{where}.equals.{name}", "is also in arguments; write it once")
    if "tool" in parts:
        parts.setdefault("method", "tools/call")
    try:
        return Rule(values=_value_patterns(fields, where), **parts)
    except InvalidPattern as fault:
        message = fault.message.removeprefix("capability: ").removeprefix("payload.")
        raise _error(f"{where}.{message.split(' ', 1)[0]}", message.split(" ", 1)[-1]) from None


def rule_as_json(rule: Rule) -> dict[str, Json]:
    """The rule as `rule_of_json` reads it, without default values."""
    written = _written(_RULE, rule)
    for kind in KINDS:
        templates = {path: each.texts() for path, each in rule.values.items() if each.kind == kind}
        if templates:
            written[kind] = _nested({path: t[0] if len(t) == 1 else t for path, t in templates.items()})
    return {key: written[key] for key in RULE_KEYS if written.get(key, {}) != {}}


def _limits(value: Json, where: str) -> RuleLimits:
    if value is None:
        return NO_LIMITS
    fields = mapping(value, where, (*LIMIT_KEYS, *_LIMIT_KEYS_OF_0_1))
    for old, new in _LIMIT_KEYS_OF_0_1.items():
        if old in fields and new in fields:
            raise _error(f"{where}.{old}", f"is the former name of {new}; write it once")
    fields = {_LIMIT_KEYS_OF_0_1.get(key, key): each for key, each in fields.items()}
    if ("per" in fields) != (fields.get("count") is not None):
        raise _error(where, "needs count and per together, as in {count: 20, per: 1h}")
    if fields.get("each") is not None and fields.get("count") is None:
        raise _error(f"{where}.each", "must be a whole number of at least 1, beside count")
    if fields.get("each") is not None and ("every" in fields or "sums" in fields):
        # What is counted for these is kept by rule alone.
        raise _error(f"{where}.each", "does not go with every or sums")
    return RuleLimits(**read_fields(_LIMITS, fields, where))


def _limits_as_json(limits: RuleLimits) -> dict[str, Json]:
    written = _written(_LIMITS, limits)
    written.pop("per", None)
    if limits.max_decisions is None:
        return written
    return {"count": limits.max_decisions, "per": duration_code(limits.per_seconds)} | written


def _origin(value: Json, where: str) -> RuleOrigin:
    return (
        NO_ORIGIN
        if value is None
        else RuleOrigin(**read_fields(_ORIGIN, mapping(value, where, _ORIGIN_KEYS), where))
    )


def _origin_as_json(origin: RuleOrigin) -> dict[str, Json]:
    return _written(_ORIGIN, origin)


# The parts


class Field(NamedTuple):
    """How a part is read, which raises UsageError, and written, and what it is where it is left out.

    `attribute` is its name in a rule, if that is another one.
    """

    key: str
    read: Callable[[Any, str], Any]
    default: object = None
    write: Callable[[Any], Json] = lambda value: value
    attribute: str = ""

    @property
    def name(self) -> str:
        return self.attribute or self.key


def read_fields(fields: Sequence[Field], value: Mapping[str, Json], where: str) -> dict[str, Any]:
    """What is there, by the names of attributes. Null is as if left out where that means: any, or none."""
    return {
        each.name: each.read(value[each.key], f"{where}.{each.key}")
        for each in fields
        if each.key in value and not (value[each.key] is None and each.default is None)
    }


def _written(fields: Sequence[Field], part: object) -> dict[str, Json]:
    found = ((each, getattr(part, each.name)) for each in fields)
    return {each.key: each.write(value) for each, value in found if value != each.default}


def _checked(test: Callable[[Any], bool], what: str) -> Callable[[Json, str], Any]:
    """Takes what passes a test, as it is."""

    def read(value: Json, where: str) -> Any:
        if not test(value):
            raise _error(where, what)
        return value

    return read


def one_of(words: Sequence[str], what: str) -> Callable[[Json, str], Any]:
    return _checked(lambda value: value in words, f"must be {what}")


def _placed(read: Callable[[Json], T]) -> Callable[[Json, str], T]:
    """Whatever is read so, with the place of a mistake."""

    def read_at(value: Json, where: str) -> T:
        try:
            return read(value)
        except UsageError as fault:
            raise _error(where, str(fault)) from None

    return read_at


def _is_texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_pattern(value: Json) -> bool:
    return isinstance(value, str) or (bool(value) and _is_texts(value))


def _is_count(value: Json) -> bool:
    return type(value) is int and value >= 1


def _number_field(most: float, what: str) -> Callable[[Json, str], Any]:
    """A number from 0 to this."""
    return _checked(lambda value: type(value) in (int, float) and 0 <= value <= most, what)


def names_field(what: str) -> Callable[[Json, str], tuple[str, ...]]:
    """One name, or a list of names."""

    def read(value: Json, where: str) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else value
        if not _is_texts(names) or not all(names):
            raise _error(where, what)
        return tuple(names)

    return read


def read_duration(value: Json, where: str) -> float:
    """Read `90s`, `15m`, `1h`, `7d` or `2w` as seconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        raise _error(where, "must be a duration such as 90s, 15m, 1h or 7d")
    return float(int(found[1]) * UNITS[found[2]])


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
    for key, inner in mapping(value, where).items():
        place = f"{where}.{key}"
        if isinstance(inner, dict):
            yield from _by_path(inner, place, read, (*path, key))
        else:
            yield (*path, key), read(inner, place)


def _paths_to(read: Callable[[Json, str], T]) -> Callable[[Json, str], dict[Path, T]]:
    return lambda value, where: dict(_by_path(value, where, read))


def _nested(leaves: Mapping[Path, Json]) -> dict[str, Json]:
    nested: dict[str, Json] = {}
    for path, leaf in leaves.items():
        inner = nested
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = leaf
    return nested


def _range(value: Json, where: str) -> Range:
    match value:
        case [str(of), dict(by)] if by:
            return RangeByText.over(
                of,
                {text_field(text, where): _plain_range(each, f"{where}.{text}") for text, each in by.items()},
            )
    return _plain_range(value, where)


def _plain_range(value: Json, where: str) -> Range:
    if not isinstance(value, list) or len(value) != 2 or any(type(n) not in (int, float) for n in value):
        raise _error(where, "must be two numbers, the lowest and the highest, as in [1, 100]")
    low, high = value
    if not low <= high:
        raise _error(where, f"runs from {low} down to {high}; the lowest comes first")
    return Range(low, high)


def _ranges_as_json(ranges: Mapping[Path, Range]) -> dict[str, Json]:
    return _nested(
        {
            path: [span.of, {text: [each.low, each.high] for text, each in span.by.items()}]
            if isinstance(span, RangeByText)
            else [span.low, span.high]
            for path, span in ranges.items()
        }
    )


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
    if not _is_texts(listed):
        raise _error(where, 'must be a template such as "git log -n <1..50>", or a list of templates')
    return list(listed)


def mapping(value: Json, where: str, keys: Sequence[str] | None = None) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _error(where, "must be a mapping of keys and values")
    for key in value:
        if not isinstance(key, str):
            raise _error(where, f"has the key {key!r}, which is not text; put it in quotes")
        if keys is not None and key not in keys:
            raise _error(f"{where}.{key}", f"is not a known key; known keys: {', '.join(keys)}")
    return value


def _error(where: str, what: str) -> UsageError:
    return UsageError(f"{where} {what}")


text_field = _checked(lambda value: isinstance(value, str), "must be text")
_boolean = _checked(lambda value: isinstance(value, bool), "must be true or false")
_pattern = _checked(_is_pattern, "must be a text pattern or a list of text patterns")
time_field = _placed(read_time)
REQUIRED: Final = object()

_RULE: Final = (
    Field(
        "name",
        _checked(
            lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
            "must be 1 to 64 letters, digits, dots, dashes or underscores",
        ),
        REQUIRED,
    ),
    Field("decision", one_of(DECISIONS, "approve, reject or ask"), REQUIRED),
    Field("words", text_field, ""),
    Field("proposer", _pattern),
    Field("to", names_field("must be member names, or [] for proposals without a host"), write=list),
    Field("method", _pattern),
    Field("tool", _pattern),
    Field("undo", undo_from_json),
    Field("arguments", mapping, {}, dict),
    Field("range", _paths_to(_range), {}, _ranges_as_json),
    Field("equals", mapping, {}, dict),
    Field("extra_arguments", _boolean, default=False),
    Field("hours", _placed(read_hours), write=str),
    Field("after", time_field, write=rfc3339),
    Field("before", time_field, write=rfc3339),
    Field("ask", one_of(ASK_CONDITIONS, "when_untrusted, or left out")),
    Field("observe", _boolean, default=False),
    Field("limits", _limits, NO_LIMITS, _limits_as_json),
    Field("origin", _origin, NO_ORIGIN, _origin_as_json),
)
_LIMITS: Final = (
    Field(
        "count",
        _checked(_is_count, "must be a whole number of at least 1"),
        attribute="max_decisions",
    ),
    Field("per", read_duration, NO_LIMITS.per_seconds, attribute="per_seconds"),
    Field(
        "each",
        _checked(_is_count, "must be a whole number of at least 1, beside count"),
        attribute="max_each",
    ),
    Field("every", read_duration, 0.0, duration_code, "gap_seconds"),
    Field("expires_at", time_field, write=rfc3339),
    Field("while_present", names_field("must be the name of a member, or a list of names"), (), list),
    Field(
        "check_share",
        _number_field(1, "must be a number from 0 to 1: the share of matches left to people as a spot check"),
        0.0,
    ),
    Field(
        "review_share",
        _number_field(1, "must be a number from 0 to 1: the share of its decisions that may be unreviewed"),
        0.0,
    ),
    Field(
        "sums",
        _paths_to(_number_field(10**18 - 1, "must be the most that all calls together may have, as in 500")),
        {},
        _nested,
    ),
)
_ORIGIN: Final = (
    Field("suggestion", text_field),
    Field("plan", text_field),
    Field("accepted_by", text_field),
    Field("limited_by", text_field),
    Field("accepted", time_field, write=rfc3339),
    Field("seconded_by", names_field("must be a list of names"), (), list),
)
# Templates stand behind ranges.
RULE_KEYS: Final = tuple(
    key for each in _RULE for key in ((each.key, *KINDS) if each.key == "range" else (each.key,))
)
LIMIT_KEYS: Final = tuple(each.key for each in _LIMITS)
_ORIGIN_KEYS: Final = tuple(each.key for each in _ORIGIN)
