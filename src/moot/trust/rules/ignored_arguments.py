"""Arguments that do not matter: people said so of a tool (`ignore` in its line under `tools:`).

A rule does not compare such an argument, but it still has to be there and to be plain words: up to 4,000
characters, no code, addresses, keys, numbers of cards and accounts, nor words such as password
(`moot.values.templates.is_prose`). What is no text is compared as before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from moot.protocol.operation import Json
from moot.trust.rules.rule import Rule
from moot.values.kinds import ValuePattern

# In a key, instead of a text that does not matter.
_ANY: Final[Json] = {"any": "words"}


def any_words(*texts: str) -> ValuePattern:
    """Plain words like these: on several lines only if one of them had some."""
    return ValuePattern("text", ["<lines>" if any("\n" in text for text in texts) else "<prose>"])


def mask(arguments: Mapping[str, Json], ignored: Collection[str]) -> dict[str, Json]:
    """The arguments with the same stand-in for each text that does not matter."""
    return {
        name: _ANY if name in ignored and isinstance(value, str) else value
        for name, value in arguments.items()
    }


def loosen_learned(rules: Sequence[Rule], tool: str | None, ignored: Collection[str]) -> Sequence[Rule]:
    """The rules with those loosened that were learned of calls of this tool."""
    if not ignored:
        return rules
    return [
        loosen(rule, ignored)
        if rule.origin.suggestion is not None and rule.decision == "approve" and rule.tool == tool
        else rule
        for rule in rules
    ]


def loosen(rule: Rule, ignored: Collection[str]) -> Rule:
    """The rule with any plain words where it compared the text of an argument that does not matter."""
    found: dict[tuple[str, ...], ValuePattern] = {}
    for name in ignored:
        exact, pattern = rule.equals.get(name), rule.arguments.get(name)
        texts = [pattern] if isinstance(pattern, str) else pattern
        if isinstance(exact, str):
            found[name,] = any_words(exact)
        elif isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            found[name,] = any_words(*texts)
        elif (name,) in rule.values:
            found[name,] = any_words(*rule.values[name,].texts())
    if not found:
        return rule
    names = {path[0] for path in found}
    return replace(
        rule,
        equals={name: value for name, value in rule.equals.items() if name not in names},
        arguments={name: value for name, value in rule.arguments.items() if name not in names},
        values={**rule.values, **found},
        words="",
    )
