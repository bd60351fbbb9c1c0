"""Writes rules as Cedar policies, as far as Cedar can say them.

Cedar has no order: what is not permitted is denied, and `forbid` wins. So the policy of an approving rule
excludes what earlier rules reject or leave to people, and Cedar allows a request if and only if the rules
approve it. A rejecting rule is a `forbid`. A rule that asks only keeps later ones from permitting.

A rule that Cedar cannot say (expressions, templates, wildcards within a segment, numbers with a fraction,
zones) is left out with a note. What Cedar can say of it is excluded from the permits below it, if it rejects,
asks or has limits, so that Cedar never permits more than the rules approve.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import CROSS, ONE, STAR, Glob, glob
from moot.protocol.patterns.pattern import Equal, Exact, Fields, Node, NotText, OneOf, Text
from moot.trust.history.proposal_case import Case, Path
from moot.trust.rules.conditions import DAY_MINUTES, Hours, canonical, is_plain
from moot.trust.rules.rule import Rule

_HEADER: Final = """\
// Rules of a Moot space. A request is Member::"NAME", Action::"METHOD", Tool::"NAME", with a context of
// proposer, method, tool, to, texts, numbers, flags, json, argument_names, unexpected_fields, plain, now,
// present, within_limits and rejected_before. Allowed is what the rules approve; all else is for people.
"""
_LONG = range(-(1 << 63), 1 << 63)


class _Unsayable(Exception):
    """A condition that Cedar cannot say."""


@dataclass(frozen=True, slots=True)
class CedarExport:
    """The policies, and the rules that are left out, with the reason."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Condition:
    """What Cedar can say of a rule's match; `missing` are the conditions that it cannot."""

    clauses: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def text(self) -> str:
        return " && ".join(self.clauses) or "true"


def export_rules(rules: Sequence[Rule]) -> CedarExport:
    """The Cedar policies of a list of rules."""
    conditions = [_condition(rule) for rule in rules]
    policies: list[str] = []
    notes: list[str] = []
    for at, (rule, condition) in enumerate(zip(rules, conditions, strict=True)):
        if condition.missing:
            missing = ", ".join(condition.missing)
            notes.append(f"rule {rule.name} is left out, since Cedar cannot say its {missing}")
        if rule.decision == "ask" or condition.missing:
            continue
        stops = [other for other in range(at) if _decides_first(rules[other], rule)]
        if rule.decision == "approve":
            stops += [
                other
                for other in range(at + 1, len(rules))
                if rules[other].decision == "reject" and rules[other].breadth() == rule.breadth()
            ]
        unless = [conditions[other].text for other in stops]
        policies.append(_policy(rule, condition, unless))
    return CedarExport("\n".join([_HEADER, *policies]), tuple(notes))


def _decides_first(earlier: Rule, rule: Rule) -> bool:
    """Whether a match of the earlier rule can keep this one from its effect."""
    if rule.decision == "reject":
        return earlier.decision != "reject"
    # An approving rule whose limit is used up asks, and a wider one below must not undo that.
    limits = earlier.limits
    limited = (
        limits.max_decisions is not None
        or limits.check_share > 0
        or limits.review_share > 0
        or bool(limits.while_present)
    )
    return earlier.decision != "approve" or limited


def _policy(rule: Rule, condition: _Condition, unless: Sequence[str]) -> str:
    effect = "permit" if rule.decision == "approve" else "forbid"
    clauses = list(condition.clauses)
    if rule.decision == "approve":
        clauses += ["!context.rejected_before"]
    limits = rule.limits
    clauses += [f"context.present.contains({_text(name)})" for name in limits.while_present]
    if limits.max_decisions is not None or limits.check_share or limits.review_share:
        clauses.append(f"context.within_limits.contains({_text(rule.name)})")
    when = " &&\n  ".join(clauses) or "true"
    excluded = "".join(f"\nunless {{\n  {each}\n}}" for each in unless)
    head = f"@id({_text(rule.name)})\n"
    if rule.words:
        head += f"@words({_text(rule.words)})\n"
    return f"{head}{effect} (principal, action, resource)\nwhen {{\n  {when}\n}}{excluded};\n"


def _condition(rule: Rule) -> _Condition:
    clauses: list[str] = []
    missing: list[str] = []
    for part, conditions in _parts(rule):
        try:
            clauses += list(conditions)
        except _Unsayable:
            missing.append(part)
    return _Condition(tuple(clauses), tuple(dict.fromkeys(missing)))


def _parts(rule: Rule) -> Iterator[tuple[str, Iterator[str]]]:
    """Each part of a rule with its conditions, which are made as they are read."""
    for part in ("proposer", "method", "tool"):
        node = rule.node(part)
        if node is not None:
            if part == "tool":
                yield part, iter(["context has tool"])
            yield part, _node(node, _Value(f"context.{part}", part, rule.is_careful))
    if rule.to is not None:
        yield "to", _hosts(rule)
    arguments = rule.node("arguments")
    if isinstance(arguments, Fields):
        if arguments.searches:
            yield "arguments", _unsayable()
        for path, node in _leaves(arguments, ()):
            yield f"argument {pointer(path)}", _argument(node, path, rule)
    for path, span in rule.range.items():
        yield f"range of {pointer(path)}", _range(path, span.low, span.high, whole=span.whole)
    for path, values in rule.values.items():
        yield f"{values.kind} of {pointer(path)}", _unsayable()
    for name, value in rule.equals.items():
        yield f"equals of {name}", _equals(name, value)
    if rule.is_careful:
        yield "arguments", _closed(rule)
    for key, hours in (("hours", rule.hours), ("seen_hours", rule.seen_hours)):
        if hours is not None:
            yield key, _hours(hours)
    if rule.after is not None:
        yield "after", iter([f"context.now >= {_time(rule.after)}"])
    for moment in (rule.before, rule.limits.expires_at):
        if moment is not None:
            yield "before", iter([f"context.now < {_time(moment)}"])


@dataclass(frozen=True, slots=True)
class _Value:
    """A text in the context: how it is written, its name in `plain`, whether a wildcard needs that."""

    written: str
    name: str
    is_careful: bool


def _unsayable() -> Iterator[str]:
    raise _Unsayable
    yield ""


def _node(node: Node, value: _Value) -> Iterator[str]:
    match node:
        case OneOf():
            ways = (" && ".join(_node(inner, value)) or "true" for inner in node.alternatives)
            yield f"({' || '.join(ways)})"
        case Text():
            yield from _glob(node.glob, value)
        case NotText():
            raise _Unsayable
        case Equal() | Exact() if isinstance(node.value, str):
            yield f"{value.written} == {_text(node.value)}"
        case _:
            raise _Unsayable


def _glob(found: Glob, value: _Value) -> Iterator[str]:
    if found.literal is not None:
        yield f"{value.written} == {_text(found.literal)}"
        return
    if found.lone:
        return
    if any(token in (ONE, STAR) for token in found.tokens) or ".." in found.source:
        raise _Unsayable
    parts = ("*" if token == CROSS else _escaped(token).replace("*", "\\*") for token in found.tokens)
    pattern = "".join(parts)
    yield f'{value.written} like "{pattern}"'
    if value.is_careful:
        yield f"context.plain.contains({_text(value.name)})"
    else:
        # No wildcard takes a segment `..`.
        ways = (f'{value.written} like "{each}"' for each in ("../*", "*/../*", "*/..", ".."))
        yield f"!({' || '.join(ways)})"


def _argument(node: Node, path: Path, rule: Rule) -> Iterator[str]:
    name = _text(pointer(path))
    kind, wanted = _scalar(node)
    if kind != "texts":
        yield f"context.{kind} has {name} && context.{kind}[{name}] == {wanted}"
        return
    value = _Value(f"context.texts[{name}]", f"arguments/{pointer(path)}", rule.is_careful)
    conditions = list(_node(node, value))
    yield " && ".join([f"context.texts has {name}", *conditions])


def _scalar(node: Node) -> tuple[str, str]:
    if isinstance(node, Equal | Exact):
        if isinstance(node.value, bool):
            return "flags", "true" if node.value else "false"
        if isinstance(node.value, int):
            return "numbers", str(node.value)
    return "texts", ""


def _hosts(rule: Rule) -> Iterator[str]:
    hosts = rule.to or ()
    if not hosts:
        yield "context.to.isEmpty()"
        return
    literals = [host for host in hosts if glob(host).literal is not None]
    if any(glob(host).lone for host in hosts):
        yield "!context.to.isEmpty()"
        return
    if len(literals) != len(hosts):
        raise _Unsayable
    yield f"!context.to.isEmpty() && [{', '.join(map(_text, literals))}].containsAll(context.to)"


def _range(path: Path, low: float, high: float, *, whole: bool) -> Iterator[str]:
    if not whole or not all(-(1 << 63) <= bound < 1 << 63 for bound in (low, high)):
        raise _Unsayable
    name = _text(pointer(path))
    value = f"context.numbers[{name}]"
    yield f"context.numbers has {name} && {value} >= {low} && {value} <= {high}"


def _equals(name: str, value: Json) -> Iterator[str]:
    key = _text(pointer((name,)))
    text = canonical(value).decode(errors="backslashreplace")
    yield f"context.json has {key} && context.json[{key}] == {_text(text)}"


def _closed(rule: Rule) -> Iterator[str]:
    """An approving rule names every argument, and nothing else is in the params."""
    yield "context.unexpected_fields.isEmpty()"
    if rule.extra_arguments:
        return
    named: set[Path] = set()
    arguments = rule.node("arguments")
    if isinstance(arguments, Fields):
        named |= {path for path, _ in _leaves(arguments, ())}
    named |= {*rule.range, *rule.values}
    for name, value in rule.equals.items():
        named |= {(name,), *_paths(value, (name,))}
    named |= {path[:length] for path in list(named) for length in range(1, len(path))}
    if named:
        names = ", ".join(_text(pointer(path)) for path in sorted(named))
        yield f"[{names}].containsAll(context.argument_names)"
    else:
        yield "context.argument_names.isEmpty()"


def _paths(value: Json, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield (*path, key)
            yield from _paths(inner, (*path, key))


def _leaves(node: Fields, path: Path) -> Iterator[tuple[Path, Node]]:
    for name, inner in node.literal:
        if isinstance(inner, Fields) and not inner.searches:
            yield from _leaves(inner, (*path, name))
        else:
            yield (*path, name), inner


def _hours(hours: Hours) -> Iterator[str]:
    if hours.zone != "UTC":
        raise _Unsayable
    time = "context.now.toTime()"
    after = f"{time} >= {_minutes(hours.start)}"
    before = f"{time} < {_minutes(hours.end + 1)}" if hours.end + 1 < DAY_MINUTES else "true"
    yield f"({after} {'&&' if hours.start <= hours.end else '||'} {before})"


def _minutes(minute: int) -> str:
    return f'duration("{minute // 60}h{minute % 60}m")'


def _time(moment: float) -> str:
    return f'datetime("{rfc3339(moment)}")'


def _text(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return "".join(_escape(char) for char in text)


def _escape(char: str) -> str:
    if "\ud800" <= char <= "\udfff":
        raise _Unsayable
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


# A proposal as a request to Cedar, with the facts that exported policies ask about.
#
# principal, action, resource     Member::"agent", Action::"tools/call", Tool::"write_file"
# context.to                      the hosts
# context.texts, numbers, flags   arguments that are texts, whole numbers (64 bits), true or false, by path
# context.json                    every argument of the first level as JSON text
# context.argument_names          all paths: an approving rule names every argument
# context.plain                   parts whose text is plain: proposer, method, tool, to, paths of arguments
# context.now                     a datetime
# context.present                 members who are present
# context.within_limits           rules whose count, spot check and the like let them decide now
# context.rejected_before         whether people rejected this very call
#
# A path is a JSON pointer without its first slash: `size`, `options/depth`. Cedar cannot say any of this by
# itself: it has no order of keys, no floats, no counts and no regular expressions.


def cedar_request(
    case: Case,
    now: float,
    *,
    present: Collection[str] = (),
    within_limits: Collection[str] = (),
    rejected_before: bool = False,
) -> dict[str, Any]:
    """The request in the form that Cedar's tools read."""
    values = dict(_values(case.arguments, ()))
    parts = {"proposer": case.proposer, "method": case.method}
    if case.tool is not None:
        parts["tool"] = case.tool
    texts = {pointer(path): value for path, value in values.items() if isinstance(value, str)}
    plain = [name for name, text in parts.items() if is_plain(text)]
    plain += ["to"] if all(is_plain(host) for host in case.to) else []
    plain += [f"arguments/{name}" for name, text in texts.items() if is_plain(text)]
    context: dict[str, Any] = {
        **parts,
        "to": sorted(set(case.to)),
        "texts": texts,
        "numbers": {pointer(path): value for path, value in values.items() if _is_long(value)},
        "flags": {pointer(path): value for path, value in values.items() if isinstance(value, bool)},
        "json": {
            pointer((name,)): canonical(value).decode(errors="backslashreplace")
            for name, value in case.arguments.items()
        },
        "argument_names": sorted(map(pointer, values)),
        "unexpected_fields": sorted(case.unexpected_fields),
        "plain": plain,
        "now": {"__extn": {"fn": "datetime", "arg": rfc3339(now)}},
        "present": sorted(present),
        "within_limits": sorted(within_limits),
        "rejected_before": rejected_before,
    }
    return {
        "principal": {"type": "Member", "id": case.proposer},
        "action": {"type": "Action", "id": case.method},
        "resource": {"type": "Tool", "id": case.tool or ""},
        "context": context,
    }


def pointer(path: Path) -> str:
    """The path as a JSON pointer without its first slash."""
    return "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)


def _values(value: Mapping[str, Json], path: Path) -> Iterator[tuple[Path, Json]]:
    for key, inner in value.items():
        yield (*path, key), inner
        if isinstance(inner, dict):
            yield from _values(inner, (*path, key))


def _is_long(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONG
