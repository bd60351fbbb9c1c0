"""Reads and writes rules files: the rules of a space, and what else the file says.

accepting_people: 2                 so many people have to accept a suggestion
reads: remember                     what a person approved of a tool that only reads runs from then on
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
tools: …                            what tools do (`moot.origins.tool_traits`)
cedar: [policies.cedar]             files of policies beside it (`cedar_policies`)
tests: …                            read by `rule_tests`; they decide nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.origins.tool_traits import entries_from_json
from moot.protocol.operation import Json
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_json import mapping, rule_as_json, rule_of_json

# For one space.
MAX_RULES: Final = 500
MAX_ACCEPTING_PEOPLE: Final = 10
MAX_CEDAR_FILES: Final = 16
_KEYS: Final = ("rules", "tests", "cedar", "accepting_people", "reads", "tools")


class RuleFile(NamedTuple):
    """A rules file; `tools` and `tests` as they are written."""

    rules: tuple[Rule, ...] = ()
    accepting_people: int = 1
    remembers_reads: bool = False
    tools: Mapping[str, Json] = {}
    cedar: tuple[str, ...] = ()
    tests: Json = None


def read_rules(text: str) -> tuple[Rule, ...]:
    """The rules of a YAML text; raises UsageError with the place of the mistake."""
    return read_rule_file(text).rules


def read_rule_file(text: str) -> RuleFile:
    """All that a YAML text says; raises UsageError with the place of the mistake."""
    value = read_yaml(text)
    if value is None:
        return RuleFile()
    top = mapping(value, "the file", _KEYS)
    people = top.get("accepting_people", 1)
    if isinstance(people, bool) or not isinstance(people, int) or not 1 <= people <= MAX_ACCEPTING_PEOPLE:
        raise UsageError(f"accepting_people must be a whole number from 1 to {MAX_ACCEPTING_PEOPLE}")
    reads = top.get("reads", "ask")
    if reads not in ("ask", "remember"):
        raise UsageError("reads must be remember, or ask, which is the same as leaving it out")
    tools = top.get("tools") or {}
    entries_from_json(tools)
    rules, cedar = _read_rules(top.get("rules") or []), _read_cedar(top.get("cedar") or [])
    return RuleFile(rules, people, reads == "remember", tools, cedar, top.get("tests"))


def _read_rules(listed: Json) -> tuple[Rule, ...]:
    if not isinstance(listed, list):
        raise UsageError("rules must be a list: `rules:` followed by lines of `- name: …`")
    if len(listed) > MAX_RULES:
        raise UsageError(
            f"rules has {len(listed)} rules, more than the limit of {MAX_RULES}; merge or remove some"
        )
    rules = tuple(rule_of_json(value, f"rules[{at}]") for at, value in enumerate(listed))
    seen: set[str] = set()
    for at, rule in enumerate(rules):
        if rule.name in seen:
            raise UsageError(f"rules[{at}].name {rule.name!r} is used twice; names must be unique")
        seen.add(rule.name)
    return rules


def _read_cedar(listed: Json) -> tuple[str, ...]:
    names = [listed] if isinstance(listed, str) else listed
    if not isinstance(names, list) or len(names) > MAX_CEDAR_FILES:
        raise UsageError(f"cedar must be a list of at most {MAX_CEDAR_FILES} files of this folder")
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name in ("", "..", "."):
            raise UsageError(f"cedar: {name!r} must be the name of a file in the folder of the rules")
    return tuple(names)


def write_rules(rules: Sequence[Rule], file: RuleFile = RuleFile()) -> str:  # noqa: B008  (it is immutable)
    """The YAML of rules, in their order, with what else a file says, as `read_rule_file` reads it."""
    top: dict[str, Json] = {}
    if file.accepting_people > 1:
        top["accepting_people"] = file.accepting_people
    if file.remembers_reads:
        top["reads"] = "remember"
    top["rules"] = [rule_as_json(rule) for rule in rules]
    if file.tools:
        top["tools"] = dict(file.tools)
    if file.cedar:
        top["cedar"] = list(file.cedar)
    if file.tests is not None:
        top["tests"] = file.tests
    return yaml.dump(top, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Escapes texts with invisible characters: to YAML, U+0085 is ordinary white space."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    seen = text.isprintable() or all(char.isprintable() or char == "\n" for char in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if seen else '"')


_Dumper.add_representer(str, _represent_text)
_Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
