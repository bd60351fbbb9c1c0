"""The pane of rules: suggestions, rules, and the share of automatic decisions."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from moot.operations.text.rule_lines import (
    outcome_lines,
    rule_head,
    rule_lines,
    rule_yaml,
    share_lines,
    status_lines,
    suggestion_head,
    suggestion_lines,
)
from moot.operations.trust_log import RuleEntry, SuggestionEntry, TrustLog
from moot.protocol.operation import Json
from moot.tui.panes import CommandPane
from moot.tui.row_layout import Line, PaneRow, Tone, line

_SHARE_KEY: Final = "share"
_STATUS_KEY: Final = "status"
_OUTCOMES_KEY: Final = "outcomes"
_TONES: Final[dict[str, Tone]] = {"active": "good", "suspended": "warn", "observing": "note"}


class RulesPane(CommandPane):
    """Suggestions first, then the rules in their order, then the share of automatic decisions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "write('/accept {}')", "Accept"),
        Binding("n", "write('/accept {} --set ')", "Narrow and accept"),
        Binding("e", "write('/accept {} --grant')", "Grant instead"),
        Binding("d", "write('/dismiss {}')", "Dismiss"),
        Binding("l", "write('/resume-rules {}')", "Resume rule"),
        Binding("x", "write('/stop-rules {}')", "Suspend"),
        Binding("S", "write('/stop-rules')", "Stop all"),
        Binding("u", "write('/resume-rules')", "Resume all", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="rules", empty="No rules yet: you are asked every time")

    def show(self, log: TrustLog) -> int:
        """Fill the pane; returns how many suggestions are open."""
        suggestions, rules = log.open_suggestions(), log.rules()
        rows: list[PaneRow] = []
        problems = status_lines(log)
        if problems:
            rows.append(PaneRow(_STATUS_KEY, tuple(line((each, "bad")) for each in problems), indent=2))
        elif rules:
            rows.append(PaneRow(_STATUS_KEY, (line(("Rules on; everything else asks you", "good")),)))
        rows += [PaneRow(each.name, tuple(_suggestion_lines(each)), indent=4) for each in suggestions]
        rows += [PaneRow(each.name, tuple(_rule_lines(each)), indent=4) for each in rules]
        days = share_lines(log.report.days) if log.report is not None else []
        if days:
            head = line(("automatic decisions per day", "note"))
            rows.append(PaneRow(_SHARE_KEY, (head, *(line(each) for each in days)), indent=2))
        outcomes = outcome_lines(log.report.rule_days) if log.report is not None else []
        if outcomes:
            head = line(("rules in the last 60 days", "note"))
            rows.append(PaneRow(_OUTCOMES_KEY, (head, *(line(each) for each in outcomes)), indent=2))
        self.replace(rows)
        return len(suggestions)


def _suggestion_lines(each: SuggestionEntry) -> list[Line]:
    head = line(("? ", "warn"), (each.name, "strong"), (f"  suggested by {each.sender}", "dim"))
    evidence = (line(("    ", "dim"), (text, "dim")) for text in suggestion_lines(each)[:1])
    return [head, line("    ", each.text), *evidence]


def _rule_lines(each: RuleEntry) -> list[Line]:
    head, _, rest = rule_head(each).partition("  ")
    tone = _TONES.get(each.state, "dim")
    sign = "‖ " if each.state == "suspended" else "§ "
    lines = [line((sign, tone), (head, "strong"), (f"  {rest}", tone))]
    return [*lines, *(line("    ", text) for text in rule_lines(each))]


def rule_details(log: TrustLog, key: str) -> tuple[str, list[Line]] | None:
    """A title and all lines for a suggestion or a rule; None if there is none."""
    for suggested in log.suggestions():
        if suggested.name == key:
            lines = [suggestion_head(suggested), "", *suggestion_lines(suggested), ""]
            return f"suggestion {key}", _with_yaml(lines, suggested.payload.get("rule"))
    for ruled in log.rules():
        if ruled.name == key:
            return f"rule {key}", _with_yaml([rule_head(ruled), *rule_lines(ruled), ""], ruled.rule)
    return None


def _with_yaml(lines: list[str], rule: Json) -> list[Line]:
    return [line(each) for each in (*lines, *(rule_yaml(rule) if rule else ()))]
