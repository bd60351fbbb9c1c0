"""Suggestions keep to what people approved: where a person had said the values, the rule asks for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from moot.protocol.operation import Json
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.suggestion import Suggestion, why_no_grant
from moot.trust.rules.rule_words import ASK_TEXT, MAX_SENTENCE, describe_shortly

# What was found about the origins of a proposal, if anybody looked.
FindingOf = Callable[[str], Mapping[str, Json] | None]


def ask_as_people_saw(
    suggestion: Suggestion, history: Sequence[HistoryProposal], finding: FindingOf
) -> Suggestion:
    """The suggestion with `ask: when_untrusted`, if people approved only calls whose origins did not ask.

    A rule must not approve what only a mail said because people approved what they had asked for themselves.
    """
    rule = suggestion.rule
    if rule.decision != "approve" or rule.method != "tools/call" or rule.ask is not None:
        return suggestion
    approved = (
        each for each in history if each.lesson == "approve" and rule.matches(each.case, each.case.at)
    )
    asked = {found["asks"] for each in approved if (found := finding(each.id)) is not None}
    if asked != {False}:
        return suggestion
    id = f"{suggestion.id}-said"
    words = suggestion.words + ASK_TEXT
    if len(words) > MAX_SENTENCE:
        words = describe_shortly(replace(rule, ask="when_untrusted"), {})
    origin = replace(rule.origin, suggestion=id)
    by_origin = replace(rule, ask="when_untrusted", origin=origin, words=words)
    no_grant = why_no_grant(by_origin)
    return replace(suggestion, id=id, rule=by_origin, words=words, grant=None, no_grant=no_grant)
