"""Looks for what approving rules allow and nobody may have meant: traversal, injection, `*`.

For each open part of a rule it makes the calls that an attacker would try, and warns only of those that the
rule itself matches. So every warning has an example that the rule really approves; no warning is not a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from moot.protocol.operation import Json
from moot.protocol.patterns.globs import CROSS, ONE, STAR, glob
from moot.protocol.patterns.pattern import Node, NotText, OneOf, Regex, Text
from moot.trust.history.proposal_case import Case, Path, path_text, put_at
from moot.trust.rules.regex_examples import regex_examples
from moot.trust.rules.rule import NO_LIMITS, Rule
from moot.trust.rules.rule_samples import (
    OTHER_HOST,
    OTHER_TOOL,
    STRANGER,
    call_as_json,
    fill_wildcards,
    sample_call,
)
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_words import describe_rule
from moot.values.examples import edge_texts
from moot.values.kinds import ValuePattern, recognise
from moot.values.sql import names_a_part

# What is put in place of a wildcard, and behind and before a text, by what it would do.
_FILLINGS: Final = {
    "injection": (
        "x; rm -rf ~", "x && rm -rf ~", "x | sh", "$(rm -rf ~)", "`rm -rf ~`", "x\nrm -rf ~",
    ),
    "query": ("x; DROP TABLE users", "x' OR '1'='1", "x UNION SELECT password FROM users"),
    "traversal": ("../../etc/passwd", "x/../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..\\..\\secrets"),
    "options": ("--force", "-rf /", "x --output=/etc/passwd"),
    "secrets": (".env", ".ssh/id_rsa", "secrets/passwords.txt"),
    "another host": (".evil.example/", "@evil.example/", "evil.example#", "evil.example?"),
    "another recipient": ("x@evil.example,y", "x@evil.example", ".evil.example"),
}  # fmt: skip
_TAILS: Final = {
    "injection": ("; rm -rf ~", " && rm -rf ~", "\nrm -rf ~", "$(rm -rf ~)"),
    "query": ("; DROP TABLE users", " OR 1=1"),
    "traversal": ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"),
    "another host": (".evil.example/", "@evil.example/"),
}
_WORDS: Final = {
    "injection": "lets another command be put behind or inside what was meant",
    "query": "lets another statement or condition be put into a query",
    "traversal": "lets a path leave its folder",
    "options": "lets options be added to a command",
    "secrets": "includes files that usually hold secrets",
    "another host": "includes addresses of other hosts",
    "another recipient": "includes recipients at other domains",
    "anything": "allows anything",
    "statement": "lets a table, a column or a keyword be another: it was summarised before values alone were",
    "prefix": "matches a part of the text: anything may stand before it or behind it",
}
# Which dangers there are in which kind of value; of what is not known, all.
_DANGERS: Final = {
    "shell": ("injection", "options"),
    "sql": ("query",),
    "path": ("traversal", "secrets"),
    "url": ("another host", "traversal"),
    "email": ("another recipient",),
    "id": ("injection", "traversal"),
    "amount": ("injection",),
    "time": ("injection",),
    "day": (),
    "text": ("injection",),
}
_ANYTHING: Final = "anything at all; rm -rf ~"


@dataclass(frozen=True, slots=True)
class RuleWarning:
    """What a rule may be abused for, and a call that it approves."""

    rule: str
    part: str
    danger: str
    text: str
    example: dict[str, Json]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was found about the approving rules of a file, and those of which no call could be made up."""

    warnings: tuple[RuleWarning, ...]
    unchecked: tuple[str, ...]
    # Rules that ask when a value is untrusted, with the calls that they are for, in words.
    by_origin: tuple[tuple[str, str], ...] = ()


def check_rules(rule_set: RuleSet) -> CheckReport:
    """Check all approving rules and remembered calls; what another rule or a Cedar policy keeps from being
    approved is no warning, and what a policy permits of the calls that are tried is one about the policy.
    """
    found: list[RuleWarning] = []
    unchecked: list[str] = []
    rules, policies = rule_set.rules, rule_set.policies
    checked = [*rules, *rule_set.calls]
    for position, rule in enumerate(checked):
        # By its patterns alone one with `ask` approves nothing.
        if rule.decision == "approve" and rule.ask is None:
            others = [_timeless(r) for r in rules if r.decision != "approve" and not _is_timed(r)]
            before = sum(1 for r in rules[:position] if r.decision != "approve" and not _is_timed(r))
            ordered = [*others[:before], _timeless(rule), *others[before:]]
            warnings = _check_rule(rule, RuleSet(ordered, policies))
            found += [each for each in warnings if each not in found]
            if not warnings and not _timeless(rule).matches(sample_call(rule), 0.0):
                unchecked.append(rule.name)
    by_origin = tuple((rule.name, describe_rule(rule)) for rule in checked if rule.ask is not None)
    return CheckReport(tuple(found), tuple(unchecked), by_origin)


def _is_timed(rule: Rule) -> bool:
    """Whether it does not apply at every time."""
    return any(each is not None for each in (rule.hours, rule.after, rule.ends_at))


def _timeless(rule: Rule) -> Rule:
    """As if it were one of its hours, and nothing were used up."""
    return replace(rule, hours=None, after=None, before=None, limits=NO_LIMITS)


def _check_rule(rule: Rule, rules: RuleSet) -> list[RuleWarning]:
    base = sample_call(rule)
    found: dict[tuple[str, str], RuleWarning] = {}
    for part, danger, case in attempted_calls(rule, base):
        verdict = rules.decide(case, 0.0) if (part, danger) not in found else None
        if verdict is not None and verdict.rule is not None and verdict.decision == "approve":
            words = _WORDS.get(danger, danger)
            found[part, danger] = RuleWarning(verdict.rule.name, part, danger, words, call_as_json(case))
    # Whatever else an argument allows is said by this.
    open_parts = {part for part, danger in found if danger == "anything"}
    return [each for (part, danger), each in found.items() if danger == "anything" or part not in open_parts]


def attempted_calls(rule: Rule, base: Case) -> Iterator[tuple[str, str, Case]]:
    """Calls that an attacker would try: the part that is changed, the danger, the call."""
    if rule.proposer is None or rule.proposer in ("*", "**"):
        yield "proposer", "any member can propose it", replace(base, proposer=STRANGER)
    if rule.to is None or any(glob(host).lone for host in rule.to):
        yield "to", "it may be for any host", replace(base, to=(OTHER_HOST,))
    yield "tool", "it may be any tool", replace(base, tool=OTHER_TOOL)
    if rule.extra_arguments:
        arguments = {**base.arguments, "force": True, "then_run": "rm -rf ~"}
        yield "extra_arguments", "any other arguments are allowed", replace(base, arguments=arguments)
    texts = [
        (path, danger, text)
        for path, node in rule.argument_nodes()
        for danger, text in _attacks(node, path, rule)
    ]
    for path, values in rule.values.items():
        named = [each for each in values.templates if values.kind == "sql" and names_a_part(each)]
        for template in named:
            texts += [(path, "statement", each) for each in edge_texts(ValuePattern("sql", [str(template)]))]
        if any(slot.kind == "text" for template in values.templates for slot in template.slots):
            texts += [(path, "anything", each) for each in (_ANYTHING, *edge_texts(values))]
    for path, danger, text in texts:
        yield path_text(path), danger, replace(base, arguments=put_at(base.arguments, path, text))


def _attacks(node: Node, path: Path, rule: Rule) -> Iterator[tuple[str, str]]:
    """Texts that an attacker would try in an argument with this pattern."""
    match node:
        case OneOf():
            for inner in node.alternatives:
                yield from _attacks(inner, path, rule)
        case NotText():
            yield "anything", _ANYTHING
        case Text() if node.glob.literal is None:
            if node.glob.lone:
                yield "anything", _ANYTHING
                return
            plain = fill_wildcards(node, "x")
            for danger in _dangers(path, plain, rule):
                for filling in _FILLINGS[danger]:
                    for text in _filled_once(node, filling):
                        yield danger, text
        case Regex():
            # RE2 knows a few forms that cannot be read here; the texts are tried as they are.
            for sample in (*regex_examples(node.source),) or ("",):
                for danger in _dangers(path, sample, rule):
                    for text in (*_TAILS.get(danger, ()), *_FILLINGS[danger]):
                        made = regex_examples(node.source, filling=text)
                        yield from ((danger, each) for each in made if text in each)
                        yield danger, sample + text
                yield "prefix", f"rm -rf ~; {sample}"
                yield "prefix", f"{sample}; rm -rf ~"


def _dangers(path: Path, sample: str, rule: Rule) -> Sequence[str]:
    tool = rule.tool if isinstance(rule.tool, str) else None
    kind = recognise(path[-1], [sample], tool=tool)
    return _DANGERS[kind] if kind is not None else tuple(_FILLINGS)


def _filled_once(node: Text, filling: str) -> Iterator[str]:
    """The filling in place of each wildcard in turn, with something harmless in the others."""
    tokens = node.glob.tokens
    for at, token in enumerate(tokens):
        if token in (STAR, CROSS):
            rest = "".join("x" if each in (ONE, STAR, CROSS) else each for each in tokens[at + 1 :])
            yield "".join("x" if e in (ONE, STAR, CROSS) else e for e in tokens[:at]) + filling + rest
