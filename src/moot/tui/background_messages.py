"""What the timeline hides until somebody filters it: the questions that programs ask by themselves.

It goes by the method, and for rules by who is asked, never by a mark of the sender: every other call is
shown, and so is every answer that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moot.protocol.envelope import Envelope

_QUESTIONS: Final = frozenset(
    {"tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping"}
)
# The tools of an approver that change nothing; consoles call them to show the rules.
_RULE_QUESTIONS: Final = frozenset(
    {"trust_rules", "trust_suggestions", "trust_report", "trust_reviews", "trust_explain"}
)

# Whether the space lets a member keep rules.
KeepsRules = Callable[[str], bool]


def is_background(envelope: Envelope, known: Mapping[str, Envelope], keeps_rules: KeepsRules) -> bool:
    """Whether this is such a question, or the answer to one of those that are `known` by their ids."""
    if envelope.kind == "mcp/request":
        return _is_question(envelope, keeps_rules)
    if envelope.kind != "mcp/response" or _has_failed(envelope):
        return False
    causes = [known[id] for id in envelope.correlation_id if id in known]
    return bool(causes) and all(_is_question(each, keeps_rules) for each in causes)


def _is_question(envelope: Envelope, keeps_rules: KeepsRules) -> bool:
    # One that refers to something approves it: a decision.
    if envelope.kind != "mcp/request" or envelope.correlation_id:
        return False
    method = envelope.payload.get("method")
    if method in _QUESTIONS:
        return True
    params = envelope.payload.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    is_rule_question = method == "tools/call" and name in _RULE_QUESTIONS
    return is_rule_question and bool(envelope.to) and all(keeps_rules(each) for each in envelope.to)


def _has_failed(envelope: Envelope) -> bool:
    result = envelope.payload.get("result")
    return "error" in envelope.payload or (isinstance(result, dict) and result.get("isError") is True)
