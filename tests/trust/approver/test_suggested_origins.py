"""A suggested rule does not approve what only others said, unless people approved such calls, too."""

from __future__ import annotations

from moot.protocol.operation import Json
from moot.trust.approver.rule_suggester import ask_as_people_saw
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.learner import add_rule, suggest
from moot.trust.learning.suggestion import Suggestion
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from tests.trust.histories import HOUR, START, call, history

NOW = START + 100 * HOUR


def _suggested(asks: list[bool | None]) -> tuple[Suggestion, list[HistoryProposal]]:
    """Of reports that people approved, each with whether its origins asked; None: nobody looked."""
    past = list(history([{"path": f"reports/day-{day}.md", "text": "quiet"} for day in range(10, 22)]))
    found: dict[str, dict[str, Json]] = {
        each.id: {"asks": asked} for each, asked in zip(past, asks, strict=True) if asked is not None
    }
    (suggestion,) = suggest(past, now=NOW)
    return ask_as_people_saw(suggestion, past, found.get), past


def test_what_people_had_said_themselves_becomes_a_rule_that_asks_for_others_values() -> None:
    suggestion, past = _suggested([False] * 11 + [None])
    rule = suggestion.rule
    assert (rule.ask, rule.origin.suggestion) == ("when_untrusted", suggestion.id)
    assert "came from nobody trusted" in suggestion.words
    assert (suggestion.grant, "where values came from" in str(suggestion.no_grant)) == (None, True)
    report = call({"path": "reports/day-30.md", "text": "quiet"})
    assert evaluate([rule], report, START, untrusted=None).decision == "approve"
    assert evaluate([rule], report, START, untrusted="a mail said it").decision == "ask"
    # Once accepted it is not suggested again, and stands before the rule for everything.
    by_origin = Rule(name="by-origin", decision="approve", tool="*", ask="when_untrusted")
    rules = add_rule([by_origin], rule)
    assert rules == (rule, by_origin)
    assert suggest(past, rules, now=NOW) == []


def test_where_people_approved_what_others_said_or_nobody_looked_the_rule_asks_for_nothing() -> None:
    for asks in ([False] * 11 + [True], [None] * 12):
        assert _suggested(list(asks))[0].rule.ask is None
