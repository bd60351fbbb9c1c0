"""Writes rules as JSON and YAML, as `rule_yaml` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Path
from moot.trust.rules.conditions import Range, RangeByText
from moot.trust.rules.rule import Rule, RuleLimits
from moot.trust.rules.rule_settings import NO_HEAD, RuleFileHead, settings_as_json
from moot.trust.rules.rule_yaml import UNITS
from moot.values.kinds import KINDS


def rule_as_json(rule: Rule) -> dict[str, Json]:
    """The rule as `rule_of_json` reads it, without default values."""
    written: dict[str, Json] = {"name": rule.name, "decision": rule.decision}
    if rule.words:
        written["words"] = rule.words
    for key in ("proposer", "to", "method", "tool", "undo"):
        value = getattr(rule, key)
        if value is not None:
            written[key] = list(value) if isinstance(value, tuple) else value
    if rule.arguments:
        written["arguments"] = dict(rule.arguments)
    if rule.range:
        written["range"] = _nested({path: _range_as_json(span) for path, span in rule.range.items()})
    for kind in KINDS:
        templates = {path: each.texts() for path, each in rule.values.items() if each.kind == kind}
        if templates:
            written[kind] = _nested({p: t[0] if len(t) == 1 else t for p, t in templates.items()})
    if rule.equals:
        written["equals"] = dict(rule.equals)
    if rule.extra_arguments:
        written["extra_arguments"] = True
    if rule.hours is not None:
        written["hours"] = str(rule.hours)
    for key in ("after", "before"):
        moment = getattr(rule, key)
        if moment is not None:
            written[key] = rfc3339(moment)
    if rule.ask is not None:
        written["ask"] = rule.ask
    if rule.observe:
        written["observe"] = True
    limits = _limits_as_json(rule.limits)
    if limits:
        written["limits"] = limits
    origin = {key: getattr(rule.origin, key) for key in ("suggestion", "plan", "accepted_by", "limited_by")}
    if rule.origin.accepted is not None:
        origin["accepted"] = rfc3339(rule.origin.accepted)
    if rule.origin.seconded_by:
        origin["seconded_by"] = list(rule.origin.seconded_by)
    origin = {key: value for key, value in origin.items() if value is not None}
    if origin:
        written["origin"] = origin
    return written


def _range_as_json(span: Range) -> Json:
    if isinstance(span, RangeByText):
        return [span.of, {text: [each.low, each.high] for text, each in span.by.items()}]
    return [span.low, span.high]


def _limits_as_json(limits: RuleLimits) -> dict[str, Json]:
    written: dict[str, Json] = {}
    if limits.max_decisions is not None:
        written |= {"count": limits.max_decisions, "per": _duration_text(limits.per_seconds)}
    if limits.each is not None:
        written["each"] = limits.each
    if limits.gap_seconds:
        written["every"] = _duration_text(limits.gap_seconds)
    if limits.expires_at is not None:
        written["expires_at"] = rfc3339(limits.expires_at)
    if limits.while_present:
        written["while_present"] = list(limits.while_present)
    if limits.check_share:
        written["check_share"] = limits.check_share
    if limits.review_share:
        written["review_share"] = limits.review_share
    if limits.sums:
        written["sums"] = _nested(limits.sums)
    return written


def _duration_text(seconds: float) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{seconds:.0f}s"


def _nested(leaves: Mapping[Path, Json]) -> dict[str, Json]:
    nested: dict[str, Json] = {}
    for path, leaf in leaves.items():
        inner = nested
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = leaf
    return nested


def write_rules(
    rules: Sequence[Rule], tests: Json = None, settings: RuleFileHead = NO_HEAD, *, cedar: Json = None
) -> str:
    """The YAML of rules, in their order, with what else the file says; tests as `read_yaml` gave them."""
    said = settings_as_json(settings)
    tools = {"tools": said.pop("tools")} if "tools" in said else {}
    top: dict[str, Json] = {**said, "rules": [rule_as_json(rule) for rule in rules], **tools}
    if cedar:
        top["cedar"] = cedar
    if tests is not None:
        top["tests"] = tests
    return yaml.dump(top, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Escapes texts with invisible characters: to YAML, U+0085 is ordinary white space."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    seen = text.isprintable() or all(char.isprintable() or char == "\n" for char in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if seen else '"')


_Dumper.add_representer(str, _represent_text)
_Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
