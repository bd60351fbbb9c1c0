"""The pane of rules: what is suggested, what decides and how often, and the share that is automatic."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from moot.protocol.operation import Json
from moot.tui.row_layout import Line, PaneRow, Tone, line
from moot.tui.rows import Rows
from moot.tui.rule_lines import (
    rule_head,
    rule_lines,
    share_lines,
    standing_lines,
    suggestion_head,
    suggestion_lines,
    yaml_like,
)
from moot.tui.trust_log import RuleEntry, SuggestionEntry, TrustLog

SHARE: Final = "share"
STANDING: Final = "standing"
_TONES: Final[dict[str, Tone]] = {"active": "good", "suspended": "warn"}


class RulesPane(Rows):
    """The keys write a command; Enter carries it out."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "app.write('/accept {}')", "Accept"),
        Binding("n", "app.write('/accept {} --set ')", "Narrow and accept"),
        Binding("e", "app.write('/accept {} --grant')", "Grant instead"),
        Binding("d", "app.write('/dismiss {}')", "Dismiss"),
        Binding("l", "app.write('/resume-rules {}')", "Resume rule"),
        Binding("x", "app.write('/stop-rules {}')", "Suspend"),
        Binding("S", "app.write('/stop-rules')", "Stop all"),
        Binding("u", "app.write('/resume-rules')", "Resume all", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="rules", empty="No rules yet: you are asked every time")

    def show(self, log: TrustLog) -> int:
        """Fill it; how many suggestions wait."""
        waiting = log.open_suggestions()
        rows: list[PaneRow] = []
        standing = standing_lines(log)
        if standing:
            rows.append(PaneRow(STANDING, tuple(line((each, "bad")) for each in standing), hanging=2))
        rows += [PaneRow(each.name, tuple(_suggestion(each)), hanging=4) for each in waiting]
        rows += [PaneRow(each.name, tuple(_rule(each)), hanging=4) for each in log.rules()]
        days = share_lines(log.told.days) if log.told is not None else []
        if days:
            head = line(("automatic decisions per day", "note"))
            rows.append(PaneRow(SHARE, (head, *(line(each) for each in days)), hanging=2))
        self.replace(rows)
        return len(waiting)


def _suggestion(each: SuggestionEntry) -> list[Line]:
    head = line(("? ", "warn"), (each.name, "strong"), (f"  suggested by {each.sender}", "dim"))
    return [head, line("    ", each.words), *(line(("    ", "dim"), (text, "dim")) for text in _first(each))]


def _first(each: SuggestionEntry) -> list[str]:
    return suggestion_lines(each)[:1]


def _rule(each: RuleEntry) -> list[Line]:
    head, _, rest = rule_head(each).partition("  ")
    tone = _TONES.get(each.state, "dim")
    sign = "‖ " if each.state == "suspended" else "§ "
    lines = [line((sign, tone), (head, "strong"), (f"  {rest}", tone))]
    return [*lines, *(line("    ", text) for text in rule_lines(each))]


def in_full(log: TrustLog, key: str) -> tuple[str, list[Line]] | None:
    """A title and all lines of what is chosen; None for what is no rule."""
    for suggested in log.suggestions():
        if suggested.name == key:
            words = [suggestion_head(suggested), "", *suggestion_lines(suggested), ""]
            return f"suggestion {key}", _with_text(words, suggested.payload.get("rule"))
    for ruled in log.rules():
        if ruled.name == key:
            return f"rule {key}", _with_text([rule_head(ruled), *rule_lines(ruled), ""], ruled.rule)
    return None


def _with_text(words: list[str], rule: Json) -> list[Line]:
    return [line(each) for each in (*words, *(yaml_like(rule) if rule else ()))]
