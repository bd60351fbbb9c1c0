"""What rules decided and nobody has looked at yet: reviews.jsonl in the approver's folder.

A rule with `limits.review_share` has people look at what it decided, some decisions at a time: a review is
due when the decisions that nobody reviewed are more than this share of the reviewed ones, and at least
`MIN_DECISIONS`. If nobody looks, the rule decides until there are `MAX_REVIEWS` times as many, and then
leaves a proposal to people, whose approval stands for as many decisions as a review. So a policy that
changes is noticed after few decisions, and the more a rule has proved right, the rarer it is looked at.

A line is written before a decision is sent: a process that is killed forgets none. What cannot be written is
not decided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from moot.protocol.operation import Json
from moot.trust.approver.line_file import LineFile
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.rule import Rule

REVIEWS_NAME: Final = "reviews.jsonl"
# A review is about at least so many decisions: people should not be called for each.
MIN_DECISIONS: Final = 6
# After so many reviews that nobody did, a rule leaves decisions to people.
MAX_REVIEWS: Final = 5


class RuleReviews:
    """The decisions of each rule that nobody has reviewed, oldest first, and how many were."""

    def __init__(self, file: LineFile | None = None) -> None:
        self._file = file or LineFile()
        self._unreviewed: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._reviewed: Counter[str] = Counter()
        # When the latest decision was made that is noted here.
        self.last_at = 0.0
        self._file.read(self._take, self._summary)

    @classmethod
    def open(cls, folder: Path) -> RuleReviews:
        """Read what is noted in a folder; a file that cannot be read pauses the rules that need it."""
        return cls(LineFile(folder / REVIEWS_NAME))

    # Deciding

    def note(self, rule: Rule, id: str, at: float) -> bool:
        """Note a decision before it is sent; returns whether it may be."""
        if not rule.limits.review_share:
            return True
        line: dict[str, Json] = {"rule": rule.name, "decided": id, "at": at}
        is_written = self._file.write(line)
        if is_written:
            self._take(line)
        return is_written

    def pause_reasons(self, rules: Iterable[Rule]) -> Mapping[str, str]:
        """Why rules decide nothing until somebody has reviewed what they decided, as `evaluate` takes it."""
        found = {}
        for rule in rules:
            if rule.limits.review_share and self.left(rule) == 0:
                count = len(self._unreviewed[rule.name])
                found[rule.name] = f"nobody has reviewed its last {count} decisions"
            elif rule.limits.review_share and self._file.fault is not None and not self._file.write({}):
                found[rule.name] = f"what it decides cannot be noted for a review: {self._file.fault}"
        return found

    def left(self, rule: Rule) -> int | None:
        """How many decisions it has left until somebody must have reviewed some; None without reviews."""
        if not rule.limits.review_share:
            return None
        return max(0, MAX_REVIEWS * self._batch(rule) - len(self._unreviewed[rule.name]))

    def is_due(self, rule: Rule, *, anew: bool = False) -> bool:
        """Whether people should look at what it decided; `anew`: whether to call them now, once a batch."""
        more = len(self._unreviewed[rule.name]) - self._batch(rule)
        return bool(rule.limits.review_share) and more >= 0 and not (anew and more % MIN_DECISIONS)

    def _batch(self, rule: Rule) -> int:
        return max(MIN_DECISIONS, int(rule.limits.review_share * self._reviewed[rule.name]))

    # Reviewing

    def unreviewed(self, rule: str) -> tuple[str, ...]:
        """The proposals that it decided and nobody has reviewed, oldest first."""
        return tuple(self._unreviewed[rule])

    def reviewed(self, rule: str) -> int:
        return self._reviewed[rule]

    def rule_of(self, id: str) -> str | None:
        """The rule whose unreviewed decision this is."""
        return next((rule for rule, ids in self._unreviewed.items() if id in ids), None)

    def confirm(self, ids: Iterable[str]) -> dict[str, int]:
        """A person found these decisions right; returns how many of each rule were not reviewed before."""
        found: Counter[str] = Counter()
        for id in ids:
            rule = self.rule_of(id)
            # What cannot be noted as reviewed is shown again.
            if rule is not None and self._file.write({"rule": rule, "reviewed": id}):
                self._take({"rule": rule, "reviewed": id})
                found[rule] += 1
        return dict(found)

    def note_decision(self, rules: Iterable[Rule], decision: HistoryProposal) -> None:
        """A person approved what a rule left to them because nobody reviews it: a sample of its decisions."""
        for rule in rules if decision.lesson == "approve" else ():
            if self.left(rule) == 0 and rule.matches(decision.case, decision.case.at):
                self.confirm(self.unreviewed(rule.name)[: self._batch(rule)])

    def object_to(self, id: str) -> None:
        """A person found this decision wrong: it proves nothing, and the rule starts anew."""
        self._take_away(id, "wrong")

    def forget(self, id: str) -> None:
        """It was noted, and then the rule did not decide it."""
        self._take_away(id, "forgotten")

    def _take_away(self, id: str, why: str) -> None:
        if (rule := self.rule_of(id)) is not None:
            self._file.write({"rule": rule, why: id})
            self._take({"rule": rule, why: id})

    # The file

    def _take(self, line: Any) -> None:
        if not line:
            return
        rule = str(line["rule"])
        unreviewed = self._unreviewed[rule]
        if "decided" in line:
            unreviewed[str(line["decided"])] = None
            self.last_at = max(self.last_at, float(line["at"]))
        elif "reviewed" in line:
            unreviewed.pop(str(line["reviewed"]), None)
            self._reviewed[rule] += 1
        elif "forgotten" in line:
            unreviewed.pop(str(line["forgotten"]), None)
        elif "wrong" in line:
            unreviewed.pop(str(line["wrong"]), None)
            del self._reviewed[rule]
        else:
            self._reviewed[rule] = int(line["count"])

    def _summary(self) -> Iterator[dict[str, Json]]:
        yield from ({"rule": rule, "count": count} for rule, count in self._reviewed.items())
        for rule, ids in self._unreviewed.items():
            yield from ({"rule": rule, "decided": id, "at": self.last_at} for id in ids)
